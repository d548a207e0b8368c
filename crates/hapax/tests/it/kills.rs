//! Whole processes on one file, killed at random or frozen where it hurts most; then the table of effects is counted.
//! It has no unique constraint: nothing but hapax keeps an effect from being there twice.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hapax::host::{Effect, Finished, State};
use hapax::model::JobFilter;
use hapax::store::sqlite::SqliteStore;
use hapax::{Enqueue, ErrorKind, Hapax, Host, Job, JobError, JobState};
use rusqlite::Connection;
use rustix::process::{Pid, Signal, getpid, kill_process};

const PROCESSES: usize = 4;
const LEASE: Duration = Duration::from_secs(2);
/// Longer than any of this takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(400);

#[derive(serde::Serialize, serde::Deserialize)]
struct Write {
    n: u32,
    /// Stops its process inside its transaction, if nobody did before.
    freeze: bool,
}

impl Job for Write {
    const KIND: &'static str = "write";
}

async fn write(job: Write, effect: Effect, State(folder): State<PathBuf>) -> Result<Finished, JobError> {
    effect
        .finish_with(move |tx| {
            tx.execute("insert into effects (n) values (?1)", [job.n])?;
            if job.freeze && std::fs::rename(folder.join("wish"), folder.join("frozen")).is_ok() {
                kill_process(getpid(), Signal::STOP)?;
                std::thread::sleep(Duration::from_millis(300));
            }
            Ok(())
        })
        .await
}

/// What a child process does. Without its environment this test is empty.
#[test]
fn instance() {
    let Ok(folder) = std::env::var("HAPAX_IT_KILLS").map(PathBuf::from) else { return };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let hapax = Hapax::sqlite(folder.join("jobs.db")).await.expect("opens");
        let host = Host::builder(hapax, folder).lease(LEASE).poll(Duration::from_millis(50));
        let host = host.queue("default", |queue| queue.workers(8)).task(write).start().await.expect("starts");
        // The parent closes it, or is gone.
        let closed = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        drop(closed.await);
        host.drain().await;
    });
}

fn start(folder: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "kills::instance", "--nocapture"])
        .env("HAPAX_IT_KILLS", folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("the instance starts")
}

/// Ends the children in order, whatever the test has come to.
struct Fleet(Vec<Child>);

impl Drop for Fleet {
    fn drop(&mut self) {
        for child in &mut self.0 {
            drop(child.stdin.take());
        }
        let begun = Instant::now();
        for child in &mut self.0 {
            while !std::thread::panicking() && begun.elapsed() < PATIENCE && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(20));
            }
            drop(child.kill());
            drop(child.wait());
        }
    }
}

async fn prepared(folder: &Path, jobs: u32, freeze: bool) -> Hapax {
    let file = folder.join("jobs.db");
    let hapax = Hapax::sqlite(&file).await.expect("opens");
    Connection::open(&file).and_then(|c| c.execute_batch("create table effects (n integer)")).expect("made");
    let all: Vec<Enqueue> = (0..jobs).map(|n| Enqueue::of(&Write { n, freeze })).collect();
    let answers = hapax.enqueue_many(all).await.expect("enqueued");
    assert!(answers.iter().all(Result::is_ok));
    hapax
}

async fn all_done(hapax: &Hapax) {
    let begun = Instant::now();
    for state in [JobState::Ready, JobState::Running, JobState::Scheduled] {
        loop {
            let filter = JobFilter { state: Some(state), limit: 1, ..JobFilter::default() };
            if hapax.jobs(filter).await.expect("read").is_empty() {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "jobs are still {state}: {:?}", hapax.queues().await);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Rows, and different rows.
fn effects(folder: &Path) -> (u32, u32) {
    let file = Connection::open(folder.join("jobs.db")).expect("opens");
    file.query_row("select count(*), count(distinct n) from effects", [], |r| Ok((r.get(0)?, r.get(1)?))).expect("read")
}

/// Laws 3 and 4: four processes, twenty kills with -9 at random moments, and each effect is there once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_kills_cost_no_effect_and_double_none() {
    let (jobs, kills) = (20_000, 20);
    let folder = tempfile::tempdir().expect("a folder");
    let hapax = prepared(folder.path(), jobs, false).await;
    let mut fleet = Fleet((0..PROCESSES).map(|_| start(folder.path())).collect());
    let mut while_working = 0;
    for _ in 0..kills {
        tokio::time::sleep(Duration::from_millis(fastrand::u64(100..500))).await;
        let victim = fastrand::usize(..PROCESSES);
        while_working += u32::from(effects(folder.path()).0 < jobs);
        fleet.0[victim].kill().expect("killed");
        fleet.0[victim].wait().expect("ended");
        fleet.0[victim] = start(folder.path());
    }
    all_done(&hapax).await;
    drop(fleet);
    assert_eq!(effects(folder.path()), (jobs, jobs));
    let counters = hapax.counters().await.expect("counted");
    println!("{jobs} effects, {kills} kills, {while_working} of them while there was work; {counters:?}");
    assert!(while_working > 0 && counters.takeovers + counters.unstarted_takeovers > 0, "the kills did not bite");
}

/// A process that is stopped inside its write transaction stops every writer of the file. Nothing is lost, nobody is
/// taken for dead, and all goes on once it goes on, or is gone.
async fn frozen_inside_its_transaction(then: Signal) {
    let jobs = 400;
    let folder = tempfile::tempdir().expect("a folder");
    let hapax = prepared(folder.path(), jobs, true).await;
    std::fs::write(folder.path().join("wish"), "").expect("written");
    let mut fleet = Fleet((0..PROCESSES).map(|_| start(folder.path())).collect());
    let begun = Instant::now();
    let stopped = loop {
        assert!(begun.elapsed() < PATIENCE, "nobody froze");
        tokio::time::sleep(Duration::from_millis(20)).await;
        let stopped = |child: &&mut Child| is_stopped(child.id());
        if let Some(child) = fleet.0.iter_mut().find(stopped) {
            break Pid::from_child(child);
        }
    };
    let impatient = SqliteStore::options().busy_timeout(Duration::from_millis(300));
    let impatient = impatient.open(folder.path().join("jobs.db")).await;
    let said = match impatient {
        Err(error) => error,
        Ok(store) => {
            let other = Hapax::with_store(std::sync::Arc::new(store));
            other.enqueue(Write { n: jobs, freeze: false }).await.expect_err("nobody can write")
        }
    };
    assert_eq!(said.kind(), ErrorKind::Busy, "{said}");
    // Longer than every lease.
    tokio::time::sleep(LEASE * 2).await;
    kill_process(stopped, then).expect("signalled");
    all_done(&hapax).await;
    let mut dead = hapax.instances().await.expect("read");
    dead.retain(|instance| !instance.live);
    let killed = format!(":{}", stopped.as_raw_nonzero());
    let blamed = dead.iter().all(|one| then == Signal::KILL && one.name.as_str().ends_with(&killed));
    assert!(blamed, "taken for dead because of the stall: {dead:?}");
    drop(fleet);
    assert_eq!(effects(folder.path()), (jobs, jobs));
}

fn is_stopped(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_goes_on_when_a_frozen_writer_goes_on() {
    frozen_inside_its_transaction(Signal::CONT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_goes_on_when_a_frozen_writer_is_killed() {
    frozen_inside_its_transaction(Signal::KILL).await;
}
