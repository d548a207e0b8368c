//! `check`: everything that must hold before a merge. It never writes to the tree.

use std::env;
use std::time::Instant;

use crate::command::{Failure, cargo, must, no_arguments};
use crate::tidy;

/// One thing that is checked.
struct Step {
    name: &'static str,
    run: fn() -> Result<(), Failure>,
}

/// Cheap steps first, so that a slip of the pen is told before the long build.
const STEPS: &[Step] = &[
    Step { name: "format", run: format },
    Step { name: "tidy", run: || tidy::run(&[]) },
    Step { name: "clippy", run: clippy },
    Step { name: "docs", run: docs },
    Step { name: "tests", run: tests },
];

/// Runs every step, also after one has failed: somebody who mends a tree wants the whole list.
pub(crate) fn run(args: &[&str]) -> Result<(), Failure> {
    no_arguments("check", args)?;
    let mut lines = Vec::new();
    let mut failed = Vec::new();
    for step in STEPS {
        eprintln!("── {}", step.name);
        let begun = Instant::now();
        let outcome = (step.run)();
        let mark = if outcome.is_ok() { "ok    " } else { "FAILED" };
        lines.push(format!("{mark} {:<8} {:6.1} s", step.name, begun.elapsed().as_secs_f64()));
        if let Err(Failure::Failed(why) | Failure::Usage(why)) = outcome {
            eprintln!("{why}");
            failed.push(step.name);
        }
    }
    println!("{}", lines.join("\n"));
    if failed.is_empty() { Ok(()) } else { Err(Failure::Failed(format!("failed: {}", failed.join(", ")))) }
}

fn format() -> Result<(), Failure> {
    must(&mut cargo(&["fmt", "--all", "--check"]))
}

fn clippy() -> Result<(), Failure> {
    let what = ["clippy", "--workspace", "--all-targets", "--all-features", "--locked", "--", "-D", "warnings"];
    must(&mut cargo(&what))
}

fn docs() -> Result<(), Failure> {
    // Added to what the caller has set, not instead of it.
    let flags = format!("{} -D warnings", env::var("RUSTDOCFLAGS").unwrap_or_default());
    let what = ["doc", "--workspace", "--all-features", "--no-deps", "--locked"];
    must(cargo(&what).env("RUSTDOCFLAGS", flags.trim()))
}

fn tests() -> Result<(), Failure> {
    must(&mut cargo(&["test", "--workspace", "--all-features", "--locked", "--no-fail-fast"]))
}
