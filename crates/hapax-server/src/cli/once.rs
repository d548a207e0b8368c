//! `hapax once …`: the once ledger, by key.

use std::time::Duration;

use clap::{Args, Subcommand};
use hapax::model::ledger::KeyFilter;
use hapax::model::{KeyRecord, KeyState, OnceEnd, PAGE_MAX};
use hapax::{Hapax, Name};
use serde_json::{Value, json};

use super::Global;
use crate::exec::claim::{SCOPE, holder, key_value};
use crate::exit::{Answer, Exit, Failure};
use crate::output::{self, Output, Table, cut, visible};
use crate::time::Iso;

/// Looks into the once ledger, and corrects it
///
/// Each key of `hapax exec` is remembered with its period: who claimed it, how often it was tried, how it ended, and
/// how many duplicates were refused. Keys that a program claimed by the library are in a --scope of their own.
#[derive(Debug, Subcommand)]
pub(crate) enum Once {
    List(List),
    Show(Show),
    Forget(Forget),
    Resolve(Resolve),
}

/// Which key.
#[derive(Args, Debug)]
struct Which {
    /// The key
    key: String,
    /// Its period, such as 2026-11-30, as `once list` prints it [default: it has none]
    period: Option<String>,
    /// Where the key counts
    #[arg(long, default_value = SCOPE)]
    scope: String,
}

/// Lists once keys, by name and period
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hapax once list\n  hapax once list backup --limit 10 -o json")]
pub(crate) struct List {
    /// Only of this key
    key: Option<String>,
    /// Where the keys count
    #[arg(long, default_value = SCOPE)]
    scope: String,
    /// Most keys to show, 1 to 1000
    #[arg(long, default_value_t = 100)]
    limit: u32,
}

/// Shows what is known of a key: claim, attempts, outcome, refused duplicates, retention
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hapax once show backup 2026-11-30\n  hapax once show backup   the newest period")]
pub(crate) struct Show {
    #[command(flatten)]
    which: Which,
}

/// Forgets a key, so that its work may be done again
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hapax once forget backup 2026-11-30")]
pub(crate) struct Forget {
    #[command(flatten)]
    which: Which,
}

/// Says what became of work whose end was not recorded
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hapax once resolve backup 2026-11-30 --as done --reason 'the file is in the bucket'"
)]
pub(crate) struct Resolve {
    #[command(flatten)]
    which: Which,
    /// What was found
    #[arg(long = "as", value_enum, value_name = "FOUND")]
    found: Found,
    /// How it was found out; kept with the key
    #[arg(long)]
    reason: String,
    /// How many days a done key is refused
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..))]
    keep_days: u16,
}

/// What a person found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Found {
    /// It took effect: nobody does it again
    Done,
    /// It did not: the next caller does it
    NotDone,
}

impl Which {
    /// The key as the store has it.
    fn value(&self) -> String {
        self.period.as_ref().map_or_else(|| self.key.clone(), |period| key_value(&self.key, period))
    }
}

impl Once {
    /// Does it.
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        let (hapax, output) = global.open().await?;
        match self {
            Self::List(wanted) => list(&hapax, wanted, &output).await,
            Self::Show(Show { which }) => show(&hapax, which, &output).await,
            Self::Forget(Forget { which }) => {
                hapax.forget_once(&which.scope, &which.value()).await?;
                told(&which.value(), "is forgotten", &output)
            }
            Self::Resolve(wanted) => {
                let value = wanted.which.value();
                if wanted.reason.trim().is_empty() {
                    return Err(Failure::usage("reason is empty", "say how it was found out"));
                }
                let result = json!({ "outcome": "resolved", "reason": wanted.reason }).to_string();
                let (end, says) = match wanted.found {
                    Found::Done => (OnceEnd::Done { result: Some(result) }, "is done"),
                    Found::NotDone => (OnceEnd::Failed { error: result }, "is free"),
                };
                let keep = Duration::from_hours(24 * u64::from(wanted.keep_days));
                hapax.resolve_once((&wanted.which.scope, &value), end, keep).await?;
                told(&value, says, &output)
            }
        }
    }
}

fn told(key: &str, says: &str, output: &Output) -> Answer {
    if output.is_json() {
        output::json(&json!({ "key": key, "answer": says.trim_start_matches("is ") }))?;
    } else {
        output::data(&format!("{} {says}", visible(key)))?;
    }
    Ok(Exit::Ok)
}

async fn list(hapax: &Hapax, wanted: &List, output: &Output) -> Answer {
    let prefix = wanted.key.as_ref().map_or_else(String::new, |key| format!("{key} "));
    let scope = Name::new("scope", &wanted.scope)?;
    let filter = KeyFilter { scope, prefix, after: String::new(), limit: wanted.limit };
    let found = hapax.once_keys(filter).await?;
    if output.is_json() {
        output::json(&json!({ "keys": found.iter().map(view).collect::<Vec<Value>>() }))?;
        return Ok(Exit::Ok);
    }
    if found.is_empty() {
        output::say("no once key is remembered");
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(&["KEY", "STATE", ">ATTEMPTS", ">REFUSED", "BY", "SINCE", "ENDED"]);
    for record in &found {
        table.row([
            cut(record.key.value(), 80),
            record.state.as_str().to_owned(),
            record.attempts.to_string(),
            record.refused.to_string(),
            holder(record),
            output.time(record.since),
            record.ended_at.map_or_else(String::new, |at| output.time(at)),
        ]);
    }
    output::data(&table.to_string())?;
    Ok(Exit::Ok)
}

async fn show(hapax: &Hapax, which: &Which, output: &Output) -> Answer {
    let mut found = hapax.once(&which.scope, which.value()).look_up().await?;
    if found.is_none() && which.period.is_none() {
        let scope = Name::new("scope", &which.scope)?;
        let filter = KeyFilter { scope, prefix: format!("{} ", which.key), after: String::new(), limit: PAGE_MAX };
        found = hapax.once_keys(filter).await?.into_iter().max_by_key(|record| record.since);
    }
    let Some(record) = found else {
        let what = format!("once key {} is not known", which.value());
        return Err(Failure::new(Exit::NotFound, what).mend("see `hapax once list` for those that are remembered"));
    };
    if output.is_json() {
        output::json(&view(&record))?;
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(&["WHAT", "IS"]);
    let mut line = |name: &str, value: String| table.row([name.to_owned(), value]);
    line("key", record.key.value().to_owned());
    line("state", says(&record).to_owned());
    line("by", holder(&record));
    line("fence", record.fence.map_or_else(String::new, |fence| fence.to_string()));
    line("attempts", record.attempts.to_string());
    line("claimed", output.full_time(record.since));
    line("ended", record.ended_at.map_or_else(String::new, |at| output.full_time(at)));
    line("kept until", record.keep_until.map_or_else(String::new, |at| output.full_time(at)));
    line("refused", record.refused.to_string());
    line("last refused", record.last_refused_at.map_or_else(String::new, |at| output.full_time(at)));
    line("result", record.result.clone().unwrap_or_default());
    output::data(&table.to_string())?;
    Ok(Exit::Ok)
}

/// The state, and what it leaves open.
fn says(record: &KeyRecord) -> &'static str {
    let result: Option<Value> = record.result.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let started = result.is_some_and(|result| result["outcome"] == "started");
    match record.state {
        KeyState::Done if started => "done when it started; its end is not recorded",
        state => state.as_str(),
    }
}

fn view(record: &KeyRecord) -> Value {
    let result: Option<Value> = record.result.as_deref().map(|text| match serde_json::from_str(text) {
        Ok(value) => value,
        Err(_) => Value::String(text.to_owned()),
    });
    let value = record.key.value();
    let (key, period) = value.rsplit_once(' ').filter(|_| record.key.scope().as_str() == SCOPE).unzip();
    json!({
        "scope": record.key.scope(),
        "value": value,
        "key": key.unwrap_or(value),
        "period": period,
        "state": record.state,
        "by": holder(record),
        "fence": record.fence,
        "attempts": record.attempts,
        "since": Iso(record.since),
        "ended_at": record.ended_at.map(Iso),
        "keep_until": record.keep_until.map(Iso),
        "refused": record.refused,
        "last_refused_at": record.last_refused_at.map(Iso),
        "result": result,
    })
}
