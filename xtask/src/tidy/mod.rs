//! `tidy`: the laws of this tree that no compiler knows, checked by reading its text. Each law is data with the
//! sentence why; each breach says where it is, what is wrong and what mends it. This room knows the shape of the tree
//! and does not know what the code does: a law that needs a type, a build or a database belongs into a test.
//!
//! A new law goes into the file of its kind, with a test in `tests.rs` that plants a breach of it. A law that is wrong
//! somewhere gets an exemption with a reason, next to the law, never a looser law.

mod arrows;
mod conformance;
mod dead;
mod drivers;
mod items;
mod leftovers;
mod lex;
mod paths;
mod promises;
mod sizes;
mod source;
mod statements;
#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use crate::command::{Failure, root};
use source::Tree;

/// A rule of the tree.
#[derive(Debug)]
struct Law {
    name: &'static str,
    why: &'static str,
}

/// A breach of a law.
#[derive(Debug)]
struct Finding {
    law: &'static Law,
    path: String,
    line: usize,
    what: String,
    mend: String,
}

impl Finding {
    fn new(law: &'static Law, place: (&str, usize), what: impl Into<String>, mend: impl Into<String>) -> Finding {
        Finding { law, path: place.0.into(), line: place.1, what: what.into(), mend: mend.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}; {}", self.path, self.line, self.what, self.mend)
    }
}

/// One place where a law does not hold, and why not.
#[derive(Debug)]
struct Exempt {
    /// A file, or a folder with a slash at its end; `*` stands for one part.
    path: &'static str,
    /// Never printed: it is there for whoever reads the list and wants to add to it.
    reason: &'static str,
}

/// Whether a path is in a list of exemptions. One without a reason does not count.
fn exempt(list: &[Exempt], path: &str) -> bool {
    list.iter().any(|exempt| !exempt.reason.is_empty() && source::fits(exempt.path, path))
}

/// What each file of this room offers: its laws, and the check for all of them.
type Kind = (fn() -> Vec<&'static Law>, fn(&Tree) -> Vec<Finding>);

const KINDS: &[Kind] = &[
    (arrows::laws, arrows::check),
    (drivers::laws, drivers::check),
    (sizes::laws, sizes::check),
    (statements::laws, statements::check),
    (words::laws, words::check),
    (leftovers::laws, leftovers::check),
    (dead::laws, dead::check),
    (conformance::laws, conformance::check),
    (promises::laws, promises::check),
];

/// Every breach in a tree, in the order of its files.
fn findings(tree: &Tree) -> Vec<Finding> {
    let mut found: Vec<Finding> = KINDS.iter().flat_map(|(_, check)| check(tree)).collect();
    found.sort_by(|a, b| (&a.path, a.line, &a.what).cmp(&(&b.path, b.line, &b.what)));
    found.dedup_by(|a, b| (&a.path, a.line, &a.what) == (&b.path, b.line, &b.what));
    found
}

/// Checks this tree, or with `--laws` prints every law with its reason.
pub(crate) fn run(args: &[&str]) -> Result<(), Failure> {
    match args {
        [] => check(),
        ["--laws"] => {
            for law in KINDS.iter().flat_map(|(laws, _)| laws()) {
                println!("{}: {}", law.name, law.why);
            }
            Ok(())
        }
        _ => Err(Failure::Usage("call it as `tidy` or `tidy --laws`".into())),
    }
}

/// Prints what is wrong, why it matters, and the figures that are reported only.
fn check() -> Result<(), Failure> {
    let tree = read(&root())?;
    let found = findings(&tree);
    let mut whys = BTreeMap::new();
    for finding in &found {
        println!("{finding}");
        whys.insert(finding.law.name, finding.law.why);
    }
    for (name, why) in whys {
        println!("why {name}: {why}");
    }
    println!("{}", sizes::figures(&tree));
    match found.len() {
        0 => Ok(()),
        count => Err(Failure::Failed(format!("tidy: {count} to mend"))),
    }
}

fn read(root: &Path) -> Result<Tree, Failure> {
    Tree::read(root).map_err(|error| Failure::Failed(format!("{} cannot be read: {error}", root.display())))
}
