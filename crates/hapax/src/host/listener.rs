//! Keeps the line on which the store tells of new work, where a store has one.
//!
//! 1. Says that this host sleeps only when its worker has found nothing for a moment: a busy fleet sends no hints.
//! 2. Registers before looking: the worker looks once more after the store knows that it sleeps.
//! 3. A line that is lost, or that no longer answers, is opened again within seconds; polling goes on all the while.

use std::sync::Arc;
use std::time::Duration;

use super::core::Core;
use super::pace::Pace;
use super::shutdown::Stop;
use crate::error::Result;
use crate::id::Name;
use crate::store::Hints;
use crate::task::BoxError;
use crate::telemetry;

/// How long the worker finds nothing, or has enough, before the store is told.
const DOZE: Duration = Duration::from_millis(50);
/// How often the line is tried: within this and its answer a dead one is noticed.
const TRY_EVERY: Duration = Duration::from_secs(10);

/// Listens until asked to stop.
pub(crate) async fn serve(core: Arc<Core>, stop: Stop) -> Result<(), BoxError> {
    let queues: Vec<Name> = core.slots.queues.iter().map(|queue| queue.name.clone()).collect();
    let mut pace = Pace::new(Duration::from_millis(200), Duration::from_secs(10));
    let mut told = false;
    loop {
        match core.store().hints(queues.clone()).await {
            Ok(None) => {
                tracing::info!(poll = ?core.settings.poll, "work is found by polling: the store gives no hints");
                stop.requested().await;
                return Ok(());
            }
            Ok(Some(line)) => {
                if !told {
                    tracing::info!("the store gives hints of new work");
                    told = true;
                }
                // What came while nobody listened.
                core.hapax.wake().poke();
                pace.reset();
                tokio::select! {
                    lost = listen(&core, line) => failed(&lost),
                    () = stop.requested() => return Ok(()),
                }
            }
            Err(error) => failed(&error),
        }
        tokio::select! {
            () = tokio::time::sleep(pace.next()) => {}
            () = stop.requested() => return Ok(()),
        }
    }
}

fn failed(error: &crate::Error) {
    telemetry::store_failed("hints");
    tracing::warn!(%error, "lost the line for hints of new work; opening it again");
}

/// Listens on one line until it is lost.
async fn listen(core: &Core, mut line: Box<dyn Hints>) -> crate::Error {
    loop {
        match turn(core, &mut *line).await {
            Ok(()) => {}
            Err(error) => return error,
        }
    }
}

/// One change between work and sleep, or one hint.
async fn turn(core: &Core, line: &mut dyn Hints) -> Result<()> {
    let mut idle = core.idle.subscribe();
    if !*idle.borrow_and_update() {
        // A hint that was on its way is worth nothing now.
        line.tell(false).await?;
        while !*idle.borrow_and_update() {
            if tokio::time::timeout(TRY_EVERY, idle.changed()).await.is_err() {
                line.tell(false).await?;
            }
        }
        if tokio::time::timeout(DOZE, idle.wait_for(|idle| !idle)).await.is_ok() {
            return Ok(());
        }
    }
    line.tell(true).await?;
    core.hapax.wake().poke();
    loop {
        let stirred = tokio::select! {
            hint = line.wait() => {
                hint?;
                core.hapax.wake().poke();
                false
            }
            _ = idle.changed() => true,
            () = tokio::time::sleep(TRY_EVERY) => {
                line.tell(true).await?;
                false
            }
        };
        // A job now and then is no reason to say so each time: the store goes on telling meanwhile.
        if stirred && tokio::time::timeout(DOZE, idle.wait_for(|idle| *idle)).await.is_err() {
            return Ok(());
        }
    }
}
