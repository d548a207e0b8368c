//! What must be there after the store's process was ended and began again. A store that keeps nothing exempts these.

use std::sync::Arc;

use super::Harness;
use super::world::{KEEP_KEY_MS, World, again, bare, counted, done, job, keyed, lock, once, run_of};
use crate::model::{EVIDENCE_KEEP_MS, JobState, OnceEnd, RunOutcome};
use crate::store::Store;

/// The store, closed and opened again.
async fn reopened(h: &dyn Harness) -> Arc<dyn Store> {
    h.reopen().await.expect("a store that keeps nothing exempts the cases of this file")
}

/// Laws 4 and 7: jobs, runs, keys, locks, pauses, instances and evidence are there as they were.
pub async fn everything_is_there_after_a_restart(h: &dyn Harness) {
    let mut w = World::watching(h, &[bare("a"), bare("b")]);
    let (by, run) = w.run_started(keyed("a")).await;
    w.end(run, again(RunOutcome::Failed, 0)).await;
    w.take(by).await;
    w.put(&[keyed("b"), job()]).await;
    w.hold(&lock("x")).await;
    let (fence, _) = w.hold_key(&once("a")).await;
    w.hold_key(&once("b")).await;
    w.finish_once(bare("a"), fence, OnceEnd::Done { result: Some("1".to_owned()) }, KEEP_KEY_MS).await.expect("held");
    w.pause(crate::conformance::world::name("z"), "test".to_owned()).await.expect("paused");
    w.end(run, done()).await;
    let (before, totals) = (w.snapshot().await, w.totals().await);
    let evidence = w.refusals(10).await.expect("read");
    w.store = reopened(h).await;
    assert_eq!(w.snapshot().await, before);
    assert_eq!((w.totals().await, w.refusals(10).await.expect("read")), (totals, evidence));
}

/// A run goes on over a restart of the store: its fence is still the current one.
pub async fn a_run_goes_on_over_a_restart(h: &dyn Harness) {
    let mut w = World::new(h);
    let (by, run) = w.run_started(job()).await;
    w.store = reopened(h).await;
    w.heartbeat(by, vec![run]).await.expect("live");
    assert_eq!(w.end(run, done()).await, counted(JobState::Done));
}

/// Law 1: fences grow over restarts, and over restarts of a store from which everything was deleted.
pub async fn fences_grow_over_restarts(h: &dyn Harness) {
    let mut w = World::new(h);
    let mut last = None;
    for _ in 0..4 {
        let held = w.hold(&lock("x")).await;
        assert!(Some(held.fence) > last, "{:?} after {last:?}", held.fence);
        let (by, run) = w.run(job()).await;
        assert!(run.fence > held.fence);
        w.end(run, done()).await;
        w.leave(by).await.expect("left");
        w.release_lock(held).await.expect("held");
        last = Some(run.fence);
        w.pass(2 * EVIDENCE_KEEP_MS);
        w.prune(1_000).await.expect("pruned");
        w.store = reopened(h).await;
    }
    assert_eq!(w.snapshot().await.jobs, []);
}

/// Law 1: what was held before a restart is held after it, to the end of its lease and no longer.
pub async fn leases_outlast_a_restart(h: &dyn Harness) {
    let mut w = World::new(h);
    let held = w.hold(&lock("x")).await;
    let (by, run) = w.run(job()).await;
    w.pass(crate::conformance::world::LEASE_MS - 1);
    w.store = reopened(h).await;
    assert_eq!(w.lock_holders(None).await.expect("read")[0].lock, held);
    w.heartbeat(by, Vec::new()).await.expect("live");
    w.pass(1);
    assert!(w.hold(&lock("x")).await.fence > held.fence);
    let next = w.take_over().await;
    assert_eq!(next.1.taken_back, [(run.job, JobState::Ready)]);
    assert!(run_of(&w.take(next.0).await[0]).fence > run.fence);
}
