//! What people see.

use async_trait::async_trait;

use super::MemoryStore;
use crate::clock::Micros;
use crate::error::Result;
use crate::id::JobId;
use crate::model::{Counters, InstanceView, JobFilter, JobRecord, QueueView, RefusalRecord, RunRecord};
use crate::store::{Health, Inspect, Scope, Store};

#[async_trait]
impl Inspect for MemoryStore {
    async fn job(&self, job: JobId) -> Result<Option<(JobRecord, Vec<RunRecord>)>> {
        Ok(self.step(|model, _| model.job(job).cloned().map(|record| (record, model.runs_of(job).to_vec()))))
    }

    async fn list(&self, filter: JobFilter) -> Result<Vec<JobRecord>> {
        Ok(self.step(|model, _| model.list(&filter)))
    }

    async fn queues(&self) -> Result<Vec<QueueView>> {
        Ok(self.step(|model, _| model.queues()))
    }

    async fn instances(&self) -> Result<Vec<InstanceView>> {
        Ok(self.step(|model, now| model.instances(now)))
    }

    async fn refusals(&self, limit: u32) -> Result<Vec<RefusalRecord>> {
        Ok(self.step(|model, _| model.refusals(limit)))
    }

    async fn counters(&self) -> Result<Counters> {
        Ok(self.step(|model, _| model.counters()))
    }

    async fn now(&self) -> Result<Micros> {
        Ok(self.clock.now().wall)
    }

    async fn health(&self) -> Result<Health> {
        Ok(Health {
            store: "memory",
            address: self.address(),
            engine: "this process".to_owned(),
            version: 1,
            scope: Scope::Process,
            settings: Vec::new(),
        })
    }
}
