//! The PostgreSQL store against the conformance suite.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hapax::clock::Clock;
use hapax::conformance::Harness;
use hapax::store::Store;
use hapax::store::postgres::PostgresStore;

use super::place::{Place, server};

/// A schema of its own on a movable clock.
pub(crate) struct Postgres {
    store: Mutex<Arc<PostgresStore>>,
    clock: Clock,
    place: Option<Place>,
    /// Schemas of harnesses that were made anew and are gone: emptied and used again, which is faster than new ones.
    spare: Arc<Mutex<Vec<Place>>>,
    /// Whether its schema goes there.
    is_anew: bool,
}

impl Postgres {
    pub(crate) async fn new() -> Self {
        Self::at(Place::new().await).await
    }

    pub(crate) async fn at(place: Place) -> Self {
        Self::with(place, Arc::default(), false).await
    }

    async fn with(place: Place, spare: Arc<Mutex<Vec<Place>>>, is_anew: bool) -> Self {
        let clock = Clock::movable();
        let store = Mutex::new(open(&place, &clock).await);
        Self { store, clock, place: Some(place), spare, is_anew }
    }

    fn place(&self) -> &Place {
        self.place.as_ref().expect("it is there until the harness is dropped")
    }

    fn current(&self) -> Arc<PostgresStore> {
        self.store.lock().expect("nobody panics while changing it").clone()
    }
}

/// For the many short histories: none is about a crash of the server, and its disk is what takes most of the time.
async fn hasty_place() -> Place {
    Place::at(&format!("{}?options=-csynchronous_commit%3Doff", server())).await
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
        let spare = self.spare.lock().expect("nobody panics while changing it").pop();
        let place = match spare {
            Some(place) => {
                place.empty().await;
                place
            }
            None if self.place().is_pooled => Place::behind_a_pooler().await,
            None => hasty_place().await,
        };
        Box::new(Self::with(place, Arc::clone(&self.spare), true).await)
    }

    async fn reopen(&self) -> Option<Arc<dyn Store>> {
        self.current().close().await;
        let store = open(self.place(), &self.clock).await;
        *self.store.lock().expect("nobody panics while changing it") = store.clone();
        Some(store)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(place) = self.place.take_if(|_| self.is_anew)
            && let Ok(mut spare) = self.spare.lock()
        {
            spare.push(place);
        }
    }
}

hapax::conformance! {
    harness: Postgres::new().await,
    exempt: [],
}
