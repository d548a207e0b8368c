//! An effect in the same database: the task's rows and the end of its run are one commit. Once, and never without it.
//!
//! `cargo run -p hapax --example effect_once`

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hapax::host::{Effect, Finished, Host};
use hapax::{Hapax, Job, JobError, JobExt, JobState, RetryPolicy};

#[derive(serde::Serialize, serde::Deserialize)]
struct BookPayment {
    order: i64,
}

impl Job for BookPayment {
    const KIND: &'static str = "book-payment";
    const RETRY: RetryPolicy = RetryPolicy { max_attempts: 5, base_ms: 10, cap_ms: 50, jitter_percent: 0 };
}

static ATTEMPTS: AtomicU32 = AtomicU32::new(0);

/// A task that takes an `Effect` and forgets to finish it does not compile.
async fn book_payment(job: BookPayment, effect: Effect) -> Result<Finished, JobError> {
    effect
        .finish_with(move |tx| {
            tx.execute("insert into ledger (order_id) values (?1)", [job.order])?;
            if ATTEMPTS.fetch_add(1, Ordering::SeqCst) == 0 {
                return Err("the power went after the row was written".into());
            }
            Ok(())
        })
        .await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("shop.db");
    let hapax = Hapax::sqlite(&file).await?;
    // The user's own table stands in the same file; nothing in it forbids a second row.
    let shop = rusqlite::Connection::open(&file)?;
    shop.execute_batch("create table ledger (order_id integer not null)")?;

    let job = hapax.enqueue(BookPayment { order: 7 }.once("order-7")).await?.id;
    let host = Host::builder(hapax.clone(), ())
        .queue("default", |queue| queue.workers(4))
        .poll(Duration::from_millis(20))
        .task(book_payment)
        .start()
        .await?;
    while hapax.job(job).await?.is_some_and(|(job, _)| job.state != JobState::Done) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    host.drain().await;

    let rows: i64 = shop.query_row("select count(*) from ledger", [], |row| row.get(0))?;
    println!("{} attempts, {rows} row", ATTEMPTS.load(Ordering::SeqCst));
    assert_eq!((ATTEMPTS.load(Ordering::SeqCst), rows), (2, 1));
    Ok(())
}
