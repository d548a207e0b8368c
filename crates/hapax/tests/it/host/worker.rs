//! Claiming and running.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hapax::host::State;
use hapax::id::Name;
use hapax::model::{JobFilter, PAGE_MAX};
use hapax::testing::{Fault, Faults};
use hapax::{ErrorKind, Guarantee, Hapax, Job, JobError, JobState, Run};
use serde::{Deserialize, Serialize};

use super::{enqueue, enqueue_one, host, look, memory, new, until, wait_for};

/// Who ran which job.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<BTreeMap<u32, Vec<String>>>>);

#[derive(Serialize, Deserialize)]
struct Numbered(u32);
impl Job for Numbered {
    const KIND: &'static str = "numbered";
}

async fn numbered(job: Numbered, State(ledger): State<Ledger>, run: Run) {
    if job.0.is_multiple_of(7) {
        tokio::task::yield_now().await;
    }
    ledger.0.lock().expect("not poisoned").entry(job.0).or_default().push(run.instance().to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hosts_share_a_thousand_jobs() {
    let (hapax, ledger) = (memory(), Ledger::default());
    enqueue(hapax.store(), (0..1_000).map(|n| new(&Numbered(n))).collect()).await;
    let start = async || host(&hapax, ledger.clone()).task(numbered).start().await.expect("starts");
    let (one, two) = (start().await, start().await);
    until("all are done", async || one.stats().finished + two.stats().finished == 1_000).await;
    one.drain().await;
    two.drain().await;
    let ran = ledger.0.lock().expect("not poisoned").clone();
    assert_eq!(ran.len(), 1_000);
    assert!(ran.values().all(|runs| runs.len() == 1), "each ran once");
    let done = JobFilter { state: Some(JobState::Done), limit: PAGE_MAX, ..JobFilter::default() };
    assert_eq!(hapax.store().list(done).await.expect("answers").len(), 1_000);
    assert_eq!(one.stats().refused + two.stats().refused, 0);
}

#[tokio::test]
async fn an_unknown_kind_is_left_to_those_who_know_it() {
    #[derive(Serialize, Deserialize)]
    struct Foreign;
    impl Job for Foreign {
        const KIND: &'static str = "foreign";
    }
    let (hapax, ledger) = (memory(), Ledger::default());
    let foreign = enqueue_one(&hapax, &Foreign).await;
    let mine = enqueue_one(&hapax, &Numbered(1)).await;
    let host = host(&hapax, ledger).task(numbered).start().await.expect("starts");
    wait_for(&hapax, mine, JobState::Done).await;
    host.drain().await;
    let (job, runs) = look(&hapax, foreign).await;
    assert_eq!((job.state, job.runs, runs.len()), (JobState::Ready, 0, 0));
}

#[tokio::test]
async fn a_poison_payload_blocks_nobody() {
    let (hapax, ledger) = (memory(), Ledger::default());
    let mut jobs: Vec<_> = (0..5).map(|n| new(&Numbered(n))).collect();
    jobs[0].payload = hapax::Payload::new(r#""not a number""#).expect("JSON");
    let ids = enqueue(hapax.store(), jobs).await;
    let host = host(&hapax, ledger).queue("default", |q| q.workers(1)).task(numbered).start().await.expect("starts");
    for id in &ids[1..] {
        wait_for(&hapax, *id, JobState::Done).await;
    }
    wait_for(&hapax, ids[0], JobState::Parked).await;
    host.drain().await;
}

#[tokio::test]
async fn no_queue_runs_more_than_its_workers() {
    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<(usize, usize)>>);
    #[derive(Serialize, Deserialize)]
    struct Busy;
    impl Job for Busy {
        const KIND: &'static str = "busy";
        const QUEUE: &'static str = "narrow";
    }
    async fn busy(_job: Busy, State(seen): State<Seen>) {
        let change = |by: isize| {
            let mut seen = seen.0.lock().expect("not poisoned");
            seen.0 = seen.0.checked_add_signed(by).expect("not negative");
            seen.1 = seen.1.max(seen.0);
        };
        change(1);
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        change(-1);
    }
    let (hapax, seen) = (memory(), Seen::default());
    enqueue(hapax.store(), (0..50).map(|_| new(&Busy)).collect()).await;
    let host = host(&hapax, seen.clone()).queue("narrow", |queue| queue.workers(3)).task(busy);
    let host = host.start().await.expect("starts");
    until("all are done", async || host.stats().finished == 50).await;
    host.drain().await;
    assert_eq!(seen.0.lock().expect("not poisoned").1, 3);
}

/// An at-most-once job must be known to have started before its task does anything.
#[tokio::test]
async fn the_start_of_an_at_most_once_job_is_recorded_first() {
    #[derive(Serialize, Deserialize)]
    struct Once;
    impl Job for Once {
        const KIND: &'static str = "once";
        const GUARANTEE: Guarantee = Guarantee::AtMostOnce;
    }
    async fn once(_job: Once, State(hapax): State<Hapax>, run: Run) -> Result<(), JobError> {
        let (job, _) = hapax.store().job(run.job_id()).await?.ok_or("gone")?;
        assert!(job.claim.ok_or("not claimed")?.started_at.is_some());
        Ok(())
    }
    let hapax = memory();
    let id = enqueue_one(&hapax, &Once).await;
    let host = host(&hapax, hapax.clone()).task(once).start().await.expect("starts");
    wait_for(&hapax, id, JobState::Done).await;
    host.drain().await;
}

#[tokio::test]
async fn progress_is_kept_while_it_runs() {
    #[derive(Serialize, Deserialize)]
    struct Slow;
    impl Job for Slow {
        const KIND: &'static str = "slow";
    }
    async fn slow(_job: Slow, State(hapax): State<Hapax>, run: Run) -> Result<(), JobError> {
        run.progress("40 %").await?;
        let (job, _) = hapax.store().job(run.delivery_id()).await?.ok_or("gone")?;
        assert_eq!(job.progress.as_deref(), Some("40 %"));
        assert_eq!((run.kind(), run.queue(), run.attempt(), run.payload_version()), ("slow", "default", 1, 1));
        assert_eq!((Some(run.fence()), run.payload()), (job.fence, "null"));
        Ok(())
    }
    let hapax = memory();
    let id = enqueue_one(&hapax, &Slow).await;
    let host = host(&hapax, hapax.clone()).task(slow).start().await.expect("starts");
    wait_for(&hapax, id, JobState::Done).await;
    host.drain().await;
}

#[tokio::test]
async fn an_idle_host_looks_and_does_not_claim() {
    let faulty = Faults::default();
    let hapax = faulty.between(&memory());
    let host = host(&hapax, Ledger::default()).task(numbered).start().await.expect("starts");
    until("it has looked a few times", async || faulty.calls("peek") > 5).await;
    host.drain().await;
    assert_eq!(faulty.calls("claim"), 0);
}

#[tokio::test]
async fn what_is_wrong_with_a_host_is_said_at_its_start() {
    async fn again(_job: Numbered) {}
    let hapax = memory();
    let ledger = Ledger::default;
    let wrong = |text: &str, result: hapax::Result<hapax::HostHandle>| {
        let error = result.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(text), "{error}");
    };
    wrong("`numbered` has two tasks", host(&hapax, ledger()).task(numbered).task(again).start().await);
    wrong("`a` is 0", host(&hapax, ledger()).queue("a", |queue| queue.workers(0)).start().await);
    wrong("`a` is declared twice", host(&hapax, ledger()).queue("a", |q| q).queue("a", |q| q).start().await);
    wrong("queue is empty", host(&hapax, ledger()).queue("", |queue| queue).start().await);
    wrong("lease", host(&hapax, ledger()).lease(Duration::from_millis(1)).start().await);
    wrong("poll", host(&hapax, ledger()).poll(Duration::ZERO).start().await);
    wrong("control character", host(&hapax, ledger()).name("a\nb").start().await);
    assert!(hapax.store().instances().await.expect("answers").is_empty(), "nobody registered");
}

#[tokio::test]
async fn a_paused_queue_is_the_stores_matter() {
    let (hapax, ledger) = (memory(), Ledger::default());
    let queue = Name::new("queue", "default").expect("legal");
    hapax.store().pause(queue.clone(), "a look at the data".into()).await.expect("pauses");
    let id = enqueue_one(&hapax, &Numbered(1)).await;
    let faulty = Faults::default();
    let host = host(&faulty.between(&hapax), ledger).task(numbered).start().await.expect("starts");
    until("it has looked a few times", async || faulty.calls("peek") > 3).await;
    assert_eq!(look(&hapax, id).await.0.state, JobState::Ready);
    hapax.store().resume(queue).await.expect("resumes");
    wait_for(&hapax, id, JobState::Done).await;
    host.drain().await;
}

/// A store that takes finishes more slowly than tasks end is waited for, and claimed from again once it has caught up;
/// no poll is needed for that.
#[tokio::test]
async fn a_slow_store_is_waited_for() {
    let (faulty, ledger) = (Faults::default(), Ledger::default());
    let hapax = faulty.between(&memory());
    enqueue(hapax.store(), (0..1_600).map(|n| new(&Numbered(n))).collect()).await;
    faulty.cut("finish", Fault::Silence);
    let host = host(&hapax, ledger).poll(Duration::from_hours(1)).queue("default", |queue| queue.workers(100));
    let host = host.task(numbered).start().await.expect("starts");
    until("many wait for the store", async || host.stats().unconfirmed >= 1_000 && host.stats().active == 0).await;
    let claimed = host.stats().claimed;
    assert!(claimed < 1_600, "it claims no more meanwhile: {claimed}");
    faulty.mend("finish");
    until("all are done", async || host.stats().finished == 1_600).await;
    host.drain().await;
}
