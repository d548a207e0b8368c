//! What people do to jobs and queues.

use async_trait::async_trait;

use crate::error::Result;
use crate::id::{JobId, Name};
use crate::model::{JobState, Resolution};

/// Proved by `conformance/operate.rs`. What the state does not allow is refused as
/// [`Refused`](crate::ErrorKind::Refused) and changes nothing.
#[async_trait]
pub trait Operate: Send + Sync {
    /// [`Model::cancel`](crate::model::Model::cancel).
    async fn cancel(&self, job: JobId, reason: String) -> Result<JobState>;

    /// [`Model::retry`](crate::model::Model::retry).
    async fn retry(&self, job: JobId) -> Result<JobState>;

    /// [`Model::park`](crate::model::Model::park).
    async fn park(&self, job: JobId, reason: String) -> Result<JobState>;

    /// [`Model::resolve`](crate::model::Model::resolve).
    async fn resolve(&self, job: JobId, found: Resolution) -> Result<JobState>;

    /// [`Model::pause`](crate::model::Model::pause).
    async fn pause(&self, queue: Name, reason: String) -> Result<()>;

    /// [`Model::resume`](crate::model::Model::resume).
    async fn resume(&self, queue: Name) -> Result<()>;
}
