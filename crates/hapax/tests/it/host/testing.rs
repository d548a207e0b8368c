//! The helpers for users' own tests, used as a user would.

use std::time::Duration;

use hapax::host::{FromRef, State};
use hapax::model::{RetryPolicy, Settled};
use hapax::testing::TestHapax;
use hapax::{Guarantee, Job, JobError, JobState, Run};
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Charge {
    order: u32,
}

impl Job for Charge {
    const KIND: &'static str = "charge";
    const RETRY: RetryPolicy = RetryPolicy { max_attempts: 3, base_ms: 60_000, cap_ms: 600_000, jitter_percent: 50 };

    fn once_key(&self) -> Option<String> {
        Some(format!("order-{}", self.order))
    }
}

/// What the world outside has seen: (delivery id, fence).
#[derive(Clone, Default)]
struct Bank(std::sync::Arc<std::sync::Mutex<Vec<(String, i64)>>>);

#[derive(Clone, Default)]
struct App {
    bank: Bank,
    down: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

impl FromRef<App> for Bank {
    fn from_ref(app: &App) -> Self {
        app.bank.clone()
    }
}

async fn charge(_job: Charge, State(bank): State<Bank>, State(app): State<App>, run: Run) -> Result<(), JobError> {
    if app.down.load(std::sync::atomic::Ordering::Relaxed) {
        return Err(JobError::retry("the bank is closed"));
    }
    bank.0.lock().expect("not poisoned").push((run.delivery_id().to_string(), run.fence().as_i64()));
    Ok(())
}

#[tokio::test]
async fn a_once_key_is_seen() {
    let test = TestHapax::new(App::default()).task(charge);
    let id = test.enqueue(&Charge { order: 7 }).await;
    assert_eq!(test.enqueue(&Charge { order: 7 }).await, id, "there already");
    assert_eq!(test.enqueued::<Charge>().await, [Charge { order: 7 }]);
    test.assert_enqueued(|job: &Charge| job.order == 7).await;
    assert_eq!(test.run_due().await, 1);
    assert_eq!(test.run_due().await, 0);
    assert!(test.enqueued::<Charge>().await.is_empty());
}

#[tokio::test]
#[should_panic(expected = "no such job of kind `charge`")]
async fn a_missing_job_is_said() {
    let test = TestHapax::new(App::default()).task(charge);
    test.enqueue(&Charge { order: 8 }).await;
    test.assert_enqueued(|job: &Charge| job.order == 7).await;
}

#[tokio::test]
async fn nothing_runs_before_its_time() {
    let test = TestHapax::new(App::default()).task(charge);
    test.enqueue_in(&Charge { order: 1 }, Duration::from_mins(1)).await;
    assert_eq!(test.run_due().await, 0);
    test.advance(Duration::from_secs(59));
    assert_eq!(test.run_due().await, 0);
    test.advance(Duration::from_secs(1));
    assert_eq!(test.run_due().await, 1);
}

#[tokio::test]
async fn draining_goes_through_all_attempts() {
    let app = App::default();
    app.down.store(true, std::sync::atomic::Ordering::Relaxed);
    let test = TestHapax::new(app).task(charge);
    let before = test.clock().now().wall;
    let id = test.enqueue(&Charge { order: 1 }).await;
    assert_eq!(test.drain().await, 3);
    assert_eq!(test.state_of(id).await, JobState::Parked);
    let passed = test.clock().now().wall.ms_since(before);
    assert!((180_000..180_100).contains(&passed), "60 s and 120 s, without jitter: {passed} ms");
}

/// An instance dies after the charge went out: the job runs again, with the same delivery id and a higher fence; the
/// dead one's late report is refused.
#[tokio::test]
async fn a_crash_repeats_the_run_and_not_its_identity() {
    let test = TestHapax::new(App::default()).task(charge);
    let id = test.enqueue(&Charge { order: 1 }).await;
    let dead = test.kill_instance().await;
    assert_eq!(dead.jobs(), [id]);
    assert_eq!(test.run_due().await, 0, "its lease has not passed");
    test.advance(TestHapax::<()>::LEASE);
    assert_eq!(test.run_due().await, 1);
    let job = test.job(id).await;
    assert_eq!((job.state, job.runs, job.takeovers), (JobState::Done, 2, 1));
    assert!(matches!(dead.finish_late().await.expect("answers")[..], [Settled::Refused { .. }]));
    assert_eq!(test.state_of(id).await, JobState::Done);
}

#[tokio::test]
async fn a_crash_before_the_start_leaves_no_trace() {
    let test = TestHapax::new(App::default()).task(charge);
    let id = test.enqueue(&Charge { order: 1 }).await;
    let dead = test.kill_instance_before_start().await;
    test.advance(TestHapax::<()>::LEASE);
    assert_eq!(test.run_due().await, 1);
    let job = test.job(id).await;
    assert_eq!((job.runs, job.takeovers), (1, 0));
    assert_eq!(dead.runs().len(), 1);
}

#[tokio::test]
async fn an_at_most_once_job_is_in_doubt_after_a_crash() {
    #[derive(Serialize, Deserialize)]
    struct Fax;
    impl Job for Fax {
        const KIND: &'static str = "fax";
        const GUARANTEE: Guarantee = Guarantee::AtMostOnce;
    }
    async fn fax(_job: Fax) {}
    let test = TestHapax::new(()).task(fax);
    let id = test.enqueue(&Fax).await;
    let _dead = test.kill_instance().await;
    test.advance(TestHapax::<()>::LEASE);
    assert_eq!(test.run_due().await, 0);
    assert_eq!(test.state_of(id).await, JobState::InDoubt);
}

#[tokio::test]
#[should_panic(expected = "one task for each kind")]
async fn two_tasks_for_a_kind_are_said() {
    async fn other(_job: Charge) {}
    let _test = TestHapax::new(App::default()).task(charge).task(other);
}
