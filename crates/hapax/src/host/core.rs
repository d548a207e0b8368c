//! What the parts of one host share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};

use super::finisher::Ended;
use super::instance::Instance;
use super::registry::Registry;
use super::slots::Slots;
use crate::client::Hapax;
use crate::id::{InstanceId, Name};
use crate::model::{NewInstance, Release, RunRef};
use crate::store::Store;
use crate::telemetry;

/// What the host was built with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) name: Name,
    pub(crate) version: String,
    pub(crate) lease: Duration,
    pub(crate) poll: Duration,
    pub(crate) drain_timeout: Duration,
    pub(crate) grace: Duration,
    pub(crate) prune_every: Duration,
}

/// Shared by the worker, the finisher, the keeper and the duties.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) hapax: Hapax,
    pub(crate) settings: Settings,
    pub(crate) registry: Registry,
    pub(crate) slots: Arc<Slots>,
    /// The present registration; replaced when the store declares it dead.
    pub(crate) instance: watch::Sender<Arc<Instance>>,
    pub(crate) ended: mpsc::UnboundedSender<Ended>,
    /// Asks the keeper to send a heartbeat now.
    pub(crate) beat_now: Notify,
    /// Heartbeats that were answered, whatever the answer.
    pub(crate) beats_answered: watch::Sender<u64>,
    /// Whether the worker has found nothing to claim since it last looked.
    pub(crate) idle: watch::Sender<bool>,
    pub(crate) tally: Tally,
}

impl Core {
    /// The store, by the connection that the worker and the duties share.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        self.hapax.store()
    }

    /// The present registration.
    pub(crate) fn instance(&self) -> Arc<Instance> {
        Arc::clone(&self.instance.borrow())
    }

    /// A registration under a new id.
    pub(crate) fn new_instance(hapax: &Hapax, settings: &Settings) -> Arc<Instance> {
        let lease_ms = u64::try_from(settings.lease.as_millis()).unwrap_or(u64::MAX);
        Arc::new(Instance::new(InstanceId::new(), hapax.clone(), lease_ms, settings.grace))
    }

    /// What the store is told about `instance`.
    pub(crate) fn registration(&self, instance: &Instance) -> NewInstance {
        NewInstance {
            id: instance.id,
            name: self.settings.name.clone(),
            version: self.settings.version.clone(),
            queues: self.slots.queues.iter().map(|queue| queue.name.clone()).collect(),
            kinds: self.registry.kinds().to_vec(),
            lease_ms: instance.lease_ms,
        }
    }

    /// Gives runs back that were not begun. If the store does not answer, the next heartbeat finds them.
    pub(crate) async fn give_back(&self, instance: &Instance, runs: Vec<RunRef>) {
        if runs.is_empty() {
            return;
        }
        match self.store().release(instance.id, Release::Runs(runs.clone())).await {
            Ok(released) => Tally::add(&self.tally.given_back, released.len() as u64),
            Err(error) => {
                telemetry::store_failed("release");
                tracing::warn!(%error, runs = runs.len(), "could not give jobs back; a heartbeat will");
            }
        }
        instance.drop_runs(&runs);
    }
}

/// What the host did so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) claimed: AtomicU64,
    pub(crate) finished: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) given_back: AtomicU64,
    pub(crate) taken_back: AtomicU64,
    pub(crate) stuck: AtomicU64,
}

impl Tally {
    pub(crate) fn add(number: &AtomicU64, by: u64) {
        number.fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn get(number: &AtomicU64) -> u64 {
        number.load(Ordering::Relaxed)
    }
}
