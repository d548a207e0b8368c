//! What people do to jobs and queues.

use async_trait::async_trait;

use super::PostgresStore;
use super::rows::change;
use super::slice::Slice;
use crate::clock::Now;
use crate::error::Result;
use crate::id::{JobId, Name};
use crate::model::{JobState, Model, Refusal, Resolution};
use crate::store::Operate;

#[async_trait]
impl Operate for PostgresStore {
    async fn cancel(&self, job: JobId, reason: String) -> Result<JobState> {
        self.operate(job, move |model, now| model.cancel(now, job, &reason)).await
    }

    async fn retry(&self, job: JobId) -> Result<JobState> {
        self.operate(job, move |model, now| model.retry(now, job)).await
    }

    async fn park(&self, job: JobId, reason: String) -> Result<JobState> {
        self.operate(job, move |model, now| model.park(now, job, &reason)).await
    }

    async fn resolve(&self, job: JobId, found: Resolution) -> Result<JobState> {
        self.operate(job, move |model, now| model.resolve(now, job, found)).await
    }

    async fn pause(&self, queue: Name, reason: String) -> Result<()> {
        self.write(move |step| {
            Box::pin(async move {
                let (text, since) = (include_str!("sql/pauses/set.sql"), step.now().wall);
                change!(step, text, queue = queue.as_str(), reason = &reason, since = since);
                Ok(())
            })
        })
        .await
    }

    async fn resume(&self, queue: Name) -> Result<()> {
        let name = queue.clone();
        let resumed = self.write(move |step| {
            Box::pin(async move { Ok(change!(step, include_str!("sql/pauses/delete.sql"), queue = name.as_str())) })
        });
        if resumed.await? == 0 { Err(Refusal::NotPaused { queue }.into()) } else { Ok(()) }
    }
}

impl PostgresStore {
    async fn operate<F>(&self, job: JobId, decision: F) -> Result<JobState>
    where
        F: FnOnce(&mut Model, Now) -> std::result::Result<JobState, Refusal> + Send + 'static,
    {
        let decided = self.write(move |step| {
            Box::pin(async move {
                let mut slice = Slice::of(step);
                slice.job_with_place(job).await?;
                slice.decide(decision).await
            })
        });
        Ok(decided.await??)
    }
}
