//! Services: started, started again, and stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hapax::host::{ServiceOptions, Stop};
use hapax::{BoxError, Hapax, Job, JobState};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::{enqueue_one, host, memory, until, wait_for};

#[derive(Serialize, Deserialize)]
struct Plain;
impl Job for Plain {
    const KIND: &'static str = "plain";
}

async fn plain(_job: Plain) {}

#[derive(Clone, Default)]
struct App {
    starts: Arc<AtomicU32>,
    stopped: Arc<Notify>,
    ready: Arc<Notify>,
}

fn soon() -> ServiceOptions {
    ServiceOptions::new().restart_after(Duration::from_millis(1)).restart_cap(Duration::from_millis(5))
}

/// Fails, panics and ends unasked before it works; the jobs do not notice.
#[tokio::test]
async fn a_service_that_dies_is_started_again_and_takes_nobody_along() {
    async fn frail(app: App, stop: Stop) -> Result<(), BoxError> {
        match app.starts.fetch_add(1, Ordering::Relaxed) {
            0 => Err("cannot connect".into()),
            1 => panic!("a bug"),
            2 => Ok(()),
            _ => {
                stop.requested().await;
                app.stopped.notify_one();
                Ok(())
            }
        }
    }
    let (hapax, app): (Hapax, App) = (memory(), App::default());
    let host =
        host(&hapax, app.clone()).service_with("frail", soon(), frail).task(plain).start().await.expect("starts");
    until("it was started four times", async || app.starts.load(Ordering::Relaxed) == 4).await;
    let id = enqueue_one(&hapax, &Plain).await;
    wait_for(&hapax, id, JobState::Done).await;
    host.drain().await;
    app.stopped.notified().await;
    assert_eq!(app.starts.load(Ordering::Relaxed), 4);
}

#[tokio::test]
async fn a_service_that_may_end_is_left_in_peace() {
    let (hapax, app) = (memory(), App::default());
    let once = |app: App, _stop: Stop| async move {
        app.starts.fetch_add(1, Ordering::Relaxed);
        Ok(())
    };
    let host = host(&hapax, app.clone()).service_with("once", soon().may_end(), once).start().await.expect("starts");
    until("it has run", async || app.starts.load(Ordering::Relaxed) == 1).await;
    host.drain().await;
    assert_eq!(app.starts.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn the_host_is_ready_when_its_services_are() {
    let (hapax, app) = (memory(), App::default());
    let slow = |app: App, stop: Stop| async move {
        app.ready.notified().await;
        stop.announce_ready();
        stop.requested().await;
        Ok(())
    };
    let host = host(&hapax, app.clone()).service_with("slow", soon().announces_ready(), slow).task(plain);
    let host = host.start().await.expect("starts");
    let early = tokio::time::timeout(Duration::from_millis(5), host.ready()).await;
    assert!(early.is_err(), "one service is not ready");
    app.ready.notify_one();
    host.ready().await.expect("ready now");
    host.drain().await;
}

#[tokio::test]
async fn a_service_that_does_not_stop_is_dropped() {
    let (hapax, app) = (memory(), App::default());
    let deaf = |_: App, _: Stop| async move { std::future::pending::<Result<(), BoxError>>().await };
    let host = host(&hapax, app).drain_timeout(Duration::from_millis(5)).service("deaf", deaf);
    let host = host.start().await.expect("starts");
    host.ready().await.expect("ready");
    host.drain().await;
}

#[tokio::test]
async fn two_services_of_one_name_are_refused() {
    let deaf = |_: App, _: Stop| async move { std::future::pending::<Result<(), BoxError>>().await };
    let host = host(&memory(), App::default()).service("poller", deaf).service("poller", deaf);
    let error = host.start().await.expect_err("refused");
    assert!(error.to_string().contains("`poller` is there twice"), "{error}");
}
