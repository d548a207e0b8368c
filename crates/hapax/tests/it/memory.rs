//! The memory store against the conformance suite.

use std::sync::Arc;

use async_trait::async_trait;
use hapax::clock::Clock;
use hapax::conformance::Harness;
use hapax::store::Store;
use hapax::store::memory::MemoryStore;

/// A memory store on a movable clock.
pub(crate) struct Memory {
    store: MemoryStore,
    clock: Clock,
}

impl Memory {
    pub(crate) fn new() -> Self {
        let clock = Clock::movable();
        Self { store: MemoryStore::with_clock(clock.clone()), clock }
    }
}

#[async_trait]
impl Harness for Memory {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    async fn second(&self) -> Arc<dyn Store> {
        self.store.another().await.expect("memory is always there")
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    async fn anew(&self) -> Box<dyn Harness> {
        Box::new(Self::new())
    }

    async fn reopen(&self) -> Option<Arc<dyn Store>> {
        None
    }
}

hapax::conformance! {
    harness: Memory::new(),
    exempt: [
        ("everything_is_there_after_a_restart", "it ends with its process"),
        ("a_run_goes_on_over_a_restart", "it ends with its process"),
        ("fences_grow_over_restarts", "it ends with its process"),
        ("leases_outlast_a_restart", "it ends with its process"),
    ],
}
