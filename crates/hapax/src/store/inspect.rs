//! What people see. Reads take no lock and never scan a table for a count.

use async_trait::async_trait;
use serde::Serialize;

use crate::clock::Micros;
use crate::error::Result;
use crate::id::JobId;
use crate::model::{Counters, InstanceView, JobFilter, JobRecord, QueueView, RefusalRecord, RunRecord};

/// Proved by `conformance/inspect.rs`.
#[async_trait]
pub trait Inspect: Send + Sync {
    /// [`Model::job`](crate::model::Model::job), with its ended runs, oldest first.
    async fn job(&self, job: JobId) -> Result<Option<(JobRecord, Vec<RunRecord>)>>;

    /// [`Model::list`](crate::model::Model::list).
    async fn list(&self, filter: JobFilter) -> Result<Vec<JobRecord>>;

    /// [`Model::queues`](crate::model::Model::queues).
    async fn queues(&self) -> Result<Vec<QueueView>>;

    /// [`Model::instances`](crate::model::Model::instances).
    async fn instances(&self) -> Result<Vec<InstanceView>>;

    /// [`Model::refusals`](crate::model::Model::refusals).
    async fn refusals(&self, limit: u32) -> Result<Vec<RefusalRecord>>;

    /// [`Model::counters`](crate::model::Model::counters).
    async fn counters(&self) -> Result<Counters>;

    /// What the store's wall clock says.
    async fn now(&self) -> Result<Micros>;

    /// How durable the store is, and whom it protects.
    async fn health(&self) -> Result<Health>;
}

/// What a store is and what its settings are worth.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Health {
    /// Which store.
    pub store: &'static str,
    /// Its address, without secrets.
    pub address: String,
    /// Version of its server or engine.
    pub engine: String,
    /// Version of hapax's schema in it.
    pub version: u32,
    /// Whom its locks and keys protect.
    pub scope: Scope,
    /// Settings that the promise rests on.
    pub settings: Vec<Setting>,
}

/// Whom a store protects from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Tasks of one process.
    Process,
    /// Processes of one host.
    Host,
    /// Every host that reaches the store.
    Fleet,
}

/// One setting that the promise rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Its name, as the store calls it.
    pub name: &'static str,
    /// Its present value.
    pub value: String,
    /// Whether it keeps the promise.
    pub verdict: HealthVerdict,
    /// What it means, and how to mend it if it must be.
    pub note: String,
}

/// Whether a setting keeps the promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthVerdict {
    /// It does.
    Good,
    /// Weaker than it might be, within what is promised.
    Weak,
    /// It breaks the promise.
    Broken,
}
