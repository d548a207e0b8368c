//! The host on the memory store: real hosts, with leases and polls short enough that nobody waits.

mod cancel;
mod lease;
mod lost_answers;
mod outcomes;
mod panics;
mod services;
mod shutdown;
mod testing;
mod types;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use hapax::clock::Clock;
use hapax::host::HostBuilder;
use hapax::id::{JobId, Name, Payload};
use hapax::model::{Due, JobRecord, NewJob, RunRecord};
use hapax::store::Store;
use hapax::store::memory::MemoryStore;
use hapax::{Hapax, Host, Job, JobState};

/// A memory store on the machine's clock.
fn memory() -> Hapax {
    Hapax::memory()
}

/// A memory store whose clock stands still until it is moved.
fn movable() -> (Hapax, Clock) {
    let clock = Clock::movable();
    (Hapax::with_store(Arc::new(MemoryStore::with_clock(clock.clone()))), clock)
}

/// A host that looks often and ends soon.
fn host<S: Clone + Send + Sync + 'static>(hapax: &Hapax, state: S) -> HostBuilder<S> {
    let host = Host::builder(hapax.clone(), state);
    host.poll(Duration::from_millis(5)).grace(Duration::from_millis(50)).drain_timeout(Duration::from_secs(10))
}

/// The job with the defaults of its kind.
fn new<J: Job>(job: &J) -> NewJob {
    NewJob {
        id: JobId::new(),
        queue: Name::new("queue", J::QUEUE).expect("legal"),
        kind: Name::new("kind", J::KIND).expect("legal"),
        payload: Payload::new(&serde_json::to_string(job).expect("JSON")).expect("legal"),
        payload_version: J::PAYLOAD_VERSION,
        priority: 0,
        due: Due::Now,
        once: None,
        guarantee: J::GUARANTEE,
        retry: J::RETRY,
        run_timeout_ms: u64::try_from(J::RUN_TIMEOUT.as_millis()).expect("short"),
        keep_ms: 86_400_000,
    }
}

/// Enqueues jobs; gives their ids.
async fn enqueue(store: &Arc<dyn Store>, jobs: Vec<NewJob>) -> Vec<JobId> {
    let ids = jobs.iter().map(|job| job.id).collect();
    store.enqueue(jobs).await.expect("the memory store takes jobs");
    ids
}

/// Enqueues one job.
async fn enqueue_one<J: Job>(hapax: &Hapax, job: &J) -> JobId {
    enqueue(hapax.store(), vec![new(job)]).await[0]
}

/// A job and its ended runs.
async fn look(hapax: &Hapax, id: JobId) -> (JobRecord, Vec<RunRecord>) {
    hapax.store().job(id).await.expect("the memory store answers").expect("the job exists")
}

/// Waits until a job is in a state; gives it as it is then.
async fn wait_for(hapax: &Hapax, id: JobId, state: JobState) -> (JobRecord, Vec<RunRecord>) {
    until(&format!("job {id} is {state}"), async || look(hapax, id).await.0.state == state).await;
    look(hapax, id).await
}

/// Waits for what another task brings about.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(30), wait).await.is_ok(), "after 30 s still not so: {what}");
}
