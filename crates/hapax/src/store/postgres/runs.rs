//! How runs end: by their own finish, or by being taken back.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::Result;

use super::rows::{self, change, count, fetch};
use super::slice::{self, Slice};
use super::step::Step;
use crate::id::{Fingerprint, JobId};
use crate::model::job::KEEP_MS_MIN;
use crate::model::{End, Finish, JobState, RunRef, Settled};

/// The once key of a job that took effect. By its words as they are: the boundary may be one that only a newer program
/// knows.
#[derive(Debug)]
pub(super) struct EndedKey {
    pub(super) boundary: String,
    pub(super) scope: String,
    pub(super) value: String,
    pub(super) job: JobId,
    pub(super) keep_ms: i64,
}

/// Ends runs under their fences; each for itself.
pub(super) async fn finish(step: &mut Step<'_>, finishes: &[Finish]) -> Result<Vec<Settled>> {
    let mut first: BTreeMap<RunRef, Option<&str>> = BTreeMap::new();
    let mut jobs = BTreeSet::new();
    for finish in finishes {
        // Only the first that is asked of a job can count.
        if jobs.insert(finish.run.job)
            && let End::Done { result } = &finish.end
        {
            first.insert(finish.run, result.as_deref());
        }
    }
    if first.len() < finishes.len() {
        slice::lock_in_order(step, jobs.into_iter()).await?;
    }
    let mut done = done(step, &first).await?;
    let mut answers = Vec::with_capacity(finishes.len());
    for finish in finishes {
        answers.push(if done.remove(&finish.run) {
            Settled::Counted { state: JobState::Done }
        } else {
            // Any other end, or a run that is not the current one: rarer, and the law's to decide.
            let mut slice = Slice::of(step);
            slice.job(finish.run.job).await?;
            slice.decide(|model, now| model.finish(now, std::slice::from_ref(finish)).remove(0)).await?
        });
    }
    Ok(answers)
}

/// Ends one run that took effect, as in a group. Gives whether it was the current one; if not, nothing was written and
/// no row is locked: the effect is about to be undone, and the successor may be waiting for it.
pub(super) async fn finish_one(step: &mut Step<'_>, (run, result): (RunRef, Option<&str>)) -> Result<bool> {
    Ok(done(step, &BTreeMap::from([(run, result)])).await?.contains(&run))
}

/// The one end that most runs have: took effect. Gives those that were current.
async fn done(step: &mut Step<'_>, runs: &BTreeMap<RunRef, Option<&str>>) -> Result<BTreeSet<RunRef>> {
    if runs.is_empty() {
        return Ok(BTreeSet::new());
    }
    let wall = step.now().wall;
    let ended: Vec<(RunRef, Option<EndedKey>)> = fetch!(
        step,
        include_str!("sql/runs/done.sql"),
        rows::ended,
        ids = runs.keys().map(|run| run.job).collect::<Vec<_>>(),
        wall = wall,
        keep_ms_min = count(KEEP_MS_MIN),
        fences = runs.keys().map(|run| run.fence).collect::<Vec<_>>(),
        results = runs.values().copied().collect::<Vec<_>>(),
    );
    let (runs, keys): (BTreeSet<RunRef>, Vec<Option<EndedKey>>) = ended.into_iter().unzip();
    end_keys(step, keys.into_iter().flatten().collect()).await?;
    Ok(runs)
}

/// The keys of jobs that took effect are refused from now on.
async fn end_keys(step: &mut Step<'_>, keys: Vec<EndedKey>) -> Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let (mut boundaries, mut scopes, mut hashes, mut jobs, mut keep_ms) = (vec![], vec![], vec![], vec![], vec![]);
    for key in keys {
        boundaries.push(key.boundary);
        scopes.push(key.scope);
        hashes.push(Fingerprint::of(key.value.as_bytes()).as_bytes().to_vec());
        jobs.push(key.job);
        keep_ms.push(key.keep_ms);
    }
    // In their one order, so that no two wait for each other.
    let text = include_str!("sql/keys/lock_to_end.sql");
    fetch!(step, text, |_| Ok(()), boundaries = &boundaries, scopes = &scopes, hashes = &hashes);
    let wall = step.now().wall;
    change!(
        step,
        include_str!("sql/keys/done_with_job.sql"),
        wall = wall,
        boundaries = boundaries,
        scopes = scopes,
        hashes = hashes,
        jobs = jobs,
        keep_ms = keep_ms,
    );
    Ok(())
}
