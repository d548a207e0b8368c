//! Law 2, one case for each write path: a write whose fence is not the current one changes nothing, says so, and is
//! kept as evidence.

use super::Harness;
use super::world::{
    KEEP_KEY_MS, LEASE_MS, World, again, at_most_once, bare, counted, done, every_end, job, lock, name, once, refusal,
    run_of, wish,
};
use crate::id::{Fence, InstanceId, JobId};
use crate::model::{
    ClaimRequest, End, Finish, Heartbeat, JobState, LockRef, NewJob, OnceEnd, Refusal, Release, RunOutcome, RunRef,
    Settled,
};

/// Runs that lost their jobs, one for each thing that may have become of a job since: it is run by another, ready,
/// scheduled, done, parked, cancelled, in doubt, or gone. They came with one claim, so they share their fence.
async fn lost_runs(w: &World<'_>) -> Vec<RunRef> {
    let first = NewJob { priority: -1, ..job() };
    let doubtful = at_most_once();
    let others = [job(), job(), job(), job(), job()];
    w.put(&[first.clone(), doubtful.clone()]).await;
    w.put(&others).await;
    let by = w.live().await;
    let runs: Vec<RunRef> = w.take(by).await.iter().map(run_of).collect();
    assert_eq!(runs.len(), 7);
    let run_of_job = |id: JobId| *runs.iter().find(|run| run.job == id).expect("claimed");
    w.start(vec![run_of_job(doubtful.id)]).await.expect("started");
    let park = End::Park { reason: "given up".to_owned() };
    let cancel = End::Cancelled { reason: "pointless".to_owned() };
    let ends = [again(RunOutcome::Failed, 3_600_000), done(), park, cancel];
    for (job, end) in others[1..].iter().zip(ends) {
        assert!(w.end(run_of_job(job.id), end).await.counted());
    }
    let (other, _) = w.take_over().await;
    let one = ClaimRequest { queues: vec![(name("q"), 1)], ..wish(other) };
    assert_eq!(w.claim(one).await.expect("claimed").jobs[0].id, first.id);
    let mut states = Vec::new();
    for run in &runs {
        states.push(w.state(run.job).await);
    }
    states.sort();
    assert_eq!(states, [0, 1, 2, 3, 4, 5, 6].map(|n| JobState::ALL[n]), "a lost run for each state");
    let gone = RunRef { job: JobId::new(), ..runs[0] };
    runs.into_iter().chain([gone]).collect()
}

/// What a write of `run` is to be answered: where the job stands, and under which fence.
async fn expected(w: &World<'_>, run: RunRef) -> Settled {
    let job = w.job(run.job).await.expect("read").map(|(job, _)| job);
    Settled::Refused { state: job.as_ref().map(|job| job.state), current: job.and_then(|job| job.fence) }
}

/// Law 2, start.
pub async fn a_stale_start_is_refused(h: &dyn Harness) {
    let w = World::new(h);
    for run in lost_runs(&w).await {
        let wanted = expected(&w, run).await;
        assert_eq!(w.run_fenced_off("start", run, w.start(vec![run])).await.expect("answered"), [wanted]);
    }
}

/// Laws 2 and 5, finish, with each end that a run may have.
pub async fn a_stale_finish_is_refused_whatever_its_end(h: &dyn Harness) {
    let w = World::new(h);
    for run in lost_runs(&w).await {
        for end in every_end() {
            let wanted = expected(&w, run).await;
            let finish = w.finish(vec![Finish { run, end: end.clone() }]);
            assert_eq!(w.run_fenced_off("finish", run, finish).await.expect("answered"), [wanted], "{end:?}");
        }
    }
}

/// Law 2, release: nobody gives back what another has.
pub async fn a_stale_release_is_refused(h: &dyn Harness) {
    let w = World::new(h);
    let runs = lost_runs(&w).await;
    let by = w.live().await;
    for run in runs {
        let released = w.run_fenced_off("release", run, w.release(by, Release::Runs(vec![run]))).await;
        assert_eq!(released.expect("answered"), []);
    }
}

/// Law 2, progress.
pub async fn stale_progress_is_refused(h: &dyn Harness) {
    let w = World::new(h);
    for run in lost_runs(&w).await {
        let wanted = expected(&w, run).await;
        let answer = w.run_fenced_off("progress", run, w.progress(run, "99 %".to_owned())).await;
        assert_eq!(answer.expect("answered"), wanted);
    }
}

/// Law 2: a fence from the future is no better than one from the past.
pub async fn a_fence_that_was_never_given_is_refused(h: &dyn Harness) {
    let w = World::new(h);
    let (_, run) = w.run(job()).await;
    for fence in [run.fence.as_i64() + 1, run.fence.as_i64() - 1, 0, -1, i64::MAX, i64::MIN] {
        let wrong = RunRef { fence: Fence::from_i64(fence), ..run };
        let settled = w.run_fenced_off("finish", wrong, w.end(wrong, done())).await;
        assert_eq!(settled, Settled::Refused { state: Some(JobState::Running), current: Some(run.fence) });
    }
    assert_eq!(w.end(run, done()).await, counted(JobState::Done), "the holder never noticed");
}

/// Law 2: the start of a run that was lost is not recorded with a heartbeat, and the run is not among the owned ones.
pub async fn a_heartbeat_starts_no_run_of_another(h: &dyn Harness) {
    let w = World::new(h);
    let runs = lost_runs(&w).await;
    let by = w.live().await;
    let before = w.snapshot().await.jobs;
    let answer = w.heartbeat(by, runs.clone()).await.expect("answered");
    assert_eq!(answer, Heartbeat::Alive { owned: Vec::new() });
    // The current fence of a job is no right to start it for another instance.
    let theirs = before.iter().find(|(job, _)| job.state == JobState::Running).expect("one is run by another");
    w.heartbeat(by, vec![run_of(&theirs.0)]).await.expect("answered");
    assert_eq!(w.snapshot().await.jobs, before);
}

/// Law 2, heartbeat: dead is final, and a dead instance's renewal is evidence.
pub async fn a_heartbeat_of_the_dead_is_refused(h: &dyn Harness) {
    let w = World::new(h);
    let (by, run) = w.run(job()).await;
    w.take_over().await;
    let left = w.live().await;
    w.leave(left).await.expect("left");
    for id in [by, left, InstanceId::new()] {
        let answer = w.fenced_off(("heartbeat", id.to_string(), None), w.heartbeat(id, vec![run])).await;
        assert_eq!(answer.expect("answered"), Heartbeat::Dead);
    }
}

/// Law 2, reap: who is not live reaps nothing, not even itself.
pub async fn a_reap_of_one_who_is_not_live_is_refused(h: &dyn Harness) {
    let w = World::new(h);
    let (late, _) = w.run(job()).await;
    let left = w.live().await;
    w.leave(left).await.expect("left");
    w.pass(LEASE_MS);
    let before = w.snapshot().await;
    for by in [late, left, InstanceId::new()] {
        assert_eq!(refusal(w.reap(by, 10).await), Refusal::NotLive { instance: by });
    }
    assert_eq!(w.snapshot().await, before);
}

/// A lock that was lost to another, the grant that has it now, and one whose slot nobody holds.
async fn lost_locks(w: &World<'_>) -> (Vec<LockRef>, LockRef) {
    let (old, free) = (w.hold(&lock("x")).await, w.hold(&lock("y")).await);
    w.pass(LEASE_MS);
    let current = w.hold(&lock("x")).await;
    w.release_lock(free.clone()).await.expect("given back late");
    let never = LockRef { slot: 7, ..old.clone() };
    let unknown = LockRef { name: name("z"), ..old.clone() };
    (vec![old, free, never, unknown], current)
}

/// What a stale write of `lock` is answered.
fn stale_lock(lock: &LockRef, current: &LockRef) -> Refusal {
    let held = (lock.name == current.name && lock.slot == current.slot).then_some(current.fence);
    Refusal::Stale { identity: format!("lock {}/{}", lock.name, lock.slot), fence: lock.fence, current: held }
}

/// Law 2, renewal of a lock.
pub async fn a_stale_renewal_of_a_lock_is_refused(h: &dyn Harness) {
    let w = World::new(h);
    let (stale, current) = lost_locks(&w).await;
    for lock in stale {
        let evidence = ("renew_lock", format!("lock {}/{}", lock.name, lock.slot), Some(lock.fence));
        let answer = w.fenced_off(evidence, w.renew_lock(lock.clone(), LEASE_MS)).await;
        assert_eq!(refusal(answer), stale_lock(&lock, &current));
    }
    w.renew_lock(current, LEASE_MS).await.expect("the holder never noticed");
}

/// Law 2, release of a lock: a late release does not free what another holds.
pub async fn a_stale_release_of_a_lock_is_refused(h: &dyn Harness) {
    let w = World::new(h);
    let (stale, current) = lost_locks(&w).await;
    for lock in stale {
        let evidence = ("release_lock", format!("lock {}/{}", lock.name, lock.slot), Some(lock.fence));
        let answer = w.fenced_off(evidence, w.release_lock(lock.clone())).await;
        assert_eq!(refusal(answer), stale_lock(&lock, &current));
    }
    assert_eq!(w.lock_holders(None).await.expect("read")[0].lock, current);
}

/// Bare keys that were lost: to another, to their own end, or never claimed; with the present fence of each.
async fn lost_keys(w: &World<'_>) -> Vec<(crate::id::OnceKey, Fence, Option<Fence>)> {
    let (old, _) = w.hold_key(&once("x")).await;
    let (ended, _) = w.hold_key(&once("y")).await;
    w.pass(LEASE_MS);
    let (current, _) = w.hold_key(&once("x")).await;
    let end = OnceEnd::Failed { error: "no".to_owned() };
    w.finish_once(bare("y"), ended, end, KEEP_KEY_MS).await.expect("ended late");
    vec![(bare("x"), old, Some(current)), (bare("y"), old, None), (bare("z"), old, None)]
}

/// Law 2, renewal of a once key.
pub async fn a_stale_renewal_of_a_key_is_refused(h: &dyn Harness) {
    let w = World::watching(h, &[bare("x"), bare("y"), bare("z")]);
    for (key, fence, current) in lost_keys(&w).await {
        let evidence = ("renew_once", key.to_string(), Some(fence));
        let answer = w.fenced_off(evidence, w.renew_once(key.clone(), fence, LEASE_MS)).await;
        assert_eq!(refusal(answer), Refusal::Stale { identity: format!("once key {key}"), fence, current });
    }
}

/// Law 2, finish of a once key, with each end that it may have.
pub async fn a_stale_finish_of_a_key_is_refused(h: &dyn Harness) {
    let w = World::watching(h, &[bare("x"), bare("y"), bare("z")]);
    for (key, fence, current) in lost_keys(&w).await {
        for end in [OnceEnd::Done { result: Some("late".to_owned()) }, OnceEnd::Failed { error: "late".to_owned() }] {
            let evidence = ("finish_once", key.to_string(), Some(fence));
            let answer = w.fenced_off(evidence, w.finish_once(key.clone(), fence, end, KEEP_KEY_MS)).await;
            assert_eq!(refusal(answer), Refusal::Stale { identity: format!("once key {key}"), fence, current });
        }
    }
}

/// A lease that ran out is not extended, even if nobody took it: its holder has stopped by then, or should have.
pub async fn a_lease_that_ran_out_is_not_renewed(h: &dyn Harness) {
    let w = World::watching(h, &[bare("x")]);
    let held = w.hold(&lock("x")).await;
    let (fence, _) = w.hold_key(&once("x")).await;
    w.pass(LEASE_MS);
    let evidence = ("renew_lock", "lock x/0".to_owned(), Some(held.fence));
    refusal(w.fenced_off(evidence, w.renew_lock(held, LEASE_MS)).await);
    let evidence = ("renew_once", bare("x").to_string(), Some(fence));
    refusal(w.fenced_off(evidence, w.renew_once(bare("x"), fence, LEASE_MS)).await);
}
