//! Behind a pooler in transaction mode: each transaction has another session.
//!
//! The whole conformance suite takes minutes here, so a choice of it runs by itself. With `HAPAX_TEST_BEHIND_PGBOUNCER`
//! set every test that brings a schema goes by way of the pooler, the suite among them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hapax::conformance::{leases, lost_answers, once, random, takeovers};
use hapax::id::{AcquisitionId, Name};
use hapax::model::{LockAnswer, LockRequest};
use hapax::store::postgres::PostgresStore;
use hapax::store::{Inspect, Leases};
use hapax::{Enqueue, ErrorKind, Hapax};

use super::place::{Place, server};
use super::shop::{Shop, order, paying, until_all_done};
use super::suite::Postgres;

/// A choice of the conformance suite by way of the pooler.
macro_rules! behind_the_pooler {
    ($($room:ident :: $case:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $room::$case(&Postgres::at(Place::behind_a_pooler().await).await).await;
            }
        )*
    };
}

behind_the_pooler! {
    leases::fences_of_a_lock_grow,
    leases::handles_share_the_locks,
    lost_answers::a_bad_line_loses_and_doubles_nothing,
    once::a_key_is_one_key_whoever_asks,
    once::done_is_refused_until_its_retention_ends,
    takeovers::one_crashing_payload_parks_alone,
    takeovers::the_late_run_is_told_and_refused,
    takeovers::the_sweep_leaves_finished_jobs_alone,
    takeovers::the_sweep_leaves_the_successor_alone,
}

/// A few random histories; each brings a schema of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_commands_are_answered_by_the_law() {
    let harness = Postgres::at(Place::behind_a_pooler().await).await;
    random::search(5, 27, &harness).await.unwrap_or_else(|wrong| panic!("{wrong}"));
}

#[tokio::test]
async fn a_pooler_is_noticed() {
    let place = Place::behind_a_pooler().await;
    let behind = PostgresStore::options().open(&place.url).await.expect("opens");
    assert!(behind.is_pooled());
    let direct = format!("{}?schema={}", server(), place.schema);
    assert!(!PostgresStore::options().open(&direct).await.expect("opens").is_pooled());
    let health = behind.health().await.expect("answers");
    let pooler = health.settings.iter().find(|setting| setting.name == "pooler").expect("is said");
    assert_eq!(pooler.value, "true");
}

/// Many programs open, migrate and work at once on few sessions: no statement that one of them prepared is in the way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_programs_share_few_sessions() {
    let place = Arc::new(Place::behind_a_pooler().await);
    let all = (0..12).map(|n| {
        let url = place.url.clone();
        tokio::spawn(async move {
            Hapax::migrate(&url).await.expect("is up to date");
            let hapax = Hapax::postgres(&url).await.expect("opens");
            for m in 0..10 {
                hapax.enqueue(Enqueue::new("k", "null").once(format!("{n}-{}", m % 7))).await.expect("enqueued");
            }
        })
    });
    for one in all.collect::<Vec<_>>() {
        one.await.expect("no fault");
    }
    let hapax = Hapax::postgres(&place.url).await.expect("opens");
    assert_eq!(hapax.counters().await.expect("read").duplicates_refused, 12 * 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn effects_take_place_once_behind_a_pooler() {
    let place = Place::behind_a_pooler().await;
    let shop = Shop::open(&place).await;
    let (one, two) =
        (Hapax::postgres(&place.url).await.expect("opens"), Hapax::postgres(&place.url).await.expect("opens"));
    order(&one, 100).await;
    let hosts = [paying(&one, &shop, 2).await, paying(&two, &shop, 2).await];
    until_all_done(&mut place.connection().await).await;
    for host in &hosts {
        host.drain().await;
    }
    shop.assert_paid_once(100).await;
    assert_eq!(hosts.iter().map(|host| host.stats().finished).sum::<u64>(), 100);
}

fn wanted(lease_ms: u64) -> LockRequest {
    let name = |text| Name::new("name", text).expect("legal");
    LockRequest { name: name("pod"), permits: 1, lease_ms, acquisition: AcquisitionId::new(), holder: name("me") }
}

/// RC-27: a lock is no session's, so it is released where it was taken, and passes on when its holder is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_no_session() {
    let place = Place::behind_a_pooler().await;
    let (one, two) = (place.store().await, place.store().await);
    let Ok(LockAnswer::Granted(first)) = one.acquire_lock(wanted(60_000)).await else { panic!("is free") };
    for _ in 0..3 {
        one.now().await.expect("another transaction");
        assert!(matches!(two.acquire_lock(wanted(60_000)).await, Ok(LockAnswer::Busy { .. })));
    }
    one.release_lock(first.clone()).await.expect("released");
    let released = Instant::now();
    let Ok(LockAnswer::Granted(second)) = two.acquire_lock(wanted(300)).await else { panic!("is free") };
    assert!(second.fence > first.fence && released.elapsed() < Duration::from_secs(1));
    let error = one.release_lock(first).await.expect_err("releases nothing");
    assert_eq!(error.kind(), ErrorKind::Refused);
    // The holder is gone, without a word, and with it all that it had in the pooler.
    drop(two);
    let third = loop {
        match one.acquire_lock(wanted(60_000)).await.expect("answers") {
            LockAnswer::Granted(lock) => break lock,
            LockAnswer::Busy { .. } => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    assert!(third.fence > second.fence, "after the lease it passed on");
}
