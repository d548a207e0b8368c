//! Your own tests: a clock that you move, jobs that run when you say so, an instance that dies when you want it to.
//!
//! `cargo run -p hapax --example test_your_tasks --features testing`

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hapax::host::State;
use hapax::testing::TestHapax;
use hapax::{Job, JobState};

#[derive(serde::Serialize, serde::Deserialize)]
struct Remind {
    order: i64,
}

impl Job for Remind {
    const KIND: &'static str = "remind";
}

async fn remind(_: Remind, State(sent): State<Arc<AtomicU32>>) {
    sent.fetch_add(1, Ordering::SeqCst);
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let sent = Arc::new(AtomicU32::new(0));
    let test = TestHapax::new(sent.clone()).task(remind);

    let job = test.enqueue_in(&Remind { order: 7 }, Duration::from_mins(30)).await;
    test.assert_enqueued::<Remind>(|job| job.order == 7).await;
    assert_eq!(test.run_due().await, 0, "not before it is due");
    test.advance(Duration::from_mins(30));

    // The instance that claims it dies with it; once its lease is over another takes it over.
    let dead = test.kill_instance().await;
    assert_eq!(test.run_due().await, 0, "not before the lease is over");
    test.advance(TestHapax::<()>::LEASE);
    assert_eq!(test.run_due().await, 1);
    assert_eq!(test.state_of(job).await, JobState::Done);
    assert_eq!(sent.load(Ordering::SeqCst), 1);

    // What the dead one still has to say is refused.
    let late = dead.finish_late().await.expect("the store answers");
    assert!(late.iter().all(|settled| !settled.counted()));
    println!("sent once; {} late write refused", late.len());
}
