//! Cleans up after others.
//!
//! 1. Has instances declared dead whose lease ran out, and their jobs taken back; the store selects them and checks them
//!    again in one step.
//! 2. Has runs taken back that passed their deadline, also from live instances: a task may block its thread for ever.
//! 3. Holds back after a stall: an instance that could not write for longer than its lease renews itself first, and
//!    gives others one heartbeat to do the same, before it declares anybody dead.

use std::sync::Arc;

use super::core::{Core, Tally};
use super::pace::around;
use super::shutdown::Stop;
use crate::error::{Outcome, Result};
use crate::task::BoxError;
use crate::telemetry;

/// Most jobs of one bite.
const BITE: u32 = 200;

/// Reaps about every half lease.
pub(crate) async fn serve(core: Arc<Core>, stop: Stop) -> Result<(), BoxError> {
    loop {
        tokio::select! {
            () = tokio::time::sleep(around(core.settings.lease / 2)) => {}
            () = stop.requested() => return Ok(()),
        }
        if let Err(error) = reap(&core).await {
            telemetry::store_failed("reap");
            let lost = error.outcome() == Outcome::MayHaveHappened;
            tracing::warn!(%error, lost, "could not reap; trying again later");
        }
    }
}

/// Reaps until nothing is left; gives how many jobs were taken back.
pub(crate) async fn reap(core: &Core) -> Result<u64> {
    let mut taken_back = 0;
    loop {
        let instance = core.instance();
        if !instance.may_reap() {
            return Ok(taken_back);
        }
        let reaped = core.store().reap(instance.id, BITE).await?;
        for dead in &reaped.dead {
            tracing::warn!(instance = %dead, "declared an instance dead, since its lease ran out");
        }
        for (job, state) in &reaped.taken_back {
            metrics::counter!(telemetry::TAKEN_BACK, "state" => state.as_str()).increment(1);
            tracing::info!(%job, %state, "took a job back");
        }
        taken_back += reaped.taken_back.len() as u64;
        Tally::add(&core.tally.taken_back, reaped.taken_back.len() as u64);
        if !reaped.taken_back.is_empty() {
            core.hapax.wake().poke();
        }
        if !reaped.more {
            return Ok(taken_back);
        }
        tokio::task::yield_now().await;
    }
}
