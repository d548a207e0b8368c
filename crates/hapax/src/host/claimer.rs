//! Asks the store for work: looks first where nothing is expected, and settles what was lost on the way.

use std::sync::Arc;
use std::time::Duration;

use super::core::Core;
use super::instance::Instance;
use super::pace::Pace;
use crate::clock::{Anchor, Deadline};
use crate::error::{Error, Outcome, Result};
use crate::id::{ClaimId, Name};
use crate::model::{ClaimRequest, JobRecord, Refusal, Release};
use crate::telemetry;

/// How to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Read first: it takes no lock, and usually there is nothing.
    First,
    /// Claim at once: the last claim found as much as it could take.
    Not,
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Asked {
    /// Nothing to claim; the next job is due then.
    Nothing { next_due: Option<Duration> },
    /// These jobs, all claimed at `anchor` or later.
    Claimed { jobs: Vec<JobRecord>, claim: ClaimId, anchor: Anchor },
    /// The store does not take claims from this instance.
    NotLive { claim: ClaimId },
    /// An error; with the claim whose answer may be lost, if it was sent.
    Failed { claim: Option<ClaimId>, error: Error },
}

/// Asks once. While a claim is on its way, `instance` knows it, so that no heartbeat gives its jobs back.
pub(crate) async fn ask(
    core: Arc<Core>,
    instance: Arc<Instance>,
    wanted: Vec<(Name, u32)>,
    (look, suspect): (Look, bool),
) -> Asked {
    let claim = ClaimId::new();
    let kinds = core.registry.kinds().to_vec();
    let request = ClaimRequest { instance: instance.id, claim, queues: wanted, kinds, suspect };
    if look == Look::First {
        match core.store().peek(request.clone()).await {
            Ok(answer) if answer.ready => {}
            Ok(answer) => return Asked::Nothing { next_due: answer.next_due_in_ms.map(Duration::from_millis) },
            Err(error) => {
                telemetry::store_failed("peek");
                return Asked::Failed { claim: None, error };
            }
        }
    }
    instance.expect_claim(claim);
    let anchor = Deadline::anchor();
    match core.store().claim(request).await {
        Ok(answer) => Asked::Claimed { jobs: answer.jobs, claim, anchor },
        Err(error) if matches!(error.refusal(), Some(Refusal::NotLive { .. })) => Asked::NotLive { claim },
        Err(error) => {
            telemetry::store_failed("claim");
            Asked::Failed { claim: Some(claim), error }
        }
    }
}

/// The answer to a claim was lost: whatever it took is given back whole. The claim stays known until then.
pub(crate) async fn settle_lost(core: Arc<Core>, instance: Arc<Instance>, claim: ClaimId, error: Error) {
    if error.outcome() == Outcome::MayHaveHappened {
        let mut pace = Pace::new(Duration::from_millis(20), Duration::from_secs(2));
        while let Err(error) = give_claim_back(&core, &instance, claim).await {
            telemetry::store_failed("release");
            if instance.is_gone() || pace.failures() >= 10 {
                tracing::warn!(%claim, %error, "could not give a claim back; a heartbeat will give back its jobs");
                break;
            }
            tokio::time::sleep(pace.next()).await;
        }
    }
    // From now on a heartbeat gives back what may still come of it, such as a claim that the store carries out late.
    instance.take_claim(claim, &[]);
}

async fn give_claim_back(core: &Core, instance: &Instance, claim: ClaimId) -> Result<()> {
    let released = core.store().release(instance.id, Release::Claim(claim)).await?;
    if !released.is_empty() {
        tracing::info!(%claim, jobs = released.len(), "gave back a claim whose answer was lost");
        core.hapax.wake().poke();
    }
    Ok(())
}
