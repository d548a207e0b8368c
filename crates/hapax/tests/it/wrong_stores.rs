//! The judges must be able to say no: stores that are wrong on purpose, each caught by the cases that are there for it,
//! by random commands, and by concurrent histories.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hapax::clock::Clock;
use hapax::conformance::{Harness, concurrent, jobs, leases, random, stale, takeovers, workers};
use hapax::id::{InstanceId, JobId};
use hapax::model::observe::{Answer, Command};
use hapax::model::{EnqueueAnswer, Heartbeat, JobFilter, JobState, LockAnswer, Reaped, Release, RunRef};
use hapax::store::Store;
use hapax::store::wired::{Wire, Wired, call};

use super::memory::Memory;

/// A memory store behind a wire that gets something wrong.
pub(crate) struct Wrong {
    memory: Memory,
    wire: fn() -> Arc<dyn Wire>,
    made: Arc<dyn Wire>,
}

impl Wrong {
    pub(crate) fn new(wire: fn() -> Arc<dyn Wire>) -> Self {
        Self { memory: Memory::new(), wire, made: wire() }
    }
}

#[async_trait]
impl Harness for Wrong {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(Wired::new(self.memory.store(), Arc::clone(&self.made)))
    }

    async fn second(&self) -> Arc<dyn Store> {
        self.store()
    }

    fn clock(&self) -> Clock {
        self.memory.clock()
    }

    async fn anew(&self) -> Box<dyn Harness> {
        Box::new(Self::new(self.wire))
    }

    async fn reopen(&self) -> Option<Arc<dyn Store>> {
        None
    }
}

/// Ends any running job, whatever the fence of the finish.
#[derive(Debug)]
struct NoFenceInFinish;

#[async_trait]
impl Wire for NoFenceInFinish {
    async fn carry(&self, store: &dyn Store, command: Command) -> hapax::Result<Answer> {
        let Command::Finish(mut finishes) = command else { return call(store, command).await };
        for finish in &mut finishes {
            if let Some((job, _)) = store.job(finish.run.job).await?
                && let (JobState::Running, Some(fence)) = (job.state, job.fence)
            {
                finish.run.fence = fence;
            }
        }
        call(store, Command::Finish(finishes)).await
    }
}

/// Sweeps in two steps, first looking, then writing, with everything else in between: the jobs that the second bite
/// takes back are those that the first one saw, whoever has them by now.
#[derive(Debug, Default)]
struct SweepOfAnOldList(Mutex<BTreeSet<JobId>>);

impl SweepOfAnOldList {
    async fn give_back(store: &dyn Store, by: InstanceId, old: BTreeSet<JobId>) -> hapax::Result<Vec<JobId>> {
        let mut back = Vec::new();
        for id in old {
            if let Some((job, _)) = store.job(id).await?
                && let (JobState::Running, Some(fence)) = (job.state, job.fence)
            {
                back.extend(store.release(by, Release::Runs(vec![RunRef { job: id, fence }])).await?);
            }
        }
        Ok(back)
    }
}

#[async_trait]
impl Wire for SweepOfAnOldList {
    async fn carry(&self, store: &dyn Store, command: Command) -> hapax::Result<Answer> {
        let Command::Reap(by, limit) = command else { return call(store, command).await };
        let running = JobFilter { state: Some(JobState::Running), limit: 1_000, ..JobFilter::default() };
        let seen = store.list(running).await?.iter().map(|job| job.id).collect();
        let old = std::mem::replace(&mut *self.0.lock().expect("unpoisoned"), seen);
        let back = Self::give_back(store, by, old).await?;
        let Answer::Reaped(mut reaped) = call(store, Command::Reap(by, limit)).await? else { panic!("a reap") };
        reaped.taken_back.extend(back.into_iter().map(|job| (job, JobState::Ready)));
        Ok(Answer::Reaped(Reaped { more: reaped.taken_back.len() >= limit as usize, ..reaped }))
    }
}

/// Grants a lock that is held.
#[derive(Debug)]
struct GrantsTwice;

#[async_trait]
impl Wire for GrantsTwice {
    async fn carry(&self, store: &dyn Store, command: Command) -> hapax::Result<Answer> {
        match call(store, command).await? {
            Answer::Lock(LockAnswer::Busy { holders }) if !holders.is_empty() => {
                Ok(Answer::Lock(LockAnswer::Granted(holders[0].lock.clone())))
            }
            answer => Ok(answer),
        }
    }
}

/// Says that it took jobs, and every third time did not.
#[derive(Debug, Default)]
struct LosesEnqueues(AtomicU32);

#[async_trait]
impl Wire for LosesEnqueues {
    async fn carry(&self, store: &dyn Store, command: Command) -> hapax::Result<Answer> {
        match command {
            Command::Enqueue(jobs) if self.0.fetch_add(1, Ordering::SeqCst) % 3 == 2 => {
                Ok(Answer::Enqueued(jobs.iter().map(|job| EnqueueAnswer::Enqueued { id: job.id }).collect()))
            }
            other => call(store, other).await,
        }
    }
}

/// Looks whether a lock is free, and then takes it, with everything else in between.
#[derive(Debug)]
struct LooksThenLocks;

#[async_trait]
impl Wire for LooksThenLocks {
    async fn carry(&self, store: &dyn Store, command: Command) -> hapax::Result<Answer> {
        let Command::AcquireLock(request) = &command else { return call(store, command).await };
        let seen = store.lock_holders(Some(request.name.clone())).await?;
        tokio::task::yield_now().await;
        match call(store, command.clone()).await? {
            Answer::Lock(LockAnswer::Busy { holders }) if seen.is_empty() => {
                for holder in holders {
                    store.release_lock(holder.lock).await?;
                }
                call(store, command).await
            }
            answer => Ok(answer),
        }
    }
}

/// Tells the dead that they live.
#[derive(Debug)]
struct DeadLive;

#[async_trait]
impl Wire for DeadLive {
    async fn carry(&self, store: &dyn Store, command: Command) -> hapax::Result<Answer> {
        match call(store, command).await? {
            Answer::Heartbeat(Heartbeat::Dead) => Ok(Answer::Heartbeat(Heartbeat::Alive { owned: Vec::new() })),
            answer => Ok(answer),
        }
    }
}

/// Runs a case on a wrong store, in a thread of its own, and asserts that it fails.
fn fails(wire: fn() -> Arc<dyn Wire>, case: impl AsyncFn(&dyn Harness) + Send + 'static) {
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async { case(&Wrong::new(wire)).await });
    });
    thread.join().expect_err("the case lets a wrong store pass");
}

/// Asserts that random commands find the fault, and shorten it.
async fn is_found_by_one(wire: fn() -> Arc<dyn Wire>) {
    let wrong = random::search(500, 1, &Wrong::new(wire)).await.expect_err("random commands let it pass");
    let commands = wrong.lines().filter(|line| line.starts_with("    -> ")).count();
    assert!(commands <= 12, "{commands} commands are not short:\n{wrong}");
    println!("{wrong}");
}

/// Asserts that concurrent histories find the fault.
async fn is_found_by_several(wire: fn() -> Arc<dyn Wire>) -> String {
    let wrong = concurrent::search(500, 1, &Wrong::new(wire)).await.expect_err("histories let it pass");
    println!("{wrong}");
    wrong
}

#[test]
fn a_finish_without_its_fence_fails_the_cases() {
    let wire = || -> Arc<dyn Wire> { Arc::new(NoFenceInFinish) };
    fails(wire, stale::a_stale_finish_is_refused_whatever_its_end);
    fails(wire, stale::a_fence_that_was_never_given_is_refused);
    fails(wire, takeovers::the_late_run_is_told_and_refused);
    fails(wire, takeovers::the_sweep_leaves_the_successor_alone);
}

#[test]
fn a_sweep_of_an_old_list_fails_the_cases() {
    let wire = || -> Arc<dyn Wire> { Arc::new(SweepOfAnOldList::default()) };
    fails(wire, takeovers::the_sweep_leaves_the_successor_alone);
    fails(wire, takeovers::a_live_owner_keeps_its_runs);
}

#[test]
fn a_second_grant_fails_the_cases() {
    let wire = || -> Arc<dyn Wire> { Arc::new(GrantsTwice) };
    fails(wire, leases::a_held_lock_is_busy);
    fails(wire, leases::permits_are_counted);
    fails(wire, leases::a_lock_passes_on_at_the_end_of_its_lease);
}

#[test]
fn a_lost_enqueue_fails_the_cases() {
    let wire = || -> Arc<dyn Wire> { Arc::new(LosesEnqueues::default()) };
    fails(wire, jobs::every_field_of_a_job_is_kept);
    fails(wire, jobs::names_are_told_apart_byte_by_byte);
}

#[test]
fn life_after_death_fails_the_cases() {
    let wire = || -> Arc<dyn Wire> { Arc::new(DeadLive) };
    fails(wire, stale::a_heartbeat_of_the_dead_is_refused);
    fails(wire, workers::dead_is_final);
    fails(wire, takeovers::the_late_run_is_told_and_refused);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finish_without_its_fence_is_found() {
    let wire = || -> Arc<dyn Wire> { Arc::new(NoFenceInFinish) };
    is_found_by_one(wire).await;
    is_found_by_several(wire).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_of_an_old_list_is_found() {
    is_found_by_one(|| Arc::new(SweepOfAnOldList::default())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_grant_is_found() {
    let wire = || -> Arc<dyn Wire> { Arc::new(GrantsTwice) };
    is_found_by_one(wire).await;
    is_found_by_several(wire).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_enqueue_is_found() {
    let wire = || -> Arc<dyn Wire> { Arc::new(LosesEnqueues::default()) };
    is_found_by_one(wire).await;
    is_found_by_several(wire).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn life_after_death_is_found() {
    is_found_by_one(|| Arc::new(DeadLive)).await;
}

/// A fault that only shows when others come in between: nothing for one caller to find, and found by several.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_race_is_found_by_several_only() {
    let wire = || -> Arc<dyn Wire> { Arc::new(LooksThenLocks) };
    random::search(50, 1, &Wrong::new(wire)).await.expect("alone it is right");
    let wrong = is_found_by_several(wire).await;
    assert!(wrong.contains("no order of them is lawful"), "{wrong}");
}
