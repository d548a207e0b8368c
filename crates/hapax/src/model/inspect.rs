//! What people see. Reading changes nothing.

use std::collections::BTreeSet;

use super::job::{JobRecord, JobState};
use super::{COUNT_MAX, Counters, InstanceView, JobFilter, Model, PAGE_MAX, QueueView, RefusalRecord};
use crate::clock::Now;
use crate::id::{JobId, Name};

impl Model {
    /// One job.
    pub fn job(&self, id: JobId) -> Option<&JobRecord> {
        self.jobs.get(&id)
    }

    /// A page of jobs, newest id first.
    pub fn list(&self, filter: &JobFilter) -> Vec<JobRecord> {
        let wanted = |job: &&JobRecord| {
            filter.queue.as_ref().is_none_or(|queue| job.queue == *queue)
                && filter.kind.as_ref().is_none_or(|kind| job.kind == *kind)
                && filter.state.is_none_or(|state| job.state == state)
                && filter.before.is_none_or(|before| job.id < before)
        };
        let limit = filter.limit.clamp(1, PAGE_MAX) as usize;
        self.jobs.values().rev().filter(wanted).take(limit).cloned().collect()
    }

    /// Every queue that has jobs, a pause, or a live instance that serves it, by name.
    pub fn queues(&self) -> Vec<QueueView> {
        let mut names: BTreeSet<Name> = self.jobs.values().map(|job| job.queue.clone()).collect();
        names.extend(self.pauses.keys().cloned());
        let live = || self.instances.values().filter(|instance| instance.live);
        names.extend(live().flat_map(|instance| instance.new.queues.iter().cloned()));
        let known: BTreeSet<&Name> = live().flat_map(|instance| &instance.new.kinds).collect();
        names.into_iter().map(|queue| self.queue_view(queue, &known)).collect()
    }

    fn queue_view(&self, queue: Name, known: &BTreeSet<&Name>) -> QueueView {
        let of_queue = || self.jobs.values().filter(|job| job.queue == queue);
        let count = |state: JobState| {
            let n = of_queue().filter(|job| job.state == state).take(usize::try_from(COUNT_MAX).unwrap_or(0)).count();
            (state, n as u64)
        };
        let waiting: BTreeSet<Name> =
            of_queue().filter(|job| job.state == JobState::Ready).map(|job| job.kind.clone()).collect();
        QueueView {
            counts: JobState::ALL.into_iter().map(count).collect(),
            pause: self.pauses.get(&queue).cloned(),
            unknown_kinds: waiting.into_iter().filter(|kind| !known.contains(kind)).collect(),
            queue,
        }
    }

    /// Every instance that is still remembered, by id.
    pub fn instances(&self, now: Now) -> Vec<InstanceView> {
        let view = |instance: &super::Instance| InstanceView {
            id: instance.new.id,
            name: instance.new.name.clone(),
            version: instance.new.version.clone(),
            live: instance.live,
            started_at: instance.started_at,
            renewed_at: instance.renewed_at,
            expires_in_ms: instance.lease_until.ms_since(now.lease),
            queues: instance.new.queues.clone(),
            kinds: instance.new.kinds.clone(),
            running: self.owned(instance.new.id).len() as u64,
        };
        self.instances.values().map(view).collect()
    }

    /// The newest refused writes, newest first.
    pub fn refusals(&self, limit: u32) -> Vec<RefusalRecord> {
        self.refusals.iter().rev().take(limit.clamp(1, PAGE_MAX) as usize).cloned().collect()
    }

    /// Totals since the store was made.
    pub const fn counters(&self) -> Counters {
        self.counters
    }
}
