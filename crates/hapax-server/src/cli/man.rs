//! `hapax man`: the manual, one page for the program and one for each verb, made from the same text as `--help`.

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory};
use clap_mangen::Man as Pages;
use clap_mangen::roff::{Roff, roman};

use super::Cli;
use crate::exit::{Answer, Exit, Failure};
use crate::output;

const AFTER: &str = "\
Examples:
  hapax man exec | man -l -
  hapax man job push > hapax-job-push.1
  hapax man --into ~/.local/share/man/man1 && man hapax-exec";

/// Prints a page of the manual
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub(crate) struct Man {
    /// Of which verb, such as `exec` or `job push` [default: the program]
    verb: Vec<String>,
    /// Write all pages into this folder instead
    #[arg(long, value_name = "FOLDER", conflicts_with = "verb")]
    into: Option<PathBuf>,
}

impl Man {
    /// Prints the page, or writes them all.
    pub(crate) fn run(&self) -> Answer {
        let mut program = Cli::command().disable_help_subcommand(true);
        // Gives each verb its whole name and the options of every verb.
        program.build();
        if let Some(folder) = &self.into {
            write(&program, folder).map_err(|error| {
                let what = format!("the pages cannot be written into {}: {error}", folder.display());
                Failure::usage(what, "name a folder with --into that exists and can be written")
            })?;
            return Ok(Exit::Ok);
        }
        let mut verb = &program;
        for name in &self.verb {
            verb = shown(verb).find(|verb| verb.get_name() == name).ok_or_else(|| {
                let what = format!("there is no verb `{}`, so it has no page", self.verb.join(" "));
                Failure::usage(what, "see `hapax --help` for the verbs")
            })?;
        }
        let page = page(verb).map_err(|error| Failure::new(Exit::Internal, format!("no page: {error}")))?;
        output::data(String::from_utf8_lossy(&page).trim_end())?;
        Ok(Exit::Ok)
    }
}

/// The verbs that are for people.
fn shown(verb: &Command) -> impl Iterator<Item = &Command> {
    verb.get_subcommands().filter(|verb| !verb.is_hide_set())
}

fn write(verb: &Command, folder: &Path) -> io::Result<()> {
    std::fs::write(folder.join(Pages::new(verb.clone()).get_filename()), page(verb)?)?;
    shown(verb).try_for_each(|verb| write(verb, folder))
}

fn page(verb: &Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    let made = Pages::new(verb.clone()).manual("hapax").source(concat!("hapax ", env!("CARGO_PKG_VERSION")));
    made.render_title(&mut page)?;
    made.render_name_section(&mut page)?;
    made.render_synopsis_section(&mut page)?;
    made.render_description_section(&mut page)?;
    made.render_options_section(&mut page)?;
    if shown(verb).next().is_some() {
        made.render_subcommands_section(&mut page)?;
    }
    let mut rest = Roff::new();
    if let Some(after) = verb.get_after_long_help().or_else(|| verb.get_after_help()) {
        sections(&mut rest, &after.to_string());
    }
    rest.to_writer(&mut page)?;
    Ok(page)
}

/// What stands behind the options: each line without an indent that ends with a colon is the head of a section. The
/// lines below it are kept as they are, since most of them are tables.
fn sections(page: &mut Roff, text: &str) {
    for line in text.lines() {
        match line.strip_suffix(':').filter(|head| !head.starts_with(' ')) {
            Some(head) => {
                page.control("fi", []);
                page.control("SH", [head.to_uppercase().as_str()]);
                page.control("nf", []);
            }
            None => {
                page.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
            }
        }
    }
    page.control("fi", []);
}
