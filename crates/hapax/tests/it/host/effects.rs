//! Effects that are committed with the end of their run, on a real SQLite file, by real hosts.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hapax::host::{Effect, Finished, State};
use hapax::id::Name;
use hapax::model::{NewInstance, RetryPolicy, RunOutcome};
use hapax::store::sqlite::SqliteStore;
use hapax::testing::{Clock, TestHapax};
use hapax::{ErrorKind, Guarantee, Hapax, InstanceId, Job, JobError, JobExt, JobState, Run};
use serde::{Deserialize, Serialize};

use super::{enqueue, enqueue_one, host, memory, new, until, wait_for};

/// A shop whose orders lie in the same file as its jobs; nothing in the table forbids a second row.
struct Shop {
    _folder: tempfile::TempDir,
    file: PathBuf,
}

impl Shop {
    fn open() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("shop.db");
        let shop = Self { _folder: folder, file };
        shop.sql(|db| db.execute_batch("create table payments (order_id integer not null, fence integer not null)"));
        shop
    }

    fn sql<T>(&self, ask: impl FnOnce(&rusqlite::Connection) -> rusqlite::Result<T>) -> T {
        let db = rusqlite::Connection::open(&self.file).expect("opens");
        db.busy_timeout(Duration::from_secs(10)).expect("waits");
        ask(&db).expect("legal SQL")
    }

    async fn hapax(&self) -> Hapax {
        Hapax::sqlite(&self.file).await.expect("opens")
    }

    /// How often each order was paid, in the order of their numbers.
    fn payments(&self) -> Vec<(u32, u32)> {
        self.sql(|db| {
            let mut all = db.prepare("select order_id, count(*) from payments group by order_id order by order_id")?;
            all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })
    }
}

#[derive(Serialize, Deserialize)]
struct Pay {
    order: u32,
}

impl Job for Pay {
    const KIND: &'static str = "pay";
    const RETRY: RetryPolicy = RetryPolicy { max_attempts: 4, base_ms: 1, cap_ms: 1, jitter_percent: 0 };
}

async fn pay(job: Pay, effect: Effect) -> Result<Finished, JobError> {
    let fence = effect.run().fence().as_i64();
    let pay = "insert into payments (order_id, fence) values (?1, ?2)";
    effect.finish_with(move |tx| Ok(tx.execute(pay, (job.order, fence)).map(drop)?)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hosts_pay_each_order_once() {
    let shop = Shop::open();
    let (one, two) = (shop.hapax().await, shop.hapax().await);
    enqueue(one.store(), (0..200).map(|order| new(&Pay { order })).collect()).await;
    let start = async |hapax| host(hapax, ()).task(pay).start().await.expect("starts");
    let hosts = [start(&one).await, start(&two).await];
    let finished = || hosts.iter().map(|host| host.stats().finished).sum::<u64>();
    until("all are paid", async || finished() >= 200).await;
    for host in &hosts {
        host.drain().await;
    }
    let expected: Vec<(u32, u32)> = (0..200).map(|order| (order, 1)).collect();
    assert_eq!(shop.payments(), expected);
    assert_eq!(finished(), 200);
}

/// The effect, a follow-up job and the result are there with the finish, or not at all.
#[tokio::test]
async fn what_fails_leaves_no_trace() {
    #[derive(Serialize, Deserialize)]
    struct Receipt {
        order: u32,
    }
    impl Job for Receipt {
        const KIND: &'static str = "receipt";
    }
    async fn pay_at_last(job: Pay, effect: Effect, State(tries): State<Arc<AtomicU32>>) -> Result<Finished, JobError> {
        effect
            .finish_with(move |tx| {
                tx.execute("insert into payments (order_id, fence) values (?1, 0)", [job.order])?;
                Receipt { order: job.order }.enqueue_in(tx)?;
                tx.set_result("\"paid\"");
                match tries.fetch_add(1, Ordering::Relaxed) {
                    0 => Err("the till is stuck".into()),
                    1 => panic!("the till fell down"),
                    _ => Ok(()),
                }
            })
            .await
    }
    async fn receipt(_job: Receipt) {}
    let shop = Shop::open();
    let hapax = shop.hapax().await;
    let tries = Arc::new(AtomicU32::new(0));
    let id = enqueue_one(&hapax, &Pay { order: 7 }).await;
    let host = host(&hapax, tries).task(pay_at_last).task(receipt).start().await.expect("starts");
    let (job, runs) = wait_for(&hapax, id, JobState::Done).await;
    assert_eq!((job.runs, job.failures, job.result.as_deref()), (3, 2, Some("\"paid\"")));
    assert!(runs[0].detail.as_deref().is_some_and(|text| text.contains("the till is stuck")), "{runs:?}");
    assert!(runs[1].detail.as_deref().is_some_and(|text| text.contains("the till fell down")), "{runs:?}");
    until("the receipt is written", async || host.stats().finished == 4).await;
    assert_eq!(shop.payments(), [(7, 1)]);
    let receipts = hapax.store().list(hapax::model::JobFilter { limit: 10, ..Default::default() }).await;
    assert_eq!(receipts.expect("answers").iter().filter(|job| job.kind.as_str() == "receipt").count(), 1);
    host.drain().await;
}

/// An effect that did not commit is certainly not there: also an at-most-once job may try again.
#[tokio::test]
async fn a_failed_effect_leaves_no_doubt() {
    #[derive(Serialize, Deserialize)]
    struct Once;
    impl Job for Once {
        const KIND: &'static str = "once";
        const GUARANTEE: Guarantee = Guarantee::AtMostOnce;
        const RETRY: RetryPolicy = RetryPolicy::NEVER;
    }
    async fn once(_job: Once, effect: Effect) -> Result<Finished, JobError> {
        effect.finish_with(|_| Err("no such order".into())).await
    }
    let shop = Shop::open();
    let hapax = shop.hapax().await;
    let id = enqueue_one(&hapax, &Once).await;
    let host = host(&hapax, ()).task(once).start().await.expect("starts");
    let (_, runs) = wait_for(&hapax, id, JobState::Parked).await;
    assert_eq!(runs[0].outcome, RunOutcome::Failed);
    host.drain().await;
}

/// Settled is settled: what the task says or does afterwards changes nothing.
#[tokio::test]
async fn what_comes_after_the_commit_changes_nothing() {
    async fn talks_on(job: Pay, run: Run) -> Result<(), JobError> {
        let pay = "insert into payments (order_id, fence) values (?1, 0)";
        let _finished = run.finish_with(move |tx| Ok(tx.execute(pay, [job.order]).map(drop)?)).await?;
        assert_ne!(job.order, 1, "and panics");
        Err(JobError::park("too late to say so"))
    }
    let shop = Shop::open();
    let hapax = shop.hapax().await;
    let ids = enqueue(hapax.store(), (0..2).map(|order| new(&Pay { order })).collect()).await;
    let host = host(&hapax, ()).task(talks_on).start().await.expect("starts");
    for id in ids {
        let (job, runs) = wait_for(&hapax, id, JobState::Done).await;
        assert_eq!((job.runs, runs.len()), (1, 0));
    }
    host.drain().await;
    assert_eq!((host.stats().finished, shop.payments()), (2, vec![(0, 1), (1, 1)]));
}

#[derive(Clone)]
struct Frozen {
    hapax: Hapax,
    clock: Clock,
    calls: Arc<AtomicU32>,
}

/// The first time, the process stands still for so long that another instance takes the job back meanwhile.
async fn pay_late(job: Pay, effect: Effect, State(frozen): State<Frozen>) -> Result<Finished, JobError> {
    if frozen.calls.fetch_add(1, Ordering::Relaxed) == 0 {
        frozen.clock.advance(Duration::from_mins(2));
        let (id, name) = (InstanceId::new(), Name::new("name", "other")?);
        let (queues, kinds) = (Vec::new(), Vec::new());
        // With so short a lease it need not wait before it reaps.
        let new = NewInstance { id, name, version: String::new(), queues, kinds, lease_ms: 1 };
        frozen.hapax.store().register(new).await?;
        let reaped = frozen.hapax.store().reap(id, 10).await?;
        assert_eq!(reaped.taken_back.len(), 1);
    }
    let pay = "insert into payments (order_id, fence) values (?1, 0)";
    effect.finish_with(move |tx| Ok(tx.execute(pay, [job.order]).map(drop)?)).await
}

/// A run that stood still past its lease wakes up and pays: refused, nothing committed. The next one pays.
#[tokio::test]
async fn a_late_effect_is_refused_whole() {
    let (shop, clock) = (Shop::open(), Clock::movable());
    let store = SqliteStore::options().clock(clock.clone()).open(&shop.file).await.expect("opens");
    let hapax = Hapax::with_store(Arc::new(store));
    let frozen = Frozen { hapax: hapax.clone(), clock: clock.clone(), calls: Arc::default() };
    let test = TestHapax::on(hapax, clock, frozen).task(pay_late);
    let id = test.enqueue(&Pay { order: 7 }).await;
    while test.state_of(id).await != JobState::Done {
        test.run_due().await;
    }
    let job = test.job(id).await;
    assert_eq!((job.state, job.runs, job.refused), (JobState::Done, 1, 1), "the late one never counted");
    assert_eq!(shop.payments(), [(7, 1)]);
}

#[tokio::test]
async fn a_store_without_transactions_is_said_at_the_start() {
    let error = host(&memory(), ()).task(pay).start().await.expect_err("no transactions");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.to_string();
    assert!(text.contains("task `pay`") && text.contains("store `memory`"), "{text}");
}
