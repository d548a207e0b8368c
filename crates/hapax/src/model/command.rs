//! What may be asked of a store, and what it answers: the same words for the model, every store and every test.

use serde::Serialize;

use super::job::{Guarantee, JobRecord, JobState, RunOutcome};
use super::retry::RetryPolicy;
use crate::clock::Micros;
use crate::id::{AcquisitionId, ClaimId, Fence, Fingerprint, InstanceId, JobId, Name, OnceKey, Payload};

// ------------------------------------------------------------------------------------------------------------- jobs

/// When a job is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Due {
    /// At once.
    #[default]
    Now,
    /// After so many milliseconds by the store's clock.
    InMs(u64),
    /// At an instant of the wall clock, UTC.
    At(Micros),
}

/// A once key as it comes with a job or a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyClaim {
    /// The key.
    pub key: OnceKey,
    /// What the work is; the same key with another one is an error.
    pub fingerprint: Option<Fingerprint>,
    /// How long the key is refused once its work is done, in milliseconds.
    pub keep_ms: u64,
    /// When the message behind it was made (wall clock). Older than `keep_ms` and unknown: quarantined, never new.
    pub made_at: Option<Micros>,
}

/// A job to be enqueued; checked and filled with defaults by `client/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    /// Made before the call; enqueueing the same id again is a no-op.
    pub id: JobId,
    /// Queue to wait in.
    pub queue: Name,
    /// Which task runs it.
    pub kind: Name,
    /// JSON for the task.
    pub payload: Payload,
    /// Version of the payload's form.
    pub payload_version: u16,
    /// Smaller runs first.
    pub priority: i16,
    /// When it may run.
    pub due: Due,
    /// Its once key.
    pub once: Option<KeyClaim>,
    /// What its effect's "once" rests on.
    pub guarantee: Guarantee,
    /// Retry policy.
    pub retry: RetryPolicy,
    /// Longest time of one run, in milliseconds.
    pub run_timeout_ms: u64,
    /// How long it is kept after its end, in milliseconds; at least [`KEEP_MS_MIN`](super::job::KEEP_MS_MIN).
    pub keep_ms: u64,
}

/// What became of one job of an enqueue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum EnqueueAnswer {
    /// It is there, from this call or from an earlier one with the same id.
    Enqueued {
        /// Its id.
        id: JobId,
    },
    /// Its once key is held or done: nothing was enqueued.
    Existed {
        /// The job or claim that has the key.
        holder: KeyHolder,
        /// Whether the key is done, rather than held by work that is still to end.
        done: bool,
    },
    /// Its once key is held or done for other work: an error of the caller.
    OtherFingerprint {
        /// The job or claim that has the key.
        holder: KeyHolder,
        /// The fingerprint that the key has.
        kept: Fingerprint,
        /// The fingerprint that came.
        given: Fingerprint,
    },
    /// Its message is older than the key's memory: it may have taken effect before, and nobody would know.
    Quarantined {
        /// How long keys are remembered, in milliseconds.
        keep_ms: u64,
    },
}

/// Who has a once key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyHolder {
    /// A job, which may be pruned by now.
    Job(JobId),
    /// A claim of the bare key, by this caller.
    Claim(Name),
}

/// Asks for work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRequest {
    /// Who asks; it must be live.
    pub instance: InstanceId,
    /// Made before the call. Asking again with it gives the same jobs, as far as they still belong to it.
    pub claim: ClaimId,
    /// Queues in order of preference, each with the most jobs to take from it.
    pub queues: Vec<(Name, u32)>,
    /// Kinds that the instance has a task for; others stay ready.
    pub kinds: Vec<Name>,
    /// Whether a suspect may be taken. It then comes alone, with its start recorded.
    pub suspect: bool,
}

/// How many due jobs one claim makes ready, in the order of their due times and ids.
pub const PROMOTED_MAX: usize = 1_000;

/// Jobs that now belong to the instance, in the order in which they should run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimAnswer {
    /// The jobs, as they are after the claim.
    pub jobs: Vec<JobRecord>,
}

/// Whether it is worth asking for work; a hint, never the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeekAnswer {
    /// Something may be claimable now.
    pub ready: bool,
    /// Time until the next scheduled job of the store is due, in milliseconds.
    pub next_due_in_ms: Option<u64>,
}

/// One run: which job, under which fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct RunRef {
    /// The job.
    pub job: JobId,
    /// The fence of its claim.
    pub fence: Fence,
}

/// How a run ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It took effect.
    Done {
        /// What the task returned.
        result: Option<String>,
    },
    /// It failed or is unclear, and may run again after `delay_ms`, if the policy has attempts left and the guarantee
    /// allows it: an at-most-once job whose run is `Unknown` becomes in doubt.
    Again {
        /// Why: `Failed`, `Unknown`, `TimedOut` or `Snoozed`.
        outcome: RunOutcome,
        /// Delay by the store's clock, in milliseconds.
        delay_ms: u64,
        /// The error.
        detail: String,
    },
    /// The task gives up until a person decides.
    Park {
        /// Why.
        reason: String,
    },
    /// The task stopped because it was asked to, or found its work pointless.
    Cancelled {
        /// Why.
        reason: String,
    },
}

/// Ends a run under its fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    /// Which run.
    pub run: RunRef,
    /// How.
    pub end: End,
}

/// What became of one guarded write of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Settled {
    /// It counted; the job is in this state.
    Counted {
        /// State after the write.
        state: JobState,
    },
    /// The run is not the current one: nothing was changed, the refusal was recorded.
    Refused {
        /// State of the job; nothing if there is no such job.
        state: Option<JobState>,
        /// Fence of its last claim.
        current: Option<Fence>,
    },
}

impl Settled {
    /// Whether the write counted.
    pub const fn counted(&self) -> bool {
        matches!(self, Self::Counted { .. })
    }
}

/// What is given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release {
    /// Every job that still belongs to the claim and whose start is not recorded: its answer was lost.
    Claim(ClaimId),
    /// These runs, which were not begun. One that is not current is refused, and the refusal recorded.
    Runs(Vec<RunRef>),
}

/// What the ledger says of one run, read with a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// It is the current run: whatever was asked did not happen.
    Current,
    /// It ended under this fence and left the job in this state.
    Ended {
        /// State of the job, unless changed since by an operator.
        state: JobState,
    },
    /// The job was taken back or given to another since, or is gone.
    NotMine,
}

// ---------------------------------------------------------------------------------------------------------- workers

/// An instance that registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewInstance {
    /// Its id; never one that was used before.
    pub id: InstanceId,
    /// For people: host and process.
    pub name: Name,
    /// Version of its program.
    pub version: String,
    /// Queues that it serves.
    pub queues: Vec<Name>,
    /// Kinds that it has a task for.
    pub kinds: Vec<Name>,
    /// Length of its lease, in milliseconds.
    pub lease_ms: u64,
}

/// A run that belongs to an instance, as the store sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OwnedRun {
    /// Which run.
    pub run: RunRef,
    /// The claim it came with: one whose answer is still on its way is not lost.
    pub claim: ClaimId,
    /// Somebody asked it to stop.
    pub cancel_requested: bool,
}

/// Answer to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heartbeat {
    /// The lease was renewed; these runs belong to the instance.
    Alive {
        /// Every run that the store counts as the instance's.
        owned: Vec<OwnedRun>,
    },
    /// The instance was declared dead, or never was. Final: cancel everything and register under a new id.
    Dead,
}

/// What the reaper did in one bite.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reaped {
    /// Instances whose lease had run out; dead from now on.
    pub dead: Vec<InstanceId>,
    /// Jobs taken back, and where each went.
    pub taken_back: Vec<(JobId, JobState)>,
    /// Whether the bite was full and another may find more.
    pub more: bool,
}

/// What the pruner deleted in one bite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// Jobs.
    pub jobs: u32,
    /// Once keys, bare claims that ran out long ago included.
    pub keys: u32,
    /// Dead instances.
    pub instances: u32,
    /// Recorded refusals.
    pub refusals: u32,
    /// Locks whose lease ran out long ago.
    pub locks: u32,
}

impl Pruned {
    /// All rows together.
    pub const fn total(&self) -> u32 {
        self.jobs + self.keys + self.instances + self.refusals + self.locks
    }
}

// ------------------------------------------------------------------------------------------------------------ locks

/// Asks for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// Which lock.
    pub name: Name,
    /// How many may hold it at once; 1 is a plain lock. Where callers disagree, the smallest number counts.
    pub permits: u32,
    /// Length of the lease, in milliseconds.
    pub lease_ms: u64,
    /// Made before the call; asking again with it finds the same grant.
    pub acquisition: AcquisitionId,
    /// For people: who holds it.
    pub holder: Name,
}

/// One granted permit of a lock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct LockRef {
    /// Which lock.
    pub name: Name,
    /// Which permit, from 0; with the name the identity within which fences compare.
    pub slot: u32,
    /// The fence of the grant.
    pub fence: Fence,
}

/// Answer to the wish for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockAnswer {
    /// Granted for the asked time.
    Granted(LockRef),
    /// All permits are held.
    Busy {
        /// By these.
        holders: Vec<LockHolder>,
    },
}

/// A held permit, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LockHolder {
    /// Name, permit and fence.
    pub lock: LockRef,
    /// Who holds it.
    pub holder: Name,
    /// Since when (wall clock).
    pub since: Micros,
    /// Time left of the lease by the store's clock, in milliseconds.
    pub expires_in_ms: u64,
}

// ------------------------------------------------------------------------------------------------------------- once

/// Claims a bare once key: the right to do its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnceRequest {
    /// The key and its fingerprint.
    pub claim: KeyClaim,
    /// Length of the lease, in milliseconds.
    pub lease_ms: u64,
    /// Made before the call; asking again with it finds the same grant.
    pub acquisition: AcquisitionId,
    /// For people: who does the work.
    pub holder: Name,
}

/// Answer to a claim of a once key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnceAnswer {
    /// The caller may do the work.
    Claimed {
        /// Guards every later write.
        fence: Fence,
        /// Which attempt this is, from 1.
        attempt: u32,
    },
    /// The work was done before; refused.
    Done(Box<KeyRecord>),
    /// Another does it now.
    Busy(Box<KeyRecord>),
    /// The key stands for other work: an error of the caller.
    OtherFingerprint {
        /// Who has it.
        holder: KeyHolder,
        /// The fingerprint that the key has.
        kept: Fingerprint,
        /// The fingerprint that came.
        given: Fingerprint,
    },
    /// The message is older than the key's memory.
    Quarantined {
        /// How long keys are remembered, in milliseconds.
        keep_ms: u64,
    },
}

/// How the work behind a once key ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnceEnd {
    /// It took effect: refused from now on, for the key's retention.
    Done {
        /// What to answer those who ask again.
        result: Option<String>,
    },
    /// It failed: the key is free at once.
    Failed {
        /// Why.
        error: String,
    },
}

/// State of a once key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyState {
    /// Its work is to be done, or is being done.
    Held,
    /// Its work took effect.
    Done,
    /// Its work did not take effect; anybody may have it.
    Free,
}

impl KeyState {
    /// The word used in tables and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Done => "done",
            Self::Free => "free",
        }
    }

    /// The state with this word.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Held, Self::Done, Self::Free].into_iter().find(|s| s.as_str() == text)
    }
}

/// A once key as a store keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyRecord {
    /// The key.
    pub key: OnceKey,
    /// What its work is.
    pub fingerprint: Option<Fingerprint>,
    /// Where it stands.
    pub state: KeyState,
    /// Who has it.
    pub holder: KeyHolder,
    /// Of a bare claim: its fence.
    pub fence: Option<Fence>,
    /// Of a bare claim: who asked, so that asking again finds it.
    pub acquisition: Option<AcquisitionId>,
    /// Of a bare claim that is held: the end of its lease (lease clock).
    pub lease_until: Option<Micros>,
    /// How often its work was begun by a bare claim.
    pub attempts: u32,
    /// When it was first taken (wall clock).
    pub since: Micros,
    /// When its work was done or failed (wall clock).
    pub ended_at: Option<Micros>,
    /// From when on it is forgotten (wall clock); nothing while it is held.
    pub keep_until: Option<Micros>,
    /// What to answer those who ask again, or the last error.
    pub result: Option<String>,
    /// How many duplicates were refused.
    pub refused: u32,
    /// When the latest one was (wall clock).
    pub last_refused_at: Option<Micros>,
}

// -------------------------------------------------------------------------------------------------------- operators

/// What a person or reconciler found about a job in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// It took effect.
    Done,
    /// It did not, and shall not run: the job is cancelled and its key free.
    NotDone,
    /// It did not, and shall run.
    Retry,
}

/// A paused queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pause {
    /// Why, for people.
    pub reason: String,
    /// Since when (wall clock).
    pub since: Micros,
}

// ---------------------------------------------------------------------------------------------------------- reading

/// Which jobs to list, newest id first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// Only of this queue.
    pub queue: Option<Name>,
    /// Only of this kind.
    pub kind: Option<Name>,
    /// Only in this state.
    pub state: Option<JobState>,
    /// Only ids before this one: the last id of the page before.
    pub before: Option<JobId>,
    /// Most jobs to return; 1 to [`PAGE_MAX`].
    pub limit: u32,
}

/// Longest page of a list.
pub const PAGE_MAX: u32 = 1_000;
/// Where counting stops: a count of this many means "at least".
pub const COUNT_MAX: u64 = 10_000;

/// A queue as people see it. Counts end at [`COUNT_MAX`] and never scan the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QueueView {
    /// Its name.
    pub queue: Name,
    /// Jobs by state, in the order of [`JobState::ALL`].
    pub counts: Vec<(JobState, u64)>,
    /// Present while it is paused.
    pub pause: Option<Pause>,
    /// Kinds among its ready jobs (the first [`COUNT_MAX`] of them) that no live instance has a task for.
    pub unknown_kinds: Vec<Name>,
}

/// An instance as people see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstanceView {
    /// Its id.
    pub id: InstanceId,
    /// Host and process.
    pub name: Name,
    /// Version of its program.
    pub version: String,
    /// Whether it may still claim and renew.
    pub live: bool,
    /// When it registered (wall clock).
    pub started_at: Micros,
    /// When it last renewed its lease (wall clock).
    pub renewed_at: Micros,
    /// Time left of its lease by the store's clock, in milliseconds.
    pub expires_in_ms: u64,
    /// Queues that it serves.
    pub queues: Vec<Name>,
    /// Kinds that it has a task for.
    pub kinds: Vec<Name>,
    /// Runs that belong to it.
    pub running: u64,
}

/// A write that lost its guard, kept as evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusalRecord {
    /// When (wall clock).
    pub at: Micros,
    /// What was attempted: `finish`, `start`, `progress`, `renew_lock`, …
    pub verb: String,
    /// On which identity: a job id, `lock NAME/SLOT`, a once key, an instance id.
    pub identity: String,
    /// The fence that it came with.
    pub fence: Option<Fence>,
}

/// How long refusals, dead instances and leases that ran out are kept, in milliseconds: 7 days.
pub const EVIDENCE_KEEP_MS: u64 = 7 * 86_400_000;

/// Totals since the store was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Enqueues and claims refused because their once key was held or done.
    pub duplicates_refused: u64,
    /// Guarded writes refused because their fence was not current.
    pub writes_refused: u64,
    /// Started runs taken back from dead owners.
    pub takeovers: u64,
    /// Claimed runs, not known to have started, taken back from dead owners.
    pub unstarted_takeovers: u64,
    /// Runs taken back at their deadline.
    pub deadlines: u64,
}
