//! Whole processes that are stopped past their lease, where it hurts most, while others go on.
//!
//! `HAPAX_ROUNDS` says how often; a few rounds by default.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hapax::host::{EffectTx, Finished, Run, State};
use hapax::id::Fence;
use hapax::model::RetryPolicy;
use hapax::{Enqueue, Hapax, Job, JobError};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Executor, PgConnection, Postgres, Row};

use super::place::Place;
use super::shop::{PATIENCE, Shop, count, host, until};

const LEASE: Duration = Duration::from_secs(2);

/// Is stopped after it has written.
#[derive(Serialize, Deserialize)]
struct Write;

impl Job for Write {
    const KIND: &'static str = "write";
    const RETRY: RetryPolicy = RetryPolicy { max_attempts: 100, base_ms: 1, cap_ms: 20, jitter_percent: 0 };
}

/// Is stopped before it has written.
#[derive(Serialize, Deserialize)]
struct Late;

impl Job for Late {
    const KIND: &'static str = "late";
    const RETRY: RetryPolicy = Write::RETRY;
}

/// Where the parent stops it; nothing in the parent's own process.
fn reached() {
    if std::env::var("HAPAX_IT_FREEZES").is_ok() {
        println!("reached ");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Begins its transaction after it was stopped, so that only its fence can tell that it is late.
async fn write_late(_: Late, run: Run, State(shop): State<Shop>) -> Result<Finished, JobError> {
    reached();
    let mut tx = shop.begin().await?;
    write_all(&mut tx, (&shop, run.fence())).await?;
    run.finish_in(tx).await
}

/// Holds the common row while it is stopped.
async fn write(_: Write, mut tx: EffectTx<Postgres>, State(shop): State<Shop>) -> Result<Finished, JobError> {
    let fence = tx.fence();
    write_all(&mut tx, (&shop, fence)).await?;
    reached();
    tx.finish().await
}

async fn write_all(tx: &mut PgConnection, (shop, fence): (&Shop, Fence)) -> sqlx::Result<()> {
    tx.execute(AssertSqlSafe(format!("update {}.total set paid = paid + 1", shop.schema))).await?;
    shop.pay(tx, (0, fence.as_i64())).await
}

/// What a child process does. Without its environment this test is empty.
#[test]
fn instance() {
    let (Ok(url), Ok(schema)) = (std::env::var("HAPAX_IT_FREEZES"), std::env::var("HAPAX_IT_SCHEMA")) else { return };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let hapax = Hapax::postgres(&url).await.expect("opens");
        let host = host(&hapax, Shop { schema }).lease(LEASE).queue("default", |queue| queue.workers(1));
        let host = host.grace(Duration::from_secs(5)).task(write).task(write_late).start().await.expect("starts");
        // The parent closes it, or is gone.
        let closed = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        drop(closed.await);
        host.drain().await;
    });
}

/// A process of its own, gone with the test.
struct Frozen {
    child: Child,
    pid: Pid,
}

impl Frozen {
    /// Starts one, and stops it once its task is where it should be.
    fn reached(url: &str, schema: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "postgres::freezes::instance", "--nocapture"])
            .env("HAPAX_IT_FREEZES", url)
            .env("HAPAX_IT_SCHEMA", schema)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the instance starts");
        let pid = Pid::from_child(&child);
        let mut said = child.stdout.take().expect("piped");
        let (mut text, mut byte) = (String::new(), [0]);
        while !text.ends_with("reached ") {
            said.read_exact(&mut byte).expect("it reaches its task");
            text.push(char::from(byte[0]));
        }
        child.stdout = Some(said);
        kill_process(pid, Signal::STOP).expect("signalled");
        Self { child, pid }
    }

    fn go_on(&self) {
        kill_process(self.pid, Signal::CONT).expect("signalled");
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.go_on();
        drop(self.child.stdin.take());
        drop(self.child.stdout.take());
        let begun = Instant::now();
        while !std::thread::panicking() && begun.elapsed() < PATIENCE && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// One process is stopped inside its transaction for longer than its lease; another takes over. Gives how long the
/// frozen one held it up.
async fn round<J: Job>(job: &J) -> Duration {
    let place = Place::new().await;
    let shop = Shop::open(&place).await;
    let mut own = place.connection().await;
    own.execute(sqlx::raw_sql("create table total (paid integer); insert into total values (0)")).await.expect("made");
    let hapax = Hapax::postgres(&place.url).await.expect("opens");
    hapax.enqueue(Enqueue::of(job)).await.expect("enqueued");
    let (url, schema) = (place.url.clone(), place.schema.clone());
    let frozen = tokio::task::spawn_blocking(move || Frozen::reached(&url, &schema));
    let frozen = frozen.await.expect("it reaches its task");
    let begun = Instant::now();
    let successor = host(&hapax, shop.clone()).lease(LEASE).task(write).task(write_late).start().await.expect("starts");
    until("the other has taken over", async || count(&mut own, "state = 'done'").await == 1).await;
    let took = begun.elapsed();
    frozen.go_on();
    // Its finish is tried, by the task or by its host for it, and refused.
    until("the late one was refused", async || evidence(&mut own).await == 1).await;
    successor.drain().await;
    drop(frozen);
    shop.assert_paid_once(1).await;
    let total: i32 = own.fetch_one("select paid from total").await.expect("read").get(0);
    assert_eq!(total, 1, "the common row was written once");
    took
}

async fn evidence(own: &mut PgConnection) -> i64 {
    own.fetch_one("select count(*) from refusals where verb = 'finish'").await.expect("read").get(0)
}

async fn rounds<J: Job>(job: J) {
    let rounds = std::env::var("HAPAX_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
    let (mut longest, mut all) = (Duration::ZERO, Duration::ZERO);
    for n in 0..rounds {
        let took = round(&job).await;
        println!("round {n}: the successor was done after {took:?}");
        (longest, all) = (longest.max(took), all + took);
        // Reached, the lease had begun; the reaper looks at it once more in between.
        assert!(took < LEASE + Duration::from_secs(2), "held up for {took:?}");
    }
    println!("{rounds} rounds; on average {:?}, at most {longest:?}", all / rounds);
}

/// RC-05: before its first write. Nothing is locked, and the late finish is refused by its fence alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_before_its_first_write() {
    rounds(Late).await;
}

/// After it has written a row that its successor writes too: the server ends the frozen one's transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_with_a_row_that_others_wait_for() {
    rounds(Write).await;
}
