//! `hapax exec`: who runs, what is said, and every exit code.

use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cli::{Cli, Ran, bare, ran};

/// A call of `hapax exec` in this folder, with this script.
pub(crate) fn exec(cli: &Cli, options: &[&str], script: &str) -> Command {
    let mut command = bare(cli.folder());
    command.env("HAPAX_STORE_URL", cli.url()).arg("exec").args(options).args(["--", "sh", "-c", script]);
    command
}

fn run(cli: &Cli, options: &[&str], script: &str) -> Ran {
    ran(exec(cli, options, script), "")
}

/// The object of `-o json`, which is the line on stderr.
fn told(ran: &Ran) -> Value {
    let line = ran.err.lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|error| panic!("no JSON ({error}): {ran:?}"))
}

pub(crate) fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < until, "{what} within 30 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A call that is ended with the test, also when the test fails.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn code(&mut self) -> Option<i32> {
        self.0.wait().expect("it ends").code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Its watchdog ends the rest.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A call that is still running, once its script has made the file `started`.
fn started(cli: &Cli, options: &[&str], script: &str) -> Running {
    let mark = cli.folder().join("started");
    let _ = std::fs::remove_file(&mark);
    let mut command = exec(cli, options, &format!("echo $$ > started.tmp; mv started.tmp started; {script}"));
    let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let child = Running(child);
    wait_for("the command starts", || mark.exists());
    child
}

#[test]
fn eight_callers_of_twenty_keys_run_twenty_commands() {
    let cli = Cli::new();
    cli.text(&["migrate"]);
    for key in (0..20).map(|n| format!("k{n}")) {
        let options = ["--once-per", "day", "--key", &key, "-E", "3"];
        let call = || {
            let mut command = exec(&cli, &options, "echo $HAPAX_FENCE >> runs-$HAPAX_KEY");
            command.stderr(Stdio::piped()).stdin(Stdio::null()).spawn().expect("it starts")
        };
        let calls: Vec<Child> = (0..8).map(|_| call()).collect();
        let mut codes = Vec::new();
        for call in calls {
            let output = call.wait_with_output().expect("it ends");
            let said = String::from_utf8_lossy(&output.stderr);
            let code = output.status.code();
            assert!(
                code == Some(0) || said.contains(" is done: ") && said.contains(" did it at 20"),
                "{code:?}: {said}"
            );
            codes.push(code);
        }
        codes.sort_unstable();
        assert_eq!(codes, [&[Some(0)], &[Some(3); 7][..]].concat(), "{key}");
    }
    for key in 0..20 {
        let runs = std::fs::read_to_string(cli.folder().join(format!("runs-k{key}"))).expect("it ran");
        assert_eq!(runs.lines().count(), 1, "k{key}: {runs}");
    }
}

#[test]
fn a_failure_passes_its_code_and_leaves_the_key_to_the_next() {
    let cli = Cli::new();
    let options = ["--once-per", "day", "--key", "backup", "-o", "json"];
    assert_eq!(run(&cli, &options, "exit 41").code, 41);
    let second = run(&cli, &options, "echo rows=1200 >> $HAPAX_REPORT; echo progress=40% >> $HAPAX_REPORT");
    assert_eq!((second.code, second.out.as_str()), (0, ""));
    let third = run(&cli, &options, "echo never");
    assert_eq!((third.code, third.out.as_str()), (0, ""));
    let told = told(&third);
    assert_eq!((&told["outcome"], &told["scope"]), (&"skipped_done".into(), &"host".into()));
    assert_eq!(told["done"]["result"]["report"], serde_json::json!({"rows": 1200, "progress": "40%"}));
}

#[test]
fn losers_wait_for_the_outcome_and_take_over_from_a_failure() {
    let cli = Cli::new();
    let options = ["--once-per", "1h", "--key", "k"];
    let mut first = started(&cli, &options, "while [ ! -e go ]; do sleep 0.02; done; exit 5");
    let second = exec(&cli, &options, "echo second").stdout(Stdio::piped()).spawn().expect("it starts");
    let third = run(&cli, &[&options[..], &["--wait", "100ms"]].concat(), "echo third");
    assert_eq!(third.code, 75, "{third:?}");
    assert!(third.err.contains("is being done by"), "{third:?}");
    std::fs::write(cli.folder().join("go"), "").expect("written");
    assert_eq!(first.code(), Some(5));
    let second = second.wait_with_output().expect("it ends");
    assert_eq!((second.status.code(), second.stdout.as_slice()), (Some(0), &b"second\n"[..]));
}

#[test]
fn a_lock_is_busy_at_once_unless_there_is_a_permit_or_a_wait() {
    let cli = Cli::new();
    let mut holder = started(&cli, &["--lock", "L", "--permits", "2"], "while [ ! -e go ]; do sleep 0.02; done");
    let busy = run(&cli, &["--lock", "L"], "echo never");
    assert_eq!((busy.code, busy.out.as_str()), (75, ""));
    assert!(busy.err.contains("lock L is held by ") && busy.err.contains("not run"), "{busy:?}");
    assert_eq!(run(&cli, &["--lock", "L", "--permits", "2"], "echo second").out, "second\n");
    let waiting = exec(&cli, &["--lock", "L", "--wait", "30s"], "echo after").stdout(Stdio::piped()).spawn();
    std::fs::write(cli.folder().join("go"), "").expect("written");
    assert_eq!(holder.code(), Some(0));
    assert_eq!(waiting.expect("it starts").wait_with_output().expect("it ends").stdout, b"after\n");
}

#[test]
fn every_exit_code_of_the_table() {
    let cli = Cli::new();
    let code = |options: &[&str], script: &str| run(&cli, options, script).code;
    assert_eq!(code(&["--lock", "L"], "true"), 0);
    assert_eq!(code(&["--lock", "L"], "exit 77"), 77);
    assert_eq!(code(&["--lock", "L"], "kill -USR1 $$"), 128 + 10);
    assert_eq!(code(&["--lock", "L", "--timeout", "50ms", "--grace", "50ms"], "trap '' TERM; sleep 9"), 124);
    let direct = |command: &str| {
        let mut call = bare(cli.folder());
        ran(
            {
                call.args(["exec", "--store", &cli.url(), "--lock", "L", "--", command]);
                call
            },
            "",
        )
        .code
    };
    std::fs::write(cli.folder().join("plain"), "").expect("written");
    std::fs::write(cli.folder().join("odd"), "#!/no/such/interpreter\n").expect("written");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(cli.folder().join("odd"), mode).expect("changed");
    assert_eq!((direct("no-such-command"), direct("./plain"), direct("./odd")), (127, 126, 127));
    // The watchdog is the parent of the command; without it nobody could stop the command in time.
    assert_eq!(code(&["--lock", "L"], "kill -KILL $PPID; sleep 9"), 125);
    let scope = run(&cli, &["--lock", "L", "--scope", "fleet"], "echo never");
    assert_eq!((scope.code, scope.out.as_str()), (78, ""), "{scope:?}");
    assert_eq!(code(&["--lock", "L", "--scope", "host"], "true"), 0);
    let down = ["--lock", "L", "--store", "sqlite:/no/such/folder/x.db"];
    assert_eq!(code(&down, "echo never"), 69);
    assert_eq!(code(&[&down[..], &["--on-store-down", "skip"]].concat(), "exit 9"), 0);
    assert_eq!(code(&[&down[..], &["--on-store-down", "run"]].concat(), "test -z \"$HAPAX_FENCE\" && exit 9"), 9);
    std::fs::write(cli.folder().join("no.db"), "this is no database, and long enough to be looked at")
        .expect("written");
    assert_eq!(code(&["--lock", "L", "--store", "sqlite:no.db", "--on-store-down", "run"], "true"), 78);
}

/// Moves the store away while the command runs, so that its end cannot be recorded, and puts it back afterwards. Gives
/// the object of the result file.
fn run_without_a_way_back(cli: &Cli, done_on: &str) -> Value {
    let options = ["--once-per", "day", "--key", "k", "--done-on", done_on, "--ttl", "2s", "--result-file", "result"];
    let ran = run(cli, &options, "mv test.db away.db");
    assert_eq!(ran.code, 70, "{ran:?}");
    assert!(ran.err.contains("its result could not be recorded") && ran.err.contains("moved"), "{ran:?}");
    std::fs::rename(cli.folder().join("away.db"), cli.file()).expect("moved back");
    let result = std::fs::read_to_string(cli.folder().join("result")).expect("written");
    serde_json::from_str(&result).expect("JSON")
}

#[test]
fn a_result_that_cannot_be_recorded_is_in_doubt_and_may_run_again() {
    let cli = Cli::new();
    let result = run_without_a_way_back(&cli, "success");
    assert_eq!((&result["outcome"], &result["exit"]), (&"in_doubt".into(), &70.into()));
    assert_eq!(result["child_exit"], 0, "what the command did is told apart from what was recorded");
    assert!(result["message"].as_str().is_some_and(|said| said.ends_with("it may run again")), "{result}");
    assert_eq!(cli.json(&["once", "show", "k"])["state"], "held", "nobody may be sure before the lease has ended");
    let again = run(&cli, &["--once-per", "day", "--key", "k", "--ttl", "2s"], "echo attempt $HAPAX_ATTEMPT");
    assert_eq!((again.code, again.out.as_str()), (0, "attempt 2\n"), "{again:?}");
}

#[test]
fn a_start_whose_end_cannot_be_recorded_leaves_the_key_in_doubt() {
    let cli = Cli::new();
    let result = run_without_a_way_back(&cli, "start");
    assert_eq!((&result["outcome"], &result["exit"]), (&"in_doubt".into(), &70.into()));
    assert!(result["message"].as_str().is_some_and(|said| said.contains("its end is in doubt")), "{result}");
    assert!(cli.text(&["once", "show", "k"]).contains("its end is not recorded"));
    let call = |script: &str| run(&cli, &["--once-per", "day", "--key", "k", "--done-on", "start", "-E", "3"], script);
    let again = call("echo never");
    assert_eq!((again.code, again.out.as_str()), (3, ""), "never twice, whatever became of it: {again:?}");
    let period = cli.json(&["once", "show", "k"])["period"].as_str().expect("a day").to_owned();
    cli.text(&["once", "resolve", "k", &period, "--as", "not-done", "--reason", "the bucket is empty"]);
    assert_eq!(call("echo now").out, "now\n");
}

/// Whether a process has this file open.
fn has_open(process: u32, file: &std::path::Path) -> bool {
    let opened = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    opened.filter_map(|entry| std::fs::read_link(entry.path()).ok()).any(|opened| opened == file)
}

#[test]
fn a_crowd_that_finds_the_store_busy_waits_and_none_is_turned_away() {
    let cli = Cli::new();
    cli.text(&["migrate"]);
    let file = cli.file().canonicalize().expect("it was made");
    let writer = rusqlite::Connection::open(&file).expect("opened");
    writer.execute_batch("begin immediate").expect("the write lock");
    let call = |n: usize| {
        let (lock, key) = (format!("L{}", n % 3), format!("k{n}"));
        let options: [&str; 4] =
            if n.is_multiple_of(2) { ["--lock", &lock, "--wait", "1m"] } else { ["--once-per", "day", "--key", &key] };
        let mut command = exec(&cli, &options, "echo >> ran");
        Running(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"))
    };
    let mut calls: Vec<Running> = (0..24).map(call).collect();
    wait_for("all stand before the store", || calls.iter().all(|call| has_open(call.0.id(), &file)));
    assert!(!cli.folder().join("ran").exists(), "the store was not busy");
    writer.execute_batch("rollback").expect("the lock is free");
    let codes: Vec<Option<i32>> = calls.iter_mut().map(Running::code).collect();
    assert_eq!(codes, [Some(0); 24]);
    let ran = std::fs::read_to_string(cli.folder().join("ran")).expect("they ran");
    assert_eq!(ran.len(), 24);
}

#[test]
fn a_signal_ends_the_wait_for_a_busy_store() {
    let cli = Cli::new();
    cli.text(&["migrate"]);
    let file = cli.file().canonicalize().expect("it was made");
    let writer = rusqlite::Connection::open(&file).expect("opened");
    writer.execute_batch("begin immediate").expect("the write lock");
    let waiting = exec(&cli, &["--lock", "L"], "touch ran").stdin(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut waiting = Running(waiting.expect("it starts"));
    wait_for("it stands before the store", || has_open(waiting.0.id(), &file));
    let process = rustix::process::Pid::from_child(&waiting.0);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).expect("it is there");
    assert_eq!(waiting.code(), Some(128 + 15));
    assert!(!cli.folder().join("ran").exists());
}

#[test]
fn bad_input_is_found_before_anything_runs() {
    let cli = Cli::new();
    let long = "k".repeat(4_100);
    let table: &[(&[&str], &str)] = &[
        (&[], "--lock NAME"),
        (&["--once-per", "day"], "--key"),
        (&["--key", "k"], "--once-per"),
        (&["--lock", "L", "--wait", "soon"], "30s"),
        (&["--lock", "L", "--ttl", "10ms"], "1s to 24h"),
        (&["--lock", "L", "--timeout", "0"], "leave it out"),
        (&["--lock", "L", "--permits", "0"], "1..=10000"),
        (&["--once-per", "hour", "--key", "k"], "a length such as 1h"),
        (&["--once-per", "0 0 30 2 *", "--key", "k"], "would never fire"),
        (&["--once-per", "day", "--key", "k", "--tz", "Berlin"], "IANA"),
        (&["--once-per", "1h", "--key", "k", "--tz", "Europe/Berlin"], "leave out --tz"),
        (&["--once-per", "day", "--key", &long], "4096"),
        (&["--once-per", "day", "--key", &long[..200]], "--lock"),
        (&["--lock", "L", "--result-file", "/no/such/folder/result"], "result file"),
        (&["--lock", "L", "-E", "256"], "256"),
        (&["--lock", "L", "--store", "nonsense:x"], "sqlite:PATH"),
    ];
    for (options, says) in table {
        let ran = run(&cli, options, "touch ran");
        assert_eq!(ran.code, 2, "{options:?}: {ran:?}");
        assert!(ran.err.contains(says), "{options:?}: {ran:?}");
    }
    assert!(!cli.folder().join("ran").exists());
}

#[test]
fn attempts_go_on_until_one_succeeds() {
    let cli = Cli::new();
    let script = "echo $HAPAX_ATTEMPT >> tries; [ $(wc -l < tries) -ge 2 ]";
    let ran = run(&cli, &["--once-per", "day", "--key", "k", "--attempts", "3"], script);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(std::fs::read_to_string(cli.folder().join("tries")).expect("it ran"), "1\n2\n");
}

#[test]
fn done_on_says_when_it_counts() {
    let cli = Cli::new();
    let options = |on| ["--once-per", "day", "--key", on, "--done-on", on, "-E", "3"];
    assert_eq!(run(&cli, &options("exit"), "exit 5").code, 5);
    assert_eq!(run(&cli, &options("exit"), "exit 5").code, 3);
    assert_eq!(run(&cli, &options("start"), "kill -9 $$").code, 137);
    let again = run(&cli, &[&options("start")[..], &["-o", "json"]].concat(), "exit 5");
    assert_eq!((again.code, &told(&again)["done"]["result"]["exit"]), (3, &137.into()), "the end is kept as well");
}

#[test]
fn the_command_finds_its_lease_in_the_environment_and_its_streams_untouched() {
    let cli = Cli::new();
    let mut call = exec(&cli, &["--once-per", "month", "--key", "k", "--timeout", "1m"], "env; cat; echo oops >&2");
    call.env("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").env("HAPAX_FENCE", "stale");
    let ran = ran(call, "through\n");
    for line in [
        "HAPAX_KEY=k\n",
        "HAPAX_LOCK=k\n",
        "HAPAX_PERIOD=20",
        "HAPAX_ATTEMPT=1\n",
        "HAPAX_DEADLINE=20",
        "HAPAX_RUN_ID=",
        "HAPAX_REPORT=/",
        "TRACEPARENT=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n",
    ] {
        assert!(ran.out.contains(line), "{line}: {ran:?}");
    }
    assert!(ran.out.ends_with("through\n") && !ran.out.contains("stale"), "{ran:?}");
    assert!(ran.err.ends_with("oops\n"), "{ran:?}");
}

#[test]
fn without_a_home_it_says_what_to_set() {
    let cli = Cli::new();
    let call = |set: &[(&str, &str)]| {
        let mut call = bare(cli.folder());
        call.envs(set.iter().copied()).args(["exec", "--lock", "L", "--", "echo", "ran"]);
        ran(call, "")
    };
    let nowhere = call(&[]);
    assert_eq!(nowhere.code, 78);
    assert!(["--store", "HAPAX_STORE_URL", "HOME"].iter().all(|name| nowhere.err.contains(name)), "{nowhere:?}");
    let home = cli.folder().join("home");
    std::fs::create_dir(&home).expect("made");
    let home = home.to_str().expect("UTF-8");
    let first = call(&[("HOME", home)]);
    assert_eq!((first.code, first.out.as_str()), (0, "ran\n"));
    assert!(first.err.contains("one host"), "{first:?}");
    let read_only = call(&[("HOME", "/proc")]);
    assert_eq!(read_only.code, 69, "{read_only:?}");
    assert!(read_only.err.contains("HAPAX_STORE_URL"), "{read_only:?}");
}
