//! `hapax demo`: a kill -9, a freeze and many repeated sends, and a table that is judged afterwards.
//!
//! Three instances, each a process of its own, work on one store: an SQLite file, or a schema of its own in a
//! PostgreSQL database. `plan` says what happens when, `producer`
//! sends each key and some of them again, `fleet` starts, kills, freezes and wakes the processes, `stage` plays the
//! plan, `instance` is what runs inside such a process, and `judge` asks the table of effects what really happened.
//! That table has no unique constraint: nothing but hapax keeps an effect from being there twice.
//!
//! This room does not know: how the library keeps its promise. It uses the public API alone, like any other program;
//! the judge looks only at tables that belong to the demo.

mod errand;
mod fleet;
mod instance;
mod judge;
mod plan;
mod producer;
mod report;
mod stage;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

use super::Global;
use crate::exit::{Answer, Exit, Failure};
use crate::output::say;
use crate::progress::Bar;

use fleet::Fleet;
pub(crate) use instance::DemoInstance;
use judge::Ground;
use plan::Plan;
use report::Report;
use stage::Stage;

const AFTER: &str = "\
What happens:
  Three instances, each a process of its own, run the jobs on one SQLite file,
  or with --store postgres://... in a schema of its own, dropped at the end.
  Each job writes one row into a table without any unique constraint, in the
  same transaction as the job's finish. Every fifth key is sent again, some keys
  by two producers at the same time, some once more after the job is done. One
  instance is killed with -9 while it holds jobs. One is frozen between its
  claim and its write, until another has done its job; then it wakes up and
  writes, too late.

  The exit code is 0 only when no key took effect twice, none is lost, and each
  of these things has really happened; else 1. It gives up after 1 minute plus
  20 ms for each job.

Examples:
  hapax demo
  hapax demo --jobs 20000 --seed 7
  hapax demo --store postgres://me@localhost/shop
  hapax demo --keep        leaves the file, and says how to look into it
  hapax demo --careless    shows that the demo can tell
  hapax demo -o json | jq .twice";

/// How many keys there may be: fewer leave no room for the faults.
const JOBS: std::ops::RangeInclusive<u64> = 200..=1_000_000;

/// Kills, freezes and repeats, then shows that nothing is lost and nothing happened twice
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub(crate) struct Demo {
    /// How many different keys are sent, at least 200
    #[arg(long, value_name = "N", default_value_t = 3_000, value_parser = clap::value_parser!(u64).range(JOBS))]
    jobs: u64,
    /// Decides which instance is killed, and when that and the freeze come; the same seed, the same plan [default: any]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Leaves the file or schema, to look into it
    #[arg(long)]
    keep: bool,
    /// Where the file is to be made, instead of a temporary folder; it is left there
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Commits each effect by itself, ahead of the finish, as a program without hapax would: this must fail
    #[arg(long)]
    careless: bool,
}

impl Demo {
    /// Plays it and judges it. Whatever ends it, its processes end too.
    pub(crate) async fn run(self, global: &Global) -> Answer {
        let output = global.output();
        let plan = Plan::new(self.seed.unwrap_or_else(|| fastrand::u64(..1_000_000)), self.jobs);
        let folder = TempDir::with_prefix("hapax-demo-").map_err(|error| broken("the temporary folder", &error))?;
        let ground = self.ground(global, &folder)?;
        let begun = Instant::now();
        let bar = Bar::new(Some(plan.jobs), true);
        let fleet = Fleet::new(ground.clone(), folder.path(), self.careless);
        let mut stage = Stage::open(plan, &ground, fleet, bar).await?;
        if let Some(name) = ground.schema() {
            // If this process is killed, it stays there.
            stage.say(&format!("in the schema {name}"));
        }
        let played = tokio::select! {
            played = stage.play() => Some(played),
            () = interrupted() => None,
        };
        stage.end_at_once();
        let Some(played) = played else {
            stage.say("interrupted: the instances were ended");
            stage.clear().await?;
            return Ok(Exit::Interrupted);
        };
        let kept = (self.keep || self.file.is_some()).then_some(&ground);
        let report = Report::new(stage.facts(), stage.judge().await?, played.err(), begun.elapsed());
        if kept.is_none() {
            stage.clear().await?;
        }
        drop(stage);
        report.print(&output, kept)?;
        if self.keep && self.file.is_none() {
            let _ = folder.keep();
        }
        Ok(if report.passed() { Exit::Ok } else { Exit::No })
    }

    fn ground(&self, global: &Global, folder: &TempDir) -> Result<Ground, Failure> {
        if global.store.is_some() {
            let place = global.place()?;
            if place.file().is_some() || self.file.is_some() {
                let what = "--store: the demo makes a file of its own";
                return Err(Failure::usage(what, "say --file PATH for where, or --store postgres://... alone"));
            }
            let name = format!("hapax_demo_{:012x}", fastrand::u64(..1 << 48));
            return Ok(Ground::Schema { url: place.in_schema(&name), name });
        }
        let Some(file) = &self.file else { return Ok(Ground::File(folder.path().join("demo.db"))) };
        if file.exists() {
            let what = format!("--file: {} is there already", file.display());
            return Err(Failure::usage(what, "name a new file; the demo judges only what it made itself"));
        }
        Ok(Ground::File(file.clone()))
    }
}

/// The longest that the demo may take.
fn limit(jobs: u64) -> Duration {
    Duration::from_mins(1) + Duration::from_millis(20 * jobs)
}

/// Waits for Ctrl-C or a polite end.
async fn interrupted() {
    let (Ok(mut int), Ok(mut term)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) else {
        say("note: Ctrl-C cannot be caught; the instances end with this process all the same");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = int.recv() => {}
        _ = term.recv() => {}
    }
}

/// Trouble of this machine, not of what is shown.
fn broken(what: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Exit::Internal, format!("the demo could not go on: {what}: {error}"))
}
