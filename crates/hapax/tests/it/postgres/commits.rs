//! COMMIT and its answer get lost on the way: what was committed counts once, and what was not is done again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hapax::Hapax;
use hapax::store::postgres::PostgresStore;
use hapax::testing::{Proxy, ProxyFaults};

use super::place::Place;
use super::shop::{Shop, by_way_of, count, order, paying, server_address, until_all_done};

/// A host behind a proxy whose commits get lost, among them those of its claims, heartbeats and finishes.
async fn paid_behind((jobs, seed): (i32, u64), fault: impl Fn(&ProxyFaults)) {
    let place = Place::new().await;
    let shop = Shop::open(&place).await;
    order(&Hapax::postgres(&place.url).await.expect("opens"), jobs).await;
    let proxy = Proxy::postgres_with_seed(server_address(), seed).await.expect("a port is free");
    let options = PostgresStore::options().connections(16);
    let store = options.open(&by_way_of(&place.url, proxy.address())).await.expect("opens");
    let hapax = Hapax::with_store(Arc::new(store));
    let begun = Instant::now();
    let host = paying(&hapax, &shop, 16).await;
    fault(proxy.faults());
    let mut own = place.connection().await;
    until_all_done(&mut own).await;
    let (counts, took) = (proxy.counts(), begun.elapsed());
    proxy.faults().mend();
    host.drain().await;
    shop.assert_paid_once(jobs).await;
    assert_eq!(count(&mut own, "state = 'done'").await, i64::from(jobs), "the host recovered by itself");
    println!("{jobs} effects in {took:?}; {counts:?}; {:?}", host.stats());
    let lost = counts.commits_not_answered + counts.commits_not_forwarded;
    assert!(lost > u64::from(jobs.unsigned_abs()) / 4, "the fault did not bite: {counts:?}");
}

/// Law 3, with the fault that decides it: the effect is there, and nobody was told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_to_commits_double_nothing() {
    paid_behind((1_000, 3), |faults| faults.cut_answer_to_commit(0.3)).await;
}

/// Law 3, the other way round: nothing is there, and nobody was told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_commits_lose_nothing() {
    paid_behind((300, 5), |faults| faults.cut_before_commit(0.3)).await;
}

/// RC-59: every open connection falls silent without being closed. New ones work, so the host goes on with those.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_are_given_up() {
    let place = Place::new().await;
    let shop = Shop::open(&place).await;
    let direct = Hapax::postgres(&place.url).await.expect("opens");
    let proxy = Proxy::postgres(server_address()).await.expect("a port is free");
    let options = PostgresStore::options().wait(Duration::from_secs(5));
    let store = options.open(&by_way_of(&place.url, proxy.address())).await.expect("opens");
    let hapax = Hapax::with_store(Arc::new(store));
    let host = paying(&hapax, &shop, 4).await;
    order(&direct, 10).await;
    let mut own = place.connection().await;
    until_all_done(&mut own).await;
    let open = proxy.connections();
    assert!(open.len() >= 2, "the heartbeat has one of its own: {open:?}");
    for connection in &open {
        connection.blackhole();
    }
    let begun = Instant::now();
    let again: Vec<_> = (10..20).map(|order| hapax::Enqueue::of(&super::shop::Pay { order })).collect();
    direct.enqueue_many(again).await.expect("enqueued");
    until_all_done(&mut own).await;
    let took = begun.elapsed();
    println!("{} connections fell silent; the host went on after {took:?}", open.len());
    assert!(took < Duration::from_secs(40), "it waited for the network instead: {took:?}");
    for connection in &open {
        connection.mend();
    }
    host.drain().await;
    shop.assert_paid_once(20).await;
}
