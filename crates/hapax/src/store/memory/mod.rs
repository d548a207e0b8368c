//! The memory store: the model behind a mutex, and nothing else.
//!
//! For first steps, doc tests and users' own tests, and where one process is enough: everything is gone when it ends.
//! It is the reference that the other stores are compared with, so there is no second meaning of any verb.
//!
//! This room does not know: what the verbs mean (the model does), files, networks. It knows nothing of other stores.

mod inspect;
mod jobs;
mod leases;
mod once;
mod operate;
mod workers;

use std::any::Any;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use super::sealed::Sealed;
use super::{Hints, Store};
use crate::clock::{Clock, Now};
use crate::error::Result;
use crate::id::Name;
use crate::model::Model;

/// A store in this process's memory. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    model: Arc<Mutex<Model>>,
    clock: Clock,
}

impl MemoryStore {
    /// An empty store on the machine's clock.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store on a clock that a test may move.
    #[cfg(feature = "testing")]
    pub fn with_clock(clock: Clock) -> Self {
        Self { model: Arc::default(), clock }
    }

    /// One step of the model, at the time that is read under its lock.
    fn step<T>(&self, step: impl FnOnce(&mut Model, Now) -> T) -> T {
        let mut model = self.model.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        step(&mut model, self.clock.now())
    }
}

impl Sealed for MemoryStore {}

#[async_trait]
impl Store for MemoryStore {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn address(&self) -> String {
        "memory:".to_owned()
    }

    async fn another(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(self.clone()))
    }

    async fn hints(&self, _: Vec<Name>) -> Result<Option<Box<dyn Hints>>> {
        // Whoever enqueues is in this process, and the client wakes it.
        Ok(None)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    async fn close(&self) {}
}
