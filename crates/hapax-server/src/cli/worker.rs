//! `hapax worker …`: the instances whose workers run the jobs.

use clap::{Args, Subcommand};
use hapax::Name;
use hapax::model::InstanceView;
use serde_json::{Value, json};

use super::Global;
use crate::exit::{Answer, Exit, Failure};
use crate::output::{self, Output, Table};
use crate::time::{self, Iso};

/// Looks at the instances that run jobs
#[derive(Debug, Subcommand)]
pub(crate) enum Worker {
    List(List),
}

/// Lists the instances, dead ones included while they are remembered
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hapax worker list\n  hapax worker list --live -o json")]
pub(crate) struct List {
    /// Only those that may claim
    #[arg(long)]
    live: bool,
}

impl Worker {
    /// Does it.
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        let Self::List(List { live }) = self;
        let (hapax, output) = global.open().await?;
        let mut instances = hapax.instances().await?;
        instances.retain(|instance| instance.live || !live);
        instances.sort_by_key(|instance| (!instance.live, instance.started_at));
        list(&instances, &output)?;
        Ok(Exit::Ok)
    }
}

fn list(instances: &[InstanceView], output: &Output) -> Result<(), Failure> {
    if output.is_json() {
        return output::json(&json!({ "instances": instances.iter().map(view).collect::<Vec<Value>>() }));
    }
    if instances.is_empty() {
        output::say("no instances; a program that starts a `Host` on this store appears here");
        return Ok(());
    }
    let mut table =
        Table::new(&["INSTANCE", "NAME", "STATE", ">RUNS", "QUEUES", "KINDS", "RENEWED", "LEASE", "SINCE", "VERSION"]);
    for instance in instances {
        table.row([
            instance.id.to_string(),
            instance.name.to_string(),
            state(instance).to_owned(),
            instance.running.to_string(),
            names(&instance.queues),
            names(&instance.kinds),
            output.time(instance.renewed_at),
            if instance.live { time::length(instance.expires_in_ms) } else { "-".to_owned() },
            output.time(instance.started_at),
            instance.version.clone(),
        ]);
    }
    output::data(&table.to_string())
}

/// A live instance whose lease ran out is late: it may renew itself, or be declared dead.
fn state(instance: &InstanceView) -> &'static str {
    match (instance.live, instance.expires_in_ms) {
        (false, _) => "dead",
        (true, 0) => "late",
        (true, _) => "live",
    }
}

fn names(names: &[Name]) -> String {
    names.iter().map(Name::as_str).collect::<Vec<_>>().join(",")
}

fn view(instance: &InstanceView) -> Value {
    json!({
        "id": instance.id,
        "name": instance.name,
        "version": instance.version,
        "live": instance.live,
        "running": instance.running,
        "queues": instance.queues,
        "kinds": instance.kinds,
        "started_at": Iso(instance.started_at),
        "renewed_at": Iso(instance.renewed_at),
        "expires_in_ms": instance.expires_in_ms,
    })
}
