//! What people see. Reads take no lock and never scan a table for a count.

use std::collections::BTreeSet;

use async_trait::async_trait;
use sqlx::Result;

use super::rows::{self, at_most_one, count, fetch};
use super::slice::{self, Slice};
use super::step::Step;
use super::{PostgresStore, migrate, probe, workers};
use crate::clock::Micros;
use crate::error;
use crate::id::{JobId, Name};
use crate::model::{
    COUNT_MAX, Counters, Instance, InstanceView, JobFilter, JobRecord, JobState, PAGE_MAX, QueueView, RefusalRecord,
    RunRecord,
};
use crate::store::{Health, Inspect, Scope, Store};

#[async_trait]
impl Inspect for PostgresStore {
    async fn job(&self, job: JobId) -> error::Result<Option<(JobRecord, Vec<RunRecord>)>> {
        self.read(move |step| {
            Box::pin(async move {
                let Some(record) = at_most_one(slice::jobs(step, vec![job]).await?) else { return Ok(None) };
                let runs = fetch!(step, include_str!("sql/runs/of_job.sql"), rows::run, job = job);
                Ok(Some((record, runs)))
            })
        })
        .await
    }

    async fn list(&self, filter: JobFilter) -> error::Result<Vec<JobRecord>> {
        self.read(move |step| Box::pin(async move { list(step, &filter).await })).await
    }

    async fn queues(&self) -> error::Result<Vec<QueueView>> {
        self.read(|step| Box::pin(queues(step))).await
    }

    async fn instances(&self) -> error::Result<Vec<InstanceView>> {
        self.read(|step| Box::pin(instances(step))).await
    }

    async fn refusals(&self, limit: u32) -> error::Result<Vec<RefusalRecord>> {
        let limit = i64::from(limit.clamp(1, PAGE_MAX));
        self.read(move |step| {
            let text = include_str!("sql/refusals/list.sql");
            Box::pin(async move { Ok(fetch!(step, text, rows::refusal, limit = limit)) })
        })
        .await
    }

    async fn counters(&self) -> error::Result<Counters> {
        self.read(|step| {
            let text = include_str!("sql/counters/find.sql");
            Box::pin(async move { Ok(at_most_one(fetch!(step, text, rows::counters)).unwrap_or_default()) })
        })
        .await
    }

    async fn now(&self) -> error::Result<Micros> {
        self.read(|step| Box::pin(async move { Ok(step.now().wall) })).await
    }

    async fn health(&self) -> error::Result<Health> {
        let (address, pooled) = (self.address(), self.is_pooled());
        self.read(move |step| {
            Box::pin(async move {
                let meta = migrate::meta(step).await?;
                Ok(Health {
                    store: "postgres",
                    address,
                    engine: probe::engine(step).await?,
                    version: meta.map_or(0, |meta| meta.version),
                    scope: Scope::Fleet,
                    settings: probe::settings(step, pooled).await?,
                })
            })
        })
        .await
    }
}

/// A page of jobs, newest id first. The index holds jobs by queue and state, so a filter reads the newest of each of
/// the queues and states concerned, and merges them.
async fn list(step: &mut Step<'_>, filter: &JobFilter) -> Result<Vec<JobRecord>> {
    let limit = filter.limit.clamp(1, PAGE_MAX);
    let mut ids: Vec<JobId> = Vec::new();
    if (&filter.queue, &filter.kind, filter.state) == (&None, &None, None) {
        let (text, before) = (include_str!("sql/inspect/newest.sql"), filter.before);
        ids = fetch!(step, text, rows::only, before = before, limit = i64::from(limit));
    } else {
        let queues = match &filter.queue {
            Some(queue) => vec![queue.clone()],
            None => queues_of_jobs(step).await?,
        };
        let states = filter.state.map_or(JobState::ALL.to_vec(), |state| vec![state]);
        for queue in &queues {
            for state in &states {
                ids.extend(page(step, (queue, *state), filter).await?);
            }
        }
    }
    ids.sort_unstable_by(|a, b| b.cmp(a));
    ids.truncate(limit as usize);
    let mut jobs = slice::jobs(step, ids).await?;
    jobs.reverse();
    Ok(jobs)
}

async fn page(step: &mut Step<'_>, (queue, state): (&Name, JobState), filter: &JobFilter) -> Result<Vec<JobId>> {
    Ok(fetch!(
        step,
        include_str!("sql/inspect/page.sql"),
        rows::only,
        queue = queue.as_str(),
        state = state.as_str(),
        before = filter.before,
        kind = filter.kind.as_ref().map(Name::as_str),
        limit = i64::from(filter.limit.clamp(1, PAGE_MAX)),
    ))
}

async fn queues_of_jobs(step: &mut Step<'_>) -> Result<Vec<Name>> {
    Ok(fetch!(step, include_str!("sql/inspect/queues.sql"), rows::name))
}

async fn queues(step: &mut Step<'_>) -> Result<Vec<QueueView>> {
    let mut pauses = fetch!(step, include_str!("sql/pauses/list.sql"), rows::pause);
    let live = live(step).await?;
    let mut names: BTreeSet<Name> = queues_of_jobs(step).await?.into_iter().collect();
    names.extend(pauses.iter().map(|(queue, _)| queue.clone()));
    names.extend(live.iter().flat_map(|instance| instance.new.queues.iter().cloned()));
    let known: BTreeSet<&Name> = live.iter().flat_map(|instance| &instance.new.kinds).collect();
    let mut views = Vec::with_capacity(names.len());
    for queue in names {
        let pause = pauses.iter().position(|(paused, _)| *paused == queue).map(|at| pauses.swap_remove(at).1);
        let (text, limit) = (include_str!("sql/inspect/ready_kinds.sql"), count(COUNT_MAX));
        let kinds = fetch!(step, text, rows::name, queue = queue.as_str(), limit = limit);
        let unknown: BTreeSet<Name> = kinds.into_iter().filter(|kind| !known.contains(kind)).collect();
        let mut counts = Vec::with_capacity(JobState::ALL.len());
        for state in JobState::ALL {
            counts.push((state, counted(step, &queue, state).await?));
        }
        views.push(QueueView { counts, pause, unknown_kinds: unknown.into_iter().collect(), queue });
    }
    Ok(views)
}

async fn counted(step: &mut Step<'_>, queue: &Name, state: JobState) -> Result<u64> {
    let (text, limit) = (include_str!("sql/inspect/count.sql"), count(COUNT_MAX));
    let found = fetch!(step, text, rows::total, queue = queue.as_str(), state = state.as_str(), limit = limit);
    Ok(at_most_one(found).unwrap_or(0))
}

async fn live(step: &mut Step<'_>) -> Result<Vec<Instance>> {
    let mut slice = Slice::of(step);
    let all = slice.instances(None).await?.ask(|model| model.instances.clone());
    Ok(all.into_values().filter(|instance| instance.live).collect())
}

async fn instances(step: &mut Step<'_>) -> Result<Vec<InstanceView>> {
    let now = step.now();
    let mut views = Slice::of(step).instances(None).await?.ask(|model| model.instances(now));
    for view in &mut views {
        // The slice holds no jobs; these are counted where they are.
        view.running = workers::running(step, view.id).await?;
    }
    Ok(views)
}
