//! What a task may return, and what that makes of its run.

use serde::Serialize;

use super::signal::StopReason;
use crate::id::kept_text;
use crate::model::{End, Guarantee, JobRecord, RunOutcome};
use crate::task::{JobError, Next};

/// How a task ended by itself: the JSON text that is kept with the job, or an error that says what should happen.
pub type TaskResult = Result<Option<String>, JobError>;

/// What a task may return: `()`, [`Finished`], [`Returned`], or a `Result` of one of these whose error `?` can take.
#[diagnostic::on_unimplemented(
    message = "a task cannot return `{Self}`",
    note = "return `()`, `Finished`, `Returned(value)`, or a `Result` of one of them with `JobError` or any error"
)]
pub trait IntoOutcome {
    /// The text to keep, or the error.
    fn into_outcome(self) -> TaskResult;
}

impl IntoOutcome for () {
    fn into_outcome(self) -> TaskResult {
        Ok(None)
    }
}

/// Proof that a run's effect and its finish were committed together. Made only by what commits both:
/// `Effect::finish_with` and `Run::finish_with` on SQLite, `EffectTx::finish` and `Run::finish_in` on PostgreSQL.
#[derive(Debug)]
#[must_use = "a task that takes an `Effect` or `EffectTx` returns it"]
pub struct Finished(());

impl Finished {
    #[cfg_attr(
        not(any(feature = "sqlite", feature = "postgres")),
        expect(dead_code, reason = "only a store with transactions makes one")
    )]
    pub(crate) const fn new() -> Self {
        Self(())
    }
}

impl IntoOutcome for Finished {
    fn into_outcome(self) -> TaskResult {
        Ok(None)
    }
}

/// A value to keep with the job as JSON text, for whoever asks for the job later; cut at 64 KiB with a mark.
///
/// A value that cannot be written as JSON is not kept, and that is logged: the work itself was done.
///
/// ```
/// use hapax::host::Returned;
/// use hapax::{Job, JobError};
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Count { words: String }
/// # impl Job for Count { const KIND: &'static str = "count"; }
///
/// async fn count(job: Count) -> Result<Returned<usize>, JobError> {
///     Ok(Returned(job.words.split(' ').count()))
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Returned<T>(pub T);

impl<T: Serialize> IntoOutcome for Returned<T> {
    fn into_outcome(self) -> TaskResult {
        match serde_json::to_string(&self.0) {
            Ok(text) => Ok(Some(text)),
            Err(error) => {
                tracing::warn!(%error, "a returned value cannot be written as JSON and is not kept");
                Ok(None)
            }
        }
    }
}

impl<T: IntoOutcome, E: Into<JobError>> IntoOutcome for Result<T, E> {
    fn into_outcome(self) -> TaskResult {
        self.map_err(Into::into)?.into_outcome()
    }
}

/// How a run's task came to its end.
#[derive(Debug)]
pub(crate) enum HowEnded {
    /// By itself.
    Returned(TaskResult),
    /// It panicked, with this text.
    Panicked(String),
    /// It did not heed a signal to stop, and was dropped at an await.
    Dropped(StopReason),
}

/// The law of endings: what a run's end is to the store. `random` spreads the delay.
pub(crate) fn end_of(job: &JobRecord, how: HowEnded, random: u32) -> End {
    let at_most_once = job.guarantee == Guarantee::AtMostOnce;
    // Of an at-most-once job nobody can tell whether a failed run took effect, unless its task says so.
    let failed = if at_most_once { RunOutcome::Unknown } else { RunOutcome::Failed };
    let delay_ms = job.retry.delay_ms(job.failures.saturating_add(1), random);
    let again = |outcome, delay_ms, detail: String| End::Again { outcome, delay_ms, detail: kept_text(&detail) };
    match how {
        HowEnded::Returned(Ok(result)) => End::Done { result: result.map(|text| kept_text(&text)) },
        HowEnded::Returned(Err(error)) => {
            let text = error.to_string();
            match error.next {
                Next::Retry => again(failed, delay_ms, text),
                Next::NotDone => again(RunOutcome::Failed, delay_ms, text),
                Next::RetryAfter(asked) => again(failed, at_least(asked, delay_ms, job, random), text),
                Next::Unknown => again(RunOutcome::Unknown, delay_ms, text),
                Next::Snooze(delay) => again(RunOutcome::Snoozed, millis(delay), text),
                Next::Park => End::Park { reason: kept_text(&text) },
                Next::Cancel => End::Cancelled { reason: kept_text(&text) },
            }
        }
        HowEnded::Panicked(text) => again(failed, delay_ms, format!("panicked: {text}")),
        HowEnded::Dropped(reason) => {
            let text = format!("stopped by its host, since {reason}");
            match reason {
                StopReason::Deadline => again(RunOutcome::TimedOut, delay_ms, text),
                // A shutdown is nobody's failure: neither counted nor waited for.
                StopReason::Shutdown if !at_most_once => again(RunOutcome::Snoozed, 0, text),
                // The store cancels a job that was asked to stop, unless it must be in doubt.
                StopReason::Shutdown | StopReason::CancelRequested | StopReason::LeaseLost => {
                    again(RunOutcome::Unknown, delay_ms, text)
                }
            }
        }
    }
}

/// The longer of what the receiver asked for and the policy's delay. What was asked for is never shortened; it is
/// spread upwards, so that a thousand jobs that were told the same do not come back together.
fn at_least(asked: std::time::Duration, delay_ms: u64, job: &JobRecord, random: u32) -> u64 {
    let asked_ms = millis(asked);
    let share = u128::from(asked_ms) * u128::from(job.retry.jitter_percent.min(100)) / 100;
    let spread = share * u128::from(random) / u128::from(u32::MAX);
    asked_ms.saturating_add(u64::try_from(spread).unwrap_or(0)).max(delay_ms)
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Every label that [`label_of`] gives, and that of a refused finish.
pub(crate) const LABELS: [&str; 9] =
    ["done", "failed", "unknown", "lost", "timed_out", "snoozed", "parked", "cancelled", "refused"];

/// What metrics call the end of a run.
pub(crate) const fn label_of(end: &End) -> &'static str {
    match end {
        End::Done { .. } => "done",
        End::Again { outcome, .. } => outcome.as_str(),
        End::Park { .. } => "parked",
        End::Cancelled { .. } => "cancelled",
    }
}
