//! Several processes on one file: the test binary starts itself again in another role.

use std::collections::HashSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hapax::JobState;
use hapax::model::{End, Finish, Heartbeat, JobFilter, JobRecord, RunRef, Settled};
use hapax::store::sqlite::SqliteStore;
use hapax::store::{Inspect, Jobs, Store, Workers};
use rusqlite::Connection;

use super::{Place, asking, instance, job, place};

/// What a helper process does, told by its environment. Without it this test is empty.
#[test]
fn helper() {
    let (Ok(role), Ok(file)) = (std::env::var("HAPAX_IT_ROLE"), std::env::var("HAPAX_IT_FILE")) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    match role.as_str() {
        "drain" => runtime.block_on(drain(Path::new(&file))),
        "open" => drop(runtime.block_on(SqliteStore::open(file)).expect("opens")),
        "work" => runtime.block_on(work(Path::new(&file), Duration::from_secs(5))),
        "die" => runtime.block_on(die(Path::new(&file))),
        other => panic!("no role `{other}`"),
    }
}

fn start(role: &str, file: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "sqlite::processes::helper", "--nocapture"])
        .env("HAPAX_IT_ROLE", role)
        .env("HAPAX_IT_FILE", file)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the helper starts")
}

/// What a helper said, line by line, once it has ended well.
fn said(child: Child) -> Vec<String> {
    let output = child.wait_with_output().expect("the helper ends");
    assert!(output.status.success(), "the helper failed: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

fn run_of(job: &JobRecord) -> RunRef {
    RunRef { job: job.id, fence: job.fence.expect("claimed") }
}

fn done(jobs: &[JobRecord]) -> Vec<Finish> {
    jobs.iter().map(|job| Finish { run: run_of(job), end: End::Done { result: None } }).collect()
}

/// Claims and finishes until nothing is left, and says what it executed.
async fn drain(file: &Path) {
    let store = SqliteStore::open(file).await.expect("opens");
    let by = instance();
    store.register(by.clone()).await.expect("registered");
    loop {
        let jobs = store.claim(asking(by.id, 7)).await.expect("no busy error reaches a caller").jobs;
        if jobs.is_empty() {
            break;
        }
        for job in &jobs {
            println!("ran {}", job.id);
        }
        let settled = store.finish(done(&jobs)).await.expect("no busy error reaches a caller");
        assert!(settled.iter().all(Settled::counted), "{settled:?}");
    }
}

/// RC-07: two processes drain one file; each job is executed once, and nobody hears of a lock.
#[tokio::test]
async fn two_processes_drain_one_file() {
    let place = place();
    let store = SqliteStore::open(&place.file).await.expect("opens");
    for round in 0..3 {
        store.enqueue((0..1_000).map(|_| job()).collect()).await.expect("enqueued");
        let children = [start("drain", &place.file), start("drain", &place.file)];
        let ran: Vec<String> = children.into_iter().flat_map(said).filter(|line| line.contains("ran ")).collect();
        let ids: HashSet<&str> = ran.iter().filter_map(|line| line.split("ran ").nth(1)).collect();
        assert_eq!((ran.len(), ids.len()), (1_000, 1_000), "round {round}");
    }
}

#[tokio::test]
async fn many_processes_open_a_fresh_file_at_once() {
    for round in 0..3 {
        let place = place();
        let children: Vec<Child> = (0..6).map(|_| start("open", &place.file)).collect();
        let own = (0..8).map(|_| {
            let file = place.file.clone();
            tokio::spawn(async move { SqliteStore::open(file).await.map(drop) })
        });
        for opened in own.collect::<Vec<_>>() {
            opened.await.expect("no panic").unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
        for child in children {
            said(child);
        }
    }
}

/// Enqueues, claims, finishes and renews for a while, and says the longest time that a call took.
async fn work(file: &Path, time: Duration) {
    let store = SqliteStore::open(file).await.expect("opens");
    let keeper = store.another().await.expect("opens");
    let by = instance();
    store.register(by.clone()).await.expect("registered");
    let (began, mut longest, mut calls) = (Instant::now(), Duration::ZERO, 0);
    while began.elapsed() < time {
        let call = Instant::now();
        store.enqueue(vec![job(), job()]).await.expect("no busy error reaches a caller");
        let jobs = store.claim(asking(by.id, 2)).await.expect("no busy error reaches a caller").jobs;
        store.finish(done(&jobs)).await.expect("no busy error reaches a caller");
        let beat = keeper.heartbeat(by.id, Vec::new()).await.expect("no busy error reaches a caller");
        assert!(matches!(beat, Heartbeat::Alive { .. }), "nobody is taken for dead because it had to wait");
        longest = longest.max(call.elapsed());
        calls += 4;
    }
    println!("calls {calls} longest {}", longest.as_millis());
}

/// RC-53: four processes hammer one file, and somebody else holds it for 3 s: calls wait, and nobody hears of it.
#[tokio::test]
async fn busy_calls_wait() {
    let place = place();
    SqliteStore::open(&place.file).await.expect("opens").close().await;
    let outside = Connection::open(&place.file).expect("opens");
    let children: Vec<Child> = (0..4).map(|_| start("work", &place.file)).collect();
    std::thread::sleep(Duration::from_secs(1));
    outside.busy_timeout(Duration::from_secs(10)).expect("set");
    outside.execute_batch("begin immediate; create table theirs (n); insert into theirs values (1)").expect("held");
    std::thread::sleep(Duration::from_secs(3));
    outside.execute_batch("commit").expect("let go");
    for child in children {
        let lines = said(child);
        let line = lines.iter().find(|line| line.contains("calls ")).expect("says how it went");
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        assert!(numbers[0] >= 40, "each gets its turn: {line}");
        assert!(numbers[1] >= 2_000, "it met the outside writer: {line}");
    }
    assert_in_order(&place).await;
}

/// After all that: nothing lost, nothing twice.
async fn assert_in_order(place: &Place) {
    let store = SqliteStore::open(&place.file).await.expect("opens");
    let own = Connection::open(&place.file).expect("opens");
    let odd: i64 = own
        .query_row("select count(*) from hapax_jobs where state = 'done' and runs <> 1", [], |row| row.get(0))
        .expect("read");
    assert_eq!(odd, 0);
    let intact: String = own.query_row("pragma integrity_check", [], |row| row.get(0)).expect("read");
    assert_eq!(intact, "ok");
    assert_eq!(store.counters().await.expect("read").writes_refused, 0);
}

/// Claims, and is killed inside a write transaction.
async fn die(file: &Path) {
    let store = SqliteStore::open(file).await.expect("opens");
    let by = instance();
    store.register(by.clone()).await.expect("registered");
    let jobs = store.claim(asking(by.id, 1)).await.expect("claimed").jobs;
    println!("claimed {}", jobs[0].id);
    let effect = |tx: &hapax::store::sqlite::EffectTx<'_>| {
        tx.execute_batch("create table theirs (n)")?;
        std::process::abort();
        #[expect(unreachable_code, reason = "tells the compiler what the closure would give")]
        Ok(())
    };
    store.finish_with(run_of(&jobs[0]), effect).await.expect("never answered");
}

#[tokio::test]
async fn a_process_that_dies_inside_its_effect_leaves_no_trace() {
    let place = place();
    let store = SqliteStore::open(&place.file).await.expect("opens");
    store.enqueue(vec![job()]).await.expect("enqueued");
    let output = start("die", &place.file).wait_with_output().expect("the helper ends");
    assert!(!output.status.success());
    let jobs = store.list(JobFilter { limit: 1, ..JobFilter::default() }).await.expect("read");
    assert_eq!(jobs[0].state, JobState::Running, "its owner is not known to be dead yet");
    let own = Connection::open(&place.file).expect("opens");
    own.execute_batch("create table theirs (n)").expect("was never made");
    store.enqueue(vec![job()]).await.expect("nobody holds the lock");
}
