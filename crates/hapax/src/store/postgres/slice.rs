//! A slice of the tables: the rows that one verb touches, locked and lent to the law.
//!
//! Under the locks of its rows nothing can change between reading and writing, so this store need not state the law in
//! SQL a second time: it reads the rows, lets the [`Model`] decide, and writes back what the model changed. Each write
//! still carries its guard, and a guard that fails although the lock was held undoes the whole step.
//!
//! Rows are locked in one order everywhere, so that no two steps wait for each other: instances, jobs by id, keys by
//! boundary, scope and hash.
//!
//! The few verbs that are asked for thousands of times a second have statements of their own instead.

use std::collections::BTreeSet;

use sqlx::Result;

use super::fault;
use super::rows::{self, KeyArrays, at_most_one, change, count, exactly_one, fetch};
use super::step::Step;
use crate::clock::Now;
use crate::id::{Boundary, Fence, Fingerprint, InstanceId, JobId, Name, OnceKey};
use crate::model::job::RUNS_KEPT_MAX;
use crate::model::{
    Counters, EnqueueAnswer, Instance, JobRecord, JobState, KeyHolder, KeyRecord, KeyState, Lock, LockRef, Model,
    NewJob, RunRecord,
};

/// Rows on loan.
#[derive(Debug)]
pub(super) struct Slice<'s, 'c> {
    step: &'s mut Step<'c>,
    model: Model,
    /// Keys that were not known, for which a row was made to be locked.
    places: BTreeSet<OnceKey>,
    /// Keys that were read without a lock, since their answer is no more than a refusal.
    unlocked: BTreeSet<OnceKey>,
}

/// For what the permits of a lock are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A longer lease for the one who has it.
    Renewal,
    /// To take one away.
    Release,
    /// To look.
    Look,
}

impl<'s, 'c> Slice<'s, 'c> {
    /// An empty slice.
    pub(super) fn of(step: &'s mut Step<'c>) -> Self {
        Self { step, model: Model::new(), places: BTreeSet::new(), unlocked: BTreeSet::new() }
    }

    /// Locks and takes a job and its once key, if they are there.
    pub(super) async fn job(&mut self, id: JobId) -> Result<&mut Self> {
        self.jobs(vec![id]).await
    }

    /// Locks and takes jobs and their once keys, as far as they are there.
    pub(super) async fn jobs(&mut self, ids: Vec<JobId>) -> Result<&mut Self> {
        if ids.is_empty() {
            return Ok(self);
        }
        let found = fetch!(self.step, include_str!("sql/jobs/lock.sql"), rows::job, ids = ids);
        let keys: BTreeSet<OnceKey> = found.iter().filter_map(|job| job.once.clone()).collect();
        self.keys(&keys).await?;
        for job in found {
            self.model.hold(job);
        }
        Ok(self)
    }

    /// Locks and takes a job and its once key, which is wanted even if it is not known any more.
    pub(super) async fn job_with_place(&mut self, id: JobId) -> Result<&mut Self> {
        self.job(id).await?;
        let key = self.model.job(id).and_then(|job| job.once.clone());
        match key.filter(|key| !self.model.keys.contains_key(key)) {
            Some(key) => self.wanted_key(&key).await,
            None => Ok(self),
        }
    }

    /// Locks and takes once keys, as far as they are known.
    pub(super) async fn keys(&mut self, keys: &BTreeSet<OnceKey>) -> Result<&mut Self> {
        let KeyArrays { boundaries, scopes, hashes, .. } = KeyArrays::of(keys);
        if hashes.is_empty() {
            return Ok(self);
        }
        let text = include_str!("sql/keys/lock.sql");
        let found = fetch!(self.step, text, rows::key, boundaries = boundaries, scopes = scopes, hashes = hashes);
        self.take_in(found);
        Ok(self)
    }

    /// Locks and takes one once key, whether or not it is known.
    pub(super) async fn wanted_key(&mut self, key: &OnceKey) -> Result<&mut Self> {
        let keys = BTreeSet::from([key.clone()]);
        loop {
            self.hold_places(&keys).await?;
            self.keys(&keys).await?;
            // Unless the pruner came between the two.
            if self.model.keys.contains_key(key) {
                return Ok(self);
            }
        }
    }

    /// Lets the law take jobs with once keys. A key that other work has is not locked: who enqueues in a long
    /// transaction of the user's does not hold up the finish of that work.
    pub(super) async fn enqueue(&mut self, jobs: &[NewJob]) -> Result<Vec<EnqueueAnswer>> {
        let mut missing: BTreeSet<OnceKey> =
            jobs.iter().filter_map(|job| Some(job.once.as_ref()?.key.clone())).collect();
        let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
        for job in self::jobs(self.step, ids).await? {
            self.model.hold(job);
        }
        loop {
            self.look_up(missing).await?;
            // The law says which of the keys that were not locked it would take, as of the time at which it decides: a
            // retention may end between two looks at the clock, and then a key would be given away that nobody locked.
            let now = self.step.look_at_the_clock().await?;
            let mut trial = self.model.clone();
            trial.enqueue(now, jobs);
            let taken = |key: &&OnceKey| trial.keys.get(*key).map(owner) != self.model.keys.get(*key).map(owner);
            let taken: BTreeSet<OnceKey> = self.unlocked.iter().filter(taken).cloned().collect();
            if taken.is_empty() {
                return self.decide_as_of(now, |model, now| model.enqueue(now, jobs)).await;
            }
            for key in &taken {
                self.unlocked.remove(key);
                self.model.keys.remove(key);
            }
            self.keys(&taken).await?;
            // Those that the pruner deleted since they were read.
            missing = taken.into_iter().filter(|key| !self.model.keys.contains_key(key)).collect();
        }
    }

    /// Takes keys as they stand, without locks, and makes places for those that are not known.
    async fn look_up(&mut self, mut missing: BTreeSet<OnceKey>) -> Result<()> {
        while !missing.is_empty() {
            self.hold_places(&missing).await?;
            self.unlocked.extend(missing.iter().filter(|key| !self.places.contains(*key)).cloned());
            let found = find_keys(self.step, &missing).await?;
            self.take_in(found);
            // Those that the pruner deleted between the two.
            missing.retain(|key| !self.model.keys.contains_key(key));
        }
        Ok(())
    }

    async fn hold_places(&mut self, keys: &BTreeSet<OnceKey>) -> Result<()> {
        let KeyArrays { boundaries, scopes, hashes, values } = KeyArrays::of(keys);
        let text = include_str!("sql/keys/hold_places.sql");
        let place = |row: &sqlx::postgres::PgRow| rows::place(row);
        let made: BTreeSet<(String, String, Vec<u8>)> =
            fetch!(self.step, text, place, boundaries = boundaries, scopes = scopes, hashes = hashes, values = values,)
                .into_iter()
                .collect();
        let place = |key: &&OnceKey| {
            let place = (key.boundary().as_str().to_owned(), key.scope().as_str().to_owned(), key.hash().to_vec());
            made.contains(&place)
        };
        self.places.extend(keys.iter().filter(place).cloned());
        Ok(())
    }

    fn take_in(&mut self, found: Vec<KeyRecord>) {
        self.model.keys.extend(found.into_iter().map(|record| (record.key.clone(), record)));
    }

    /// Locks and takes an instance, if it is known.
    pub(super) async fn instance(&mut self, id: InstanceId) -> Result<&mut Self> {
        let found = fetch!(self.step, include_str!("sql/instances/lock.sql"), rows::instance, id = id);
        self.model.instances.extend(found.into_iter().map(|instance| (id, instance)));
        Ok(self)
    }

    /// Takes every instance that is remembered, without locks. Those of `mine` were locked before; of all others one
    /// whose lease has run out is spared, since it may be renewing it now.
    pub(super) async fn instances(&mut self, mine: Option<&[InstanceId]>) -> Result<&mut Self> {
        let lease_now = self.step.now().lease;
        let found = fetch!(self.step, include_str!("sql/instances/list.sql"), rows::instance);
        self.model.instances.extend(found.into_iter().map(|mut instance| {
            let id = instance.new.id;
            if mine.is_some_and(|mine| !mine.contains(&id)) && instance.lease_until <= lease_now {
                instance.lease_until = crate::clock::Micros(lease_now.0.saturating_add(1));
            }
            (id, instance)
        }));
        Ok(self)
    }

    /// Takes the permits of one lock for a grant, as of a time: only those that may pass on are locked, so that a guard
    /// on one permit holds up neither the renewals of the others nor their release.
    pub(super) async fn locks_to_grant(&mut self, name: &Name) -> Result<Now> {
        let schema_and_name = format!("{} lock {name}", self.step.schema());
        let mut first = [0; 8];
        first.copy_from_slice(&Fingerprint::of(schema_and_name.as_bytes()).as_bytes()[..8]);
        let text = include_str!("sql/locks/enter.sql");
        fetch!(self.step, text, |_| Ok(()), identity = i64::from_be_bytes(first));
        let now = self.step.look_at_the_clock().await?;
        let text = include_str!("sql/locks/lock_expired.sql");
        fetch!(self.step, text, |_| Ok(()), name = name.as_str(), lease_now = now.lease);
        self.locks(name, Wanted::Look).await?;
        Ok(now)
    }

    /// Locks and takes one permit of a lock, if it is there.
    pub(super) async fn permit(&mut self, lock: &LockRef, wanted: Wanted) -> Result<&mut Self> {
        let (name, slot) = (lock.name.as_str(), i64::from(lock.slot));
        let found = if wanted == Wanted::Renewal {
            fetch!(self.step, include_str!("sql/locks/lock_to_renew.sql"), rows::lock, name = name, slot = slot)
        } else {
            fetch!(self.step, include_str!("sql/locks/lock_to_release.sql"), rows::lock, name = name, slot = slot)
        };
        self.model.locks.extend(found);
        Ok(self)
    }

    /// Takes the permits of one lock.
    pub(super) async fn locks(&mut self, name: &Name, wanted: Wanted) -> Result<&mut Self> {
        let found = if wanted == Wanted::Look {
            fetch!(self.step, include_str!("sql/locks/of_name.sql"), rows::lock, name = name.as_str())
        } else {
            fetch!(self.step, include_str!("sql/locks/lock.sql"), rows::lock, name = name.as_str())
        };
        self.model.locks.extend(found);
        Ok(self)
    }

    /// Takes the permits of every lock, to look.
    pub(super) async fn all_locks(&mut self) -> Result<&mut Self> {
        self.model.locks.extend(fetch!(self.step, include_str!("sql/locks/list.sql"), rows::lock));
        Ok(self)
    }

    /// Takes a fence, for steps that may give one. To be asked for once the rows are locked.
    pub(super) async fn fences(&mut self) -> Result<&mut Self> {
        self.model.fences = next_fence(self.step).await?.as_i64() - 1;
        Ok(self)
    }

    /// The step itself, for what is not lent to the law.
    pub(super) const fn step(&mut self) -> &mut Step<'c> {
        self.step
    }

    /// What the law answers to a question that changes nothing.
    pub(super) fn ask<T>(&self, question: impl FnOnce(&Model) -> T) -> T {
        question(&self.model)
    }

    /// Lets the law decide, as of when the rows are locked, and writes back what it changed.
    pub(super) async fn decide<T>(&mut self, step: impl FnOnce(&mut Model, Now) -> T) -> Result<T> {
        let now = self.step.look_at_the_clock().await?;
        self.decide_as_of(now, step).await
    }

    /// Lets the law decide as of a time at which the rows were locked, and writes back what it changed.
    pub(super) async fn decide_as_of<T>(&mut self, now: Now, step: impl FnOnce(&mut Model, Now) -> T) -> Result<T> {
        let was = self.model.clone();
        let answer = step(&mut self.model, now);
        self.save(&was).await?;
        Ok(answer)
    }

    async fn save(&mut self, was: &Model) -> Result<()> {
        let is = std::mem::take(&mut self.model);
        let made: Vec<&JobRecord> = is.jobs.values().filter(|job| !was.jobs.contains_key(&job.id)).collect();
        insert_jobs(self.step, &made).await?;
        for (id, job) in &is.jobs {
            if let Some(old) = was.jobs.get(id).filter(|old| *old != job) {
                save_job(self.step, old, job).await?;
            }
        }
        for (id, runs) in &is.runs {
            for run in runs {
                keep_run(self.step, *id, run).await?;
            }
        }
        self.save_keys((was, &is)).await?;
        for (id, instance) in &is.instances {
            match was.instances.get(id) {
                None => insert_instance(self.step, instance).await?,
                Some(old) if old != instance => save_instance(self.step, instance).await?,
                Some(_) => {}
            }
        }
        save_locks(self.step, was, &is).await?;
        save_evidence(self.step, &is).await?;
        let is_news = |job: &&JobRecord| was.jobs.get(&job.id).is_none_or(|old| old.state != job.state);
        hint(self.step, is.jobs.values().filter(is_news)).await?;
        self.model = is;
        Ok(())
    }

    async fn save_keys(&mut self, (was, is): (&Model, &Model)) -> Result<()> {
        let mut duplicates: Vec<&OnceKey> = Vec::new();
        for (key, record) in &is.keys {
            let old = was.keys.get(key).ok_or_else(|| sqlx::Error::Protocol("a key that was not locked".to_owned()))?;
            if self.unlocked.contains(key) {
                // All that can have become of it is that duplicates were refused.
                let more = record.refused.saturating_sub(old.refused) as usize;
                duplicates.extend(std::iter::repeat_n(key, more));
            } else if old != record {
                save_key(self.step, old, record).await?;
            } else if self.places.contains(key) {
                forget_key(self.step, (key, old)).await?;
            }
        }
        for (key, old) in was.keys.iter().filter(|(key, _)| !is.keys.contains_key(key)) {
            forget_key(self.step, (key, old)).await?;
        }
        let KeyArrays { boundaries, scopes, hashes, .. } = KeyArrays::of(duplicates);
        if !hashes.is_empty() {
            let (text, wall) = (include_str!("sql/keys/refuse.sql"), self.step.now().wall);
            change!(self.step, text, wall = wall, boundaries = boundaries, scopes = scopes, hashes = hashes);
        }
        Ok(())
    }
}

/// Whose a key is, and how it stands: all but the count of its refused duplicates.
fn owner(key: &KeyRecord) -> (KeyState, &KeyHolder, Option<Fence>) {
    (key.state, &key.holder, key.fence)
}

/// Wakes those who wait for such jobs, if any of them is ready.
pub(super) async fn hint<'j>(step: &mut Step<'_>, jobs: impl IntoIterator<Item = &'j JobRecord>) -> Result<()> {
    let ready = jobs.into_iter().filter(|job| job.state == JobState::Ready);
    let queues: BTreeSet<&str> = ready.map(|job| job.queue.as_str()).collect();
    if !queues.is_empty() {
        let queues: Vec<&str> = queues.into_iter().collect();
        fetch!(step, include_str!("sql/sleepers/hint.sql"), |_| Ok(()), queues = queues);
    }
    Ok(())
}

/// The fence of one claim.
pub(super) async fn next_fence(step: &mut Step<'_>) -> Result<Fence> {
    let found = fetch!(step, include_str!("sql/meta/next_fence.sql"), rows::only::<Fence>);
    at_most_one(found).ok_or(sqlx::Error::RowNotFound)
}

/// Locks jobs, of which a step is going to take one after the other in an order that is not its own.
pub(super) async fn lock_in_order(step: &mut Step<'_>, ids: impl ExactSizeIterator<Item = JobId>) -> Result<()> {
    // One alone is in order.
    if ids.len() > 1 {
        let ids: Vec<JobId> = ids.collect();
        fetch!(step, include_str!("sql/jobs/lock_in_order.sql"), |_| Ok(()), ids = ids);
    }
    Ok(())
}

/// Jobs as they stand, as far as they are there, by id.
pub(super) async fn jobs(step: &mut Step<'_>, ids: Vec<JobId>) -> Result<Vec<JobRecord>> {
    Ok(fetch!(step, include_str!("sql/jobs/find.sql"), rows::job, ids = ids))
}

/// A once key as it stands.
pub(super) async fn key(step: &mut Step<'_>, key: &OnceKey) -> Result<Option<KeyRecord>> {
    Ok(at_most_one(find_keys(step, [key]).await?))
}

async fn find_keys<'k>(step: &mut Step<'_>, keys: impl IntoIterator<Item = &'k OnceKey>) -> Result<Vec<KeyRecord>> {
    let KeyArrays { boundaries, scopes, hashes, .. } = KeyArrays::of(keys);
    let text = include_str!("sql/keys/find.sql");
    Ok(fetch!(step, text, rows::key, boundaries = boundaries, scopes = scopes, hashes = hashes))
}

/// Writes jobs that were not there when they were looked for. One that is there by now is the same job, sent again; if
/// it is not, since it has another once key, this step is undone: its key must not be held for that other job.
async fn insert_jobs(step: &mut Step<'_>, made: &[&JobRecord]) -> Result<()> {
    if u64::try_from(made.len()) == Ok(rows::insert_jobs(step, made).await?) {
        return Ok(());
    }
    let there = jobs(step, made.iter().map(|job| job.id).collect()).await?;
    let is_other = |job: &&&JobRecord| there.iter().any(|other| other.id == job.id && other.once != job.once);
    match made.iter().find(is_other) {
        Some(job) => Err(fault::taken_id(job.id)),
        None => Ok(()),
    }
}

async fn save_job(step: &mut Step<'_>, was: &JobRecord, job: &JobRecord) -> Result<()> {
    debug_assert_eq!(
        (&was.payload, &was.once, was.fence, &was.progress),
        (&job.payload, &job.once, job.fence, &job.progress),
        "what the statement does not write has not changed"
    );
    let claim = job.claim.as_ref();
    exactly_one(change!(
        step,
        include_str!("sql/jobs/save.sql"),
        state = job.state.as_str(),
        due_at = job.due_at,
        ended_fence = job.ended_fence,
        owner = claim.map(|c| c.instance),
        claim = claim.map(|c| c.claim),
        claimed_at = claim.map(|c| c.at),
        started_at = claim.and_then(|c| c.started_at),
        deadline = claim.map(|c| c.deadline),
        runs = i64::from(job.runs),
        failures = i64::from(job.failures),
        takeovers = i64::from(job.takeovers),
        unstarted_takeovers = i64::from(job.unstarted_takeovers),
        suspect = job.suspect,
        cancel_requested = job.cancel_requested,
        result = job.result.as_deref(),
        reason = job.reason.as_deref(),
        finished_at = job.finished_at,
        purge_at = job.purge_at,
        refused = i64::from(job.refused),
        id = job.id,
        was_state = was.state.as_str(),
        was_fence = was.fence,
    ))
}

async fn keep_run(step: &mut Step<'_>, job: JobId, run: &RunRecord) -> Result<()> {
    change!(
        step,
        include_str!("sql/runs/insert.sql"),
        job = job,
        number = i64::from(run.number),
        fence = run.fence,
        instance = run.instance,
        started_at = run.started_at,
        ended_at = run.ended_at,
        outcome = run.outcome.as_str(),
        detail = run.detail.as_deref(),
    );
    if run.number > RUNS_KEPT_MAX {
        let number = i64::from(run.number - RUNS_KEPT_MAX);
        change!(step, include_str!("sql/runs/trim.sql"), job = job, number = number);
    }
    Ok(())
}

fn holder_of(key: &KeyRecord) -> (Option<JobId>, Option<&str>) {
    match &key.holder {
        KeyHolder::Job(id) => (Some(*id), None),
        KeyHolder::Claim(name) => (None, Some(name.as_str())),
    }
}

async fn forget_key(step: &mut Step<'_>, (key, was): (&OnceKey, &KeyRecord)) -> Result<()> {
    exactly_one(change!(
        step,
        include_str!("sql/keys/forget.sql"),
        boundary = Boundary::as_str(key.boundary()),
        scope = key.scope().as_str(),
        hash = key.hash().to_vec(),
        was_state = was.state.as_str(),
        was_fence = was.fence,
    ))
}

async fn save_key(step: &mut Step<'_>, was: &KeyRecord, key: &KeyRecord) -> Result<()> {
    let (job, holder) = holder_of(key);
    exactly_one(change!(
        step,
        include_str!("sql/keys/save.sql"),
        fingerprint = key.fingerprint.map(|print| print.as_bytes().to_vec()),
        state = key.state.as_str(),
        job = job,
        holder = holder,
        fence = key.fence,
        acquisition = key.acquisition,
        lease_until = key.lease_until,
        attempts = i64::from(key.attempts),
        since = key.since,
        ended_at = key.ended_at,
        keep_until = key.keep_until,
        result = key.result.as_deref(),
        refused = i64::from(key.refused),
        last_refused_at = key.last_refused_at,
        boundary = key.key.boundary().as_str(),
        scope = key.key.scope().as_str(),
        hash = key.key.hash().to_vec(),
        was_state = was.state.as_str(),
        was_fence = was.fence,
        was_job = holder_of(was).0,
    ))
}

async fn insert_instance(step: &mut Step<'_>, instance: &Instance) -> Result<()> {
    let new = &instance.new;
    exactly_one(change!(
        step,
        include_str!("sql/instances/insert.sql"),
        id = new.id,
        name = new.name.as_str(),
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

async fn save_instance(step: &mut Step<'_>, instance: &Instance) -> Result<()> {
    let new = &instance.new;
    exactly_one(change!(
        step,
        include_str!("sql/instances/save.sql"),
        name = new.name.as_str(),
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

async fn save_locks(step: &mut Step<'_>, was: &Model, is: &Model) -> Result<()> {
    for (identity, lock) in &is.locks {
        match was.locks.get(identity) {
            None => insert_lock(step, identity, lock).await?,
            Some(old) if old != lock => save_lock(step, identity, (old.fence, lock)).await?,
            Some(_) => {}
        }
    }
    for ((name, slot), old) in was.locks.iter().filter(|(identity, _)| !is.locks.contains_key(identity)) {
        let (text, slot) = (include_str!("sql/locks/release.sql"), i64::from(*slot));
        exactly_one(change!(step, text, name = name.as_str(), slot = slot, was_fence = old.fence))?;
    }
    Ok(())
}

async fn insert_lock(step: &mut Step<'_>, (name, slot): &(Name, u32), lock: &Lock) -> Result<()> {
    exactly_one(change!(
        step,
        include_str!("sql/locks/insert.sql"),
        name = name.as_str(),
        slot = i64::from(*slot),
        permits = i64::from(lock.permits),
        fence = lock.fence,
        acquisition = lock.acquisition,
        holder = lock.holder.as_str(),
        since = lock.since,
        lease_until = lock.lease_until,
    ))
}

async fn save_lock(step: &mut Step<'_>, (name, slot): &(Name, u32), (was, lock): (Fence, &Lock)) -> Result<()> {
    exactly_one(change!(
        step,
        include_str!("sql/locks/save.sql"),
        permits = i64::from(lock.permits),
        fence = lock.fence,
        acquisition = lock.acquisition,
        holder = lock.holder.as_str(),
        since = lock.since,
        lease_until = lock.lease_until,
        name = name.as_str(),
        slot = i64::from(*slot),
        was_fence = was,
    ))
}

async fn save_evidence(step: &mut Step<'_>, is: &Model) -> Result<()> {
    for refusal in &is.refusals {
        change!(
            step,
            include_str!("sql/refusals/insert.sql"),
            at = refusal.at,
            verb = refusal.verb.as_str(),
            identity = refusal.identity.as_str(),
            fence = refusal.fence,
        );
    }
    if is.counters == Counters::default() {
        return Ok(());
    }
    let Counters { duplicates_refused, writes_refused, takeovers, unstarted_takeovers, deadlines } = is.counters;
    exactly_one(change!(
        step,
        include_str!("sql/counters/add.sql"),
        duplicates_refused = count(duplicates_refused),
        writes_refused = count(writes_refused),
        takeovers = count(takeovers),
        unstarted_takeovers = count(unstarted_takeovers),
        deadlines = count(deadlines),
    ))
}
