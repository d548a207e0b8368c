//! A loop that runs as long as the program: restarted with a growing pause when it fails, and stopped in order.
//!
//! `cargo run -p hapax --example supervised_service`

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hapax::Hapax;
use hapax::host::Host;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds = Arc::new(AtomicU32::new(0));
    let host = Host::builder(Hapax::memory(), rounds.clone())
        .service("poller", |rounds: Arc<AtomicU32>, stop| async move {
            let mut tick = tokio::time::interval(Duration::from_millis(10));
            loop {
                tokio::select! {
                    () = stop.requested() => return Ok(()),
                    _ = tick.tick() => {}
                }
                if rounds.fetch_add(1, Ordering::SeqCst) == 2 {
                    return Err("the third round fails".into());
                }
            }
        })
        .start()
        .await?;
    host.ready().await?;
    while rounds.load(Ordering::SeqCst) < 6 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    host.drain().await;
    println!("{} rounds, one failure, an orderly stop", rounds.load(Ordering::SeqCst));
    Ok(())
}
