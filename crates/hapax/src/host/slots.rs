//! How many tasks of each queue may be at work, and how many are. No lock: a task takes and gives back numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::id::Name;
use crate::model::JobRecord;
use crate::telemetry;

/// What a claim may take ahead of free slots: what can start within this time.
const SOON: Duration = Duration::from_millis(50);
/// With so many finishes unconfirmed nothing is claimed: the store is slower than the tasks.
const UNCONFIRMED_MAX: u32 = 1_000;

/// One queue as the host serves it.
#[derive(Debug)]
pub(crate) struct QueueSlots {
    pub(crate) name: Name,
    pub(crate) workers: u32,
    prefetch: u32,
    active: AtomicU32,
    /// Mean time of a run, in microseconds; zero before the first.
    mean_us: AtomicU64,
    meters: Meters,
}

/// Handles of metrics.
struct Meters {
    active: metrics::Gauge,
    wait: metrics::Histogram,
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meters")
    }
}

impl QueueSlots {
    pub(crate) fn new(name: Name, workers: u32, prefetch: u32) -> Self {
        metrics::gauge!(telemetry::WORKERS, "queue" => name.to_string()).set(workers);
        let meters = Meters {
            active: metrics::gauge!(telemetry::RUNS_ACTIVE, "queue" => name.to_string()),
            wait: metrics::histogram!(telemetry::QUEUE_WAIT, "queue" => name.to_string()),
        };
        Self { name, workers, prefetch, active: AtomicU32::new(0), mean_us: AtomicU64::new(0), meters }
    }

    /// A job came from this queue: how late is it, all by the store's clock.
    pub(crate) fn waited(&self, job: &JobRecord) {
        if let Some(claim) = job.claim {
            self.meters.wait.record(Duration::from_millis(claim.at.ms_since(job.due_at)).as_secs_f64());
        }
    }

    /// Slots with no task in them.
    pub(crate) fn free(&self) -> u32 {
        self.workers.saturating_sub(self.active.load(Ordering::Acquire))
    }

    /// How many jobs may wait in memory: what can start soon at the present pace. Jobs that wait behind long runs would
    /// be better off with another instance.
    pub(crate) fn ahead(&self) -> u32 {
        let mean_us = self.mean_us.load(Ordering::Relaxed);
        if mean_us == 0 {
            return 0;
        }
        let soon_us = u64::try_from(SOON.as_micros()).unwrap_or(u64::MAX);
        let startable = u64::from(self.workers) * soon_us / mean_us;
        self.prefetch.min(u32::try_from(startable).unwrap_or(u32::MAX))
    }

    /// A run took so long. Two that end at once may overwrite each other's share; it is an estimate.
    fn learn(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        let mean = self.mean_us.load(Ordering::Relaxed);
        let next = if mean == 0 { us } else { mean - mean / 8 + us / 8 };
        self.mean_us.store(next.max(1), Ordering::Relaxed);
    }
}

/// All queues of a host.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    pub(crate) queues: Vec<QueueSlots>,
    active: AtomicU32,
    suspects: AtomicU32,
    /// Ended runs whose finish is not confirmed.
    unconfirmed: AtomicU32,
    /// For the worker: a slot is free, finishes are confirmed, or the lease is back.
    pub(crate) changed: Notify,
    /// For the shutdown: nothing is at work, or nothing is unconfirmed.
    emptied: Notify,
}

impl Slots {
    pub(crate) fn new(queues: Vec<QueueSlots>) -> Self {
        Self { queues, ..Self::default() }
    }

    /// Takes a slot of queue number `queue`, if one is free. Only the worker takes slots.
    pub(crate) fn take(self: &Arc<Self>, queue: usize, suspect: bool) -> Option<Slot> {
        let slots = &self.queues[queue];
        if slots.free() == 0 {
            return None;
        }
        slots.active.fetch_add(1, Ordering::AcqRel);
        slots.meters.active.increment(1);
        self.active.fetch_add(1, Ordering::AcqRel);
        self.suspects.fetch_add(u32::from(suspect), Ordering::AcqRel);
        Some(Slot { slots: Arc::clone(self), queue, suspect })
    }

    /// Tasks at work.
    pub(crate) fn active(&self) -> u32 {
        self.active.load(Ordering::Acquire)
    }

    /// Suspects at work.
    pub(crate) fn suspects(&self) -> u32 {
        self.suspects.load(Ordering::Acquire)
    }

    /// Ended runs whose finish is not confirmed.
    pub(crate) fn unconfirmed(&self) -> u32 {
        self.unconfirmed.load(Ordering::Acquire)
    }

    pub(crate) fn add_unconfirmed(&self) {
        self.unconfirmed.fetch_add(1, Ordering::AcqRel);
    }

    /// So many finishes are confirmed.
    pub(crate) fn sub_unconfirmed(&self, confirmed: u32) {
        let before = self.unconfirmed.fetch_sub(confirmed, Ordering::AcqRel);
        if before == confirmed {
            self.emptied.notify_waiters();
        }
        if before >= UNCONFIRMED_MAX {
            self.changed.notify_one();
        }
    }

    /// Whether the store must catch up before anything is claimed.
    pub(crate) fn is_clogged(&self) -> bool {
        self.unconfirmed() >= UNCONFIRMED_MAX
    }

    /// Waits until no task is at work.
    pub(crate) async fn idle(&self) {
        self.wait_until(|slots| slots.active() == 0).await;
    }

    /// Waits until no task is at work and every finish is confirmed.
    pub(crate) async fn quiet(&self) {
        self.wait_until(|slots| slots.active() == 0 && slots.unconfirmed() == 0).await;
    }

    async fn wait_until(&self, empty: impl Fn(&Self) -> bool) {
        loop {
            let mut emptied = std::pin::pin!(self.emptied.notified());
            emptied.as_mut().enable();
            if empty(self) {
                return;
            }
            emptied.await;
        }
    }
}

/// The right to be at work. Given back when it is dropped, whatever became of the task.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Arc<Slots>,
    queue: usize,
    suspect: bool,
}

impl Slot {
    /// The task worked for so long.
    pub(crate) fn worked(&self, took: Duration) {
        self.slots.queues[self.queue].learn(took);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let slots = &self.slots;
        slots.queues[self.queue].active.fetch_sub(1, Ordering::AcqRel);
        slots.queues[self.queue].meters.active.decrement(1);
        slots.suspects.fetch_sub(u32::from(self.suspect), Ordering::AcqRel);
        if slots.active.fetch_sub(1, Ordering::AcqRel) == 1 {
            slots.emptied.notify_waiters();
        }
        slots.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_runs_are_claimed_ahead() {
        let name = Name::new("queue", "q").expect("legal");
        let queue = QueueSlots::new(name, 4, 8);
        assert_eq!(queue.ahead(), 0, "nothing is known yet");
        queue.learn(Duration::from_millis(1));
        assert_eq!(queue.ahead(), 8, "200 could start soon, 8 may wait");
        (0..100).for_each(|_| queue.learn(Duration::from_secs(1)));
        assert_eq!(queue.ahead(), 0, "each run takes a second");
    }
}
