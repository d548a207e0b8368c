//! What is given back untouched, and how a running job ends that was asked to stop.

use super::Harness;
use super::world::{BEAT_MS, World, again, at_most_once, counted, done, job, keyed, run_of, wish};
use crate::id::ClaimId;
use crate::model::{
    ClaimRequest, End, EnqueueAnswer, Heartbeat, JobState, NewJob, Release, RunOutcome, RunRef, Settled,
};

/// What was not begun goes back as if it had never been claimed.
pub async fn a_released_run_goes_back_untouched(h: &dyn Harness) {
    let w = World::new(h);
    let new = job();
    w.put(std::slice::from_ref(&new)).await;
    let before = w.look(new.id).await;
    let by = w.live().await;
    let run = run_of(&w.take(by).await[0]);
    w.pass(500);
    assert_eq!(w.release(by, Release::Runs(vec![run])).await.expect("answered"), [new.id]);
    let after = w.look(new.id).await;
    assert_eq!(after, crate::model::JobRecord { fence: Some(run.fence), ..before });
    assert_eq!(w.runs(new.id).await, []);
}

/// An unknown answer of a claim is settled by giving the claim back: all of it that has not begun, and nothing else.
pub async fn a_claim_is_given_back_as_a_whole(h: &dyn Harness) {
    let w = World::new(h);
    w.put(&[job(), job(), job(), job()]).await;
    let by = w.live().await;
    let lost = ClaimRequest { queues: vec![(super::world::name("q"), 3)], ..wish(by) };
    let mut runs: Vec<RunRef> = w.claim(lost.clone()).await.expect("claimed").jobs.iter().map(run_of).collect();
    let other = w.take(by).await.remove(0);
    let started = runs.remove(0);
    w.start(vec![started]).await.expect("started");
    let mut released = w.release(by, Release::Claim(lost.claim)).await.expect("answered");
    released.sort();
    let mut wanted: Vec<_> = runs.iter().map(|run| run.job).collect();
    wanted.sort();
    assert_eq!(released, wanted);
    assert_eq!(w.release(by, Release::Claim(lost.claim)).await.expect("answered"), [], "again is a no-op");
    assert_eq!(w.release(by, Release::Claim(ClaimId::new())).await.expect("answered"), [], "an unknown one too");
    assert_eq!(w.state(started.job).await, JobState::Running);
    assert_eq!(w.state(other.id).await, JobState::Running);
    assert_eq!(w.totals().await.writes_refused, 0, "giving back what one does not have is no stale write");
}

/// A claim belongs to its instance: another cannot give it back.
pub async fn another_instance_cannot_give_a_claim_back(h: &dyn Harness) {
    let w = World::new(h);
    w.put(&[job()]).await;
    let (by, other) = (w.live().await, w.live().await);
    let request = wish(by);
    w.claim(request.clone()).await.expect("claimed");
    assert_eq!(w.release(other, Release::Claim(request.claim)).await.expect("answered"), []);
    assert_eq!(w.release(by, Release::Claim(request.claim)).await.expect("answered").len(), 1);
}

/// A run that is named twice is given back once; the second time is too late.
pub async fn a_run_named_twice_is_released_once(h: &dyn Harness) {
    let w = World::new(h);
    let (by, run) = w.run(job()).await;
    assert_eq!(w.release(by, Release::Runs(vec![run, run])).await.expect("answered"), [run.job]);
    assert_eq!(w.look(run.job).await.refused, 1);
}

/// The heartbeat's list finds what the holder does not know of, and it can be given back.
pub async fn a_heartbeat_finds_what_a_lost_answer_left(h: &dyn Harness) {
    let w = World::new(h);
    w.put(&[job(), job()]).await;
    let by = w.live().await;
    let request = wish(by);
    w.claim(request.clone()).await.expect("claimed");
    let Heartbeat::Alive { owned } = w.heartbeat(by, Vec::new()).await.expect("answered") else { panic!("live") };
    assert_eq!(owned.len(), 2);
    assert!(owned.iter().all(|run| run.claim == request.claim && !run.cancel_requested));
    let runs = owned.iter().map(|owned| owned.run).collect();
    assert_eq!(w.release(by, Release::Runs(runs)).await.expect("answered").len(), 2);
    assert_eq!(w.heartbeat(by, Vec::new()).await.expect("answered"), Heartbeat::Alive { owned: Vec::new() });
}

/// DESIGN §5a: asking a running job to stop is a wish; its holder is told, and a current `done` still wins.
pub async fn a_current_done_wins_over_a_cancel(h: &dyn Harness) {
    let w = World::new(h);
    let (by, run) = w.run_started(job()).await;
    for _ in 0..2 {
        assert_eq!(w.cancel(run.job, "changed my mind".to_owned()).await.expect("asked"), JobState::Running);
        assert!(w.look(run.job).await.cancel_requested);
    }
    let Heartbeat::Alive { owned } = w.heartbeat(by, Vec::new()).await.expect("answered") else { panic!("live") };
    assert!(owned[0].cancel_requested);
    assert_eq!(w.end(run, done()).await, counted(JobState::Done));
    assert!(!w.look(run.job).await.cancel_requested);
}

/// DESIGN §5a: every other end of a run that was asked to stop is cancelled, and its once key is free.
pub async fn every_other_end_of_a_cancelled_run_is_cancelled(h: &dyn Harness) {
    let w = World::new(h);
    let ends = [
        again(RunOutcome::Failed, 0),
        again(RunOutcome::Failed, 1_000),
        again(RunOutcome::Unknown, 0),
        again(RunOutcome::Snoozed, 1_000),
        End::Park { reason: "given up".to_owned() },
        End::Cancelled { reason: "stopped".to_owned() },
    ];
    for end in ends {
        let (_, run) = w.run_started(keyed("a")).await;
        w.cancel(run.job, "test".to_owned()).await.expect("asked");
        assert_eq!(w.end(run, end.clone()).await, counted(JobState::Cancelled), "{end:?}");
        let ended = w.look(run.job).await;
        assert_eq!((ended.cancel_requested, ended.purge_at.is_some()), (false, true));
    }
    assert!(matches!(w.offer(&keyed("a")).await, EnqueueAnswer::Enqueued { .. }), "the key is free");
}

/// A run that was asked to stop is not brought back by a release, a takeover or its deadline.
pub async fn a_cancelled_run_never_comes_back(h: &dyn Harness) {
    let w = World::new(h);
    let (by, released) = w.run(job()).await;
    let (_, unstarted) = w.run(job()).await;
    let (_, started) = w.run_started(job()).await;
    for run in [released, unstarted, started] {
        w.cancel(run.job, "test".to_owned()).await.expect("asked");
    }
    w.release(by, Release::Runs(vec![released])).await.expect("answered");
    w.take_over().await;
    let (late, limit) = (w.reaper_after(BEAT_MS).await, 1_000);
    let short = || NewJob { run_timeout_ms: limit, ..job() };
    w.put(&[short(), short()]).await;
    let claimed = w.take(late).await;
    let (unseen, seen) = (run_of(&claimed[0]), run_of(&claimed[1]));
    w.start(vec![seen]).await.expect("started");
    for run in [unseen, seen] {
        w.cancel(run.job, "test".to_owned()).await.expect("asked");
    }
    w.pass(limit);
    w.reap(late, 10).await.expect("live");
    for run in [released, unstarted, started, unseen, seen] {
        assert_eq!(w.state(run.job).await, JobState::Cancelled);
    }
}

/// Of an at-most-once job that was asked to stop, an unclear end stays in doubt: a wish tells nothing of the effect.
pub async fn a_cancel_does_not_settle_a_doubt(h: &dyn Harness) {
    let w = World::new(h);
    let (_, unclear) = w.run_started(at_most_once()).await;
    let (_, lost) = w.run_started(at_most_once()).await;
    for run in [unclear, lost] {
        w.cancel(run.job, "test".to_owned()).await.expect("asked");
    }
    assert_eq!(w.end(unclear, again(RunOutcome::Unknown, 0)).await, counted(JobState::InDoubt));
    assert_eq!(w.take_over().await.1.taken_back, [(lost.job, JobState::InDoubt)]);
    assert!(matches!(w.end(lost, done()).await, Settled::Refused { .. }));
}
