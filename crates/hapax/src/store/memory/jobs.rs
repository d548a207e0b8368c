//! Jobs: taking them in, claims, starts, ends.

use async_trait::async_trait;

use super::MemoryStore;
use crate::error::Result;
use crate::id::{InstanceId, JobId};
use crate::model::{
    ClaimAnswer, ClaimRequest, EnqueueAnswer, Finish, NewJob, PeekAnswer, Release, RunRef, Settled, Verdict,
};
use crate::store::Jobs;

#[async_trait]
impl Jobs for MemoryStore {
    async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<EnqueueAnswer>> {
        Ok(self.step(|model, now| model.enqueue(now, &jobs)))
    }

    async fn peek(&self, request: ClaimRequest) -> Result<PeekAnswer> {
        Ok(self.step(|model, now| model.peek(now, &request)))
    }

    async fn claim(&self, request: ClaimRequest) -> Result<ClaimAnswer> {
        Ok(self.step(|model, now| model.claim(now, &request))?)
    }

    async fn start(&self, runs: Vec<RunRef>) -> Result<Vec<Settled>> {
        Ok(self.step(|model, now| model.start(now, &runs)))
    }

    async fn finish(&self, finishes: Vec<Finish>) -> Result<Vec<Settled>> {
        Ok(self.step(|model, now| model.finish(now, &finishes)))
    }

    async fn release(&self, instance: InstanceId, what: Release) -> Result<Vec<JobId>> {
        Ok(self.step(|model, now| model.release(now, instance, &what)))
    }

    async fn progress(&self, run: RunRef, text: String) -> Result<Settled> {
        Ok(self.step(|model, now| model.progress(now, run, &text)))
    }

    async fn verdict(&self, runs: Vec<RunRef>) -> Result<Vec<Verdict>> {
        Ok(self.step(|model, _| model.verdict(&runs)))
    }
}
