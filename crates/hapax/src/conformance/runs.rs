//! What a run may write, and how it ends by its own finish.

use super::Harness;
use super::world::{KEEP_MS, RUN_MS, World, again, at_most_once, counted, done, every_end, job, keyed, run_of};
use crate::id::{Fence, JobId, TEXT_BYTES_MAX, kept_text};
use crate::model::job::RUNS_KEPT_MAX;
use crate::model::{
    End, Finish, Guarantee, JobState, KeyState, NewJob, RetryPolicy, RunOutcome, RunRef, Settled, Verdict,
};

/// A claim says who runs the job, since when, and until when; its start is not known yet.
pub async fn a_claim_says_who_runs_the_job(h: &dyn Harness) {
    let w = World::new(h);
    let new = job();
    let (by, run) = w.run(new.clone()).await;
    let (running, now) = (w.look(new.id).await, w.now());
    let claim = running.claim.expect("claimed");
    assert_eq!((running.state, running.fence), (JobState::Running, Some(run.fence)));
    assert_eq!((claim.instance, claim.at, claim.started_at), (by, now.wall, None));
    assert_eq!(claim.deadline, now.lease.plus_ms(RUN_MS));
}

/// The start is recorded once, and the time limit of the run counts from it.
pub async fn a_start_is_recorded_once(h: &dyn Harness) {
    let w = World::new(h);
    let (_, run) = w.run(job()).await;
    w.pass(7);
    let first = w.now();
    for _ in 0..2 {
        assert_eq!(w.start(vec![run, run]).await.expect("answered"), [counted(JobState::Running); 2]);
        w.pass(7);
    }
    let claim = w.look(run.job).await.claim.expect("claimed");
    assert_eq!(claim.started_at, Some(first.wall));
    assert_eq!(claim.deadline, first.lease.plus_ms(RUN_MS));
}

/// A run that took effect leaves its result, and the job is final.
pub async fn done_is_recorded_with_its_result(h: &dyn Harness) {
    let w = World::new(h);
    let (_, run) = w.run_started(job()).await;
    w.pass(1_234);
    let end = End::Done { result: Some("\"42 mails\"".to_owned()) };
    assert_eq!(w.end(run, end).await, counted(JobState::Done));
    let (end, now) = (w.look(run.job).await, w.now().wall);
    assert_eq!((end.state, end.claim, end.runs, end.failures), (JobState::Done, None, 1, 0));
    assert_eq!((end.fence, end.ended_fence), (Some(run.fence), Some(run.fence)));
    assert_eq!((end.result.as_deref(), end.reason), (Some("\"42 mails\""), None));
    assert_eq!((end.finished_at, end.purge_at), (Some(now), Some(now.plus_ms(KEEP_MS))));
    assert_eq!(w.runs(run.job).await, [], "the run that took effect stands in the job itself");
}

/// Law 5: what ended stays as it is, whatever the same run or an operator asks of it afterwards.
pub async fn done_is_final(h: &dyn Harness) {
    let w = World::new(h);
    let (by, run) = w.run_started(job()).await;
    w.end(run, done()).await;
    for end in every_end() {
        let settled = w.run_fenced_off("finish", run, w.end(run, end)).await;
        assert_eq!(settled, Settled::Refused { state: Some(JobState::Done), current: Some(run.fence) });
    }
    let before = w.snapshot().await.jobs;
    w.heartbeat(by, vec![run]).await.expect("live");
    w.take_over().await;
    for refused in [w.cancel(run.job, "no".into()).await, w.retry(run.job).await, w.park(run.job, "no".into()).await] {
        super::world::refusal(refused);
    }
    assert_eq!(w.snapshot().await.jobs, before);
}

/// A failed run goes back under the same id, is due after its delay, and leaves a trace.
pub async fn a_failed_run_comes_back_after_its_delay(h: &dyn Harness) {
    let w = World::new(h);
    let (by, run) = w.run_started(job()).await;
    let (started, ()) = (w.now().wall, w.pass(500));
    assert_eq!(w.end(run, again(RunOutcome::Failed, 2_000)).await, counted(JobState::Scheduled));
    let (waits, now) = (w.look(run.job).await, w.now().wall);
    assert_eq!((waits.due_at, waits.finished_at, waits.purge_at), (now.plus_ms(2_000), None, None));
    assert_eq!((waits.runs, waits.failures, waits.ended_fence), (1, 1, Some(run.fence)));
    assert_eq!(waits.reason.as_deref(), Some("failed on purpose"));
    let trace = w.runs(run.job).await.remove(0);
    assert_eq!((trace.number, trace.fence, trace.instance), (1, run.fence, by));
    assert_eq!((trace.started_at, trace.ended_at, trace.outcome), (Some(started), now, RunOutcome::Failed));
    assert_eq!(trace.detail.as_deref(), Some("failed on purpose"));
    w.pass(1_999);
    assert_eq!(w.take(by).await, [], "not before its delay has passed");
    w.pass(1);
    assert_eq!(w.take(by).await[0].id, run.job);
}

/// Without a delay it is ready at once; a later success clears the error.
pub async fn a_failed_run_without_delay_is_ready_at_once(h: &dyn Harness) {
    let w = World::new(h);
    let (by, run) = w.run(job()).await;
    assert_eq!(w.end(run, again(RunOutcome::Failed, 0)).await, counted(JobState::Ready));
    let next = w.take(by).await.remove(0);
    assert_eq!((next.runs, next.failures, next.reason.as_deref()), (1, 1, Some("failed on purpose")));
    assert_eq!(w.end(run_of(&next), done()).await, counted(JobState::Done));
    assert_eq!(w.look(run.job).await.reason, None);
    assert_eq!(w.look(run.job).await.runs, 2);
}

/// Bounded attempts: the last failure that the policy allows parks the job; none is lost, none is added.
pub async fn the_last_attempt_parks(h: &dyn Harness) {
    let w = World::new(h);
    let retry = RetryPolicy { max_attempts: 3, ..RetryPolicy::default() };
    let new = NewJob { retry, ..keyed("a") };
    let (by, mut run) = w.run(new.clone()).await;
    let outcomes = [RunOutcome::Failed, RunOutcome::TimedOut, RunOutcome::Unknown];
    for (attempt, outcome) in (1..).zip(outcomes) {
        let wanted = if attempt == 3 { JobState::Parked } else { JobState::Ready };
        assert_eq!(w.end(run, again(outcome, 0)).await, counted(wanted), "attempt {attempt}");
        if let Some(next) = w.take(by).await.first() {
            run = run_of(next);
        }
    }
    let parked = w.look(new.id).await;
    assert_eq!((parked.failures, parked.finished_at, parked.purge_at), (3, Some(w.now().wall), None));
    assert_eq!(w.runs(new.id).await.iter().map(|run| run.outcome).collect::<Vec<_>>(), outcomes);
    let key = w.key(&new.once.expect("keyed").key).await.expect("remembered");
    assert_eq!(key.state, KeyState::Held, "a park holds the once key");
}

/// A policy of one attempt allows no second one.
pub async fn a_policy_of_one_attempt_parks_at_once(h: &dyn Harness) {
    let w = World::new(h);
    let (_, run) = w.run(NewJob { retry: RetryPolicy::NEVER, ..job() }).await;
    assert_eq!(w.end(run, again(RunOutcome::Failed, 0)).await, counted(JobState::Parked));
}

/// A snooze is no failure, however often it is said.
pub async fn a_snooze_is_no_failure(h: &dyn Harness) {
    let w = World::new(h);
    let (by, mut run) = w.run(NewJob { retry: RetryPolicy::NEVER, ..at_most_once() }).await;
    for _ in 0..5 {
        assert_eq!(w.end(run, again(RunOutcome::Snoozed, 100)).await, counted(JobState::Scheduled));
        w.pass(100);
        run = run_of(&w.take(by).await[0]);
    }
    let waits = w.look(run.job).await;
    assert_eq!((waits.runs, waits.failures, waits.reason), (5, 0, None));
}

/// In doubt is said, never hidden: an unclear end repeats a job whose target can tell repeats, and only such a job.
pub async fn an_unclear_end_is_in_doubt_only_at_most_once(h: &dyn Harness) {
    let w = World::new(h);
    for guarantee in Guarantee::ALL {
        for outcome in [RunOutcome::Unknown, RunOutcome::TimedOut, RunOutcome::Failed] {
            let (_, run) = w.run_started(NewJob { guarantee, ..job() }).await;
            let doubt = guarantee == Guarantee::AtMostOnce && outcome != RunOutcome::Failed;
            let wanted = if doubt { JobState::InDoubt } else { JobState::Scheduled };
            assert_eq!(w.end(run, again(outcome, 1_000)).await, counted(wanted), "{guarantee:?} {outcome:?}");
            assert_eq!(w.look(run.job).await.finished_at.is_some(), doubt);
            assert_eq!(w.runs(run.job).await[0].outcome, outcome);
        }
    }
}

/// The task itself may give up or stop; a stopped job's once key is free.
pub async fn a_task_may_park_or_cancel_its_job(h: &dyn Harness) {
    let w = World::new(h);
    let (_, parks) = w.run(job()).await;
    let (_, stops) = w.run(job()).await;
    let why = |text: &str| text.to_owned();
    assert_eq!(w.end(parks, End::Park { reason: why("no such order") }).await, counted(JobState::Parked));
    assert_eq!(w.end(stops, End::Cancelled { reason: why("order is gone") }).await, counted(JobState::Cancelled));
    let (parked, stopped) = (w.look(parks.job).await, w.look(stops.job).await);
    assert_eq!(parked.reason.as_deref(), Some("no such order"));
    assert_eq!(
        (stopped.reason.as_deref(), stopped.purge_at),
        (Some("order is gone"), Some(w.now().wall.plus_ms(KEEP_MS)))
    );
    assert_eq!(w.runs(parks.job).await[0].outcome, RunOutcome::Failed);
    assert_eq!(w.runs(stops.job).await[0].outcome, RunOutcome::Cancelled);
}

/// RC-63: a delay at the end of time stays there, and one of a millisecond is not cut to nothing.
pub async fn delays_reach_the_end_of_time_and_no_further(h: &dyn Harness) {
    let w = World::new(h);
    for delay_ms in [1, 999, u64::from(u32::MAX), i64::MAX.unsigned_abs(), u64::MAX] {
        let (by, run) = w.run(job()).await;
        assert_eq!(w.end(run, again(RunOutcome::Failed, delay_ms)).await, counted(JobState::Scheduled));
        assert_eq!(w.look(run.job).await.due_at, w.now().wall.plus_ms(delay_ms));
        assert_eq!(w.take(by).await, [], "{delay_ms} ms are not over at once");
    }
}

/// RC-55: results, errors, reasons and progress close the job, whatever their text is, once the client has cleaned it.
pub async fn any_text_closes_a_job(h: &dyn Harness) {
    let w = World::new(h);
    let long = "ö".repeat(TEXT_BYTES_MAX);
    for text in
        ["", "NUL \0 inside", "\u{FFFF}\u{10FFFF}\u{FEFF}", "'; drop table jobs; --", "\r\n\t\u{1}\u{7f}", &long]
    {
        let kept = kept_text(text);
        let ends = [
            End::Done { result: Some(kept.clone()) },
            End::Again { outcome: RunOutcome::Failed, delay_ms: 1_000, detail: kept.clone() },
            End::Park { reason: kept.clone() },
            End::Cancelled { reason: kept.clone() },
        ];
        for end in ends {
            let (_, run) = w.run(job()).await;
            assert_eq!(w.progress(run, kept.clone()).await.expect("answered"), counted(JobState::Running));
            assert_eq!(w.look(run.job).await.progress.as_ref(), Some(&kept));
            assert!(w.end(run, end.clone()).await.counted());
            let ended = w.look(run.job).await;
            let text = if ended.state == JobState::Done { ended.result } else { ended.reason };
            assert_eq!(text.as_ref(), Some(&kept), "{end:?}");
        }
    }
}

/// The newest ended runs are kept with a job, oldest first, and every run is counted.
pub async fn the_newest_runs_are_kept(h: &dyn Harness) {
    let w = World::new(h);
    let retry = RetryPolicy { max_attempts: 1_000, ..RetryPolicy::default() };
    let (by, mut run) = w.run(NewJob { retry, ..job() }).await;
    for _ in 0..RUNS_KEPT_MAX + 3 {
        w.end(run, again(RunOutcome::Failed, 0)).await;
        run = run_of(&w.take(by).await[0]);
    }
    let numbers: Vec<u32> = w.runs(run.job).await.iter().map(|run| run.number).collect();
    assert_eq!(numbers, (4..=RUNS_KEPT_MAX + 3).collect::<Vec<_>>());
    assert_eq!(w.look(run.job).await.failures, RUNS_KEPT_MAX + 3);
}

/// Law 13: a call of many finishes judges each for itself; a stale or repeated one spoils none of the others.
pub async fn each_finish_of_a_call_is_judged_for_itself(h: &dyn Harness) {
    let w = World::new(h);
    w.put(&[job(), job(), job()]).await;
    let by = w.live().await;
    let runs: Vec<RunRef> = w.take(by).await.iter().map(run_of).collect();
    let finish = |run: RunRef, end: End| Finish { run, end };
    let unknown = RunRef { job: JobId::new(), fence: runs[0].fence };
    let stale = RunRef { fence: Fence::from_i64(runs[1].fence.as_i64() - 1), ..runs[1] };
    let settled = w
        .finish(vec![
            finish(unknown, done()),
            finish(runs[0], done()),
            finish(stale, done()),
            finish(runs[1], again(RunOutcome::Failed, 1_000)),
            finish(runs[0], again(RunOutcome::Failed, 1_000)),
            finish(runs[2], done()),
        ])
        .await
        .expect("answered");
    let refused = |state, current| Settled::Refused { state, current };
    assert_eq!(settled[0], refused(None, None));
    assert_eq!(settled[1], counted(JobState::Done));
    assert_eq!(settled[2], refused(Some(JobState::Running), Some(runs[1].fence)));
    assert_eq!(settled[3], counted(JobState::Scheduled));
    assert_eq!(settled[4], refused(Some(JobState::Done), Some(runs[0].fence)));
    assert_eq!(settled[5], counted(JobState::Done));
    assert_eq!(w.totals().await.writes_refused, 3);
}

/// Progress is kept while the run lasts, and the next run begins without it.
pub async fn progress_belongs_to_its_run(h: &dyn Harness) {
    let w = World::new(h);
    let (by, run) = w.run(job()).await;
    for text in ["10 %", "10 %", "90 %"] {
        assert_eq!(w.progress(run, text.to_owned()).await.expect("answered"), counted(JobState::Running));
        assert_eq!(w.look(run.job).await.progress.as_deref(), Some(text));
    }
    w.end(run, again(RunOutcome::Failed, 0)).await;
    assert_eq!(w.take(by).await[0].progress, None);
}

/// A lost answer is settled by the ledger: current, ended under this very fence, or not mine any more.
pub async fn the_ledger_tells_what_became_of_a_run(h: &dyn Harness) {
    let w = World::new(h);
    let verdict = async |run: RunRef| w.verdict(vec![run]).await.expect("answered")[0];
    let (by, first) = w.run_started(job()).await;
    assert_eq!(verdict(first).await, Verdict::Current);
    w.end(first, again(RunOutcome::Failed, 0)).await;
    assert_eq!(verdict(first).await, Verdict::Ended { state: JobState::Ready });
    let second = run_of(&w.take(by).await[0]);
    assert_eq!(verdict(first).await, Verdict::Ended { state: JobState::Running });
    assert_eq!(verdict(second).await, Verdict::Current);
    w.take_over().await;
    assert_eq!(verdict(second).await, Verdict::NotMine, "it was taken back");
    let unknown = RunRef { job: JobId::new(), ..first };
    let both = w.verdict(vec![unknown, first]).await.expect("answered");
    assert_eq!(both, [Verdict::NotMine, Verdict::Ended { state: JobState::Ready }]);
}

/// Late but unchallenged: a run past its lease and its time limit that nobody took back is still the current one.
pub async fn a_late_run_that_nobody_replaced_may_end(h: &dyn Harness) {
    let w = World::new(h);
    let (_, run) = w.run_started(job()).await;
    w.pass(10 * RUN_MS);
    assert_eq!(w.progress(run, "late".to_owned()).await.expect("answered"), counted(JobState::Running));
    assert_eq!(w.start(vec![run]).await.expect("answered"), [counted(JobState::Running)]);
    assert_eq!(w.end(run, done()).await, counted(JobState::Done));
    assert_eq!(w.take_over().await.1.taken_back, []);
}
