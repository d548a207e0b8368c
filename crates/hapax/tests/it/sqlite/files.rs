//! Files that are fresh, foreign, damaged, too new, read-only, or from before a restart of the machine.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use hapax::clock::Clock;
use hapax::id::{AcquisitionId, Boundary, OnceKey};
use hapax::model::{Due, KeyClaim, LockAnswer, LockRequest, NewInstance, NewJob, OnceAnswer, OnceRequest};
use hapax::store::sqlite::SqliteStore;
use hapax::store::{HealthVerdict, Inspect, Jobs, Leases, Once, Scope, Store, Workers};
use hapax::{Error, ErrorKind, JobState, Outcome};
use rusqlite::Connection;
use rusqlite::hooks::{AuthContext, Authorization};

use super::{asking, claimed, instance, job, name, open_with, place};

async fn refusal_of(file: &Path) -> Error {
    let error = SqliteStore::open(file).await.expect_err("is refused");
    assert_eq!(error.outcome(), Outcome::DidNotHappen);
    error
}

#[tokio::test]
async fn a_fresh_file_is_ours_and_says_so() {
    let place = place();
    let store = SqliteStore::open(&place.file).await.expect("opens");
    let other = Connection::open(&place.file).expect("opens");
    let id: i64 = other.pragma_query_value(None, "application_id", |row| row.get(0)).expect("read");
    assert_eq!(id, 0x6861_7078);
    let mode: String = other.pragma_query_value(None, "journal_mode", |row| row.get(0)).expect("read");
    assert_eq!(mode, "wal");
    let health = store.health().await.expect("read");
    assert_eq!((health.store, health.version, health.scope), ("sqlite", 1, Scope::Host));
    assert!(health.engine.starts_with("SQLite 3."), "{}", health.engine);
    let setting = |name: &str| health.settings.iter().find(|s| s.name == name).expect("is told").clone();
    assert_eq!((setting("synchronous").value.as_str(), setting("synchronous").verdict), ("full", HealthVerdict::Good));
    assert_eq!((setting("journal_mode").value.as_str(), setting("writable").value.as_str()), ("wal", "true"));
    assert!(health.settings.iter().all(|s| s.verdict != HealthVerdict::Broken), "{:?}", health.settings);
}

#[tokio::test]
async fn what_is_no_database_is_refused_and_left_alone() {
    let place = place();
    for content in [&b"once upon a time, there was a text file that nobody wanted to lose; "[..], &[0_u8; 9_000][..]] {
        std::fs::write(&place.file, content).expect("written");
        let error = refusal_of(&place.file).await;
        assert_eq!(error.kind(), ErrorKind::Unusable, "{error}");
        assert!(error.to_string().contains("not an SQLite database"), "{error}");
        assert_eq!(std::fs::read(&place.file).expect("read"), content, "the file is as it was");
    }
}

#[tokio::test]
async fn a_damaged_file_is_refused() {
    let place = place();
    SqliteStore::open(&place.file).await.expect("opens").close().await;
    let mut bytes = std::fs::read(&place.file).expect("read");
    // The schema's own page, behind the header.
    bytes[100..1_000].fill(0xA5);
    std::fs::write(&place.file, bytes).expect("written");
    let error = refusal_of(&place.file).await;
    assert_eq!(error.kind(), ErrorKind::Unusable, "{error}");
    assert!(error.to_string().contains("damaged"), "{error}");
}

#[tokio::test]
async fn a_newer_file_is_refused_with_both_versions() {
    let place = place();
    SqliteStore::open(&place.file).await.expect("opens").close().await;
    let other = Connection::open(&place.file).expect("opens");
    let set = |version: u32, min_program: u32| {
        let text = format!("update hapax_meta set version = {version}, min_program = {min_program}");
        other.execute_batch(&text).expect("written");
    };
    set(9, 8);
    let error = refusal_of(&place.file).await;
    assert_eq!(error.kind(), ErrorKind::TooNew);
    for part in ["version 9", "version 8", "version 1", "Update this program", env!("CARGO_PKG_VERSION")] {
        assert!(error.to_string().contains(part), "{part} is missing: {error}");
    }
    // Newer, but this program may work with it: a rolling deploy.
    set(9, 1);
    let store = SqliteStore::open(&place.file).await.expect("opens");
    claimed(&store).await;
    assert_eq!(store.health().await.expect("read").version, 9, "an older program takes nothing back");
}

#[tokio::test]
async fn a_users_database_gets_our_tables_and_keeps_its_own() {
    let place = place();
    let other = Connection::open(&place.file).expect("opens");
    other.execute_batch("create table orders (id integer primary key); insert into orders values (7)").expect("made");
    other.pragma_update(None, "application_id", 4711).expect("set");
    let store = SqliteStore::open(&place.file).await.expect("opens");
    claimed(&store).await;
    let id: i64 = other.pragma_query_value(None, "application_id", |row| row.get(0)).expect("read");
    let order: i64 = other.query_row("select id from orders", [], |row| row.get(0)).expect("read");
    assert_eq!((id, order), (4711, 7));
}

#[tokio::test]
async fn a_table_that_only_sounds_like_ours_is_left_alone() {
    for table in ["hapax_jobs (id)", "hapax_meta (one)", "hapax_meta (one, version, min_program, fence, boot_id)"] {
        let place = place();
        let other = Connection::open(&place.file).expect("opens");
        other.execute_batch(&format!("create table {table}")).expect("made");
        let error = refusal_of(&place.file).await;
        assert_eq!(error.kind(), ErrorKind::Unusable, "{table}: {error}");
    }
}

/// Run by the test below as a user who may not write.
#[test]
fn helper_opens_as_another_user() {
    let Ok(file) = std::env::var("HAPAX_IT_OPEN") else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        match SqliteStore::open(file).await {
            Ok(store) => {
                // The last to close takes the log away, which the next then has to make anew.
                store.close().await;
                println!("OPENED");
            }
            Err(error) => println!("{:?} {error}", error.kind()),
        }
    });
}

fn open_as_nobody(file: &Path) -> String {
    let mut helper = Command::new(std::env::current_exe().expect("this program"));
    helper.args(["--exact", "sqlite::files::helper_opens_as_another_user", "--nocapture"]).env("HAPAX_IT_OPEN", file);
    // To root everything is writable; 65534 is nobody.
    if is_root() {
        helper.uid(65_534).gid(65_534);
    }
    let output = helper.output().expect("the helper runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output().expect("`id` is there");
    output.stdout.trim_ascii() == b"0"
}

#[tokio::test]
async fn a_file_or_folder_that_may_not_be_written_is_said_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("jobs.db");
    SqliteStore::open(&file).await.expect("opens").close().await;
    let mode = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("changed");
    mode(folder.path(), 0o777);
    mode(&file, 0o444);
    let told = open_as_nobody(&file);
    assert!(told.contains("ReadOnly") && told.contains("may not write the file"), "{told}");
    mode(&file, 0o666);
    assert!(open_as_nobody(&file).contains("OPENED"));
    mode(folder.path(), 0o555);
    let told = open_as_nobody(&file);
    assert!(told.contains("ReadOnly") && told.contains("may not write the folder"), "{told}");
    let told = open_as_nobody(&folder.path().join("fresh.db"));
    assert!(told.contains("ReadOnly") && told.contains("may not write the folder"), "{told}");
    mode(folder.path(), 0o755);
}

#[tokio::test]
async fn memory_is_another_store() {
    let error = SqliteStore::open(":memory:").await.expect_err("is refused");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("memory:"), "{error}");
}

#[tokio::test]
async fn closing_and_opening_keeps_everything() {
    let (place, clock) = (place(), Clock::movable());
    let store = open_with(&place, &clock).await;
    let run = claimed(&store).await;
    store.enqueue(vec![NewJob { due: Due::InMs(5_000), ..job() }]).await.expect("enqueued");
    let before = (
        store.list(hapax::model::JobFilter { limit: 10, ..Default::default() }).await.expect("read"),
        store.instances().await.expect("read"),
    );
    store.close().await;
    let error = store.counters().await.expect_err("is closed");
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert_eq!(store.enqueue(vec![job()]).await.expect_err("is closed").kind(), ErrorKind::Closed);
    let store = open_with(&place, &clock).await;
    let after = (
        store.list(hapax::model::JobFilter { limit: 10, ..Default::default() }).await.expect("read"),
        store.instances().await.expect("read"),
    );
    assert_eq!(before, after);
    let by = instance();
    store.register(by.clone()).await.expect("registered");
    store.enqueue(vec![job()]).await.expect("enqueued");
    let next = store.claim(asking(by.id, 1)).await.expect("claimed").jobs.remove(0);
    assert!(next.fence > Some(run.fence), "fences go on");
}

#[tokio::test]
async fn after_a_restore_fences_begin_above_all_that_were_given() {
    let place = place();
    let store = SqliteStore::open(&place.file).await.expect("opens");
    let run = claimed(&store).await;
    let epoch = i64::from(store.next_epoch().await.expect("written"));
    let later = claimed(&store).await;
    assert_eq!(later.fence.as_i64(), (epoch << 40) + 1);
    assert!(later.fence > run.fence && epoch > 50_000, "hours since 2020, so that no restore repeats another's");
    assert!(i64::from(store.next_epoch().await.expect("written")) > epoch);
}

#[tokio::test]
async fn no_lease_outlives_the_machine() {
    let (place, clock) = (place(), Clock::movable());
    let boot = |id: &'static str| SqliteStore::options().clock(clock.clone()).boot_id(id).open(&place.file);
    let store = boot("first").await.expect("opens");
    let run = claimed(&store).await;
    let lock = LockRequest {
        name: name("lock"),
        permits: 1,
        lease_ms: 3_600_000,
        acquisition: AcquisitionId::new(),
        holder: name("me"),
    };
    let key = OnceKey::new(Boundary::Claim, name("s"), "k").expect("legal");
    let claim = KeyClaim { key, fingerprint: None, keep_ms: 60_000, made_at: None };
    let once = OnceRequest { claim, lease_ms: 3_600_000, acquisition: AcquisitionId::new(), holder: name("me") };
    assert!(matches!(store.acquire_lock(lock.clone()).await, Ok(LockAnswer::Granted(_))));
    assert!(matches!(store.claim_once(once.clone()).await, Ok(OnceAnswer::Claimed { attempt: 1, .. })));
    store.close().await;

    let store = boot("first").await.expect("opens");
    let lock = LockRequest { acquisition: AcquisitionId::new(), ..lock };
    let once = OnceRequest { acquisition: AcquisitionId::new(), ..once };
    assert!(matches!(store.acquire_lock(lock.clone()).await, Ok(LockAnswer::Busy { .. })), "the same boot");
    assert!(matches!(store.claim_once(once.clone()).await, Ok(OnceAnswer::Busy(_))));
    store.close().await;

    let store = boot("second").await.expect("opens");
    assert!(matches!(store.acquire_lock(lock).await, Ok(LockAnswer::Granted(_))), "another boot");
    assert!(matches!(store.claim_once(once).await, Ok(OnceAnswer::Claimed { attempt: 2, .. })));
    // With so short a lease it need not wait before it reaps.
    let by = NewInstance { lease_ms: 1, ..instance() };
    store.register(by.clone()).await.expect("registered");
    let reaped = store.reap(by.id, 10).await.expect("live");
    assert_eq!(reaped.taken_back, [(run.job, JobState::Ready)]);
    assert_eq!(reaped.dead.len(), 1);
}

#[tokio::test]
async fn a_full_disk_loses_nothing() {
    let place = place();
    let store = SqliteStore::open(&place.file).await.expect("opens");
    let run = claimed(&store).await;
    // As if the disk ended here: the limit belongs to the connection that writes, which only an effect can reach, and
    // one that takes the guard off at that.
    let limit = |pages: i64| {
        move |tx: &hapax::store::sqlite::EffectTx<'_>| -> Result<(), hapax::BoxError> {
            tx.authorizer(None::<fn(AuthContext<'_>) -> Authorization>)?;
            let most = if pages == 0 { tx.pragma_query_value(None, "page_count", |row| row.get(0))? } else { pages };
            tx.pragma_update_and_check(None, "max_page_count", most, |_| Ok(()))?;
            Err("only for the limit".into())
        }
    };
    store.finish_with(run, limit(0)).await.expect("carried out");
    let big = NewJob { payload: hapax::Payload::new(&format!("\"{}\"", "x".repeat(500_000))).expect("JSON"), ..job() };
    let error = store.enqueue(vec![big.clone()]).await.expect_err("there is no room");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Full, Outcome::DidNotHappen), "{error}");
    assert!(store.job(big.id).await.expect("read").is_none());
    store.finish_with(run, limit(1_000_000)).await.expect("carried out");
    store.enqueue(vec![big.clone()]).await.expect("there is room");
    assert!(store.job(big.id).await.expect("read").is_some());
}

#[tokio::test]
async fn limits_hold_for_plain_sql_too() {
    let place = place();
    SqliteStore::open(&place.file).await.expect("opens").close().await;
    let other = Connection::open(&place.file).expect("opens");
    let insert = |queue: &str, payload: &str| {
        let text = "insert into hapax_jobs (id, queue, kind, payload_version, priority, state, due_at, enqueued_at, \
                    max_attempts, retry_base_ms, retry_cap_ms, retry_jitter_percent, run_timeout_ms, keep_ms, payload) \
                    values (randomblob(16), ?1, 'k', 1, 0, 'ready', 0, 0, 5, 1000, 1000, 0, 60000, 60000, ?2)";
        other.execute(text, [queue, payload]).is_ok()
    };
    assert!(insert("q", "{}") && insert(&"ä".repeat(64), r#""\u0000""#) && insert("a\u{A0}b \u{10FFFF}", "1"));
    for queue in ["", &"q".repeat(129), "a\0b", "a\nb", "\u{7F}", "a\u{9F}"] {
        assert!(!insert(queue, "{}"), "{queue:?}");
    }
    for payload in ["", "{", &format!("\"{}\"", "x".repeat(1_048_576))] {
        assert!(!insert("q", payload), "{} bytes", payload.len());
    }
}

/// A backup moved over the file of a running program: what it would go on to write, nobody would ever see.
#[tokio::test]
async fn a_file_that_was_replaced_takes_no_more_writes() {
    let place = place();
    let store = SqliteStore::open(&place.file).await.expect("opens");
    let run = claimed(&store).await;
    let elsewhere = place.file.with_extension("moved");
    std::fs::rename(&place.file, &elsewhere).expect("moved");
    for _ in 0..2 {
        let error = store.enqueue(vec![job()]).await.expect_err("is not there");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unusable, Outcome::DidNotHappen), "{error}");
        assert_eq!(store.finish_with(run, |_| Ok(())).await.expect_err("is not there").kind(), ErrorKind::Unusable);
        assert_eq!(store.counters().await.expect_err("is not there").kind(), ErrorKind::Unusable);
        std::fs::write(&place.file, "").expect("another file");
    }
    assert!(store.health().await.expect("answers").settings.iter().any(|s| s.verdict == HealthVerdict::Broken));
    std::fs::rename(&elsewhere, &place.file).expect("moved back");
    store.enqueue(vec![job()]).await.expect("is there again");
}

#[tokio::test]
async fn health_answers_while_another_writes() {
    let place = place();
    let store = SqliteStore::options().busy_timeout(Duration::from_millis(200));
    let store = store.open(&place.file).await.expect("opens");
    let other = Connection::open(&place.file).expect("opens");
    other.execute_batch("begin immediate").expect("begun");
    assert!(store.health().await.is_ok());
    assert!(store.counters().await.is_ok());
}

/// A process that cannot read the boot id must not end the leases of those who can, nor be ended by them.
#[tokio::test]
async fn an_unknown_boot_ends_no_lease() {
    let (place, clock) = (place(), Clock::movable());
    let boot = |id: &'static str| SqliteStore::options().clock(clock.clone()).boot_id(id).open(&place.file);
    let store = boot("first").await.expect("opens");
    let run = claimed(&store).await;
    for id in ["unknown", "first", "unknown", "first"] {
        let other = boot(id).await.expect("opens");
        let reaper = NewInstance { lease_ms: 1, ..instance() };
        other.register(reaper.clone()).await.expect("registered");
        let swept = other.reap(reaper.id, 10).await.expect("live");
        assert!(swept.dead.is_empty() && swept.taken_back.is_empty(), "opened as `{id}`: {swept:?}");
    }
    assert_eq!(store.verdict(vec![run]).await.expect("read"), [hapax::model::Verdict::Current]);
}
