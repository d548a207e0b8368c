//! A shop in the database of its jobs: what tests of effects count is its table, which forbids no second row.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hapax::host::{EffectTx, Finished, HostBuilder, HostHandle, State};
use hapax::model::RetryPolicy;
use hapax::{Enqueue, Hapax, Host, Job, JobError};
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, PgPool, Postgres, Row, Transaction};

use super::place::{Place, server};

/// Longer than any of this takes on a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// Where the shop's table is; the state of its hosts.
#[derive(Clone, Debug)]
pub(crate) struct Shop {
    pub(crate) schema: String,
}

/// Pays an order; there is no second payment unless something went wrong.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Pay {
    pub(crate) order: i32,
}

impl Job for Pay {
    const KIND: &'static str = "pay";
    const RETRY: RetryPolicy = RetryPolicy { max_attempts: 100, base_ms: 1, cap_ms: 20, jitter_percent: 0 };
}

impl Shop {
    /// A shop with an empty table.
    pub(crate) async fn open(place: &Place) -> Self {
        let mut own = place.connection().await;
        own.execute("create table payments (order_id integer not null, fence bigint not null)").await.expect("made");
        Self { schema: place.schema.clone() }
    }

    /// A transaction of the user's own, which lasts however long.
    pub(crate) async fn begin(&self) -> sqlx::Result<Transaction<'static, Postgres>> {
        PgPool::connect(&server()).await?.begin().await
    }

    /// Writes a payment.
    pub(crate) async fn pay(&self, tx: &mut PgConnection, (order, fence): (i32, i64)) -> sqlx::Result<()> {
        let text = format!("insert into {}.payments (order_id, fence) values ($1, $2)", self.schema);
        sqlx::query(AssertSqlSafe(text)).persistent(false).bind(order).bind(fence).execute(tx).await.map(drop)
    }

    /// How often each order was paid.
    pub(crate) async fn payments(&self) -> BTreeMap<i32, i64> {
        let mut own = PgConnection::connect(&server()).await.expect("the server answers");
        let text = format!("select order_id, count(*) from {}.payments group by order_id", self.schema);
        let rows = own.fetch_all(AssertSqlSafe(text)).await.expect("read");
        rows.into_iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    /// Each of so many orders was paid, and none twice.
    pub(crate) async fn assert_paid_once(&self, orders: i32) {
        let payments = self.payments().await;
        let twice: Vec<_> = payments.iter().filter(|(_, n)| **n != 1).collect();
        let lost: Vec<_> = (0..orders).filter(|order| !payments.contains_key(order)).collect();
        assert!(twice.is_empty() && lost.is_empty(), "paid twice: {twice:?}; never paid: {lost:?}");
        assert_eq!(payments.len(), usize::try_from(orders).expect("few"));
    }
}

/// The task of [`Pay`].
pub(crate) async fn pay(job: Pay, mut tx: EffectTx<Postgres>, State(shop): State<Shop>) -> Result<Finished, JobError> {
    let fence = tx.fence().as_i64();
    shop.pay(&mut tx, (job.order, fence)).await?;
    tx.finish().await
}

/// Enqueues the payment of so many orders.
pub(crate) async fn order(hapax: &Hapax, orders: i32) {
    let all: Vec<Enqueue> = (0..orders).map(|order| Enqueue::of(&Pay { order })).collect();
    let answers = hapax.enqueue_many(all).await.expect("enqueued");
    assert!(answers.iter().all(Result::is_ok));
}

/// A host that looks often and ends soon.
pub(crate) fn host<S: Clone + Send + Sync + 'static>(hapax: &Hapax, state: S) -> HostBuilder<S> {
    let host = Host::builder(hapax.clone(), state).poll(Duration::from_millis(50));
    host.grace(Duration::from_millis(200)).drain_timeout(Duration::from_secs(20))
}

/// A host that pays.
pub(crate) async fn paying(hapax: &Hapax, shop: &Shop, workers: u32) -> HostHandle {
    let host = host(hapax, shop.clone()).lease(Duration::from_secs(3));
    host.queue("default", |queue| queue.workers(workers)).task(pay).start().await.expect("starts")
}

/// Waits for what another task or process brings about.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < PATIENCE, "after {PATIENCE:?} still not so: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Jobs of the place in these states, as SQL counts them.
pub(crate) async fn count(own: &mut PgConnection, condition: &str) -> i64 {
    let text = format!("select count(*) from jobs where {condition}");
    own.fetch_one(AssertSqlSafe(text)).await.expect("read").get(0)
}

/// Waits until no job is to be done any more.
pub(crate) async fn until_all_done(own: &mut PgConnection) {
    until("no job is left", async || count(own, "state in ('scheduled', 'ready', 'running')").await == 0).await;
}

/// The address of the server.
pub(crate) fn server_address() -> String {
    let url = server();
    let rest = url.split_once("://").expect("a URL").1;
    let authority = rest.split('/').next().expect("not empty");
    authority.rsplit('@').next().expect("not empty").to_owned()
}

/// The URL of a place by way of another address.
pub(crate) fn by_way_of(url: &str, address: SocketAddr) -> String {
    url.replacen(&server_address(), &address.to_string(), 1)
}
