//! Enqueue, claim, and what a run may write while it lasts; how runs end is in `runs.rs`.

use std::collections::BTreeSet;

use async_trait::async_trait;
use sqlx::Result;

use super::rows::{self, change, exactly, fetch};
use super::slice::{self, Slice};
use super::step::Step;
use super::{PostgresStore, runs, workers};
use crate::clock::Micros;
use crate::error;
use crate::id::{ClaimId, InstanceId, JobId};
use crate::model::{
    ClaimAnswer, ClaimRequest, EnqueueAnswer, Finish, JobRecord, JobState, Model, NewJob, PROMOTED_MAX, PeekAnswer,
    Refusal, Release, RunRef, Settled, Verdict,
};
use crate::store::Jobs;

#[async_trait]
impl Jobs for PostgresStore {
    async fn enqueue(&self, jobs: Vec<NewJob>) -> error::Result<Vec<EnqueueAnswer>> {
        self.write(move |step| Box::pin(async move { enqueue(step, &jobs).await })).await
    }

    async fn peek(&self, request: ClaimRequest) -> error::Result<PeekAnswer> {
        self.read(move |step| Box::pin(async move { peek(step, &request).await })).await
    }

    async fn claim(&self, request: ClaimRequest) -> error::Result<ClaimAnswer> {
        Ok(self.write(move |step| Box::pin(async move { claim(step, &request).await })).await??)
    }

    async fn start(&self, runs: Vec<RunRef>) -> error::Result<Vec<Settled>> {
        self.write(move |step| Box::pin(async move { start(step, &runs).await })).await
    }

    async fn finish(&self, finishes: Vec<Finish>) -> error::Result<Vec<Settled>> {
        self.write(move |step| Box::pin(async move { runs::finish(step, &finishes).await })).await
    }

    async fn release(&self, instance: InstanceId, what: Release) -> error::Result<Vec<JobId>> {
        self.write(move |step| Box::pin(async move { release(step, (instance, &what)).await })).await
    }

    async fn progress(&self, run: RunRef, text: String) -> error::Result<Settled> {
        self.write(move |step| Box::pin(async move { progress(step, (run, &text)).await })).await
    }

    async fn verdict(&self, runs: Vec<RunRef>) -> error::Result<Vec<Verdict>> {
        // Under the rows' locks: whatever was under way before has either committed or never will.
        self.write(move |step| Box::pin(async move { verdict(step, &runs).await })).await
    }
}

/// Takes jobs, in order; each for itself. Also behind the user's own transactions.
pub(super) async fn enqueue(step: &mut Step<'_>, jobs: &[NewJob]) -> Result<Vec<EnqueueAnswer>> {
    if jobs.iter().any(|job| job.once.is_some()) {
        return Slice::of(step).enqueue(jobs).await;
    }
    // Without a key nothing needs to be read: an id that is there already is found by the insert itself.
    let mut law = Model::new();
    let answers = law.enqueue(step.now(), jobs);
    let made: Vec<&JobRecord> = law.jobs.values().collect();
    rows::insert_jobs(step, &made).await?;
    slice::hint(step, made).await?;
    Ok(answers)
}

async fn peek(step: &mut Step<'_>, request: &ClaimRequest) -> Result<PeekAnswer> {
    let (wall, kinds) = (step.now().wall, rows::list(&request.kinds));
    let queues = rows::list(request.queues.iter().map(|(queue, _)| queue));
    let text = include_str!("sql/jobs/peek_due.sql");
    let due = fetch!(step, text, rows::only::<bool>, queues = queues, kinds = &kinds, now = wall);
    let mut ready = due.contains(&true);
    for (queue, _) in &request.queues {
        if ready {
            break;
        }
        let text = include_str!("sql/jobs/peek_ready.sql");
        ready = fetch!(step, text, rows::only::<bool>, queue = queue.as_str(), kinds = &kinds).contains(&true);
    }
    let next = fetch!(step, include_str!("sql/jobs/peek_next.sql"), rows::only::<Option<Micros>>, now = wall);
    // Rounded up: to wake before the due time would be to wake for nothing.
    let next_due_in_ms = next.into_iter().flatten().next().map(|at| at.ms_since(wall) + 1);
    Ok(PeekAnswer { ready, next_due_in_ms })
}

async fn claim(step: &mut Step<'_>, request: &ClaimRequest) -> Result<std::result::Result<ClaimAnswer, Refusal>> {
    if workers::live(step, request.instance).await?.is_none() {
        return Ok(Err(Refusal::NotLive { instance: request.instance }));
    }
    let earlier = of_claim(step, request.instance, request.claim).await?;
    if !earlier.is_empty() {
        return Ok(Ok(ClaimAnswer { jobs: slice::jobs(step, earlier).await? }));
    }
    let (text, wall) = (include_str!("sql/jobs/promote.sql"), step.now().wall);
    change!(step, text, now = wall, limit = rows::count(PROMOTED_MAX as u64));
    let picked = pick(step, request).await?;
    let jobs = if picked.is_empty() { Vec::new() } else { grant(step, (request, picked)).await? };
    Ok(Ok(ClaimAnswer { jobs }))
}

/// What still belongs to a claim.
async fn of_claim(step: &mut Step<'_>, instance: InstanceId, claim: ClaimId) -> Result<Vec<JobId>> {
    let text = include_str!("sql/jobs/of_claim.sql");
    Ok(fetch!(step, text, rows::only::<JobId>, instance = instance, claim = claim))
}

/// Row keys of the jobs to claim, locked, in the order in which they should run.
async fn pick(step: &mut Step<'_>, request: &ClaimRequest) -> Result<Vec<i64>> {
    let kinds = rows::list(&request.kinds);
    let asked = || request.queues.iter().filter(|(_, limit)| *limit > 0);
    if request.suspect {
        for (queue, _) in asked() {
            let text = include_str!("sql/jobs/pick_suspect.sql");
            let suspect = fetch!(step, text, rows::only::<i64>, queue = queue.as_str(), kinds = &kinds);
            if !suspect.is_empty() {
                return Ok(suspect);
            }
        }
    }
    let mut picked: Vec<i64> = Vec::new();
    let mut seen = BTreeSet::new();
    for (queue, limit) in asked() {
        // A queue that is named twice goes on where it stopped: what it gave before is locked, by this transaction, and
        // comes again.
        let before = u32::from(!seen.insert(queue)) * u32::try_from(picked.len()).unwrap_or(u32::MAX);
        let total = i64::from(before.saturating_add(*limit));
        let text = include_str!("sql/jobs/pick.sql");
        let first = fetch!(step, text, rows::only::<i64>, queue = queue.as_str(), kinds = &kinds, limit = total);
        let fresh: Vec<i64> = first.into_iter().filter(|key| !picked.contains(key)).take(*limit as usize).collect();
        picked.extend(fresh);
    }
    Ok(picked)
}

/// Hands picked jobs to the instance, under one new fence.
async fn grant(step: &mut Step<'_>, (request, picked): (&ClaimRequest, Vec<i64>)) -> Result<Vec<JobRecord>> {
    let (fence, now) = (slice::next_fence(step).await?, step.now());
    let mut claimed = fetch!(
        step,
        include_str!("sql/jobs/claim.sql"),
        rows::job_and_key,
        fence = fence,
        instance = request.instance,
        claim = request.claim,
        wall = now.wall,
        lease_now = now.lease,
        keys = &picked,
    );
    exactly(picked.len(), claimed.len() as u64)?;
    // The statement gives them in any order.
    claimed.sort_by_key(|(key, _)| picked.iter().position(|picked| picked == key));
    Ok(claimed.into_iter().map(|(_, job)| job).collect())
}

async fn start(step: &mut Step<'_>, runs: &[RunRef]) -> Result<Vec<Settled>> {
    slice::lock_in_order(step, runs.iter().map(|run| run.job)).await?;
    let recorded = record_starts(step, (runs, None)).await?;
    let mut answers = Vec::with_capacity(runs.len());
    let mut seen = BTreeSet::new();
    for run in runs {
        if recorded.contains(run) && seen.insert(*run) {
            answers.push(Settled::Counted { state: JobState::Running });
            continue;
        }
        // Started before, or not the current run: the law knows what to answer and what to keep.
        let mut slice = Slice::of(step);
        slice.job(run.job).await?;
        answers.push(slice.decide(|model, now| model.start(now, &[*run]).remove(0)).await?);
    }
    Ok(answers)
}

/// Records the starts of runs that are current and not known to have started; of one instance, if one is given.
pub(super) async fn record_starts(
    step: &mut Step<'_>,
    (runs, owner): (&[RunRef], Option<InstanceId>),
) -> Result<BTreeSet<RunRef>> {
    if runs.is_empty() {
        return Ok(BTreeSet::new());
    }
    let now = step.now();
    Ok(fetch!(
        step,
        include_str!("sql/jobs/start.sql"),
        rows::run_ref,
        ids = runs.iter().map(|run| run.job).collect::<Vec<_>>(),
        wall = now.wall,
        lease_now = now.lease,
        fences = runs.iter().map(|run| run.fence).collect::<Vec<_>>(),
        owner = owner,
    )
    .into_iter()
    .collect())
}

async fn release(step: &mut Step<'_>, (instance, what): (InstanceId, &Release)) -> Result<Vec<JobId>> {
    let ids = match what {
        Release::Claim(claim) => of_claim(step, instance, *claim).await?,
        Release::Runs(runs) => runs.iter().map(|run| run.job).collect(),
    };
    let mut slice = Slice::of(step);
    slice.jobs(ids).await?;
    slice.decide(|model, now| model.release(now, instance, what)).await
}

async fn progress(step: &mut Step<'_>, (run, text): (RunRef, &str)) -> Result<Settled> {
    let statement = include_str!("sql/jobs/progress.sql");
    if change!(step, statement, text = text, id = run.job, fence = run.fence) == 1 {
        return Ok(Settled::Counted { state: JobState::Running });
    }
    let mut slice = Slice::of(step);
    slice.job(run.job).await?;
    slice.decide(|model, now| model.progress(now, run, text)).await
}

async fn verdict(step: &mut Step<'_>, runs: &[RunRef]) -> Result<Vec<Verdict>> {
    let mut slice = Slice::of(step);
    slice.jobs(runs.iter().map(|run| run.job).collect()).await?;
    Ok(slice.ask(|model| model.verdict(runs)))
}
