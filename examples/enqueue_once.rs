//! A once key refuses the repeat: while the work lives, and after it is done for as long as the key is remembered.
//!
//! `cargo run -p hapax --example enqueue_once`

use std::time::Duration;

use hapax::{ErrorKind, Hapax, Job, JobExt};

#[derive(serde::Serialize, serde::Deserialize)]
struct CancelOrder {
    order: i64,
}

impl Job for CancelOrder {
    const KIND: &'static str = "cancel-order";
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> hapax::Result<()> {
    let hapax = Hapax::memory();
    let first = hapax.enqueue(CancelOrder { order: 7 }.once("order-7").due_in(Duration::from_mins(30))).await?;
    // The shop's button was pressed twice.
    let again = hapax.enqueue(CancelOrder { order: 7 }.once("order-7")).await?;
    assert!(again.existed && again.id == first.id);
    // The same key for other work is an error that names both, not a duplicate.
    let other = hapax.enqueue(CancelOrder { order: 8 }.once("order-7")).await.expect_err("other work");
    assert_eq!(other.kind(), ErrorKind::KeyReused);
    // Paid meanwhile: the job is not wanted any more, and its key is free at once.
    hapax.cancel(first.id, "paid").await?;
    assert!(!hapax.enqueue(CancelOrder { order: 7 }.once("order-7")).await?.existed);
    println!("one job for order 7; {} duplicate refused; {other}", hapax.counters().await?.duplicates_refused);
    Ok(())
}
