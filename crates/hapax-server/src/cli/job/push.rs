//! `hapax job push`: enqueues one job, or one for each line of a file.

use std::io::Read;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValue;
use hapax::clock::Micros;
use hapax::id::PAYLOAD_BYTES_MAX;
use hapax::{Enqueue, Guarantee, Hapax, JobId, RetryPolicy};
use serde_json::json;

use super::super::Global;
use super::lines;
use crate::exit::{Answer, Exit, Failure};
use crate::output;
use crate::time::{duration, instant};

/// Enqueues a job, or one for each line of a file
///
/// Prints the job's id. With a once key that is held or done nothing is enqueued: the id of the job that has the key is
/// printed, and the exit code is 0 all the same, since the work is there once.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  hapax job push send-mail '{\"to\":7}' --once mail-7
  hapax job push send-mail @mail.json --queue mail --in 30m --attempts 5
  jq -c '.orders[]' orders.json | hapax job push ship --lines - --once-from /order")]
pub(crate) struct Push {
    /// Which task is to run it
    kind: String,
    /// JSON for the task; `-` reads it from stdin, `@FILE` from a file [default: {}]
    #[arg(conflicts_with = "lines", allow_negative_numbers = true)]
    payload: Option<String>,
    /// One payload per line of this file, `-` for stdin; prints one id per line
    #[arg(long, value_name = "FILE")]
    pub(super) lines: Option<String>,
    /// Takes each line's once key from here, a JSON pointer: then sending the file again repeats nothing
    #[arg(long, value_name = "POINTER", requires = "lines")]
    pub(super) once_from: Option<String>,
    /// Wanted once: refused while a job with this key lives, and after it is done for --keep-key
    #[arg(long, value_name = "KEY", conflicts_with = "lines")]
    once: Option<String>,
    /// Its id, to repeat a push whose answer was lost
    #[arg(long, value_name = "UUID", conflicts_with = "lines")]
    id: Option<JobId>,
    /// Queue to wait in [default: default]
    #[arg(long)]
    queue: Option<String>,
    /// Not before this long from now, such as 90s, 5m, 1h30m, 2d
    #[arg(long = "in", value_name = "LENGTH", value_parser = duration, conflicts_with = "due_at")]
    due_in: Option<Duration>,
    /// Not before this instant, such as 2026-12-24T18:00:00Z
    #[arg(long = "at", id = "due_at", value_name = "TIME", value_parser = instant)]
    due_at: Option<Micros>,
    /// Smaller runs first [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i16>,
    /// Failed attempts after which it is parked [default: 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    attempts: Option<u32>,
    /// The longest that one run may take [default: 10m]
    #[arg(long, value_name = "LENGTH", value_parser = duration)]
    timeout: Option<Duration>,
    /// What the "once" of its effect rests on [default: at_least_once]
    #[arg(long, value_name = "G")]
    guarantee: Option<Promise>,
    /// How long it is kept after its end, at least 10m [default: 7d]
    #[arg(long, value_name = "LENGTH", value_parser = duration)]
    keep: Option<Duration>,
    /// How long its once key is refused after it is done [default: 30d]
    #[arg(long, value_name = "LENGTH", value_parser = duration)]
    keep_key: Option<Duration>,
}

/// A guarantee on the command line.
#[derive(Clone, Copy, Debug)]
struct Promise(Guarantee);

impl clap::ValueEnum for Promise {
    fn value_variants<'a>() -> &'a [Self] {
        use Guarantee as G;
        const ALL: [Promise; 5] = [
            Promise(G::Transactional),
            Promise(G::Fenced),
            Promise(G::Keyed),
            Promise(G::AtMostOnce),
            Promise(G::AtLeastOnce),
        ];
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let value = PossibleValue::new(self.0.as_str());
        Some(match self.0 {
            Guarantee::AtMostOnce => value.alias("at-most-once"),
            Guarantee::AtLeastOnce => value.alias("at-least-once"),
            _ => value,
        })
    }
}

impl Push {
    /// Does it.
    pub(crate) async fn run(self, global: &Global) -> Answer {
        if let Some(file) = &self.lines {
            return lines::push(global, &self, file).await;
        }
        let payload = self.read_payload()?;
        check(self.one(payload.clone())).await?;
        let (hapax, output) = global.open().await?;
        let enqueued = hapax.enqueue(self.one(payload)).await?;
        if output.is_json() {
            output::json(&json!({ "id": enqueued.id, "existed": enqueued.existed }))?;
        } else {
            output::data(&enqueued.id.to_string())?;
            if enqueued.existed {
                let key = self.once.as_deref().unwrap_or_default();
                output::say(&format!("existed: once key `{key}` belongs to this job; nothing was enqueued"));
            }
        }
        Ok(Exit::Ok)
    }

    /// The job, with what only a single one may have.
    fn one(&self, payload: String) -> Enqueue {
        let mut job = self.job(payload);
        if let Some(key) = &self.once {
            job = job.once(key);
        }
        if let Some(id) = self.id {
            job = job.id(id);
        }
        job
    }

    /// A job with these options and this payload.
    pub(super) fn job(&self, payload: String) -> Enqueue {
        let mut job = Enqueue::new(&self.kind, payload);
        if let Some(queue) = &self.queue {
            job = job.queue(queue);
        }
        if let Some(delay) = self.due_in {
            job = job.due_in(delay);
        }
        if let Some(at) = self.due_at {
            job = job.due_at(at);
        }
        if let Some(priority) = self.priority {
            job = job.priority(priority);
        }
        if let Some(max_attempts) = self.attempts {
            job = job.retry(RetryPolicy { max_attempts, ..RetryPolicy::default() });
        }
        if let Some(timeout) = self.timeout {
            job = job.run_timeout(timeout);
        }
        if let Some(Promise(guarantee)) = self.guarantee {
            job = job.guarantee(guarantee);
        }
        if let Some(keep) = self.keep {
            job = job.keep(keep);
        }
        if let Some(keep) = self.keep_key {
            job = job.keep_key(keep);
        }
        job
    }

    /// The payload from where it is. The line end that editors and `echo` leave is no part of it, so that the same work
    /// has the same fingerprint however it came.
    fn read_payload(&self) -> Result<String, Failure> {
        let text = match self.payload.as_deref() {
            None => return Ok("{}".to_owned()),
            Some("-") => read(std::io::stdin().lock(), "stdin")?,
            Some(text) => match text.strip_prefix('@') {
                None => return Ok(text.to_owned()),
                Some(path) => {
                    let file = std::fs::File::open(path).map_err(|error| unreadable(path, &error))?;
                    read(file, path)?
                }
            },
        };
        Ok(text.trim_end_matches(['\r', '\n']).to_owned())
    }
}

/// Finds bad input before a store is opened, or even made, for it: a store in memory has the same limits.
pub(super) async fn check(job: Enqueue) -> Result<(), Failure> {
    Hapax::memory().enqueue(job).await?;
    Ok(())
}

/// Reads no more than one byte over the limit: the library then refuses it with the mend.
fn read(from: impl Read, name: &str) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    from.take(PAYLOAD_BYTES_MAX as u64 + 2).read_to_end(&mut bytes).map_err(|error| unreadable(name, &error))?;
    String::from_utf8(bytes).map_err(|_| {
        Failure::usage(format!("payload: {name} is not UTF-8"), "send one JSON value in UTF-8, such as {}")
    })
}

/// An input that cannot be read.
pub(super) fn unreadable(name: &str, error: &std::io::Error) -> Failure {
    Failure::usage(format!("payload: {name} cannot be read: {error}"), "name a file that is there, or `-` for stdin")
}
