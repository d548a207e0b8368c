//! What people do to jobs and queues.

use async_trait::async_trait;
use rusqlite::Connection;

use super::SqliteStore;
use super::rows::change;
use super::slice::Slice;
use crate::clock::Now;
use crate::error::Result;
use crate::id::{JobId, Name};
use crate::model::{JobState, Model, Refusal, Resolution};
use crate::store::Operate;

#[async_trait]
impl Operate for SqliteStore {
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
        let step = move |connection: &Connection, now: Now| {
            let text = include_str!("sql/pauses/set.sql");
            change!(connection, text, queue = &queue, reason = &reason, since = now.wall);
            Ok(())
        };
        self.write(step).await
    }

    async fn resume(&self, queue: Name) -> Result<()> {
        let name = queue.clone();
        let step = move |connection: &Connection, _| {
            Ok(change!(connection, include_str!("sql/pauses/delete.sql"), queue = &name))
        };
        if self.write(step).await? == 0 { Err(Refusal::NotPaused { queue }.into()) } else { Ok(()) }
    }
}

impl SqliteStore {
    async fn operate<F>(&self, job: JobId, decision: F) -> Result<JobState>
    where
        F: FnOnce(&mut Model, Now) -> std::result::Result<JobState, Refusal> + Send + 'static,
    {
        let step =
            move |connection: &Connection, now| Slice::of(connection).job(job)?.decide(|model| decision(model, now));
        Ok(self.write(step).await??)
    }
}
