//! Two programs' worth of everything at once; afterwards SQL says whether the law held.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hapax::id::{ClaimId, Name};
use hapax::model::{ClaimRequest, End, Finish, NewInstance, RetryPolicy, RunOutcome, RunRef, Settled};
use hapax::store::postgres::PostgresStore;
use hapax::store::{Inspect, Jobs, Workers};
use hapax::{Enqueue, Error, ErrorKind, Hapax, InstanceId};
use sqlx::{Executor, PgConnection, Row};
use tokio_util::sync::CancellationToken;

use super::place::Place;
use super::shop::{Shop, count, until_all_done};

const KEYS: u64 = 150;
const ENQUEUES: u64 = 250;

/// What everybody shares.
struct World {
    shop: Shop,
    store: PostgresStore,
    deadlocks: AtomicU64,
    enqueued: AtomicU64,
}

impl World {
    /// Counts a deadlock; anything else that is not a refusal is a fault.
    fn take<T>(&self, what: &str, answer: Result<T, Error>) -> Option<T> {
        match answer {
            Ok(value) => Some(value),
            Err(error) if error.kind() == ErrorKind::Refused => None,
            Err(error) => {
                let text = format!("{error:?}");
                assert!(text.contains("40P01"), "{what}: {text}");
                self.deadlocks.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }
}

fn name(text: &str) -> Name {
    Name::new("name", text).expect("legal")
}

/// An instance that lives for a moment only, so that all kinds of takeovers happen.
async fn registered(world: &World) -> InstanceId {
    let id = InstanceId::new();
    let (queues, kinds) = (vec![name("default")], vec![name("k")]);
    let new = NewInstance { id, name: name("i"), version: String::new(), queues, kinds, lease_ms: 150 };
    world.take("register", world.store.register(new).await).map_or(id, |()| id)
}

/// Enqueues with keys of which most are taken, several at once in any order.
async fn enqueue(world: Arc<World>, hapax: Hapax) {
    while world.enqueued.fetch_add(1, Ordering::Relaxed) < ENQUEUES {
        let jobs = (0..fastrand::usize(1..6)).map(|_| {
            let key = format!("key-{}", fastrand::u64(..KEYS));
            let retry = RetryPolicy { max_attempts: 1_000, base_ms: 1, cap_ms: 2, jitter_percent: 0 };
            Enqueue::new("k", "null").once(key).retry(retry).keep_key(Duration::from_millis(50))
        });
        world.take("enqueue", hapax.enqueue_many(jobs.collect::<Vec<_>>()).await);
    }
}

/// Claims, and ends what it has claimed in one of the ways that there are, or not at all.
async fn work(world: Arc<World>, stop: CancellationToken) {
    let mut by = registered(&world).await;
    while !stop.is_cancelled() {
        let (queues, kinds) = (vec![(name("default"), 5)], vec![name("k")]);
        let request = ClaimRequest { instance: by, claim: ClaimId::new(), queues, kinds, suspect: fastrand::bool() };
        let Some(claimed) = world.take("claim", world.store.claim(request).await) else {
            by = registered(&world).await;
            continue;
        };
        let runs: Vec<RunRef> =
            claimed.jobs.iter().map(|job| RunRef { job: job.id, fence: job.fence.expect("claimed") }).collect();
        if fastrand::u8(..10) == 0 {
            // It stands still for longer than its lease, and then ends what is not its own any more.
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        match fastrand::u8(..3) {
            0 => end_one_by_one(&world, &runs).await,
            1 => drop(world.take("heartbeat", world.store.heartbeat(by, runs.clone()).await)),
            _ => {}
        }
        let finishes = runs.iter().rev().map(|run| Finish { run: *run, end: end() }).collect();
        world.take("finish", world.store.finish(finishes).await);
    }
}

fn end() -> End {
    End::Again { outcome: RunOutcome::Failed, delay_ms: fastrand::u64(..5), detail: "x".to_owned() }
}

/// Each with its effect, in a transaction of the user's.
async fn end_one_by_one(world: &World, runs: &[RunRef]) {
    for (n, run) in runs.iter().enumerate() {
        let Some(mut tx) = world.take("begin", world.store.begin_effect(Duration::from_secs(5)).await) else {
            continue;
        };
        let text = format!("insert into {}.done (job) values ($1)", world.shop.schema);
        let id = run.job.as_uuid();
        sqlx::query(sqlx::AssertSqlSafe(text)).bind(id).execute(&mut *tx).await.expect("written");
        if n % 7 != 6 {
            world.take(
                "finish_in",
                world.store.finish_in(tx, *run, None).await.map(|settled: Settled| settled.counted()),
            );
        }
    }
}

async fn look_after(world: Arc<World>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let by = registered(&world).await;
        for _ in 0..3 {
            world.take("reap", world.store.reap(by, 20).await);
            world.take("prune", world.store.prune(20).await);
        }
        world.take("leave", world.store.leave(by).await);
    }
}

/// Rows that contradict the law, each question with what it asks.
async fn assert_law(own: &mut PgConnection) {
    let questions = [
        ("an effect is there twice", "select count(*) - count(distinct job) from done"),
        (
            "a done job has no effect",
            "select count(*) from jobs where state = 'done' and id not in (select job from done)",
        ),
        (
            "an effect is there without its finish",
            "select count(*) from done where job not in (select id from jobs where state = 'done')",
        ),
        (
            "a key and its job do not agree",
            "select count(*) from keys join jobs on jobs.id = keys.job
              where (keys.state = 'held') = (jobs.state = 'done')",
        ),
        (
            "a place that nobody took was left",
            "select count(*) from keys where job = '00000000-0000-0000-0000-000000000000'",
        ),
        (
            "two jobs had one key at the same time, or one before the retention of the other had ended",
            "select count(*) from (
                select enqueued_at,
                       lag(coalesce(finished_at, 'infinity')) over (
                            partition by once_value order by enqueued_at) as before
                  from jobs) as one_after_the_other
              where before + interval '50 ms' > enqueued_at",
        ),
    ];
    for (what, question) in questions {
        let rows: i64 = own.fetch_one(question).await.expect(what).get(0);
        assert_eq!(rows, 0, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_at_once_keeps_the_law() {
    let place = Place::new().await;
    let mut own = place.connection().await;
    own.execute("create table done (job uuid not null)").await.expect("made");
    let shop = Shop { schema: place.schema.clone() };
    let end = CancellationToken::new();
    let (mut enqueuers, mut others, mut worlds) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..2 {
        let store = PostgresStore::options().connections(12).open(&place.url).await.expect("opens");
        let hapax = Hapax::with_store(Arc::new(store.clone()));
        let (deadlocks, enqueued) = (AtomicU64::new(0), AtomicU64::new(0));
        let world = Arc::new(World { shop: shop.clone(), store, deadlocks, enqueued });
        enqueuers.extend((0..3).map(|_| tokio::spawn(enqueue(Arc::clone(&world), hapax.clone()))));
        others.extend((0..4).map(|_| tokio::spawn(work(Arc::clone(&world), end.clone()))));
        others.push(tokio::spawn(look_after(Arc::clone(&world), end.clone())));
        worlds.push(world);
    }
    for enqueuer in enqueuers {
        enqueuer.await.expect("no fault");
    }
    until_all_done(&mut own).await;
    end.cancel();
    for other in others {
        other.await.expect("no fault");
    }
    assert_law(&mut own).await;
    let deadlocks: u64 = worlds.iter().map(|world| world.deadlocks.load(Ordering::Relaxed)).sum();
    let counters = worlds[0].store.counters().await.expect("read");
    let (done, left) = (count(&mut own, "state = 'done'").await, count(&mut own, "state <> 'done'").await);
    println!("{done} jobs done, {left} parked, {deadlocks} deadlocks, {counters:?}");
    assert_eq!(deadlocks, 0, "no two steps may wait for each other");
    assert!(done > 100 && counters.writes_refused > 0 && counters.duplicates_refused > 0, "too tame");
}
