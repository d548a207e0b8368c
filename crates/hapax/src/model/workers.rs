//! Instances, their leases, and the duties that clean up after them.

use super::job::{JobState, RunRecord};
use super::once::is_forgotten;
use super::runs::Cause;
use super::{
    EVIDENCE_KEEP_MS, Heartbeat, Instance, KeyState, Model, NewInstance, OwnedRun, Pruned, Reaped, Refusal, RunRef,
};
use crate::clock::{Micros, Now};
use crate::id::{InstanceId, JobId};

impl Model {
    /// Takes in an instance. Registering it again while it is live renews it; a dead id stays dead.
    ///
    /// It may reap one heartbeat later: for all it knows, the store stood still until now.
    pub fn register(&mut self, now: Now, new: &NewInstance) -> Result<(), Refusal> {
        if let Some(known) = self.instances.get(&new.id)
            && !known.live
        {
            return Err(Refusal::NotLive { instance: new.id });
        }
        let instance = Instance {
            new: new.clone(),
            live: true,
            started_at: self.instances.get(&new.id).map_or(now.wall, |known| known.started_at),
            renewed_at: now.wall,
            lease_until: now.lease.plus_ms(new.lease_ms),
            reap_from: one_heartbeat_after(now, new.lease_ms),
        };
        self.instances.insert(new.id, instance);
        Ok(())
    }

    /// Renews an instance's lease, records the starts of its current runs, and says what belongs to it.
    ///
    /// An instance whose lease ran out but whom nobody declared dead is renewed: if a store could not be written for
    /// longer than every lease, nobody should lose its work for it. It gives the others the time of one heartbeat to
    /// do the same before it may reap again, so that a reap that was asked for before such a stall kills nobody.
    pub fn heartbeat(&mut self, now: Now, id: InstanceId, started: &[RunRef]) -> Heartbeat {
        let Some(instance) = self.instances.get_mut(&id).filter(|instance| instance.live) else {
            self.refuse(now.wall, "heartbeat", id.to_string(), None);
            return Heartbeat::Dead;
        };
        if instance.lease_until <= now.lease {
            instance.reap_from = one_heartbeat_after(now, instance.new.lease_ms);
        }
        instance.renewed_at = now.wall;
        instance.lease_until = now.lease.plus_ms(instance.new.lease_ms);
        for run in started {
            let mine = |job: &super::JobRecord| job.claim.is_some_and(|c| c.instance == id);
            if self.current(*run).is_ok() && mine(&self.jobs[&run.job]) {
                self.begin(now, run.job);
            }
        }
        let owned = self.owned(id).into_iter().map(|job| OwnedRun {
            run: RunRef { job, fence: self.fence_of(job) },
            claim: self.jobs[&job].claim.expect("owned jobs are claimed").claim,
            cancel_requested: self.jobs[&job].cancel_requested,
        });
        Heartbeat::Alive { owned: owned.collect() }
    }

    /// An instance goes: its runs are taken back at once, and its id is dead.
    pub fn leave(&mut self, now: Now, id: InstanceId) -> Reaped {
        if let Some(instance) = self.instances.get_mut(&id) {
            instance.live = false;
        }
        let owned = self.owned(id);
        let taken_back = owned.into_iter().map(|job| (job, self.take_back(now, job, Cause::OwnerGone))).collect();
        Reaped { dead: Vec::new(), taken_back, more: false }
    }

    /// Declares instances dead whose lease ran out, takes back the runs of owners that are not live, and runs past
    /// their deadline; at most `limit` of them. By one who may not reap yet: nothing.
    pub fn reap(&mut self, now: Now, by: InstanceId, limit: u32) -> Result<Reaped, Refusal> {
        if !self.may_reap(now, by)? {
            return Ok(Reaped::default());
        }
        let dead = self.declare_dead(now);
        let due: Vec<(JobId, Cause)> = self.reapable(now).take(limit as usize).collect();
        let taken_back: Vec<(JobId, JobState)> =
            due.into_iter().map(|(job, cause)| (job, self.take_back(now, job, cause))).collect();
        let more = taken_back.len() == limit as usize;
        Ok(Reaped { dead, taken_back, more })
    }

    /// Whether an instance has given the others their time to renew themselves; refused if it is not live.
    pub(crate) fn may_reap(&self, now: Now, id: InstanceId) -> Result<bool, Refusal> {
        self.require_live(now, id).map(|()| self.instances[&id].reap_from <= now.lease)
    }

    pub(super) fn declare_dead(&mut self, now: Now) -> Vec<InstanceId> {
        let mut dead = Vec::new();
        for (id, instance) in &mut self.instances {
            if instance.live && instance.lease_until <= now.lease {
                instance.live = false;
                dead.push(*id);
            }
        }
        dead
    }

    /// Running jobs that have lost their owner or passed their deadline, in the order of owner and id.
    pub(super) fn reapable(&self, now: Now) -> impl Iterator<Item = (JobId, Cause)> {
        self.index.owned.iter().filter_map(move |(owner, job)| {
            let live = self.instances.get(owner).is_some_and(|instance| instance.live);
            let claim = self.jobs[job].claim.expect("owned jobs are claimed");
            match (live, claim.deadline <= now.lease) {
                (false, _) => Some((*job, Cause::OwnerGone)),
                (true, true) => Some((*job, Cause::Deadline)),
                (true, false) => None,
            }
        })
    }

    /// Deletes what has outlived its retention, at most `limit` of each kind: ended jobs, the first to go first; keys
    /// that are done or free; and what a crash left behind, once it is no evidence any more: dead instances without
    /// runs, refusals, locks and bare claims whose lease ran out.
    pub fn prune(&mut self, now: Now, limit: u32) -> Pruned {
        let limit = limit as usize;
        let evidence_gone = |at: Micros| at.plus_ms(EVIDENCE_KEEP_MS) <= now.wall;
        let jobs: Vec<JobId> =
            self.index.purge.iter().take_while(|(at, _)| *at <= now.wall).map(|(_, id)| *id).take(limit).collect();
        for id in &jobs {
            let job = self.jobs.remove(id).expect("the index agrees with the jobs");
            self.index.remove(&job);
            self.runs.remove(id);
        }
        let ran_out = |until: Micros| until.plus_ms(EVIDENCE_KEEP_MS) <= now.lease;
        let keys = drop_some(&mut self.keys, limit, |_, key| {
            if key.state == KeyState::Held { key.lease_until.is_some_and(ran_out) } else { is_forgotten(key, now) }
        });
        let locks = drop_some(&mut self.locks, limit, |_, lock| ran_out(lock.lease_until));
        let busy = |id: &InstanceId| self.index.owned.iter().any(|(owner, _)| owner == id);
        let idle: Vec<InstanceId> = self.instances.keys().filter(|id| !busy(id)).copied().collect();
        let instances = drop_some(&mut self.instances, limit, |id, instance| {
            !instance.live && evidence_gone(instance.renewed_at) && idle.contains(id)
        });
        let before = self.refusals.len();
        let mut left = limit;
        self.refusals.retain(|refusal| {
            let gone = left > 0 && evidence_gone(refusal.at);
            left -= usize::from(gone);
            !gone
        });
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Pruned { jobs: count(jobs.len()), keys, instances, refusals: count(before - self.refusals.len()), locks }
    }

    /// Ended runs of a job, oldest first.
    pub fn runs_of(&self, id: JobId) -> &[RunRecord] {
        self.runs.get(&id).map_or(&[], Vec::as_slice)
    }

    pub(super) fn require_live(&self, now: Now, id: InstanceId) -> Result<(), Refusal> {
        let live = |instance: &Instance| instance.live && instance.lease_until > now.lease;
        if self.instances.get(&id).is_some_and(live) { Ok(()) } else { Err(Refusal::NotLive { instance: id }) }
    }
}

/// Instances send a heartbeat every third of their lease.
fn one_heartbeat_after(now: Now, lease_ms: u64) -> Micros {
    now.lease.plus_ms(lease_ms / 3)
}

fn drop_some<K: Ord + Clone, V>(
    map: &mut std::collections::BTreeMap<K, V>,
    limit: usize,
    gone: impl Fn(&K, &V) -> bool,
) -> u32 {
    let keys: Vec<K> = map.iter().filter(|(k, v)| gone(k, v)).map(|(k, _)| k.clone()).take(limit).collect();
    for key in &keys {
        map.remove(key);
    }
    u32::try_from(keys.len()).unwrap_or(u32::MAX)
}
