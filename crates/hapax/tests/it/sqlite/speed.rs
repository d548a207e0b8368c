//! How fast it is here. Measurements, not tests: `cargo test --release --test it -- --ignored --nocapture speed`

use std::time::Instant;

use hapax::JobState;
use hapax::model::{End, Finish, JobFilter, NewInstance, RunRef};
use hapax::store::sqlite::SqliteStore;
use hapax::store::{Inspect, Jobs, Workers};

use super::{asking, instance, job, place};

const JOBS: usize = 50_000;

fn per_second(n: usize, since: Instant) -> u64 {
    let us = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX).max(1);
    n as u64 * 1_000_000 / us
}

#[tokio::test]
#[ignore = "a measurement"]
async fn speed_of_batches() {
    for batch in [1, 10, 100, 500] {
        let place = place();
        let store = SqliteStore::open(&place.file).await.expect("opens");
        let by = NewInstance { lease_ms: 3_600_000, ..instance() };
        store.register(by.clone()).await.expect("registered");
        let jobs = JOBS.min(batch * 2_000);
        let batches: Vec<Vec<_>> = (0..jobs / batch).map(|_| (0..batch).map(|_| job()).collect()).collect();
        let began = Instant::now();
        for new in batches {
            store.enqueue(new).await.expect("enqueued");
        }
        let enqueue = per_second(jobs, began);
        let began = Instant::now();
        let limit = u32::try_from(batch).expect("small");
        loop {
            let claimed = store.claim(asking(by.id, limit)).await.expect("claimed").jobs;
            if claimed.is_empty() {
                break;
            }
            let run = |job: &hapax::model::JobRecord| RunRef { job: job.id, fence: job.fence.expect("claimed") };
            let finishes = claimed.iter().map(|job| Finish { run: run(job), end: End::Done { result: None } });
            store.finish(finishes.collect()).await.expect("written");
        }
        let drain = per_second(jobs, began);
        let done = JobFilter { state: Some(JobState::Done), limit: 1, ..JobFilter::default() };
        assert_eq!(store.list(done).await.expect("read").len(), 1);
        println!("batch {batch}: enqueue {enqueue}/s, claim and finish {drain}/s");
    }
}

#[tokio::test]
#[ignore = "a measurement"]
async fn speed_of_many_callers() {
    let place = place();
    let store = SqliteStore::open(&place.file).await.expect("opens");
    let began = Instant::now();
    let callers = (0..64).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            for _ in 0..300 {
                store.enqueue(vec![job()]).await.expect("enqueued");
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.expect("no panic");
    }
    println!("64 callers, one job a call: enqueue {}/s", per_second(64 * 300, began));
}
