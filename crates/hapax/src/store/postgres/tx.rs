//! The same verbs in the user's transaction, and effects that commit with the finish of their run.

use std::future::Future;
use std::pin::Pin;
use std::sync::LazyLock;
use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{Executor, Postgres, Transaction};

use super::rows::{self, fetch};
use super::slice::{Slice, Wanted};
use super::step::{DEFAULT_SCHEMA, Home, Step};
use super::{PostgresStore, fault, jobs, migrate, runs};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{End, Finish, LockRef, NewJob, RunRef, Settled};
use crate::store::sealed::Sealed;
use crate::store::{EnqueueIn, Enqueues, Jobs, Store};

// ---------------------------------------------------------------------------------------- in the user's transaction

/// The schema that is used unless another is named.
static DEFAULT_HOME: LazyLock<Home> = LazyLock::new(|| Home::new(DEFAULT_SCHEMA, None));

/// How errors of the user's connection name it.
const ADDRESS: &str = "this PostgreSQL connection";

/// A transaction of the user's, in a database whose hapax tables are in another schema than `hapax`.
#[derive(Debug)]
pub struct InSchema<'c> {
    connection: &'c mut PgConnection,
    schema: String,
}

impl<'c> InSchema<'c> {
    /// The connection, and the name of the schema.
    pub fn new(connection: &'c mut PgConnection, schema: &str) -> Self {
        Self { connection, schema: schema.to_owned() }
    }
}

impl Sealed for &mut PgConnection {}

/// Jobs that are there once the user's transaction commits, and never if it does not.
///
/// The connection must be on the database of the store, with its tables in the schema `hapax`; for another schema see
/// [`InSchema`]. If it fails half-way, none of the jobs is left in the transaction.
impl<'c> EnqueueIn for &'c mut PgConnection {
    type Answer<T: Send + 'static> = Pin<Box<dyn Future<Output = T> + Send + 'c>>;

    fn enqueue_jobs<T: Send + 'static>(
        self,
        jobs: Vec<NewJob>,
        then: impl FnOnce(Enqueues) -> T + Send + 'static,
    ) -> Self::Answer<T> {
        Box::pin(async move { then(enqueue_in(self, &DEFAULT_HOME, jobs).await) })
    }

    fn answer<T: Send + 'static>(self, answer: T) -> Self::Answer<T> {
        Box::pin(std::future::ready(answer))
    }
}

impl Sealed for InSchema<'_> {}

/// As for `&mut PgConnection`.
impl<'c> EnqueueIn for InSchema<'c> {
    type Answer<T: Send + 'static> = Pin<Box<dyn Future<Output = T> + Send + 'c>>;

    fn enqueue_jobs<T: Send + 'static>(
        self,
        jobs: Vec<NewJob>,
        then: impl FnOnce(Enqueues) -> T + Send + 'static,
    ) -> Self::Answer<T> {
        Box::pin(async move { then(enqueue_in(self.connection, &Home::new(&self.schema, None), jobs).await) })
    }

    fn answer<T: Send + 'static>(self, answer: T) -> Self::Answer<T> {
        Box::pin(std::future::ready(answer))
    }
}

async fn enqueue_in(connection: &mut PgConnection, home: &Home, new: Vec<NewJob>) -> Enqueues {
    guarded(connection, home, |step| Box::pin(async move { jobs::enqueue(step, &new).await })).await
}

/// Refuses a write in the user's transaction unless `lock` is still the last grant of its permit; then nobody can be
/// granted it before the transaction ends. A lease that has run out but that nobody took over still counts.
///
/// # Errors
/// [`Refused`](crate::ErrorKind::Refused), kept as evidence if the transaction commits all the same; and those of any
/// write.
pub async fn lock_guard(connection: &mut PgConnection, lock: &LockRef) -> Result<()> {
    guard_in(connection, &DEFAULT_HOME, lock.clone()).await
}

impl InSchema<'_> {
    /// As [`lock_guard`].
    ///
    /// # Errors
    /// As [`lock_guard`].
    pub async fn lock_guard(self, lock: &LockRef) -> Result<()> {
        guard_in(self.connection, &Home::new(&self.schema, None), lock.clone()).await
    }
}

async fn guard_in(connection: &mut PgConnection, home: &Home, lock: LockRef) -> Result<()> {
    let current = guarded(connection, home, |step| {
        Box::pin(async move {
            let (text, slot) = (include_str!("sql/locks/still_current.sql"), i64::from(lock.slot));
            let name = lock.name.as_str();
            if !fetch!(step, text, rows::only::<bool>, name = name, slot = slot, fence = lock.fence).is_empty() {
                return Ok(Ok(()));
            }
            let mut slice = Slice::of(step);
            slice.locks(&lock.name, Wanted::Look).await?;
            slice.decide(|model, now| model.guard_lock(now, &lock)).await
        })
    });
    Ok(current.await??)
}

/// One step in a transaction that is not ours: whole, or without a trace.
async fn guarded<T, F>(connection: &mut PgConnection, home: &Home, work: F) -> Result<T>
where
    F: for<'s> FnOnce(&'s mut Step<'_>) -> super::Work<'s, T> + Send,
{
    let before = |cause| fault::before_commit(ADDRESS, cause);
    // Outside of a transaction this fails: what is not to be undone as a whole must not be begun.
    connection.execute(sqlx::raw_sql("savepoint hapax_user_step")).await.map_err(|cause| match &cause {
        sqlx::Error::Database(error) if error.code().as_deref() == Some("25P01") => {
            let mend = "begin a transaction and pass it on, as in `enqueue_in(&mut *tx)`";
            Error::invalid("connection", "is in no transaction", mend).with_source(cause)
        }
        _ => before(cause),
    })?;
    let done = match Step::inside(connection, home).await {
        Ok(mut step) => match known(&mut step).await {
            Ok(()) => work(&mut step).await,
            Err(cause) => Err(cause),
        },
        Err(cause) => Err(cause),
    };
    let end = if done.is_ok() {
        "release savepoint hapax_user_step"
    } else {
        "rollback to savepoint hapax_user_step; release savepoint hapax_user_step"
    };
    let ended = connection.execute(sqlx::raw_sql(end)).await;
    let value = done.map_err(before)?;
    ended.map_err(before)?;
    Ok(value)
}

/// Refuses a schema that is newer than what this program may write to.
async fn known(step: &mut Step<'_>) -> sqlx::Result<()> {
    match migrate::meta(step).await? {
        Some(meta) if meta.min_program <= migrate::VERSION => Ok(()),
        Some(meta) => {
            let text = format!("the schema has version {}, too new for this program; update it", meta.version);
            Err(sqlx::Error::Configuration(text.into()))
        }
        None => Err(sqlx::Error::Configuration("the hapax tables are empty; run `hapax migrate`".into())),
    }
}

// ------------------------------------------------------------------------------------------ effects with their finish

/// Refuses a transaction that was ended by hand: the finish would stand alone, and the effect without it.
async fn still_open(connection: &mut PgConnection) -> Result<()> {
    let Err(cause) = connection.execute(sqlx::raw_sql("savepoint hapax_finish")).await else { return Ok(()) };
    if cause.as_database_error().and_then(sqlx::error::DatabaseError::code).as_deref() != Some("25P01") {
        return Err(fault::before_commit(ADDRESS, cause));
    }
    let text = "the effect ended its transaction by hand (COMMIT or ROLLBACK); leave that to hapax. What it committed \
                is there without the finish of its run";
    Err(Error::may_have_happened(ErrorKind::Effect, text).with_source(cause))
}

impl PostgresStore {
    /// Begins a transaction for an effect, on a connection of the pool. `left` is what is left of the run's lease: if
    /// the program stands still for longer between two statements, the server ends the transaction, so that the rows it
    /// has locked do not hold up its successor.
    ///
    /// # Errors
    /// Those of any write.
    pub async fn begin_effect(&self, left: Duration) -> Result<Transaction<'static, Postgres>> {
        let (store, address) = (self.clone(), self.address());
        // In a task of its own: the driver leaks an open transaction when a begin is dropped half-way.
        let begin = async move {
            let begun = store.0.pool.begin().await;
            let mut tx = begun.map_err(|cause| match cause {
                sqlx::Error::PoolTimedOut => {
                    let text = format!(
                        "{address}: no connection of the pool became free in time; give it more connections than tasks \
                         with effects run at once"
                    );
                    Error::did_not_happen(ErrorKind::Busy, text)
                }
                cause => fault::before_commit(&address, cause),
            })?;
            let cannot = |cause| fault::before_commit(&address, cause);
            let ms = left.as_millis().clamp(100, 86_400_000);
            let text = format!("set local idle_in_transaction_session_timeout = {ms}");
            tx.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(text))).await.map_err(cannot)?;
            Ok(tx)
        };
        tokio::spawn(begin).await.unwrap_or_else(|_| Err(super::ended()))
    }

    /// Ends a run as done in a transaction that holds its effect, and commits it: both are there, or neither. A run
    /// that is not the current one is refused, and the transaction undone.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) when the transaction is in another database; those of any write. After
    /// one that says [`MayHaveHappened`](crate::Outcome::MayHaveHappened) ask for the run's
    /// [`verdict`](crate::store::Jobs::verdict).
    pub async fn finish_in(
        &self,
        mut tx: Transaction<'static, Postgres>,
        run: RunRef,
        result: Option<String>,
    ) -> Result<Settled> {
        let store = self.clone();
        let finish = Finish { run, end: End::Done { result } };
        let step = async move {
            let address = store.address();
            let cannot = |cause| fault::before_commit(&address, cause);
            still_open(&mut tx).await?;
            let settled = {
                let mut step = Step::inside(&mut tx, &store.0.home).await.map_err(cannot)?;
                runs::finish_one(&mut step, &finish).await.map_err(cannot)?
            };
            if settled.counted() {
                return match tx.commit().await {
                    Ok(()) => Ok(settled),
                    Err(cause) => Err(fault::at_commit(&address, cause)),
                };
            }
            // The evidence went with the effect; a run that lost its place never has it again.
            drop(tx.rollback().await);
            store.finish(vec![finish]).await.map(|mut answers| answers.remove(0))
        };
        tokio::spawn(step).await.unwrap_or_else(|_| Err(super::ended()))
    }

    /// Whether a transaction is in the database of this store.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) when it does not; those of any read.
    pub async fn proves(&self, connection: &mut PgConnection) -> Result<()> {
        let home = self.0.home.clone();
        let cannot = |cause| fault::before_commit(ADDRESS, cause);
        let theirs = {
            let mut step = Step::inside(connection, &home).await.map_err(cannot)?;
            migrate::meta(&mut step).await.map_err(cannot)?.map(|meta| meta.store)
        };
        let ours = self.read(|step| Box::pin(async move { Ok(migrate::meta(step).await?.map(|meta| meta.store)) }));
        if theirs.is_some() && theirs == ours.await? {
            return Ok(());
        }
        let mend = "pass a transaction of the database that the store is in";
        Err(Error::invalid("transaction", "is in another database than the store", mend))
    }
}
