//! `hapax lock …`: who holds what, and taking it away.

use clap::{Args, Subcommand};
use hapax::Hapax;
use hapax::model::{LockHolder, RefusalRecord};
use serde_json::{Value, json};

use super::Global;
use crate::exit::{Answer, Exit, Failure};
use crate::output::{self, Output, Table, visible};
use crate::time::{Iso, length};

/// How many of the newest refusals are searched for those of one lock.
const EVIDENCE_SEARCHED: u32 = 1_000;

/// Looks at locks, and breaks them
#[derive(Debug, Subcommand)]
pub(crate) enum Lock {
    List(List),
    Show(Show),
    Break(Break),
}

/// Lists the locks that are held
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hapax lock list\n  hapax lock list -o json | jq -r '.locks[].lock'")]
pub(crate) struct List {}

/// Shows who holds a lock, and which writes were refused under it
///
/// Those who wait are not known to the store. The evidence goes back 7 days, within the newest 1000 refusals.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hapax lock show deploy")]
pub(crate) struct Show {
    /// Which lock
    name: String,
}

/// Takes a lock from its holders
///
/// The lock is free at once. Its holders learn of it at their next renewal, at a third of their lease, and stop; until
/// then they and the next holder may overlap, and only what checks the fence is safe. The reason is kept.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hapax lock break deploy --reason 'ci-7 was unplugged, see ticket 812'")]
pub(crate) struct Break {
    /// Which lock
    name: String,
    /// Why, for whoever asks who broke it
    #[arg(long)]
    reason: String,
}

impl Lock {
    /// Does it.
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        let (hapax, output) = global.open().await?;
        match self {
            Self::List(_) => list(&hapax.lock_holders(None).await?, &output),
            Self::Show(Show { name }) => show(&hapax, name, &output).await,
            Self::Break(Break { name, reason }) => broken(name, &hapax.break_lock(name, reason).await?, &output),
        }
    }
}

fn list(holders: &[LockHolder], output: &Output) -> Answer {
    if output.is_json() {
        output::json(&json!({ "locks": holders.iter().map(view).collect::<Vec<Value>>() }))?;
        return Ok(Exit::Ok);
    }
    if holders.is_empty() {
        output::say("no lock is held");
        return Ok(Exit::Ok);
    }
    output::data(&table(holders, output))?;
    Ok(Exit::Ok)
}

async fn show(hapax: &Hapax, name: &str, output: &Output) -> Answer {
    let holders = hapax.lock_holders(Some(name)).await?;
    let of_lock = format!("lock {name}/");
    let mut evidence = hapax.refusals(EVIDENCE_SEARCHED).await?;
    evidence.retain(|record| record.identity.starts_with(&of_lock));
    if output.is_json() {
        let evidence: Vec<Value> = evidence.iter().map(refusal).collect();
        let holders: Vec<Value> = holders.iter().map(view).collect();
        output::json(&json!({ "lock": name, "held": !holders.is_empty(), "holders": holders, "evidence": evidence }))?;
        return Ok(Exit::Ok);
    }
    if holders.is_empty() {
        output::data(&format!("{} is free", visible(name)))?;
    } else {
        output::data(&table(&holders, output))?;
    }
    for record in &evidence {
        let fence = record.fence.map_or_else(String::new, |fence| format!(" with fence {fence}"));
        let text = format!("{}  {}{fence}: {}", output.time(record.at), record.verb, visible(&record.identity));
        output::data(&text)?;
    }
    Ok(Exit::Ok)
}

fn broken(name: &str, holders: &[LockHolder], output: &Output) -> Result<Exit, Failure> {
    if output.is_json() {
        let holders: Vec<Value> = holders.iter().map(view).collect();
        output::json(&json!({ "lock": name, "broken": !holders.is_empty(), "holders": holders }))?;
    } else {
        for held in holders {
            let text = format!(
                "{} was taken from {} (fence {}), who stops at the next renewal",
                visible(name),
                visible(held.holder.as_str()),
                held.lock.fence
            );
            output::data(&text)?;
        }
        if holders.is_empty() {
            output::say(&format!("{} is free; there was nothing to break", visible(name)));
        }
    }
    Ok(if holders.is_empty() { Exit::No } else { Exit::Ok })
}

fn table(holders: &[LockHolder], output: &Output) -> String {
    let mut table = Table::new(&["LOCK", ">PERMIT", ">FENCE", "HOLDER", "SINCE", ">EXPIRES IN"]);
    for held in holders {
        table.row([
            held.lock.name.to_string(),
            held.lock.slot.to_string(),
            held.lock.fence.to_string(),
            held.holder.to_string(),
            output.time(held.since),
            length(held.expires_in_ms),
        ]);
    }
    table.to_string()
}

fn view(held: &LockHolder) -> Value {
    json!({
        "lock": held.lock.name,
        "permit": held.lock.slot,
        "fence": held.lock.fence,
        "holder": held.holder,
        "since": Iso(held.since),
        "expires_in_ms": held.expires_in_ms,
    })
}

fn refusal(record: &RefusalRecord) -> Value {
    json!({ "at": Iso(record.at), "verb": record.verb, "identity": record.identity, "fence": record.fence })
}
