//! How the program speaks: data to stdout, talk to stderr, as text for people or as JSON for scripts.

use std::io::{IsTerminal, Write};

use comfy_table::{CellAlignment, ContentArrangement, presets};
use hapax::clock::{Clock, Micros};
use miette::{GraphicalReportHandler, GraphicalTheme};
use serde::Serialize;

use crate::exit::{Exit, Failure};
use crate::time;

/// `-o`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Tables and sentences, for people
    #[default]
    Text,
    /// One JSON document, for scripts; times are RFC 3339, fences are strings
    Json,
}

/// `--time`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TimeStyle {
    /// `3m ago`
    #[default]
    Relative,
    /// `2026-12-24T18:00:00.000Z`
    Iso,
}

/// What a verb prints with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    format: Format,
    times: TimeStyle,
    now: Micros,
}

impl Output {
    /// An output that counts its relative times from now.
    pub(crate) fn new(format: Format, times: TimeStyle) -> Self {
        Self { format, times, now: Clock::system().now().wall }
    }

    /// Whether scripts are to read it.
    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// A point in time, in the style that was asked for.
    pub(crate) fn time(&self, at: Micros) -> String {
        match self.times {
            TimeStyle::Relative => time::relative(at, self.now),
            TimeStyle::Iso => time::iso(at),
        }
    }

    /// A point in time where there is room for both styles.
    pub(crate) fn full_time(&self, at: Micros) -> String {
        match self.times {
            TimeStyle::Relative => format!("{} ({})", time::iso(at), time::relative(at, self.now)),
            TimeStyle::Iso => time::iso(at),
        }
    }

    /// Now, as the relative times count it.
    pub(crate) const fn now(&self) -> Micros {
        self.now
    }
}

/// Prints text as data, with a line end. A reader that has gone away wants no more, and that is no failure.
pub(crate) fn data(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            let what = format!("the answer cannot be written to stdout: {error}");
            Err(Failure::new(Exit::No, what).mend("the verb itself has worked; see `--help` for how to look again"))
        }
        _ => Ok(()),
    }
}

/// Prints one JSON document.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    data(&serde_json::to_string_pretty(value).map_err(|error| not_json(&error))?)
}

/// Prints one line of JSON, for verbs that give one object per line.
pub(crate) fn json_line(value: &impl Serialize) -> Result<(), Failure> {
    data(&serde_json::to_string(value).map_err(|error| not_json(&error))?)
}

/// Says something to a person; never data.
pub(crate) fn say(text: &str) {
    // Nobody can be told that stderr is gone.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

fn not_json(error: &serde_json::Error) -> Failure {
    Failure::new(Exit::Internal, format!("the answer is no JSON: {error}"))
}

/// A table without borders.
#[derive(Debug)]
pub(crate) struct Table(comfy_table::Table);

impl Table {
    /// A table with these titles. A title that begins with `>` stands over a column of numbers.
    pub(crate) fn new(titles: &[&str]) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(titles.iter().map(|title| title.trim_start_matches('>')));
        for (column, title) in table.column_iter_mut().zip(titles) {
            column.set_padding((0, 2));
            if title.starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        Self(table)
    }

    /// Adds a row; control characters in it are made visible, so that a payload cannot steer a terminal.
    pub(crate) fn row<I: IntoIterator<Item = String>>(&mut self, cells: I) {
        self.0.add_row(cells.into_iter().map(|cell| visible(&cell)));
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.trim_fmt())
    }
}

/// Text on one line: control characters become their escapes.
pub(crate) fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// At most `chars_max` characters of a text, with a mark when there are more.
pub(crate) fn cut(text: &str, chars_max: usize) -> String {
    if text.char_indices().nth(chars_max).is_none() {
        text.to_owned()
    } else {
        let kept: String = text.chars().take(chars_max.saturating_sub(1)).collect();
        format!("{kept}…")
    }
}

/// How errors are shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Errors {
    /// The format that was asked for.
    pub(crate) format: Format,
}

impl Errors {
    /// Shows a failure on stderr: drawn on a terminal, plain lines elsewhere, one object when JSON was asked for.
    pub(crate) fn failure(self, failure: &Failure) {
        let text = match self.format {
            Format::Json => json_error(failure),
            Format::Text if std::io::stderr().is_terminal() => drawn(failure),
            Format::Text => plain(failure),
        };
        let _ = writeln!(std::io::stderr().lock(), "{}", text.trim_end());
    }
}

fn json_error(failure: &Failure) -> String {
    let error = serde_json::json!({
        "error": { "exit": failure.exit() as u8, "message": failure.to_string(), "mend": failure.help_text() }
    });
    error.to_string()
}

fn drawn(failure: &Failure) -> String {
    let theme = if colours_wanted() { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let mut text = String::new();
    match GraphicalReportHandler::new_themed(theme).with_width(100).render_report(&mut text, failure) {
        Ok(()) => text,
        Err(_) => plain(failure),
    }
}

/// Two lines that stay readable in a log.
pub(crate) fn plain(failure: &Failure) -> String {
    let message = visible(&failure.to_string());
    match failure.help_text() {
        Some(mend) => format!("error: {message}\n mend: {}", visible(mend)),
        None => format!("error: {message}"),
    }
}

/// <https://no-color.org>: any value but the empty one switches colours off.
fn colours_wanted() -> bool {
    let said_no = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    !said_no && !dumb
}

/// Sends the library's own messages to stderr: warnings, more with `-v`. `HAPAX_LOG` says it exactly.
pub(crate) fn log_to_stderr(verbose: u8) {
    let default = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("HAPAX_LOG").unwrap_or_else(|_| default.into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_no_borders_and_no_trailing_blanks() {
        let mut table = Table::new(&["NAME", ">READY"]);
        table.row(["orders".to_owned(), "7".to_owned()]);
        table.row(["a\u{1b}[31m\nb".to_owned(), "10000+".to_owned()]);
        assert_eq!(table.to_string(), "NAME             READY\norders               7\na\\u{1b}[31m\\nb  10000+");
    }

    #[test]
    fn texts_are_cut_at_characters() {
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut("äöüß", 3), "äö…");
    }

    #[test]
    fn errors_are_two_plain_lines_in_a_log() {
        let failure = Failure::usage("queue is empty", "give at least one character");
        assert_eq!(plain(&failure), "error: queue is empty\n mend: give at least one character");
        assert_eq!(plain(&Failure::new(Exit::No, "no")), "error: no");
    }
}
