//! `hapax queue …`: what waits, and whether it may be claimed.

use clap::{Args, Subcommand};
use hapax::JobState;
use hapax::model::{COUNT_MAX, QueueView};
use serde_json::{Value, json};

use super::Global;
use crate::exit::{Answer, Exit, Failure};
use crate::output::{self, Output, Table, visible};
use crate::time::Iso;

/// Looks at queues, and stops or goes on with them
#[derive(Debug, Subcommand)]
pub(crate) enum Queue {
    List(List),
    Pause(Pause),
    Resume(Resume),
}

/// Lists the queues with their jobs by state
///
/// Counts end at 10000+. A kind without a task is one that jobs wait with, and that no live instance has code for.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hapax queue list\n  hapax queue list -o json | jq '.queues[] | select(.pause)'")]
pub(crate) struct List {}

/// Stops claims from a queue on every instance; runs go on
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hapax queue pause mail --reason 'the provider is down, see ticket 812'")]
pub(crate) struct Pause {
    /// Which queue
    queue: String,
    /// Why, for whoever finds it paused at night
    #[arg(long)]
    reason: String,
}

/// Lets claims from a queue go on
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hapax queue resume mail")]
pub(crate) struct Resume {
    /// Which queue
    queue: String,
}

impl Queue {
    /// Does it.
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        let (hapax, output) = global.open().await?;
        match self {
            Self::List(_) => list(&hapax.queues().await?, &output)?,
            Self::Pause(Pause { queue, reason }) => {
                if reason.trim().is_empty() {
                    return Err(Failure::usage("reason is empty", "say why, for whoever finds the queue paused"));
                }
                hapax.pause(queue, reason).await?;
                told(&output, queue, Some(reason))?;
            }
            Self::Resume(Resume { queue }) => {
                hapax.resume(queue).await?;
                told(&output, queue, None)?;
            }
        }
        Ok(Exit::Ok)
    }
}

fn told(output: &Output, queue: &str, reason: Option<&str>) -> Result<(), Failure> {
    if output.is_json() {
        return output::json(&json!({ "queue": queue, "paused": reason.is_some(), "reason": reason }));
    }
    match reason {
        Some(reason) => output::data(&format!("{} is paused: {}", visible(queue), visible(reason))),
        None => output::data(&format!("{} goes on", visible(queue))),
    }
}

fn list(queues: &[QueueView], output: &Output) -> Result<(), Failure> {
    if output.is_json() {
        return output::json(&json!({ "queues": queues.iter().map(view).collect::<Vec<Value>>() }));
    }
    if queues.is_empty() {
        output::say("no queues yet; the first `hapax job push KIND` makes one");
        return Ok(());
    }
    let mut titles = vec!["QUEUE".to_owned()];
    titles.extend(JobState::ALL.iter().map(|state| format!(">{}", state.as_str().replace('_', " ").to_uppercase())));
    titles.push("NOTE".to_owned());
    let mut table = Table::new(&titles.iter().map(String::as_str).collect::<Vec<_>>());
    for queue in queues {
        let mut row = vec![queue.queue.to_string()];
        row.extend(JobState::ALL.iter().map(|state| count(queue, *state)));
        row.push(note(queue, output));
        table.row(row);
    }
    output::data(&table.to_string())
}

/// The count of a state; one that was cut off says so.
fn count(queue: &QueueView, wanted: JobState) -> String {
    let found = queue.counts.iter().find(|(state, _)| *state == wanted).map_or(0, |(_, count)| *count);
    if found >= COUNT_MAX { format!("{COUNT_MAX}+") } else { found.to_string() }
}

fn note(queue: &QueueView, output: &Output) -> String {
    let mut notes = Vec::new();
    if let Some(pause) = &queue.pause {
        notes.push(format!("paused {}: {}", output.time(pause.since), pause.reason));
    }
    if !queue.unknown_kinds.is_empty() {
        let kinds: Vec<&str> = queue.unknown_kinds.iter().map(hapax::Name::as_str).collect();
        notes.push(format!("no live task for {}", kinds.join(", ")));
    }
    notes.join("; ")
}

fn view(queue: &QueueView) -> Value {
    let counts: serde_json::Map<String, Value> =
        queue.counts.iter().map(|(state, count)| (state.as_str().to_owned(), json!(count))).collect();
    json!({
        "queue": queue.queue,
        "counts": counts,
        "count_max": COUNT_MAX,
        "pause": queue.pause.as_ref().map(|pause| json!({ "reason": pause.reason, "since": Iso(pause.since) })),
        "unknown_kinds": queue.unknown_kinds,
    })
}
