//! What a person decides about jobs: run it now, do not run it, wait, or what became of it.

use clap::{Args, ValueEnum};
use hapax::model::Resolution;
use hapax::{Hapax, JobId, JobState};
use serde_json::{Value, json};

use super::super::Global;
use crate::exit::{Answer, Exit, Failure};
use crate::output::{self, Output, plain};

/// Runs scheduled, parked or cancelled jobs now, with all their attempts before them
///
/// Several ids are decided one after the other, each for itself; the exit code is the highest.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hapax job retry 01980d6e-3c5a-7cc0-8d3e-5f2b6a1c9e01\n  \
    hapax job list --state parked -o json | jq -r '.jobs[].id' | xargs hapax job retry")]
pub(crate) struct Retry {
    /// Which jobs
    #[arg(required = true, value_name = "ID")]
    ids: Vec<JobId>,
}

/// Cancels waiting or parked jobs, and asks running ones to stop
///
/// A running job ends as cancelled, unless it is done before it notices. Its once key is free from then on.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hapax job cancel 01980d6e-3c5a-7cc0-8d3e-5f2b6a1c9e01 --reason 'order withdrawn'")]
pub(crate) struct Cancel {
    /// Which jobs
    #[arg(required = true, value_name = "ID")]
    ids: Vec<JobId>,
    /// Why, for whoever looks later
    #[arg(long, default_value = "cancelled by hand")]
    reason: String,
}

/// Parks waiting jobs until somebody retries or cancels them
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hapax job park 01980d6e-3c5a-7cc0-8d3e-5f2b6a1c9e01 --reason 'ask the customer'")]
pub(crate) struct Park {
    /// Which jobs
    #[arg(required = true, value_name = "ID")]
    ids: Vec<JobId>,
    /// Why, for whoever looks later
    #[arg(long, default_value = "parked by hand")]
    reason: String,
}

/// Says what became of jobs in doubt
///
/// A job in doubt is one that must not run twice, and whose effect may or may not have happened. Look at the target
/// first.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hapax job list --state in_doubt\n  \
    hapax job resolve 01980d6e-3c5a-7cc0-8d3e-5f2b6a1c9e01 done")]
pub(crate) struct Resolve {
    /// Which jobs
    #[arg(required = true, value_name = "ID")]
    ids: Vec<JobId>,
    /// What was found
    #[arg(value_enum, value_name = "FOUND")]
    found: Found,
}

/// What was found about a job in doubt.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Found {
    /// It took effect: it is done
    Done,
    /// It did not, and shall not run: it is cancelled and its once key free
    #[value(alias = "not_done")]
    NotDone,
    /// It did not, and shall run
    Retry,
}

impl Retry {
    /// Does it.
    pub(crate) async fn run(self, global: &Global) -> Answer {
        each(global, &self.ids, async |hapax, id| hapax.retry(id).await).await
    }
}

impl Cancel {
    /// Does it.
    pub(crate) async fn run(self, global: &Global) -> Answer {
        each(global, &self.ids, async |hapax, id| hapax.cancel(id, &self.reason).await).await
    }
}

impl Park {
    /// Does it.
    pub(crate) async fn run(self, global: &Global) -> Answer {
        each(global, &self.ids, async |hapax, id| hapax.park(id, &self.reason).await).await
    }
}

impl Resolve {
    /// Does it.
    pub(crate) async fn run(self, global: &Global) -> Answer {
        let found = match self.found {
            Found::Done => Resolution::Done,
            Found::NotDone => Resolution::NotDone,
            Found::Retry => Resolution::Retry,
        };
        each(global, &self.ids, async |hapax, id| hapax.resolve(id, found).await).await
    }
}

/// Decides about each job and reports each. One that is refused does not keep the others from being decided.
async fn each(
    global: &Global,
    ids: &[JobId],
    decide: impl AsyncFn(&Hapax, JobId) -> hapax::Result<JobState>,
) -> Answer {
    let (hapax, output) = global.open().await?;
    let mut exit = Exit::Ok;
    let mut reports = Vec::new();
    for id in ids {
        let decided = decide(&hapax, *id).await.map_err(Failure::from);
        exit = exit.max(decided.as_ref().map_or_else(Failure::exit, |_| Exit::Ok));
        if output.is_json() {
            reports.push(report(*id, &decided));
        } else {
            tell(&output, *id, decided)?;
        }
    }
    if output.is_json() {
        output::json(&json!({ "jobs": reports }))?;
    }
    Ok(exit)
}

fn tell(_output: &Output, id: JobId, decided: Result<JobState, Failure>) -> Result<(), Failure> {
    match decided {
        // Only a cancel gives a running job: it was asked to stop.
        Ok(JobState::Running) => output::data(&format!("{id}  running, asked to stop")),
        Ok(state) => output::data(&format!("{id}  {state}")),
        Err(failure) => {
            output::say(&plain(&failure));
            Ok(())
        }
    }
}

fn report(id: JobId, decided: &Result<JobState, Failure>) -> Value {
    match decided {
        Ok(state) => json!({ "id": id, "ok": true, "state": state }),
        Err(failure) => json!({
            "id": id, "ok": false,
            "error": { "exit": failure.exit() as u8, "message": failure.to_string(), "mend": failure.help_text() },
        }),
    }
}
