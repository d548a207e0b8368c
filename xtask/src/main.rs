//! The project's own commands: `cargo xtask VERB`. Standard library only, so that it builds in a second everywhere.

mod bench;
mod check;
mod command;
mod fix;
mod schema;
mod services;
mod tidy;

use std::env;
use std::process::ExitCode;

use command::{Failure, Verb, help};

/// Every verb; the help text and the error for an unknown verb are printed from this table.
const VERBS: &[Verb] = &[
    Verb {
        name: "check",
        arguments: "",
        about: "everything that must hold before a merge; never writes",
        run: check::run,
    },
    Verb {
        name: "fix",
        arguments: "",
        about: "format, apply what clippy can mend, rewrite golden files",
        run: fix::run,
    },
    Verb { name: "tidy", arguments: "[--laws]", about: "the laws of this tree, or their reasons", run: tidy::run },
    Verb { name: "schema", arguments: "[--check]", about: "rewrite golden files, or compare them", run: schema::run },
    Verb { name: "bench", arguments: "exec", about: "measure a command under hapax exec", run: bench::run },
    Verb { name: "services", arguments: "up|down", about: "start or stop what the tests talk to", run: services::run },
];

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args.split_first() {
        Some((&("-h" | "--help" | "help"), _)) => return command::say(&help(VERBS)),
        Some((name, rest)) => match VERBS.iter().find(|verb| verb.name == *name) {
            Some(verb) => (verb.run)(rest),
            None => Err(Failure::Usage(format!("there is no verb `{name}`\n\n{}", help(VERBS)))),
        },
        None => Err(Failure::Usage(help(VERBS))),
    };
    command::exit_code(outcome)
}
