//! Deletes what has outlived its retention.
//!
//! 1. In small bites, with pauses: a backlog of millions must not hold up anybody who works.
//! 2. At its own times, not in step with other instances.

use std::sync::Arc;
use std::time::Duration;

use super::core::Core;
use super::pace::around;
use super::shutdown::Stop;
use crate::error::Result;
use crate::model::Pruned;
use crate::task::BoxError;
use crate::telemetry;

/// Most rows of each kind in one bite.
const BITE: u32 = 500;
/// Between two bites of a backlog.
const PAUSE: Duration = Duration::from_millis(50);

/// Prunes now and then.
pub(crate) async fn serve(core: Arc<Core>, stop: Stop) -> Result<(), BoxError> {
    loop {
        tokio::select! {
            () = tokio::time::sleep(around(core.settings.prune_every)) => {}
            () = stop.requested() => return Ok(()),
        }
        loop {
            match bite(&core).await {
                Ok(true) if !stop.is_requested() => tokio::time::sleep(PAUSE).await,
                Ok(_) => break,
                Err(error) => {
                    telemetry::store_failed("prune");
                    tracing::warn!(%error, "could not prune; trying again later");
                    break;
                }
            }
        }
    }
}

/// One bite; gives whether another would find more.
async fn bite(core: &Core) -> Result<bool> {
    let pruned = core.store().prune(BITE).await?;
    let Pruned { jobs, keys, instances, refusals, locks } = pruned;
    let parts = [("jobs", jobs), ("keys", keys), ("instances", instances), ("refusals", refusals), ("locks", locks)];
    for (what, rows) in parts {
        if rows > 0 {
            metrics::counter!(telemetry::PRUNED, "what" => what).increment(u64::from(rows));
        }
    }
    Ok(parts.iter().any(|(_, rows)| *rows == BITE))
}
