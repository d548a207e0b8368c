//! Work of any kind that should take effect once: claim its key, do it, and say how it ended.
//!
//! `cargo run -p hapax --example once_key`

use hapax::client::OnceRun;
use hapax::{Error, ErrorKind, Hapax};

#[tokio::main(flavor = "current_thread")]
async fn main() -> hapax::Result<()> {
    let hapax = Hapax::memory();
    let report = || hapax.once("daily-report", "2026-11-30");

    // The first attempt fails, so the key is free at once for the next.
    let failed = report().run(async |_| Err::<(), _>(Error::did_not_happen(ErrorKind::Effect, "no paper"))).await;
    println!("first: {}", failed.expect_err("the work failed"));

    let sent = report().run(async |guard| Ok::<_, Error>(format!("attempt {}", guard.attempt()))).await?;
    assert!(matches!(&sent, OnceRun::Ran(text) if text == "attempt 2"), "{sent:?}");

    // Another replica, a restart, a second press of the button: all find it done.
    let repeated = report().run(async |_| Ok::<_, Error>(String::new())).await?;
    let OnceRun::Done(record) = repeated else { panic!("it was done before: {repeated:?}") };
    println!("refused: {} was done by attempt {}, {} repeat(s) refused", record.key, record.attempts, record.refused);
    Ok(())
}
