//! WHAT DO I CALL? The handle that a program keeps, and what it does with a store.
//!
//! Everything that must be the same on every store lives here, once: validation, defaults, the settling of lost
//! answers, metrics. The stores below stay thin.
//!
//! This room does not know: how a store keeps anything, SQL, or who runs the jobs. It knows nothing of `host/`.

mod wake;

use std::sync::Arc;

use crate::store::Store;
use crate::store::memory::MemoryStore;

pub(crate) use wake::Wake;

/// A cheap handle on a store; clones share it.
#[derive(Clone, Debug)]
pub struct Hapax {
    store: Arc<dyn Store>,
    wake: Wake,
}

impl Hapax {
    /// A store in this process's memory: for first steps, tests, and singletons within one process.
    pub fn memory() -> Self {
        Self::with_store(Arc::new(MemoryStore::new()))
    }

    /// A handle on a store that was opened by hand.
    pub fn with_store(store: Arc<dyn Store>) -> Self {
        Self { store, wake: Wake::default() }
    }

    /// The store itself: its verbs without validation and defaults.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Hints from this process that something may be due.
    pub(crate) const fn wake(&self) -> &Wake {
        &self.wake
    }
}
