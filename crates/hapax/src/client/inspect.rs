//! Looking at jobs and queues, and deciding about them.

use super::Hapax;
use super::settle::settle;
use crate::clock::Micros;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{JobId, Name, kept_text};
use crate::model::{
    Counters, InstanceView, JobFilter, JobRecord, JobState, LockHolder, PAGE_MAX, QueueView, RefusalRecord, Resolution,
    RunRecord,
};
use crate::store::Health;

impl Hapax {
    /// One job with its ended runs, oldest first; nothing if it is not known or was deleted after its retention.
    pub async fn job(&self, id: JobId) -> Result<Option<(JobRecord, Vec<RunRecord>)>> {
        self.store().job(id).await
    }

    /// A page of jobs, newest id first. For the next page set [`JobFilter::before`] to the last id of this one.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) when the limit is not between 1 and 1,000.
    pub async fn jobs(&self, filter: JobFilter) -> Result<Vec<JobRecord>> {
        if !(1..=PAGE_MAX).contains(&filter.limit) {
            let what = format!("is {}", filter.limit);
            return Err(Error::invalid("limit", what, format!("use 1 to {PAGE_MAX}")));
        }
        self.store().list(filter).await
    }

    /// Every queue with its counts, its pause, and the kinds that nobody has a task for.
    pub async fn queues(&self) -> Result<Vec<QueueView>> {
        self.store().queues().await
    }

    /// Every instance that is still remembered.
    pub async fn instances(&self) -> Result<Vec<InstanceView>> {
        self.store().instances().await
    }

    /// Who holds locks now: one by name, or all.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for a name that breaks a limit.
    pub async fn lock_holders(&self, name: Option<&str>) -> Result<Vec<LockHolder>> {
        let name = name.map(|name| Name::new("lock", name)).transpose()?;
        self.store().lock_holders(name).await
    }

    /// The newest writes that lost their guard, newest first; at most 1,000.
    pub async fn refusals(&self, limit: u32) -> Result<Vec<RefusalRecord>> {
        self.store().refusals(limit).await
    }

    /// Totals since the store was made: duplicates refused, late writers refused, takeovers.
    pub async fn counters(&self) -> Result<Counters> {
        self.store().counters().await
    }

    /// What the store's wall clock says: the one that schedules, periods and retentions go by.
    pub async fn now(&self) -> Result<Micros> {
        self.store().now().await
    }

    /// How durable the store is, and whom it protects.
    pub async fn health(&self) -> Result<Health> {
        self.store().health().await
    }

    /// Ends a waiting or parked job, and asks a running one to stop: it then ends as cancelled, unless it is done
    /// before it notices. Gives the state after it: `running` means that it was asked.
    ///
    /// # Errors
    /// [`Refused`](ErrorKind::Refused) when it is unknown, done, or in doubt.
    pub async fn cancel(&self, id: JobId, reason: &str) -> Result<JobState> {
        let reason = kept_text(reason);
        settle(|| self.store().cancel(id, reason.clone())).await
    }

    /// Runs a scheduled, parked or cancelled job now, with all its attempts before it.
    ///
    /// # Errors
    /// [`Refused`](ErrorKind::Refused) when its state does not allow it, or its once key belongs to other work now.
    pub async fn retry(&self, id: JobId) -> Result<JobState> {
        let state = self.decide(id, JobState::Ready, || self.store().retry(id)).await?;
        self.wake().poke();
        Ok(state)
    }

    /// Parks a waiting job until somebody retries or cancels it.
    ///
    /// # Errors
    /// [`Refused`](ErrorKind::Refused) when it does not wait.
    pub async fn park(&self, id: JobId, reason: &str) -> Result<JobState> {
        let reason = kept_text(reason);
        self.decide(id, JobState::Parked, || self.store().park(id, reason.clone())).await
    }

    /// Decides about a job in doubt.
    ///
    /// # Errors
    /// [`Refused`](ErrorKind::Refused) when it is not in doubt.
    pub async fn resolve(&self, id: JobId, found: Resolution) -> Result<JobState> {
        let wanted = match found {
            Resolution::Done => JobState::Done,
            Resolution::NotDone => JobState::Cancelled,
            Resolution::Retry => JobState::Ready,
        };
        let state = self.decide(id, wanted, || self.store().resolve(id, found)).await?;
        self.wake().poke();
        Ok(state)
    }

    /// Stops claims from a queue on every instance; runs go on. The reason is for people.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for a name that breaks a limit.
    pub async fn pause(&self, queue: &str, reason: &str) -> Result<()> {
        let (queue, reason) = (Name::new("queue", queue)?, kept_text(reason));
        settle(|| self.store().pause(queue.clone(), reason.clone())).await
    }

    /// Lets claims from a queue go on.
    ///
    /// # Errors
    /// [`Refused`](ErrorKind::Refused) when it is not paused.
    pub async fn resume(&self, queue: &str) -> Result<()> {
        let queue = Name::new("queue", queue)?;
        let mut asked_before = false;
        let answer = settle(|| {
            let again = std::mem::replace(&mut asked_before, true);
            let call = self.store().resume(queue.clone());
            async move { call.await.map_err(|error| (error, again)).or_else(already) }
        })
        .await;
        self.wake().poke();
        answer
    }

    /// A decision is no no-op when repeated, so a lost answer is settled by what the job says of itself.
    async fn decide<Fut: Future<Output = Result<JobState>>>(
        &self,
        id: JobId,
        wanted: JobState,
        call: impl FnOnce() -> Fut,
    ) -> Result<JobState> {
        match call().await {
            Err(error) if error.outcome() == crate::error::Outcome::MayHaveHappened => {
                let found = settle(|| self.store().job(id)).await?;
                match found {
                    Some((job, _)) if job.state == wanted => Ok(wanted),
                    _ => Err(error),
                }
            }
            answer => answer,
        }
    }
}

/// After a lost answer "it is not paused" is what was wanted.
fn already((error, again): (Error, bool)) -> Result<()> {
    if again && error.kind() == ErrorKind::Refused { Ok(()) } else { Err(error) }
}
