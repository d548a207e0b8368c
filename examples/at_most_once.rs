//! At most once: a run whose end is unclear is never repeated. The job is in doubt and waits for a decision.
//!
//! `cargo run -p hapax --example at_most_once`

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hapax::host::Host;
use hapax::model::Resolution;
use hapax::{Guarantee, Hapax, Job, JobError, JobState};

#[derive(serde::Serialize, serde::Deserialize)]
struct LaunchRocket;

impl Job for LaunchRocket {
    const KIND: &'static str = "launch-rocket";
    const GUARANTEE: Guarantee = Guarantee::AtMostOnce;
}

static LAUNCHES: AtomicU32 = AtomicU32::new(0);

async fn launch(_: LaunchRocket) -> Result<(), JobError> {
    LAUNCHES.fetch_add(1, Ordering::SeqCst);
    // Any error through `?` leaves it open whether it happened. `JobError::not_done` would say that it did not.
    Err("no answer from the launch pad")?
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let hapax = Hapax::memory();
    let host = Host::builder(hapax.clone(), ()).poll(Duration::from_millis(10)).task(launch).start().await?;
    let job = hapax.enqueue(LaunchRocket).await?.id;
    while hapax.job(job).await?.is_some_and(|(job, _)| job.state != JobState::InDoubt) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(LAUNCHES.load(Ordering::SeqCst), 1, "nobody tries again");

    // Somebody looked at the sky.
    assert_eq!(hapax.resolve(job, Resolution::Done).await?, JobState::Done);
    host.drain().await;
    println!("{} launch, decided by a person", LAUNCHES.load(Ordering::SeqCst));
    Ok(())
}
