//! On SQLite: a closure, run with its finish as one transaction on the writer's thread, so that no transaction is open
//! across a foreign await.

use std::any::Any;
use std::sync::Arc;

use super::conclude;
use crate::client::Hapax;
use crate::error::{Error, ErrorKind, Result};
use crate::host::extract::{FromRun, MustFinish};
use crate::host::outcome::Finished;
use crate::host::run::Run;
use crate::model::Settled;
use crate::store::Store;
use crate::store::sqlite::{EffectAnswer, EffectTx, SqliteStore};
use crate::task::{BoxError, JobError};

/// The right to end this run together with its effect, in one transaction of the store: the effect takes place
/// **once**.
///
/// A task that asks for it cannot compile without returning the [`Finished`] that only
/// [`finish_with`](Self::finish_with) makes.
///
/// ```
/// use hapax::host::{Effect, Finished};
/// use hapax::{Job, JobError};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct CancelOrder {
///     order: i64,
/// }
///
/// impl Job for CancelOrder {
///     const KIND: &'static str = "cancel-order";
/// }
///
/// async fn cancel_order(job: CancelOrder, effect: Effect) -> Result<Finished, JobError> {
///     // Slow reading comes before; inside the closure every writer of the file waits.
///     effect
///         .finish_with(move |tx| {
///             tx.execute("update orders set state = 'cancelled' where id = ?1", [job.order])?;
///             Ok(())
///         })
///         .await
/// }
/// ```
#[derive(Debug)]
pub struct Effect(Run);

impl Effect {
    /// See [`Run::finish_with`].
    ///
    /// # Errors
    /// See [`Run::finish_with`].
    pub async fn finish_with<F>(self, effect: F) -> Result<Finished, JobError>
    where
        F: FnOnce(&EffectTx<'_>) -> Result<(), BoxError> + Send + 'static,
    {
        self.0.finish_with(effect).await
    }

    /// The run that it would end.
    pub fn run(&self) -> &Run {
        &self.0
    }
}

impl<S: Sync> FromRun<S> for Effect {
    type Needs = MustFinish;

    fn check(hapax: &Hapax) -> Result<()> {
        sqlite(hapax.store().as_ref()).map(drop)
    }

    async fn from_run(run: &Run, _: &S) -> Result<Self, JobError> {
        Ok(Self(run.clone()))
    }
}

impl Run {
    /// Does `effect` and ends this run as done, in one transaction of the store. Jobs that are enqueued on `tx` belong
    /// to it. What the task returns afterwards changes nothing.
    ///
    /// A lost answer of the store is settled by its ledger; the closure never runs twice.
    ///
    /// # Errors
    /// Nothing was committed if the closure failed, or if the run is not the current one any more. When not even the
    /// ledger can be read, the run's end is unknown. Return the error from the task: it says which it was.
    pub async fn finish_with<F>(&self, effect: F) -> Result<Finished, JobError>
    where
        F: FnOnce(&EffectTx<'_>) -> Result<(), BoxError> + Send + 'static,
    {
        let run = self.clone();
        // In a task of its own: whoever waits may be dropped, the answer is dealt with all the same.
        let settling = tokio::spawn(async move { settle(&run, effect).await });
        settling.await.unwrap_or_else(|error| Err(JobError::unknown(format!("the effect did not end: {error}"))))
    }
}

async fn settle<F>(run: &Run, effect: F) -> Result<Finished, JobError>
where
    F: FnOnce(&EffectTx<'_>) -> Result<(), BoxError> + Send + 'static,
{
    let store = Arc::clone(run.store());
    let sqlite = sqlite(store.as_ref()).map_err(JobError::not_done)?;
    run.set_ending(true);
    let answer = match sqlite.finish_with(run.reference(), effect).await {
        Ok(EffectAnswer::Counted { state, .. }) => Ok(Settled::Counted { state }),
        Ok(EffectAnswer::Refused { state, current }) => Ok(Settled::Refused { state, current }),
        Ok(EffectAnswer::EffectFailed(error)) => {
            run.set_ending(false);
            return Err(JobError::not_done(error));
        }
        Err(error) => Err(error),
    };
    conclude(run, answer).await
}

/// The store as one that can commit effects.
fn sqlite(store: &dyn Store) -> Result<&SqliteStore> {
    let any: &dyn Any = store.as_any();
    any.downcast_ref().ok_or_else(|| {
        let text = format!(
            "store `{}` cannot commit an effect as a closure; open the host on an SQLite store, take `EffectTx` on a \
             PostgreSQL one, or take `Run` instead of `Effect` and make the effect safe to repeat",
            store.name()
        );
        Error::did_not_happen(ErrorKind::Invalid, text)
    })
}
