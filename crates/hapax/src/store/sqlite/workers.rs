//! Instances and their leases, and the duties of those who live for those who do not.

use async_trait::async_trait;
use rusqlite::{Connection, Result};

use super::rows::{self, at_most_one, change, fetch, most_ms};
use super::slice::Slice;
use super::{SqliteStore, jobs};
use crate::clock::{Micros, Now};
use crate::error;
use crate::id::{InstanceId, JobId};
use crate::model::{EVIDENCE_KEEP_MS, Heartbeat, NewInstance, OwnedRun, Pruned, Reaped, Refusal, RunRef};
use crate::store::Workers;

#[async_trait]
impl Workers for SqliteStore {
    async fn register(&self, instance: NewInstance) -> error::Result<()> {
        let step = move |connection: &Connection, now| {
            Slice::of(connection).instance(instance.id)?.decide(|model| model.register(now, &instance))
        };
        Ok(self.write(step).await??)
    }

    async fn heartbeat(&self, instance: InstanceId, started: Vec<RunRef>) -> error::Result<Heartbeat> {
        self.write(move |connection, now| heartbeat(connection, now, (instance, &started))).await
    }

    async fn leave(&self, instance: InstanceId) -> error::Result<Reaped> {
        self.write(move |connection, now| leave(connection, now, instance)).await
    }

    async fn reap(&self, by: InstanceId, limit: u32) -> error::Result<Reaped> {
        Ok(self.write(move |connection, now| reap(connection, now, (by, limit))).await??)
    }

    async fn prune(&self, limit: u32) -> error::Result<Pruned> {
        self.write(move |connection, now| prune(connection, now, limit)).await
    }
}

/// Whether an instance may claim.
pub(super) fn is_live(connection: &Connection, now: Now, id: InstanceId) -> Result<bool> {
    let text = include_str!("sql/instances/is_live.sql");
    let found = fetch!(connection, text, |row| row.get::<_, bool>(0), id = id, lease_now = now.lease);
    Ok(found.contains(&true))
}

fn heartbeat(connection: &Connection, now: Now, (id, started): (InstanceId, &[RunRef])) -> Result<Heartbeat> {
    let renewed = change!(
        connection,
        include_str!("sql/instances/renew.sql"),
        wall = now.wall,
        lease_now = now.lease,
        most_ms = most_ms(now.lease),
        id = id,
    );
    if renewed == 0 {
        // Dead or unknown: the law says so, and keeps the evidence.
        return Slice::of(connection).instance(id)?.decide(|model| model.heartbeat(now, id, started));
    }
    for run in started {
        // One that is not current, or not its own, it will learn of from what belongs to it.
        jobs::record_start(connection, now, (*run, Some(id)))?;
    }
    Ok(Heartbeat::Alive { owned: owned(connection, id)? })
}

/// Every run that belongs to an instance.
fn owned(connection: &Connection, id: InstanceId) -> Result<Vec<OwnedRun>> {
    let read = |row: &rusqlite::Row<'_>| {
        Ok(OwnedRun {
            run: RunRef { job: row.get(0)?, fence: row.get(1)? },
            claim: row.get(2)?,
            cancel_requested: row.get(3)?,
        })
    };
    Ok(fetch!(connection, include_str!("sql/jobs/of_owner.sql"), read, instance = id))
}

fn leave(connection: &Connection, now: Now, id: InstanceId) -> Result<Reaped> {
    let mut slice = Slice::of(connection);
    slice.instance(id)?;
    for owned in owned(connection, id)? {
        slice.job(owned.run.job)?;
    }
    slice.decide(|model| model.leave(now, id))
}

/// Chosen, checked again and taken back under one write lock: nothing can finish in between.
fn reap(
    connection: &Connection,
    now: Now,
    (by, limit): (InstanceId, u32),
) -> Result<std::result::Result<Reaped, Refusal>> {
    let mut slice = Slice::of(connection);
    slice.instances()?;
    // An instance that may not reap need not be shown the jobs.
    if slice.ask(|model| model.may_reap(now, by)) == Ok(true) {
        let text = include_str!("sql/jobs/reapable.sql");
        let due: Vec<JobId> = fetch!(connection, text, |row| row.get(0), lease_now = now.lease, limit = limit);
        for id in due {
            slice.job(id)?;
        }
    }
    slice.decide(|model| model.reap(now, by, limit))
}

fn prune(connection: &Connection, now: Now, limit: u32) -> Result<Pruned> {
    let cutoff = Micros(now.wall.0.saturating_sub(rows::count(EVIDENCE_KEEP_MS) * 1_000));
    let text = include_str!("sql/jobs/purge.sql");
    let jobs: Vec<JobId> = fetch!(connection, text, |row| row.get(0), now = now.wall, limit = limit);
    for id in &jobs {
        change!(connection, include_str!("sql/runs/purge.sql"), job = *id);
    }
    let mut keys = change!(connection, include_str!("sql/keys/purge.sql"), now = now.wall, limit = limit);
    let ran_out = Micros(now.lease.0.saturating_sub(rows::count(EVIDENCE_KEEP_MS) * 1_000));
    let left = limit.saturating_sub(u32::try_from(keys).unwrap_or(u32::MAX));
    keys += change!(connection, include_str!("sql/keys/purge_abandoned.sql"), cutoff = ran_out, limit = left);
    let locks = change!(connection, include_str!("sql/locks/purge.sql"), cutoff = ran_out, limit = limit);
    let instances = change!(connection, include_str!("sql/instances/purge.sql"), cutoff = cutoff, limit = limit);
    let refusals = change!(connection, include_str!("sql/refusals/purge.sql"), cutoff = cutoff, limit = limit);
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Ok(Pruned {
        jobs: count(jobs.len()),
        keys: count(keys),
        instances: count(instances),
        refusals: count(refusals),
        locks: count(locks),
    })
}

/// How many runs belong to an instance.
pub(super) fn running(connection: &Connection, id: InstanceId) -> Result<u64> {
    let text = include_str!("sql/instances/running.sql");
    Ok(at_most_one(fetch!(connection, text, rows::total, instance = id)).unwrap_or(0))
}
