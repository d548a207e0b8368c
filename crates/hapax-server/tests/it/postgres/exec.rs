//! `hapax exec` with a store that several hosts reach, and that can go away.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::place::{Place, Wire, ask};
use crate::cli::{Ran, ran};
use crate::exec::{Running, wait_for};

fn exec(place: &Place, url: &str, options: &[&str], script: &str) -> Command {
    let mut command = place.command_at(url, &[&["exec"], options, &["--", "sh", "-c", script]].concat());
    command.env("PATH", "/usr/bin:/bin");
    command
}

fn run(place: &Place, options: &[&str], script: &str) -> Ran {
    ran(exec(place, &place.url(), options, script), "")
}

/// A call whose command has started.
fn started(place: &Place, command: &mut Command, mark: &str) -> Running {
    let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let child = Running(child);
    wait_for("the command starts", || place.cli.folder().join(mark).exists());
    child
}

#[test]
fn eight_callers_of_five_keys_run_five_commands() {
    let place = Place::new();
    for key in (0..5).map(|n| format!("k{n}")) {
        let options = ["--once-per", "day", "--key", &key, "-E", "3"];
        let call = || {
            let mut command = exec(&place, &place.url(), &options, "echo $HAPAX_FENCE >> runs-$HAPAX_KEY");
            command.stderr(Stdio::piped()).stdin(Stdio::null()).spawn().expect("it starts")
        };
        let calls: Vec<Child> = (0..8).map(|_| call()).collect();
        let mut codes: Vec<_> = calls.into_iter().map(|call| Running(call).code()).collect();
        codes.sort_unstable();
        assert_eq!(codes, [&[Some(0)], &[Some(3); 7][..]].concat(), "{key}");
        let runs = std::fs::read_to_string(place.cli.folder().join(format!("runs-{key}"))).expect("it ran");
        assert_eq!(runs.lines().count(), 1, "{key}: {runs}");
    }
}

#[test]
fn it_protects_a_fleet_and_says_so() {
    let place = Place::new();
    let options = ["--once-per", "day", "--key", "k", "--scope", "fleet", "-o", "json"];
    assert_eq!(run(&place, &options, "true").code, 0);
    let second = run(&place, &options, "true");
    let told: Value = serde_json::from_str(second.err.lines().last().unwrap_or_default()).expect("JSON");
    assert_eq!((&told["outcome"], &told["scope"]), (&"skipped_done".into(), &"fleet".into()), "{told}");
}

#[test]
fn a_held_lock_is_75() {
    let place = Place::new();
    let script = "touch held; while [ ! -e go ]; do sleep 0.02; done";
    let mut command = exec(&place, &place.url(), &["--lock", "L"], script);
    let mut holder = started(&place, &mut command, "held");
    let busy = run(&place, &["--lock", "L"], "echo never");
    assert_eq!((busy.code, busy.out.as_str()), (75, ""), "{busy:?}");
    std::fs::write(place.cli.folder().join("go"), "").expect("written");
    assert_eq!(holder.code(), Some(0));
    assert_eq!(run(&place, &["--lock", "L"], "echo mine").out, "mine\n");
}

#[test]
fn a_store_that_is_cut_off_stops_the_command_before_the_lease_passes_on() {
    let (place, wire) = (Place::new(), Wire::new());
    let script = "echo $$ > group.tmp; mv group.tmp group; sleep 77 & sleep 78";
    let mut command = exec(&place, &place.at(&wire.server()), &["--lock", "L", "--ttl", "2s"], script);
    let mut cut_off = started(&place, &mut command, "group");
    let group = std::fs::read_to_string(place.cli.folder().join("group")).expect("written");
    wire.faults().blackhole();
    let look = format!("if kill -0 -{} 2>/dev/null; then echo alive; else echo clear; fi", group.trim());
    let next = run(&place, &["--lock", "L", "--ttl", "2s", "--wait", "30s"], &look);
    assert_eq!((next.code, next.out.as_str()), (0, "clear\n"), "{next:?}");
    assert_eq!(cut_off.code(), Some(76));
}

#[test]
fn a_store_that_comes_back_in_time_costs_nothing() {
    let (place, wire) = (Place::new(), Wire::new());
    let script = "touch begun; while [ ! -e go ]; do sleep 0.02; done; echo ended";
    let options = ["--once-per", "day", "--key", "k", "--ttl", "6s"];
    let mut command = exec(&place, &place.at(&wire.server()), &options, script);
    command.stdout(Stdio::piped());
    let mut call = started(&place, &mut command, "begun");
    let until = || ask(&format!("select lease_until::text from {}.keys", place.schema));
    for _ in 0..2 {
        wire.faults().refuse();
        wire.faults().cut_all();
        std::thread::sleep(Duration::from_secs(3));
        let before = until();
        wire.faults().mend();
        // Renewed: what the store keeps of the lease has moved.
        wait_for("the lease is renewed", || until() != before);
    }
    std::fs::write(place.cli.folder().join("go"), "").expect("written");
    assert_eq!(call.code(), Some(0));
    assert!(place.text(&["once", "show", "k"]).contains("done"));
}
