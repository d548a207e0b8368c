//! Hints of new work: LISTEN where it helps, and polling whatever becomes of it.

use std::time::{Duration, Instant};

use hapax::host::HostHandle;
use hapax::store::postgres::{InSchema, PostgresStore};
use hapax::testing::Proxy;
use hapax::{Enqueue, Hapax, Host, Job, JobExt as _};
use sqlx::{Connection as _, Executor as _, Row as _};
use tokio::sync::mpsc;

use super::place::{Place, server};

#[derive(serde::Serialize, serde::Deserialize)]
struct Ping {
    n: u32,
}

impl Job for Ping {
    const KIND: &'static str = "ping";
}

/// A host that would find work only once a minute without hints; it says what it ran.
async fn host(store: PostgresStore) -> (HostHandle, mpsc::UnboundedReceiver<u32>) {
    let (ran, seen) = mpsc::unbounded_channel();
    let ping = move |job: Ping| {
        let ran = ran.clone();
        async move {
            // The test may have ended.
            let _ = ran.send(job.n);
        }
    };
    let builder = Host::builder(Hapax::with_store(std::sync::Arc::new(store)), ());
    let host = builder.poll(Duration::from_mins(1)).task(ping).start().await.expect("it starts");
    host.ready().await.expect("it is ready");
    (host, seen)
}

/// How many listeners sleep.
async fn sleepers(place: &Place) -> i64 {
    let mut connection = place.connection().await;
    let row = connection.fetch_one("select count(*) from sleepers").await.expect("it is a table");
    row.get(0)
}

/// Waits until as many listeners sleep.
async fn asleep(place: &Place, wanted: i64) {
    while sleepers(place).await != wanted {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_of_another_process_wakes_a_sleeper() {
    let place = Place::new().await;
    let (host, mut seen) = host(place.store().await).await;
    asleep(&place, 1).await;
    let other = Hapax::with_store(std::sync::Arc::new(place.store().await));
    let begun = Instant::now();
    other.enqueue(Enqueue::new("ping", r#"{"n":1}"#)).await.expect("taken");
    assert_eq!(seen.recv().await, Some(1));
    assert!(begun.elapsed() < Duration::from_secs(50), "found by a hint, not by polling");
    host.drain().await;
}

/// RC-67: a job in the user's transaction starts after the commit, not before, and never after a rollback.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_in_a_transaction_wakes_a_sleeper_at_its_commit() {
    let place = Place::new().await;
    let (host, mut seen) = host(place.store().await).await;
    asleep(&place, 1).await;
    let mut connection = place.connection().await;
    for (n, commits) in [(1, false), (2, true)] {
        let mut tx = connection.begin().await.expect("it begins");
        Ping { n }.enqueue_in(InSchema::new(&mut tx, &place.schema)).await.expect("taken");
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(seen.try_recv().is_err(), "nothing runs before its commit");
        if commits { tx.commit().await } else { tx.rollback().await }.expect("it ends");
    }
    assert_eq!(seen.recv().await, Some(2));
    assert!(seen.try_recv().is_err(), "a rolled-back job never runs");
    host.drain().await;
}

/// RC-59: the session that listens is ended on the server, and later its packets are dropped without an end; each time
/// the host listens again by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deaf_listener_hears_again() {
    let place = Place::new().await;
    let address = server();
    let at = address.split('@').nth(1).and_then(|rest| rest.split('/').next()).expect("host and port");
    let proxy = Proxy::postgres(at).await.expect("it starts");
    let url = place.url.replace(at, &proxy.address().to_string());
    let (host, mut seen) = host(PostgresStore::options().open(&url).await.expect("it opens")).await;
    asleep(&place, 1).await;
    let other = Hapax::with_store(std::sync::Arc::new(place.store().await));

    let begun = Instant::now();
    let mut connection = place.connection().await;
    let end = "select pg_terminate_backend(pid) from pg_stat_activity \
               where query like $1 and query like '%sleepers%' and pid <> pg_backend_pid()";
    let ended = sqlx::query(end).bind(format!("%{}%", place.schema)).execute(&mut connection).await;
    assert_eq!(ended.expect("a superuser may").rows_affected(), 1);
    // A new line has a new name, and the old one stays until it is forgotten.
    asleep(&place, 2).await;
    other.enqueue(Enqueue::new("ping", r#"{"n":1}"#)).await.expect("taken");
    assert_eq!(seen.recv().await, Some(1));

    // Whatever is asked on these lines from now on is never answered; what is opened later is sound.
    asleep(&place, 2).await;
    for line in proxy.connections() {
        line.blackhole();
    }
    other.enqueue(Enqueue::new("ping", r#"{"n":2}"#)).await.expect("taken");
    // The dead line is found out when it is tried, and another opened; then the worker looks.
    assert_eq!(seen.recv().await, Some(2));
    assert!(begun.elapsed() < Duration::from_secs(55), "found by a hint, not by polling");
    proxy.faults().cut_all();
    host.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_fleet_sends_no_hints() {
    let place = Place::new().await;
    let mut listener = sqlx::postgres::PgListener::connect(&server()).await.expect("it connects");
    listener.listen(&format!("{}.hints", place.schema)).await.expect("it listens");
    let hapax = Hapax::with_store(std::sync::Arc::new(place.store().await));
    for n in 0..20 {
        hapax.enqueue(Enqueue::new("ping", format!(r#"{{"n":{n}}}"#))).await.expect("taken");
    }
    // The line has nothing before this.
    place.connection().await.execute("notify \"last\"").await.expect("sent");
    listener.listen("last").await.expect("it listens");
    place.connection().await.execute("notify \"last\"").await.expect("sent");
    assert_eq!(listener.recv().await.expect("a hint").channel(), "last", "nobody slept, nobody was told");
}
