//! Every verb of a store as a value: asked by value with [`call`], and a store that is reached only so, [`Wired`].
//!
//! For tests that stand between a caller and a store: one place sees every call and every answer.

use std::any::Any;
use std::sync::Arc;

use async_trait::async_trait;

use super::sealed::Sealed;
use super::{Health, Hints, Inspect, Jobs, Leases, Once, Operate, Store, Workers};
use crate::clock::Micros;
use crate::error::Result;
use crate::id::{Fence, InstanceId, JobId, Name, OnceKey};
use crate::model::ledger::KeyFilter;
use crate::model::observe::{Answer, Command};
use crate::model::{
    ClaimAnswer, ClaimRequest, Counters, EnqueueAnswer, Finish, Heartbeat, InstanceView, JobFilter, JobRecord,
    JobState, KeyRecord, LockAnswer, LockHolder, LockRef, LockRequest, NewInstance, NewJob, OnceAnswer, OnceEnd,
    OnceRequest, PeekAnswer, Pruned, QueueView, Reaped, RefusalRecord, Release, Resolution, RunRecord, RunRef, Settled,
    Verdict,
};

/// Asks `store` what `command` says.
///
/// # Errors
/// Those of the verb.
pub async fn call(store: &dyn Store, command: Command) -> Result<Answer> {
    let answer = match command {
        Command::Enqueue(jobs) => Answer::Enqueued(store.enqueue(jobs).await?),
        Command::Peek(request) => Answer::Peeked(store.peek(request).await?),
        Command::Claim(request) => Answer::Claimed(store.claim(request).await?),
        Command::Start(runs) => Answer::Settled(store.start(runs).await?),
        Command::Finish(finishes) => Answer::Settled(store.finish(finishes).await?),
        Command::Release(instance, what) => Answer::Released(store.release(instance, what).await?),
        Command::Progress(run, text) => Answer::Settled(vec![store.progress(run, text).await?]),
        Command::Verdict(runs) => Answer::Verdicts(store.verdict(runs).await?),
        Command::Register(new) => store.register(new).await.map(|()| Answer::Unit)?,
        Command::Heartbeat(id, started) => Answer::Heartbeat(store.heartbeat(id, started).await?),
        Command::Leave(id) => Answer::Reaped(store.leave(id).await?),
        Command::Reap(by, limit) => Answer::Reaped(store.reap(by, limit).await?),
        Command::Prune(limit) => Answer::Pruned(store.prune(limit).await?),
        other => return call_lease(store, other).await,
    };
    Ok(answer)
}

/// Locks and once keys; apart from [`call`] only to keep both readable, as the next one.
async fn call_lease(store: &dyn Store, command: Command) -> Result<Answer> {
    let answer = match command {
        Command::AcquireLock(request) => Answer::Lock(store.acquire_lock(request).await?),
        Command::RenewLock(lock, lease_ms) => store.renew_lock(lock, lease_ms).await.map(|()| Answer::Unit)?,
        Command::ReleaseLock(lock) => store.release_lock(lock).await.map(|()| Answer::Unit)?,
        Command::LockHolders(name) => Answer::Holders(store.lock_holders(name).await?),
        Command::ClaimOnce(request) => Answer::Once(store.claim_once(request).await?),
        Command::RenewOnce(key, fence, ms) => store.renew_once(key, fence, ms).await.map(|()| Answer::Unit)?,
        Command::FinishOnce(key, fence, end, keep_ms) => {
            store.finish_once(key, fence, end, keep_ms).await.map(|()| Answer::Unit)?
        }
        Command::FindOnce(key) => Answer::Key(store.find_once(key).await?),
        Command::ListOnce(filter) => Answer::Keys(store.list_once(filter).await?),
        Command::ForgetOnce(key) => store.forget_once(key).await.map(|()| Answer::Unit)?,
        Command::ResolveOnce(key, end, ms) => store.resolve_once(key, end, ms).await.map(|()| Answer::Unit)?,
        Command::BreakLock(name, reason) => Answer::Holders(store.break_lock(name, reason).await?),
        other => return call_by_people(store, other).await,
    };
    Ok(answer)
}

/// What people do and see.
async fn call_by_people(store: &dyn Store, command: Command) -> Result<Answer> {
    let answer = match command {
        Command::Cancel(id, reason) => Answer::State(store.cancel(id, reason).await?),
        Command::Retry(id) => Answer::State(store.retry(id).await?),
        Command::Park(id, reason) => Answer::State(store.park(id, reason).await?),
        Command::Resolve(id, found) => Answer::State(store.resolve(id, found).await?),
        Command::Pause(queue, reason) => store.pause(queue, reason).await.map(|()| Answer::Unit)?,
        Command::Resume(queue) => store.resume(queue).await.map(|()| Answer::Unit)?,
        Command::Job(id) => Answer::Job(store.job(id).await?.map(Box::new)),
        Command::List(filter) => Answer::Jobs(store.list(filter).await?),
        Command::Queues => Answer::Queues(store.queues().await?),
        Command::Instances => Answer::Instances(store.instances().await?),
        Command::Refusals(limit) => Answer::Refusals(store.refusals(limit).await?),
        Command::Counters => Answer::Counters(store.counters().await?),
        Command::Now => Answer::Now(store.now().await?),
        _ => unreachable!("the others handle the rest"),
    };
    Ok(answer)
}

/// What stands between a caller and a store.
#[async_trait]
pub trait Wire: std::fmt::Debug + Send + Sync {
    /// Carries one call to `store` and its answer back, or not, or something else. Whatever comes back must be the
    /// kind of answer that the command has.
    async fn carry(&self, store: &dyn Store, command: Command) -> Result<Answer>;
}

/// A store that is reached over a [`Wire`] only. Its health is read past the wire.
#[derive(Clone, Debug)]
pub struct Wired {
    store: Arc<dyn Store>,
    wire: Arc<dyn Wire>,
}

impl Wired {
    /// `store`, over `wire`.
    pub fn new(store: Arc<dyn Store>, wire: Arc<dyn Wire>) -> Self {
        Self { store, wire }
    }

    async fn ask(&self, command: Command) -> Result<Answer> {
        self.wire.carry(&*self.store, command).await
    }
}

/// Asks over the wire and unpacks the one kind of answer that the verb has.
macro_rules! ask {
    ($self:ident, $command:expr => $answer:ident) => {
        match $self.ask($command).await? {
            Answer::$answer(answer) => Ok(answer),
            other => panic!("the wire mixed up its answers: {other:?}"),
        }
    };
    ($self:ident, $command:expr) => {
        $self.ask($command).await.map(drop)
    };
}

impl Sealed for Wired {}

#[async_trait]
impl Store for Wired {
    fn name(&self) -> &'static str {
        self.store.name()
    }

    fn address(&self) -> String {
        self.store.address()
    }

    async fn another(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(Self { store: self.store.another().await?, wire: Arc::clone(&self.wire) }))
    }

    async fn hints(&self, queues: Vec<Name>) -> Result<Option<Box<dyn Hints>>> {
        self.store.hints(queues).await
    }

    fn as_any(&self) -> &dyn Any {
        self.store.as_any()
    }

    async fn close(&self) {
        self.store.close().await;
    }
}

#[async_trait]
impl Jobs for Wired {
    async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<EnqueueAnswer>> {
        ask!(self, Command::Enqueue(jobs) => Enqueued)
    }

    async fn peek(&self, request: ClaimRequest) -> Result<PeekAnswer> {
        ask!(self, Command::Peek(request) => Peeked)
    }

    async fn claim(&self, request: ClaimRequest) -> Result<ClaimAnswer> {
        ask!(self, Command::Claim(request) => Claimed)
    }

    async fn start(&self, runs: Vec<RunRef>) -> Result<Vec<Settled>> {
        ask!(self, Command::Start(runs) => Settled)
    }

    async fn finish(&self, finishes: Vec<Finish>) -> Result<Vec<Settled>> {
        ask!(self, Command::Finish(finishes) => Settled)
    }

    async fn release(&self, instance: InstanceId, what: Release) -> Result<Vec<JobId>> {
        ask!(self, Command::Release(instance, what) => Released)
    }

    async fn progress(&self, run: RunRef, text: String) -> Result<Settled> {
        let settled: Result<Vec<Settled>> = ask!(self, Command::Progress(run, text) => Settled);
        Ok(settled?[0])
    }

    async fn verdict(&self, runs: Vec<RunRef>) -> Result<Vec<Verdict>> {
        ask!(self, Command::Verdict(runs) => Verdicts)
    }
}

#[async_trait]
impl Workers for Wired {
    async fn register(&self, instance: NewInstance) -> Result<()> {
        ask!(self, Command::Register(instance))
    }

    async fn heartbeat(&self, instance: InstanceId, started: Vec<RunRef>) -> Result<Heartbeat> {
        ask!(self, Command::Heartbeat(instance, started) => Heartbeat)
    }

    async fn leave(&self, instance: InstanceId) -> Result<Reaped> {
        ask!(self, Command::Leave(instance) => Reaped)
    }

    async fn reap(&self, by: InstanceId, limit: u32) -> Result<Reaped> {
        ask!(self, Command::Reap(by, limit) => Reaped)
    }

    async fn prune(&self, limit: u32) -> Result<Pruned> {
        ask!(self, Command::Prune(limit) => Pruned)
    }
}

#[async_trait]
impl Leases for Wired {
    async fn acquire_lock(&self, request: LockRequest) -> Result<LockAnswer> {
        ask!(self, Command::AcquireLock(request) => Lock)
    }

    async fn renew_lock(&self, lock: LockRef, lease_ms: u64) -> Result<()> {
        ask!(self, Command::RenewLock(lock, lease_ms))
    }

    async fn release_lock(&self, lock: LockRef) -> Result<()> {
        ask!(self, Command::ReleaseLock(lock))
    }

    async fn lock_holders(&self, name: Option<Name>) -> Result<Vec<LockHolder>> {
        ask!(self, Command::LockHolders(name) => Holders)
    }

    async fn break_lock(&self, name: Name, reason: String) -> Result<Vec<LockHolder>> {
        ask!(self, Command::BreakLock(name, reason) => Holders)
    }
}

#[async_trait]
impl Once for Wired {
    async fn claim_once(&self, request: OnceRequest) -> Result<OnceAnswer> {
        ask!(self, Command::ClaimOnce(request) => Once)
    }

    async fn renew_once(&self, key: OnceKey, fence: Fence, lease_ms: u64) -> Result<()> {
        ask!(self, Command::RenewOnce(key, fence, lease_ms))
    }

    async fn finish_once(&self, key: OnceKey, fence: Fence, end: OnceEnd, keep_ms: u64) -> Result<()> {
        ask!(self, Command::FinishOnce(key, fence, end, keep_ms))
    }

    async fn find_once(&self, key: OnceKey) -> Result<Option<KeyRecord>> {
        ask!(self, Command::FindOnce(key) => Key)
    }

    async fn list_once(&self, filter: KeyFilter) -> Result<Vec<KeyRecord>> {
        ask!(self, Command::ListOnce(filter) => Keys)
    }

    async fn forget_once(&self, key: OnceKey) -> Result<()> {
        ask!(self, Command::ForgetOnce(key))
    }

    async fn resolve_once(&self, key: OnceKey, end: OnceEnd, keep_ms: u64) -> Result<()> {
        ask!(self, Command::ResolveOnce(key, end, keep_ms))
    }
}

#[async_trait]
impl Operate for Wired {
    async fn cancel(&self, job: JobId, reason: String) -> Result<JobState> {
        ask!(self, Command::Cancel(job, reason) => State)
    }

    async fn retry(&self, job: JobId) -> Result<JobState> {
        ask!(self, Command::Retry(job) => State)
    }

    async fn park(&self, job: JobId, reason: String) -> Result<JobState> {
        ask!(self, Command::Park(job, reason) => State)
    }

    async fn resolve(&self, job: JobId, found: Resolution) -> Result<JobState> {
        ask!(self, Command::Resolve(job, found) => State)
    }

    async fn pause(&self, queue: Name, reason: String) -> Result<()> {
        ask!(self, Command::Pause(queue, reason))
    }

    async fn resume(&self, queue: Name) -> Result<()> {
        ask!(self, Command::Resume(queue))
    }
}

#[async_trait]
impl Inspect for Wired {
    async fn job(&self, job: JobId) -> Result<Option<(JobRecord, Vec<RunRecord>)>> {
        let found: Result<Option<Box<_>>> = ask!(self, Command::Job(job) => Job);
        Ok(found?.map(|found| *found))
    }

    async fn list(&self, filter: JobFilter) -> Result<Vec<JobRecord>> {
        ask!(self, Command::List(filter) => Jobs)
    }

    async fn queues(&self) -> Result<Vec<QueueView>> {
        ask!(self, Command::Queues => Queues)
    }

    async fn instances(&self) -> Result<Vec<InstanceView>> {
        ask!(self, Command::Instances => Instances)
    }

    async fn refusals(&self, limit: u32) -> Result<Vec<RefusalRecord>> {
        ask!(self, Command::Refusals(limit) => Refusals)
    }

    async fn counters(&self) -> Result<Counters> {
        ask!(self, Command::Counters => Counters)
    }

    async fn now(&self) -> Result<Micros> {
        ask!(self, Command::Now => Now)
    }

    async fn health(&self) -> Result<Health> {
        self.store.health().await
    }
}
