//! Enqueue, claim and peek: nothing is lost, nothing comes early, nothing comes to two.

use std::collections::BTreeSet;

use super::Harness;
use super::world::{World, done, instance, job, keyed, name, refusal, run_of, wish};
use crate::clock::Micros;
use crate::id::{InstanceId, JobId, NAME_BYTES_MAX, PAYLOAD_BYTES_MAX, Payload};
use crate::model::{
    ClaimRequest, Due, EnqueueAnswer, Guarantee, JobFilter, JobState, NewInstance, NewJob, PROMOTED_MAX, Refusal,
    RetryPolicy,
};

/// Law 4: an acknowledged job is there, as it was given; ids decide, so giving it again is a no-op.
pub async fn enqueue_twice_with_one_id_is_one_job(h: &dyn Harness) {
    let w = World::new(h);
    let new = job();
    w.put(&[new.clone(), new.clone()]).await;
    let before = w.snapshot().await;
    w.pass(1_000);
    w.put(&[NewJob { priority: 9, queue: name("other"), ..new }]).await;
    assert_eq!(w.snapshot().await, before, "the first one counts");
    assert_eq!(before.jobs.len(), 1);
}

/// Law 4: a repeated enqueue does not bring a job back that has gone on since.
pub async fn enqueue_again_does_not_wind_a_job_back(h: &dyn Harness) {
    let w = World::new(h);
    let new = job();
    let (_, run) = w.run(new.clone()).await;
    w.put(std::slice::from_ref(&new)).await;
    assert_eq!(w.state(new.id).await, JobState::Running);
    w.end(run, done()).await;
    w.put(std::slice::from_ref(&new)).await;
    assert_eq!(w.state(new.id).await, JobState::Done);
}

/// Law 13: each job of a call is answered for itself, in order; a refused one takes nothing from the others.
pub async fn enqueue_answers_each_job_for_itself(h: &dyn Harness) {
    let w = World::new(h);
    let (first, plain, second, other) = (keyed("a"), job(), keyed("a"), keyed("b"));
    let answers = w.enqueue(vec![first.clone(), plain.clone(), second.clone(), other.clone()]).await.expect("answered");
    let taken = |id: JobId| EnqueueAnswer::Enqueued { id };
    let holder = crate::model::KeyHolder::Job(first.id);
    let existed = EnqueueAnswer::Existed { holder, done: false };
    assert_eq!(answers, [taken(first.id), taken(plain.id), existed, taken(other.id)]);
    assert_eq!(w.job(second.id).await.expect("read"), None);
    assert_eq!(w.totals().await.duplicates_refused, 1);
}

/// Law 4: a call of many jobs is taken as a whole, and none of it is mixed up.
pub async fn a_thousand_jobs_in_one_call(h: &dyn Harness) {
    let w = World::new(h);
    let jobs: Vec<NewJob> = (0..1_000_u16).map(|n| NewJob { payload_version: n, ..job() }).collect();
    w.put(&jobs).await;
    let by = w.live().await;
    let claimed = w.take(by).await;
    let versions: BTreeSet<(JobId, u16)> = claimed.iter().map(|job| (job.id, job.payload_version)).collect();
    assert_eq!(versions, jobs.iter().map(|job| (job.id, job.payload_version)).collect());
}

/// No jobs in, no answers out.
pub async fn an_empty_enqueue_is_no_fault(h: &dyn Harness) {
    let w = World::new(h);
    assert_eq!(w.enqueue(Vec::new()).await.expect("answered"), []);
    assert_eq!(w.snapshot().await.jobs, []);
}

/// Every field of a new job stands in its record, and the rest is empty.
pub async fn every_field_of_a_job_is_kept(h: &dyn Harness) {
    let w = World::new(h);
    let retry = RetryPolicy { max_attempts: 7, base_ms: 11, cap_ms: 13, jitter_percent: 17 };
    let now = w.now().wall;
    for guarantee in Guarantee::ALL {
        let new = NewJob {
            queue: name("elsewhere"),
            kind: name("report"),
            payload: Payload::new("[1]").expect("JSON"),
            payload_version: 65_535,
            priority: -5,
            due: Due::InMs(1_500),
            guarantee,
            retry,
            run_timeout_ms: 19,
            keep_ms: 23,
            ..keyed(guarantee.as_str())
        };
        w.put(std::slice::from_ref(&new)).await;
        let kept = w.look(new.id).await;
        assert_eq!((&kept.queue, &kept.kind, &kept.payload), (&new.queue, &new.kind, &new.payload));
        assert_eq!((kept.payload_version, kept.priority), (65_535, -5));
        assert_eq!((kept.state, kept.due_at, kept.enqueued_at), (JobState::Scheduled, now.plus_ms(1_500), now));
        assert_eq!((kept.guarantee, kept.retry, kept.run_timeout_ms, kept.keep_ms), (guarantee, retry, 19, 23));
        let once = new.once.expect("keyed");
        assert_eq!((kept.once, kept.keep_key_ms, kept.fingerprint), (Some(once.key), once.keep_ms, None));
        assert_eq!((kept.fence, kept.ended_fence, kept.claim), (None, None, None));
        assert_eq!((kept.runs, kept.failures, kept.takeovers, kept.unstarted_takeovers, kept.refused), (0, 0, 0, 0, 0));
        assert_eq!((kept.progress, kept.result, kept.reason), (None, None, None));
        assert_eq!((kept.finished_at, kept.purge_at, kept.suspect, kept.cancel_requested), (None, None, false, false));
    }
}

/// RC-55: payloads are kept byte for byte, with what JSON allows and databases do not: `\u0000`, half of a surrogate
/// pair, spaces, doubled keys, numbers beyond any type, 1 MiB.
pub async fn payloads_are_kept_byte_for_byte(h: &dyn Harness) {
    let w = World::new(h);
    let longest = format!("\"{}\"", "ä".repeat(PAYLOAD_BYTES_MAX / 2 - 1));
    assert_eq!(longest.len(), PAYLOAD_BYTES_MAX);
    let texts = [
        r#"{"a":"\u0000"}"#,
        r#"["\ud800", "\udc00\ud800"]"#,
        " {\"b\" : 1 ,\t\"a\":2, \"b\":3}\n",
        "1e999999",
        "-0.00000000000000000000000000000000000001",
        "\"𝄞 é e\u{301} \u{FEFF}\u{FFFD}\"",
        r#""'; drop table jobs; --""#,
        "null",
        &longest,
    ];
    for text in texts {
        let new = NewJob { payload: Payload::new(text).expect("JSON"), ..job() };
        w.put(std::slice::from_ref(&new)).await;
        assert_eq!(w.look(new.id).await.payload.as_str(), text);
    }
    let by = w.live().await;
    let claimed: BTreeSet<String> = w.take(by).await.iter().map(|job| job.payload.as_str().to_owned()).collect();
    assert_eq!(claimed, texts.map(str::to_owned).into(), "a claim gives the same bytes");
}

/// Limits of DESIGN §5a: names of 128 bytes are told apart byte by byte: case, spaces at the end, composed letters.
pub async fn names_are_told_apart_byte_by_byte(h: &dyn Harness) {
    let w = World::new(h);
    let umlauts = "ä".repeat(NAME_BYTES_MAX / 2);
    let long = |end: &str| format!("{}{end}", "x".repeat(NAME_BYTES_MAX - 1));
    let names =
        [&umlauts, &long("a"), &long("b"), "orders", "Orders", "orders ", "\u{e9}", "e\u{301}", "%", "_"].map(name);
    for queue in &names {
        w.put(&[NewJob { queue: queue.clone(), kind: queue.clone(), ..job() }]).await;
    }
    let by = w.live().await;
    for queue in &names {
        let queues = vec![(queue.clone(), 10)];
        let claimed = w.claim(ClaimRequest { queues, kinds: names.to_vec(), ..wish(by) }).await.expect("claimed").jobs;
        assert_eq!(claimed.iter().map(|job| &job.kind).collect::<Vec<_>>(), [queue], "one queue, one job");
    }
    let served = 1;
    assert_eq!(w.queues().await.expect("read").len(), names.len() + served);
}

/// RC-63 and DESIGN §5a: numbers at the ends of what a store can count neither wrap nor fail.
pub async fn the_ends_of_numbers_are_kept(h: &dyn Harness) {
    let w = World::new(h);
    let most = i64::MAX.unsigned_abs();
    let retry = RetryPolicy { max_attempts: u32::MAX, base_ms: most, cap_ms: most, jitter_percent: 100 };
    let big = NewJob { priority: i16::MAX, due: Due::InMs(most), retry, run_timeout_ms: most, keep_ms: most, ..job() };
    let small = NewJob { id: JobId::new(), priority: i16::MIN, due: Due::At(Micros(i64::MIN)), ..big.clone() };
    w.put(&[big.clone(), small.clone()]).await;
    assert_eq!(w.look(big.id).await.due_at, Micros(i64::MAX), "the end of time, not its beginning");
    let by = w.live().await;
    let claimed = w.take(by).await;
    assert_eq!(claimed.iter().map(|job| job.id).collect::<Vec<_>>(), [small.id]);
    assert_eq!((claimed[0].retry, claimed[0].due_at), (retry, Micros(i64::MIN)));
    assert_eq!(w.end(run_of(&claimed[0]), done()).await, super::world::counted(JobState::Done));
    assert_eq!(w.look(small.id).await.purge_at, Some(Micros(i64::MAX)));
}

/// RC-03, law 4: nobody gets a job before its due time, however often and whoever asks; at that instant one does.
pub async fn nobody_claims_before_the_due_time(h: &dyn Harness) {
    let w = World::new(h);
    let new = NewJob { due: Due::InMs(20_000), ..job() };
    w.put(std::slice::from_ref(&new)).await;
    for _ in 0..4 {
        for _ in 0..2 {
            let by = w.live().await;
            assert_eq!(w.take(by).await, [], "too early");
        }
        w.pass(4_999);
    }
    w.pass(3);
    let (one, two) = (w.live().await, w.live().await);
    assert_eq!(w.take(one).await, [], "one millisecond too early");
    w.pass(1);
    assert_eq!(w.take(one).await.len(), 1);
    assert_eq!(w.take(two).await, []);
}

/// Law 4: due times follow the store's wall clock, wherever it is set, and a job that was due stays so.
pub async fn due_times_follow_the_wall_clock(h: &dyn Harness) {
    let w = World::new(h);
    let start = w.now().wall;
    let at = NewJob { due: Due::At(start.plus_ms(3_600_000)), ..job() };
    let (now, later) = (job(), NewJob { due: Due::InMs(60_000), ..job() });
    w.put(&[at.clone(), now.clone(), later.clone()]).await;
    let by = w.live().await;
    h.clock().set_wall(Micros(start.0 - 1_000_000_000));
    assert_eq!(w.take(by).await.iter().map(|job| job.id).collect::<Vec<_>>(), [now.id], "it was due");
    h.clock().set_wall(start.plus_ms(3_599_999));
    assert_eq!(w.take(by).await.iter().map(|job| job.id).collect::<Vec<_>>(), [later.id]);
    h.clock().set_wall(start.plus_ms(3_600_000));
    assert_eq!(w.take(by).await.iter().map(|job| job.id).collect::<Vec<_>>(), [at.id]);
}

/// DESIGN §5a, order: priority first, then due time, then id.
pub async fn the_order_is_priority_due_time_id(h: &dyn Harness) {
    let w = World::new(h);
    let now = w.now().wall;
    let at = |priority: i16, ms_ago: i64| NewJob { priority, due: Due::At(Micros(now.0 - ms_ago * 1_000)), ..job() };
    // Ids of one millisecond do not grow, so the pair that only ids tell apart is put in order here.
    let mut twins = [at(0, 10), at(0, 10)];
    twins.sort_by_key(|job| job.id);
    let [one, two] = twins;
    let wanted = [at(-3, 0), at(-3, 0), at(0, 30), one, two, at(0, 5), at(7, 99)];
    let mut wanted = wanted.to_vec();
    wanted[..2].sort_by_key(|job| job.id);
    let mut jobs = wanted.clone();
    jobs.rotate_left(3);
    jobs.swap(0, 5);
    w.put(&jobs).await;
    let by = w.live().await;
    let claimed: Vec<JobId> = w.take(by).await.iter().map(|job| job.id).collect();
    assert_eq!(claimed, wanted.iter().map(|job| job.id).collect::<Vec<_>>());
}

/// A job that comes back takes its place by its new due time.
pub async fn the_order_holds_for_jobs_that_come_back(h: &dyn Harness) {
    let w = World::new(h);
    let (first, second) = (job(), NewJob { due: Due::InMs(1), ..job() });
    w.put(&[first.clone(), second.clone()]).await;
    let by = w.live().await;
    let claimed = w.take(by).await;
    w.pass(5);
    let end = super::world::again(crate::model::RunOutcome::Failed, 0);
    assert_eq!(w.end(run_of(&claimed[0]), end).await, super::world::counted(JobState::Ready));
    let claimed: Vec<JobId> = w.take(by).await.iter().map(|job| job.id).collect();
    assert_eq!(claimed, [second.id, first.id]);
}

/// A claim takes no more of a queue than asked for, queues in the order of preference.
pub async fn each_queue_has_its_own_limit(h: &dyn Harness) {
    let w = World::new(h);
    let of = |queue: &str| NewJob { queue: name(queue), ..job() };
    w.put(&[of("a"), of("b"), of("a"), of("b"), of("a"), of("b"), of("c")]).await;
    let by = w.live().await;
    let queues = vec![(name("b"), 2), (name("a"), 1), (name("none"), 5), (name("c"), 0)];
    let claimed = w.claim(ClaimRequest { queues, ..wish(by) }).await.expect("claimed").jobs;
    assert_eq!(claimed.iter().map(|job| job.queue.as_str()).collect::<Vec<_>>(), ["b", "b", "a"]);
}

/// A queue that is named twice in one claim goes on where it stopped, and gives no job twice.
pub async fn a_queue_named_twice_gives_no_job_twice(h: &dyn Harness) {
    let w = World::new(h);
    w.put(&[job(), job(), job(), job()]).await;
    let by = w.live().await;
    let queues = vec![(name("q"), 1), (name("none"), 1), (name("q"), 2)];
    let claimed = w.claim(ClaimRequest { queues, ..wish(by) }).await.expect("claimed").jobs;
    assert_eq!(claimed.iter().map(|job| job.id).collect::<BTreeSet<_>>().len(), 3);
}

/// Law 13: jobs of a kind that nobody knows block no others, stay ready, and are shown.
pub async fn unknown_kinds_stay_ready_and_are_shown(h: &dyn Harness) {
    let w = World::new(h);
    let unknown = NewJob { kind: name("new"), priority: -1, ..job() };
    let jobs = [unknown.clone(), job(), NewJob { id: JobId::new(), ..unknown.clone() }, job()];
    w.put(&jobs).await;
    let by = w.live().await;
    let queues = vec![(name("q"), 2)];
    let claimed = w.claim(ClaimRequest { queues, ..wish(by) }).await.expect("claimed").jobs;
    assert_eq!(claimed.iter().map(|job| job.id).collect::<Vec<_>>(), [jobs[1].id, jobs[3].id]);
    assert_eq!(w.state(unknown.id).await, JobState::Ready);
    assert_eq!(w.queues().await.expect("read")[0].unknown_kinds, [name("new")]);
    let knows = NewInstance { kinds: vec![name("new")], ..instance() };
    w.register(knows.clone()).await.expect("registered");
    assert_eq!(w.queues().await.expect("read")[0].unknown_kinds, []);
    let claimed = w.claim(ClaimRequest { kinds: knows.kinds, ..wish(knows.id) }).await.expect("claimed").jobs;
    assert_eq!(claimed.len(), 2);
}

/// Ids decide: asking again with the same claim id gives the same jobs, as far as they still belong to it.
pub async fn a_repeated_claim_gives_the_same_jobs(h: &dyn Harness) {
    let w = World::new(h);
    w.put(&[job(), job(), job()]).await;
    let by = w.live().await;
    let request = ClaimRequest { queues: vec![(name("q"), 2)], ..wish(by) };
    let by_id = |mut jobs: Vec<crate::model::JobRecord>| {
        jobs.sort_by_key(|job| job.id);
        jobs
    };
    let first = by_id(w.claim(request.clone()).await.expect("claimed").jobs);
    assert_eq!(first.len(), 2);
    assert_eq!(by_id(w.claim(request.clone()).await.expect("claimed").jobs), first);
    w.end(run_of(&first[0]), done()).await;
    assert_eq!(w.claim(request).await.expect("claimed").jobs, first[1..]);
    assert_eq!(w.take(by).await.len(), 1, "the third was left for another claim");
}

/// Law 1: one job belongs to one run. Of two instances that ask in turn, none gets what the other has.
pub async fn two_claims_never_share_a_job(h: &dyn Harness) {
    let w = World::new(h);
    let jobs: Vec<NewJob> = (0..30).map(|_| job()).collect();
    w.put(&jobs).await;
    let second = h.second().await;
    let (one, two) = (w.live().await, w.live().await);
    let mut seen = BTreeSet::new();
    for _ in 0..5 {
        let few = |by: InstanceId| ClaimRequest { queues: vec![(name("q"), 3)], ..wish(by) };
        let mut claimed = w.claim(few(one)).await.expect("claimed").jobs;
        claimed.extend(second.claim(few(two)).await.expect("claimed").jobs);
        for job in claimed {
            assert!(seen.insert(job.id), "{} was given twice", job.id);
        }
    }
    assert_eq!(seen, jobs.iter().map(|job| job.id).collect());
}

/// Law 1: all jobs of a claim share its fence, and the fence of each later claim is greater.
pub async fn fences_of_claims_grow(h: &dyn Harness) {
    let w = World::new(h);
    w.put(&[job(), job()]).await;
    let by = w.live().await;
    let mut last = None;
    for _ in 0..10 {
        let claimed = w.take(by).await;
        assert_eq!(claimed.len(), 2);
        assert_eq!(claimed[0].fence, claimed[1].fence);
        assert!(claimed[0].fence > last, "{:?} after {last:?}", claimed[0].fence);
        last = claimed[0].fence;
        let runs = claimed.iter().map(run_of).collect();
        w.release(by, crate::model::Release::Runs(runs)).await.expect("released");
    }
}

/// DESIGN §5: a claim by an instance that is dead, unknown, or past its lease changes nothing.
pub async fn a_claim_of_one_who_is_not_live_is_refused(h: &dyn Harness) {
    let w = World::new(h);
    w.put(&[job()]).await;
    let (gone, late) = (w.live().await, w.live().await);
    w.leave(gone).await.expect("left");
    w.pass(super::world::LEASE_MS);
    let before = w.snapshot().await;
    for by in [gone, late, InstanceId::new()] {
        assert_eq!(refusal(w.claim(wish(by)).await), Refusal::NotLive { instance: by });
    }
    assert_eq!(w.snapshot().await, before);
    w.heartbeat(late, Vec::new()).await.expect("renewed");
    assert_eq!(w.take(late).await.len(), 1, "a lease that was renewed counts again");
}

/// Law 4: more jobs due at once than one claim makes ready are not lost; the next claims find them.
pub async fn a_flood_of_due_jobs_is_made_ready_in_bites(h: &dyn Harness) {
    let w = World::new(h);
    let all = PROMOTED_MAX + 50;
    let jobs: Vec<NewJob> = (0..all).map(|_| NewJob { due: Due::InMs(1_000), ..job() }).collect();
    w.put(&jobs).await;
    w.pass(1_000);
    let by = w.live().await;
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        let request = ClaimRequest { queues: vec![(name("q"), u32::MAX)], ..wish(by) };
        seen.extend(w.claim(request).await.expect("claimed").jobs.iter().map(|job| job.id));
    }
    assert_eq!(seen.len(), all);
}

/// A peek never lets work lie: it says that something is ready, or when the next job is due, and changes nothing.
pub async fn a_peek_never_lets_work_lie(h: &dyn Harness) {
    let w = World::new(h);
    let by = w.live().await;
    let empty = w.peek(wish(by)).await.expect("read");
    assert_eq!((empty.ready, empty.next_due_in_ms), (false, None));
    w.put(&[NewJob { due: Due::InMs(5_000), ..job() }, NewJob { queue: name("other"), ..job() }]).await;
    let before = w.snapshot().await;
    let waiting = w.peek(wish(by)).await.expect("read");
    assert!(!waiting.ready, "another's queue is no work for this one");
    let ms = waiting.next_due_in_ms.expect("one is scheduled");
    assert!((4_999..=5_001).contains(&ms), "due in {ms} ms");
    w.pass(5_001);
    assert!(w.peek(wish(by)).await.expect("read").ready, "due, and not yet made ready");
    assert_eq!(w.snapshot().await.jobs, before.jobs, "reading changes nothing");
    w.take(by).await;
    assert!(!w.peek(wish(by)).await.expect("read").ready);
    let page = w.list(JobFilter { state: Some(JobState::Running), limit: 10, ..JobFilter::default() }).await;
    assert_eq!(page.expect("read").len(), 1);
}
