//! Answers that get lost: no job is lost by it, and none runs twice without cause.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hapax::host::State;
use hapax::model::JobFilter;
use hapax::testing::{Fault, Faults};
use hapax::{Guarantee, Hapax, Job, JobState};
use serde::{Deserialize, Serialize};

use super::{enqueue, enqueue_one, host, look, memory, new, until, wait_for};

#[derive(Clone, Default)]
struct Ran(Arc<AtomicU32>);

#[derive(Serialize, Deserialize)]
struct Counts;
impl Job for Counts {
    const KIND: &'static str = "counts";
}

async fn counts(_job: Counts, State(ran): State<Ran>) {
    ran.0.fetch_add(1, Ordering::Relaxed);
}

#[derive(Serialize, Deserialize)]
struct Once;
impl Job for Once {
    const KIND: &'static str = "once";
    const GUARANTEE: Guarantee = Guarantee::AtMostOnce;
}

async fn once(_job: Once, State(ran): State<Ran>) {
    ran.0.fetch_add(1, Ordering::Relaxed);
}

fn faulty() -> (Faults, Hapax) {
    let faults = Faults::default();
    (faults.clone(), faults.between(&memory()))
}

#[tokio::test]
async fn a_lost_claim_is_given_back_and_claimed_again() {
    for fault in [Fault::AnswerLost, Fault::RequestLost, Fault::Unreachable] {
        let ((faulty, hapax), ran) = (faulty(), Ran::default());
        let ids = enqueue(hapax.store(), (0..20).map(|_| new(&Counts)).collect()).await;
        faulty.once("claim", fault);
        faulty.once("release", Fault::Unreachable);
        let host = host(&hapax, ran.clone()).task(counts).start().await.expect("starts");
        for id in ids {
            let (job, _) = wait_for(&hapax, id, JobState::Done).await;
            assert_eq!((job.runs, job.unstarted_takeovers), (1, 0), "{fault:?}");
        }
        assert_eq!(ran.0.load(Ordering::Relaxed), 20, "{fault:?}: each ran once");
        host.drain().await;
    }
}

#[tokio::test]
async fn a_lost_finish_is_settled_by_the_ledger() {
    for fault in [Fault::AnswerLost, Fault::RequestLost, Fault::Unreachable] {
        let ((faulty, hapax), ran) = (faulty(), Ran::default());
        faulty.once("finish", fault);
        faulty.once("finish", fault);
        faulty.once("verdict", Fault::Unreachable);
        let ids = enqueue(hapax.store(), (0..20).map(|_| new(&Counts)).collect()).await;
        let host = host(&hapax, ran.clone()).task(counts).start().await.expect("starts");
        for id in ids {
            let (job, _) = wait_for(&hapax, id, JobState::Done).await;
            assert_eq!((job.runs, job.refused), (1, 0), "{fault:?}: nothing was simply repeated");
        }
        until("all are confirmed", async || host.stats().unconfirmed == 0).await;
        assert_eq!((ran.0.load(Ordering::Relaxed), host.stats().finished), (20, 20), "{fault:?}");
        host.drain().await;
    }
}

/// A finish that cannot be settled keeps its run: were it given back as untouched, the job would run again.
#[tokio::test]
async fn a_run_is_kept_until_its_finish_is_settled() {
    let ((faulty, hapax), ran) = (faulty(), Ran::default());
    let id = enqueue_one(&hapax, &Once).await;
    faulty.cut("finish", Fault::RequestLost);
    faulty.cut("verdict", Fault::Unreachable);
    let host = host(&hapax, ran.clone()).task(once).start().await.expect("starts");
    until("its finish was tried", async || faulty.calls("verdict") > 1).await;
    for _ in 0..3 {
        host.beat().await;
    }
    assert_eq!(look(&hapax, id).await.0.state, JobState::Running, "nobody else may have it");
    faulty.mend("verdict");
    faulty.mend("finish");
    wait_for(&hapax, id, JobState::Done).await;
    assert_eq!(ran.0.load(Ordering::Relaxed), 1);
    host.drain().await;
}

#[tokio::test]
async fn no_answer_to_a_start_means_no_run() {
    let ((faulty, hapax), ran) = (faulty(), Ran::default());
    let id = enqueue_one(&hapax, &Once).await;
    faulty.cut("start", Fault::AnswerLost);
    let host = host(&hapax, ran.clone()).task(once).start().await.expect("starts");
    until("it was given back", async || faulty.calls("release") > 0).await;
    assert_eq!(ran.0.load(Ordering::Relaxed), 0);
    faulty.mend("start");
    let (job, _) = wait_for(&hapax, id, JobState::Done).await;
    assert_eq!((job.runs, ran.0.load(Ordering::Relaxed)), (1, 1));
    host.drain().await;
}

/// Invariant 14: a store that cannot be reached is neither success nor an end. Nothing is lost, and nobody has to start
/// anything again.
#[tokio::test]
async fn a_store_that_was_away_costs_nothing() {
    let ((faulty, hapax), ran) = (faulty(), Ran::default());
    let host = host(&hapax, ran.clone()).task(counts).start().await.expect("starts");
    for verb in ["peek", "claim", "finish", "release", "verdict", "reap", "prune"] {
        faulty.cut(verb, Fault::Unreachable);
    }
    let ids = enqueue(hapax.store(), (0..20).map(|_| new(&Counts)).collect()).await;
    until("it has tried", async || faulty.calls("peek") > 2).await;
    for verb in ["peek", "claim", "finish", "release", "verdict", "reap", "prune"] {
        faulty.mend(verb);
    }
    for id in &ids {
        wait_for(&hapax, *id, JobState::Done).await;
    }
    assert_eq!(ran.0.load(Ordering::Relaxed), 20);
    let filter = JobFilter { state: Some(JobState::Done), limit: 100, ..JobFilter::default() };
    assert_eq!(hapax.store().list(filter).await.expect("answers").len(), ids.len());
    host.drain().await;
}

#[tokio::test]
async fn a_store_that_is_away_at_the_start_is_said() {
    let ((faulty, hapax), ran) = (faulty(), Ran::default());
    faulty.once("register", Fault::Unreachable);
    let error = host(&hapax, ran).task(counts).start().await.expect_err("cannot register");
    assert_eq!(error.kind(), hapax::ErrorKind::Unreachable);
}
