//! Plain async functions as tasks.
//!
//! A function is a task in two steps, only for the sake of the compiler's messages. [`TaskFn`] looks at the shape alone:
//! so many arguments, a future of something. That settles which arguments and which result are meant; then [`Task`] asks
//! whether they are allowed, and the error names the one that is not.

use std::sync::Arc;

use super::extract::{FromRun, Meets};
use super::outcome::{IntoOutcome, TaskResult};
use super::run::Run;
use crate::client::Hapax;
use crate::error::Result;
use crate::task::{Job, JobError, Next};

/// A function with the shape of a task. Implemented for functions and closures of 1 to 7 arguments; nobody needs to name
/// it. `M` stands for the argument and result types.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has not the shape of a task",
    note = "a task is an `async fn(job, …)` that takes its job first, then up to six of `State<T>`, `Run`, `Effect`, …"
)]
pub trait TaskFn<M>: Clone + Send + Sync + 'static {}

/// The user's code for a kind of job: `async fn(J, extractors…) -> impl IntoOutcome`, where `J` is a [`Job`].
///
/// ```
/// use hapax::host::State;
/// use hapax::{Job, JobError, Run};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Greet {
///     name: String,
/// }
///
/// impl Job for Greet {
///     const KIND: &'static str = "greet";
/// }
///
/// async fn greet(job: Greet, State(greeting): State<String>, run: Run) -> Result<(), JobError> {
///     run.progress("began").await?;
///     println!("{greeting}, {}", job.name);
///     Ok(())
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a task",
    note = "a task is an `async fn(job, …)` that takes its job first, then up to six of `State<T>`, `Run`, `Effect`, …"
)]
pub trait Task<M, S>: TaskFn<M> {
    /// The kind of job that it runs.
    type Job: Job;

    /// Whether the host's store can give everything that it asks for.
    ///
    /// # Errors
    /// What is missing and how to mend it.
    fn check(hapax: &Hapax) -> Result<()>;

    /// Runs it once.
    fn call(self, run: Run, state: Arc<S>) -> impl Future<Output = TaskResult> + Send + 'static;
}

macro_rules! task {
    ($($part:ident $value:ident),*) => {
        impl<F, Fut, R, J, $($part,)*> TaskFn<fn(J, $($part,)*) -> R> for F
        where
            F: Fn(J, $($part,)*) -> Fut + Clone + Send + Sync + 'static,
            Fut: Future<Output = R>,
        {
        }

        impl<F, Fut, R, J, S, $($part,)*> Task<fn(J, $($part,)*) -> R, S> for F
        where
            F: Fn(J, $($part,)*) -> Fut + Clone + Send + Sync + 'static,
            Fut: Future<Output = R> + Send + 'static,
            R: IntoOutcome + 'static $(+ Meets<$part::Needs>)*,
            J: Job,
            S: Send + Sync + 'static,
            $($part: FromRun<S> + 'static,)*
        {
            type Job = J;

            fn check(hapax: &Hapax) -> Result<()> {
                $(<$part as FromRun<S>>::check(hapax)?;)*
                let _ = hapax;
                Ok(())
            }

            async fn call(self, run: Run, state: Arc<S>) -> TaskResult {
                let job = decode::<J>(&run)?;
                $(let $value = $part::from_run(&run, &state).await.map_err(not_begun)?;)*
                drop(state);
                let end = self(job, $($value,)*).await;
                end.into_outcome()
            }
        }
    };
}

task!();
task!(A a);
task!(A a, B b);
task!(A a, B b, C c);
task!(A a, B b, C c, D d);
task!(A a, B b, C c, D d, E e);
task!(A a, B b, C c, D d, E e, G g);

/// Reads the payload. One that no longer fits is parked with the reason; one that a newer program wrote waits for it.
fn decode<J: Job>(run: &Run) -> Result<J, JobError> {
    serde_json::from_str(run.payload()).map_err(|error| {
        let (theirs, ours) = (run.payload_version(), J::PAYLOAD_VERSION);
        if theirs > ours {
            let text = format!("payload version {theirs} is newer than this program's {ours}: {error}");
            return JobError::not_done(text);
        }
        JobError::park(format!("the payload is no `{}` of version {ours}: {error}", J::KIND))
    })
}

/// An extractor's error comes before the task: certain that nothing took effect.
fn not_begun(error: JobError) -> JobError {
    let next = if error.next == Next::Retry { Next::NotDone } else { error.next };
    JobError { next, ..error }
}
