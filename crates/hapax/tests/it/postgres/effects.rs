//! Effects in a transaction that the task takes along: they commit with the finish of their run, or leave no trace.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hapax::host::{EffectTx, Finished, Run, State};
use hapax::id::{AcquisitionId, ClaimId, Name};
use hapax::model::{ClaimRequest, JobFilter, LockAnswer, LockRequest, NewInstance, RunOutcome, RunRef, Verdict};
use hapax::store::postgres::{InSchema, PostgresStore};
use hapax::store::{Inspect, Jobs, Leases, Workers};
use hapax::{ErrorKind, Hapax, InstanceId, Job, JobError, JobExt, JobState, Outcome};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection, Executor, PgPool, Postgres, Row};

use super::place::{Place, server, until_somebody_waits};
use super::shop::{Pay, Shop, count, host, order, paying, until, until_all_done};

async fn opened() -> (Place, Shop, Hapax) {
    let place = Place::new().await;
    let shop = Shop::open(&place).await;
    let hapax = Hapax::postgres(&place.url).await.expect("opens");
    (place, shop, hapax)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hosts_pay_each_order_once() {
    let (place, shop, one) = opened().await;
    let two = Hapax::postgres(&place.url).await.expect("opens");
    order(&one, 200).await;
    let hosts = [paying(&one, &shop, 4).await, paying(&two, &shop, 4).await];
    until_all_done(&mut place.connection().await).await;
    for host in &hosts {
        host.drain().await;
    }
    shop.assert_paid_once(200).await;
    assert_eq!(hosts.iter().map(|host| host.stats().finished).sum::<u64>(), 200);
}

#[derive(Serialize, Deserialize)]
struct Receipt {
    order: i32,
}

impl Job for Receipt {
    const KIND: &'static str = "receipt";
}

/// What goes wrong at each attempt of a task, until it succeeds.
#[derive(Clone)]
struct Tries {
    shop: Shop,
    tries: Arc<AtomicU32>,
}

/// Dropped without its finish, panicked, failed and swallowed in four ways, and at last as it should be.
async fn pay_at_last(job: Pay, mut tx: EffectTx<Postgres>, State(all): State<Tries>) -> Result<Finished, JobError> {
    all.shop.pay(&mut tx, (job.order, 0)).await?;
    let receipt = Receipt { order: job.order };
    receipt.enqueue_in(InSchema::new(&mut tx, &all.shop.schema)).await?;
    tx.set_result("\"paid\"");
    match all.tries.fetch_add(1, Ordering::Relaxed) {
        0 => return Err(JobError::retry("the till is stuck")),
        1 => panic!("the till fell down"),
        // Some do not look at what a statement answers.
        2 => drop(tx.execute("select 1 / 0").await),
        3 => {
            drop(tx.execute("select 1 / 0").await);
            // The driver undoes the outer transaction when a nested one cannot begin.
            drop(tx.begin().await.map(drop));
        }
        4 => drop(tx.execute("rollback").await),
        _ => {}
    }
    tx.finish().await
}

#[tokio::test]
async fn what_fails_leaves_no_trace() {
    let (place, shop, hapax) = opened().await;
    let state = Tries { shop: shop.clone(), tries: Arc::default() };
    order(&hapax, 1).await;
    let host = host(&hapax, state.clone()).task(pay_at_last).start().await.expect("starts");
    let mut own = place.connection().await;
    until("it is paid", async || count(&mut own, "kind = 'pay' and state = 'done'").await == 1).await;
    host.drain().await;
    shop.assert_paid_once(1).await;
    assert_eq!(count(&mut own, "kind = 'receipt'").await, 1, "the follow-up came with the payment, once");
    assert_eq!(state.tries.load(Ordering::Relaxed), 6);
    let jobs = hapax.jobs(JobFilter { state: Some(JobState::Done), limit: 1, ..JobFilter::default() }).await;
    let (job, runs) = hapax.job(jobs.expect("read")[0].id).await.expect("read").expect("kept");
    assert_eq!((job.result.as_deref(), job.failures), (Some("\"paid\""), 5));
    let said: Vec<&str> = runs.iter().filter_map(|run| run.detail.as_deref()).collect();
    assert!(runs.iter().all(|run| matches!(run.outcome, RunOutcome::Failed)), "{runs:?}");
    for (at, text) in
        ["till is stuck", "till fell down", "earlier statement", "ended before", "ended before"].iter().enumerate()
    {
        assert!(said[at].contains(text), "{at}: {said:?}");
    }
}

/// A task that begins its transaction late, on a pool of its own.
async fn pay_late(job: Pay, run: Run, State((shop, pool)): State<(Shop, PgPool)>) -> Result<Finished, JobError> {
    let mut tx = pool.begin().await?;
    let mut nested = tx.begin().await?;
    shop.pay(&mut nested, (job.order, 1)).await?;
    nested.rollback().await?;
    let mut nested = tx.begin().await?;
    shop.pay(&mut nested, (job.order, run.fence().as_i64())).await?;
    nested.commit().await?;
    run.finish_in(tx).await
}

#[tokio::test]
async fn a_transaction_that_is_begun_late_ends_the_run_and_may_hold_others() {
    let (place, shop, hapax) = opened().await;
    order(&hapax, 3).await;
    let pool = PgPoolOptions::new().max_connections(2).connect(&server()).await.expect("the server answers");
    let host = host(&hapax, (shop.clone(), pool)).task(pay_late).start().await.expect("starts");
    let mut own = place.connection().await;
    until_all_done(&mut own).await;
    host.drain().await;
    shop.assert_paid_once(3).await;
    assert_eq!(count(&mut own, "state = 'done' and failures = 0").await, 3);
}

fn name(text: &str) -> Name {
    Name::new("name", text).expect("legal")
}

/// An instance of a store's own and the runs that it claims.
async fn claimed(store: &PostgresStore, jobs: u32) -> (InstanceId, Vec<RunRef>) {
    let id = InstanceId::new();
    let (queues, kinds) = (vec![name("default")], vec![name(Pay::KIND)]);
    let new = NewInstance { id, name: name("i"), version: String::new(), queues, kinds, lease_ms: 60_000 };
    store.register(new).await.expect("registered");
    (id, claim(store, (id, jobs)).await)
}

async fn claim(store: &PostgresStore, (instance, jobs): (InstanceId, u32)) -> Vec<RunRef> {
    let (queues, kinds) = (vec![(name("default"), jobs)], vec![name(Pay::KIND)]);
    let request = ClaimRequest { instance, claim: ClaimId::new(), queues, kinds, suspect: true };
    let jobs = store.claim(request).await.expect("live").jobs;
    jobs.iter().map(|job| RunRef { job: job.id, fence: job.fence.expect("claimed") }).collect()
}

/// RC-05: the effect of a run that was taken away is refused whole and kept as evidence; the next run's counts.
#[tokio::test]
async fn a_late_effect_is_refused_whole() {
    let (place, shop, hapax) = opened().await;
    let store = place.store().await;
    order(&hapax, 1).await;
    let (first, runs) = claimed(&store, 1).await;
    let mut late = store.begin_effect(Duration::from_mins(1)).await.expect("begun");
    shop.pay(&mut late, (0, runs[0].fence.as_i64())).await.expect("written");
    store.leave(first).await.expect("taken back");
    let (_, again) = claimed(&store, 1).await;
    let settled = store.finish_in(late, runs[0], None).await.expect("answered");
    assert!(!settled.counted(), "{settled:?}");
    assert!(shop.payments().await.is_empty(), "nothing of it is there");
    assert_eq!(store.refusals(10).await.expect("read").len(), 1, "but the evidence");
    let mut tx = store.begin_effect(Duration::from_mins(1)).await.expect("begun");
    shop.pay(&mut tx, (0, again[0].fence.as_i64())).await.expect("written");
    assert!(store.finish_in(tx, again[0], None).await.expect("answered").counted());
    shop.assert_paid_once(1).await;
    let job = hapax.job(runs[0].job).await.expect("read").expect("kept").0;
    assert_eq!((job.state, job.refused), (JobState::Done, 1));
}

/// The same tables under another name are another store: its ledger is not asked, and the run is not ended.
#[tokio::test]
async fn a_transaction_of_another_database_is_refused() {
    let (place, shop, hapax) = opened().await;
    let (store, elsewhere) = (place.store().await, Place::database().await);
    order(&hapax, 1).await;
    let (_, runs) = claimed(&store, 1).await;
    let theirs = elsewhere.pool().await;
    for prepared in [false, true] {
        if prepared {
            elsewhere.migrate(&place.schema).await;
        }
        let tx = theirs.begin().await.expect("begun");
        let error = store.finish_in(tx, runs[0], None).await.expect_err("another database");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Invalid, Outcome::DidNotHappen), "{error}");
        assert!(error.to_string().contains("another database"), "{error}");
        let verdict = store.verdict(runs.clone()).await.expect("read");
        assert_eq!(verdict, [Verdict::Current], "its effect is not in our database, so it has not ended");
    }
    theirs.close().await;
    assert!(shop.payments().await.is_empty());
}

/// Ended by its own raw statement: whatever was written then, the run does not count as done.
#[tokio::test]
async fn an_effect_cannot_commit_half_of_itself() {
    let (place, shop, hapax) = opened().await;
    let store = place.store().await;
    order(&hapax, 1).await;
    let (_, runs) = claimed(&store, 1).await;
    for ending in ["commit", "rollback"] {
        let mut tx = store.begin_effect(Duration::from_mins(1)).await.expect("begun");
        tx.execute(ending).await.expect("ended");
        shop.pay(&mut tx, (7, 0)).await.expect("written, by itself");
        let error = store.finish_in(tx, runs[0], None).await.expect_err(ending);
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Effect, Outcome::MayHaveHappened), "{error}");
        assert_eq!(store.verdict(runs.clone()).await.expect("read"), [Verdict::Current], "{ending}");
    }
}

/// A constraint that is only looked at in the commit undoes all, and says so for certain.
#[tokio::test]
async fn a_commit_that_fails_undoes_all() {
    let (place, shop, hapax) = opened().await;
    let store = place.store().await;
    let text = "create table known (fence bigint primary key);
                alter table payments add foreign key (fence) references known deferrable initially deferred";
    place.connection().await.execute(sqlx::raw_sql(text)).await.expect("made");
    order(&hapax, 1).await;
    let (_, runs) = claimed(&store, 1).await;
    let mut tx = store.begin_effect(Duration::from_mins(1)).await.expect("begun");
    shop.pay(&mut tx, (0, 1)).await.expect("written");
    let error = store.finish_in(tx, runs[0], None).await.expect_err("no such fence");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Invalid, Outcome::DidNotHappen), "{error}");
    assert_eq!(store.verdict(runs.clone()).await.expect("read"), [Verdict::Current]);
}

/// A transaction whose program stands still is ended by the server when the lease may be over.
#[tokio::test]
async fn a_transaction_that_stands_still_is_ended() {
    let (place, shop, hapax) = opened().await;
    let store = place.store().await;
    order(&hapax, 1).await;
    let (_, runs) = claimed(&store, 1).await;
    let mut tx = store.begin_effect(Duration::from_millis(300)).await.expect("begun");
    shop.pay(&mut tx, (0, 1)).await.expect("written");
    let mut own = place.connection().await;
    let theirs = "select count(*) from pg_stat_activity where state = 'idle in transaction' and query like $1";
    let like = format!("insert into {}%", shop.schema);
    until("the server has ended it", async || {
        let row = sqlx::query(theirs).bind(&like).fetch_one(&mut own).await.expect("read");
        row.get::<i64, _>(0) == 0
    })
    .await;
    let error = store.finish_in(tx, runs[0], None).await.expect_err("it was ended");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unreachable, Outcome::DidNotHappen), "{error}");
    assert!(shop.payments().await.is_empty());
    assert_eq!(store.verdict(runs).await.expect("read"), [Verdict::Current]);
}

/// A guard in the user's transaction: a grant to another waits for its end, a renewal does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guarded_lock_passes_on_after_the_commit() {
    let place = Place::new().await;
    let store = place.store().await;
    let request = |lease_ms| LockRequest {
        name: name("rebuild"),
        permits: 1,
        lease_ms,
        acquisition: AcquisitionId::new(),
        holder: name("me"),
    };
    let Ok(LockAnswer::Granted(first)) = store.acquire_lock(request(300)).await else { panic!("is free") };
    let mut own = place.connection().await;
    let mut tx = own.begin().await.expect("begun");
    InSchema::new(&mut tx, &place.schema).lock_guard(&first).await.expect("is held");
    store.renew_lock(first.clone(), 300).await.expect("a renewal does not wait");
    until("its lease is over", async || store.lock_holders(None).await.expect("read").is_empty()).await;
    let (other, wanted) = (store.clone(), request(60_000));
    let waiting = tokio::spawn(async move { other.acquire_lock(wanted).await });
    until_somebody_waits(&place).await;
    assert!(!waiting.is_finished(), "the guard holds until the commit");
    tx.commit().await.expect("committed");
    let Ok(LockAnswer::Granted(second)) = waiting.await.expect("no panic") else { panic!("is free now") };
    assert!(second.fence > first.fence);
    let mut tx = own.begin().await.expect("begun");
    let error = InSchema::new(&mut tx, &place.schema).lock_guard(&first).await.expect_err("passed on");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    InSchema::new(&mut tx, &place.schema).lock_guard(&second).await.expect("is held");
    tx.commit().await.expect("committed");
    assert_eq!(store.refusals(10).await.expect("read").len(), 1);
}
