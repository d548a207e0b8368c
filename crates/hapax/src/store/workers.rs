//! Instances and their leases, and the duties of those who live for those who do not.

use async_trait::async_trait;

use crate::error::Result;
use crate::id::InstanceId;
use crate::model::{Heartbeat, NewInstance, Pruned, Reaped, RunRef};

/// Proved by `conformance/workers.rs`.
#[async_trait]
pub trait Workers: Send + Sync {
    /// [`Model::register`](crate::model::Model::register).
    async fn register(&self, instance: NewInstance) -> Result<()>;

    /// [`Model::heartbeat`](crate::model::Model::heartbeat): one statement whatever the number of runs.
    async fn heartbeat(&self, instance: InstanceId, started: Vec<RunRef>) -> Result<Heartbeat>;

    /// [`Model::leave`](crate::model::Model::leave).
    async fn leave(&self, instance: InstanceId) -> Result<Reaped>;

    /// [`Model::reap`](crate::model::Model::reap): selects and re-checks in one guarded step, never from a list read
    /// before.
    async fn reap(&self, by: InstanceId, limit: u32) -> Result<Reaped>;

    /// [`Model::prune`](crate::model::Model::prune).
    async fn prune(&self, limit: u32) -> Result<Pruned>;
}
