//! The SQLite store against the conformance suite.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hapax::clock::Clock;
use hapax::conformance::Harness;
use hapax::store::Store;
use hapax::store::sqlite::SqliteStore;

/// A file of its own on a movable clock.
pub(crate) struct Sqlite {
    store: Mutex<Arc<SqliteStore>>,
    clock: Clock,
    file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Sqlite {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, clock) = (folder.path().join("jobs.db"), Clock::movable());
        let store = Mutex::new(open(&file, &clock).await);
        Self { store, clock, file, _folder: folder }
    }

    fn current(&self) -> Arc<SqliteStore> {
        self.store.lock().expect("nobody panics while changing it").clone()
    }
}

async fn open(file: &PathBuf, clock: &Clock) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::options().clock(clock.clone()).open(file).await.expect("it opens"))
}

#[async_trait]
impl Harness for Sqlite {
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
        Box::new(Self::new().await)
    }

    async fn reopen(&self) -> Option<Arc<dyn Store>> {
        self.current().close().await;
        let store = open(&self.file, &self.clock).await;
        *self.store.lock().expect("nobody panics while changing it") = store.clone();
        Some(store)
    }
}

hapax::conformance! {
    harness: Sqlite::new().await,
    exempt: [],
}
