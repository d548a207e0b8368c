//! The memory store: the model behind a mutex, and nothing else.
//!
//! For first steps, doc tests and users' own tests, and where one process is enough: everything is gone when it ends.
//! It is the reference that the other stores are compared with, so there is no second meaning of any verb.
//!
//! This room does not know: what the verbs mean (the model does), files, networks. It knows nothing of other stores.

use std::any::Any;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use super::sealed::Sealed;
use super::{Health, Inspect, Jobs, Leases, Once, Operate, Scope, Store, Workers};
use crate::clock::{Clock, Micros, Now};
use crate::error::Result;
use crate::id::{Fence, InstanceId, JobId, Name, OnceKey};
use crate::model::ledger::KeyFilter;
use crate::model::{
    ClaimAnswer, ClaimRequest, Counters, EnqueueAnswer, Finish, Heartbeat, InstanceView, JobFilter, JobRecord,
    JobState, KeyRecord, LockAnswer, LockHolder, LockRef, LockRequest, Model, NewInstance, NewJob, OnceAnswer, OnceEnd,
    OnceRequest, PeekAnswer, Pruned, QueueView, Reaped, RefusalRecord, Release, Resolution, RunRecord, RunRef, Settled,
    Verdict,
};

/// A store in this process's memory. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    model: Arc<Mutex<Model>>,
    clock: Clock,
}

impl MemoryStore {
    /// An empty store on the machine's clock.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store on a clock that a test may move.
    #[cfg(feature = "testing")]
    pub fn with_clock(clock: Clock) -> Self {
        Self { model: Arc::default(), clock }
    }

    /// One step of the model, at the time that is read under its lock.
    fn step<T>(&self, step: impl FnOnce(&mut Model, Now) -> T) -> T {
        let mut model = self.model.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        step(&mut model, self.clock.now())
    }
}

impl Sealed for MemoryStore {}

#[async_trait]
impl Store for MemoryStore {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn address(&self) -> String {
        "memory:".to_owned()
    }

    async fn another(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(self.clone()))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    async fn close(&self) {}
}

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

#[async_trait]
impl Leases for MemoryStore {
    async fn acquire_lock(&self, request: LockRequest) -> Result<LockAnswer> {
        Ok(self.step(|model, now| model.acquire_lock(now, &request)))
    }

    async fn renew_lock(&self, lock: LockRef, lease_ms: u64) -> Result<()> {
        Ok(self.step(|model, now| model.renew_lock(now, &lock, lease_ms))?)
    }

    async fn release_lock(&self, lock: LockRef) -> Result<()> {
        Ok(self.step(|model, now| model.release_lock(now, &lock))?)
    }

    async fn lock_holders(&self, name: Option<Name>) -> Result<Vec<LockHolder>> {
        Ok(self.step(|model, now| model.lock_holders(now, name.as_ref())))
    }

    async fn break_lock(&self, name: Name, reason: String) -> Result<Vec<LockHolder>> {
        Ok(self.step(|model, now| model.break_lock(now, &name, &reason)))
    }
}

#[async_trait]
impl Once for MemoryStore {
    async fn claim_once(&self, request: OnceRequest) -> Result<OnceAnswer> {
        Ok(self.step(|model, now| model.claim_once(now, &request)))
    }

    async fn renew_once(&self, key: OnceKey, fence: Fence, lease_ms: u64) -> Result<()> {
        Ok(self.step(|model, now| model.renew_once(now, &key, fence, lease_ms))?)
    }

    async fn finish_once(&self, key: OnceKey, fence: Fence, end: OnceEnd, keep_ms: u64) -> Result<()> {
        Ok(self.step(|model, now| model.finish_once(now, (&key, fence), &end, keep_ms))?)
    }

    async fn find_once(&self, key: OnceKey) -> Result<Option<KeyRecord>> {
        Ok(self.step(|model, now| model.find_once(now, &key)))
    }

    async fn list_once(&self, filter: KeyFilter) -> Result<Vec<KeyRecord>> {
        Ok(self.step(|model, now| model.list_once(now, &filter)))
    }

    async fn forget_once(&self, key: OnceKey) -> Result<()> {
        Ok(self.step(|model, now| model.forget_once(now, &key))?)
    }

    async fn resolve_once(&self, key: OnceKey, end: OnceEnd, keep_ms: u64) -> Result<()> {
        Ok(self.step(|model, now| model.resolve_once(now, &key, &end, keep_ms))?)
    }
}

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
