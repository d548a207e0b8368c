//! A job in your own transaction: there once that commits, and never if it does not.
//!
//! `cargo run -p hapax --example enqueue_in_transaction`

use hapax::model::JobFilter;
use hapax::{Hapax, Job, JobExt};
use rusqlite::{Connection, TransactionBehavior};

#[derive(serde::Serialize, serde::Deserialize)]
struct SendReceipt {
    order: i64,
}

impl Job for SendReceipt {
    const KIND: &'static str = "send-receipt";
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("shop.db");
    let hapax = Hapax::sqlite(&file).await?;
    let mut shop = Connection::open(&file)?;
    shop.execute_batch("create table orders (id integer primary key)")?;

    for (order, paid) in [(7, true), (8, false)] {
        // Immediate: a transaction that reads first and writes later may find the file changed in between.
        let tx = shop.transaction_with_behavior(TransactionBehavior::Immediate)?;
        tx.execute("insert into orders (id) values (?1)", [order])?;
        SendReceipt { order }.once(format!("receipt-{order}")).enqueue_in(&tx)?;
        if paid { tx.commit()? } else { tx.rollback()? }
    }

    let jobs = hapax.jobs(JobFilter { limit: 10, ..JobFilter::default() }).await?;
    assert_eq!(jobs.len(), 1, "the order that was rolled back has no receipt");
    println!("{} waits with {}", jobs[0].kind, jobs[0].payload.as_str());
    Ok(())
}
