//! What people do to jobs and queues.

use async_trait::async_trait;

use super::MemoryStore;
use crate::error::Result;
use crate::id::{JobId, Name};
use crate::model::{JobState, Resolution};
use crate::store::Operate;

#[async_trait]
impl Operate for MemoryStore {
    async fn cancel(&self, job: JobId, reason: String) -> Result<JobState> {
        Ok(self.step(|model, now| model.cancel(now, job, &reason))?)
    }

    async fn retry(&self, job: JobId) -> Result<JobState> {
        Ok(self.step(|model, now| model.retry(now, job))?)
    }

    async fn park(&self, job: JobId, reason: String) -> Result<JobState> {
        Ok(self.step(|model, now| model.park(now, job, &reason))?)
    }

    async fn resolve(&self, job: JobId, found: Resolution) -> Result<JobState> {
        Ok(self.step(|model, now| model.resolve(now, job, found))?)
    }

    async fn pause(&self, queue: Name, reason: String) -> Result<()> {
        self.step(|model, now| model.pause(now, &queue, &reason));
        Ok(())
    }

    async fn resume(&self, queue: Name) -> Result<()> {
        Ok(self.step(|model, _| model.resume(&queue))?)
    }
}
