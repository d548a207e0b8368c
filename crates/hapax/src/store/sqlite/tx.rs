//! The same verbs in the user's transaction, and effects that commit with the finish of their run.

use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::rows::change;
use super::slice::Slice;
use super::writer::Core;
use super::{SqliteStore, fault, jobs, migrate, runs};
use crate::clock::{Anchor, Clock, Deadline, Now};
use crate::error::{Result, panic_text};
use crate::id::Fence;
use crate::model::{End, Finish, JobState, LockRef, NewJob, RunRef, Settled};
use crate::store::sealed::Sealed;
use crate::store::{EnqueueIn, Enqueues};
use crate::task::BoxError;

// ---------------------------------------------------------------------------------------- in the user's transaction

impl Sealed for &Transaction<'_> {}

/// Jobs that are there once the user's transaction commits, and never if it does not.
///
/// The connection must be on the file of the store. Begin the transaction with
/// [`Immediate`](rusqlite::TransactionBehavior::Immediate): one that reads before it writes fails when another has
/// written in between. If it fails half-way, none of the jobs is left in the transaction.
impl EnqueueIn for &Transaction<'_> {
    type Answer<T: Send + 'static> = T;

    fn enqueue_jobs<T: Send + 'static>(
        self,
        jobs: Vec<NewJob>,
        then: impl FnOnce(Enqueues) -> T + Send + 'static,
    ) -> T {
        then(enqueue_in(self, Clock::system().now(), &jobs))
    }

    fn answer<T: Send + 'static>(self, answer: T) -> T {
        answer
    }
}

impl Sealed for &EffectTx<'_> {}

/// Jobs that are there once the effect counts, and never if it does not.
impl EnqueueIn for &EffectTx<'_> {
    type Answer<T: Send + 'static> = T;

    fn enqueue_jobs<T: Send + 'static>(
        self,
        jobs: Vec<NewJob>,
        then: impl FnOnce(Enqueues) -> T + Send + 'static,
    ) -> T {
        then(enqueue_in(&self.transaction, self.clock.now(), &jobs))
    }

    fn answer<T: Send + 'static>(self, answer: T) -> T {
        answer
    }
}

fn enqueue_in(connection: &Connection, now: Now, jobs: &[NewJob]) -> Enqueues {
    guarded(connection, |connection| jobs::enqueue(connection, now, jobs))
}

/// Refuses a write in the user's transaction unless `lock` is still the last grant of its permit; then nobody can be
/// granted it before the transaction ends. A lease that has run out but that nobody took over still counts.
///
/// # Errors
/// [`Refused`](crate::ErrorKind::Refused), kept as evidence if the transaction commits all the same; and those of any
/// write.
pub fn lock_guard(transaction: &Transaction<'_>, lock: &LockRef) -> Result<()> {
    let current = guarded(transaction, |connection| {
        let text = include_str!("sql/locks/still_current.sql");
        if change!(connection, text, name = &lock.name, slot = lock.slot, fence = lock.fence) == 1 {
            return Ok(Ok(()));
        }
        let now = Clock::system().now();
        Slice::of(connection).locks(Some(&lock.name))?.decide(|model| model.guard_lock(now, lock))
    })?;
    Ok(current?)
}

/// One step in a transaction that is not ours: whole, or without a trace.
fn guarded<T>(connection: &Connection, step: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
    let file = connection.path().unwrap_or("this connection").to_owned();
    let before = |cause| fault::before_commit(Path::new(&file), cause);
    migrate::known(connection, Path::new(&file))?;
    connection.execute_batch("savepoint hapax_user_step").map_err(before)?;
    let result = step(connection);
    if result.is_err() && !connection.is_autocommit() {
        connection.execute_batch("rollback to hapax_user_step; release hapax_user_step").map_err(before)?;
        return result.map_err(before);
    }
    let value = result.map_err(before)?;
    connection.execute_batch("release hapax_user_step").map_err(before)?;
    Ok(value)
}

// ------------------------------------------------------------------------------------------ effects with their finish

/// The transaction in which an effect happens; the finish of its run commits with it.
///
/// It is a [`Transaction`] for all that reads and writes. It is not committed or rolled back by hand: it commits when
/// the closure gives `Ok`, and is undone when it gives `Err` or panics. See
/// [`finish_with`](SqliteStore::finish_with) for what is refused on it.
pub struct EffectTx<'c> {
    transaction: Transaction<'c>,
    clock: &'c Clock,
    run: RunRef,
    result: RefCell<Option<String>>,
}

impl EffectTx<'_> {
    /// The run whose effect this is.
    pub const fn run(&self) -> RunRef {
        self.run
    }

    /// The fence of the run, to be kept beside the user's own rows.
    pub const fn fence(&self) -> Fence {
        self.run.fence
    }

    /// Enqueues jobs that are there once the effect counts.
    ///
    /// # Errors
    /// Those of any write; none of the jobs is left in the transaction then.
    pub fn enqueue(&self, jobs: Vec<NewJob>) -> Enqueues {
        self.enqueue_jobs(jobs, |answers| answers)
    }

    /// What the job keeps as its result.
    pub fn set_result(&self, text: impl Into<String>) {
        *self.result.borrow_mut() = Some(text.into());
    }
}

impl<'c> Deref for EffectTx<'c> {
    type Target = Transaction<'c>;

    fn deref(&self) -> &Self::Target {
        &self.transaction
    }
}

impl fmt::Debug for EffectTx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EffectTx").field("run", &self.run).finish_non_exhaustive()
    }
}

/// What became of an effect and the finish of its run.
#[derive(Debug)]
pub enum EffectAnswer<T> {
    /// Both are there.
    Counted {
        /// What the closure gave.
        value: T,
        /// The job's state.
        state: JobState,
    },
    /// The run is not the current one: the closure was not called, or what it did was undone.
    Refused {
        /// State of the job; nothing if there is no such job.
        state: Option<JobState>,
        /// Fence of its last claim.
        current: Option<Fence>,
    },
    /// The closure failed, or panicked ([`EffectPanic`]): what it did was undone, and the run is still current.
    EffectFailed(BoxError),
}

/// The panic of an effect, as an error.
#[derive(Debug)]
pub struct EffectPanic(String);

impl fmt::Display for EffectPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the effect panicked: {}", self.0)
    }
}

impl std::error::Error for EffectPanic {}

impl SqliteStore {
    /// Carries out an effect in this file and finishes its run, in one transaction of its own: either both are there,
    /// or neither. The run's fence is checked before the closure is called and again with the finish.
    ///
    /// The closure runs on the thread that writes, and every writer of the file waits for it: it must do nothing but
    /// read and write this file, and must not wait for this store.
    ///
    /// # Errors
    /// [`Effect`](crate::ErrorKind::Effect) when the closure tried what would end the transaction or outlast it:
    /// `BEGIN`, `COMMIT`, `ROLLBACK`, `ATTACH`, `DETACH`, or a pragma that sets something. SQLite refuses each, and
    /// then all of it is undone, whatever the closure gave. Savepoints are the closure's own affair. Those of any
    /// write. After one that says [`MayHaveHappened`](crate::Outcome::MayHaveHappened) ask for the run's
    /// [`verdict`](crate::store::Jobs::verdict).
    pub async fn finish_with<T, F>(&self, run: RunRef, effect: F) -> Result<EffectAnswer<T>>
    where
        T: Send + 'static,
        F: FnOnce(&EffectTx<'_>) -> std::result::Result<T, BoxError> + Send + 'static,
    {
        let since = Deadline::anchor();
        self.0.writer.alone(move |core| carry_out(core, (since, run), effect)).await
    }
}

fn carry_out<T, F>(core: &Core, (since, run): (Anchor, RunRef), effect: F) -> Result<EffectAnswer<T>>
where
    F: FnOnce(&EffectTx<'_>) -> std::result::Result<T, BoxError>,
{
    let before = |cause| fault::before_commit(&core.file, cause);
    let immediate = |connection| Transaction::new_unchecked(connection, TransactionBehavior::Immediate);
    let transaction = core.begin_by(since, immediate)?;
    if let Some(refused) = refuse_stale(core, run).map_err(before)? {
        core.commit()?;
        return Ok(refused);
    }
    let seal = core.guard.close(&core.connection).map_err(before)?;
    let tx = EffectTx { transaction, clock: &core.clock, run, result: RefCell::default() };
    let done = catch_unwind(AssertUnwindSafe(|| effect(&tx)));
    seal.open(&core.connection, done.as_ref().is_ok_and(std::result::Result::is_ok))?;
    let value = match done {
        Ok(Ok(value)) => value,
        // Dropping the transaction undoes it.
        Ok(Err(error)) => return Ok(EffectAnswer::EffectFailed(error)),
        Err(panic) => return Ok(EffectAnswer::EffectFailed(Box::new(EffectPanic(panic_text(&*panic))))),
    };
    let finish = Finish { run, end: End::Done { result: tx.result.take() } };
    match runs::finish_one(&core.connection, core.clock.now(), &finish).map_err(before)? {
        Settled::Counted { state } => {
            core.commit()?;
            Ok(EffectAnswer::Counted { value, state })
        }
        Settled::Refused { state, current } => Ok(EffectAnswer::Refused { state, current }),
    }
}

/// Keeps the refusal of a run that is not current, before anything of its effect is done.
fn refuse_stale<T>(core: &Core, run: RunRef) -> rusqlite::Result<Option<EffectAnswer<T>>> {
    let mut slice = Slice::of(&core.connection);
    slice.job(run.job)?;
    let current = slice.ask(|model| {
        let job = model.job(run.job);
        job.is_some_and(|job| job.state == JobState::Running && job.fence == Some(run.fence))
    });
    if current {
        return Ok(None);
    }
    let finish = Finish { run, end: End::Done { result: None } };
    match slice.decide(|model| model.finish(core.clock.now(), &[finish]).remove(0))? {
        Settled::Refused { state, current } => Ok(Some(EffectAnswer::Refused { state, current })),
        Settled::Counted { .. } => unreachable!("the law counts only the current run"),
    }
}
