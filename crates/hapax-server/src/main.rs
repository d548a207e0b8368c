//! The program `hapax`: background work that takes effect once, without writing Rust.

mod cli;
mod exec;
mod exit;
mod output;
mod progress;
mod store;
mod time;

use std::process::ExitCode;

use clap::Parser;

use crate::exit::{Exit, Failure};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    if arguments.nth(1).is_some_and(|verb| verb == exec::watchdog::VERB) {
        return match exec::watchdog::main(arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let cli = cli::Cli::parse();
    output::log_to_stderr(cli.global.verbose);
    let report = cli.global.errors();
    let answer = match cli.runtime() {
        // This thread runs the verb itself: children that end with their parent watch the thread that made them.
        Ok(runtime) => runtime.block_on(cli.run()),
        Err(error) => Err(Failure::new(Exit::Internal, format!("the runtime did not start: {error}"))),
    };
    match answer {
        Ok(exit) => exit,
        Err(failure) => {
            report.failure(&failure);
            failure.exit().into()
        }
    }
}
