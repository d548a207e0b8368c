//! Effects that are committed together with the end of their run. The one file of this room that names a concrete
//! store.
//!
//! SQLite: a process that is stopped inside a write transaction stops every writer of the file. So no transaction is
//! open across a foreign await: the effect is a closure, run with its finish as one transaction on the writer's thread.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use super::extract::{FromRun, MustFinish};
use super::outcome::Finished;
use super::pace::Pace;
use super::run::Run;
use super::signal::StopReason;
use crate::client::Hapax;
use crate::error::{Error, ErrorKind, Outcome, Result};
use crate::model::Verdict;
use crate::store::Store;
use crate::store::sqlite::{EffectAnswer, SqliteStore};
use crate::task::{BoxError, JobError};
use crate::telemetry;

pub use crate::store::sqlite::EffectTx;

/// How often the ledger is asked for a lost answer before the run ends as unknown.
const LEDGER_TRIES: u32 = 20;

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
    let answer = sqlite.finish_with(run.reference(), effect).await;
    deal_with(run, answer).await
}

/// What the store's answer, or its loss, means for the run.
async fn deal_with(run: &Run, answer: Result<EffectAnswer<()>>) -> Result<Finished, JobError> {
    let lost = match answer {
        Ok(EffectAnswer::Counted { .. }) => return Ok(counted(run)),
        Ok(EffectAnswer::Refused { .. }) => return Err(refused(run)),
        Ok(EffectAnswer::EffectFailed(error)) => {
            run.set_ending(false);
            return Err(JobError::not_done(error));
        }
        Err(error) if error.outcome() == Outcome::DidNotHappen => {
            run.set_ending(false);
            return Err(JobError::not_done(error));
        }
        Err(error) => error,
    };
    telemetry::store_failed("finish_with");
    let mut pace = Pace::new(Duration::from_millis(20), Duration::from_secs(2));
    while pace.failures() < LEDGER_TRIES {
        match run.store().verdict(vec![run.reference()]).await.map(|verdicts| verdicts.into_iter().next()) {
            Ok(Some(Verdict::Ended { .. })) => return Ok(counted(run)),
            Ok(Some(Verdict::Current)) => {
                run.set_ending(false);
                return Err(JobError::not_done(lost));
            }
            Ok(_) => return Err(refused(run)),
            Err(error) => {
                tracing::warn!(job = %run.job_id(), %error, "cannot read the ledger after a lost answer");
                tokio::time::sleep(pace.next()).await;
            }
        }
    }
    run.set_ending(false);
    Err(JobError::unknown(lost))
}

fn counted(run: &Run) -> Finished {
    run.mark_settled(true);
    // The effect may have enqueued jobs.
    run.home().hapax.wake().poke();
    Finished::new()
}

/// Another has the job: this run has written nothing, and nothing that it still writes counts.
fn refused(run: &Run) -> JobError {
    telemetry::fence_rejected("finish");
    run.mark_settled(false);
    run.raise(StopReason::LeaseLost);
    JobError::unknown(format!("refused: job {} has a higher fence than {} now", run.job_id(), run.fence()))
}

/// The store as one that can commit effects.
fn sqlite(store: &dyn Store) -> Result<&SqliteStore> {
    let any: &dyn Any = store.as_any();
    any.downcast_ref().ok_or_else(|| {
        let text = format!(
            "store `{}` cannot commit an effect together with the end of its run; open the host on an SQLite store, or \
             take `Run` instead of `Effect` and make the effect safe to repeat",
            store.name()
        );
        Error::did_not_happen(ErrorKind::Invalid, text)
    })
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::clock::Deadline;
    use crate::host::instance::Instance;
    use crate::id::{ClaimId, InstanceId, Name};
    use crate::model::{ClaimRequest, End, Finish, JobState, NewInstance};
    use crate::task::Next;
    use crate::testing::{Fault, Faults};

    /// A run that the store counts as current.
    async fn current(hapax: &Hapax) -> Run {
        let name = |text| Name::new("name", text).expect("legal");
        let id = InstanceId::new();
        let (queues, kinds) = (vec![name("default")], vec![name("k")]);
        let version = String::new();
        let new = NewInstance { id, name: name("i"), version, queues, kinds: kinds.clone(), lease_ms: 30_000 };
        hapax.store().register(new).await.expect("a new id");
        hapax.enqueue(crate::Enqueue::new("k", "null")).await.expect("taken");
        let (claim, queues) = (ClaimId::new(), vec![(name("default"), 1)]);
        let request = ClaimRequest { instance: id, claim, queues, kinds, suspect: false };
        let job = hapax.store().claim(request).await.expect("live").jobs.remove(0);
        let instance = Arc::new(Instance::new(id, hapax.clone(), 30_000, Duration::from_secs(5)));
        let never = Deadline::anchor().plus_ms(u64::MAX);
        instance.renewed(never, never);
        Run::new(job, instance, Deadline::anchor()).expect("it has a fence")
    }

    fn lost() -> Result<EffectAnswer<()>> {
        Err(Error::may_have_happened(ErrorKind::Store, "the answer to COMMIT was lost"))
    }

    #[tokio::test]
    async fn a_lost_commit_that_happened_is_done() {
        let hapax = Hapax::memory();
        let run = current(&hapax).await;
        let finish = Finish { run: run.reference(), end: End::Done { result: None } };
        hapax.store().finish(vec![finish]).await.expect("counts");
        assert!(deal_with(&run, lost()).await.is_ok());
        assert_eq!((run.settled(), run.signal().reason()), (Some(true), None));
    }

    #[tokio::test]
    async fn a_lost_commit_that_did_not_happen_may_be_tried_again() {
        let faults = Faults::default();
        let hapax = faults.between(&Hapax::memory());
        let run = current(&hapax).await;
        faults.once("verdict", Fault::Unreachable);
        let error = deal_with(&run, lost()).await.expect_err("it did not happen");
        assert_eq!((error.next, run.settled()), (Next::NotDone, None));
        assert_eq!(faults.calls("verdict"), 2, "the ledger is asked until it answers");
        let (job, _) = hapax.store().job(run.job_id()).await.expect("answers").expect("exists");
        assert_eq!(job.state, JobState::Running, "nothing was done about it yet");
    }

    #[tokio::test]
    async fn a_lost_commit_of_a_run_that_was_taken_away_is_refused() {
        let hapax = Hapax::memory();
        let run = current(&hapax).await;
        hapax.store().leave(run.instance()).await.expect("leaves");
        let error = deal_with(&run, lost()).await.expect_err("another has it");
        assert_eq!((error.next, run.settled()), (Next::Unknown, Some(false)));
        assert_eq!(run.signal().reason(), Some(StopReason::LeaseLost));
    }

    #[tokio::test(start_paused = true)]
    async fn a_ledger_that_cannot_be_read_leaves_it_unknown() {
        let faults = Faults::default();
        let hapax = faults.between(&Hapax::memory());
        let run = current(&hapax).await;
        faults.cut("verdict", Fault::Unreachable);
        let error = deal_with(&run, lost()).await.expect_err("nobody knows");
        assert_eq!((error.next, run.settled()), (Next::Unknown, None), "its finish will tell: the fence decides");
    }
}
