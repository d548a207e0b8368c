//! One attempt at a job, as its task sees it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::instance::Instance;
use super::signal::{Signal, StopReason};
use crate::clock::{Anchor, Deadline, Micros};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Fence, InstanceId, JobId, kept_text};
use crate::model::{Guarantee, JobRecord, Refusal, RunRef, Settled};
use crate::store::Store;
use crate::task::JobError;
use crate::telemetry;

/// The attempt that is being made: who, the how manyth, under which fence, and whether it shall stop.
///
/// A task gets it by asking for it, and clones share it:
///
/// ```
/// use hapax::{Job, JobError, Run};
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Notify { order: i64 }
/// # impl Job for Notify { const KIND: &'static str = "notify"; }
/// # async fn send(_: i64, _: String, _: i64) -> std::io::Result<()> { Ok(()) }
///
/// async fn notify(job: Notify, run: Run) -> Result<(), JobError> {
///     // The same id on every attempt, so that the receiver can refuse a repeat, and a fence that only grows.
///     let sent = send(job.order, run.delivery_id().to_string(), run.fence().as_i64());
///     tokio::select! {
///         sent = sent => Ok(sent?),
///         _ = run.cancelled() => Err(run.stopped()),
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Run(Arc<Inner>);

struct Inner {
    job: JobRecord,
    fence: Fence,
    instance: Arc<Instance>,
    /// Taken before the claim was sent.
    claimed: Anchor,
    limits: Mutex<Limits>,
    signal: Signal,
    /// The heartbeats that had been sent when the run came into memory: only later ones can miss it.
    held_since: u64,
    /// One more than the heartbeats that had been sent when its task began; zero before.
    begun_since: AtomicU64,
    start_recorded: AtomicBool,
    /// Its end is with the finisher, or being committed with its effect: it is not lost, whatever a heartbeat says.
    ending: AtomicBool,
    /// Its finish is committed (true), or refused for good: what the task returns does not matter any more.
    settled: OnceLock<bool>,
    /// It was reported for blocking its thread.
    stuck: AtomicBool,
}

/// When a run is asked to stop, and when its task is dropped: both before the store may take it back.
#[derive(Clone, Copy, Debug)]
struct Limits {
    soft: Deadline,
    hard: Deadline,
}

impl Limits {
    /// Counted from `anchor`, taken before the request that made the store count. The grace is within the timeout.
    fn from_anchor(anchor: Anchor, timeout_ms: u64, grace: Duration) -> Self {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX).min(timeout_ms / 10);
        Self { soft: anchor.deadline(timeout_ms - grace_ms), hard: anchor.deadline(timeout_ms) }
    }
}

impl Run {
    /// A run that was claimed at `anchor`.
    ///
    /// # Errors
    /// When the store gave the job without a fence: it is broken.
    pub(crate) fn new(job: JobRecord, instance: Arc<Instance>, anchor: Anchor) -> Result<Self> {
        let fence = job.fence.ok_or_else(|| {
            Error::did_not_happen(ErrorKind::Store, format!("the store gave job {} without a fence", job.id))
        })?;
        let limits = Limits::from_anchor(anchor, job.run_timeout_ms, instance.grace);
        let start_recorded = job.claim.is_some_and(|claim| claim.started_at.is_some());
        Ok(Self(Arc::new(Inner {
            fence,
            job,
            held_since: instance.beats(),
            instance,
            claimed: anchor,
            limits: Mutex::new(limits),
            signal: Signal::default(),
            begun_since: AtomicU64::new(0),
            start_recorded: AtomicBool::new(start_recorded),
            ending: AtomicBool::new(false),
            settled: OnceLock::new(),
            stuck: AtomicBool::new(false),
        })))
    }

    // ------------------------------------------------------------------------------------------------- for the task

    /// The job.
    pub fn job_id(&self) -> JobId {
        self.0.job.id
    }

    /// What to send to others so that they can refuse a repeat: the same on every attempt, since it is the job's id.
    pub fn delivery_id(&self) -> JobId {
        self.0.job.id
    }

    /// The number that grows with every attempt at this job. A receiver that keeps the highest one it has seen can
    /// refuse a late attempt: `… WHERE id = $1 AND fence <= $2`.
    pub fn fence(&self) -> Fence {
        self.0.fence
    }

    /// Which attempt it is, from 1. Attempts that were given back before they began do not count.
    pub fn attempt(&self) -> u32 {
        self.0.job.runs.saturating_add(1)
    }

    /// The kind of the job.
    pub fn kind(&self) -> &str {
        self.0.job.kind.as_str()
    }

    /// The queue that it waited in.
    pub fn queue(&self) -> &str {
        self.0.job.queue.as_str()
    }

    /// The instance that runs it.
    pub fn instance(&self) -> InstanceId {
        self.0.instance.id
    }

    /// When the store took the job, on its wall clock.
    pub fn enqueued_at(&self) -> Micros {
        self.0.job.enqueued_at
    }

    /// When the job was due, on the store's wall clock.
    pub fn due_at(&self) -> Micros {
        self.0.job.due_at
    }

    /// The version of the payload's form that the job was enqueued with.
    pub fn payload_version(&self) -> u16 {
        self.0.job.payload_version
    }

    /// The payload as it was enqueued, byte for byte.
    pub fn payload(&self) -> &str {
        self.0.job.payload.as_str()
    }

    /// When the run must have ended, by this machine's clock: somewhat before the store may take it back. It is asked
    /// to stop shortly before, by a tenth of its time or the host's grace, whichever is shorter.
    pub fn deadline(&self) -> Deadline {
        self.limits().hard
    }

    /// Keeps what the run says of its progress, for people: a percentage, a count, a step. Each call is one write to
    /// the store; a new text replaces the old one, and is cut at 64 KiB.
    ///
    /// # Errors
    /// [`Refused`](crate::ErrorKind::Refused) when the run is not the current one any more: then it is lost, and told
    /// so. Else what the store says; progress is worth no retry.
    pub async fn progress(&self, text: impl fmt::Display + Send) -> Result<()> {
        let text = kept_text(&text.to_string());
        match self.store().progress(self.reference(), text).await? {
            Settled::Counted { .. } => Ok(()),
            Settled::Refused { current, .. } => {
                telemetry::fence_rejected("progress");
                self.raise(StopReason::LeaseLost);
                let identity = format!("job {}", self.job_id());
                Err(Refusal::Stale { identity, fence: self.fence(), current }.into())
            }
        }
    }

    /// Waits until the run shall stop, and says why. Its task is dropped when it has not ended some grace later.
    pub async fn cancelled(&self) -> StopReason {
        self.0.signal.raised().await
    }

    /// Whether it shall stop. A loop that computes for long asks this between steps.
    pub fn is_cancelled(&self) -> bool {
        self.stop_reason().is_some()
    }

    /// Why it shall stop, if it shall.
    pub fn stop_reason(&self) -> Option<StopReason> {
        // The keeper may be late where the whole process is: the clock itself is asked.
        if self.0.instance.lease_passed() {
            self.raise(StopReason::LeaseLost);
        }
        self.0.signal.reason()
    }

    /// Whether the lease is lost, so that another instance may be at work on the same job.
    pub fn is_lost(&self) -> bool {
        self.stop_reason() == Some(StopReason::LeaseLost)
    }

    /// A token that is cancelled when the run shall stop, for libraries that take one.
    pub fn cancel_token(&self) -> CancellationToken {
        self.0.signal.token()
    }

    /// What a task returns that stopped because it was told to. The job is then cancelled if that was wanted; else it
    /// runs again, after a shutdown at once and without counting a failure. An at-most-once job is in doubt; its task
    /// says [`JobError::not_done`] where it is certain.
    pub fn stopped(&self) -> JobError {
        let at_most_once = self.0.job.guarantee == Guarantee::AtMostOnce;
        match self.stop_reason() {
            Some(reason @ StopReason::CancelRequested) if !at_most_once => JobError::cancel(reason.to_string()),
            Some(StopReason::Shutdown) if !at_most_once => JobError::snooze(Duration::ZERO),
            Some(reason) => JobError::unknown(format!("stopped, since {reason}")),
            None => JobError::retry("stopped without having been asked to"),
        }
    }

    // ------------------------------------------------------------------------------------------------- for the host

    pub(crate) fn record(&self) -> &JobRecord {
        &self.0.job
    }

    pub(crate) fn reference(&self) -> RunRef {
        RunRef { job: self.0.job.id, fence: self.0.fence }
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        self.0.instance.hapax.store()
    }

    pub(crate) fn home(&self) -> &Arc<Instance> {
        &self.0.instance
    }

    pub(crate) fn signal(&self) -> &Signal {
        &self.0.signal
    }

    pub(crate) fn raise(&self, reason: StopReason) {
        self.0.signal.raise(reason);
    }

    pub(crate) fn held_since(&self) -> u64 {
        self.0.held_since
    }

    /// Time since it was claimed.
    pub(crate) fn waited(&self) -> Duration {
        self.0.claimed.elapsed()
    }

    /// Whether its start must be recorded before its task begins: an at-most-once job must never be begun twice, and a
    /// run that waited for long shall have its whole time, which the store counts from its start.
    pub(crate) fn wants_start_recorded(&self) -> bool {
        let at_most_once = self.0.job.guarantee == Guarantee::AtMostOnce;
        let waited_long = self.waited() > Duration::from_millis(self.0.job.run_timeout_ms / 10);
        !self.start_is_recorded() && (at_most_once || waited_long)
    }

    /// When it shall be asked to stop.
    pub(crate) fn soft_deadline(&self) -> Deadline {
        self.limits().soft
    }

    /// How long its task may go on after having been told to stop.
    pub(crate) fn grace_after(&self, reason: StopReason) -> Duration {
        let grace = match reason {
            StopReason::LeaseLost => self.0.instance.grace_when_lost(),
            _ => self.0.instance.grace,
        };
        grace.min(self.limits().hard.left())
    }

    /// The store counts the run's deadline from a request that was sent at `anchor`: its start is recorded.
    pub(crate) fn start_confirmed(&self, anchor: Anchor) {
        let limits = Limits::from_anchor(anchor, self.0.job.run_timeout_ms, self.0.instance.grace);
        *self.0.limits.lock().unwrap_or_else(PoisonError::into_inner) = limits;
        self.mark_start_recorded();
    }

    pub(crate) fn mark_start_recorded(&self) {
        self.0.start_recorded.store(true, Ordering::Release);
    }

    pub(crate) fn start_is_recorded(&self) -> bool {
        self.0.start_recorded.load(Ordering::Acquire)
    }

    /// Its task begins now.
    pub(crate) fn begin(&self) {
        self.0.begun_since.store(self.0.instance.beats() + 1, Ordering::Release);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.0.begun_since.load(Ordering::Acquire) != 0
    }

    /// Whether its task has been at work since before heartbeat `beat - 1`, and the store does not know.
    pub(crate) fn start_is_due(&self, beat: u64) -> bool {
        let since = self.0.begun_since.load(Ordering::Acquire);
        since != 0 && since < beat && !self.start_is_recorded()
    }

    pub(crate) fn set_ending(&self, ending: bool) {
        self.0.ending.store(ending, Ordering::Release);
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.0.ending.load(Ordering::Acquire)
    }

    /// Its finish was committed, or refused for good.
    #[cfg_attr(
        not(any(feature = "sqlite", feature = "postgres")),
        expect(dead_code, reason = "only a store with transactions settles a run so")
    )]
    pub(crate) fn mark_settled(&self, counted: bool) {
        // The first answer is the only one: a fence ends a run once.
        let _ = self.0.settled.set(counted);
    }

    /// Whether its finish was committed, or refused for good; nothing while it is open.
    pub(crate) fn settled(&self) -> Option<bool> {
        self.0.settled.get().copied()
    }

    /// Whether it blocks its thread: past its deadline for `patience`, and not dropped. True once.
    pub(crate) fn newly_stuck(&self, patience: Duration) -> bool {
        let late = self.has_begun() && !self.is_ending() && self.limits().hard.passed_by(patience);
        late && !self.0.stuck.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn is_stuck(&self) -> bool {
        self.0.stuck.load(Ordering::Acquire)
    }

    fn limits(&self) -> Limits {
        *self.0.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("job", &self.job_id())
            .field("kind", &self.kind())
            .field("fence", &self.fence())
            .field("attempt", &self.attempt())
            .field("stop", &self.0.signal.reason())
            .finish_non_exhaustive()
    }
}
