//! `hapax demo`, small, and that nothing of it is left behind however it ends.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::cli::{Cli, bare, ran};
use crate::postgres::place::{ask, server, sql};

#[test]
fn a_small_demo_passes_and_has_really_happened() {
    let cli = Cli::new();
    let mut command = bare(cli.folder());
    command.env("TMPDIR", cli.folder()).args(["demo", "--jobs", "300", "--seed", "7", "-o", "json"]);
    let ran = ran(command, "");
    assert_eq!(ran.code, 0, "{}\n{}", ran.out, ran.err);
    let report = ran.json();
    assert_eq!((report["passed"].as_bool(), report["seed"].as_u64()), (Some(true), Some(7)));
    assert_eq!((report["expected"].as_u64(), report["effects"].as_u64()), (Some(300), Some(300)));
    assert_eq!((report["twice"].as_u64(), report["lost"].as_u64()), (Some(0), Some(0)));
    for fact in ["duplicates_refused", "late_writers_refused", "kills", "freezes"] {
        assert!(report[fact].as_u64() > Some(0), "{fact}: {report}");
    }
    let left: Vec<_> = std::fs::read_dir(cli.folder()).expect("a folder").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_file_is_kept_when_asked_and_never_overwritten() {
    let cli = Cli::new();
    let mut command = bare(cli.folder());
    command.args(["demo", "--jobs", "200", "--seed", "11", "--file", "kept.db"]);
    let kept = ran(command, "");
    assert_eq!(kept.code, 0, "{}\n{}", kept.out, kept.err);
    assert!(kept.out.contains("PASSED") && kept.err.contains("sqlite3 kept.db"), "{kept:?}");
    let file = rusqlite::Connection::open(cli.folder().join("kept.db")).expect("a database");
    let effects = |sql: &str| file.query_row(sql, [], |row| row.get::<_, i64>(0)).expect("a number");
    assert_eq!(effects("select count(*) from demo_effects"), 200);
    assert_eq!(effects("select count(distinct key) from demo_effects"), 200);
    let mut command = bare(cli.folder());
    command.args(["demo", "--file", "kept.db"]);
    let again = ran(command, "");
    assert!(again.code == 2 && again.err.contains("there already"), "{again:?}");
}

/// The demo's own teeth: without the transaction of the finish, the frozen instance's late write is there twice.
#[test]
fn a_careless_demo_fails() {
    let cli = Cli::new();
    let mut command = bare(cli.folder());
    command.env("TMPDIR", cli.folder()).args(["demo", "--jobs", "200", "--seed", "5", "--careless", "-o", "json"]);
    let ran = ran(command, "");
    assert_eq!(ran.code, 1, "{}\n{}", ran.out, ran.err);
    let report = ran.json();
    assert_eq!((report["passed"].as_bool(), report["lost"].as_u64()), (Some(false), Some(0)), "{report}");
    assert!(report["twice"].as_u64() > Some(0) && report["freezes"].as_u64() == Some(1), "{report}");
}

/// The same on PostgreSQL: in a schema of its own, of which nothing is left.
#[test]
fn a_small_demo_passes_on_postgresql_and_a_careless_one_fails() {
    let cli = Cli::new();
    let play = |more: &[&str]| {
        let mut command = bare(cli.folder());
        let options = ["demo", "--store", &server(), "--jobs", "300", "-o", "json"];
        command.env("TMPDIR", cli.folder()).args(options).args(more);
        ran(command, "")
    };
    // Others may play on the same server: it says which schema is its own.
    let is_gone = |err: &str| {
        let (_, rest) = err.split_once("in the schema ").expect("it says where it plays");
        let name = rest.split_whitespace().next().expect("a name");
        assert_eq!(ask(&format!("select (to_regnamespace('{name}') is null)::text")), "true", "{name}");
    };
    let passed = play(&["--seed", "7"]);
    assert_eq!(passed.code, 0, "{}\n{}", passed.out, passed.err);
    let report = passed.json();
    assert_eq!((report["passed"].as_bool(), report["effects"].as_u64()), (Some(true), Some(300)));
    for fact in ["duplicates_refused", "late_writers_refused", "kills", "freezes"] {
        assert!(report[fact].as_u64() > Some(0), "{fact}: {report}");
    }
    let failed = play(&["--seed", "5", "--careless"]);
    assert_eq!(failed.code, 1, "{}\n{}", failed.out, failed.err);
    assert!(failed.json()["twice"].as_u64() > Some(0), "{}", failed.out);
    is_gone(&passed.err);
    is_gone(&failed.err);
    let kept = play(&["--seed", "7", "--keep"]);
    let report = kept.json();
    let schema = report["schema"].as_str().expect("its name");
    assert_eq!(ask(&format!("select count(distinct key)::text from {schema}.demo_effects")), "300");
    sql(&format!("drop schema {schema} cascade"));
}

/// Starts a long demo and waits until its instances are at work, and so watch their parent.
fn started(cli: &Cli) -> (Child, Vec<i32>) {
    let mut command = bare(cli.folder());
    command.env("TMPDIR", cli.folder()).args(["demo", "--jobs", "100000", "--seed", "3"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let begun = Instant::now();
    while live_instances(cli.folder()) < Some(3) && begun.elapsed() < Duration::from_mins(1) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let children = children_of(child.id());
    (child, children)
}

/// How many instances are live in the store that a demo made below this folder.
fn live_instances(folder: &Path) -> Option<i64> {
    let file = std::fs::read_dir(folder).ok()?.next()?.ok()?.path().join("demo.db");
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let store = rusqlite::Connection::open_with_flags(file, flags).ok()?;
    store.query_row("select count(*) from hapax_instances where live = 1", [], |row| row.get(0)).ok()
}

fn children_of(process: u32) -> Vec<i32> {
    let path = format!("/proc/{process}/task/{process}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|id| id.parse().ok()).collect()
}

/// Waits until none of these processes runs any more.
fn all_gone(processes: &[i32]) -> bool {
    let begun = Instant::now();
    let runs = |id: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // The state comes after the name, which is in brackets; Z is one that has ended and was not asked for yet.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    };
    while begun.elapsed() < Duration::from_secs(10) {
        if !processes.iter().any(runs) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let id = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw).expect("a process");
    rustix::process::kill_process(id, signal).expect("it is ours");
}

#[test]
fn ctrl_c_ends_the_instances_and_takes_the_file_away() {
    let cli = Cli::new();
    let (mut demo, instances) = started(&cli);
    assert_eq!(instances.len(), 3);
    signal(&demo, rustix::process::Signal::INT);
    assert_eq!(demo.wait().expect("it ends").code(), Some(130));
    assert!(all_gone(&instances), "{instances:?}");
    let left: Vec<_> = std::fs::read_dir(cli.folder()).expect("a folder").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn instances_do_not_outlive_a_killed_parent() {
    let cli = Cli::new();
    let (mut demo, instances) = started(&cli);
    assert_eq!(instances.len(), 3);
    // A frozen one cannot see that its stdin was closed.
    let frozen = rustix::process::Pid::from_raw(instances[0]).expect("a process");
    rustix::process::kill_process(frozen, rustix::process::Signal::STOP).expect("it is there");
    demo.kill().expect("killed");
    demo.wait().expect("it is gone");
    assert!(all_gone(&instances), "{instances:?}");
}

#[test]
fn nobody_else_starts_an_instance() {
    let cli = Cli::new();
    let mut command = bare(cli.folder());
    command.args(["demo-instance", "--file", "x.db", "--notes", ".", "--index", "0", "--parent", "1"]);
    let alone = ran(command, "");
    assert!(alone.code == 125 && alone.err.contains("hapax demo"), "{alone:?}");
    assert!(!cli.folder().join("x.db").exists());
}
