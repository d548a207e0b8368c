//! What the verbs share: how one looks, where the tree is, how to call cargo, and how a failure is reported.

use std::env;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// One verb of `cargo xtask`.
pub(crate) struct Verb {
    pub(crate) name: &'static str,
    pub(crate) arguments: &'static str,
    pub(crate) about: &'static str,
    pub(crate) run: fn(&[&str]) -> Result<(), Failure>,
}

/// The help text.
pub(crate) fn help(verbs: &[Verb]) -> String {
    let line = |verb: &Verb| format!("  {:<18} {}", format!("{} {}", verb.name, verb.arguments), verb.about);
    let lines: Vec<String> = verbs.iter().map(line).collect();
    format!(
        "The project's own commands.\n\nUsage: cargo xtask VERB\n\n{}\n\n\
         Exit codes: 0 all is well, 1 something failed, 2 the call was wrong.",
        lines.join("\n")
    )
}

/// Why a verb did not succeed. The two kinds have different exit codes, so that a script can tell a typing error from
/// a broken tree.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The call was wrong; nothing was run. Exit code 2.
    Usage(String),
    /// Something that should hold does not. Exit code 1.
    Failed(String),
}

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    // Cargo sets the variable when it runs us; the compiled-in path serves a binary that is called directly.
    let manifest = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let mut path = PathBuf::from(manifest);
    path.pop();
    path
}

/// A cargo command that runs in the root: the same cargo that runs us.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(args);
    command
}

/// Runs a command to its end with its output shown.
pub(crate) fn must(command: &mut Command) -> Result<(), Failure> {
    let shown = shown(command);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Failed(format!("`{shown}` ended with {status}"))),
        Err(error) => Err(Failure::Failed(format!("`{shown}` could not be started: {error}"))),
    }
}

/// A command as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let arguments: Vec<_> = command.get_args().map(|argument| argument.to_string_lossy()).collect();
    format!("cargo {}", arguments.join(" "))
}

/// Refuses arguments that a verb does not know.
pub(crate) fn no_arguments(verb: &str, args: &[&str]) -> Result<(), Failure> {
    match args.first() {
        None => Ok(()),
        Some(extra) => Err(Failure::Usage(format!("`{verb}` takes no argument, but got `{extra}`"))),
    }
}

/// Prints an answer that was asked for.
pub(crate) fn say(text: &str) -> ExitCode {
    println!("{text}");
    ExitCode::SUCCESS
}

/// Prints a failure and turns the outcome into the exit code of the process.
pub(crate) fn exit_code(outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(text)) => {
            eprintln!("xtask: {text}");
            ExitCode::from(2)
        }
        Err(Failure::Failed(text)) => {
            eprintln!("xtask: {text}");
            ExitCode::FAILURE
        }
    }
}
