//! The client on the memory store: what holds whatever the store is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hapax::client::{LockError, OnceClaim, OnceRun};
use hapax::clock::Clock;
use hapax::model::{JobFilter, Resolution};
use hapax::store::memory::MemoryStore;
use hapax::{Enqueue, Error, ErrorKind, Hapax, Job, JobExt, JobId, JobState};

#[derive(serde::Serialize, serde::Deserialize)]
struct CancelOrder {
    order: i64,
}

impl Job for CancelOrder {
    const KIND: &'static str = "cancel-order";
    const QUEUE: &'static str = "orders";
}

/// The store's clock stands still until it is moved; the client's own runs on.
fn on_movable_clock() -> (Hapax, Clock) {
    let clock = Clock::movable();
    (Hapax::with_store(Arc::new(MemoryStore::with_clock(clock.clone()))), clock)
}

#[tokio::test]
async fn a_duplicate_is_an_answer_and_another_payload_is_an_error() {
    let hapax = Hapax::memory();
    let first = hapax.enqueue(CancelOrder { order: 7 }.once("order-7")).await.expect("enqueued");
    let again = hapax.enqueue(CancelOrder { order: 7 }.once("order-7")).await.expect("a duplicate is no error");
    assert_eq!((again.id, again.existed), (first.id, true));
    let other = hapax.enqueue(CancelOrder { order: 8 }.once("order-7")).await.expect_err("other work");
    assert_eq!(other.kind(), ErrorKind::KeyReused);
    let text = other.to_string();
    assert!(text.contains(&first.id.to_string()) && text.matches("fingerprint").count() == 1, "{text}");
    assert_eq!(hapax.counters().await.expect("counted").duplicates_refused, 1);
}

#[tokio::test]
async fn the_same_key_of_another_kind_is_another_key() {
    let hapax = Hapax::memory();
    hapax.enqueue(Enqueue::new("a", "{}").once("k")).await.expect("enqueued");
    assert!(!hapax.enqueue(Enqueue::new("b", "{}").once("k")).await.expect("enqueued").existed);
}

#[tokio::test]
async fn one_bad_job_of_many_names_the_field_and_enqueues_nothing() {
    let hapax = Hapax::memory();
    let bad: [(Enqueue, &str); 8] = [
        (Enqueue::new("", "{}"), "kind"),
        (Enqueue::new("k".repeat(129), "{}"), "kind"),
        (Enqueue::new("k", "{}").queue("q\n"), "queue"),
        (Enqueue::new("k", "not json"), "payload"),
        (Enqueue::new("k", format!("\"{}\"", "x".repeat(1 << 20))), "payload"),
        (Enqueue::new("k", "{}").once(""), "once key"),
        (Enqueue::new("k", "{}").once("k".repeat(4_097)), "once key"),
        (Enqueue::new("k", "{}").run_timeout(Duration::ZERO), "run_timeout"),
    ];
    for (bad, field) in bad {
        let error = hapax.enqueue_many([Enqueue::new("k", "{}"), bad]).await.expect_err(field);
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().starts_with(field), "{field}: {error}");
    }
    assert!(hapax.jobs(JobFilter { limit: 10, ..JobFilter::default() }).await.expect("listed").is_empty());
}

#[tokio::test]
async fn decisions_are_refused_where_the_state_does_not_allow_them() {
    let hapax = Hapax::memory();
    let job = hapax.enqueue(CancelOrder { order: 1 }).await.expect("enqueued").id;
    assert_eq!(hapax.resolve(job, Resolution::Done).await.expect_err("not in doubt").kind(), ErrorKind::Refused);
    assert_eq!(hapax.park(job, "look at it").await.expect("parked"), JobState::Parked);
    assert_eq!(hapax.retry(job).await.expect("ready"), JobState::Ready);
    assert_eq!(hapax.cancel(job, "not wanted").await.expect("cancelled"), JobState::Cancelled);
    assert_eq!(hapax.cancel(job, "twice").await.expect("no change"), JobState::Cancelled);
    let unknown = hapax.cancel(JobId::new(), "?").await.expect_err("unknown");
    assert_eq!(unknown.kind(), ErrorKind::Refused);
    assert!(hapax.jobs(JobFilter::default()).await.expect_err("no limit").to_string().contains("limit"));
}

#[tokio::test]
async fn a_lock_is_held_by_one_and_given_back_by_every_end() {
    let hapax = Hapax::memory();
    let lease = Duration::from_secs(30);
    let first = hapax.try_lock("l", lease).await.expect("asked").expect("free");
    assert!(hapax.try_lock("l", lease).await.expect("asked").is_none());
    let waited = hapax.lock("l").wait(Duration::from_millis(30)).acquire().await.expect_err("held");
    assert_eq!(waited.kind(), ErrorKind::Held);
    let fence = first.fence();
    first.release().await.expect("it was held");
    let second = hapax.lock("l").wait(Duration::from_secs(5)).acquire().await.expect("free");
    assert!(second.fence() > fence);
    drop(second);
    let third = hapax.lock("l").wait(Duration::from_secs(5)).acquire().await.expect("dropping gives it back");
    assert!(third.is_held() && third.left() > Duration::ZERO);
}

#[tokio::test]
async fn permits_are_counted() {
    let hapax = Hapax::memory();
    let pool = hapax.lock("pool").permits(2);
    let one = pool.try_acquire().await.expect("asked").expect("free");
    let two = pool.try_acquire().await.expect("asked").expect("free");
    assert_ne!(one.slot(), two.slot());
    assert!(pool.try_acquire().await.expect("asked").is_none());
    one.release().await.expect("held");
    assert!(pool.try_acquire().await.expect("asked").is_some());
    assert_eq!(hapax.lock("x").permits(0).try_acquire().await.expect_err("no permits").kind(), ErrorKind::Invalid);
    let short = hapax.try_lock("x", Duration::from_millis(1)).await.expect_err("too short");
    assert!(short.to_string().contains("lease"), "{short}");
    assert!(hapax.try_lock("", Duration::from_secs(1)).await.expect_err("no name").to_string().contains("lock"));
}

#[tokio::test]
async fn the_holder_learns_of_its_loss_and_its_work_is_dropped() {
    let (hapax, clock) = on_movable_clock();
    let dropped = Arc::new(AtomicU32::new(0));
    let counter = dropped.clone();
    let lease = Duration::from_millis(300);
    let lost = hapax
        .with_lock("l", lease, async |guard| {
            struct Dropped(Arc<AtomicU32>);
            impl Drop for Dropped {
                fn drop(&mut self) {
                    self.0.fetch_add(1, Ordering::SeqCst);
                }
            }
            let _work = Dropped(counter);
            clock.advance(Duration::from_secs(1));
            let other = hapax.try_lock("l", Duration::from_secs(30)).await?.expect("the lease has run out");
            assert!(other.fence() > guard.fence());
            std::future::pending::<Result<(), Error>>().await
        })
        .await;
    assert!(matches!(lost, Err(LockError::Lost)), "{lost:?}");
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    assert!(hapax.counters().await.expect("counted").writes_refused >= 1, "the renewal was refused");
}

#[tokio::test]
async fn an_acquire_that_is_dropped_leaves_nothing_held() {
    let hapax = Hapax::memory();
    for _ in 0..50 {
        let lock = hapax.lock("l");
        let mut acquire = Box::pin(lock.acquire());
        // Polled once: the order is on its way.
        assert!(futures_poll(acquire.as_mut()).await.is_none_or(|r| r.is_ok()));
        drop(acquire);
    }
    let last = hapax.lock("l").wait(Duration::from_secs(10)).acquire().await;
    assert!(last.expect("all of them were given back").is_held());
}

async fn futures_poll<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|cx| {
        std::task::Poll::Ready(match future.as_mut().poll(cx) {
            std::task::Poll::Ready(value) => Some(value),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

#[tokio::test]
async fn a_once_key_is_done_once_and_free_after_a_failure() {
    let hapax = Hapax::memory();
    let report = || hapax.once("report", "2026-11-30");
    let failed = report().run(async |_| Err::<(), _>(Error::did_not_happen(ErrorKind::Effect, "no paper"))).await;
    assert!(failed.is_err());
    let ran = report().run(async |guard| Ok::<_, Error>(guard.attempt())).await.expect("free again");
    assert!(matches!(ran, OnceRun::Ran(2)));
    assert!(matches!(report().run(async |_| Ok::<_, Error>(0)).await.expect("asked"), OnceRun::Done(_)));
    let record = report().look_up().await.expect("asked").expect("remembered");
    assert_eq!((record.attempts, record.refused), (2, 1));
}

#[tokio::test]
async fn a_once_key_that_was_taken_over_is_refused_to_the_first() {
    let (hapax, clock) = on_movable_clock();
    let work = || hapax.once("s", "k").lease(Duration::from_secs(30));
    let OnceClaim::Claimed(first) = work().claim().await.expect("asked") else { panic!("free") };
    assert!(matches!(work().claim().await.expect("asked"), OnceClaim::Busy(_)));
    clock.advance(Duration::from_secs(31));
    let OnceClaim::Claimed(second) = work().claim().await.expect("asked") else { panic!("its lease is over") };
    assert!(second.fence() > first.fence() && second.attempt() == 2);
    assert_eq!(first.done(None).await.expect_err("late").kind(), ErrorKind::Refused);
    second.done(Some("sent")).await.expect("current");
}
