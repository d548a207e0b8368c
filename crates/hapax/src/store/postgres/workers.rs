//! Instances and their leases, and the duties of those who live for those who do not.

use async_trait::async_trait;
use sqlx::Result;

use super::rows::{self, at_most_one, change, count, fetch};
use super::slice::Slice;
use super::step::Step;
use super::{PostgresStore, jobs};
use crate::clock::Micros;
use crate::error;
use crate::id::{InstanceId, JobId};
use crate::model::{EVIDENCE_KEEP_MS, Heartbeat, NewInstance, OwnedRun, Pruned, Reaped, Refusal, RunRef};
use crate::store::Workers;

#[async_trait]
impl Workers for PostgresStore {
    async fn register(&self, instance: NewInstance) -> error::Result<()> {
        Ok(self.write(move |step| Box::pin(async move { register(step, &instance).await })).await??)
    }

    async fn heartbeat(&self, instance: InstanceId, started: Vec<RunRef>) -> error::Result<Heartbeat> {
        self.write(move |step| Box::pin(async move { heartbeat(step, (instance, &started)).await })).await
    }

    async fn leave(&self, instance: InstanceId) -> error::Result<Reaped> {
        self.write(move |step| Box::pin(async move { leave(step, instance).await })).await
    }

    async fn reap(&self, by: InstanceId, limit: u32) -> error::Result<Reaped> {
        Ok(self.write(move |step| Box::pin(async move { reap(step, (by, limit)).await })).await??)
    }

    async fn prune(&self, limit: u32) -> error::Result<Pruned> {
        self.write(move |step| Box::pin(async move { prune(step, limit).await })).await
    }
}

async fn register(step: &mut Step<'_>, instance: &NewInstance) -> Result<std::result::Result<(), Refusal>> {
    let mut slice = Slice::of(step);
    slice.instance(instance.id).await?;
    slice.decide(|model, now| model.register(now, instance)).await
}

/// From when on a live instance may reap; nothing if it is not live. It stays live until the end of the transaction.
pub(super) async fn live(step: &mut Step<'_>, id: InstanceId) -> Result<Option<Micros>> {
    let (text, lease_now) = (include_str!("sql/instances/is_live.sql"), step.now().lease);
    Ok(at_most_one(fetch!(step, text, rows::only, id = id, lease_now = lease_now)))
}

async fn heartbeat(step: &mut Step<'_>, (id, started): (InstanceId, &[RunRef])) -> Result<Heartbeat> {
    let now = step.now();
    let text = include_str!("sql/instances/renew.sql");
    if change!(step, text, wall = now.wall, lease_now = now.lease, id = id) == 0 {
        // Dead or unknown: the law says so, and keeps the evidence.
        let mut slice = Slice::of(step);
        slice.instance(id).await?;
        return slice.decide(|model, now| model.heartbeat(now, id, started)).await;
    }
    // One that is not current, or not its own, it will learn of from what belongs to it.
    jobs::record_starts(step, (started, Some(id))).await?;
    Ok(Heartbeat::Alive { owned: owned(step, id).await? })
}

/// Every run that belongs to an instance.
async fn owned(step: &mut Step<'_>, id: InstanceId) -> Result<Vec<OwnedRun>> {
    Ok(fetch!(step, include_str!("sql/jobs/of_owner.sql"), rows::owned, instance = id))
}

async fn leave(step: &mut Step<'_>, id: InstanceId) -> Result<Reaped> {
    let mut slice = Slice::of(step);
    slice.instance(id).await?;
    let owned = owned(slice.step(), id).await?;
    slice.jobs(owned.iter().map(|owned| owned.run.job).collect()).await?;
    slice.decide(|model, now| model.leave(now, id)).await
}

/// Chosen, locked, checked again and taken back in one transaction: nothing can finish in between.
async fn reap(step: &mut Step<'_>, (by, limit): (InstanceId, u32)) -> Result<std::result::Result<Reaped, Refusal>> {
    let lease_now = step.now().lease;
    match live(step, by).await? {
        None => return Ok(Err(Refusal::NotLive { instance: by })),
        Some(reap_from) if reap_from > lease_now => return Ok(Ok(Reaped::default())),
        Some(_) => {}
    }
    let text = include_str!("sql/instances/lock_expired.sql");
    let expired: Vec<InstanceId> = fetch!(step, text, rows::only::<InstanceId>, lease_now = lease_now);
    let text = include_str!("sql/jobs/reapable.sql");
    let due: Vec<JobId> =
        fetch!(step, text, rows::only, lease_now = lease_now, expired = &expired, limit = i64::from(limit));
    let mut slice = Slice::of(step);
    slice.jobs(due).await?;
    // Last, so that the owner of each of these jobs is among them.
    slice.instances(Some(&expired)).await?;
    slice.decide(|model, now| model.reap(crate::clock::Now { lease: lease_now, ..now }, by, limit)).await
}

async fn prune(step: &mut Step<'_>, limit: u32) -> Result<Pruned> {
    let (now, limit) = (step.now(), i64::from(limit));
    let before = |at: Micros| Micros(at.0.saturating_sub(count(EVIDENCE_KEEP_MS) * 1_000));
    let (cutoff, ran_out) = (before(now.wall), before(now.lease));
    let text = include_str!("sql/jobs/purge.sql");
    let jobs: Vec<JobId> = fetch!(step, text, rows::only, now = now.wall, limit = limit);
    change!(step, include_str!("sql/runs/purge.sql"), jobs = &jobs);
    let mut keys = change!(step, include_str!("sql/keys/purge.sql"), now = now.wall, limit = limit);
    let left = limit.saturating_sub(i64::try_from(keys).unwrap_or(i64::MAX));
    keys += change!(step, include_str!("sql/keys/purge_abandoned.sql"), cutoff = ran_out, limit = left);
    change!(step, include_str!("sql/keys/purge_duplicates.sql"));
    change!(step, include_str!("sql/keys/fold.sql"), limit = limit);
    change!(step, include_str!("sql/counters/fold.sql"));
    change!(step, include_str!("sql/sleepers/purge.sql"));
    let locks = change!(step, include_str!("sql/locks/purge.sql"), cutoff = ran_out, limit = limit);
    let instances = change!(step, include_str!("sql/instances/purge.sql"), cutoff = cutoff, limit = limit);
    let refusals = change!(step, include_str!("sql/refusals/purge.sql"), cutoff = cutoff, limit = limit);
    let count = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    Ok(Pruned {
        jobs: count(jobs.len() as u64),
        keys: count(keys),
        instances: count(instances),
        refusals: count(refusals),
        locks: count(locks),
    })
}

/// How many runs belong to an instance.
pub(super) async fn running(step: &mut Step<'_>, id: InstanceId) -> Result<u64> {
    let text = include_str!("sql/instances/running.sql");
    Ok(at_most_one(fetch!(step, text, rows::total, instance = id)).unwrap_or(0))
}
