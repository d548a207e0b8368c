//! A slice of the file: the rows that one verb touches, lent to the law.
//!
//! Under the file's write lock nothing can change between reading and writing, so this store need not state the law in
//! SQL a second time: it reads the rows, lets the [`Model`] decide, and writes back what the model changed. Each write
//! still carries its guard, and a guard that fails although the lock was held undoes the whole step.
//!
//! The few verbs that are asked for thousands of times a second have statements of their own instead.

use rusqlite::{Connection, Result};

use super::rows::{self, at_most_one, change, count, exactly_one, fetch};
use crate::id::{Fence, InstanceId, JobId, Name, OnceKey};
use crate::model::job::RUNS_KEPT_MAX;
use crate::model::{Counters, Instance, JobRecord, KeyHolder, KeyRecord, Lock, Model, RunRecord};

/// Rows on loan.
#[derive(Debug)]
pub(super) struct Slice<'c> {
    connection: &'c Connection,
    model: Model,
}

impl<'c> Slice<'c> {
    /// An empty slice.
    pub(super) fn of(connection: &'c Connection) -> Self {
        Self { connection, model: Model::new() }
    }

    /// Takes a job and its once key, if they are there.
    pub(super) fn job(&mut self, id: JobId) -> Result<&mut Self> {
        let Some(job) = job(self.connection, id)? else { return Ok(self) };
        if let Some(key) = &job.once {
            self.key(key)?;
        }
        self.model.hold(job);
        Ok(self)
    }

    /// Takes a once key, if it is known.
    pub(super) fn key(&mut self, key: &OnceKey) -> Result<&mut Self> {
        let found = fetch!(
            self.connection,
            include_str!("sql/keys/find.sql"),
            rows::key,
            boundary = key.boundary().as_str(),
            scope = key.scope(),
            hash = key.hash(),
        );
        self.model.keys.extend(at_most_one(found).map(|record| (key.clone(), record)));
        Ok(self)
    }

    /// Takes an instance, if it is known.
    pub(super) fn instance(&mut self, id: InstanceId) -> Result<&mut Self> {
        let found = fetch!(self.connection, include_str!("sql/instances/find.sql"), rows::instance, id = id);
        self.model.instances.extend(found.into_iter().map(|instance| (id, instance)));
        Ok(self)
    }

    /// Takes every instance that is remembered.
    pub(super) fn instances(&mut self) -> Result<&mut Self> {
        let found = fetch!(self.connection, include_str!("sql/instances/list.sql"), rows::instance);
        self.model.instances.extend(found.into_iter().map(|instance| (instance.new.id, instance)));
        Ok(self)
    }

    /// Takes the permits of one lock, or of all.
    pub(super) fn locks(&mut self, name: Option<&Name>) -> Result<&mut Self> {
        let found = if let Some(name) = name {
            fetch!(self.connection, include_str!("sql/locks/of_name.sql"), rows::lock, name = name)
        } else {
            fetch!(self.connection, include_str!("sql/locks/list.sql"), rows::lock)
        };
        self.model.locks.extend(found);
        Ok(self)
    }

    /// Takes the count of fences, for steps that may give one.
    pub(super) fn fences(&mut self) -> Result<&mut Self> {
        self.model.fences = super::migrate::meta(self.connection)?.map_or(0, |meta| meta.fence.as_i64());
        Ok(self)
    }

    /// What the law answers to a question that changes nothing.
    pub(super) fn ask<T>(&self, question: impl FnOnce(&Model) -> T) -> T {
        question(&self.model)
    }

    /// Lets the law decide, and writes back what it changed.
    pub(super) fn decide<T>(&mut self, step: impl FnOnce(&mut Model) -> T) -> Result<T> {
        let was = self.model.clone();
        let answer = step(&mut self.model);
        self.save(&was)?;
        Ok(answer)
    }

    fn save(&self, was: &Model) -> Result<()> {
        let (connection, is) = (self.connection, &self.model);
        for (id, job) in &is.jobs {
            match was.jobs.get(id) {
                None => exactly_one(usize::from(rows::insert_job(connection, job)?))?,
                Some(old) if old != job => save_job(connection, old, job)?,
                Some(_) => {}
            }
        }
        for (id, runs) in &is.runs {
            runs.iter().try_for_each(|run| keep_run(connection, *id, run))?;
        }
        for (key, record) in &is.keys {
            match was.keys.get(key) {
                None => insert_key(connection, record)?,
                Some(old) if old != record => save_key(connection, old, record)?,
                Some(_) => {}
            }
        }
        for (key, old) in was.keys.iter().filter(|(key, _)| !is.keys.contains_key(key)) {
            forget_key(connection, (key, old))?;
        }
        for (id, instance) in &is.instances {
            match was.instances.get(id) {
                None => insert_instance(connection, instance)?,
                Some(old) if old != instance => save_instance(connection, instance)?,
                Some(_) => {}
            }
        }
        self.save_locks(was)?;
        self.save_evidence(was)
    }

    fn save_locks(&self, was: &Model) -> Result<()> {
        for (identity, lock) in &self.model.locks {
            match was.locks.get(identity) {
                None => insert_lock(self.connection, identity, lock)?,
                Some(old) if old != lock => save_lock(self.connection, identity, (old.fence, lock))?,
                Some(_) => {}
            }
        }
        for ((name, slot), old) in was.locks.iter().filter(|(identity, _)| !self.model.locks.contains_key(identity)) {
            let text = include_str!("sql/locks/release.sql");
            exactly_one(change!(self.connection, text, name = name, slot = *slot, was_fence = old.fence))?;
        }
        Ok(())
    }

    fn save_evidence(&self, was: &Model) -> Result<()> {
        for refusal in &self.model.refusals {
            change!(
                self.connection,
                include_str!("sql/refusals/insert.sql"),
                at = refusal.at,
                verb = refusal.verb.as_str(),
                identity = refusal.identity.as_str(),
                fence = refusal.fence,
            );
        }
        if self.model.counters != Counters::default() {
            let Counters { duplicates_refused, writes_refused, takeovers, unstarted_takeovers, deadlines } =
                self.model.counters;
            exactly_one(change!(
                self.connection,
                include_str!("sql/counters/add.sql"),
                duplicates_refused = count(duplicates_refused),
                writes_refused = count(writes_refused),
                takeovers = count(takeovers),
                unstarted_takeovers = count(unstarted_takeovers),
                deadlines = count(deadlines),
            ))?;
        }
        if self.model.fences != was.fences {
            let text = include_str!("sql/meta/set_fence.sql");
            exactly_one(change!(self.connection, text, fence = self.model.fences, was_fence = was.fences))?;
        }
        Ok(())
    }
}

/// One job as it stands.
pub(super) fn job(connection: &Connection, id: JobId) -> Result<Option<JobRecord>> {
    Ok(at_most_one(fetch!(connection, include_str!("sql/jobs/find.sql"), rows::job, id = id)))
}

fn save_job(connection: &Connection, was: &JobRecord, job: &JobRecord) -> Result<()> {
    debug_assert_eq!(
        (&was.payload, &was.once, was.fence, &was.progress),
        (&job.payload, &job.once, job.fence, &job.progress),
        "what the statement does not write has not changed"
    );
    let claim = job.claim.as_ref();
    exactly_one(change!(
        connection,
        include_str!("sql/jobs/save.sql"),
        state = job.state.as_str(),
        due_at = job.due_at,
        ended_fence = job.ended_fence,
        owner = claim.map(|c| c.instance),
        claim = claim.map(|c| c.claim),
        claimed_at = claim.map(|c| c.at),
        started_at = claim.and_then(|c| c.started_at),
        deadline = claim.map(|c| c.deadline),
        runs = job.runs,
        failures = job.failures,
        takeovers = job.takeovers,
        unstarted_takeovers = job.unstarted_takeovers,
        suspect = job.suspect,
        cancel_requested = job.cancel_requested,
        result = job.result.as_deref(),
        reason = job.reason.as_deref(),
        finished_at = job.finished_at,
        purge_at = job.purge_at,
        refused = job.refused,
        id = job.id,
        was_state = was.state.as_str(),
        was_fence = was.fence,
    ))
}

fn keep_run(connection: &Connection, job: JobId, run: &RunRecord) -> Result<()> {
    change!(
        connection,
        include_str!("sql/runs/insert.sql"),
        job = job,
        number = run.number,
        fence = run.fence,
        instance = run.instance,
        started_at = run.started_at,
        ended_at = run.ended_at,
        outcome = run.outcome.as_str(),
        detail = run.detail.as_deref(),
    );
    if run.number > RUNS_KEPT_MAX {
        change!(connection, include_str!("sql/runs/trim.sql"), job = job, number = run.number - RUNS_KEPT_MAX);
    }
    Ok(())
}

const fn holder_of(key: &KeyRecord) -> (Option<JobId>, Option<&Name>) {
    match &key.holder {
        KeyHolder::Job(id) => (Some(*id), None),
        KeyHolder::Claim(name) => (None, Some(name)),
    }
}

fn forget_key(connection: &Connection, (key, was): (&OnceKey, &KeyRecord)) -> Result<()> {
    exactly_one(change!(
        connection,
        include_str!("sql/keys/forget.sql"),
        boundary = key.boundary().as_str(),
        scope = key.scope(),
        hash = key.hash(),
        was_state = was.state.as_str(),
        was_fence = was.fence,
    ))
}

fn insert_key(connection: &Connection, key: &KeyRecord) -> Result<()> {
    let (job, holder) = holder_of(key);
    exactly_one(change!(
        connection,
        include_str!("sql/keys/insert.sql"),
        boundary = key.key.boundary().as_str(),
        scope = key.key.scope(),
        hash = key.key.hash(),
        value = key.key.value(),
        fingerprint = key.fingerprint,
        state = key.state.as_str(),
        job = job,
        holder = holder,
        fence = key.fence,
        acquisition = key.acquisition,
        lease_until = key.lease_until,
        attempts = key.attempts,
        since = key.since,
        ended_at = key.ended_at,
        keep_until = key.keep_until,
        result = key.result.as_deref(),
        refused = key.refused,
        last_refused_at = key.last_refused_at,
    ))
}

fn save_key(connection: &Connection, was: &KeyRecord, key: &KeyRecord) -> Result<()> {
    let (job, holder) = holder_of(key);
    exactly_one(change!(
        connection,
        include_str!("sql/keys/save.sql"),
        fingerprint = key.fingerprint,
        state = key.state.as_str(),
        job = job,
        holder = holder,
        fence = key.fence,
        acquisition = key.acquisition,
        lease_until = key.lease_until,
        attempts = key.attempts,
        since = key.since,
        ended_at = key.ended_at,
        keep_until = key.keep_until,
        result = key.result.as_deref(),
        refused = key.refused,
        last_refused_at = key.last_refused_at,
        boundary = key.key.boundary().as_str(),
        scope = key.key.scope(),
        hash = key.key.hash(),
        was_state = was.state.as_str(),
        was_fence = was.fence,
        was_job = holder_of(was).0,
    ))
}

fn insert_instance(connection: &Connection, instance: &Instance) -> Result<()> {
    let new = &instance.new;
    exactly_one(change!(
        connection,
        include_str!("sql/instances/insert.sql"),
        id = new.id,
        name = &new.name,
        version = new.version.as_str(),
        queues = rows::list(&new.queues),
        kinds = rows::list(&new.kinds),
        lease_ms = count(new.lease_ms),
        live = instance.live,
        started_at = instance.started_at,
        renewed_at = instance.renewed_at,
        lease_until = instance.lease_until,
        reap_from = instance.reap_from,
    ))
}

fn save_instance(connection: &Connection, instance: &Instance) -> Result<()> {
    let new = &instance.new;
    exactly_one(change!(
        connection,
        include_str!("sql/instances/save.sql"),
        name = &new.name,
        version = new.version.as_str(),
        queues = rows::list(&new.queues),
        kinds = rows::list(&new.kinds),
        lease_ms = count(new.lease_ms),
        live = instance.live,
        renewed_at = instance.renewed_at,
        lease_until = instance.lease_until,
        reap_from = instance.reap_from,
        id = new.id,
    ))
}

fn insert_lock(connection: &Connection, (name, slot): &(Name, u32), lock: &Lock) -> Result<()> {
    exactly_one(change!(
        connection,
        include_str!("sql/locks/insert.sql"),
        name = name,
        slot = *slot,
        permits = lock.permits,
        fence = lock.fence,
        acquisition = lock.acquisition,
        holder = &lock.holder,
        since = lock.since,
        lease_until = lock.lease_until,
    ))
}

fn save_lock(connection: &Connection, (name, slot): &(Name, u32), (was, lock): (Fence, &Lock)) -> Result<()> {
    exactly_one(change!(
        connection,
        include_str!("sql/locks/save.sql"),
        permits = lock.permits,
        fence = lock.fence,
        acquisition = lock.acquisition,
        holder = &lock.holder,
        since = lock.since,
        lease_until = lock.lease_until,
        name = name,
        slot = *slot,
        was_fence = was,
    ))
}
