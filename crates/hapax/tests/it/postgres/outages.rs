//! What a server and its administrators do to sessions while there is work: ended, read-only, too slow, too many. The
//! host goes on by itself, nothing is lost, and nothing takes effect twice.

use std::sync::Arc;
use std::time::Duration;

use hapax::store::postgres::PostgresStore;
use hapax::{Enqueue, ErrorKind, Hapax, Outcome};
use sqlx::{Connection, Executor, PgConnection, Row};

use super::place::{Place, Role, admin, server};
use super::shop::{Pay, Shop, count, order, paying, until, until_all_done};

async fn as_role(place: &Place, role: &Role) -> Hapax {
    Hapax::postgres(&role.url(&place.url)).await.expect("opens")
}

/// Ends every session of a role; gives how many there were.
async fn end_sessions(own: &mut PgConnection, role: &Role) -> i64 {
    let text = "select count(pg_terminate_backend(pid)) from pg_stat_activity where usename = $1";
    sqlx::query(text).bind(&role.name).fetch_one(own).await.expect("allowed").get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_sessions_cost_nothing() {
    let place = Place::new().await;
    let (shop, role) = (Shop::open(&place).await, Role::of(&place).await);
    let hapax = as_role(&place, &role).await;
    order(&hapax, 500).await;
    let host = paying(&hapax, &shop, 8).await;
    let (mut own, mut ended, mut times) = (place.connection().await, 0, 0);
    while times < 40 && count(&mut own, "state <> 'done'").await > 0 {
        ended += end_sessions(&mut own, &role).await;
        times += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    until_all_done(&mut own).await;
    host.drain().await;
    shop.assert_paid_once(500).await;
    println!("{ended} sessions were ended; {:?}", host.stats());
    assert!(ended >= 20, "the fault did not bite: {ended}");
}

/// RC-09: while the server takes no writes nothing is claimed, and what was under way is done once it takes them again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_server_is_waited_for() {
    let place = Place::new().await;
    let (shop, role) = (Shop::open(&place).await, Role::of(&place).await);
    let (hapax, direct) = (as_role(&place, &role).await, Hapax::postgres(&place.url).await.expect("opens"));
    order(&direct, 300).await;
    let host = paying(&hapax, &shop, 4).await;
    let mut own = place.connection().await;
    until("some are done", async || count(&mut own, "state = 'done'").await > 20).await;
    admin(&format!("alter role {} set default_transaction_read_only = on", role.name)).await;
    end_sessions(&mut own, &role).await;
    let error = hapax.enqueue(Pay { order: 1 }).await.expect_err("takes no writes");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::ReadOnly, Outcome::DidNotHappen), "{error}");
    // Whatever was asked before the sessions ended has been answered by now: its locks are gone.
    let claimed = host.stats().claimed;
    let done = count(&mut own, "state = 'done'").await;
    until("the lease is over", async || !host.stats().lease_held).await;
    assert_eq!((host.stats().claimed, count(&mut own, "state = 'done'").await), (claimed, done));
    assert!(done < 300, "too quick to show anything");
    admin(&format!("alter role {} reset default_transaction_read_only", role.name)).await;
    end_sessions(&mut own, &role).await;
    until_all_done(&mut own).await;
    host.drain().await;
    shop.assert_paid_once(300).await;
}

/// A time-out that is shorter than some statements: those fail and are tried again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tiny_statement_timeout_is_survived() {
    let place = Place::new().await;
    let (shop, role) = (Shop::open(&place).await, Role::of(&place).await);
    let (hapax, direct) = (as_role(&place, &role).await, Hapax::postgres(&place.url).await.expect("opens"));
    order(&direct, 100).await;
    let host = paying(&hapax, &shop, 4).await;
    let mut own = place.connection().await;
    admin(&format!("alter role {} set statement_timeout = '1ms'", role.name)).await;
    end_sessions(&mut own, &role).await;
    let error = loop {
        // Some statements are quick enough.
        if let Err(error) = hapax.enqueue_many((0..50).map(|_| Enqueue::of(&Pay { order: 1_000 }).once("k"))).await {
            break error;
        }
    };
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Busy, Outcome::DidNotHappen), "{error}");
    assert!(error.to_string().contains("statement_timeout"), "{error}");
    admin(&format!("alter role {} reset statement_timeout", role.name)).await;
    end_sessions(&mut own, &role).await;
    until_all_done(&mut own).await;
    host.drain().await;
    let payments = shop.payments().await;
    assert!((0..100).all(|order| payments.get(&order) == Some(&1)), "{payments:?}");
}

/// Fewer connections than are wanted: slower, and said, but nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_few_connections_are_enough() {
    let place = Place::new().await;
    let (shop, role) = (Shop::open(&place).await, Role::of(&place).await);
    // The driver's pool asks again, until its time is over, when nobody more is let in.
    let options = PostgresStore::options().wait(Duration::from_secs(2));
    let store = options.open(&role.url(&place.url)).await.expect("opens");
    let hapax = Hapax::with_store(Arc::new(store));
    order(&hapax, 60).await;
    admin(&format!("alter role {} connection limit 4", role.name)).await;
    let host = paying(&hapax, &shop, 8).await;
    let mut own = place.connection().await;
    until_all_done(&mut own).await;
    host.drain().await;
    shop.assert_paid_once(60).await;
    admin(&format!("alter role {} connection limit 0", role.name)).await;
    end_sessions(&mut own, &role).await;
    let error = hapax.enqueue(Pay { order: 1 }).await.expect_err("nobody is let in");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unreachable, Outcome::DidNotHappen), "{error}");
    assert!(error.to_string().contains("connections"), "{error}");
}

/// RC-65: every connection of the pool is in the hands of a task, for longer than the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_that_hold_every_connection_cost_no_lease() {
    let (five, twenty) = (held_up(5), held_up(20));
    tokio::join!(five, twenty);
}

async fn held_up(workers: u32) {
    use hapax::host::{EffectTx, Finished, State};
    async fn slow(
        job: Pay,
        mut tx: EffectTx<sqlx::Postgres>,
        State(shop): State<Shop>,
    ) -> Result<Finished, hapax::JobError> {
        let fence = tx.fence().as_i64();
        shop.pay(&mut tx, (job.order, fence)).await?;
        tx.execute("select pg_sleep(3)").await?;
        tx.finish().await
    }
    let place = Place::new().await;
    let shop = Shop::open(&place).await;
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(5).connect(&server()).await;
    let pool = pool.expect("the server answers");
    let store = PostgresStore::options().schema(&place.schema).open_pool(&pool).await.expect("opens");
    let hapax = Hapax::with_store(Arc::new(store));
    let jobs = 10;
    order(&hapax, jobs).await;
    let host = super::shop::host(&hapax, shop.clone()).lease(Duration::from_secs(2));
    let host = host.queue("default", |queue| queue.workers(workers)).task(slow).start().await.expect("starts");
    let mut own = place.connection().await;
    until_all_done(&mut own).await;
    host.drain().await;
    shop.assert_paid_once(jobs).await;
    let counters = hapax.counters().await.expect("read");
    assert_eq!((host.stats().lost, counters.takeovers, counters.unstarted_takeovers), (0, 0, 0), "{workers}");
    assert_eq!(count(&mut own, "state = 'done' and failures = 0").await, i64::from(jobs), "each ran once");
    pool.close().await;
    drop(own.close().await);
}
