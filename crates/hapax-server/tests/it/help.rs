//! The help of every verb is a file in review.

use crate::cli::Cli;

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
    let verbs: &[&[&str]] = &[
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
        &["version"],
    ];
    for verb in verbs {
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
