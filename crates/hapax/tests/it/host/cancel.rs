//! Runs that are told to stop: by a person, by their deadline, and those that do not listen.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hapax::host::{State, StopReason};
use hapax::model::{RetryPolicy, RunOutcome};
use hapax::{Guarantee, Job, JobError, JobState, Run};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::{enqueue_one, host, look, memory, movable, until, wait_for};

#[derive(Clone, Default)]
struct Begun(Arc<Notify>);

/// Stops when it is told to.
#[derive(Serialize, Deserialize)]
struct Listens;
impl Job for Listens {
    const KIND: &'static str = "listens";
}

async fn listens(_job: Listens, State(begun): State<Begun>, run: Run) -> Result<(), JobError> {
    begun.0.notify_one();
    let reason = run.cancelled().await;
    assert!(run.is_cancelled() && run.cancel_token().is_cancelled());
    assert_eq!(run.stop_reason(), Some(reason));
    Err(run.stopped())
}

/// Never ends by itself.
#[derive(Serialize, Deserialize)]
struct Deaf;
impl Job for Deaf {
    const KIND: &'static str = "deaf";
    const RUN_TIMEOUT: Duration = Duration::from_millis(200);
    const RETRY: RetryPolicy = RetryPolicy::NEVER;
}

async fn deaf(_job: Deaf, State(begun): State<Begun>) {
    begun.0.notify_one();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_running_job_is_cancelled() {
    let (hapax, begun) = (memory(), Begun::default());
    let host = host(&hapax, begun.clone()).task(listens).start().await.expect("starts");
    let id = enqueue_one(&hapax, &Listens).await;
    begun.0.notified().await;
    assert_eq!(hapax.store().cancel(id, "not wanted".into()).await.expect("legal"), JobState::Running);
    host.beat().await;
    let (_, runs) = wait_for(&hapax, id, JobState::Cancelled).await;
    assert_eq!(runs[0].outcome, RunOutcome::Cancelled);
    host.drain().await;
}

#[tokio::test]
async fn a_deaf_run_is_dropped_after_its_grace() {
    #[derive(Serialize, Deserialize)]
    struct Stubborn;
    impl Job for Stubborn {
        const KIND: &'static str = "stubborn";
    }
    async fn stubborn(_job: Stubborn, State(begun): State<Begun>) {
        begun.0.notify_one();
        std::future::pending::<()>().await;
    }
    let (hapax, begun) = (memory(), Begun::default());
    let host = host(&hapax, begun.clone()).task(stubborn).start().await.expect("starts");
    let id = enqueue_one(&hapax, &Stubborn).await;
    begun.0.notified().await;
    hapax.store().cancel(id, "not wanted".into()).await.expect("legal");
    host.beat().await;
    let (_, runs) = wait_for(&hapax, id, JobState::Cancelled).await;
    assert_eq!(runs[0].outcome, RunOutcome::Unknown, "nobody knows how far it came");
    host.drain().await;
}

#[tokio::test]
async fn a_run_ends_at_its_deadline() {
    let (hapax, begun) = (memory(), Begun::default());
    let host = host(&hapax, begun).task(deaf).start().await.expect("starts");
    let id = enqueue_one(&hapax, &Deaf).await;
    let (job, runs) = wait_for(&hapax, id, JobState::Parked).await;
    assert_eq!(runs[0].outcome, RunOutcome::TimedOut);
    assert_eq!((job.runs, job.refused), (1, 0), "it ended before the store took it back");
    host.drain().await;
}

#[tokio::test]
async fn an_at_most_once_run_that_is_dropped_is_in_doubt() {
    #[derive(Serialize, Deserialize)]
    struct Once;
    impl Job for Once {
        const KIND: &'static str = "once";
        const GUARANTEE: Guarantee = Guarantee::AtMostOnce;
        const RUN_TIMEOUT: Duration = Duration::from_millis(200);
    }
    async fn once(_job: Once) {
        std::future::pending::<()>().await;
    }
    let hapax = memory();
    let host = host(&hapax, ()).task(once).start().await.expect("starts");
    let id = enqueue_one(&hapax, &Once).await;
    wait_for(&hapax, id, JobState::InDoubt).await;
    host.drain().await;
}

/// A task that blocks its thread can be neither told nor dropped: the store's deadline ends its run, while the instance
/// lives on. What it reports at last is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocking_run_is_taken_back_at_its_deadline() {
    #[derive(Clone, Default)]
    struct Gate(Arc<AtomicBool>, Begun);
    #[derive(Serialize, Deserialize)]
    struct Blocks;
    impl Job for Blocks {
        const KIND: &'static str = "blocks";
        const RUN_TIMEOUT: Duration = Duration::from_mins(1);
        const RETRY: RetryPolicy = RetryPolicy::NEVER;
    }
    async fn blocks(_job: Blocks, State(gate): State<Gate>, run: Run) {
        gate.1.0.notify_one();
        while !gate.0.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_ne!(run.stop_reason(), None, "it was told, for when it would listen");
    }
    let ((hapax, clock), gate) = (movable(), Gate::default());
    let host = host(&hapax, gate.clone()).lease(Duration::from_hours(1)).task(blocks).start().await.expect("starts");
    let id = enqueue_one(&hapax, &Blocks).await;
    gate.1.0.notified().await;
    // Three heartbeats: it has lasted since before the last one, so its start is recorded.
    for _ in 0..3 {
        host.beat().await;
    }
    assert!(look(&hapax, id).await.0.claim.expect("running").started_at.is_some());
    clock.advance(Duration::from_secs(61));
    host.beat().await;
    // It waits for a third of its lease before it reaps at all.
    clock.advance(Duration::from_mins(20));
    assert_eq!(host.reap().await.expect("reaps"), 1);
    let (job, runs) = look(&hapax, id).await;
    assert_eq!((job.state, runs[0].outcome), (JobState::Parked, RunOutcome::TimedOut));
    assert_eq!(host.stats().active, 1, "its slot stays taken until it returns");
    host.beat().await;
    gate.0.store(true, Ordering::Release);
    until("the late finish is refused", async || host.stats().refused == 1).await;
    assert_eq!(look(&hapax, id).await.0.state, JobState::Parked, "and changes nothing");
    let live = hapax.store().instances().await.expect("answers");
    assert!(live.iter().all(|instance| instance.live), "the instance never died");
    host.drain().await;
}

/// A task that blocks its thread is reported, and its slot is free again once it returns. The runtime's timers go on
/// meanwhile, even if the thread that is blocked was the one that looked after them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocking_run_is_reported() {
    #[derive(Clone, Default)]
    struct Gate(Arc<AtomicBool>);
    #[derive(Serialize, Deserialize)]
    struct Blocks;
    impl Job for Blocks {
        const KIND: &'static str = "blocks";
        const RUN_TIMEOUT: Duration = Duration::from_millis(100);
        const RETRY: RetryPolicy = RetryPolicy::NEVER;
    }
    async fn blocks(_job: Blocks, State(gate): State<Gate>) {
        while !gate.0.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let (hapax, gate) = (memory(), Gate::default());
    enqueue_one(&hapax, &Blocks).await;
    let host = host(&hapax, gate.clone()).lease(Duration::from_secs(1)).task(blocks).start().await.expect("starts");
    until("it is reported", async || host.stats().stuck == 1).await;
    assert_eq!(host.stats().active, 1);
    gate.0.store(true, Ordering::Release);
    until("its slot is free", async || host.stats().active == 0).await;
    host.drain().await;
}

#[tokio::test]
async fn the_reason_says_which_it_was() {
    #[derive(Serialize, Deserialize)]
    struct Tells;
    impl Job for Tells {
        const KIND: &'static str = "tells";
        const RUN_TIMEOUT: Duration = Duration::from_millis(300);
        const RETRY: RetryPolicy = RetryPolicy::NEVER;
    }
    async fn tells(_job: Tells, run: Run) -> Result<(), JobError> {
        let reason = run.cancelled().await;
        assert_eq!(reason, StopReason::Deadline);
        assert!(!run.deadline().passed(), "told before it is too late");
        Ok(())
    }
    let hapax = memory();
    let host = host(&hapax, ()).task(tells).start().await.expect("starts");
    let id = enqueue_one(&hapax, &Tells).await;
    wait_for(&hapax, id, JobState::Done).await;
    host.drain().await;
}
