//! What a task may ask for besides its job: by type, and checked by the compiler.

use crate::client::Hapax;
use crate::error::Result;
use crate::task::JobError;

use super::outcome::Finished;
use super::run::Run;

/// Something that a task may ask for. `S` is the state that the host was built with.
///
/// Own extractors are welcome: what is made anew for each run, such as a client that carries the delivery id.
///
/// ```
/// use hapax::host::{FromRun, Nothing};
/// use hapax::{JobError, Run};
///
/// struct Deliver {
///     idempotency_key: String,
/// }
///
/// impl<S: Sync> FromRun<S> for Deliver {
///     type Needs = Nothing;
///
///     async fn from_run(run: &Run, _state: &S) -> Result<Self, JobError> {
///         Ok(Self { idempotency_key: run.delivery_id().to_string() })
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "a task cannot ask for `{Self}`",
    label = "not something that a run or the host's state can give",
    note = "a task takes its job first, then any of `State<T>`, `Run`, `Effect`, `EffectTx`, or any `FromRun`",
    note = "for `State<T>` the host's state must be a `T`, or implement `FromRef` for it"
)]
pub trait FromRun<S>: Sized + Send {
    /// What a task that asks for this must return: [`Nothing`] in particular, or [`MustFinish`].
    type Needs;

    /// Whether the host's store can give it at all; asked once for each task when the host starts.
    ///
    /// # Errors
    /// What is missing and how to mend it: the host does not start.
    fn check(hapax: &Hapax) -> Result<()> {
        let _ = hapax;
        Ok(())
    }

    /// Makes it for one run, before the task begins.
    ///
    /// # Errors
    /// The run ends with it. An error that asks for a retry is taken as proof that nothing took effect.
    fn from_run(run: &Run, state: &S) -> impl Future<Output = Result<Self, JobError>> + Send;
}

/// The task may return what it likes.
#[derive(Debug)]
pub enum Nothing {}

/// The task must return a [`Finished`], so that it cannot forget to commit.
#[derive(Debug)]
pub enum MustFinish {}

/// Whether a task that returns `Self` satisfies what its extractors need.
#[diagnostic::on_unimplemented(
    message = "a task that takes an `Effect` or `EffectTx` must return `Finished`, or a `Result` with it",
    label = "`{Self}` does not prove that the effect was committed",
    note = "end the task with `effect.finish_with(|tx| …).await` or `tx.finish().await`, which commits both"
)]
pub trait Meets<N> {}

impl<R> Meets<Nothing> for R {}
impl Meets<MustFinish> for Finished {}
impl<E> Meets<MustFinish> for Result<Finished, E> {}

/// A part of the host's state, by its type: `State(mailer): State<Mailer>`.
///
/// ```
/// use hapax::Job;
/// use hapax::host::{FromRef, State};
///
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Welcome;
/// # impl Job for Welcome { const KIND: &'static str = "welcome"; }
/// #[derive(Clone)]
/// struct Mailer;
///
/// #[derive(Clone)]
/// struct App {
///     mailer: Mailer,
/// }
///
/// impl FromRef<App> for Mailer {
///     fn from_ref(app: &App) -> Self {
///         app.mailer.clone()
///     }
/// }
///
/// async fn welcome(_job: Welcome, State(mailer): State<Mailer>) {
///     let _ = mailer;
/// }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct State<T>(pub T);

/// How a part is taken from the host's state. The whole state is a part of itself.
#[diagnostic::on_unimplemented(
    message = "the host's state `{S}` has no part `{Self}`",
    note = "implement `FromRef<{S}>` for `{Self}`, or build the host with a state that is a `{Self}`"
)]
pub trait FromRef<S> {
    /// Takes the part, usually a cheap clone.
    fn from_ref(state: &S) -> Self;
}

impl<T: Clone> FromRef<T> for T {
    fn from_ref(state: &T) -> T {
        state.clone()
    }
}

impl<S: Sync, T: FromRef<S> + Send> FromRun<S> for State<T> {
    type Needs = Nothing;

    async fn from_run(_: &Run, state: &S) -> Result<Self, JobError> {
        Ok(Self(T::from_ref(state)))
    }
}

impl<S: Sync> FromRun<S> for Run {
    type Needs = Nothing;

    async fn from_run(run: &Run, _: &S) -> Result<Self, JobError> {
        Ok(run.clone())
    }
}
