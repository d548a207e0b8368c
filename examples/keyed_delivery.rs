//! An effect elsewhere may be asked for twice: with the same delivery id on every attempt, and a fence that only grows.
//!
//! `cargo run -p hapax --example keyed_delivery`

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hapax::host::{Host, State};
use hapax::{Guarantee, Hapax, Job, JobError, JobId, JobState, RetryPolicy, Run};

#[derive(serde::Serialize, serde::Deserialize)]
struct Charge {
    cents: i64,
}

impl Job for Charge {
    const KIND: &'static str = "charge";
    const GUARANTEE: Guarantee = Guarantee::Keyed;
    const RETRY: RetryPolicy = RetryPolicy { max_attempts: 5, base_ms: 10, cap_ms: 50, jitter_percent: 20 };
}

/// The bank: it remembers delivery ids and books each once, however often it is asked.
#[derive(Clone, Default)]
struct Bank(Arc<Mutex<BTreeMap<JobId, (u32, i64)>>>);

impl Bank {
    /// Books at once; the first answer of each delivery is lost on the way back.
    fn charge(&self, delivery: JobId, cents: i64) -> Result<(), &'static str> {
        let mut booked = self.0.lock().expect("nobody panics here");
        let (asked, _) = booked.entry(delivery).and_modify(|(asked, _)| *asked += 1).or_insert((1, cents));
        if *asked == 1 { Err("timeout after sending") } else { Ok(()) }
    }
}

async fn charge(job: Charge, State(bank): State<Bank>, run: Run) -> Result<(), JobError> {
    println!("attempt {} of delivery {} under fence {}", run.attempt(), run.delivery_id(), run.fence());
    // Sent, and no answer: it may have happened. The next attempt carries the same key.
    bank.charge(run.delivery_id(), job.cents).map_err(JobError::unknown)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (hapax, bank) = (Hapax::memory(), Bank::default());
    let host = Host::builder(hapax.clone(), bank.clone()).poll(Duration::from_millis(10)).task(charge).start().await?;
    let job = hapax.enqueue(Charge { cents: 4_200 }).await?.id;
    while hapax.job(job).await?.is_some_and(|(job, _)| job.state != JobState::Done) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    host.drain().await;

    let (_, runs) = hapax.job(job).await?.expect("kept for its retention");
    let booked = bank.0.lock().expect("nobody panics here");
    assert_eq!(booked.values().collect::<Vec<_>>(), [&(2, 4_200)], "asked twice, booked once");
    println!("first run ended as {:?}; booked once", runs[0].outcome);
    Ok(())
}
