//! Bad input: each gets its exit code, names what is wrong, says how to mend it, and changes nothing.

use crate::cli::{Cli, bare, ran};

const ID: &str = "01980d6e-3c5a-7cc0-8d3e-5f2b6a1c9e01";

#[test]
fn bad_arguments_end_with_two_and_name_the_field() {
    let cli = Cli::new();
    let (long_name, long_key) = ("n".repeat(129), "k".repeat(4_097));
    let table: &[(&[&str], &str)] = &[
        (&["job", "push"], "KIND"),
        (&["job", "push", ""], "kind"),
        (&["job", "push", &long_name], "kind"),
        (&["job", "push", "a\u{7}b"], "kind"),
        (&["job", "push", "k", "{"], "payload"),
        (&["job", "push", "k", "{} {}"], "payload"),
        (&["job", "push", "k", "@nowhere.json"], "nowhere.json"),
        (&["job", "push", "k", "--queue", &long_name], "queue"),
        (&["job", "push", "k", "--once", &long_key], "once key"),
        (&["job", "push", "k", "--once", ""], "once key"),
        (&["job", "push", "k", "--in", "soon"], "--in"),
        (&["job", "push", "k", "--in=-5m"], "--in"),
        (&["job", "push", "k", "--in", "90"], "--in"),
        (&["job", "push", "k", "--at", "2026-12-24"], "--at"),
        (&["job", "push", "k", "--in", "5m", "--at", "2026-12-24T18:00:00Z"], "--at"),
        (&["job", "push", "k", "--attempts", "0"], "--attempts"),
        (&["job", "push", "k", "--priority", "99999"], "--priority"),
        (&["job", "push", "k", "--timeout", "0s"], "run_timeout"),
        (&["job", "push", "k", "--guarantee", "exactly_once"], "--guarantee"),
        (&["job", "push", "k", "--id", "7"], "--id"),
        (&["job", "push", "k", "--once-from", "/id"], "--lines"),
        (&["job", "get", "7"], "UUID"),
        (&["job", "list", "--state", "finished"], "--state"),
        (&["job", "list", "--limit", "0"], "limit"),
        (&["job", "list", "--limit", "1001"], "limit"),
        (&["job", "list", "--before", "x"], "--before"),
        (&["job", "cancel"], "ID"),
        (&["job", "cancel", ID, "x"], "UUID"),
        (&["job", "resolve", ID, "maybe"], "maybe"),
        (&["queue", "pause", "", "--reason", "r"], "queue"),
        (&["demo", "--jobs", "1"], "--jobs"),
        (&["demo", "--store", "sqlite:x.db"], "--file"),
        (&["job", "list", "-o", "yaml"], "--output"),
        (&["job", "list", "--time", "local"], "--time"),
        (&["jobs"], "job"),
    ];
    cli.push(&["present"]);
    for (arguments, named) in table {
        let ran = cli.run(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {ran:?}");
        assert!(ran.err.contains(named), "{arguments:?} names {named}: {ran:?}");
        assert_eq!(ran.out, "", "{arguments:?}: talk does not go to stdout");
    }
    let jobs = cli.json(&["job", "list"]);
    assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(1), "nothing was enqueued by any of them");
}

#[test]
fn limits_are_allowed_and_one_more_is_not() {
    let cli = Cli::new();
    let (name, key) = ("n".repeat(128), "k".repeat(4_096));
    cli.push(&[&name, "{}", "--once", &key]);
    let payload = format!("\"{}\"", "x".repeat(1_048_574));
    let fits = cli.run_with(&["job", "push", "k", "-"], &payload);
    assert_eq!(fits.code, 0, "exactly 1 MiB: {}", fits.err);
    let over = cli.run_with(&["job", "push", "k", "-"], &format!("{payload} "));
    assert!(over.code == 2 && over.err.contains("payload"), "{}", over.err);
}

#[test]
fn bad_store_addresses_are_refused_before_anything_happens() {
    let cli = Cli::new();
    for (url, code, named) in [
        ("", 2, "--store"),
        ("hapax.db", 2, "sqlite:PATH"),
        ("mongodb://me:secret@db/x", 2, "store URL"),
        ("sqlite:", 2, "store URL"),
        ("memory:", 2, "memory"),
    ] {
        let ran = cli.run(&["job", "push", "k", "--store", url]);
        assert_eq!(ran.code, code, "{url}: {ran:?}");
        assert!(ran.err.contains(named) && !ran.err.contains("secret"), "{url}: {ran:?}");
    }
    let mut command = bare(cli.folder());
    command.env("HAPAX_STORE_URL", "").env("HOME", cli.folder()).args(["job", "push", "k"]);
    let empty = ran(command, "");
    assert!(empty.code == 2 && empty.err.contains("HAPAX_STORE_URL is empty"), "{empty:?}");
    assert!(!cli.folder().join(".local").exists(), "it did not go into the default store instead");
}

#[test]
fn what_is_no_store_is_left_alone() {
    let cli = Cli::new();
    let text = "these are my notes, not a database\n".repeat(100);
    std::fs::write(cli.file(), &text).expect("written");
    let ran = cli.run(&["job", "push", "k"]);
    assert_eq!(ran.code, 78, "{ran:?}");
    assert!(ran.err.contains("test.db") && ran.err.contains("mend:"), "{ran:?}");
    assert_eq!(std::fs::read_to_string(cli.file()).expect("still there"), text);
}

#[test]
fn a_store_that_cannot_be_reached_is_said_to_be_so() {
    let cli = Cli::new();
    std::fs::create_dir(cli.folder().join("folder.db")).expect("made");
    for (path, code) in [("nowhere/at/all.db", 69), ("folder.db", 2)] {
        let ran = cli.run(&["job", "push", "k", "--store", &format!("sqlite:{path}")]);
        assert_eq!(ran.code, code, "{path}: {ran:?}");
        assert!(ran.err.contains(path), "{path}: {ran:?}");
    }
}

/// Root may write where nobody may, so the test gives the right up first.
#[test]
fn a_read_only_store_is_said_to_be_so() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;

    const NOBODY: u32 = 65_534;
    let cli = Cli::new();
    cli.push(&["k"]);
    let am_root = rustix::process::geteuid().is_root();
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("ours to change");
    };
    for file in std::fs::read_dir(cli.folder()).expect("a folder") {
        mode(&file.expect("an entry").path(), 0o444);
    }
    mode(cli.folder(), 0o555);
    let program = cli.folder().join("../hapax-read-only-test");
    let mut command = bare(cli.folder());
    if am_root {
        // The build folder may be closed to others; a copy beside the store is not.
        std::fs::copy(crate::cli::HAPAX, &program).expect("copied");
        mode(&program, 0o755);
        command = std::process::Command::new(&program);
        command.env_clear().current_dir(cli.folder()).uid(NOBODY).gid(NOBODY);
    }
    command.env("HAPAX_STORE_URL", cli.url()).args(["job", "push", "k"]);
    let refused = ran(command, "");
    mode(cli.folder(), 0o755);
    let _ = std::fs::remove_file(program);
    assert_eq!(refused.code, 69, "{refused:?}");
    assert!(refused.err.contains("test.db"), "{refused:?}");
}

#[test]
fn errors_are_plain_lines_without_a_terminal() {
    let cli = Cli::new();
    let ran = cli.run(&["job", "push", "k", "{"]);
    assert!(!cli.file().exists(), "no store is made for bad input");
    assert!(ran.err.starts_with("error: payload") && ran.err.contains("\n mend: "), "{ran:?}");
    assert!(!ran.err.contains('\u{1b}'), "no colours in a log: {ran:?}");
    let json = cli.run(&["job", "push", "k", "{", "-o", "json"]);
    let error: serde_json::Value = serde_json::from_str(&json.err).expect("JSON");
    assert_eq!(error["error"]["exit"], 2);
    assert!(error["error"]["mend"].is_string());
}
