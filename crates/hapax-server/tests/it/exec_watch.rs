//! The watchdog of `hapax exec`: what is stopped, when, and by whom.

use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::cli::{Cli, Ran, ran};
use crate::exec::{Running, exec, wait_for};

/// How often the loops go round; a release is proved with 50.
fn rounds() -> usize {
    std::env::var("HAPAX_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3)
}

/// A holder whose command leaves two processes in its group, and that group.
fn holder(cli: &Cli, options: &[&str], script: &str) -> (Running, i32) {
    let mark = cli.folder().join("group");
    let _ = std::fs::remove_file(&mark);
    let script = format!("echo $$ > group.tmp; mv group.tmp group; {script}");
    let mut command = exec(cli, options, &script);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let child = Running(child);
    wait_for("the command starts", || mark.exists());
    let group = std::fs::read_to_string(mark).expect("it was written").trim().parse().expect("a process id");
    (child, group)
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process id")).expect("not zero");
    kill_process(pid, signal).expect("it is there");
}

/// The next holder, whose command says whether anything of the group is alive when it starts.
fn next(cli: &Cli, group: i32) -> Ran {
    let script = format!("if kill -0 -{group} 2>/dev/null; then echo alive; else echo clear; fi");
    ran(exec(cli, &["--lock", "L", "--ttl", "2s", "--wait", "30s"], &script), "")
}

/// Processes of a session, or with this text in their command line.
fn alive(group: i32) -> bool {
    Pid::from_raw(group).is_some_and(|pid| rustix::process::test_kill_process_group(pid).is_ok())
}

#[test]
fn a_frozen_hapax_does_not_let_its_command_overlap_with_the_next() {
    let cli = Cli::new();
    for round in 0..rounds() {
        let (mut frozen, group) = holder(&cli, &["--lock", "L", "--ttl", "2s"], "sleep 77 & sleep 78");
        signal(&frozen.0, Signal::STOP);
        let next = next(&cli, group);
        assert_eq!((next.code, next.out.as_str()), (0, "clear\n"), "round {round}: {next:?}");
        signal(&frozen.0, Signal::CONT);
        assert_eq!(frozen.code(), Some(76), "round {round}");
    }
}

#[test]
fn a_killed_hapax_does_not_let_its_command_overlap_with_the_next() {
    let cli = Cli::new();
    for round in 0..rounds() {
        let (mut killed, group) = holder(&cli, &["--lock", "L", "--ttl", "2s"], "sleep 77 & sleep 78");
        killed.0.kill().expect("it is there");
        let next = next(&cli, group);
        assert_eq!((next.code, next.out.as_str()), (0, "clear\n"), "round {round}: {next:?}");
        killed.code();
    }
}

#[test]
fn a_command_that_ignores_term_is_killed_in_time_all_the_same() {
    let cli = Cli::new();
    let script = "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > away; sleep 71' & sleep 72 & wait; wait";
    let (mut frozen, group) = holder(&cli, &["--lock", "L", "--ttl", "2s", "--grace", "1h"], script);
    wait_for("the one that left the session starts", || {
        std::fs::read_to_string(cli.folder().join("away")).is_ok_and(|text| text.ends_with('\n'))
    });
    let away = std::fs::read_to_string(cli.folder().join("away")).expect("written").trim().parse().expect("an id");
    signal(&frozen.0, Signal::STOP);
    let next = next(&cli, group);
    assert_eq!((next.code, next.out.as_str()), (0, "clear\n"), "{next:?}");
    assert!(!alive(away), "a descendant with a session of its own");
    signal(&frozen.0, Signal::CONT);
    assert_eq!(frozen.code(), Some(76));
}

#[test]
fn signals_are_passed_on_and_the_code_comes_back() {
    let cli = Cli::new();
    for (sent, code) in [(Signal::TERM, 15), (Signal::INT, 2), (Signal::HUP, 1), (Signal::USR2, 12)] {
        let script = format!("trap 'exit {code}' {code}; while :; do sleep 0.02; done");
        let (mut call, group) = holder(&cli, &["--lock", "L", "--attempts", "5"], &script);
        // The trap is set by the time that the shell sleeps for the first time.
        std::thread::sleep(Duration::from_millis(100));
        signal(&call.0, sent);
        if sent == Signal::USR2 {
            std::thread::sleep(Duration::from_millis(300));
            let _ = kill_process(
                Pid::from_raw(i32::try_from(call.0.id()).expect("an id")).expect("not zero"),
                Signal::TERM,
            );
        }
        assert_eq!(call.code(), Some(code), "signal {code}");
        assert!(!alive(group));
    }
}

#[test]
fn a_terminal_that_goes_away_ends_the_command() {
    let cli = Cli::new();
    let (mut call, group) = holder(&cli, &["--lock", "L"], "sleep 73 & sleep 74");
    signal(&call.0, Signal::HUP);
    assert_eq!(call.code(), Some(128 + 1));
    assert!(!alive(group));
}

#[test]
fn what_the_command_leaves_running_is_stopped_before_the_lease_is_given_back() {
    let cli = Cli::new();
    let (mut call, group) = holder(&cli, &["--lock", "L"], "sleep 75 > /dev/null 2>&1 &");
    assert_eq!(call.code(), Some(0));
    assert!(!alive(group));
}

#[test]
fn without_its_watchdog_the_command_is_stopped_by_hapax() {
    let cli = Cli::new();
    let (mut call, group) = holder(&cli, &["--lock", "L"], "sleep 76 & kill -KILL $PPID; sleep 79");
    assert_eq!(call.code(), Some(125));
    wait_for("nothing is left", || !alive(group));
}
