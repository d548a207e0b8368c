//! The program `hapax`: background work that takes effect once, without writing Rust.

mod cli;
mod exit;
mod output;
mod progress;
mod store;
mod time;

use std::process::ExitCode;

use clap::Parser;

use crate::exit::{Exit, Failure};

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    output::log_to_stderr(cli.global.verbose);
    let report = cli.global.errors();
    let answer = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        // This thread runs the verb itself: children that end with their parent watch the thread that made them.
        Ok(runtime) => runtime.block_on(cli.run()),
        Err(error) => Err(Failure::new(Exit::Internal, format!("the runtime did not start: {error}"))),
    };
    match answer {
        Ok(exit) => exit.into(),
        Err(failure) => {
            report.failure(&failure);
            failure.exit().into()
        }
    }
}
