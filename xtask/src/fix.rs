//! `fix`: writes whatever a program can write. What is left after it needs a person.

use crate::command::{Failure, cargo, must, no_arguments};
use crate::schema;

/// Applies clippy's suggestions, formats, and rewrites the golden files.
pub(crate) fn run(args: &[&str]) -> Result<(), Failure> {
    no_arguments("fix", args)?;
    must(cargo(&["clippy", "--fix", "--workspace", "--all-targets", "--all-features"]).args(DIRTY))?;
    // After clippy: its suggestions are not formatted.
    must(&mut cargo(&["fmt", "--all"]))?;
    schema::run(&[])
}

/// Whoever calls `fix` is in the middle of a change, so an uncommitted tree is the normal case.
const DIRTY: [&str; 2] = ["--allow-dirty", "--allow-staged"];
