//! The help of every verb is a file in review.

use crate::cli::Cli;

/// Every verb that has a page of help.
const VERBS: &[&[&str]] = &[
    &["demo"],
    &["exec"],
    &["lock"],
    &["lock", "list"],
    &["lock", "show"],
    &["lock", "break"],
    &["once"],
    &["once", "list"],
    &["once", "show"],
    &["once", "forget"],
    &["once", "resolve"],
    &["job"],
    &["job", "push"],
    &["job", "get"],
    &["job", "list"],
    &["job", "retry"],
    &["job", "cancel"],
    &["job", "park"],
    &["job", "resolve"],
    &["queue"],
    &["queue", "list"],
    &["queue", "pause"],
    &["queue", "resume"],
    &["worker", "list"],
    &["migrate"],
    &["doctor"],
    &["completions"],
    &["man"],
    &["version"],
];

fn help(arguments: &[&str]) -> String {
    let cli = Cli::new();
    let ran = cli.run(&[arguments, &["--help"]].concat());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{arguments:?}");
    ran.out
}

#[test]
fn help_of_the_program() {
    insta::assert_snapshot!(help(&[]));
}

#[test]
fn help_of_the_verbs() {
    for verb in VERBS {
        let text = help(verb);
        let is_leaf = !text.contains("\nCommands:");
        assert!(!is_leaf || text.contains("Examples:\n  "), "{verb:?} ends with examples: {text}");
        insta::assert_snapshot!(verb.join("_"), text);
    }
}

#[test]
fn no_verb_at_all_shows_the_help() {
    let cli = Cli::new();
    let ran = cli.run(&[]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert!(ran.err.contains("hapax demo") && ran.err.contains("Usage:"), "{ran:?}");
    let mistyped = cli.run(&["job", "psuh", "k"]);
    assert!(mistyped.code == 2 && mistyped.err.contains("push"), "it says what was meant: {mistyped:?}");
}

/// The heads of a page's sections.
fn sections(page: &str) -> Vec<&str> {
    page.lines().filter_map(|line| line.strip_prefix(".SH ")).map(|head| head.trim_matches('"')).collect()
}

#[test]
fn every_verb_has_a_page_of_the_manual() {
    let cli = Cli::new();
    for verb in VERBS {
        let page = cli.text(&[&["man"], *verb].concat());
        let name = format!("hapax-{}", verb.join("-"));
        assert!(page.contains(&format!(".TH {name} 1 ")), "{verb:?}: {page}");
        assert!(page.contains(&name.replace('-', r"\-")), "{verb:?}: {page}");
        let heads = sections(&page);
        let mut wanted = vec!["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS OF EVERY VERB"];
        wanted.push(if help(verb).contains("\nCommands:") { "SUBCOMMANDS" } else { "EXAMPLES" });
        assert!(wanted.iter().all(|head| heads.contains(head)), "{verb:?}: {heads:?}");
    }
    let exec = cli.text(&["man", "exec"]);
    let more = ["OPTIONS", "EXIT CODES", "HOW THE COMMAND IS STOPPED", "LIMITS"];
    assert!(more.iter().all(|head| sections(&exec).contains(head)), "{exec}");
    let program = cli.text(&["man"]);
    assert!(
        ["SUBCOMMANDS", "EXIT CODES", "THE STORE", "EXAMPLES"].iter().all(|head| sections(&program).contains(head))
    );
}

#[test]
fn the_whole_manual_goes_into_a_folder() {
    let cli = Cli::new();
    let folder = cli.folder().join("man1");
    let into = folder.to_str().expect("UTF-8");
    let missing = cli.run(&["man", "--into", into]);
    assert!(missing.code == 2 && missing.err.contains("--into"), "{missing:?}");
    std::fs::create_dir(&folder).expect("made");
    cli.text(&["man", "--into", into]);
    for verb in VERBS {
        let file = folder.join(format!("hapax-{}.1", verb.join("-")));
        let page = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert_eq!(page.trim_end(), cli.text(&[&["man"], *verb].concat()).trim_end(), "{verb:?}");
    }
    assert!(folder.join("hapax.1").exists());
    let names = std::fs::read_dir(&folder).expect("there").map(|entry| entry.expect("there").file_name());
    let hidden: Vec<_> = names.filter(|name| name.to_string_lossy().contains("instance")).collect();
    assert!(hidden.is_empty(), "what only the program itself calls: {hidden:?}");
    let unknown = cli.run(&["man", "exce"]);
    assert!(unknown.code == 2 && unknown.err.contains("exce"), "{unknown:?}");
}
