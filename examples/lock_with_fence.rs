//! A lock stops overlap while everything is well. Its fence refuses the late write when it is not.
//!
//! `cargo run -p hapax --example lock_with_fence`

use std::time::Duration;

use hapax::{Fence, Hapax};

/// What the lock protects: it remembers the highest fence that wrote, as `… WHERE fence <= $1` would.
#[derive(Default)]
struct Report {
    body: String,
    fence: Option<Fence>,
}

impl Report {
    fn write(&mut self, body: &str, fence: Fence) -> bool {
        let current = self.fence.is_none_or(|highest| highest <= fence);
        if current {
            (self.body, self.fence) = (body.to_owned(), Some(fence));
        }
        current
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> hapax::Result<()> {
    let hapax = Hapax::memory();
    let lease = Duration::from_secs(30);
    let mut report = Report::default();

    let first = hapax.lock("report").lease(lease).acquire().await?;
    assert!(hapax.try_lock("report", lease).await?.is_none(), "one at a time");
    let stalled = first.fence();
    first.release().await?;

    // The closure form: acquired, renewed, dropped if the lease is lost, given back.
    hapax
        .with_lock("report", lease, async |guard| {
            assert!(report.write("today", guard.fence()));
            Ok::<_, std::convert::Infallible>(())
        })
        .await
        .expect("nobody else holds it");

    // The first holder wakes up late and writes all the same.
    assert!(!report.write("yesterday", stalled), "refused: its fence is lower");
    println!("the report says {:?}, written under fence {}", report.body, report.fence.expect("written"));

    let pool = hapax.lock("printers").permits(2);
    let (one, two) = (pool.try_acquire().await?, pool.try_acquire().await?);
    assert!(one.is_some() && two.is_some() && pool.try_acquire().await?.is_none());
    println!("two of two permits held");
    Ok(())
}
