//! `schema`: the golden files that are written by a program, such as each store's `schema.sql` and the table of job
//! states in the docs. The tests whose name contains `schema` write them when `HAPAX_BLESS` is set, else they compare.
//! The page of a server's store is what that server answers after all migrations, so it has to be up (`services up`).

use std::io::{self, Write as _};
use std::process::Stdio;

use crate::command::{Failure, cargo, root, shown};

/// The test binary that owns the golden files.
const TESTS: &str = "crates/hapax/tests/it/main.rs";

/// Rewrites the golden files, or with `--check` compares them.
pub(crate) fn run(args: &[&str]) -> Result<(), Failure> {
    let bless = match args {
        [] => true,
        ["--check"] => false,
        _ => return Err(Failure::Usage("call it as `schema` or `schema --check`".into())),
    };
    if !root().join(TESTS).exists() {
        println!("schema: no golden file yet, since {TESTS} does not exist");
        return Ok(());
    }
    let mut command = cargo(&["test", "-p", "hapax", "--all-features", "--test", "it", "schema"]);
    if bless {
        command.env("HAPAX_BLESS", "1");
    } else {
        command.env_remove("HAPAX_BLESS");
    }
    let call = shown(&command);
    let failed = |why: String| Failure::Failed(format!("`{call}` {why}"));
    // The words of the test runner are read, because a filter that matches nothing counts as success there.
    let output =
        command.stderr(Stdio::inherit()).output().map_err(|error| failed(format!("did not start: {error}")))?;
    io::stdout().write_all(&output.stdout).map_err(|error| failed(format!("could not be shown: {error}")))?;
    if !output.status.success() {
        return Err(failed(format!("ended with {}", output.status)));
    }
    if String::from_utf8_lossy(&output.stdout).contains("test result: ok. 0 passed") {
        return Err(failed("found no test whose name contains `schema`".into()));
    }
    Ok(())
}
