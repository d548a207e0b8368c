//! A job: its states, and the one table of what may happen to it.

use serde::{Deserialize, Serialize};

use super::retry::RetryPolicy;
use crate::clock::Micros;
use crate::id::{ClaimId, Fence, Fingerprint, InstanceId, JobId, Name, OnceKey, Payload};

/// Where a job stands. Each variant says what leads out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Waits for its due time. Left by that time (`ready`), an operator's retry (`ready`), park or cancel.
    Scheduled,
    /// May be claimed. Left by a claim (`running`), park or cancel.
    Ready,
    /// Claimed by an instance under a fence. Left by the finish of that fence, by giving it back (`ready`), by its
    /// deadline, or by a takeover once its owner is dead.
    Running,
    /// Took effect. Final.
    Done,
    /// Given up until a person decides. Left by retry (`ready`) or cancel.
    Parked,
    /// Will not run. Left only by an operator's retry (`ready`), which needs the once key to be free.
    Cancelled,
    /// At most once, and nobody knows whether it took effect. Left only by an operator's or reconciler's decision.
    InDoubt,
}

impl JobState {
    /// Every state, in the order in which people read them.
    pub const ALL: [Self; 7] =
        [Self::Scheduled, Self::Ready, Self::Running, Self::Done, Self::Parked, Self::Cancelled, Self::InDoubt];
    /// States that a claim may take a job from.
    pub const CLAIMABLE: &'static [Self] = &[Self::Ready];
    /// States that `cancel` ends at once; a running job is only asked to stop.
    pub const CANCELLABLE: &'static [Self] = &[Self::Scheduled, Self::Ready, Self::Parked];
    /// States that an operator's `retry` makes ready again.
    pub const RETRYABLE: &'static [Self] = &[Self::Scheduled, Self::Parked, Self::Cancelled];
    /// States that an operator's `park` may take a job from.
    pub const PARKABLE: &'static [Self] = &[Self::Scheduled, Self::Ready];
    /// States whose jobs are deleted once their retention has passed.
    pub const PRUNABLE: &'static [Self] = &[Self::Done, Self::Cancelled];

    /// The word used in tables, metrics and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Done => "done",
            Self::Parked => "parked",
            Self::Cancelled => "cancelled",
            Self::InDoubt => "in_doubt",
        }
    }

    /// The state with this word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == text)
    }
}

impl std::fmt::Display for JobState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// What happens to a job, as the table of [`next`] knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Its due time has come.
    Due,
    /// An instance claims it.
    Claim,
    /// The current run took effect.
    Done,
    /// The current run ended and another is due at once.
    AgainNow,
    /// The current run ended and another is due later.
    AgainLater,
    /// The current run gave up, or a limit was used up.
    GiveUp,
    /// The current run ended as cancelled.
    EndCancelled,
    /// The current run may have taken effect, and must not be repeated.
    Doubt,
    /// The instance gives the claim back; nothing was begun.
    Release,
    /// The reaper takes it back from a dead owner or past its deadline.
    TakeBack,
    /// An operator cancels it.
    Cancel,
    /// An operator wants it to run now.
    Retry,
    /// An operator parks it.
    Park,
    /// A person or reconciler found that it took effect.
    ResolveDone,
    /// A person or reconciler found that it did not, and wants no further run.
    ResolveNotDone,
    /// A person or reconciler found that it did not, and wants it to run.
    ResolveRetry,
}

impl Step {
    /// Every step.
    pub const ALL: [Self; 16] = [
        Self::Due,
        Self::Claim,
        Self::Done,
        Self::AgainNow,
        Self::AgainLater,
        Self::GiveUp,
        Self::EndCancelled,
        Self::Doubt,
        Self::Release,
        Self::TakeBack,
        Self::Cancel,
        Self::Retry,
        Self::Park,
        Self::ResolveDone,
        Self::ResolveNotDone,
        Self::ResolveRetry,
    ];
}

/// What a step does to the job's once key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyEffect {
    /// Held, as before or again; refused if another took it meanwhile.
    Held,
    /// Done: refused until the key's retention ends, whether or not the job still exists.
    Done,
    /// Free for anybody at once.
    Free,
}

/// Whether the job is kept for good after a step, or deleted after its retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// Never deleted in this state.
    Kept,
    /// Deleted by the pruner once the job's `keep_ms` has passed, and [`KEEP_MS_MIN`].
    Timed,
}

/// One cell of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The state after the step.
    pub to: JobState,
    /// What becomes of the once key.
    pub key: KeyEffect,
    /// Whether the job may be deleted later.
    pub keep: Retention,
}

/// The law of jobs: what `step` makes of a job in `state`; nothing, if it is not allowed.
pub const fn next(state: JobState, step: Step) -> Option<Transition> {
    use JobState as S;
    use Step as D;
    let to = match (state, step) {
        (S::Scheduled, D::Due | D::Retry)
        | (S::Running, D::AgainNow | D::Release | D::TakeBack)
        | (S::Parked | S::Cancelled, D::Retry)
        | (S::InDoubt, D::ResolveRetry) => S::Ready,
        (S::Ready, D::Claim) => S::Running,
        (S::Running, D::AgainLater) => S::Scheduled,
        (S::Running, D::Done) | (S::InDoubt, D::ResolveDone) => S::Done,
        (S::Running, D::GiveUp) | (S::Scheduled | S::Ready, D::Park) => S::Parked,
        (S::Running, D::EndCancelled)
        | (S::Scheduled | S::Ready | S::Parked, D::Cancel)
        | (S::InDoubt, D::ResolveNotDone) => S::Cancelled,
        (S::Running, D::Doubt) => S::InDoubt,
        _ => return None,
    };
    let (key, keep) = match to {
        S::Done => (KeyEffect::Done, Retention::Timed),
        S::Cancelled => (KeyEffect::Free, Retention::Timed),
        _ => (KeyEffect::Held, Retention::Kept),
    };
    Some(Transition { to, key, keep })
}

/// What the "once" of a job's effect rests on. Said by the task's author; kept with the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guarantee {
    /// The effect commits with the finish, in one transaction of one database: once.
    Transactional,
    /// The target refuses a fence lower than one it has seen.
    Fenced,
    /// The target deduplicates on the delivery id, which is the same on every attempt.
    Keyed,
    /// Never run twice; after a crash or an unclear end it is *in doubt* and waits for a decision.
    AtMostOnce,
    /// May repeat. Said plainly.
    #[default]
    AtLeastOnce,
}

impl Guarantee {
    /// Every guarantee, strongest first.
    pub const ALL: [Self; 5] = [Self::Transactional, Self::Fenced, Self::Keyed, Self::AtMostOnce, Self::AtLeastOnce];

    /// The word used in tables and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Transactional => "transactional",
            Self::Fenced => "fenced",
            Self::Keyed => "keyed",
            Self::AtMostOnce => "at_most_once",
            Self::AtLeastOnce => "at_least_once",
        }
    }

    /// The guarantee with this word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|g| g.as_str() == text)
    }
}

/// A job as a store keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobRecord {
    /// Its id, which is also the delivery id that attempts send to others.
    pub id: JobId,
    /// The queue it waits in.
    pub queue: Name,
    /// Which task runs it.
    pub kind: Name,
    /// JSON text for the task, byte for byte as it was enqueued.
    pub payload: Payload,
    /// Version of the payload's form, for the task to tell old from new.
    pub payload_version: u16,
    /// Smaller runs first.
    pub priority: i16,
    /// Where it stands.
    pub state: JobState,
    /// Not before this instant (wall clock).
    pub due_at: Micros,
    /// When the store took it (wall clock).
    pub enqueued_at: Micros,
    /// Its once key, if it has one.
    pub once: Option<OnceKey>,
    /// What its once key says the work is.
    pub fingerprint: Option<Fingerprint>,
    /// What its effect's "once" rests on.
    pub guarantee: Guarantee,
    /// When it runs again after a failure, and how often.
    pub retry: RetryPolicy,
    /// Longest time one run may take, in milliseconds.
    pub run_timeout_ms: u64,
    /// How long it is kept after its end, in milliseconds; at least [`KEEP_MS_MIN`].
    pub keep_ms: u64,
    /// How long its once key is refused after it is done, in milliseconds.
    pub keep_key_ms: u64,
    /// The fence of its last claim.
    pub fence: Option<Fence>,
    /// The fence of the last run that ended by its own finish: what settles a lost answer.
    pub ended_fence: Option<Fence>,
    /// Who runs it now.
    pub claim: Option<Claimed>,
    /// Runs that have ended, whatever their outcome, except those given back untouched.
    pub runs: u32,
    /// Ended runs that count towards the retry policy's `max_attempts`.
    pub failures: u32,
    /// Started runs that were taken back from a dead owner.
    pub takeovers: u32,
    /// Runs taken back in a row, from a dead owner or at their deadline, of which nobody knows whether they had
    /// started.
    pub unstarted_takeovers: u32,
    /// Suspected of killing its owner: claimed alone, with its start recorded first.
    pub suspect: bool,
    /// Somebody asked the current run to stop; a current `done` still wins.
    pub cancel_requested: bool,
    /// What the current run last said of its progress.
    pub progress: Option<String>,
    /// What the task returned.
    pub result: Option<String>,
    /// The last error, or why it was parked or cancelled.
    pub reason: Option<String>,
    /// When it reached its present final or parked state (wall clock).
    pub finished_at: Option<Micros>,
    /// When the pruner may delete it (wall clock).
    pub purge_at: Option<Micros>,
    /// Late writes against it that were refused.
    pub refused: u32,
}

/// The present claim of a running job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Claimed {
    /// The instance that owns the run.
    pub instance: InstanceId,
    /// The claim it came with.
    pub claim: ClaimId,
    /// When it was claimed (wall clock).
    pub at: Micros,
    /// When its start was recorded (wall clock); nothing while nobody knows whether it has started.
    pub started_at: Option<Micros>,
    /// When the run must have ended (lease clock).
    pub deadline: Micros,
}

/// How a run ended, other than by taking effect or by being given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// The task said that it failed.
    Failed,
    /// The effect may or may not have happened.
    Unknown,
    /// Its owner died and it was taken back.
    Lost,
    /// It ran past its deadline.
    TimedOut,
    /// The task asked to be run again later; no failure.
    Snoozed,
    /// It was asked to stop and did.
    Cancelled,
}

impl RunOutcome {
    /// Every outcome.
    pub const ALL: [Self; 6] =
        [Self::Failed, Self::Unknown, Self::Lost, Self::TimedOut, Self::Snoozed, Self::Cancelled];

    /// The word used in tables and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::Lost => "lost",
            Self::TimedOut => "timed_out",
            Self::Snoozed => "snoozed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The outcome with this word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|o| o.as_str() == text)
    }
}

/// One ended run of a job, kept with it. The run that took effect stands in the job itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunRecord {
    /// Its number, from 1.
    pub number: u32,
    /// Its fence.
    pub fence: Fence,
    /// Who ran it.
    pub instance: InstanceId,
    /// When its start was recorded (wall clock).
    pub started_at: Option<Micros>,
    /// When the store recorded its end (wall clock).
    pub ended_at: Micros,
    /// How it ended.
    pub outcome: RunOutcome,
    /// The error or reason.
    pub detail: Option<String>,
}

/// The shortest time that an ended job is kept, whatever it asks for, in milliseconds: 10 minutes. An enqueue whose
/// answer was lost is repeated with the same id, and is a no-op for as long as the job is there.
pub const KEEP_MS_MIN: u64 = 600_000;
/// How many ended runs are kept with a job; older ones are dropped.
pub const RUNS_KEPT_MAX: u32 = 20;
/// The takeover of a started run that parks the job, unless the retry policy allows fewer.
pub const TAKEOVERS_MAX: u32 = 3;
/// Take-backs in a row without a known start after which a job is a suspect.
pub const UNSTARTED_TAKEOVERS_MAX: u32 = 2;

/// The state diagram, as Mermaid text, printed from the table.
pub fn state_diagram() -> String {
    let mut lines = vec!["stateDiagram-v2".to_owned(), "    [*] --> scheduled: enqueue, due later".to_owned()];
    lines.push("    [*] --> ready: enqueue".to_owned());
    for from in JobState::ALL {
        for to in JobState::ALL {
            let steps: Vec<String> = Step::ALL
                .into_iter()
                .filter(|step| next(from, *step).is_some_and(|t| t.to == to))
                .map(|step| format!("{step:?}"))
                .collect();
            if !steps.is_empty() {
                lines.push(format!("    {from} --> {to}: {}", steps.join(", ")));
            }
        }
    }
    for state in JobState::PRUNABLE {
        lines.push(format!("    {state} --> [*]: retention has passed"));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_sets_are_what_the_table_allows() {
        let allowed = |step: Step| -> Vec<JobState> {
            JobState::ALL.into_iter().filter(|state| next(*state, step).is_some()).collect()
        };
        assert_eq!(allowed(Step::Claim), JobState::CLAIMABLE);
        assert_eq!(allowed(Step::Cancel), JobState::CANCELLABLE);
        assert_eq!(allowed(Step::Retry), JobState::RETRYABLE);
        assert_eq!(allowed(Step::Park), JobState::PARKABLE);
        let timed = |state: &JobState| {
            let into = |from: JobState, step: Step| next(from, step).filter(|t| t.to == *state);
            JobState::ALL.into_iter().any(|from| {
                Step::ALL.into_iter().any(|step| into(from, step).is_some_and(|t| t.keep == Retention::Timed))
            })
        };
        assert_eq!(JobState::ALL.into_iter().filter(timed).collect::<Vec<_>>(), JobState::PRUNABLE);
    }

    #[test]
    fn nothing_leads_out_of_done() {
        assert!(Step::ALL.into_iter().all(|step| next(JobState::Done, step).is_none()));
    }

    #[test]
    fn only_the_claim_leads_into_running() {
        for from in JobState::ALL {
            for step in Step::ALL {
                let running = next(from, step).is_some_and(|t| t.to == JobState::Running);
                assert_eq!(running, from == JobState::Ready && step == Step::Claim, "{from} {step:?}");
            }
        }
    }
}
