//! One run, from its start to the hand-over of its end.
//!
//! 1. Records the start first where that matters: at-most-once jobs, and runs that waited for long. No answer, no run.
//! 2. Polls the task in a tokio task of its own, catching panics: a panic is an outcome, never the end of a worker.
//!    (With `panic = "abort"` the process ends; the jobs are then taken over from it like those of any dead instance.)
//! 3. Tells the task to stop at its deadline, and drops it when it has not ended some grace later.
//! 4. Hands the end to the finisher, unless it was committed together with the effect.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tracing::Instrument;

use super::core::{Core, Tally};
use super::finisher::Ended;
use super::outcome::{HowEnded, TaskResult, end_of};
use super::pace::Pace;
use super::registry::{BoxFuture, Entry};
use super::run::Run;
use super::signal::StopReason;
use super::slots::Slot;
use crate::clock::Deadline;
use crate::error::panic_text;
use crate::model::Settled;
use crate::telemetry;

/// How often the start of a run is tried to be recorded before the job is given back.
const START_TRIES: u32 = 3;

/// Begins a run. The caller has checked that the lease holds.
pub(crate) fn begin(core: &Arc<Core>, entry: Arc<Entry>, run: Run, slot: Slot) {
    let core = Arc::clone(core);
    if run.wants_start_recorded() {
        tokio::spawn(async move {
            if record_start(&core, &run).await {
                work(&core, entry, run, slot).await;
            }
        });
    } else {
        run.begin();
        tokio::spawn(async move { work(&core, entry, run, slot).await });
    }
}

/// Records the start and begins the run; else gives the job back, or finds that it is lost.
async fn record_start(core: &Core, run: &Run) -> bool {
    let mut pace = Pace::new(Duration::from_millis(50), Duration::from_secs(1));
    // Before the first try: if only its answer is lost, the store counts the deadline from there.
    let anchor = Deadline::anchor();
    while pace.failures() < START_TRIES && run.stop_reason().is_none() {
        match core.store().start(vec![run.reference()]).await.map(|answers| answers.into_iter().next()) {
            Ok(Some(Settled::Counted { .. })) => {
                run.start_confirmed(anchor);
                // The answer may have taken longer than the lease.
                if run.stop_reason().is_none() && run.home().begin(run) {
                    return true;
                }
                break;
            }
            Ok(_) => {
                telemetry::fence_rejected("start");
                Tally::add(&core.tally.lost, 1);
                tracing::info!(job = %run.job_id(), fence = %run.fence(), "taken away before it began");
                run.home().drop_runs(&[run.reference()]);
                return false;
            }
            // Recording it again is a no-op, so a lost answer is simply asked for again.
            Err(error) => {
                telemetry::store_failed("start");
                tracing::warn!(job = %run.job_id(), %error, "could not record the start of a run");
                tokio::time::sleep(pace.next()).await;
            }
        }
    }
    core.give_back(run.home(), vec![run.reference()]).await;
    false
}

/// Runs the task and hands over its end.
async fn work(core: &Core, entry: Arc<Entry>, run: Run, slot: Slot) {
    let begun = Deadline::anchor();
    let how = execute(&run, &entry).await;
    let took = begun.elapsed();
    slot.worked(took);
    entry.measured(took);
    if run.is_stuck() {
        metrics::gauge!(telemetry::RUNS_STUCK).decrement(1);
        tracing::warn!(job = %run.job_id(), kind = run.kind(), ?took, "a task that blocked its thread has returned");
    }
    hand_over(core, entry, run, how);
    drop(slot);
}

/// Gives the end to the finisher; before the slot is free, so that a shutdown never sees neither.
fn hand_over(core: &Core, entry: Arc<Entry>, run: Run, how: HowEnded) {
    if let Some(counted) = run.settled() {
        let (number, label) = if counted { (&core.tally.finished, "done") } else { (&core.tally.refused, "refused") };
        Tally::add(number, 1);
        entry.ended(label);
        // The commit spoke; what the task says afterwards changes nothing.
        if let HowEnded::Returned(Err(error)) = &how {
            tracing::warn!(job = %run.job_id(), kind = run.kind(), %error, "failed after its run was settled");
        } else if !matches!(how, HowEnded::Returned(_)) {
            tracing::warn!(job = %run.job_id(), kind = run.kind(), ?how, "ended oddly after its run was settled");
        }
        run.home().drop_runs(&[run.reference()]);
        return;
    }
    let end = end_of(run.record(), how, fastrand::u32(..));
    run.set_ending(true);
    core.slots.add_unconfirmed();
    let ended = Ended { run, end, entry };
    if core.ended.send(ended).is_err() {
        // The host is gone: the store takes the job back.
        core.slots.sub_unconfirmed(1);
    }
}

/// Runs the task of a begun run to its end, whatever that is.
pub(crate) async fn execute(run: &Run, entry: &Entry) -> HowEnded {
    let span = tracing::info_span!(
        "process",
        otel.name = %format_args!("process {}", run.queue()),
        job = %run.job_id(),
        kind = run.kind(),
        fence = %run.fence(),
        attempt = run.attempt(),
    );
    let mut task = Caught(Some(entry.call(run.clone())));
    async {
        tokio::select! {
            // The task first: one that ends at its first poll costs no timer.
            biased;
            how = &mut task => how,
            reason = patience_over(run) => HowEnded::Dropped(reason),
        }
    }
    .instrument(span)
    .await
}

/// Waits until the run is told to stop, or tells it so at its deadline; then waits for the end of its grace.
async fn patience_over(run: &Run) -> StopReason {
    let reason = tokio::select! {
        reason = run.signal().raised() => reason,
        () = tokio::time::sleep(run.soft_deadline().left()) => StopReason::Deadline,
    };
    run.raise(reason);
    tokio::select! {
        () = tokio::time::sleep(run.grace_after(reason)) => {}
        () = run.signal().hurried() => {}
    }
    run.signal().reason().unwrap_or(reason)
}

/// A task whose panics are outcomes, also those while it is dropped.
struct Caught(Option<BoxFuture<TaskResult>>);

impl Future for Caught {
    type Output = HowEnded;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<HowEnded> {
        let task = self.0.as_mut().expect("not polled after its end");
        let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context)));
        let how = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(result)) => HowEnded::Returned(result),
            Err(panic) => HowEnded::Panicked(panic_text(panic.as_ref())),
        };
        self.drop_task();
        Poll::Ready(how)
    }
}

impl Caught {
    fn drop_task(&mut self) {
        let task = self.0.take();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(task))) {
            tracing::error!(text = panic_text(panic.as_ref()), "a task panicked while it was dropped");
        }
    }
}

impl Drop for Caught {
    fn drop(&mut self) {
        self.drop_task();
    }
}
