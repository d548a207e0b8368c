//! Tells the store how runs ended.
//!
//! 1. Finishes in batches: whatever ended while the last call was under way, at most [`BATCH`]; at once when idle. So
//!    no end waits for a timer, and a busy host makes few calls.
//! 2. After an error that certainly changed nothing, tries again, longer apart each time, for as long as its instance
//!    lives.
//! 3. After a lost answer asks the ledger first. A finish is never just repeated.
//! 4. Counts and logs what was refused: another has the job, and nothing more is to be done.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};

use super::core::{Core, Tally};
use super::outcome::label_of;
use super::pace::Pace;
use super::registry::Entry;
use super::run::Run;
use super::shutdown::Stop;
use crate::error::{Error, ErrorKind, Outcome};
use crate::model::{End, Finish, JobState, RunRef, Settled, Verdict};
use crate::task::BoxError;
use crate::telemetry;

/// Most finishes of one call.
pub(crate) const BATCH: usize = 100;

/// A run that has ended and is not settled.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) run: Run,
    pub(crate) end: End,
    pub(crate) entry: Arc<Entry>,
}

/// Where ended runs come in; outlives a finisher that has to be started again.
pub(crate) type Inbox = Arc<Mutex<mpsc::UnboundedReceiver<Ended>>>;

/// Finishes runs until asked to stop.
pub(crate) async fn serve(core: Arc<Core>, inbox: Inbox, stop: Stop) -> Result<(), BoxError> {
    let mut inbox = inbox.lock().await;
    loop {
        let mut batch = Vec::with_capacity(BATCH);
        tokio::select! {
            n = inbox.recv_many(&mut batch, BATCH) => if n == 0 { return Ok(()) },
            () = stop.requested() => return Ok(()),
        }
        if batch.len() < BATCH && core.slots.active() > 0 {
            // Whoever is about to end now may come along.
            tokio::task::yield_now().await;
            while batch.len() < BATCH
                && let Ok(ended) = inbox.try_recv()
            {
                batch.push(ended);
            }
        }
        if let Some((batch, error)) = attempt(&core, batch).await {
            // Others do not wait for it.
            tokio::spawn(insist(Arc::clone(&core), batch, error));
        }
        metrics::gauge!(telemetry::RUNS_UNCONFIRMED).set(core.slots.unconfirmed());
    }
}

/// Tries once; gives back what is to be tried again, and why.
async fn attempt(core: &Core, batch: Vec<Ended>) -> Option<(Vec<Ended>, Error)> {
    let finishes = batch.iter().map(|ended| Finish { run: ended.run.reference(), end: ended.end.clone() }).collect();
    match core.store().finish(finishes).await {
        Ok(answers) => {
            for (ended, answer) in batch.iter().zip(answers) {
                settled(core, ended, answer);
            }
            forget(core, &batch);
            None
        }
        Err(error) => {
            telemetry::store_failed("finish");
            tracing::warn!(%error, runs = batch.len(), "could not finish runs");
            Some((batch, error))
        }
    }
}

/// Tries until the store has answered for each run, or their instance is dead. Boxed, since it comes back to itself.
fn insist(core: Arc<Core>, batch: Vec<Ended>, error: Error) -> super::registry::BoxFuture<()> {
    Box::pin(async move {
        let mut pace = Pace::new(Duration::from_millis(20), Duration::from_secs(5));
        let (mut batch, mut error) = (batch, error);
        while !batch.is_empty() {
            let splits = error.kind() == ErrorKind::Busy || !error.is_retryable();
            if splits && error.outcome() == Outcome::DidNotHappen && batch.len() > 1 {
                // One of them may be what the store cannot take, or wait for a row that somebody holds: each for
                // itself, so that it harms no other.
                for ended in batch {
                    let error = Error::did_not_happen(error.kind(), error.to_string());
                    tokio::spawn(insist(Arc::clone(&core), vec![ended], error));
                }
                return;
            }
            tokio::time::sleep(pace.next()).await;
            if batch.iter().all(|ended| ended.run.home().is_gone()) && pace.failures() > 3 {
                tracing::warn!(runs = batch.len(), %error, "gave up on finishing runs of a dead instance");
                forget(&core, &batch);
                return;
            }
            if error.outcome() == Outcome::MayHaveHappened {
                match ask_ledger(&core, batch).await {
                    Ok(left) => batch = left,
                    Err(left) => {
                        batch = left;
                        continue;
                    }
                }
            }
            match attempt(&core, batch).await {
                Some(left) => (batch, error) = left,
                None => return,
            }
        }
    })
}

/// Settles what the ledger knows; gives back the runs that are still current, or all of them if it cannot be read.
async fn ask_ledger(core: &Core, batch: Vec<Ended>) -> Result<Vec<Ended>, Vec<Ended>> {
    let runs: Vec<RunRef> = batch.iter().map(|ended| ended.run.reference()).collect();
    let Ok(verdicts) = core.store().verdict(runs).await else {
        telemetry::store_failed("verdict");
        return Err(batch);
    };
    let (mut current, mut known) = (Vec::new(), Vec::new());
    for (ended, verdict) in batch.into_iter().zip(verdicts) {
        match verdict {
            Verdict::Current => current.push(ended),
            Verdict::Ended { state } => {
                settled(core, &ended, Settled::Counted { state });
                known.push(ended);
            }
            Verdict::NotMine => {
                settled(core, &ended, Settled::Refused { state: None, current: None });
                known.push(ended);
            }
        }
    }
    forget(core, &known);
    Ok(current)
}

/// The store has answered for a run.
fn settled(core: &Core, ended: &Ended, answer: Settled) {
    match answer {
        Settled::Counted { state } => {
            Tally::add(&core.tally.finished, 1);
            ended.entry.ended(label_of(&ended.end));
            if state == JobState::Ready {
                core.hapax.wake().poke();
            }
        }
        // Its task was dropped while its effect was being committed: that was the finish which counted.
        Settled::Refused { .. } if ended.run.settled() == Some(true) => {
            Tally::add(&core.tally.finished, 1);
            ended.entry.ended("done");
        }
        Settled::Refused { state, current } => {
            Tally::add(&core.tally.refused, 1);
            ended.entry.ended("refused");
            telemetry::fence_rejected("finish");
            let (run, end) = (&ended.run, label_of(&ended.end));
            tracing::warn!(
                job = %run.job_id(), kind = run.kind(), fence = %run.fence(), attempt = run.attempt(),
                ?state, ?current, end, "refused the finish of a run that is not the current one",
            );
        }
    }
}

/// These runs need not be held any more.
fn forget(core: &Core, batch: &[Ended]) {
    for same in batch.chunk_by(|a, b| Arc::ptr_eq(a.run.home(), b.run.home())) {
        let runs: Vec<RunRef> = same.iter().map(|ended| ended.run.reference()).collect();
        same[0].run.home().drop_runs(&runs);
    }
    core.slots.sub_unconfirmed(u32::try_from(batch.len()).unwrap_or(u32::MAX));
}
