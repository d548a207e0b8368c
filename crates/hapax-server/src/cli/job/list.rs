//! `hapax job list`: jobs, newest first, a page at a time.

use clap::Args;
use clap::builder::PossibleValue;
use hapax::model::{JobFilter, JobRecord};
use hapax::{JobId, JobState, Name};
use serde::Serialize;

use super::super::Global;
use super::view;
use crate::exit::{Answer, Exit, Failure};
use crate::output::{self, Output, Table, cut};

/// Lists jobs, newest first
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hapax job list --state parked\n  \
    hapax job list --queue mail --kind send-mail --limit 200 -o json")]
pub(crate) struct List {
    /// Only of this queue
    #[arg(long, value_parser = |text: &str| Name::new("queue", text))]
    queue: Option<Name>,
    /// Only of this kind
    #[arg(long, value_parser = |text: &str| Name::new("kind", text))]
    kind: Option<Name>,
    /// Only in this state
    #[arg(long)]
    state: Option<State>,
    /// Most jobs to show, 1 to 1000
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// Only older ids than this one: the last id of the page before
    #[arg(long, value_name = "ID")]
    before: Option<JobId>,
}

/// A job's state on the command line.
#[derive(Clone, Copy, Debug)]
struct State(JobState);

impl clap::ValueEnum for State {
    fn value_variants<'a>() -> &'a [Self] {
        use JobState as S;
        const ALL: [State; 7] = [
            State(S::Scheduled),
            State(S::Ready),
            State(S::Running),
            State(S::Done),
            State(S::Parked),
            State(S::Cancelled),
            State(S::InDoubt),
        ];
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let value = PossibleValue::new(self.0.as_str());
        Some(if self.0 == JobState::InDoubt { value.alias("in-doubt") } else { value })
    }
}

impl List {
    /// Does it.
    pub(crate) async fn run(self, global: &Global) -> Answer {
        let (hapax, output) = global.open().await?;
        let filter = JobFilter {
            queue: self.queue.clone(),
            kind: self.kind.clone(),
            state: self.state.map(|state| state.0),
            before: self.before,
            limit: self.limit,
        };
        let jobs = hapax.jobs(filter).await?;
        // A full page may be the last one; asking for the next shows it.
        let next = (jobs.len() == self.limit as usize).then(|| jobs.last().map(|job| job.id)).flatten();
        if output.is_json() {
            json(&output, &jobs, next)?;
        } else if jobs.is_empty() {
            output::say(self.nothing());
        } else {
            output::data(&table(&jobs, &output))?;
            if let Some(next) = next {
                output::say(&format!("there may be more: the same command with --before {next}"));
            }
        }
        Ok(Exit::Ok)
    }

    fn nothing(&self) -> &'static str {
        let narrowed = self.queue.is_some() || self.kind.is_some() || self.state.is_some() || self.before.is_some();
        if narrowed {
            "no such jobs; `hapax queue list` counts what there is"
        } else {
            "no jobs yet; `hapax job push KIND '{\"some\":\"payload\"}'` enqueues one"
        }
    }
}

fn json(_output: &Output, jobs: &[JobRecord], next: Option<JobId>) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct View<J> {
        jobs: Vec<J>,
        next_before: Option<JobId>,
    }
    output::json(&View { jobs: jobs.iter().map(view::job).collect(), next_before: next })
}

fn table(jobs: &[JobRecord], output: &Output) -> String {
    let mut table = Table::new(&["JOB", "STATE", "KIND", "QUEUE", "ONCE KEY", "ENQUEUED", "DUE", ">FAILED", "REASON"]);
    for job in jobs {
        let waits = matches!(job.state, JobState::Scheduled | JobState::Ready);
        table.row([
            job.id.to_string(),
            job.state.to_string(),
            cut(job.kind.as_str(), 32),
            cut(job.queue.as_str(), 24),
            job.once.as_ref().map_or_else(|| "-".to_owned(), |key| cut(key.value(), 32)),
            output.time(job.enqueued_at),
            if waits { output.time(job.due_at) } else { "-".to_owned() },
            job.failures.to_string(),
            cut(job.reason.as_deref().unwrap_or_default(), 60),
        ]);
    }
    table.to_string()
}
