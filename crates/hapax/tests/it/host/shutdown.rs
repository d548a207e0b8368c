//! How a host ends.

use std::sync::Arc;
use std::time::Duration;

use hapax::host::State;
use hapax::model::RunOutcome;
use hapax::{Guarantee, Job, JobError, JobState, Run};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, Semaphore};

use super::{enqueue, enqueue_one, host, look, memory, new, until};

#[derive(Clone)]
struct Gate {
    begun: Arc<Notify>,
    open: Arc<Semaphore>,
}

impl Gate {
    fn closed() -> Self {
        Self { begun: Arc::default(), open: Arc::new(Semaphore::new(0)) }
    }
}

#[derive(Serialize, Deserialize)]
struct Quick;
impl Job for Quick {
    const KIND: &'static str = "quick";
}

async fn quick(_job: Quick) {}

#[derive(Serialize, Deserialize)]
struct Waits;
impl Job for Waits {
    const KIND: &'static str = "waits";
}

async fn waits(_job: Waits, State(gate): State<Gate>) -> Result<(), JobError> {
    gate.begun.notify_one();
    gate.open.acquire().await?.forget();
    Ok(())
}

/// Runs that are short make the host claim ahead of its workers; what it has claimed and not begun goes back untouched.
#[tokio::test]
async fn draining_gives_back_what_waits_and_lets_runs_finish() {
    let (hapax, gate) = (memory(), Gate::closed());
    let host = host(&hapax, gate.clone()).queue("default", |queue| queue.workers(2)).task(waits).task(quick);
    let host = Arc::new(host.start().await.expect("starts"));
    host.ready().await.expect("ready");
    enqueue(hapax.store(), (0..4).map(|_| new(&Quick)).collect()).await;
    until("it knows that runs are short", async || host.stats().finished == 4).await;
    let ids = enqueue(hapax.store(), (0..6).map(|_| new(&Waits)).collect()).await;
    let owned = async || {
        let states = ids.iter().map(async |id| look(&hapax, *id).await.0.state == JobState::Running);
        let mut owned = 0;
        for running in states {
            owned += u32::from(running.await);
        }
        owned
    };
    until("it has claimed ahead", async || host.stats().active == 2 && owned().await > 2).await;
    let draining = tokio::spawn({
        let host = Arc::clone(&host);
        async move { host.drain().await }
    });
    until("only the two that began are still owned", async || owned().await == 2).await;
    assert!(!draining.is_finished(), "it waits for them");
    gate.open.add_permits(6);
    draining.await.expect("ends");
    let mut done = 0;
    for id in &ids {
        let (job, runs) = look(&hapax, *id).await;
        assert!(runs.is_empty(), "nothing failed: {runs:?}");
        match job.state {
            JobState::Done => done += 1,
            state => assert_eq!((state, job.runs, job.unstarted_takeovers), (JobState::Ready, 0, 0), "untouched"),
        }
    }
    assert_eq!((done, host.stats().finished), (2, 6));
    let live = hapax.store().instances().await.expect("answers");
    assert!(live.iter().all(|instance| !instance.live), "it has left");
}

#[tokio::test]
async fn what_outlasts_the_drain_time_runs_again_uncounted() {
    #[derive(Serialize, Deserialize)]
    struct Once;
    impl Job for Once {
        const KIND: &'static str = "once";
        const GUARANTEE: Guarantee = Guarantee::AtMostOnce;
    }
    async fn once(_job: Once, State(gate): State<Gate>) -> Result<(), JobError> {
        gate.begun.notify_one();
        gate.open.acquire().await?.forget();
        Ok(())
    }
    let (hapax, gate) = (memory(), Gate::closed());
    let id = enqueue_one(&hapax, &Waits).await;
    let at_most_once = enqueue_one(&hapax, &Once).await;
    let host = host(&hapax, gate.clone()).drain_timeout(Duration::ZERO).task(waits).task(once);
    let host = host.start().await.expect("starts");
    until("both are at work", async || host.stats().active == 2).await;
    host.drain().await;
    let (job, runs) = look(&hapax, id).await;
    assert_eq!((job.state, job.failures, job.takeovers), (JobState::Ready, 0, 0), "nobody's failure: {:?}", job.reason);
    assert_eq!(runs[0].outcome, RunOutcome::Snoozed);
    assert_eq!(look(&hapax, at_most_once).await.0.state, JobState::InDoubt);
}

#[tokio::test]
async fn stopping_now_waits_for_nobody() {
    let (hapax, gate) = (memory(), Gate::closed());
    let id = enqueue_one(&hapax, &Waits).await;
    let host = host(&hapax, gate.clone()).grace(Duration::from_hours(1)).task(waits).start().await.expect("starts");
    gate.begun.notified().await;
    host.stop_now();
    host.join().await;
    assert_eq!(look(&hapax, id).await.0.state, JobState::Ready);
}

#[tokio::test]
async fn a_run_that_heeds_the_shutdown_runs_again_at_once() {
    #[derive(Serialize, Deserialize)]
    struct Heeds;
    impl Job for Heeds {
        const KIND: &'static str = "heeds";
    }
    async fn heeds(_job: Heeds, State(gate): State<Gate>, run: Run) -> Result<(), JobError> {
        gate.begun.notify_one();
        run.cancelled().await;
        Err(run.stopped())
    }
    let (hapax, gate) = (memory(), Gate::closed());
    let id = enqueue_one(&hapax, &Heeds).await;
    let host = host(&hapax, gate.clone()).drain_timeout(Duration::ZERO).task(heeds).start().await.expect("starts");
    gate.begun.notified().await;
    host.drain().await;
    let (job, _) = look(&hapax, id).await;
    assert_eq!((job.state, job.failures), (JobState::Ready, 0));
}

#[tokio::test]
async fn dropping_the_handle_drains() {
    let (hapax, gate) = (memory(), Gate::closed());
    let id = enqueue_one(&hapax, &Waits).await;
    drop(host(&hapax, gate.clone()).task(waits).start().await.expect("starts"));
    gate.open.add_permits(1);
    until("it has left", async || {
        let instances = hapax.store().instances().await.expect("answers");
        !instances.is_empty() && instances.iter().all(|instance| !instance.live)
    })
    .await;
    let (job, _) = look(&hapax, id).await;
    assert!(matches!(job.state, JobState::Done | JobState::Ready), "it finished or was given back: {}", job.state);
}

/// A runtime that goes away under the host takes the keeper along: nobody may go on renewing the lease of a host that
/// is no more.
#[test]
fn a_runtime_that_ends_takes_the_keeper_along() {
    let (hapax, gate) = (memory(), Gate::closed());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("builds");
    let host = runtime.block_on(async {
        let id = enqueue_one(&hapax, &Waits).await;
        let host = host(&hapax, gate.clone()).task(waits).start().await.expect("starts");
        gate.begun.notified().await;
        assert_eq!(look(&hapax, id).await.0.state, JobState::Running);
        host
    });
    drop(runtime);
    let other = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("builds");
    other.block_on(until("it has left", async || {
        hapax.store().instances().await.expect("answers").iter().all(|instance| !instance.live)
    }));
    drop(host);
}

#[tokio::test]
async fn a_host_that_ends_first_is_never_ready() {
    let hapax = memory();
    let options = hapax::host::ServiceOptions::new().announces_ready();
    let host = host(&hapax, ()).service_with("silent", options, |(), stop| async move {
        stop.requested().await;
        Ok(())
    });
    let host = host.start().await.expect("starts");
    host.stop_now();
    assert_eq!(host.ready().await.expect_err("it ended").kind(), hapax::ErrorKind::Closed);
}
