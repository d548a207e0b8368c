//! Instances and their leases, and the duties of those who live for those who do not.

use async_trait::async_trait;

use super::MemoryStore;
use crate::error::Result;
use crate::id::InstanceId;
use crate::model::{Heartbeat, NewInstance, Pruned, Reaped, RunRef};
use crate::store::Workers;

#[async_trait]
impl Workers for MemoryStore {
    async fn register(&self, instance: NewInstance) -> Result<()> {
        Ok(self.step(|model, now| model.register(now, &instance))?)
    }

    async fn heartbeat(&self, instance: InstanceId, started: Vec<RunRef>) -> Result<Heartbeat> {
        Ok(self.step(|model, now| model.heartbeat(now, instance, &started)))
    }

    async fn leave(&self, instance: InstanceId) -> Result<Reaped> {
        Ok(self.step(|model, now| model.leave(now, instance)))
    }

    async fn reap(&self, by: InstanceId, limit: u32) -> Result<Reaped> {
        Ok(self.step(|model, now| model.reap(now, by, limit))?)
    }

    async fn prune(&self, limit: u32) -> Result<Pruned> {
        Ok(self.step(|model, now| model.prune(now, limit)))
    }
}
