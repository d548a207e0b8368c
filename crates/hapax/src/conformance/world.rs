//! The small steps that cases are made of. A case says what it is about; everything else comes from here.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::Harness;
use crate::clock::Now;
use crate::error::{ErrorKind, Outcome, Result};
use crate::id::{AcquisitionId, Boundary, ClaimId, Fence, Fingerprint, InstanceId, JobId, Name, OnceKey, Payload};
use crate::model::{
    ClaimRequest, Counters, Due, End, EnqueueAnswer, Finish, Guarantee, InstanceView, JobFilter, JobRecord, JobState,
    KeyClaim, KeyRecord, LockHolder, LockRef, LockRequest, NewInstance, NewJob, OnceAnswer, OnceRequest, QueueView,
    Reaped, Refusal, RefusalRecord, RetryPolicy, RunOutcome, RunRecord, RunRef, Settled,
};
use crate::store::Store;

/// Lease of every instance of [`World::live`], in milliseconds.
pub(super) const LEASE_MS: u64 = 10_000;
/// How long an instance of [`World::live`] waits before it reaps: one heartbeat, in milliseconds.
pub(super) const BEAT_MS: u64 = LEASE_MS / 3;
/// Time limit of a run of [`job`], in milliseconds: well beyond a lease.
pub(super) const RUN_MS: u64 = 60_000;
/// How long [`job`] is kept after its end, in milliseconds.
pub(super) const KEEP_MS: u64 = 3_600_000;
/// How long a key of this file is refused after its work is done, in milliseconds.
pub(super) const KEEP_KEY_MS: u64 = 86_400_000;

/// A legal name.
pub(super) fn name(text: &str) -> Name {
    Name::new("name", text).expect("a legal name")
}

/// A plain job of kind `k` in queue `q`, due now, with a new id.
pub(super) fn job() -> NewJob {
    NewJob {
        id: JobId::new(),
        queue: name("q"),
        kind: name("k"),
        payload: Payload::new("{}").expect("JSON"),
        payload_version: 1,
        priority: 0,
        due: Due::Now,
        once: None,
        guarantee: Guarantee::AtLeastOnce,
        retry: RetryPolicy::default(),
        run_timeout_ms: RUN_MS,
        keep_ms: KEEP_MS,
    }
}

/// A job that must never run twice.
pub(super) fn at_most_once() -> NewJob {
    NewJob { guarantee: Guarantee::AtMostOnce, ..job() }
}

/// The once key `value` of jobs of kind `k`.
pub(super) fn key(value: &str) -> OnceKey {
    OnceKey::new(Boundary::Enqueue, name("k"), value).expect("a legal key")
}

/// How a job or claim asks for `key`.
pub(super) fn key_claim(key: OnceKey) -> KeyClaim {
    KeyClaim { key, fingerprint: None, keep_ms: KEEP_KEY_MS, made_at: None }
}

/// A job with the once key `value`.
pub(super) fn keyed(value: &str) -> NewJob {
    NewJob { once: Some(key_claim(key(value))), ..job() }
}

/// A fingerprint.
pub(super) fn fingerprint(of: &str) -> Fingerprint {
    Fingerprint::of(of.as_bytes())
}

/// The bare once key `value`.
pub(super) fn bare(value: &str) -> OnceKey {
    OnceKey::new(Boundary::Claim, name("s"), value).expect("a legal key")
}

/// A wish for the bare once key `value`, under a new acquisition.
pub(super) fn once(value: &str) -> OnceRequest {
    OnceRequest {
        claim: key_claim(bare(value)),
        lease_ms: LEASE_MS,
        acquisition: AcquisitionId::new(),
        holder: name("somebody"),
    }
}

/// A wish for the plain lock `text`, under a new acquisition.
pub(super) fn lock(text: &str) -> LockRequest {
    LockRequest {
        name: name(text),
        permits: 1,
        lease_ms: LEASE_MS,
        acquisition: AcquisitionId::new(),
        holder: name("somebody"),
    }
}

/// An instance with a new id, that serves queue `q` and kind `k`.
pub(super) fn instance() -> NewInstance {
    NewInstance {
        id: InstanceId::new(),
        name: name("host:1"),
        version: "0.1.0".to_owned(),
        queues: vec![name("q")],
        kinds: vec![name("k")],
        lease_ms: LEASE_MS,
    }
}

/// A wish of `by` for all that is in queue `q`, under a new claim id.
pub(super) fn wish(by: InstanceId) -> ClaimRequest {
    ClaimRequest {
        instance: by,
        claim: ClaimId::new(),
        queues: vec![(name("q"), 1_000)],
        kinds: vec![name("k")],
        suspect: false,
    }
}

/// The run that a claim gave.
pub(super) fn run_of(job: &JobRecord) -> RunRef {
    RunRef { job: job.id, fence: job.fence.expect("a claimed job has a fence") }
}

/// The end of a run that took effect.
pub(super) const fn done() -> End {
    End::Done { result: None }
}

/// The end of a run that shall be repeated.
pub(super) fn again(outcome: RunOutcome, delay_ms: u64) -> End {
    End::Again { outcome, delay_ms, detail: format!("{} on purpose", outcome.as_str()) }
}

/// Every way in which a run may end by its own finish.
pub(super) fn every_end() -> Vec<End> {
    let outcomes = [RunOutcome::Failed, RunOutcome::Unknown, RunOutcome::TimedOut, RunOutcome::Snoozed];
    let mut ends: Vec<End> = outcomes.map(|outcome| again(outcome, 1_000)).to_vec();
    ends.push(done());
    ends.push(End::Park { reason: "given up".to_owned() });
    ends.push(End::Cancelled { reason: "pointless".to_owned() });
    ends
}

/// The answer to a write that counted.
pub(super) const fn counted(state: JobState) -> Settled {
    Settled::Counted { state }
}

/// The refusal in an answer; its error must say for certain that nothing was changed.
pub(super) fn refusal<T: std::fmt::Debug>(answer: Result<T>) -> Refusal {
    let error = answer.expect_err("this is refused");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert_eq!(error.outcome(), Outcome::DidNotHappen, "{error}");
    error.refusal().expect("a refusal says why").clone()
}

/// Everything that a store shows, but for the evidence of refusals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub(super) jobs: Vec<(JobRecord, Vec<RunRecord>)>,
    pub(super) keys: Vec<Option<KeyRecord>>,
    pub(super) holders: Vec<LockHolder>,
    pub(super) queues: Vec<QueueView>,
    pub(super) instances: Vec<InstanceView>,
}

/// An empty store on a clock that only the case moves. Every verb of the store may be called on it.
pub(super) struct World<'a> {
    pub(super) h: &'a dyn Harness,
    pub(super) store: Arc<dyn Store>,
    keys: Vec<OnceKey>,
}

impl Deref for World<'_> {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

impl<'a> World<'a> {
    /// The harness's store.
    pub(super) fn new(h: &'a dyn Harness) -> Self {
        Self::watching(h, &[])
    }

    /// The harness's store, with bare keys that belong to its [`Snapshot`].
    pub(super) fn watching(h: &'a dyn Harness, keys: &[OnceKey]) -> Self {
        Self { h, store: h.store(), keys: keys.to_vec() }
    }

    /// What time it is for the store.
    pub(super) fn now(&self) -> Now {
        self.h.clock().now()
    }

    /// Lets time pass on both clocks.
    pub(super) fn pass(&self, ms: u64) {
        self.h.clock().advance(Duration::from_millis(ms));
    }

    /// Enqueues jobs, each of which must be taken.
    pub(super) async fn put(&self, jobs: &[NewJob]) {
        let answers = self.enqueue(jobs.to_vec()).await.expect("enqueued");
        let taken: Vec<EnqueueAnswer> = jobs.iter().map(|job| EnqueueAnswer::Enqueued { id: job.id }).collect();
        assert_eq!(answers, taken);
    }

    /// Enqueues one job, whatever the answer.
    pub(super) async fn offer(&self, job: &NewJob) -> EnqueueAnswer {
        self.enqueue(vec![job.clone()]).await.expect("answered").remove(0)
    }

    /// A new live instance.
    pub(super) async fn live(&self) -> InstanceId {
        let new = instance();
        let id = new.id;
        self.register(new).await.expect("registered");
        id
    }

    /// Lets `ms` pass, which are more than a heartbeat; gives an instance that is new and may reap by then.
    pub(super) async fn reaper_after(&self, ms: u64) -> InstanceId {
        self.pass(ms - BEAT_MS);
        let by = self.live().await;
        self.pass(BEAT_MS);
        by
    }

    /// Claims all that is in queue `q` and no suspect.
    pub(super) async fn take(&self, by: InstanceId) -> Vec<JobRecord> {
        self.claim(wish(by)).await.expect("claimed").jobs
    }

    /// Claims a suspect, or all that is in queue `q`.
    pub(super) async fn take_suspect(&self, by: InstanceId) -> Vec<JobRecord> {
        self.claim(ClaimRequest { suspect: true, ..wish(by) }).await.expect("claimed").jobs
    }

    /// Enqueues a job and has it claimed by a new instance.
    pub(super) async fn run(&self, new: NewJob) -> (InstanceId, RunRef) {
        let id = new.id;
        self.put(&[new]).await;
        let by = self.live().await;
        let jobs = self.take(by).await;
        let mine = jobs.iter().find(|job| job.id == id).expect("claimed");
        (by, run_of(mine))
    }

    /// As [`run`](Self::run), with its start recorded.
    pub(super) async fn run_started(&self, new: NewJob) -> (InstanceId, RunRef) {
        let (by, run) = self.run(new).await;
        assert_eq!(self.start(vec![run]).await.expect("started"), [counted(JobState::Running)]);
        (by, run)
    }

    /// Ends a run, whatever the answer.
    pub(super) async fn end(&self, run: RunRef, end: End) -> Settled {
        self.finish(vec![Finish { run, end }]).await.expect("answered")[0]
    }

    /// Lets every lease of an instance run out; a new instance reaps. Gives it and what it did.
    pub(super) async fn take_over(&self) -> (InstanceId, Reaped) {
        let by = self.reaper_after(LEASE_MS).await;
        let reaped = self.reap(by, 1_000).await.expect("the reaper is live");
        (by, reaped)
    }

    /// A job that must be there.
    pub(super) async fn look(&self, id: JobId) -> JobRecord {
        self.job(id).await.expect("read").expect("the job is there").0
    }

    /// The ended runs of a job that must be there.
    pub(super) async fn runs(&self, id: JobId) -> Vec<RunRecord> {
        self.job(id).await.expect("read").expect("the job is there").1
    }

    /// Where a job stands.
    pub(super) async fn state(&self, id: JobId) -> JobState {
        self.look(id).await.state
    }

    /// The record of a key, if it is remembered.
    pub(super) async fn key(&self, key: &OnceKey) -> Option<KeyRecord> {
        self.find_once(key.clone()).await.expect("read")
    }

    /// Takes a lock that must be free.
    pub(super) async fn hold(&self, request: &LockRequest) -> LockRef {
        match self.acquire_lock(request.clone()).await.expect("answered") {
            crate::model::LockAnswer::Granted(lock) => lock,
            busy @ crate::model::LockAnswer::Busy { .. } => panic!("{} is not free: {busy:?}", request.name),
        }
    }

    /// Claims a bare key that must be free; gives its fence and the number of the attempt.
    pub(super) async fn hold_key(&self, request: &OnceRequest) -> (Fence, u32) {
        match self.claim_once(request.clone()).await.expect("answered") {
            OnceAnswer::Claimed { fence, attempt } => (fence, attempt),
            other => panic!("{} is not free: {other:?}", request.claim.key),
        }
    }

    /// The totals.
    pub(super) async fn totals(&self) -> Counters {
        self.counters().await.expect("read")
    }

    /// Everything that the store shows, but for the evidence of refusals.
    pub(super) async fn snapshot(&self) -> Snapshot {
        let all = JobFilter { limit: 1_000, ..JobFilter::default() };
        let mut snapshot = Snapshot {
            jobs: Vec::new(),
            keys: Vec::new(),
            holders: self.lock_holders(None).await.expect("read"),
            queues: self.queues().await.expect("read"),
            instances: self.instances().await.expect("read"),
        };
        let mut keys = self.keys.clone();
        for listed in self.list(all).await.expect("read") {
            let (job, runs) = self.job(listed.id).await.expect("read").expect("a listed job is there");
            assert_eq!(job, listed, "the list shows what the job is");
            keys.extend(job.once.clone());
            snapshot.jobs.push((job, runs));
        }
        for key in keys {
            snapshot.keys.push(self.key(&key).await);
        }
        snapshot
    }

    /// Does `write`, which is to be refused as `verb` on `identity`: evidence is left, and nothing else is changed.
    pub(super) async fn fenced_off<T>(
        &self,
        (verb, identity, fence): (&str, String, Option<Fence>),
        write: impl Future<Output = T>,
    ) -> T {
        let (mut before, totals) = (self.snapshot().await, self.totals().await);
        let answer = write.await;
        for (job, _) in &mut before.jobs {
            job.refused += u32::from(job.id.to_string() == identity);
        }
        assert_eq!(self.snapshot().await, before, "a refused {verb} changes nothing");
        let more = Counters { writes_refused: totals.writes_refused + 1, ..totals };
        assert_eq!(self.totals().await, more, "a refused {verb} is counted, once");
        let evidence = RefusalRecord { at: self.now().wall, verb: verb.to_owned(), identity, fence };
        assert_eq!(self.refusals(1).await.expect("read"), [evidence], "a refused {verb} can be looked up");
        answer
    }

    /// As [`fenced_off`](Self::fenced_off), for a write of a run.
    pub(super) async fn run_fenced_off<T>(&self, verb: &str, run: RunRef, write: impl Future<Output = T>) -> T {
        self.fenced_off((verb, run.job.to_string(), Some(run.fence)), write).await
    }
}
