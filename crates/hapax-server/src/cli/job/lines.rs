//! `hapax job push KIND --lines FILE`: many jobs, one for each line, a thousand to a transaction.
//!
//! Each line is answered for itself, and none is lost in silence: its id goes to stdout or its error to stderr, with
//! the line's number. When the store fails in between, the report says from which line on nothing was sent.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};

use hapax::id::{Boundary, KEY_BYTES_MAX, PAYLOAD_BYTES_MAX};
use hapax::{Enqueue, Enqueued, Hapax, Name, OnceKey, Payload};
use serde_json::{Value, json};

use super::super::Global;
use super::push::{Push, check, unreadable};
use crate::exit::{Answer, Exit, Failure};
use crate::output::{self, Output, visible};
use crate::progress::Bar;

/// Lines to a transaction.
const BATCH: usize = 1_000;

/// Enqueues a job for each line of `file`.
pub(super) async fn push(global: &Global, options: &Push, file: &str) -> Answer {
    let (total, reader): (Option<u64>, Box<dyn Read>) = if file == "-" {
        (None, Box::new(std::io::stdin().lock()))
    } else {
        let open = File::open(file).map_err(|error| unreadable(file, &error))?;
        (open.metadata().ok().filter(std::fs::Metadata::is_file).map(|meta| meta.len()), Box::new(open))
    };
    check(options.job("{}".to_owned())).await?;
    let (hapax, output) = global.open().await?;
    // Ids on a terminal and a bar beside them would tear each other.
    let quiet = !std::io::IsTerminal::is_terminal(&std::io::stdout());
    let bar = Bar::new(total, quiet && !output.is_json());
    let mut bulk = Bulk { hapax, options, output, bar, batch: Vec::new(), sum: Sum::default() };
    let stopped = bulk.all(&mut BufReader::new(reader), file).await;
    bulk.bar.clear();
    bulk.report(stopped)
}

/// What became of the lines so far.
#[derive(Debug, Default)]
struct Sum {
    /// The last line that was read.
    line: u64,
    bytes: u64,
    enqueued: u64,
    existed: u64,
    failed: u64,
    blank: u64,
}

struct Bulk<'a> {
    hapax: Hapax,
    options: &'a Push,
    output: Output,
    bar: Bar,
    /// Lines that wait for their transaction.
    batch: Vec<(u64, Enqueue)>,
    sum: Sum,
}

impl Bulk<'_> {
    /// Reads every line; stops at the first trouble that is not the line's own.
    async fn all(&mut self, reader: &mut impl BufRead, file: &str) -> Result<(), Failure> {
        let mut line = Vec::new();
        loop {
            let read = next_line(reader, &mut line);
            let read = read.map_err(|error| unreadable(file, &error).at(format_args!("line {}", self.sum.line + 1)));
            if !matches!(read, Ok(true)) {
                self.send().await?;
                return read.map(drop);
            }
            self.sum.line += 1;
            self.sum.bytes += line.len() as u64;
            match self.options.line(&line) {
                Ok(None) => self.sum.blank += 1,
                Ok(Some(job)) => self.batch.push((self.sum.line, job)),
                Err(failure) => self.refuse(self.sum.line, &failure)?,
            }
            if self.batch.len() >= BATCH {
                self.send().await?;
            }
        }
    }

    /// Sends what waits, and reports each line of it.
    async fn send(&mut self) -> Result<(), Failure> {
        let (numbers, jobs): (Vec<u64>, Vec<Enqueue>) = self.batch.drain(..).unzip();
        let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else { return Ok(()) };
        let answers = self.hapax.enqueue_many(jobs).await.map_err(|error| {
            let failure = Failure::from(error);
            let doubt = failure.exit() == Exit::InDoubt;
            let what = if doubt { "may have been enqueued" } else { "were not enqueued" };
            failure.at(format_args!("lines {first} to {last} {what}, nothing was sent after them"))
        })?;
        for (line, answer) in numbers.iter().zip(answers) {
            match answer {
                Ok(enqueued) => self.accept(*line, enqueued)?,
                Err(error) => self.refuse(*line, &error.into())?,
            }
        }
        self.bar.set(self.sum.bytes, &format!("{} lines", self.sum.line));
        Ok(())
    }

    fn accept(&mut self, line: u64, enqueued: Enqueued) -> Result<(), Failure> {
        let counter = if enqueued.existed { &mut self.sum.existed } else { &mut self.sum.enqueued };
        *counter += 1;
        if self.output.is_json() {
            return output::json_line(&json!({ "line": line, "id": enqueued.id, "existed": enqueued.existed }));
        }
        output::data(&enqueued.id.to_string())
    }

    fn refuse(&mut self, line: u64, failure: &Failure) -> Result<(), Failure> {
        self.sum.failed += 1;
        let (message, mend) = (failure.to_string(), failure.help_text());
        if self.output.is_json() {
            return output::json_line(&json!({ "line": line, "error": { "message": message, "mend": mend } }));
        }
        let mend = mend.map_or_else(String::new, |mend| format!("; {mend}"));
        self.bar.say(&visible(&format!("line {line}: {message}{mend}")));
        Ok(())
    }

    /// The summary, and the exit code of the whole.
    fn report(&self, stopped: Result<(), Failure>) -> Answer {
        let Sum { line, enqueued, existed, failed, blank, .. } = self.sum;
        if self.output.is_json() {
            let complete = stopped.is_ok();
            output::json_line(&json!({ "summary": {
                "lines": line, "enqueued": enqueued, "existed": existed, "failed": failed, "blank": blank,
                "complete": complete,
            }}))?;
        } else {
            let blank = if blank > 0 { format!(", {blank} blank") } else { String::new() };
            let text = format!("{line} lines: {enqueued} enqueued, {existed} existed, {failed} failed{blank}");
            output::say(&text);
        }
        stopped?;
        Ok(if failed == 0 { Exit::Ok } else { Exit::No })
    }
}

impl Push {
    /// The job of one line; nothing for a blank one.
    fn line(&self, line: &[u8]) -> Result<Option<Enqueue>, Failure> {
        let text = std::str::from_utf8(line)
            .map_err(|_| Failure::usage("payload is not UTF-8", "send one JSON value in UTF-8 per line"))?
            .trim_end_matches(['\r', '\n']);
        if text.trim().is_empty() {
            return Ok(None);
        }
        // Checked here, line by line: the library refuses a whole batch for one bad payload in it.
        Payload::new(text)?;
        let job = self.job(text.to_owned());
        let Some(pointer) = &self.once_from else { return Ok(Some(job)) };
        let key = key_at(text, pointer)?;
        OnceKey::new(Boundary::Enqueue, Name::new("scope", "line")?, &key)?;
        Ok(Some(job.once(key)))
    }
}

/// The once key that a payload holds: a text or a whole number. Anything else has more than one way to be written.
fn key_at(payload: &str, pointer: &str) -> Result<String, Failure> {
    let value: Value = serde_json::from_str(payload)
        .map_err(|error| Failure::usage(format!("once key: the payload cannot be looked into: {error}"), "mend it"))?;
    match value.pointer(pointer) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Number(number)) if number.is_i64() || number.is_u64() => Ok(number.to_string()),
        found => {
            let what = if found.is_some() { "is no text and no whole number" } else { "is not there" };
            let mend = format!("give each line a text or whole number of at most {KEY_BYTES_MAX} bytes at {pointer}");
            Err(Failure::usage(format!("once key: {pointer} {what}"), mend))
        }
    }
}

/// Reads a line into `line`; false at the end. Of a line over the limit only so much is kept that it is refused.
fn next_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<bool> {
    let most = PAYLOAD_BYTES_MAX as u64 + 2;
    line.clear();
    let read = reader.by_ref().take(most).read_until(b'\n', line)?;
    if read as u64 == most && line.last() != Some(&b'\n') {
        reader.skip_until(b'\n')?;
    }
    Ok(read > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_from_texts_and_whole_numbers_only() {
        let key = |payload| key_at(payload, "/order");
        assert_eq!(key(r#"{"order":"a"}"#).expect("a text"), "a");
        assert_eq!(key(r#"{"order":7}"#).expect("a number"), "7");
        assert_eq!(key(r#"{"order":-7}"#).expect("a number"), "-7");
        for payload in [r#"{"order":1.5}"#, r#"{"order":null}"#, "{}", "[]", r#"{"order":100000000000000000001}"#] {
            assert!(key(payload).is_err(), "{payload}");
        }
    }

    #[test]
    fn a_line_over_the_limit_does_not_swallow_the_next() {
        let long = "x".repeat(PAYLOAD_BYTES_MAX + 100);
        let text = format!("1\n{long}\n2");
        let mut reader = BufReader::new(text.as_bytes());
        let (mut line, mut lengths) = (Vec::new(), Vec::new());
        while next_line(&mut reader, &mut line).expect("memory can be read") {
            lengths.push(line.len());
        }
        assert_eq!(lengths, [2, PAYLOAD_BYTES_MAX + 2, 1]);
    }
}
