//! What must not be left behind: unfinished work, skipped tests, lints switched off without a reason.

use super::items::attributes;
use super::lex::Token;
use super::source::{Source, Tree, has_ending};
use super::{Finding, Law};

static UNFINISHED: Law =
    Law { name: "unfinished", why: "what is left for later and written nowhere else is left for good" };
static SKIPPED: Law = Law { name: "skipped", why: "a test that does not run is green without having proved anything" };
static SILENCED: Law = Law {
    name: "silenced",
    why: "`expect` with a reason goes away when it is no longer needed, `allow` stays and nobody remembers why",
};

/// Marks of unfinished work in prose. The one with the number of an issue behind it is fine.
const MARKS: [&str; 3] = ["FIXME", "XXX:", "TODO"];

pub(super) fn laws() -> Vec<&'static Law> {
    vec![&UNFINISHED, &SKIPPED, &SILENCED]
}

/// Everything that was left behind.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in &tree.files {
        prose(source, &mut found);
        macros(source, &mut found);
        for attribute in attributes(&source.tokens) {
            self::attribute(&source.path, attribute, &mut found);
        }
    }
    found
}

/// Marks in comments, and in statement files anywhere.
fn prose(source: &Source, found: &mut Vec<Finding>) {
    let comments: Vec<(&str, usize)> = if has_ending(&source.path, &["sql", "lua"]) {
        source.text.lines().zip(1..).collect()
    } else {
        source.comments.iter().map(|comment| (comment.text.as_str(), comment.line)).collect()
    };
    for (text, line) in comments {
        for mark in MARKS.iter().filter(|mark| text.contains(**mark)) {
            if *mark != "TODO" || !names_an_issue(text) {
                let mend = "do it, or open an issue and write TODO(#number)";
                found.push(Finding::new(&UNFINISHED, (&source.path, line), format!("`{mark}` in a comment"), mend));
            }
        }
    }
}

/// Whether `#` and a digit stand somewhere in the text.
fn names_an_issue(text: &str) -> bool {
    text.split('#').skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Macros that stand for code that is missing.
fn macros(source: &Source, found: &mut Vec<Finding>) {
    for pair in source.tokens.windows(2).filter(|pair| pair[1].is("!")) {
        if pair[0].is("todo") || pair[0].is("unimplemented") {
            let what = format!("`{}!` stands for code that is missing", pair[0].text);
            found.push(Finding::new(&UNFINISHED, (&source.path, pair[0].line), what, "write it, or return an error"));
        }
    }
}

/// One attribute, which may skip a test or silence a lint.
fn attribute(path: &str, inside: &[Token], found: &mut Vec<Finding>) {
    let has = |word: &str| inside.iter().any(|token| token.is_word() && token.is(word));
    let called =
        |word: &str| inside.windows(2).find(|pair| pair[0].is(word) && pair[1].is("(")).map(|pair| pair[0].line);
    if let Some(token) = inside.first().filter(|token| token.is("ignore")) {
        let mend = "mend the test or delete it";
        found.push(Finding::new(&SKIPPED, (path, token.line), "the test is switched off", mend));
    }
    if let Some(line) = called("allow") {
        let mend = "write `expect(…, reason = \"…\")`";
        found.push(Finding::new(&SILENCED, (path, line), "a lint is switched off by `allow`", mend));
    }
    if let Some(line) = called("expect").filter(|_| !has("reason")) {
        found.push(Finding::new(
            &SILENCED,
            (path, line),
            "a lint is expected without a reason",
            "add `reason = \"…\"`",
        ));
    }
}
