//! Cases of the law that need no store.
//!
//! Each is small enough to be read as the sentence that it proves. What a store can show as well is repeated in the
//! conformance suite, on every store.
//!
//! This room does not know: any store, any clock but the numbers that it makes up, or what a task is.

mod leaks;
mod oracle;
mod requests;
mod takeovers;

use super::*;
use crate::clock::Now;
use crate::id::{Boundary, ClaimId, Payload};

fn name(text: &str) -> Name {
    Name::new("name", text).expect("a legal name")
}

fn at_ms(ms: u64) -> Now {
    Now { wall: Micros(0).plus_ms(1_000_000 + ms), lease: Micros(0).plus_ms(1_000 + ms) }
}

fn job() -> NewJob {
    NewJob {
        id: JobId::new(),
        queue: name("q"),
        kind: name("k"),
        payload: Payload::new("{}").expect("JSON"),
        payload_version: 1,
        priority: 0,
        due: Due::Now,
        once: None,
        guarantee: Guarantee::AtLeastOnce,
        retry: RetryPolicy::default(),
        run_timeout_ms: 60_000,
        keep_ms: 1_000_000,
    }
}

fn instance(model: &mut Model, now: Now) -> InstanceId {
    let new = NewInstance {
        id: InstanceId::new(),
        name: name("host:1"),
        version: "0".into(),
        queues: vec![name("q")],
        kinds: vec![name("k")],
        lease_ms: 10_000,
    };
    model.register(now, &new).expect("a new instance");
    new.id
}

fn claim(model: &mut Model, now: Now, by: InstanceId, suspect: bool) -> Vec<JobRecord> {
    let request = ClaimRequest {
        instance: by,
        claim: ClaimId::new(),
        queues: vec![(name("q"), 1_000)],
        kinds: vec![name("k")],
        suspect,
    };
    model.claim(now, &request).expect("the instance is live").jobs
}

fn run_of(job: &JobRecord) -> RunRef {
    RunRef { job: job.id, fence: job.fence.expect("claimed") }
}

/// RC-01: the sweep re-checks in its own step, so a job that finished meanwhile stays as it is.
#[test]
fn reaper_leaves_finished_jobs_alone() {
    let mut model = Model::new();
    let (one, two) = (job(), job());
    model.enqueue(at_ms(0), &[one.clone(), two.clone()]);
    let dead = instance(&mut model, at_ms(0));
    let claimed = claim(&mut model, at_ms(0), dead, false);
    let first = claimed.iter().find(|job| job.id == one.id).expect("claimed");
    model.finish(at_ms(20_000), &[Finish { run: run_of(first), end: End::Done { result: None } }]);
    let before = model.job(one.id).cloned();
    let by = instance(&mut model, at_ms(15_000));
    let reaped = model.reap(at_ms(20_000), by, 10).expect("live");
    assert_eq!(reaped.taken_back, [(two.id, JobState::Ready)]);
    assert_eq!(model.job(one.id).cloned(), before);
    model.check();
}

/// A late run whose job nobody took back is still the current one.
#[test]
fn late_but_unchallenged_may_finish() {
    let mut model = Model::new();
    model.enqueue(at_ms(0), &[job()]);
    let by = instance(&mut model, at_ms(0));
    let claimed = claim(&mut model, at_ms(0), by, false);
    let settled = model.finish(at_ms(50_000), &[Finish { run: run_of(&claimed[0]), end: End::Done { result: None } }]);
    assert!(settled[0].counted());
}

/// An at-most-once run whose owner died after its start is in doubt, and runs again only when a person says so.
#[test]
fn at_most_once_is_never_repeated() {
    let mut model = Model::new();
    let new = NewJob { guarantee: Guarantee::AtMostOnce, ..job() };
    model.enqueue(at_ms(0), std::slice::from_ref(&new));
    let dead = instance(&mut model, at_ms(0));
    let claimed = claim(&mut model, at_ms(0), dead, false);
    model.start(at_ms(1), &[run_of(&claimed[0])]);
    let by = instance(&mut model, at_ms(15_000));
    model.reap(at_ms(20_000), by, 10).expect("live");
    assert_eq!(model.job(new.id).expect("kept").state, JobState::InDoubt);
    assert!(claim(&mut model, at_ms(20_000), by, true).is_empty());
    assert!(model.retry(at_ms(20_000), new.id).is_err(), "retry is no decision about a doubt");
    assert_eq!(model.resolve(at_ms(20_000), new.id, Resolution::Retry), Ok(JobState::Ready));
    model.check();
}

/// RC-57: a key is free at once when its job is cancelled, and stays refused when its job is done and pruned.
#[test]
fn keys_outlive_done_jobs_only() {
    let mut model = Model::new();
    let key = OnceKey::new(Boundary::Enqueue, name("k"), "order-7").expect("legal");
    let once = KeyClaim { key, fingerprint: None, keep_ms: 3_600_000, made_at: None };
    let keyed = || NewJob { once: Some(once.clone()), ..job() };
    let first = keyed();
    model.enqueue(at_ms(0), std::slice::from_ref(&first));
    assert!(matches!(model.enqueue(at_ms(0), &[keyed()])[0], EnqueueAnswer::Existed { done: false, .. }));
    model.cancel(at_ms(1), first.id, "test").expect("legal");
    let second = keyed();
    assert_eq!(model.enqueue(at_ms(2), std::slice::from_ref(&second)), [EnqueueAnswer::Enqueued { id: second.id }]);
    assert!(matches!(model.retry(at_ms(3), first.id), Err(Refusal::KeyTaken { .. })));
    let by = instance(&mut model, at_ms(3));
    let claimed = claim(&mut model, at_ms(3), by, false);
    model.finish(at_ms(4), &[Finish { run: run_of(&claimed[0]), end: End::Done { result: None } }]);
    assert_eq!(model.prune(at_ms(1_010_000), 10).jobs, 2);
    model.check();
    assert!(matches!(model.enqueue(at_ms(1_010_000), &[keyed()])[0], EnqueueAnswer::Existed { done: true, .. }));
    let last = keyed();
    let answer = model.enqueue(at_ms(3_700_000), std::slice::from_ref(&last));
    assert_eq!(answer, [EnqueueAnswer::Enqueued { id: last.id }], "its retention has passed");
    model.check();
}
