//! What only the SQLite store has: its file, its processes, its transactions. What every store has is in the
//! conformance suite.

mod differential;
mod effects;
mod files;
mod groups;
mod processes;
mod statements;
mod suite;

use std::path::PathBuf;

use hapax::clock::Clock;
use hapax::id::{Name, Payload};
use hapax::model::{ClaimRequest, Due, Guarantee, NewInstance, NewJob, RetryPolicy, RunRef};
use hapax::store::sqlite::SqliteStore;
use hapax::store::{Jobs, Workers};
use hapax::{ClaimId, InstanceId, JobId};

/// A folder of its own for one test, and a file in it.
struct Place {
    _folder: tempfile::TempDir,
    file: PathBuf,
}

fn place() -> Place {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("jobs.db");
    Place { _folder: folder, file }
}

fn name(text: &str) -> Name {
    Name::new("name", text).expect("a legal name")
}

fn job() -> NewJob {
    NewJob {
        id: JobId::new(),
        queue: name("q"),
        kind: name("k"),
        payload: Payload::new("{}").expect("JSON"),
        payload_version: 1,
        priority: 0,
        due: Due::Now,
        once: None,
        guarantee: Guarantee::AtLeastOnce,
        retry: RetryPolicy { jitter_percent: 0, ..RetryPolicy::default() },
        run_timeout_ms: 60_000,
        keep_ms: 60_000,
    }
}

fn instance() -> NewInstance {
    NewInstance {
        id: InstanceId::new(),
        name: name("host:1"),
        version: "0".into(),
        queues: vec![name("q")],
        kinds: vec![name("k")],
        lease_ms: 30_000,
    }
}

fn asking(by: InstanceId, limit: u32) -> ClaimRequest {
    let claim = ClaimId::new();
    ClaimRequest { instance: by, claim, queues: vec![(name("q"), limit)], kinds: vec![name("k")], suspect: true }
}

/// A store with one job, claimed.
async fn claimed(store: &SqliteStore) -> RunRef {
    let new = job();
    store.enqueue(vec![new.clone()]).await.expect("enqueued");
    let by = instance();
    store.register(by.clone()).await.expect("registered");
    let jobs = store.claim(asking(by.id, 1)).await.expect("claimed").jobs;
    assert_eq!(jobs.len(), 1);
    RunRef { job: jobs[0].id, fence: jobs[0].fence.expect("claimed") }
}

async fn open_with(place: &Place, clock: &Clock) -> SqliteStore {
    SqliteStore::options().clock(clock.clone()).open(&place.file).await.expect("opens")
}
