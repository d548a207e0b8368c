//! Jobs: enqueue, claim, and everything that a run may write.

use async_trait::async_trait;

use crate::error::Result;
use crate::id::{InstanceId, JobId};
use crate::model::{
    ClaimAnswer, ClaimRequest, EnqueueAnswer, Finish, NewJob, PeekAnswer, Release, RunRef, Settled, Verdict,
};

/// Proved by `conformance/jobs.rs`. Every write of a run is guarded by state `running` and its fence; a refused one
/// changes nothing and is kept as evidence.
#[async_trait]
pub trait Jobs: Send + Sync {
    /// [`Model::enqueue`](crate::model::Model::enqueue): all in one transaction, each answered for itself.
    async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<EnqueueAnswer>>;

    /// [`Model::peek`](crate::model::Model::peek): a read that takes no lock. A hint; polling is the truth.
    async fn peek(&self, request: ClaimRequest) -> Result<PeekAnswer>;

    /// [`Model::claim`](crate::model::Model::claim).
    async fn claim(&self, request: ClaimRequest) -> Result<ClaimAnswer>;

    /// [`Model::start`](crate::model::Model::start).
    async fn start(&self, runs: Vec<RunRef>) -> Result<Vec<Settled>>;

    /// [`Model::finish`](crate::model::Model::finish): all in one transaction, each answered for itself.
    async fn finish(&self, finishes: Vec<Finish>) -> Result<Vec<Settled>>;

    /// [`Model::release`](crate::model::Model::release).
    async fn release(&self, instance: InstanceId, what: Release) -> Result<Vec<JobId>>;

    /// [`Model::progress`](crate::model::Model::progress).
    async fn progress(&self, run: RunRef, text: String) -> Result<Settled>;

    /// [`Model::verdict`](crate::model::Model::verdict), read with a lock: after it, an earlier write of ours whose
    /// answer was lost has either happened or never will.
    async fn verdict(&self, runs: Vec<RunRef>) -> Result<Vec<Verdict>>;
}
