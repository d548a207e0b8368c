//! The same verbs in the user's transaction, and effects that commit with the finish of their run.

use std::future::Future;
use std::pin::Pin;
use std::sync::LazyLock;
use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{Connection, Executor, Postgres, Transaction};

use super::rows::{self, fetch};
use super::slice::{Slice, Wanted};
use super::step::{DEFAULT_SCHEMA, Home, Sessions, Step};
use super::{PostgresStore, fault, jobs, migrate, runs};
use crate::clock::Micros;
use crate::error::{Error, ErrorKind, Result};
use crate::model::{End, Finish, JobState, LockRef, NewJob, RunRef, Settled, Verdict};
use crate::store::sealed::Sealed;
use crate::store::{EnqueueIn, Enqueues, Store};

// ---------------------------------------------------------------------------------------- in the user's transaction

/// The schema that is used unless another is named.
static DEFAULT_HOME: LazyLock<Home> = LazyLock::new(|| home(DEFAULT_SCHEMA));

fn home(schema: &str) -> Home {
    Home::new(schema, Sessions::Theirs, None)
}

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
/// [`InSchema`]. If it fails half-way, none of the jobs is left in the transaction; if its future is dropped half-way,
/// as by a time-out around it, roll the transaction back: what it had begun is still in it.
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
        Box::pin(async move { then(enqueue_in(self.connection, &home(&self.schema), jobs).await) })
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
        guard_in(self.connection, &home(&self.schema), lock.clone()).await
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
    let done = async {
        let mut step = Step::inside(connection, home).await.map_err(before)?;
        migrate::fits(&mut step, ADDRESS).await?;
        work(&mut step).await.map_err(before)
    }
    .await;
    let end = if done.is_ok() {
        "release savepoint hapax_user_step"
    } else {
        "rollback to savepoint hapax_user_step; release savepoint hapax_user_step"
    };
    let ended = connection.execute(sqlx::raw_sql(end)).await;
    let value = done?;
    ended.map_err(before)?;
    Ok(value)
}

// ------------------------------------------------------------------------------------------ effects with their finish

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
    /// [`Invalid`](crate::ErrorKind::Invalid) when the transaction is in another database;
    /// [`Effect`](crate::ErrorKind::Effect) when it cannot be committed as the whole that it was; those of any write.
    /// After one that says [`MayHaveHappened`](crate::Outcome::MayHaveHappened) ask for the run's
    /// [`verdict`](crate::store::Jobs::verdict).
    pub async fn finish_in(
        &self,
        mut tx: Transaction<'static, Postgres>,
        run: RunRef,
        result: Option<String>,
    ) -> Result<Settled> {
        let store = self.clone();
        let step = async move {
            let (address, patience) = (store.address(), store.0.connections.patience());
            let cannot = |cause| fault::before_commit(&address, cause);
            store.enters(&mut tx).await?;
            let step = async {
                let mut step = Step::inside(&mut tx, &store.0.home).await?;
                runs::finish_one(&mut step, (run, result.as_deref())).await
            };
            if fault::within(patience, step).await.map_err(cannot)? {
                return match fault::within(patience, tx.commit()).await {
                    Ok(()) => Ok(Settled::Counted { state: JobState::Done }),
                    Err(cause) => Err(fault::at_commit(&address, cause)),
                };
            }
            // The evidence went with the effect; a run that lost its place never has it again.
            drop(tx.rollback().await);
            store.keep_refusal(Finish { run, end: End::Done { result } }).await
        };
        tokio::spawn(step).await.unwrap_or_else(|_| Err(super::ended()))
    }

    /// Refuses to end a run in what is not the transaction that was begun for it. A failed or abandoned `begin` of a
    /// nested one has the driver undo the outer one too, and a raw `commit` or `rollback` ends it: whatever came after
    /// was written, and the end of the run would be, without the rest.
    async fn enters(&self, tx: &mut Transaction<'static, Postgres>) -> Result<()> {
        // With the settings of our own steps: none of the user's statements comes after it.
        let wait_ms = self.0.connections.wait_ms();
        let text = format!(
            "savepoint hapax_finish; set local plan_cache_mode = force_custom_plan; set local enable_seqscan = off; \
             set local lock_timeout = {wait_ms}"
        );
        let savepoint = tx.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(text)));
        let entered = fault::within(self.0.connections.patience(), savepoint).await;
        let outside = match &entered {
            // The driver believes so, and would take its own commit for done.
            Ok(_) => !tx.is_in_transaction(),
            Err(sqlx::Error::Database(error)) => error.code().as_deref() == Some("25P01"),
            Err(_) => false,
        };
        if outside {
            let text = "the transaction of the effect was ended before its finish, by a COMMIT or ROLLBACK in it or \
                        because a nested one could not begin; what was written with it may be there, the run goes on";
            return Err(Error::may_have_happened(ErrorKind::Effect, text));
        }
        entered.map_err(|cause| fault::before_commit(&self.address(), cause))?;
        self.proves(tx).await
    }

    /// Keeps what a refused finish is evidence of. It never counts: its effect was undone.
    async fn keep_refusal(&self, finish: Finish) -> Result<Settled> {
        let kept = self.write(move |step| {
            Box::pin(async move {
                let run = finish.run;
                let mut slice = Slice::of(step);
                slice.job(run.job).await?;
                if slice.ask(|model| model.verdict(&[run])).first() == Some(&Verdict::Current) {
                    return Ok(None);
                }
                slice.decide(|model, now| model.finish(now, &[finish]).pop()).await
            })
        });
        let text = "the effect was refused, yet the run is the current one; it was undone";
        kept.await?.ok_or_else(|| Error::did_not_happen(ErrorKind::Effect, text))
    }

    /// Whether a connection leads to this store's tables.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) when it does not; those of any read.
    pub async fn proves(&self, connection: &mut PgConnection) -> Result<()> {
        let read = async {
            let mut step = Step::begun(connection, &self.0.home, Micros::default());
            migrate::meta(&mut step).await
        };
        match fault::within(self.0.connections.patience(), read).await {
            Ok(Some(meta)) if meta.store == self.0.id => Ok(()),
            Err(cause) if !fault::is_missing(&cause) => Err(fault::before_commit(ADDRESS, cause)),
            _ => {
                let mend = "pass a transaction of the database that the store is in";
                Err(Error::invalid("transaction", "is in another database than the store", mend))
            }
        }
    }
}
