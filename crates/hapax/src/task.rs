//! What a user implements: a payload type that carries a job's identity, and the errors that say what should happen.
//!
//! The work itself is a plain async function; see [`host`](crate::host).

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::{Guarantee, RetryPolicy};

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A payload type: the identity and the defaults of a kind of job.
///
/// ```
/// use hapax::Job;
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct CancelOrder {
///     order: i64,
/// }
///
/// impl Job for CancelOrder {
///     const KIND: &'static str = "cancel-order";
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a job",
    label = "does not say of which kind it is",
    note = "implement `Job` for it, with its `KIND`; a task takes its job as its first argument"
)]
pub trait Job: Serialize + DeserializeOwned + Send + 'static {
    /// Names the kind in the store: never derived from the type's name, so that renaming the type orphans no job.
    /// 1 to 128 bytes, no control characters.
    const KIND: &'static str;
    /// The queue it waits in unless told otherwise.
    const QUEUE: &'static str = "default";
    /// What the "once" of its effect rests on. [`Guarantee::AtMostOnce`] changes how it is run; the others are what the
    /// author promises, shown to people.
    const GUARANTEE: Guarantee = Guarantee::AtLeastOnce;
    /// When a failed run is repeated, and how often. The default: 20 attempts, from 1 s up to 1 h.
    const RETRY: RetryPolicy = RetryPolicy { max_attempts: 20, base_ms: 1_000, cap_ms: 3_600_000, jitter_percent: 20 };
    /// The longest that one run may take; then it is cancelled, and taken back by the store at the latest.
    const RUN_TIMEOUT: Duration = Duration::from_mins(10);
    /// Version of the payload's form, to be raised when old payloads no longer deserialize as new ones.
    const PAYLOAD_VERSION: u16 = 1;

    /// The once key of this very payload, if every job of the kind has one. `once(…)` at the call wins over it.
    fn once_key(&self) -> Option<String> {
        None
    }
}

/// How a run failed, and what should happen next. Any other error becomes [`JobError::retry`] by `?`.
///
/// It does not implement `std::error::Error`; only so can `?` take any error.
pub struct JobError {
    pub(crate) next: Next,
    pub(crate) source: BoxError,
}

/// What a task wants after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// By the job's policy. Of an at-most-once job nobody can tell whether it took effect: in doubt.
    Retry,
    /// Certain that nothing happened: by the policy, at-most-once jobs included.
    NotDone,
    /// As `Retry`, and not before this delay.
    RetryAfter(Duration),
    /// The effect may have happened.
    Unknown,
    /// Again later; no failure.
    Snooze(Duration),
    Park,
    Cancel,
}

impl JobError {
    /// Run it again by the job's policy; what `?` does with any error. An at-most-once job becomes *in doubt* instead:
    /// say [`not_done`](Self::not_done) where you are certain.
    pub fn retry(error: impl Into<BoxError>) -> Self {
        Self { next: Next::Retry, source: error.into() }
    }

    /// Certain that nothing took effect: run it again by the policy, at-most-once jobs included.
    pub fn not_done(error: impl Into<BoxError>) -> Self {
        Self { next: Next::NotDone, source: error.into() }
    }

    /// Run it again, and not before `delay` has passed; a delay that the receiver asked for is never shortened.
    pub fn retry_after(delay: Duration, error: impl Into<BoxError>) -> Self {
        Self { next: Next::RetryAfter(delay), source: error.into() }
    }

    /// The effect may or may not have happened, such as a timeout after sending. A keyed, fenced or at-least-once job
    /// runs again with the same delivery id; an at-most-once job is in doubt.
    pub fn unknown(error: impl Into<BoxError>) -> Self {
        Self { next: Next::Unknown, source: error.into() }
    }

    /// Nothing is wrong, it is only too early: run it again after `delay`, without counting a failure.
    pub fn snooze(delay: Duration) -> Self {
        Self { next: Next::Snooze(delay), source: "too early".into() }
    }

    /// Give up until a person decides.
    pub fn park(error: impl Into<BoxError>) -> Self {
        Self { next: Next::Park, source: error.into() }
    }

    /// The work is not wanted any more; its once key is free again.
    pub fn cancel(error: impl Into<BoxError>) -> Self {
        Self { next: Next::Cancel, source: error.into() }
    }
}

impl<E: Into<BoxError>> From<E> for JobError {
    fn from(error: E) -> Self {
        Self::retry(error)
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.source)?;
        let mut cause = self.source.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl fmt::Debug for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobError({:?}, {self})", self.next)
    }
}
