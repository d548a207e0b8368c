//! Effects that are committed together with the end of their run. The one folder of this room that names concrete
//! stores.
//!
//! Each store lends its transactions in the way that suits it: SQLite by a closure ([`Effect`]), since a process that
//! is stopped inside a write transaction stops every writer of the file; PostgreSQL by a transaction that the task
//! takes along ([`EffectTx`]). What the store's answer means for the run is the same, and stands here.
//!
//! This room does not know: what an effect writes, or how a store keeps a job.

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::time::Duration;

use super::outcome::Finished;
use super::pace::Pace;
use super::run::Run;
use super::signal::StopReason;
use crate::error::{Outcome, Result};
use crate::model::{JobState, Settled, Verdict};
use crate::task::JobError;
use crate::telemetry;

#[cfg(feature = "postgres")]
pub use postgres::EffectTx;
#[cfg(feature = "sqlite")]
pub use sqlite::Effect;

/// How often the ledger is asked for a lost answer before the run ends as unknown.
const LEDGER_TRIES: u32 = 20;

/// What the store's answer to an effect and its finish, or the loss of it, means for the run.
async fn conclude(run: &Run, answer: Result<Settled>) -> Result<Finished, JobError> {
    let lost = match answer {
        Ok(Settled::Counted { .. }) => return Ok(counted(run)),
        Ok(Settled::Refused { .. }) => return Err(refused(run)),
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
            Ok(Some(Verdict::Ended { state: JobState::Done })) => return Ok(counted(run)),
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

#[cfg(all(test, feature = "testing"))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::client::Hapax;
    use crate::clock::Deadline;
    use crate::error::{Error, ErrorKind};
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

    fn lost() -> Result<Settled> {
        Err(Error::may_have_happened(ErrorKind::Store, "the answer to COMMIT was lost"))
    }

    #[tokio::test]
    async fn a_lost_commit_that_happened_is_done() {
        let hapax = Hapax::memory();
        let run = current(&hapax).await;
        let finish = Finish { run: run.reference(), end: End::Done { result: None } };
        hapax.store().finish(vec![finish]).await.expect("counts");
        assert!(conclude(&run, lost()).await.is_ok());
        assert_eq!((run.settled(), run.signal().reason()), (Some(true), None));
    }

    #[tokio::test]
    async fn a_lost_commit_that_did_not_happen_may_be_tried_again() {
        let faults = Faults::default();
        let hapax = faults.between(&Hapax::memory());
        let run = current(&hapax).await;
        faults.once("verdict", Fault::Unreachable);
        let error = conclude(&run, lost()).await.expect_err("it did not happen");
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
        let error = conclude(&run, lost()).await.expect_err("another has it");
        assert_eq!((error.next, run.settled()), (Next::Unknown, Some(false)));
        assert_eq!(run.signal().reason(), Some(StopReason::LeaseLost));
    }

    #[tokio::test(start_paused = true)]
    async fn a_ledger_that_cannot_be_read_leaves_it_unknown() {
        let faults = Faults::default();
        let hapax = faults.between(&Hapax::memory());
        let run = current(&hapax).await;
        faults.cut("verdict", Fault::Unreachable);
        let error = conclude(&run, lost()).await.expect_err("nobody knows");
        assert_eq!((error.next, run.settled()), (Next::Unknown, None), "its finish will tell: the fence decides");
    }
}
