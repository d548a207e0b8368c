//! Where the store is, and the verbs that look at the store itself.

use std::os::unix::fs::PermissionsExt;

use crate::cli::{Cli, bare, ran};

#[test]
fn the_default_store_is_made_in_the_state_folder_and_said_to_protect_one_host() {
    let cli = Cli::new();
    let mut command = bare(cli.folder());
    command.env("XDG_STATE_HOME", cli.folder().join("state")).args(["job", "push", "k"]);
    let made = ran(command, "");
    let file = cli.folder().join("state/hapax/hapax.db");
    assert!(made.code == 0 && file.exists(), "{made:?}");
    assert!(made.err.contains(&file.display().to_string()) && made.err.contains("one host"), "{made:?}");
    let folder = std::fs::metadata(file.parent().expect("a folder")).expect("there");
    assert_eq!(folder.permissions().mode() & 0o777, 0o700, "payloads are nobody else's business");
    let mut command = bare(cli.folder());
    command.env("XDG_STATE_HOME", cli.folder().join("state")).args(["queue", "list"]);
    let again = ran(command, "");
    assert!(again.code == 0 && again.err.is_empty(), "said once, when it is made: {again:?}");
    let mut command = bare(cli.folder());
    command.env("HOME", cli.folder()).args(["job", "list"]);
    assert!(ran(command, "").code == 0 && cli.folder().join(".local/state/hapax/hapax.db").exists());
}

#[test]
fn without_home_and_state_folder_the_error_says_what_to_set() {
    let cli = Cli::new();
    let mut command = bare(cli.folder());
    command.args(["job", "list"]);
    let lost = ran(command, "");
    assert_eq!(lost.code, 78, "{lost:?}");
    assert!(["--store", "HAPAX_STORE_URL", "XDG_STATE_HOME", "HOME"].iter().all(|name| lost.err.contains(name)));
}

#[test]
fn the_flag_wins_over_the_variable() {
    let cli = Cli::new();
    let ran = cli.run(&["job", "push", "k", "--store", "sqlite:other.db"]);
    assert!(ran.code == 0 && cli.folder().join("other.db").exists() && !cli.file().exists(), "{ran:?}");
}

#[test]
fn migrate_says_from_where_to_where() {
    let cli = Cli::new();
    let check = cli.run(&["migrate", "--check"]);
    assert_eq!(check.code, 1, "there is something to do: {check:?}");
    assert!(!cli.file().exists(), "a check makes nothing");
    let first = cli.json(&["migrate"]);
    assert!(first["before"].is_null() && first["after"].as_u64() >= Some(1), "{first}");
    let second = cli.json(&["migrate"]);
    assert_eq!(second["before"], second["after"]);
    let check = cli.run(&["migrate", "--check"]);
    assert_eq!(check.code, 0, "{check:?}");
    assert!(cli.text(&["migrate"]).contains("nothing to do"));
}

#[test]
fn doctor_gives_a_verdict_on_every_setting() {
    let cli = Cli::new();
    let none = cli.run(&["doctor"]);
    assert!(none.code == 69 && none.err.contains("hapax migrate"), "{none:?}");
    assert!(!cli.file().exists(), "a look makes nothing");
    cli.push(&["k", "{}", "--once", "1"]);
    cli.push(&["k", "{}", "--once", "1"]);
    let text = cli.text(&["doctor"]);
    for part in ["SQLite", "one host", "free of", "wall 2", "0 live", "oldest ready  job", "1 duplicates", "VERDICT"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains("the store keeps the promise"), "{text}");
    let json = cli.json(&["doctor"]);
    assert_eq!(json["health"]["scope"], "host");
    assert!(json["health"]["settings"].as_array().is_some_and(|settings| !settings.is_empty()), "{json}");
    assert_eq!(json["counters"]["duplicates_refused"], 1);
    assert_eq!(json["oldest_ready"]["kind"], "k");
    assert!(json["disk"]["file_bytes"].as_u64() > Some(0));
}

#[test]
fn version_names_the_program_and_its_schema() {
    let cli = Cli::new();
    let text = cli.text(&["version"]);
    assert!(text.starts_with(&format!("hapax {}", env!("CARGO_PKG_VERSION"))), "{text}");
    let json = cli.json(&["version"]);
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    assert!(json["schema"]["sqlite"].as_u64() >= Some(1), "{json}");
    assert!(!cli.file().exists(), "no store is needed for it");
}

#[test]
fn every_shell_gets_its_completions() {
    let cli = Cli::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = cli.text(&["completions", shell]);
        assert!(script.contains("hapax") && script.contains("doctor"), "{shell}");
        assert!(!script.contains("demo-instance"), "{shell}: hidden verbs stay hidden");
    }
    assert_eq!(cli.run(&["completions", "tcsh"]).code, 2);
}
