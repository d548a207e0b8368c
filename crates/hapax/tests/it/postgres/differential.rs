//! Plain SQL against the program's verb: the same calls on two schemas, answers and rows compared.
//!
//! The clock is the server's and cannot be moved, so times are compared only as far as they are given.

use hapax::clock::Micros;
use hapax::id::{Boundary, Fingerprint, Payload};
use hapax::model::{
    Due, End, EnqueueAnswer, Finish, Guarantee, JobRecord, KeyClaim, KeyHolder, KeyRecord, NewJob, RetryPolicy,
};
use hapax::store::postgres::PostgresStore;
use hapax::store::{Inspect, Jobs, Once, Operate};
use hapax::{InstanceId, JobId};
use sqlx::error::DatabaseError;
use sqlx::{PgConnection, Row};

use super::functions::{claim, key, name, register};
use super::place::Place;

const HOUR_US: i64 = 3_600_000_000;
const DAY_MS: u64 = 86_400_000;

/// What an enqueue said, in words that both have.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Enqueued(JobId),
    Existed(JobId, bool),
    OtherWork,
    TooOld,
}

fn said(answer: &EnqueueAnswer) -> Said {
    match answer {
        EnqueueAnswer::Enqueued { id } => Said::Enqueued(*id),
        EnqueueAnswer::Existed { holder: KeyHolder::Job(id), done } => Said::Existed(*id, *done),
        EnqueueAnswer::Existed { .. } => unreachable!("no bare claim has such a key"),
        EnqueueAnswer::OtherFingerprint { .. } => Said::OtherWork,
        EnqueueAnswer::Quarantined { .. } => Said::TooOld,
    }
}

/// The same call by SQL.
async fn by_sql(connection: &mut PgConnection, new: &NewJob) -> Said {
    let (due_at, delay_ms) = match new.due {
        Due::Now => (None, None),
        Due::InMs(ms) => (None, i64::try_from(ms).ok()),
        Due::At(at) => (Some(at), None),
    };
    let once = new.once.as_ref();
    let text = "select * from enqueue($1, $2, queue => $3, once => $4, due_at => $5, delay_ms => $6, priority => $7, \
                id => $8, payload_version => $9, fingerprint => $10, made_at => $11, guarantee => $12, \
                max_attempts => $13, retry_base_ms => $14, retry_cap_ms => $15, retry_jitter_percent => $16, \
                run_timeout_ms => $17, keep_ms => $18, keep_key_ms => $19)";
    let number = |n: u64| i64::try_from(n).expect("small");
    let answered = sqlx::query(text)
        .bind(new.kind.as_str())
        .bind(new.payload.as_str())
        .bind(new.queue.as_str())
        .bind(once.map(|once| once.key.value().to_owned()))
        .bind(due_at)
        .bind(delay_ms)
        .bind(i64::from(new.priority))
        .bind(new.id)
        .bind(i64::from(new.payload_version))
        .bind(once.and_then(|once| once.fingerprint).map(|print| print.as_bytes().to_vec()))
        .bind(once.and_then(|once| once.made_at))
        .bind(new.guarantee.as_str())
        .bind(i64::from(new.retry.max_attempts))
        .bind(number(new.retry.base_ms))
        .bind(number(new.retry.cap_ms))
        .bind(i64::from(new.retry.jitter_percent))
        .bind(number(new.run_timeout_ms))
        .bind(number(new.keep_ms))
        .bind(once.map_or(0, |once| number(once.keep_ms)))
        .fetch_one(connection)
        .await;
    match answered {
        Ok(row) if row.get("existed") => Said::Existed(row.get("id"), row.get("done")),
        Ok(row) => Said::Enqueued(row.get("id")),
        Err(error) => match error.as_database_error().and_then(DatabaseError::code).as_deref() {
            Some("HX001") => Said::OtherWork,
            Some("HX002") => Said::TooOld,
            _ => panic!("{new:?}: {error}"),
        },
    }
}

fn new_job(rng: &mut fastrand::Rng, known: &[JobId], wall: Micros) -> NewJob {
    let again = !known.is_empty() && rng.u8(..8) == 0;
    let kind = ["k", "l"][rng.usize(..2)];
    let payload = Payload::new(["{}", r#""\u0000""#][rng.usize(..2)]).expect("JSON");
    let fingerprint = match rng.u8(..4) {
        0 => Fingerprint::of(b"given"),
        _ => Fingerprint::of(payload.as_str().as_bytes()),
    };
    let claim = |rng: &mut fastrand::Rng| KeyClaim {
        key: key(Boundary::Enqueue, kind, &format!("key-{}", rng.u8(..6))),
        fingerprint: Some(fingerprint),
        keep_ms: [0, DAY_MS][rng.usize(..2)],
        made_at: (rng.u8(..4) == 0).then(|| Micros(wall.0 - rng.i64(0..48) * HOUR_US)),
    };
    NewJob {
        id: if again { known[rng.usize(..known.len())] } else { JobId::new() },
        queue: name("default"),
        kind: name(kind),
        payload,
        payload_version: rng.u16(..),
        priority: rng.i16(-2..3),
        due: match rng.u8(..6) {
            0 => Due::InMs(DAY_MS),
            1 => Due::At(Micros(wall.0 + 24 * HOUR_US)),
            2 => Due::At(Micros(wall.0 - 24 * HOUR_US)),
            _ => Due::Now,
        },
        once: (rng.u8(..4) != 0).then(|| claim(rng)),
        guarantee: Guarantee::ALL[rng.usize(..5)],
        retry: RetryPolicy { max_attempts: rng.u32(1..9), base_ms: rng.u64(..9), cap_ms: 9, jitter_percent: 7 },
        run_timeout_ms: rng.u64(60_000..90_000),
        keep_ms: rng.u64(..30_000) + DAY_MS,
    }
}

/// A job without the times that the server's clock gave it.
fn timeless(job: &JobRecord) -> JobRecord {
    let mut job = job.clone();
    if (job.due_at.0 - job.enqueued_at.0).abs() < HOUR_US || job.due_at.0 % 1_000_000 != 0 {
        job.due_at = Micros(0);
    }
    job.enqueued_at = Micros(0);
    job.finished_at = job.finished_at.map(|_| Micros(0));
    job.purge_at = job.purge_at.map(|_| Micros(0));
    job
}

fn timeless_key(key: KeyRecord) -> KeyRecord {
    let none = |at: Option<Micros>| at.map(|_| Micros(0));
    KeyRecord {
        since: Micros(0),
        ended_at: none(key.ended_at),
        keep_until: none(key.keep_until),
        last_refused_at: none(key.last_refused_at),
        ..key
    }
}

async fn compare((one, two): (&PostgresStore, &PostgresStore), known: &[JobId], context: &str) {
    for id in known {
        let (a, b) = (one.job(*id).await.expect("read"), two.job(*id).await.expect("read"));
        assert_eq!(a.map(|(job, _)| timeless(&job)), b.map(|(job, _)| timeless(&job)), "{context}");
    }
    for (kind, n) in ["k", "l"].into_iter().flat_map(|kind| (0..6).map(move |n| (kind, n))) {
        let of = || key(Boundary::Enqueue, kind, &format!("key-{n}"));
        let (a, b) = (one.find_once(of()).await.expect("read"), two.find_once(of()).await.expect("read"));
        assert_eq!(a.map(timeless_key), b.map(timeless_key), "{context}");
    }
    assert_eq!(one.counters().await.expect("read"), two.counters().await.expect("read"), "{context}");
}

/// Claims the next job of each, and ends it; half of them by SQL on the one side.
async fn end_one((one, two): (&PostgresStore, &PostgresStore), own: &mut PgConnection, by: [InstanceId; 2]) {
    let (a, b) = (claim(one, by[0]).await, claim(two, by[1]).await);
    assert_eq!(a, b, "the same job, under the same fence");
    let Some(run) = a else { return };
    let finished = sqlx::query_scalar::<_, bool>("select finish($1, $2, 'r')").bind(run.job).bind(run.fence);
    assert!(finished.fetch_one(own).await.expect("finished"));
    let end = End::Done { result: Some("r".into()) };
    assert!(two.finish(vec![Finish { run, end }]).await.expect("finished")[0].counted());
}

async fn rounds(seed: u64, steps: usize) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let (here, there) = (Place::new().await, Place::new().await);
    let (one, two, mut own) = (here.store().await, there.store().await, here.connection().await);
    let by = [register(&one).await, register(&two).await];
    let wall = one.now().await.expect("read");
    // Given times are told by their whole seconds.
    let wall = Micros(wall.0 - wall.0 % 1_000_000);
    let mut known: Vec<JobId> = Vec::new();
    for step in 0..steps {
        let context = format!("seed {seed}, step {step}");
        match rng.u8(..10) {
            0 => end_one((&one, &two), &mut own, by).await,
            1 if !known.is_empty() => {
                let id = known[rng.usize(..known.len())];
                let (a, b) = (one.cancel(id, "no".into()).await, two.cancel(id, "no".into()).await);
                assert_eq!(a.ok(), b.ok(), "{context}");
            }
            _ => {
                let new = new_job(&mut rng, &known, wall);
                let theirs = two.enqueue(vec![new.clone()]).await.expect("answered").remove(0);
                assert_eq!(by_sql(&mut own, &new).await, said(&theirs), "{context}: {new:?}");
                if !known.contains(&new.id) {
                    known.push(new.id);
                }
            }
        }
        if step % 50 == 49 {
            compare((&one, &two), &known, &context).await;
        }
    }
    compare((&one, &two), &known, &format!("seed {seed}, at the end")).await;
}

#[tokio::test]
async fn sql_answers_as_the_program() {
    let seeds: u64 = std::env::var("HAPAX_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
    for seed in 0..seeds {
        rounds(seed, 250).await;
    }
}
