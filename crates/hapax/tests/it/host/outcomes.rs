//! What a task returns, and what that makes of its job.

use std::time::Duration;

use hapax::host::Returned;
use hapax::model::RunOutcome;
use hapax::testing::TestHapax;
use hapax::{Guarantee, Job, JobError, JobState};
use serde::{Deserialize, Serialize};

/// How the run shall end.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum How {
    Ok,
    Retry,
    NotDone,
    RetryAfter(u64),
    Unknown,
    Snooze,
    Park,
    Cancel,
}

fn end(how: How) -> Result<(), JobError> {
    Err(match how {
        How::Ok => return Ok(()),
        How::Retry => std::io::Error::other("later").into(),
        How::NotDone => JobError::not_done("nothing was sent"),
        How::RetryAfter(secs) => JobError::retry_after(Duration::from_secs(secs), "slow down"),
        How::Unknown => JobError::unknown("timeout after sending"),
        How::Snooze => JobError::snooze(Duration::from_mins(1)),
        How::Park => JobError::park("no such account"),
        How::Cancel => JobError::cancel("already refunded"),
    })
}

#[derive(Serialize, Deserialize)]
struct Often(How);
impl Job for Often {
    const KIND: &'static str = "often";
}

#[derive(Serialize, Deserialize)]
struct AtMostOnce(How);
impl Job for AtMostOnce {
    const KIND: &'static str = "at-most-once";
    const GUARANTEE: Guarantee = Guarantee::AtMostOnce;
}

async fn often(job: Often) -> Result<(), JobError> {
    end(job.0)
}

async fn at_most_once(job: AtMostOnce) -> Result<(), JobError> {
    end(job.0)
}

#[tokio::test]
async fn each_error_says_what_happens() {
    use JobState::{Cancelled, Done, InDoubt, Parked, Scheduled};
    use RunOutcome as O;
    let cases = [
        (How::Ok, Done, Done, None),
        (How::Retry, Scheduled, InDoubt, Some((O::Failed, O::Unknown))),
        (How::NotDone, Scheduled, Scheduled, Some((O::Failed, O::Failed))),
        (How::RetryAfter(1), Scheduled, InDoubt, Some((O::Failed, O::Unknown))),
        (How::Unknown, Scheduled, InDoubt, Some((O::Unknown, O::Unknown))),
        (How::Snooze, Scheduled, Scheduled, Some((O::Snoozed, O::Snoozed))),
        (How::Park, Parked, Parked, Some((O::Failed, O::Failed))),
        (How::Cancel, Cancelled, Cancelled, Some((O::Cancelled, O::Cancelled))),
    ];
    let test = TestHapax::new(()).task(often).task(at_most_once);
    for (how, state, of_at_most_once, outcomes) in cases {
        let ids = (test.enqueue(&Often(how)).await, test.enqueue(&AtMostOnce(how)).await);
        assert_eq!(test.run_due().await, 2);
        assert_eq!(test.state_of(ids.0).await, state, "{how:?}");
        assert_eq!(test.state_of(ids.1).await, of_at_most_once, "{how:?}");
        let runs = async |id| test.hapax().store().job(id).await.expect("answers").expect("exists").1;
        let seen = (runs(ids.0).await.pop().map(|run| run.outcome), runs(ids.1).await.pop().map(|run| run.outcome));
        assert_eq!(seen, outcomes.map_or((None, None), |(a, b)| (Some(a), Some(b))), "{how:?}");
    }
}

/// RC-63: a delay that the receiver asked for is not shortened, neither by the policy nor by its jitter.
#[tokio::test]
async fn a_delay_that_was_asked_for_is_not_shortened() {
    let test = TestHapax::new(()).task(often);
    let long = test.enqueue(&Often(How::RetryAfter(7_200))).await;
    let short = test.enqueue(&Often(How::RetryAfter(0))).await;
    test.run_due().await;
    let now = test.clock().now().wall;
    assert_eq!(test.job(long).await.due_at, now.plus_ms(7_200_000));
    assert_eq!(test.job(short).await.due_at, now.plus_ms(1_000), "the policy's own delay is longer");
}

#[tokio::test]
async fn a_returned_value_is_kept_as_json() {
    #[derive(Serialize, Deserialize)]
    struct Sum(Vec<u32>);
    impl Job for Sum {
        const KIND: &'static str = "sum";
    }
    async fn sum(job: Sum) -> Result<Returned<u32>, JobError> {
        Ok(Returned(job.0.iter().sum()))
    }
    let test = TestHapax::new(()).task(sum);
    let id = test.enqueue(&Sum(vec![1, 2, 3])).await;
    test.run_due().await;
    assert_eq!(test.job(id).await.result.as_deref(), Some("6"));
}

/// A payload that no longer fits parks alone; one that a newer program wrote waits for that program.
#[tokio::test]
async fn poison_payloads_park_alone() {
    #[derive(Serialize, Deserialize)]
    struct Strict {
        n: u8,
    }
    impl Job for Strict {
        const KIND: &'static str = "strict";
    }
    async fn strict(job: Strict) {
        assert!(job.n < 100);
    }
    let test = TestHapax::new(()).task(strict);
    let payload = |text: &str| hapax::Payload::new(text).expect("JSON");
    let mut jobs: Vec<_> = (0..3).map(|n| super::new(&Strict { n })).collect();
    jobs[1].payload = payload(r#"{"n": "many"}"#);
    jobs[2].payload = payload(r#"{"m": 1}"#);
    jobs[2].payload_version = 2;
    jobs.push(super::new(&Strict { n: 3 }));
    let ids = super::enqueue(test.hapax().store(), jobs).await;
    test.run_due().await;
    assert_eq!(test.state_of(ids[0]).await, JobState::Done);
    let poison = test.job(ids[1]).await;
    assert_eq!(poison.state, JobState::Parked);
    let reason = poison.reason.expect("a reason");
    assert!(reason.contains("`strict`") && reason.contains("invalid type"), "{reason}");
    assert_eq!(test.state_of(ids[2]).await, JobState::Scheduled);
    assert!(test.job(ids[2]).await.reason.expect("a reason").contains("version 2 is newer"));
    assert_eq!(test.state_of(ids[3]).await, JobState::Done);
}
