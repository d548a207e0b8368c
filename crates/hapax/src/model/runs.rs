//! How a run ends: by its own finish, or by being taken back.

use super::job::{
    JobState, KEEP_MS_MIN, KeyEffect, Retention, RunOutcome, RunRecord, Step, TAKEOVERS_MAX, UNSTARTED_TAKEOVERS_MAX,
    next,
};
use super::{End, Finish, Guarantee, Model, RunRef, Settled};
use crate::clock::Now;
use crate::id::JobId;

/// Why a run is taken back from its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The owner is dead, or left.
    OwnerGone,
    /// The run passed its deadline.
    Deadline,
}

impl Model {
    /// Ends runs under their fences; each for itself.
    pub fn finish(&mut self, now: Now, finishes: &[Finish]) -> Vec<Settled> {
        finishes
            .iter()
            .map(|finish| match self.current(finish.run) {
                Ok(()) => Settled::Counted { state: self.end_run(now, finish.run, &finish.end) },
                Err(refused) => self.refuse_run(now, "finish", finish.run, refused),
            })
            .collect()
    }

    fn end_run(&mut self, now: Now, run: RunRef, end: &End) -> JobState {
        let id = run.job;
        let cancelled = self.jobs[&id].cancel_requested;
        if let End::Again { outcome, detail, .. } = end {
            self.record_run(now, id, *outcome, Some(detail.clone()));
        } else if let End::Park { reason } = end {
            self.record_run(now, id, RunOutcome::Failed, Some(reason.clone()));
        } else if let End::Cancelled { reason } = end {
            self.record_run(now, id, RunOutcome::Cancelled, Some(reason.clone()));
        }
        self.change(id, |job| {
            job.runs = job.runs.saturating_add(1);
            job.ended_fence = Some(run.fence);
            job.suspect = false;
            job.unstarted_takeovers = 0;
        });
        match end {
            End::Done { result } => {
                self.change(id, |job| {
                    job.result.clone_from(result);
                    job.reason = None;
                });
                self.leave_run(now, id, Step::Done)
            }
            End::Again { outcome, delay_ms, detail } => self.end_again(now, id, (*outcome, *delay_ms), detail),
            End::Park { reason } => {
                self.change(id, |job| job.reason = Some(reason.clone()));
                self.leave_run(now, id, if cancelled { Step::EndCancelled } else { Step::GiveUp })
            }
            End::Cancelled { reason } => {
                self.change(id, |job| job.reason = Some(reason.clone()));
                self.leave_run(now, id, Step::EndCancelled)
            }
        }
    }

    fn end_again(&mut self, now: Now, id: JobId, (outcome, delay_ms): (RunOutcome, u64), detail: &str) -> JobState {
        let step = self.change(id, |job| {
            if outcome != RunOutcome::Snoozed {
                job.failures = job.failures.saturating_add(1);
                job.reason = Some(detail.to_owned());
            }
            let unclear = matches!(outcome, RunOutcome::Unknown | RunOutcome::TimedOut);
            if unclear && job.guarantee == Guarantee::AtMostOnce {
                Step::Doubt
            } else if job.cancel_requested {
                Step::EndCancelled
            } else if outcome != RunOutcome::Snoozed && job.retry.is_used_up(job.failures) {
                Step::GiveUp
            } else {
                job.due_at = now.wall.plus_ms(delay_ms);
                if delay_ms == 0 { Step::AgainNow } else { Step::AgainLater }
            }
        });
        self.leave_run(now, id, step)
    }

    /// Takes a run back from its owner, untouched if nobody knows that it had started.
    pub(super) fn take_back(&mut self, now: Now, id: JobId, cause: Cause) -> JobState {
        let started = self.jobs[&id].claim.expect("a running job has a claim").started_at.is_some();
        let step = match (cause, started) {
            (Cause::OwnerGone, true) => self.take_back_started(now, id),
            (Cause::OwnerGone, false) => self.take_back_unstarted(id),
            (Cause::Deadline, true) => self.take_back_late(now, id),
            (Cause::Deadline, false) => {
                // Counted as well: else a payload that hangs, with a time limit shorter than a heartbeat, would go
                // round for ever without a trace.
                self.counters.deadlines += 1;
                self.suspect_more(id);
                self.cancel_or(id, Step::TakeBack)
            }
        };
        self.leave_run(now, id, step)
    }

    fn take_back_started(&mut self, now: Now, id: JobId) -> Step {
        self.counters.takeovers += 1;
        let detail = "its instance died or left while it ran";
        self.record_run(now, id, RunOutcome::Lost, Some(detail.to_owned()));
        let step = self.cancel_or(id, Step::TakeBack);
        self.change(id, |job| {
            job.runs = job.runs.saturating_add(1);
            job.takeovers = job.takeovers.saturating_add(1);
            job.suspect = true;
            if job.guarantee == Guarantee::AtMostOnce {
                job.reason = Some(detail.to_owned());
                Step::Doubt
            } else if step == Step::TakeBack && job.takeovers >= TAKEOVERS_MAX.min(job.retry.max_attempts) {
                job.reason = Some(format!("taken over {} times: its instance died each time", job.takeovers));
                Step::GiveUp
            } else {
                step
            }
        })
    }

    fn take_back_unstarted(&mut self, id: JobId) -> Step {
        self.counters.unstarted_takeovers += 1;
        self.suspect_more(id);
        self.cancel_or(id, Step::TakeBack)
    }

    /// One more take-back of a run of which nobody knows whether it had started.
    fn suspect_more(&mut self, id: JobId) {
        self.change(id, |job| {
            job.unstarted_takeovers = job.unstarted_takeovers.saturating_add(1);
            job.suspect |= job.unstarted_takeovers >= UNSTARTED_TAKEOVERS_MAX;
        });
    }

    fn take_back_late(&mut self, now: Now, id: JobId) -> Step {
        self.counters.deadlines += 1;
        let detail = "ran past its deadline";
        self.record_run(now, id, RunOutcome::TimedOut, Some(detail.to_owned()));
        let step = self.cancel_or(id, Step::AgainLater);
        self.change(id, |job| {
            job.runs = job.runs.saturating_add(1);
            job.failures = job.failures.saturating_add(1);
            job.reason = Some(detail.to_owned());
            if job.guarantee == Guarantee::AtMostOnce {
                Step::Doubt
            } else if step == Step::AgainLater && job.retry.is_used_up(job.failures) {
                Step::GiveUp
            } else {
                job.due_at = now.wall.plus_ms(job.retry.delay_ms(job.failures, 0));
                step
            }
        })
    }

    /// A job that was asked to stop ends as cancelled, whatever else its run's end would have led to.
    fn cancel_or(&self, id: JobId, step: Step) -> Step {
        if self.jobs[&id].cancel_requested { Step::EndCancelled } else { step }
    }

    /// Leaves `running` by `step`: clears the claim, sees to the once key and the retention.
    pub(super) fn leave_run(&mut self, now: Now, id: JobId, step: Step) -> JobState {
        self.change(id, |job| job.claim = None);
        self.settle(now, id, step)
    }

    /// Applies a step with its effects on the once key and on retention.
    pub(super) fn settle(&mut self, now: Now, id: JobId, step: Step) -> JobState {
        let transition = next(self.jobs[&id].state, step).expect("callers checked the table");
        self.step(id, step);
        self.change(id, |job| {
            let waits = matches!(job.state, JobState::Scheduled | JobState::Ready | JobState::Running);
            job.finished_at = (!waits).then_some(now.wall);
            let keep_ms = job.keep_ms.max(KEEP_MS_MIN);
            job.purge_at = (transition.keep == Retention::Timed).then(|| now.wall.plus_ms(keep_ms));
            if !waits {
                job.suspect = false;
                job.cancel_requested = false;
            }
        });
        match transition.key {
            KeyEffect::Held => {}
            KeyEffect::Done => self.end_key_of_job(now, id, super::KeyState::Done),
            KeyEffect::Free => self.end_key_of_job(now, id, super::KeyState::Free),
        }
        transition.to
    }

    fn record_run(&mut self, now: Now, id: JobId, outcome: RunOutcome, detail: Option<String>) {
        let fence = self.fence_of(id);
        let job = &self.jobs[&id];
        let claim = job.claim.expect("only claimed jobs have runs to record");
        let number = job.runs.saturating_add(1);
        let record = RunRecord {
            number,
            fence,
            instance: claim.instance,
            started_at: claim.started_at,
            ended_at: now.wall,
            outcome,
            detail,
        };
        let runs = self.runs.entry(id).or_default();
        runs.push(record);
        runs.retain(|run| run.number.saturating_add(super::job::RUNS_KEPT_MAX) > number);
    }
}
