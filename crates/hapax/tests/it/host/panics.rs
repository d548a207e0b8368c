//! RC-61: a panic in a task is an outcome; the worker, the lease and the other jobs do not notice.

use hapax::model::{RetryPolicy, RunOutcome};
use hapax::{Guarantee, Job, JobError, JobState};
use serde::{Deserialize, Serialize};

use super::{enqueue_one, host, look, memory, wait_for};

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Panics {
    Never,
    Plainly,
    OnUnwrap,
    AfterAwait,
    InSpawnedTask,
    WhenDropped,
}

impl Job for Panics {
    const KIND: &'static str = "panics";
    const RETRY: RetryPolicy = RetryPolicy::NEVER;
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("went off while it was dropped");
    }
}

async fn work(job: Panics) -> Result<(), JobError> {
    match job {
        Panics::Never => {}
        Panics::Plainly => panic!("plainly, {} times", 1),
        Panics::OnUnwrap => {
            let nothing: Option<&str> = "".split(' ').nth(7);
            nothing.unwrap();
        }
        Panics::AfterAwait => {
            tokio::task::yield_now().await;
            panic!("after an await");
        }
        Panics::InSpawnedTask => tokio::spawn(async { panic!("in a spawned task") }).await?,
        Panics::WhenDropped => {
            let _bomb = Bomb;
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_panic_fails_its_run_and_nothing_else() {
    let cases = [
        (Panics::Plainly, "plainly, 1 times"),
        (Panics::OnUnwrap, "called `Option::unwrap()` on a `None` value"),
        (Panics::AfterAwait, "after an await"),
        (Panics::InSpawnedTask, "in a spawned task"),
        (Panics::WhenDropped, "went off while it was dropped"),
    ];
    for (panics, text) in cases {
        let hapax = memory();
        let mut ids = Vec::new();
        for n in 0..5 {
            ids.push(enqueue_one(&hapax, if n == 1 { &panics } else { &Panics::Never }).await);
        }
        let host =
            host(&hapax, ()).queue("default", |queue| queue.workers(1)).task(work).start().await.expect("starts");
        for (n, id) in ids.iter().enumerate() {
            wait_for(&hapax, *id, if n == 1 { JobState::Parked } else { JobState::Done }).await;
        }
        let (job, runs) = look(&hapax, ids[1]).await;
        assert_eq!(runs.len(), 1);
        assert_eq!(runs[0].outcome, RunOutcome::Failed);
        let reason = job.reason.expect("the text of the panic");
        assert!(reason.contains(text), "{panics:?}: {reason}");
        assert!(job.claim.is_none(), "its lease is free at once");
        host.drain().await;
    }
}

#[tokio::test]
async fn a_panic_follows_the_retry_policy() {
    #[derive(Serialize, Deserialize)]
    struct Twice;
    impl Job for Twice {
        const KIND: &'static str = "twice";
        const RETRY: RetryPolicy = RetryPolicy { max_attempts: 3, base_ms: 1, cap_ms: 1, jitter_percent: 0 };
    }
    async fn work(_job: Twice, run: hapax::Run) {
        assert!(run.attempt() > 2, "attempt {}", run.attempt());
    }
    let hapax = memory();
    let id = enqueue_one(&hapax, &Twice).await;
    let host = host(&hapax, ()).task(work).start().await.expect("starts");
    let (job, runs) = wait_for(&hapax, id, JobState::Done).await;
    assert_eq!((job.runs, job.failures, runs.len()), (3, 2, 2));
    host.drain().await;
}

#[tokio::test]
async fn a_panic_leaves_an_at_most_once_job_in_doubt() {
    #[derive(Serialize, Deserialize)]
    struct Once;
    impl Job for Once {
        const KIND: &'static str = "once";
        const GUARANTEE: Guarantee = Guarantee::AtMostOnce;
    }
    async fn work(_job: Once) {
        panic!("half-way");
    }
    let hapax = memory();
    let id = enqueue_one(&hapax, &Once).await;
    let host = host(&hapax, ()).task(work).start().await.expect("starts");
    let (_, runs) = wait_for(&hapax, id, JobState::InDoubt).await;
    assert_eq!(runs[0].outcome, RunOutcome::Unknown);
    host.drain().await;
}
