//! The PostgreSQL store against the conformance suite.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hapax::clock::Clock;
use hapax::conformance::Harness;
use hapax::store::Store;
use hapax::store::postgres::PostgresStore;

use super::place::Place;

/// A schema of its own on a movable clock.
pub(crate) struct Postgres {
    store: Mutex<Arc<PostgresStore>>,
    clock: Clock,
    place: Place,
}

impl Postgres {
    pub(crate) async fn new() -> Self {
        Self::at(Place::new().await).await
    }

    pub(crate) async fn at(place: Place) -> Self {
        let clock = Clock::movable();
        let store = Mutex::new(open(&place, &clock).await);
        Self { store, clock, place }
    }

    fn current(&self) -> Arc<PostgresStore> {
        self.store.lock().expect("nobody panics while changing it").clone()
    }
}

async fn open(place: &Place, clock: &Clock) -> Arc<PostgresStore> {
    let options = PostgresStore::options().clock(clock.clone()).pooled(place.is_pooled);
    Arc::new(options.open(&place.url).await.expect("it opens"))
}

#[async_trait]
impl Harness for Postgres {
    fn store(&self) -> Arc<dyn Store> {
        self.current()
    }

    async fn second(&self) -> Arc<dyn Store> {
        self.current().another().await.expect("it opens twice")
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    async fn anew(&self) -> Box<dyn Harness> {
        let pooled = self.place.is_pooled;
        Box::new(Self::at(if pooled { Place::behind_a_pooler().await } else { Place::new().await }).await)
    }

    async fn reopen(&self) -> Option<Arc<dyn Store>> {
        self.current().close().await;
        let store = open(&self.place, &self.clock).await;
        *self.store.lock().expect("nobody panics while changing it") = store.clone();
        Some(store)
    }
}

hapax::conformance! {
    harness: Postgres::new().await,
    exempt: [],
}
