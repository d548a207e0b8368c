//! Enqueue, claim, and what a run may write while it lasts; how runs end is in `runs.rs`.

use std::collections::BTreeMap;

use async_trait::async_trait;
use rusqlite::{Connection, Result};

use super::rows::{self, at_most_one, change, fetch, most_ms};
use super::slice::{self, Slice};
use super::{SqliteStore, runs, workers};
use crate::clock::{Micros, Now};
use crate::error;
use crate::id::{ClaimId, Fence, InstanceId, JobId, Name};
use crate::model::{
    ClaimAnswer, ClaimRequest, EnqueueAnswer, Finish, JobRecord, JobState, Model, NewJob, PROMOTED_MAX, PeekAnswer,
    Refusal, Release, RunRef, Settled, Verdict,
};
use crate::store::Jobs;

#[async_trait]
impl Jobs for SqliteStore {
    async fn enqueue(&self, jobs: Vec<NewJob>) -> error::Result<Vec<EnqueueAnswer>> {
        self.write(move |connection, now| enqueue(connection, now, &jobs)).await
    }

    async fn peek(&self, request: ClaimRequest) -> error::Result<PeekAnswer> {
        self.read(move |connection, now| peek(connection, now, &request)).await
    }

    async fn claim(&self, request: ClaimRequest) -> error::Result<ClaimAnswer> {
        Ok(self.write(move |connection, now| claim(connection, now, &request)).await??)
    }

    async fn start(&self, runs: Vec<RunRef>) -> error::Result<Vec<Settled>> {
        let step = move |connection: &Connection, now| runs.iter().map(|run| start(connection, now, *run)).collect();
        self.write(step).await
    }

    async fn finish(&self, finishes: Vec<Finish>) -> error::Result<Vec<Settled>> {
        self.write(move |connection, now| runs::finish(connection, now, &finishes)).await
    }

    async fn release(&self, instance: InstanceId, what: Release) -> error::Result<Vec<JobId>> {
        self.write(move |connection, now| release(connection, now, (instance, &what))).await
    }

    async fn progress(&self, run: RunRef, text: String) -> error::Result<Settled> {
        self.write(move |connection, now| progress(connection, now, (run, &text))).await
    }

    async fn verdict(&self, runs: Vec<RunRef>) -> error::Result<Vec<Verdict>> {
        // On the writing thread, in a transaction that holds the write lock: whatever was under way before has either
        // committed or never will.
        self.write(move |connection, _| verdict(connection, &runs)).await
    }
}

/// Takes jobs, in order; each for itself. Also behind the user's own transactions.
pub(super) fn enqueue(connection: &Connection, now: Now, jobs: &[NewJob]) -> Result<Vec<EnqueueAnswer>> {
    jobs.iter().map(|job| enqueue_one(connection, now, job)).collect()
}

fn enqueue_one(connection: &Connection, now: Now, job: &NewJob) -> Result<EnqueueAnswer> {
    if let Some(once) = &job.once {
        return Slice::of(connection).job(job.id)?.key(&once.key)?.decide(|model| enqueue_in(model, now, job));
    }
    // Without a key nothing needs to be read: an id that is there already is found by the insert itself.
    let mut law = Model::new();
    let answer = enqueue_in(&mut law, now, job);
    for made in law.jobs.values() {
        rows::insert_job(connection, made)?;
    }
    Ok(answer)
}

fn enqueue_in(model: &mut Model, now: Now, job: &NewJob) -> EnqueueAnswer {
    model.enqueue(now, std::slice::from_ref(job)).remove(0)
}

fn peek(connection: &Connection, now: Now, request: &ClaimRequest) -> Result<PeekAnswer> {
    let kinds = rows::list(&request.kinds);
    let yes = |row: &rusqlite::Row<'_>| row.get::<_, bool>(0);
    let queues = rows::list(request.queues.iter().map(|(queue, _)| queue));
    let text = include_str!("sql/jobs/peek_due.sql");
    let mut ready = fetch!(connection, text, yes, now = now.wall, queues = queues, kinds = &kinds).contains(&true);
    for (queue, _) in &request.queues {
        let text = include_str!("sql/jobs/peek_ready.sql");
        ready = ready || fetch!(connection, text, yes, queue = queue, kinds = &kinds).contains(&true);
    }
    let instant = |row: &rusqlite::Row<'_>| row.get::<_, Option<Micros>>(0);
    let next = at_most_one(fetch!(connection, include_str!("sql/jobs/peek_next.sql"), instant, now = now.wall));
    // Rounded up: to wake before the due time would be to wake for nothing.
    Ok(PeekAnswer { ready, next_due_in_ms: next.flatten().map(|at| at.ms_since(now.wall) + 1) })
}

fn claim(
    connection: &Connection,
    now: Now,
    request: &ClaimRequest,
) -> Result<std::result::Result<ClaimAnswer, Refusal>> {
    if !workers::is_live(connection, now, request.instance)? {
        return Ok(Err(Refusal::NotLive { instance: request.instance }));
    }
    let earlier = of_claim(connection, request.instance, request.claim)?;
    if !earlier.is_empty() {
        return Ok(Ok(ClaimAnswer { jobs: jobs_of(connection, earlier)? }));
    }
    let text = include_str!("sql/jobs/promote.sql");
    change!(connection, text, now = now.wall, limit = rows::count(PROMOTED_MAX as u64));
    let picked = pick(connection, request)?;
    // An empty claim writes nothing, so its commit costs no disk.
    let jobs = if picked.is_empty() { Vec::new() } else { grant(connection, now, (request, &picked))? };
    Ok(Ok(ClaimAnswer { jobs }))
}

/// What still belongs to a claim.
fn of_claim(connection: &Connection, instance: InstanceId, claim: ClaimId) -> Result<Vec<JobId>> {
    let text = include_str!("sql/jobs/of_claim.sql");
    Ok(fetch!(connection, text, |row| row.get(0), instance = instance, claim = claim))
}

/// Jobs by their ids, as far as they are there.
pub(super) fn jobs_of(connection: &Connection, ids: Vec<JobId>) -> Result<Vec<JobRecord>> {
    ids.into_iter().filter_map(|id| slice::job(connection, id).transpose()).collect()
}

/// Row keys of the jobs to claim, in the order in which they should run.
fn pick(connection: &Connection, request: &ClaimRequest) -> Result<Vec<i64>> {
    let kinds = rows::list(&request.kinds);
    let asked = || request.queues.iter().filter(|(_, limit)| *limit > 0);
    if request.suspect {
        for (queue, _) in asked() {
            let text = include_str!("sql/jobs/pick_suspect.sql");
            let suspect = fetch!(connection, text, |row| row.get(0), queue = queue, kinds = &kinds);
            if !suspect.is_empty() {
                return Ok(suspect);
            }
        }
    }
    let mut picked = Vec::new();
    let mut taken: BTreeMap<&Name, u32> = BTreeMap::new();
    for (queue, limit) in asked() {
        // A queue that is named twice goes on where it stopped: its limits add up.
        let before = taken.entry(queue).or_default();
        let total = before.saturating_add(*limit);
        let text = include_str!("sql/jobs/pick.sql");
        let first: Vec<i64> = fetch!(connection, text, |row| row.get(0), queue = queue, kinds = &kinds, limit = total);
        picked.extend(first.into_iter().skip(*before as usize));
        *before = total;
    }
    Ok(picked)
}

/// Hands picked jobs to the instance, under one new fence.
fn grant(connection: &Connection, now: Now, (request, picked): (&ClaimRequest, &[i64])) -> Result<Vec<JobRecord>> {
    let text = include_str!("sql/meta/next_fence.sql");
    let fence: Fence = connection.prepare_cached(text)?.query_row([], |row| row.get(0))?;
    let mut statement = connection.prepare_cached(include_str!("sql/jobs/claim.sql"))?;
    let mut jobs = Vec::with_capacity(picked.len());
    for key in picked {
        rows::bind!(
            statement,
            fence = fence,
            instance = request.instance,
            claim = request.claim,
            wall = now.wall,
            most_ms = most_ms(now.lease),
            lease_now = now.lease,
            key = *key,
        );
        let claimed = rows::read(statement.raw_query(), rows::job)?;
        rows::exactly_one(claimed.len())?;
        jobs.extend(claimed);
    }
    Ok(jobs)
}

fn start(connection: &Connection, now: Now, run: RunRef) -> Result<Settled> {
    if record_start(connection, now, (run, None))? {
        return Ok(Settled::Counted { state: JobState::Running });
    }
    // Started before, or not the current run: the law knows what to answer and what to keep.
    Slice::of(connection).job(run.job)?.decide(|model| model.start(now, &[run]).remove(0))
}

/// Records the start of a run that is current and not known to have started; of one instance, if one is given.
pub(super) fn record_start(
    connection: &Connection,
    now: Now,
    (run, owner): (RunRef, Option<InstanceId>),
) -> Result<bool> {
    let changed = change!(
        connection,
        include_str!("sql/jobs/start.sql"),
        wall = now.wall,
        most_ms = most_ms(now.lease),
        lease_now = now.lease,
        id = run.job,
        fence = run.fence,
        owner = owner,
    );
    Ok(changed == 1)
}

fn release(connection: &Connection, now: Now, (instance, what): (InstanceId, &Release)) -> Result<Vec<JobId>> {
    let mut slice = Slice::of(connection);
    match what {
        Release::Claim(claim) => {
            for id in of_claim(connection, instance, *claim)? {
                slice.job(id)?;
            }
        }
        Release::Runs(runs) => {
            for run in runs {
                slice.job(run.job)?;
            }
        }
    }
    slice.decide(|model| model.release(now, instance, what))
}

fn progress(connection: &Connection, now: Now, (run, text): (RunRef, &str)) -> Result<Settled> {
    let statement = include_str!("sql/jobs/progress.sql");
    if change!(connection, statement, text = text, id = run.job, fence = run.fence) == 1 {
        return Ok(Settled::Counted { state: JobState::Running });
    }
    Slice::of(connection).job(run.job)?.decide(|model| model.progress(now, run, text))
}

fn verdict(connection: &Connection, runs: &[RunRef]) -> Result<Vec<Verdict>> {
    let mut slice = Slice::of(connection);
    for run in runs {
        slice.job(run.job)?;
    }
    Ok(slice.ask(|model| model.verdict(runs)))
}
