//! How long things may be.

use super::lex::Comment;
use super::source::Tree;
use super::{Finding, Law};

const FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 70;
const COLUMNS: usize = 120;

static FILES: Law = Law {
    name: "file length",
    why: "a file is read from top to bottom by whoever has to change it at night; aim at 120 to 300 lines",
};
static FUNCTIONS: Law =
    Law { name: "function length", why: "a function that fits on one screen can be checked by looking at it" };
static LINES: Law = Law { name: "line length", why: "two files must fit side by side in a review" };

pub(super) fn laws() -> Vec<&'static Law> {
    vec![&FILES, &FUNCTIONS, &LINES]
}

/// Everything that is too long.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in tree.rust() {
        let path = source.path.as_str();
        let lines = source.text.lines().count();
        if lines > FILE_LINES {
            let what = format!("the file has {lines} lines, more than {FILE_LINES}");
            found.push(Finding::new(&FILES, (path, FILE_LINES + 1), what, "split it by what it does"));
        }
        for function in source.functions().iter().filter(|function| function.lines() > FUNCTION_LINES) {
            let what = format!("`{}` has {} lines, more than {FUNCTION_LINES}", function.name, function.lines());
            found.push(Finding::new(&FUNCTIONS, (path, function.line), what, "give its steps names of their own"));
        }
        for (index, line) in source.text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > COLUMNS {
                let what = format!("the line has {columns} columns, more than {COLUMNS}");
                found.push(Finding::new(&LINES, (path, index + 1), what, "break it"));
            }
        }
    }
    found
}

/// The figures that steer and do not fail.
pub(super) fn figures(tree: &Tree) -> String {
    let mut lengths: Vec<usize> = tree.rust().map(|source| source.text.lines().count()).collect();
    lengths.sort_unstable();
    let median = lengths.get(lengths.len() / 2).copied().unwrap_or_default();
    let longest = lengths.last().copied().unwrap_or_default();
    let (mut prose, mut written) = (0, 0);
    for source in tree.below("crates/hapax/src/").filter(|source| super::source::is_rust(&source.path)) {
        written += source.text.lines().filter(|line| !line.trim().is_empty()).count();
        prose += own_lines(&source.comments, &source.text);
    }
    let share = prose * 100 / written.max(1);
    format!(
        "{} Rust files, median {median} lines, longest {longest}; {share} % of the library is prose (aim: 25 to 40)",
        lengths.len()
    )
}

/// How many lines hold a comment and nothing else.
fn own_lines(comments: &[Comment], text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let alone = |comment: &&Comment| {
        let line = lines.get(comment.line - 1).map_or("", |line| line.trim_start());
        !line.is_empty() && (line.starts_with("//") || line.starts_with("/*") || line.starts_with('*'))
    };
    comments.iter().filter(alone).count()
}
