//! A store whose answers get lost when the test says so.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::Notify;

use crate::error::{Error, ErrorKind, Result};
use crate::id::{Fence, InstanceId, JobId, Name, OnceKey};
use crate::model::{
    ClaimAnswer, ClaimRequest, Counters, EnqueueAnswer, Finish, Heartbeat, InstanceView, JobFilter, JobRecord,
    JobState, KeyRecord, LockAnswer, LockHolder, LockRef, LockRequest, NewInstance, NewJob, OnceAnswer, OnceEnd,
    OnceRequest, PeekAnswer, Pruned, QueueView, Reaped, RefusalRecord, Release, Resolution, RunRecord, RunRef, Settled,
    Verdict,
};
use crate::store::sealed::Sealed;
use crate::store::{Health, Inspect, Jobs, Leases, Once, Operate, Store, Workers};

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The store cannot be reached, and that is certain: nothing happened.
    Unreachable,
    /// The request is lost on its way: nothing happened, and nobody knows.
    RequestLost,
    /// The answer is lost on its way: it happened, and nobody knows.
    AnswerLost,
    /// No answer for as long as the fault lasts; then the call goes through.
    Silence,
}

/// A store in front of another one that lets calls fail by a script. Verbs are named as in the traits: `claim`,
/// `finish`, `heartbeat`, …
///
/// ```
/// use std::sync::Arc;
/// use hapax::Hapax;
/// use hapax::testing::{Fault, FaultyStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let faulty = FaultyStore::new(Arc::clone(Hapax::memory().store()));
/// let hapax = Hapax::with_store(Arc::new(faulty.clone()));
///
/// faulty.once("counters", Fault::AnswerLost);
/// assert!(hapax.store().counters().await.is_err());
/// assert!(hapax.store().counters().await.is_ok());
/// assert_eq!(faulty.calls("counters"), 2);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    script: Arc<Script>,
}

#[derive(Debug, Default)]
struct Script {
    verbs: Mutex<HashMap<&'static str, Verb>>,
    mended: Notify,
}

#[derive(Debug, Default)]
struct Verb {
    calls: u64,
    /// For the next calls, in order.
    next: Vec<Fault>,
    /// For all calls after those.
    lasting: Option<Fault>,
}

impl FaultyStore {
    /// A store that works, until it is told not to. Clones, and handles opened by `another`, share one script.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, script: Arc::default() }
    }

    /// Lets one call of the verb go wrong, the next one that no earlier `once` has taken.
    pub fn once(&self, verb: &'static str, fault: Fault) {
        self.verbs().entry(verb).or_default().next.push(fault);
    }

    /// Lets every call of the verb go wrong until it is mended.
    pub fn cut(&self, verb: &'static str, fault: Fault) {
        self.verbs().entry(verb).or_default().lasting = Some(fault);
    }

    /// Lets calls of the verb go through again.
    pub fn mend(&self, verb: &'static str) {
        let mut verbs = self.verbs();
        let verb = verbs.entry(verb).or_default();
        verb.next.clear();
        verb.lasting = None;
        drop(verbs);
        self.script.mended.notify_waiters();
    }

    /// How often the verb was called.
    pub fn calls(&self, verb: &'static str) -> u64 {
        self.verbs().get(verb).map_or(0, |verb| verb.calls)
    }

    fn verbs(&self) -> MutexGuard<'_, HashMap<&'static str, Verb>> {
        self.script.verbs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault(&self, verb: &'static str) -> Option<Fault> {
        let mut verbs = self.verbs();
        let verb = verbs.entry(verb).or_default();
        verb.calls += 1;
        if verb.next.is_empty() { verb.lasting } else { Some(verb.next.remove(0)) }
    }

    async fn call<T>(&self, verb: &'static str, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let fault = self.fault(verb);
        let lost =
            |what: &str| Error::may_have_happened(ErrorKind::Unreachable, format!("{verb}: the {what} was lost"));
        match fault {
            None => call.await,
            Some(Fault::Unreachable) => {
                Err(Error::did_not_happen(ErrorKind::Unreachable, format!("{verb}: the store cannot be reached")))
            }
            Some(Fault::RequestLost) => Err(lost("request")),
            Some(Fault::AnswerLost) => {
                call.await?;
                Err(lost("answer"))
            }
            Some(Fault::Silence) => {
                self.until_mended(verb).await;
                call.await
            }
        }
    }

    async fn until_mended(&self, verb: &'static str) {
        loop {
            let mut mended = std::pin::pin!(self.script.mended.notified());
            mended.as_mut().enable();
            if self.verbs().get(verb).is_none_or(|verb| verb.lasting.is_none()) {
                return;
            }
            mended.await;
        }
    }
}

impl Sealed for FaultyStore {}

#[async_trait]
impl Store for FaultyStore {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn address(&self) -> String {
        self.inner.address()
    }

    async fn another(&self) -> Result<Arc<dyn Store>> {
        let inner = self.call("another", self.inner.another()).await?;
        Ok(Arc::new(Self { inner, script: Arc::clone(&self.script) }))
    }

    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

/// Each verb by its own name, and nothing else.
macro_rules! verbs {
    ($room:ident: $(fn $verb:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {
        #[async_trait]
        impl $room for FaultyStore {
            $(async fn $verb(&self, $($arg: $type),*) -> Result<$answer> {
                self.call(stringify!($verb), self.inner.$verb($($arg),*)).await
            })*
        }
    };
}

verbs! { Jobs:
    fn enqueue(jobs: Vec<NewJob>) -> Vec<EnqueueAnswer>;
    fn peek(request: ClaimRequest) -> PeekAnswer;
    fn claim(request: ClaimRequest) -> ClaimAnswer;
    fn start(runs: Vec<RunRef>) -> Vec<Settled>;
    fn finish(finishes: Vec<Finish>) -> Vec<Settled>;
    fn release(instance: InstanceId, what: Release) -> Vec<JobId>;
    fn progress(run: RunRef, text: String) -> Settled;
    fn verdict(runs: Vec<RunRef>) -> Vec<Verdict>;
}

verbs! { Workers:
    fn register(instance: NewInstance) -> ();
    fn heartbeat(instance: InstanceId, started: Vec<RunRef>) -> Heartbeat;
    fn leave(instance: InstanceId) -> Reaped;
    fn reap(by: InstanceId, limit: u32) -> Reaped;
    fn prune(limit: u32) -> Pruned;
}

verbs! { Leases:
    fn acquire_lock(request: LockRequest) -> LockAnswer;
    fn renew_lock(lock: LockRef, lease_ms: u64) -> ();
    fn release_lock(lock: LockRef) -> ();
    fn lock_holders(name: Option<Name>) -> Vec<LockHolder>;
}

verbs! { Once:
    fn claim_once(request: OnceRequest) -> OnceAnswer;
    fn renew_once(key: OnceKey, fence: Fence, lease_ms: u64) -> ();
    fn finish_once(key: OnceKey, fence: Fence, end: OnceEnd, keep_ms: u64) -> ();
    fn find_once(key: OnceKey) -> Option<KeyRecord>;
}

verbs! { Operate:
    fn cancel(job: JobId, reason: String) -> JobState;
    fn retry(job: JobId) -> JobState;
    fn park(job: JobId, reason: String) -> JobState;
    fn resolve(job: JobId, found: Resolution) -> JobState;
    fn pause(queue: Name, reason: String) -> ();
    fn resume(queue: Name) -> ();
}

verbs! { Inspect:
    fn job(job: JobId) -> Option<(JobRecord, Vec<RunRecord>)>;
    fn list(filter: JobFilter) -> Vec<JobRecord>;
    fn queues() -> Vec<QueueView>;
    fn instances() -> Vec<InstanceView>;
    fn refusals(limit: u32) -> Vec<RefusalRecord>;
    fn counters() -> Counters;
    fn health() -> Health;
}
