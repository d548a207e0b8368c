//! What people do to jobs and queues.

use super::job::{JobState, Step, next};
use super::{Model, Pause, Refusal, Resolution};
use crate::clock::Now;
use crate::id::{JobId, Name};

impl Model {
    /// Ends a waiting or parked job; asks a running one to stop. Cancelling a cancelled job changes nothing.
    pub fn cancel(&mut self, now: Now, id: JobId, reason: &str) -> Result<JobState, Refusal> {
        match self.state_of(id)? {
            JobState::Cancelled => Ok(JobState::Cancelled),
            JobState::Running => {
                self.change(id, |job| job.cancel_requested = true);
                Ok(JobState::Running)
            }
            state => {
                legal(id, state, Step::Cancel)?;
                self.change(id, |job| job.reason = Some(reason.to_owned()));
                Ok(self.settle(now, id, Step::Cancel))
            }
        }
    }

    /// Makes a scheduled, parked or cancelled job ready now, with all its attempts before it.
    pub fn retry(&mut self, now: Now, id: JobId) -> Result<JobState, Refusal> {
        let state = self.state_of(id)?;
        legal(id, state, Step::Retry)?;
        self.run_again(now, id, Step::Retry)
    }

    /// Parks a waiting job until somebody retries or cancels it.
    pub fn park(&mut self, now: Now, id: JobId, reason: &str) -> Result<JobState, Refusal> {
        legal(id, self.state_of(id)?, Step::Park)?;
        self.change(id, |job| job.reason = Some(reason.to_owned()));
        Ok(self.settle(now, id, Step::Park))
    }

    /// Decides about a job in doubt.
    pub fn resolve(&mut self, now: Now, id: JobId, found: Resolution) -> Result<JobState, Refusal> {
        let step = match found {
            Resolution::Done => Step::ResolveDone,
            Resolution::NotDone => Step::ResolveNotDone,
            Resolution::Retry => Step::ResolveRetry,
        };
        legal(id, self.state_of(id)?, step)?;
        if found == Resolution::Retry {
            return self.run_again(now, id, step);
        }
        Ok(self.settle(now, id, step))
    }

    /// Stops claims from a queue; running jobs go on. Pausing again changes the reason.
    pub fn pause(&mut self, now: Now, queue: &Name, reason: &str) {
        let since = self.pauses.get(queue).map_or(now.wall, |pause| pause.since);
        self.pauses.insert(queue.clone(), Pause { reason: reason.to_owned(), since });
    }

    /// Lets claims go on.
    pub fn resume(&mut self, queue: &Name) -> Result<(), Refusal> {
        self.pauses.remove(queue).map(drop).ok_or_else(|| Refusal::NotPaused { queue: queue.clone() })
    }

    fn run_again(&mut self, now: Now, id: JobId, step: Step) -> Result<JobState, Refusal> {
        if self.jobs[&id].state == JobState::Cancelled {
            self.retake_key_of_job(now, id)?;
        }
        self.change(id, |job| {
            job.due_at = now.wall;
            job.failures = 0;
            job.takeovers = 0;
            job.unstarted_takeovers = 0;
            job.suspect = false;
        });
        Ok(self.settle(now, id, step))
    }

    fn state_of(&self, id: JobId) -> Result<JobState, Refusal> {
        self.jobs.get(&id).map(|job| job.state).ok_or_else(|| Refusal::NotFound { what: format!("job {id}") })
    }
}

fn legal(job: JobId, state: JobState, step: Step) -> Result<(), Refusal> {
    next(state, step).map(drop).ok_or(Refusal::Illegal { job, state, step })
}
