//! WHAT IS TRUE? The whole law of hapax as a state machine in memory.
//!
//! Every state-changing verb of a store is a method here that takes what time it is and what is asked, and gives the
//! answer or a [`Refusal`]. Written once, used five times: behind a mutex it is the memory store; random command
//! sequences on every store are compared with it ([`observe`]); it judges recorded histories; the state diagram of the
//! docs is printed from its table ([`job::state_diagram`]); and the sets it names are what the SQL guards cite.
//!
//! This room does not know: async, any database, what time it is, randomness, or who calls. Time comes in as
//! [`Now`](crate::clock::Now), jitter as a number. It knows nothing of the rooms above it.

pub mod check;
pub mod command;
mod inspect;
pub mod job;
mod jobs;
mod leases;
pub mod ledger;
pub mod observe;
mod once;
mod operate;
pub mod retry;
mod runs;
pub mod schedule;
mod workers;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::clock::Micros;
use crate::id::{AcquisitionId, Fence, InstanceId, JobId, Name, OnceKey};

pub use command::*;
pub use job::{Claimed, Guarantee, JobRecord, JobState, RunOutcome, RunRecord, Step, state_diagram};
pub use retry::RetryPolicy;

/// Why the law refuses a change. Nothing was changed, except that the refusal itself may be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// There is no job, key or lock of this name.
    NotFound {
        /// What was looked for.
        what: String,
    },
    /// The job's state does not allow the step.
    Illegal {
        /// The job.
        job: JobId,
        /// Where it stands.
        state: JobState,
        /// What was asked.
        step: Step,
    },
    /// The write came with a fence that is not the current one.
    Stale {
        /// The identity that it was for.
        identity: String,
        /// The fence that it came with.
        fence: Fence,
        /// The current fence, if the identity is held.
        current: Option<Fence>,
    },
    /// The instance is dead, unknown, or its lease has run out.
    NotLive {
        /// Which one.
        instance: InstanceId,
    },
    /// The once key that a cancelled job needs back belongs to other work now.
    KeyTaken {
        /// Which key.
        key: String,
    },
    /// An unknown queue was to be resumed, or the like: there is nothing to do.
    NotPaused {
        /// Which queue.
        queue: Name,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { what } => write!(f, "{what} is not known"),
            Self::Illegal { job, state, step } => {
                write!(f, "job {job} is {state}, which does not allow {step:?}")
            }
            Self::Stale { identity, fence, current: Some(current) } => {
                write!(f, "refused: {identity} has fence {current} now, this write came with {fence}")
            }
            Self::Stale { identity, fence, current: None } => {
                write!(f, "refused: {identity} is not held any more, this write came with fence {fence}")
            }
            Self::NotLive { instance } => write!(f, "instance {instance} is not live"),
            Self::KeyTaken { key } => write!(f, "once key {key} belongs to other work now"),
            Self::NotPaused { queue } => write!(f, "queue {queue} is not paused"),
        }
    }
}

/// All state of one store.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub(crate) jobs: BTreeMap<JobId, JobRecord>,
    pub(crate) runs: BTreeMap<JobId, Vec<RunRecord>>,
    pub(crate) keys: BTreeMap<OnceKey, KeyRecord>,
    pub(crate) locks: BTreeMap<(Name, u32), Lock>,
    pub(crate) instances: BTreeMap<InstanceId, Instance>,
    pub(crate) pauses: BTreeMap<Name, Pause>,
    pub(crate) refusals: Vec<RefusalRecord>,
    pub(crate) counters: Counters,
    /// The last fence that was given.
    pub(crate) fences: i64,
    index: Index,
}

/// Orders that the verbs need; [`Model::check`] asserts that they agree with the records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Index {
    /// Ready jobs in the order of their claims.
    ready: BTreeSet<(Name, i16, Micros, JobId)>,
    /// Scheduled jobs by due time.
    scheduled: BTreeSet<(Micros, JobId)>,
    /// Running jobs by owner.
    owned: BTreeSet<(InstanceId, JobId)>,
    /// Ended jobs by the end of their retention.
    purge: BTreeSet<(Micros, JobId)>,
}

impl Index {
    fn insert(&mut self, job: &JobRecord) {
        match job.state {
            JobState::Ready => drop(self.ready.insert((job.queue.clone(), job.priority, job.due_at, job.id))),
            JobState::Scheduled => drop(self.scheduled.insert((job.due_at, job.id))),
            _ => {}
        }
        if let Some(claim) = &job.claim {
            self.owned.insert((claim.instance, job.id));
        }
        if let Some(at) = job.purge_at {
            self.purge.insert((at, job.id));
        }
    }

    fn remove(&mut self, job: &JobRecord) {
        self.ready.remove(&(job.queue.clone(), job.priority, job.due_at, job.id));
        self.scheduled.remove(&(job.due_at, job.id));
        if let Some(claim) = &job.claim {
            self.owned.remove(&(claim.instance, job.id));
        }
        if let Some(at) = job.purge_at {
            self.purge.remove(&(at, job.id));
        }
    }
}

/// One permit of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) fence: Fence,
    pub(crate) acquisition: AcquisitionId,
    pub(crate) holder: Name,
    /// How many its holder would share it with, itself included.
    pub(crate) permits: u32,
    pub(crate) since: Micros,
    pub(crate) lease_until: Micros,
}

/// One instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instance {
    pub(crate) new: NewInstance,
    pub(crate) live: bool,
    pub(crate) started_at: Micros,
    pub(crate) renewed_at: Micros,
    pub(crate) lease_until: Micros,
    /// From when on it may reap (lease clock): the others were given a heartbeat's time to renew themselves.
    pub(crate) reap_from: Micros,
}

impl Model {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in a job as a store keeps it: so a store lends the rows of one step to the law, instead of stating it
    /// anew.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn hold(&mut self, job: JobRecord) {
        self.index.insert(&job);
        self.jobs.insert(job.id, job);
    }

    fn next_fence(&mut self) -> Fence {
        self.fences += 1;
        Fence::from_i64(self.fences)
    }

    /// Changes one job and keeps the orders in step.
    fn change<T>(&mut self, id: JobId, step: impl FnOnce(&mut JobRecord) -> T) -> T {
        let job = self.jobs.get_mut(&id).expect("only known jobs are changed");
        self.index.remove(job);
        let answer = step(job);
        self.index.insert(job);
        answer
    }

    /// Keeps a refused write as evidence.
    fn refuse(&mut self, at: Micros, verb: &str, identity: String, fence: Option<Fence>) {
        self.counters.writes_refused += 1;
        self.refusals.push(RefusalRecord { at, verb: verb.to_owned(), identity, fence });
    }
}

#[cfg(test)]
mod tests;
