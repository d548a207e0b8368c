//! The program `hapax`: background work that takes effect once, without writing Rust.

mod cli;
mod exit;
mod output;
mod progress;
mod store;
mod time;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::Parser;

use crate::cli::Cli;
use crate::exit::{Answer, Exit, Failure};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let errors = cli.global.errors();
    // The message of a panic is on stderr by then.
    match catch_unwind(AssertUnwindSafe(|| run(cli))).unwrap_or_else(|_| Err(mistake())) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            errors.failure(&failure);
            failure.exit().into()
        }
    }
}

fn run(cli: Cli) -> Answer {
    output::log_to_stderr(cli.global.verbose);
    match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        // This thread runs the verb itself: children that end with their parent watch the thread that made them.
        Ok(runtime) => runtime.block_on(cli.run()),
        Err(error) => Err(Failure::new(Exit::Internal, format!("the runtime did not start: {error}"))),
    }
}

fn mistake() -> Failure {
    let mend = "what was asked may have happened; please report the lines above";
    Failure::new(Exit::Internal, "a mistake of hapax itself").mend(mend)
}
