//! Law 7, once keys of jobs: held while the job lives, refused once it is done, free when it did not take effect.

use super::Harness;
use super::world::{
    KEEP_KEY_MS, KEEP_MS, World, again, at_most_once, counted, done, fingerprint, job, key, key_claim, keyed, name,
    refusal, run_of,
};
use crate::id::{KEY_BYTES_MAX, OnceKey};
use crate::model::{
    End, EnqueueAnswer, KeyClaim, KeyHolder, KeyState, NewJob, Refusal, Resolution, RetryPolicy, RunOutcome, RunRef,
};

/// The answer to an enqueue whose key `holder` has.
const fn existed(holder: RunRef, done: bool) -> EnqueueAnswer {
    EnqueueAnswer::Existed { holder: KeyHolder::Job(holder.job), done }
}

/// Whether the key `a` may be had; if so, the job that took it is cancelled again.
async fn is_free(w: &World<'_>) -> bool {
    let probe = keyed("a");
    let free = w.offer(&probe).await == EnqueueAnswer::Enqueued { id: probe.id };
    if free {
        w.cancel(probe.id, "a probe".to_owned()).await.expect("waiting");
    }
    free
}

/// The key is held through every state in which the job may still run: scheduled, ready, running, parked, in doubt.
pub async fn a_key_is_held_while_its_job_lives(h: &dyn Harness) {
    let w = World::new(h);
    let retry = RetryPolicy { max_attempts: 2, ..RetryPolicy::default() };
    let (by, run) = w.run_started(NewJob { retry, once: keyed("a").once, ..at_most_once() }).await;
    let held = async |when: &str| {
        assert_eq!(w.offer(&keyed("a")).await, existed(run, false), "{when}");
        assert_eq!(w.prune(100).await.expect("pruned").keys, 0, "{when}");
        let key = w.key(&key("a")).await.expect("held");
        assert_eq!((key.state, key.keep_until, key.lease_until), (KeyState::Held, None, None), "{when}");
    };
    held("running").await;
    w.end(run, again(RunOutcome::Failed, 1_000)).await;
    held("scheduled after a failed attempt").await;
    w.pass(1_000);
    let second = run_of(&w.take(by).await[0]);
    w.release(by, crate::model::Release::Runs(vec![second])).await.expect("released");
    held("ready").await;
    w.park(run.job, "test".to_owned()).await.expect("ready");
    w.pass(10 * KEEP_KEY_MS);
    held("parked, for longer than any retention").await;
    w.retry(run.job).await.expect("parked");
    let by = w.live().await;
    let third = run_of(&w.take(by).await[0]);
    w.end(third, again(RunOutcome::Unknown, 0)).await;
    held("in doubt").await;
}

/// RC-57, the way of success: refused from the finish for its retention, the job being pruned or not.
pub async fn a_done_key_outlives_its_job(h: &dyn Harness) {
    let w = World::new(h);
    let new = keyed("a");
    let (_, run) = w.run(new.clone()).await;
    w.end(run, done()).await;
    let ended = w.now().wall;
    assert_eq!(w.offer(&keyed("a")).await, existed(run, true));
    w.pass(KEEP_MS);
    assert_eq!(w.prune(100).await.expect("pruned").jobs, 1);
    assert_eq!(w.job(run.job).await.expect("read"), None);
    assert_eq!(w.offer(&keyed("a")).await, existed(run, true), "the job is gone, its key is not");
    assert_eq!(w.offer(&new).await, EnqueueAnswer::Enqueued { id: new.id }, "its own enqueue again is a no-op");
    assert_eq!(w.job(run.job).await.expect("read"), None, "and brings no job back");
    let record = w.key(&key("a")).await.expect("done");
    assert_eq!((record.state, record.refused), (KeyState::Done, 2));
    assert_eq!((record.ended_at, record.keep_until), (Some(ended), Some(ended.plus_ms(KEEP_KEY_MS))));
    w.pass(KEEP_KEY_MS - KEEP_MS - 1);
    assert!(!is_free(&w).await);
    w.pass(1);
    assert!(is_free(&w).await, "its retention has passed");
}

/// RC-57, every way a job goes without effect: its key is free at once.
pub async fn a_key_is_free_when_its_job_goes_without_effect(h: &dyn Harness) {
    let w = World::new(h);
    let cancel = async |job| w.cancel(job, "test".to_owned()).await.map(|_| ()).expect("legal");
    let ready = keyed("a");
    w.put(std::slice::from_ref(&ready)).await;
    cancel(ready.id).await;
    assert!(is_free(&w).await, "cancelled while ready");
    let scheduled = NewJob { due: crate::model::Due::InMs(9_000), ..keyed("a") };
    w.put(std::slice::from_ref(&scheduled)).await;
    cancel(scheduled.id).await;
    assert!(is_free(&w).await, "cancelled while scheduled");
    let parked = keyed("a");
    w.put(std::slice::from_ref(&parked)).await;
    w.park(parked.id, "test".to_owned()).await.expect("ready");
    cancel(parked.id).await;
    assert!(is_free(&w).await, "cancelled while parked");
    let (_, asked) = w.run(keyed("a")).await;
    cancel(asked.job).await;
    assert!(!is_free(&w).await, "asked to stop, and still running");
    w.end(asked, again(RunOutcome::Failed, 0)).await;
    assert!(is_free(&w).await, "cancelled while running");
    let (_, stops) = w.run(keyed("a")).await;
    w.end(stops, End::Cancelled { reason: "pointless".to_owned() }).await;
    assert!(is_free(&w).await, "cancelled by its task");
    let (_, doubt) = w.run(NewJob { once: keyed("a").once, ..at_most_once() }).await;
    w.end(doubt, again(RunOutcome::Unknown, 0)).await;
    w.resolve(doubt.job, Resolution::NotDone).await.expect("in doubt");
    assert!(is_free(&w).await, "found not to have taken effect");
}

/// RC-57, the killed worker: the key stays with its job, whose successor ends it.
pub async fn a_killed_owner_leaves_no_key_behind(h: &dyn Harness) {
    let w = World::new(h);
    let (_, run) = w.run_started(keyed("a")).await;
    let (by, _) = w.take_over().await;
    assert_eq!(w.offer(&keyed("a")).await, existed(run, false), "the job lives, so it is held");
    let next = run_of(&w.take_suspect(by).await[0]);
    w.cancel(run.job, "test".to_owned()).await.expect("asked");
    w.take_over().await;
    assert!(is_free(&w).await, "cancelled, and its owner died");
    assert!(!w.end(next, done()).await.counted());
    assert!(is_free(&w).await, "the late report takes nothing");
}

/// In-doubt work that is found to have taken effect ends as done work does.
pub async fn a_doubt_found_done_keeps_the_key(h: &dyn Harness) {
    let w = World::new(h);
    let (_, run) = w.run(NewJob { once: keyed("a").once, ..at_most_once() }).await;
    w.end(run, again(RunOutcome::Unknown, 0)).await;
    w.resolve(run.job, Resolution::Done).await.expect("in doubt");
    assert_eq!(w.offer(&keyed("a")).await, existed(run, true));
}

/// A cancelled job that is retried takes its key again, or is refused because others have it or have done its work.
pub async fn a_retried_job_takes_its_key_again(h: &dyn Harness) {
    let w = World::new(h);
    let first = keyed("a");
    w.put(std::slice::from_ref(&first)).await;
    w.cancel(first.id, "test".to_owned()).await.expect("ready");
    w.retry(first.id).await.expect("the key is free");
    assert!(!is_free(&w).await);
    w.cancel(first.id, "test".to_owned()).await.expect("ready");
    let (_, second) = w.run(keyed("a")).await;
    let taken = Refusal::KeyTaken { key: key("a").to_string() };
    let before = w.snapshot().await;
    assert_eq!(refusal(w.retry(first.id).await), taken);
    w.end(second, done()).await;
    assert_eq!(refusal(w.retry(first.id).await), taken);
    assert_eq!(w.look(first.id).await, before.jobs.iter().find(|(job, _)| job.id == first.id).expect("kept").0);
    assert_eq!(w.look(second.job).await.state, crate::model::JobState::Done);
}

/// A cancelled job whose key was forgotten since takes it anew.
pub async fn a_retried_job_takes_a_forgotten_key_anew(h: &dyn Harness) {
    let w = World::new(h);
    let new = NewJob { keep_ms: 10 * KEEP_KEY_MS, ..keyed("a") };
    w.put(std::slice::from_ref(&new)).await;
    w.cancel(new.id, "test".to_owned()).await.expect("ready");
    w.pass(2 * KEEP_KEY_MS);
    assert_eq!(w.prune(100).await.expect("pruned").keys, 1);
    w.retry(new.id).await.expect("nobody has it");
    let record = w.key(&key("a")).await.expect("held");
    assert_eq!((record.state, record.holder), (KeyState::Held, KeyHolder::Job(new.id)));
}

/// The same key with another fingerprint is an error that names both; an equal or missing one is a duplicate.
pub async fn other_work_under_the_same_key_is_an_error(h: &dyn Harness) {
    let w = World::new(h);
    let with = |of: &str| NewJob {
        once: Some(KeyClaim { fingerprint: Some(fingerprint(of)), ..key_claim(key("a")) }),
        ..job()
    };
    let first = with("7 pieces");
    w.put(std::slice::from_ref(&first)).await;
    let (kept, given) = (fingerprint("7 pieces"), fingerprint("9 pieces"));
    let other = with("9 pieces");
    let holder = KeyHolder::Job(first.id);
    assert_eq!(w.offer(&other).await, EnqueueAnswer::OtherFingerprint { holder, kept, given });
    assert_eq!(w.job(other.id).await.expect("read"), None);
    for duplicate in [with("7 pieces"), keyed("a")] {
        assert!(matches!(w.offer(&duplicate).await, EnqueueAnswer::Existed { done: false, .. }));
    }
    assert_eq!(w.look(first.id).await.fingerprint, Some(kept));
    assert_eq!(w.totals().await.duplicates_refused, 2);
}

/// Law 7: a message older than the key's memory is quarantined, never taken for new.
pub async fn an_old_message_makes_no_job(h: &dyn Harness) {
    let w = World::new(h);
    let now = w.now().wall;
    let made = |value: &str, ms_ago: u64| {
        let made_at = crate::clock::Micros(now.0 - i64::try_from(ms_ago).expect("small") * 1_000);
        NewJob { once: Some(KeyClaim { made_at: Some(made_at), ..key_claim(key(value)) }), ..job() }
    };
    let old = made("a", KEEP_KEY_MS);
    assert_eq!(w.offer(&old).await, EnqueueAnswer::Quarantined { keep_ms: KEEP_KEY_MS });
    assert_eq!((w.job(old.id).await.expect("read"), w.key(&key("a")).await), (None, None));
    w.put(&[made("a", KEEP_KEY_MS - 1)]).await;
    assert!(matches!(w.offer(&made("a", KEEP_KEY_MS)).await, EnqueueAnswer::Existed { .. }), "known to be held");
}

/// RC-31: two keys of 300 characters, or of 4,096 bytes, that differ in their last one are two keys; kinds share none.
pub async fn keys_of_jobs_are_told_apart(h: &dyn Harness) {
    let w = World::new(h);
    let long = |len: usize, end: &str| keyed(&format!("{}{end}", "k".repeat(len - 1)));
    let mut jobs = vec![long(300, "a"), long(300, "b"), long(KEY_BYTES_MAX, "a"), long(KEY_BYTES_MAX, "b")];
    let other_kind = OnceKey::new(crate::id::Boundary::Enqueue, name("other"), "a").expect("legal");
    jobs.extend([keyed("a"), keyed("A"), keyed("ä"), NewJob { once: Some(key_claim(other_kind)), ..job() }]);
    w.put(&jobs).await;
    for job in &jobs {
        let again = NewJob { id: crate::id::JobId::new(), ..job.clone() };
        let holder = KeyHolder::Job(job.id);
        assert_eq!(w.offer(&again).await, EnqueueAnswer::Existed { holder, done: false });
        assert_eq!(w.look(job.id).await.once, job.once.as_ref().map(|once| once.key.clone()));
    }
}

/// A key that is done for one job is held for the next after its retention, and each end tells of its own job only.
pub async fn a_key_may_serve_one_job_after_the_other(h: &dyn Harness) {
    let w = World::new(h);
    let new = || NewJob { keep_ms: 100 * KEEP_KEY_MS, ..keyed("a") };
    let (_, first) = w.run(new()).await;
    w.end(first, done()).await;
    w.pass(KEEP_KEY_MS);
    let (_, second) = w.run(new()).await;
    assert_eq!(w.offer(&keyed("a")).await, existed(second, false));
    assert_eq!(w.end(second, again(RunOutcome::Failed, 0)).await, counted(crate::model::JobState::Ready));
    w.cancel(second.job, "test".to_owned()).await.expect("ready");
    assert!(is_free(&w).await);
    assert_eq!(w.state(first.job).await, crate::model::JobState::Done);
}
