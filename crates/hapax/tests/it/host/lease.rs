//! Leases that are lost, instances that die, and what becomes of their jobs.

use std::sync::Arc;
use std::time::Duration;

use hapax::clock::Clock;
use hapax::host::{State, StopReason};
use hapax::id::{ClaimId, InstanceId, Name};
use hapax::model::{ClaimRequest, Heartbeat, NewInstance, RunOutcome};
use hapax::store::memory::MemoryStore;
use hapax::testing::{Fault, Faults};
use hapax::{Hapax, Job, JobError, JobState, Run};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, mpsc};

use super::{enqueue, enqueue_one, host, look, movable, new, until, wait_for};

#[derive(Serialize, Deserialize)]
struct Plain;
impl Job for Plain {
    const KIND: &'static str = "plain";
}

async fn plain(_job: Plain) {}

#[derive(Clone, Default)]
struct Begun(Arc<Notify>);

/// The first attempt waits for its signal and then reports success all the same; the second just succeeds.
#[derive(Serialize, Deserialize)]
struct Late;
impl Job for Late {
    const KIND: &'static str = "late";
}

#[derive(Clone)]
struct Story {
    begun: Arc<Notify>,
    signals: mpsc::UnboundedSender<StopReason>,
}

async fn late(_job: Late, State(story): State<Story>, run: Run) -> Result<(), JobError> {
    if run.attempt() > 1 {
        return Ok(());
    }
    story.begun.notify_one();
    let reason = run.cancelled().await;
    assert!(run.is_lost());
    story.signals.send(reason)?;
    // It claims success: nothing but the fence keeps it from overwriting the other's outcome.
    Ok(())
}

/// RC-05: a run whose heartbeats are cut is told that it lost its lease; another instance runs the job; the late report
/// of success is refused and changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_lost_its_lease_is_told_and_refused() {
    let hapax = Hapax::memory();
    let faulty = Faults::default();
    let cut_off = faulty.between(&hapax);
    let (signals, mut told) = mpsc::unbounded_channel();
    let story = Story { begun: Arc::default(), signals };
    let lease = Duration::from_millis(900);
    let one = host(&cut_off, story.clone()).lease(lease).task(late).start().await.expect("starts");
    let id = enqueue_one(&hapax, &Late).await;
    story.begun.notified().await;
    until("its start is recorded", async || {
        one.beat().await;
        look(&hapax, id).await.0.claim.is_some_and(|claim| claim.started_at.is_some())
    })
    .await;
    // From now on its store takes what it says late, and renews nothing.
    faulty.cut("heartbeat", Fault::Unreachable);
    faulty.cut("finish", Fault::Silence);
    faulty.cut("reap", Fault::Unreachable);
    assert_eq!(told.recv().await, Some(StopReason::LeaseLost));
    let two = host(&hapax, story).lease(lease).task(late).start().await.expect("starts");
    until("the other takes it over", async || two.reap().await.expect("reaps") > 0 || two.stats().taken_back > 0).await;
    let (job, _) = wait_for(&hapax, id, JobState::Done).await;
    faulty.mend("finish");
    until("the late finish is refused", async || one.stats().refused == 1).await;
    let (after, runs) = look(&hapax, id).await;
    assert_eq!((runs.len(), runs[0].outcome, runs[0].number), (1, RunOutcome::Lost, 1));
    assert_eq!((after.state, after.runs, after.fence), (JobState::Done, 2, job.fence), "attempt 2 is the outcome");
    assert!(after.refused >= 1, "the refusal is kept as evidence");
    faulty.mend("heartbeat");
    two.drain().await;
    one.drain().await;
}

#[derive(Serialize, Deserialize)]
struct Told;
impl Job for Told {
    const KIND: &'static str = "told";
}

async fn told(_job: Told, State(begun): State<Begun>, run: Run) -> Result<(), JobError> {
    if run.attempt() == 1 {
        begun.0.notify_one();
        assert_eq!(run.cancelled().await, StopReason::LeaseLost);
    }
    Ok(())
}

/// Dead is final: the host cancels its runs, registers under a new id, and goes on.
#[tokio::test]
async fn a_dead_instance_comes_back_under_a_new_id() {
    let (hapax, clock) = movable();
    let begun = Begun::default();
    let one = host(&hapax, begun.clone()).task(told).start().await.expect("starts");
    let id = enqueue_one(&hapax, &Told).await;
    begun.0.notified().await;
    for _ in 0..3 {
        one.beat().await;
    }
    let before = one.instance_id();
    let killer = live_instance(&hapax, &clock).await;
    assert_eq!(hapax.store().reap(killer, 100).await.expect("live").dead, [before]);
    one.beat().await;
    until("it is another instance now", async || one.instance_id() != before).await;
    let (job, runs) = wait_for(&hapax, id, JobState::Done).await;
    assert_eq!((job.runs, runs[0].outcome), (2, RunOutcome::Lost));
    until("the late finish is refused", async || one.stats().refused == 1).await;
    assert!(one.stats().lost >= 1);
    let again = enqueue_one(&hapax, &Told).await;
    begun.0.notified().await;
    assert_eq!(look(&hapax, again).await.0.claim.expect("claimed").instance, one.instance_id());
    one.stop_now();
    one.join().await;
}

/// Lets every lease run out, but that of an instance which may reap then.
async fn live_instance(hapax: &Hapax, clock: &Clock) -> InstanceId {
    clock.advance(Duration::from_secs(21));
    let id = register(hapax).await;
    clock.advance(Duration::from_secs(10));
    id
}

async fn register(hapax: &Hapax) -> InstanceId {
    let id = InstanceId::new();
    let name = Name::new("name", "by hand").expect("legal");
    let (queues, kinds) = (Vec::new(), Vec::new());
    let new = NewInstance { id, name, version: String::new(), queues, kinds, lease_ms: 30_000 };
    hapax.store().register(new).await.expect("registers");
    id
}

/// A stall of the store longer than the lease: whoever wakes first renews itself and waits one heartbeat, so that
/// others can do the same, before it declares anybody dead.
#[tokio::test]
async fn after_a_stall_nobody_is_reaped_at_once() {
    let (hapax, clock) = movable();
    let faulty = Faults::default();
    let stalled = faulty.between(&hapax);
    let one = host(&stalled, ()).lease(Duration::from_millis(900)).task(plain).start().await.expect("starts");
    let (faster, slower) = (register(&hapax).await, register(&hapax).await);
    faulty.cut("heartbeat", Fault::Unreachable);
    until("its own lease has passed", async || !one.stats().lease_held).await;
    clock.advance(Duration::from_mins(1));
    let before = faulty.calls("reap");
    assert_eq!(one.reap().await.expect("holds back"), 0, "it is not even sure of itself");
    faulty.mend("heartbeat");
    one.beat().await;
    assert!(one.stats().lease_held);
    assert_eq!(one.reap().await.expect("holds back"), 0, "the others have not had their heartbeat");
    assert_eq!(faulty.calls("reap"), before);
    let renewed = hapax.store().heartbeat(faster, Vec::new()).await.expect("answers");
    assert!(matches!(renewed, Heartbeat::Alive { .. }));
    clock.advance(Duration::from_millis(300));
    until("it reaps again", async || one.reap().await.is_ok() && faulty.calls("reap") > before).await;
    let late = hapax.store().heartbeat(slower, Vec::new()).await.expect("answers");
    assert_eq!(late, Heartbeat::Dead);
    one.drain().await;
}

/// What the store counts as ours and nobody here works on goes back with the next heartbeat.
#[tokio::test]
async fn a_heartbeat_gives_back_what_nobody_works_on() {
    #[derive(Serialize, Deserialize)]
    struct Elsewhere;
    impl Job for Elsewhere {
        const KIND: &'static str = "elsewhere";
    }
    let (hapax, _) = movable();
    let one = host(&hapax, ()).task(plain).start().await.expect("starts");
    let id = enqueue_one(&hapax, &Elsewhere).await;
    // As if an answer of its own had been lost for good.
    let request = ClaimRequest {
        instance: one.instance_id(),
        claim: ClaimId::new(),
        queues: vec![(Name::new("queue", "default").expect("legal"), 1)],
        kinds: vec![Name::new("kind", "elsewhere").expect("legal")],
        suspect: false,
    };
    assert_eq!(hapax.store().claim(request).await.expect("live").jobs.len(), 1);
    one.beat().await;
    let (job, _) = wait_for(&hapax, id, JobState::Ready).await;
    assert_eq!((job.runs, job.unstarted_takeovers), (0, 0), "untouched");
    one.drain().await;
}

/// One payload kills whoever runs it. It is parked; the 499 that were claimed with it are done, and never suspected
/// for long.
#[tokio::test]
async fn one_crashing_payload_parks_alone() {
    let clock = Clock::movable();
    let hapax = Hapax::with_store(Arc::new(MemoryStore::with_clock(clock.clone())));
    let ids = enqueue(hapax.store(), (0..500).map(|_| new(&Plain)).collect()).await;
    let crashing = ids[250];
    let mut crashes = 0;
    while look(&hapax, crashing).await.0.state != JobState::Parked {
        crashes += 1;
        assert!(crashes < 20, "it is never parked: {:?}", look(&hapax, crashing).await.0);
        // An instance claims a few hundred jobs and runs one after the other, until it comes to the crashing one.
        let victim = register(&hapax).await;
        while !run_until_crash(&hapax, victim, crashing).await {}
        let survivor = live_instance(&hapax, &clock).await;
        while hapax.store().reap(survivor, 100).await.expect("live").more {}
    }
    let one = host(&hapax, ()).task(plain).start().await.expect("starts");
    for id in ids.iter().filter(|id| **id != crashing) {
        wait_for(&hapax, *id, JobState::Done).await;
    }
    one.drain().await;
    let (job, _) = look(&hapax, crashing).await;
    assert_eq!(job.state, JobState::Parked);
    assert!(job.reason.expect("a reason").contains("taken over 3 times"));
    assert!(crashes >= 3, "a start was recorded before each of the three that counted");
}

/// Claims like a host does, and finishes everything but the crashing job. True when it crashed.
async fn run_until_crash(hapax: &Hapax, victim: InstanceId, crashing: hapax::JobId) -> bool {
    use hapax::model::{End, Finish, RunRef};
    let request = ClaimRequest {
        instance: victim,
        claim: ClaimId::new(),
        queues: vec![(Name::new("queue", "default").expect("legal"), 500)],
        kinds: vec![Name::new("kind", "plain").expect("legal")],
        suspect: true,
    };
    let jobs = hapax.store().claim(request).await.expect("live").jobs;
    for job in jobs.iter().take(20) {
        let run = RunRef { job: job.id, fence: job.fence.expect("claimed") };
        if job.id == crashing {
            return true;
        }
        hapax.store().finish(vec![Finish { run, end: End::Done { result: None } }]).await.expect("counts");
    }
    // The rest of the claim was only prefetched; it is given back when the instance dies.
    jobs.iter().any(|job| job.id == crashing) || jobs.is_empty()
}

/// RC-65: heartbeats have a thread and a connection of their own. On a runtime whose only thread a task blocks, they go
/// out all the same, and the lease holds.
#[tokio::test]
async fn a_task_that_blocks_the_runtime_does_not_cost_the_lease() {
    #[derive(Clone)]
    struct Beats(Faults);
    #[derive(Serialize, Deserialize)]
    struct Blocks;
    impl Job for Blocks {
        const KIND: &'static str = "blocks";
    }
    async fn blocks(_job: Blocks, State(Beats(faulty)): State<Beats>, run: Run) {
        let before = faulty.calls("heartbeat");
        while faulty.calls("heartbeat") < before + 6 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!run.is_lost(), "two leases long, and still ours");
    }
    let hapax = Hapax::memory();
    let faulty = Faults::default();
    let one = host(&faulty.between(&hapax), Beats(faulty)).lease(Duration::from_millis(600)).task(blocks);
    let one = one.start().await.expect("starts");
    let id = enqueue_one(&hapax, &Blocks).await;
    let (job, _) = wait_for(&hapax, id, JobState::Done).await;
    assert_eq!((job.runs, one.stats().lost), (1, 0));
    one.drain().await;
}
