//! On PostgreSQL: a transaction that the task takes along.

use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use sqlx::postgres::PgConnection;
use sqlx::{Database, Postgres, Transaction};

use super::conclude;
use crate::client::Hapax;
use crate::error::{Error, ErrorKind, Result};
use crate::host::extract::{FromRun, Settlement};
use crate::host::outcome::Finished;
use crate::host::run::Run;
use crate::id::Fence;
use crate::store::Store;
use crate::store::postgres::PostgresStore;
use crate::task::JobError;

/// A transaction of the store's database in which this run takes effect: what is written with it, the jobs that are
/// enqueued on it and the finish of the run are one commit. So the effect takes place **once**.
///
/// A task that asks for it cannot compile without returning the [`Finished`] that only [`finish`](Self::finish) makes.
/// Dropped without it, everything is undone.
///
/// It is begun before the task is called. If the program stands still between two of its statements for longer than
/// what is left of the lease, the server ends it, so that the rows which it has locked do not hold up the run that
/// takes over. So slow work that needs no transaction comes before: see [`Run::finish_in`] for a transaction that is
/// begun late.
///
/// ```
/// use hapax::host::{EffectTx, Finished};
/// use hapax::{Job, JobError};
/// use sqlx::Postgres;
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
/// async fn cancel_order(job: CancelOrder, mut tx: EffectTx<Postgres>) -> Result<Finished, JobError> {
///     sqlx::query("update orders set state = 'cancelled' where id = $1").bind(job.order).execute(&mut *tx).await?;
///     tx.finish().await
/// }
/// ```
pub struct EffectTx<DB: Database> {
    run: Run,
    tx: Transaction<'static, DB>,
    result: Option<String>,
}

impl<DB: Database> EffectTx<DB> {
    /// The run whose effect this is.
    pub const fn run(&self) -> &Run {
        &self.run
    }

    /// The fence of the run, to be kept beside the user's own rows.
    pub fn fence(&self) -> Fence {
        self.run.fence()
    }

    /// What the job keeps as its result, cut at 64 KiB with a mark.
    pub fn set_result(&mut self, text: &str) {
        self.result = Some(crate::id::kept_text(text));
    }
}

impl EffectTx<Postgres> {
    /// Ends the run as done and commits, in one: both are there, or neither.
    ///
    /// A lost answer of the store is settled by its ledger.
    ///
    /// # Errors
    /// Nothing was committed if an earlier statement failed, or if the run is not the current one any more. When not
    /// even the ledger can be read, the run's end is unknown. Return the error from the task: it says which it was.
    pub async fn finish(self) -> Result<Finished, JobError> {
        finish(self.run, (self.tx, self.result)).await
    }
}

impl Deref for EffectTx<Postgres> {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.tx
    }
}

impl DerefMut for EffectTx<Postgres> {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.tx
    }
}

impl<DB: Database> fmt::Debug for EffectTx<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EffectTx").field("run", &self.run).finish_non_exhaustive()
    }
}

impl<S: Sync> FromRun<S> for EffectTx<Postgres> {
    type Needs = Settlement;

    fn check(hapax: &Hapax) -> Result<()> {
        postgres(hapax.store().as_ref()).map(drop)
    }

    async fn from_run(run: &Run, _: &S) -> Result<Self, JobError> {
        let store = Arc::clone(run.store());
        let postgres = postgres(store.as_ref()).map_err(JobError::not_done)?;
        let mut tx = postgres.begin_effect(run.home().lease_left()).await.map_err(JobError::not_done)?;
        postgres.proves(&mut tx).await.map_err(JobError::not_done)?;
        Ok(Self { run: run.clone(), tx, result: None })
    }
}

impl Run {
    /// Ends this run as done in a transaction that holds its effect, and commits it: both are there, or neither. For
    /// effects whose transaction is begun late, after slow work; begin it with
    /// [`PostgresStore::begin_effect`](crate::store::postgres::PostgresStore::begin_effect) or on any pool of the same
    /// database. What the task returns afterwards changes nothing.
    ///
    /// # Errors
    /// As [`EffectTx::finish`], and when the transaction is in another database than the store.
    pub async fn finish_in(&self, mut tx: Transaction<'static, Postgres>) -> Result<Finished, JobError> {
        let store = Arc::clone(self.store());
        let postgres = postgres(store.as_ref()).map_err(JobError::not_done)?;
        postgres.proves(&mut tx).await.map_err(JobError::not_done)?;
        finish(self.clone(), (tx, None)).await
    }
}

async fn finish(
    run: Run,
    (tx, result): (Transaction<'static, Postgres>, Option<String>),
) -> Result<Finished, JobError> {
    // In a task of its own: whoever waits may be dropped, the answer is dealt with all the same.
    let ending = tokio::spawn(async move {
        let store = Arc::clone(run.store());
        let postgres = postgres(store.as_ref()).map_err(JobError::not_done)?;
        run.set_ending(true);
        conclude(&run, postgres.finish_in(tx, run.reference(), result).await).await
    });
    ending.await.unwrap_or_else(|error| Err(JobError::unknown(format!("the effect did not end: {error}"))))
}

/// The store as one that can commit effects.
fn postgres(store: &dyn Store) -> Result<&PostgresStore> {
    let any: &dyn Any = store.as_any();
    any.downcast_ref().ok_or_else(|| {
        let text = format!(
            "store `{}` cannot commit an effect in a PostgreSQL transaction; open the host on a PostgreSQL store, or \
             take `Run` instead of `EffectTx` and make the effect safe to repeat",
            store.name()
        );
        Error::did_not_happen(ErrorKind::Invalid, text)
    })
}
