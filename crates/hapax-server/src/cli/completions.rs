//! `hapax completions`: what a shell needs to complete the verbs.

use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;

use super::{Cli, Global};
use crate::exit::{Answer, Exit};
use crate::output;

const AFTER: &str = "\
Examples:
  hapax completions bash > ~/.local/share/bash-completion/completions/hapax
  hapax completions zsh > ~/.zfunc/_hapax
  hapax completions fish > ~/.config/fish/completions/hapax.fish";

/// Prints a completion script for a shell
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub(crate) struct Completions {
    /// Which shell
    shell: Shell,
}

impl Completions {
    /// Prints the script.
    pub(crate) fn run(&self, _global: &Global) -> Answer {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut without_hidden(&Cli::command()), "hapax", &mut script);
        output::data(String::from_utf8_lossy(&script).trim_end())?;
        Ok(Exit::Ok)
    }
}

/// The program without the verbs that only the program itself calls: some shells would offer them.
fn without_hidden(program: &Command) -> Command {
    let shown = program.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned();
    Command::new("hapax").args(program.get_arguments().cloned()).subcommands(shown)
}
