//! `hapax lock …` and `hapax once …`: what people see of leases and keys, and what they may correct.

use std::process::Stdio;

use crate::cli::Cli;
use crate::exec::{Running, exec, wait_for};

#[test]
fn a_broken_lock_stops_its_holder_and_keeps_the_reason() {
    let cli = Cli::new();
    let options = ["--lock", "L", "--ttl", "2s"];
    let holder = exec(&cli, &options, "touch started; sleep 60").stdin(Stdio::null()).spawn();
    let mut holder = Running(holder.expect("it starts"));
    wait_for("the command starts", || cli.folder().join("started").exists());
    let listed = cli.json(&["lock", "list"]);
    assert_eq!((&listed["locks"][0]["lock"], &listed["locks"][0]["permit"]), (&"L".into(), &0.into()));
    assert!(cli.text(&["lock", "show", "L"]).contains("EXPIRES IN"));
    assert_eq!(cli.run(&["lock", "break", "L"]).code, 2, "a reason must be given");
    assert_eq!(cli.run(&["lock", "break", "L", "--reason", " "]).code, 2);
    assert!(cli.text(&["lock", "break", "L", "--reason", "gone"]).contains("L was taken from "));
    assert_eq!(holder.code(), Some(76));
    assert_eq!(cli.run(&["lock", "break", "L", "--reason", "gone"]).code, 1, "nothing to break");
    let shown = cli.json(&["lock", "show", "L"]);
    assert_eq!(shown["held"], false);
    let evidence = shown["evidence"].as_array().expect("a list");
    assert!(evidence.iter().any(|kept| kept["identity"].as_str().is_some_and(|text| text.ends_with(": gone"))));
}

#[test]
fn the_ledger_tells_the_whole_story_of_a_key_and_takes_corrections() {
    let cli = Cli::new();
    let run = |script: &str| {
        let mut call = exec(&cli, &["--once-per", "day", "--key", "k", "-E", "3"], script);
        call.stderr(Stdio::null()).status().expect("it ends").code()
    };
    assert_eq!(cli.run(&["once", "show", "k"]).code, 3);
    assert_eq!((run("exit 41"), run("true"), run("false")), (Some(41), Some(0), Some(3)));
    let key = cli.json(&["once", "show", "k"]);
    assert_eq!((&key["state"], &key["attempts"], &key["refused"]), (&"done".into(), &2.into(), &1.into()));
    let period = key["period"].as_str().expect("a day").to_owned();
    assert_eq!(key["result"]["exit"], 0);
    assert_eq!(cli.json(&["once", "list", "k"])["keys"].as_array().map(Vec::len), Some(1));
    assert_eq!(cli.json(&["once", "list", "other"])["keys"].as_array().map(Vec::len), Some(0));
    cli.text(&["once", "forget", "k", &period]);
    assert_eq!(cli.run(&["once", "forget", "k", &period]).code, 3);
    assert_eq!(run("exit 7"), Some(7));
    cli.text(&["once", "resolve", "k", &period, "--as", "done", "--reason", "seen by hand"]);
    assert_eq!(run("true"), Some(3));
    assert!(cli.text(&["once", "show", "k", &period]).contains("seen by hand"));
    cli.text(&["once", "resolve", "k", &period, "--as", "not-done", "--reason", "it was empty"]);
    assert_eq!(run("true"), Some(0));
}
