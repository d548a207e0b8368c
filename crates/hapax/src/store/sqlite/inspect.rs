//! What people see. Reads take no lock and never scan a table for a count.

use std::collections::BTreeSet;

use async_trait::async_trait;
use rusqlite::{Connection, Result, Row};

use super::rows::{self, at_most_one, count, fetch};
use super::slice::Slice;
use super::{SqliteStore, jobs, migrate, probe, slice, workers};
use crate::clock::Now;
use crate::error;
use crate::id::{JobId, Name};
use crate::model::{
    COUNT_MAX, Counters, Instance, InstanceView, JobFilter, JobRecord, JobState, PAGE_MAX, Pause, QueueView,
    RefusalRecord, RunRecord,
};
use crate::store::{Health, Inspect, Scope, Store};

#[async_trait]
impl Inspect for SqliteStore {
    async fn job(&self, job: JobId) -> error::Result<Option<(JobRecord, Vec<RunRecord>)>> {
        let look = move |connection: &Connection, _| {
            let Some(record) = slice::job(connection, job)? else { return Ok(None) };
            let runs = fetch!(connection, include_str!("sql/runs/of_job.sql"), rows::run, job = job);
            Ok(Some((record, runs)))
        };
        self.read(look).await
    }

    async fn list(&self, filter: JobFilter) -> error::Result<Vec<JobRecord>> {
        self.read(move |connection, _| list(connection, &filter)).await
    }

    async fn queues(&self) -> error::Result<Vec<QueueView>> {
        self.read(|connection, _| queues(connection)).await
    }

    async fn instances(&self) -> error::Result<Vec<InstanceView>> {
        self.read(instances).await
    }

    async fn refusals(&self, limit: u32) -> error::Result<Vec<RefusalRecord>> {
        let limit = limit.clamp(1, PAGE_MAX);
        let text = include_str!("sql/refusals/list.sql");
        self.read(move |connection, _| Ok(fetch!(connection, text, rows::refusal, limit = limit))).await
    }

    async fn counters(&self) -> error::Result<Counters> {
        let text = include_str!("sql/counters/find.sql");
        self.read(move |connection, _| Ok(at_most_one(fetch!(connection, text, rows::counters)).unwrap_or_default()))
            .await
    }

    async fn health(&self) -> error::Result<Health> {
        let address = self.address();
        // Asked of the writing connection outside of any transaction, so that it answers while others hold the lock.
        let look = |core: &super::Core| {
            let settings = probe::settings(core);
            let meta = migrate::meta(&core.connection);
            let told = settings.and_then(|settings| Ok((settings, meta?)));
            told.map_err(|cause| super::fault::before_commit(&core.file, cause))
        };
        let (settings, meta) = self.0.writer.alone(look).await?;
        Ok(Health {
            store: "sqlite",
            address,
            engine: format!("SQLite {}", rusqlite::version()),
            version: meta.map_or(0, |meta| meta.version),
            scope: Scope::Host,
            settings,
        })
    }
}

/// A page of jobs, newest id first. The index holds jobs by queue and state, so a filter reads the newest of each of
/// the queues and states concerned, and merges them.
fn list(connection: &Connection, filter: &JobFilter) -> Result<Vec<JobRecord>> {
    let limit = filter.limit.clamp(1, PAGE_MAX);
    // Longer than any id, hence after all of them.
    let before = filter.before.map_or(vec![0xFF; 17], |id| id.as_uuid().as_bytes().to_vec());
    let id = |row: &Row<'_>| row.get::<_, JobId>(0);
    if (&filter.queue, &filter.kind, filter.state) == (&None, &None, None) {
        let newest = fetch!(connection, include_str!("sql/inspect/newest.sql"), id, before = before, limit = limit);
        return jobs::jobs_of(connection, newest);
    }
    let queues = match &filter.queue {
        Some(queue) => vec![queue.clone()],
        None => queues_of_jobs(connection)?,
    };
    let states = filter.state.map_or(JobState::ALL.to_vec(), |state| vec![state]);
    let mut ids: Vec<JobId> = Vec::new();
    for queue in &queues {
        for state in &states {
            ids.extend(fetch!(
                connection,
                include_str!("sql/inspect/page.sql"),
                id,
                queue = queue,
                state = state.as_str(),
                before = before.as_slice(),
                kind = filter.kind.as_ref(),
                limit = limit,
            ));
        }
    }
    ids.sort_unstable_by(|a, b| b.cmp(a));
    ids.truncate(limit as usize);
    jobs::jobs_of(connection, ids)
}

fn queues_of_jobs(connection: &Connection) -> Result<Vec<Name>> {
    Ok(fetch!(connection, include_str!("sql/inspect/queues.sql"), rows::name))
}

fn queues(connection: &Connection) -> Result<Vec<QueueView>> {
    let read = |row: &Row<'_>| Ok((rows::name(row)?, Pause { reason: row.get(1)?, since: row.get(2)? }));
    let mut pauses = fetch!(connection, include_str!("sql/pauses/list.sql"), read);
    let live = live(connection)?;
    let mut names: BTreeSet<Name> = queues_of_jobs(connection)?.into_iter().collect();
    names.extend(pauses.iter().map(|(queue, _)| queue.clone()));
    names.extend(live.iter().flat_map(|instance| instance.new.queues.iter().cloned()));
    let known: BTreeSet<&Name> = live.iter().flat_map(|instance| &instance.new.kinds).collect();
    let view = |queue: Name| {
        let pause = pauses.iter().position(|(paused, _)| *paused == queue).map(|at| pauses.swap_remove(at).1);
        let text = include_str!("sql/inspect/ready_kinds.sql");
        let mut kinds: BTreeSet<Name> =
            fetch!(connection, text, rows::name, queue = &queue, limit = count(COUNT_MAX)).into_iter().collect();
        kinds.retain(|kind| !known.contains(kind));
        let counts = JobState::ALL.into_iter().map(|state| counted(connection, &queue, state));
        Ok(QueueView {
            counts: counts.collect::<Result<_>>()?,
            pause,
            unknown_kinds: kinds.into_iter().collect(),
            queue,
        })
    };
    names.into_iter().map(view).collect()
}

fn counted(connection: &Connection, queue: &Name, state: JobState) -> Result<(JobState, u64)> {
    let text = include_str!("sql/inspect/count.sql");
    let found = fetch!(connection, text, rows::total, queue = queue, state = state.as_str(), limit = count(COUNT_MAX));
    Ok((state, at_most_one(found).unwrap_or(0)))
}

fn live(connection: &Connection) -> Result<Vec<Instance>> {
    let all = Slice::of(connection).instances()?.ask(|model| model.instances.clone());
    Ok(all.into_values().filter(|instance| instance.live).collect())
}

fn instances(connection: &Connection, now: Now) -> Result<Vec<InstanceView>> {
    let mut views = Slice::of(connection).instances()?.ask(|model| model.instances(now));
    for view in &mut views {
        // The slice holds no jobs; these are counted where they are.
        view.running = workers::running(connection, view.id)?;
    }
    Ok(views)
}
