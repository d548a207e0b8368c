//! `hapax job get`: all that is known about one job.

use clap::Args;
use hapax::JobId;
use hapax::model::{JobRecord, KeyRecord, PAGE_MAX, RefusalRecord, RunRecord};
use serde::Serialize;
use serde_json::Value;

use super::super::Global;
use super::view;
use crate::exit::{Answer, Exit, Failure};
use crate::output::{self, Output, Table, cut, visible};
use crate::time;

/// How much of a payload, result or error is shown in text.
const TEXT_CHARS_MAX: usize = 2_000;

/// Shows one job: where it stands, how it got there, its runs, its refused writes, its once key
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hapax job get 01980d6e-3c5a-7cc0-8d3e-5f2b6a1c9e01\n  \
    hapax job get 01980d6e-3c5a-7cc0-8d3e-5f2b6a1c9e01 -o json | jq .payload")]
pub(crate) struct Get {
    /// Which job
    id: JobId,
}

/// What was found.
struct Found {
    job: JobRecord,
    runs: Vec<RunRecord>,
    key: Option<KeyRecord>,
    refusals: Vec<RefusalRecord>,
}

impl Get {
    /// Does it.
    pub(crate) async fn run(self, global: &Global) -> Answer {
        let (hapax, output) = global.open().await?;
        let Some((job, runs)) = hapax.job(self.id).await? else {
            let what = format!("job {} is not known", self.id);
            let mend = "it was never enqueued in this store, or was deleted after its retention; see `hapax job list`";
            return Err(Failure::new(Exit::NotFound, what).mend(mend));
        };
        let key = match &job.once {
            Some(key) => hapax.store().find_once(key.clone()).await?,
            None => None,
        };
        let mut refusals = Vec::new();
        if job.refused > 0 {
            let identity = job.id.to_string();
            refusals = hapax.refusals(PAGE_MAX).await?;
            refusals.retain(|refusal| refusal.identity.contains(&identity));
        }
        let found = Found { job, runs, key, refusals };
        if output.is_json() {
            found.json(&output)?;
        } else {
            output::data(&found.text(&output))?;
        }
        Ok(Exit::Ok)
    }
}

impl Found {
    fn json(&self, _output: &Output) -> Result<(), Failure> {
        #[derive(Serialize)]
        struct View<J> {
            job: J,
            runs: Vec<Value>,
            key: Option<Value>,
            refused_writes: Vec<Value>,
        }
        output::json(&View {
            job: view::job(&self.job),
            runs: self.runs.iter().map(view::run).collect(),
            key: self.key.as_ref().map(view::key),
            refused_writes: self.refusals.iter().map(view::refusal).collect(),
        })
    }

    fn text(&self, output: &Output) -> String {
        let mut parts = vec![self.facts(), self.timeline(output)];
        if !self.runs.is_empty() {
            parts.push(self.run_table(output));
        }
        if self.job.refused > 0 {
            parts.push(self.refusal_table(output));
        }
        parts.join("\n\n")
    }

    fn facts(&self) -> String {
        let job = &self.job;
        let mut facts = Facts::default();
        facts.add("job", job.id.to_string());
        facts.add("state", job.state.to_string());
        facts.add("kind", job.kind.to_string());
        facts.add("queue", job.queue.to_string());
        if job.priority != 0 {
            facts.add("priority", job.priority.to_string());
        }
        facts.add("guarantee", job.guarantee.as_str().to_owned());
        let attempts = format!("{} of {}", job.failures, job.retry.max_attempts);
        facts.add("failures", attempts);
        facts.add("run timeout", time::length(job.run_timeout_ms));
        if let Some(fence) = job.fence {
            facts.add("fence", fence.to_string());
        }
        facts.add_if("progress", job.progress.as_deref());
        facts.add_if("reason", job.reason.as_deref());
        facts.add_if("result", job.result.as_deref());
        facts.add("payload", job.payload.as_str().to_owned());
        facts.to_string()
    }

    /// What happened when, in the order of time.
    fn timeline(&self, output: &Output) -> String {
        let job = &self.job;
        let mut facts = Facts::default();
        facts.add("enqueued", output.full_time(job.enqueued_at));
        facts.add("due", output.full_time(job.due_at));
        if let Some(claim) = &job.claim {
            facts.add("claimed", format!("{} by instance {}", output.full_time(claim.at), claim.instance));
            let started = claim.started_at.map_or_else(|| "not known yet".to_owned(), |at| output.full_time(at));
            facts.add("started", started);
            if job.cancel_requested {
                facts.add("asked", "to stop".to_owned());
            }
        }
        if let Some(at) = job.finished_at {
            facts.add(job.state.as_str(), output.full_time(at));
        }
        if let Some(at) = job.purge_at {
            facts.add("kept until", output.full_time(at));
        }
        if let Some(key) = &self.key {
            let until = match key.keep_until {
                Some(until) => format!(" until {}", output.full_time(until)),
                None => String::new(),
            };
            let text = format!("{} {}{until}", key.key.value(), key.state.as_str());
            facts.add("once key", text);
            if key.refused > 0 {
                let last =
                    key.last_refused_at.map_or_else(String::new, |at| format!(", last {}", output.full_time(at)));
                facts.add("duplicates", format!("{} refused{last}", key.refused));
            }
        }
        facts.to_string()
    }

    fn run_table(&self, output: &Output) -> String {
        let mut table = Table::new(&[">RUN", ">FENCE", "INSTANCE", "STARTED", "ENDED", "OUTCOME", "DETAIL"]);
        for run in &self.runs {
            table.row([
                run.number.to_string(),
                run.fence.to_string(),
                run.instance.to_string(),
                run.started_at.map_or_else(|| "-".to_owned(), |at| output.time(at)),
                output.time(run.ended_at),
                run.outcome.as_str().to_owned(),
                cut(run.detail.as_deref().unwrap_or_default(), 120),
            ]);
        }
        format!("Runs that ended without taking effect\n{table}")
    }

    fn refusal_table(&self, output: &Output) -> String {
        let mut table = Table::new(&["REFUSED", "WRITE", ">FENCE"]);
        for refusal in &self.refusals {
            let fence = refusal.fence.map_or_else(|| "-".to_owned(), |fence| fence.to_string());
            table.row([output.time(refusal.at), refusal.verb.clone(), fence]);
        }
        format!("Late writes refused: {}\n{table}", self.job.refused)
    }
}

/// Names and values, one pair a line.
#[derive(Default)]
struct Facts(Vec<(String, String)>);

impl Facts {
    fn add(&mut self, name: &str, value: String) {
        self.0.push((name.replace('_', " "), value));
    }

    fn add_if(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.add(name, value.to_owned());
        }
    }
}

impl std::fmt::Display for Facts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lines: Vec<String> =
            self.0.iter().map(|(name, value)| format!("{name:<12} {}", visible(&cut(value, TEXT_CHARS_MAX)))).collect();
        f.write_str(&lines.join("\n"))
    }
}
