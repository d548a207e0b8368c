//! `docs/promises.md`: what "once" means here. A promise without a test is an opinion.

use std::collections::BTreeSet;

use super::source::{Source, Tree};
use super::{Finding, Law};

static PROVED: Law = Law {
    name: "promise proved",
    why: "the page of promises is what people build on; each line names the test that would fail if it were not kept",
};

const PAGE: &str = "docs/promises.md";

pub(super) fn laws() -> Vec<&'static Law> {
    vec![&PROVED]
}

/// Every line of a table that names no test, or a test that does not exist.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.file(PAGE) else {
        let what = "the page of promises is missing although there is a README";
        let missing = Finding::new(&PROVED, (PAGE, 1), what, "write it: one table line per promise, with its test");
        return if tree.file("README.md").is_some() { vec![missing] } else { Vec::new() };
    };
    let known: BTreeSet<String> = tree.rust().flat_map(Source::functions).map(|function| function.name).collect();
    let mut found = Vec::new();
    for (line, row) in rows(&page.text) {
        let tests = tests(row);
        if tests.is_empty() {
            let mend = "name it as `path::name`";
            found.push(Finding::new(&PROVED, (PAGE, line), "the line names no test", mend));
        }
        for test in tests.iter().filter(|test| !known.contains(test.rsplit("::").next().unwrap_or(test))) {
            let what = format!("there is no test `{test}`");
            found.push(Finding::new(
                &PROVED,
                (PAGE, line),
                what,
                "write the test, or name the one that proves the line",
            ));
        }
    }
    found
}

/// The lines of all tables, without their heads and rules.
fn rows(text: &str) -> Vec<(usize, &str)> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_rule = |line: &str| line.starts_with('|') && line.chars().all(|c| matches!(c, '|' | '-' | ':' | ' '));
    let is_head = |index: usize| lines.get(index + 1).is_some_and(|next| is_rule(next));
    let rows =
        lines.iter().enumerate().filter(|(index, line)| line.starts_with('|') && !is_rule(line) && !is_head(*index));
    rows.map(|(index, line)| (index + 1, *line)).collect()
}

/// Every `path::name` in backticks in the last column of a line: the other columns may speak of types.
fn tests(row: &str) -> Vec<String> {
    let last = row.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
    last.split('`').skip(1).step_by(2).filter(|code| code.contains("::")).map(|code| code.trim().to_string()).collect()
}
