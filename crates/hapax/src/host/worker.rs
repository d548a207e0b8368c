//! Runs jobs: one loop for all queues of a host.
//!
//! 1. Claims only what can start now or soon, many jobs in one call, and never while nothing is free.
//! 2. Registers for hints, then looks, then waits: for a hint, a due time, a free slot, or the poll interval.
//! 3. Begins what it has claimed, in order, while slots are free and the lease holds.
//! 4. Takes one suspect at a time: a job that may have killed its owner shall take few others along.
//! 5. Gives back what waited too long, or may not begin any more.
//!
//! Users' code never runs in this loop.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Sleep, sleep};

use super::claimer::{Asked, Look, ask, settle_lost};
use super::core::{Core, Tally};
use super::instance::Instance;
use super::pace::{Pace, around};
use super::registry::BoxFuture;
use super::run::Run;
use super::runner;
use super::shutdown::Stop;
use crate::clock::Anchor;
use crate::id::{ClaimId, Name};
use crate::model::{JobRecord, RunRef};
use crate::task::BoxError;

/// Longest time that a claimed job waits in memory; another instance may be idle.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Works until asked to stop.
pub(crate) async fn serve(core: Arc<Core>, stop: Stop) -> Result<(), BoxError> {
    let mut hints = core.hapax.wake().register();
    let mut instances = core.instance.subscribe();
    let mut worker = Worker::new(core, &mut instances);
    while !stop.is_requested() {
        worker.begin_waiting();
        worker.ask_for_work();
        let asking = worker.asking.is_some();
        let sleeping = !asking && worker.next_look.is_none();
        let waiting = worker.waiting() > 0;
        tokio::select! {
            () = stop.requested() => break,
            asked = answer(&mut worker.asking), if asking => worker.take_answer(asked),
            () = worker.core.slots.changed.notified() => {}
            // A hint that comes while the store is asked stays for the next turn: the answer may be older.
            () = hints.wait(), if sleeping => worker.next_look = Some(Look::First),
            // Polling is the truth: whatever signal was missed, it costs no more than this.
            () = &mut worker.poll, if !asking => worker.poll_now(),
            () = &mut worker.review, if waiting => worker.give_back_late(),
            _ = instances.changed() => worker.move_to(&mut instances),
        }
    }
    worker.end().await;
    Ok(())
}

/// The answer that is awaited; the future is gone when it is there.
async fn answer(asking: &mut Option<BoxFuture<Asked>>) -> Asked {
    let asked = asking.as_mut().expect("asked only while something is awaited").await;
    *asking = None;
    asked
}

struct Worker {
    core: Arc<Core>,
    instance: Arc<Instance>,
    /// Claimed jobs that wait for a slot, by queue.
    buffers: Vec<VecDeque<Run>>,
    asking: Option<BoxFuture<Asked>>,
    /// How many jobs were asked for.
    asked_for: usize,
    /// How to ask next; nothing to wait for a hint or the poll interval first.
    next_look: Option<Look>,
    poll: Pin<Box<Sleep>>,
    /// When to see whether jobs have waited too long.
    review: Pin<Box<Sleep>>,
    pace: Pace,
}

impl Worker {
    fn new(core: Arc<Core>, instances: &mut watch::Receiver<Arc<Instance>>) -> Self {
        let instance = Arc::clone(&instances.borrow_and_update());
        // After a restart: what an earlier worker had in hand is given back by the next heartbeat.
        instance.forget_unbegun();
        let poll = core.settings.poll;
        Self {
            buffers: core.slots.queues.iter().map(|_| VecDeque::new()).collect(),
            core,
            instance,
            asking: None,
            asked_for: 0,
            next_look: Some(Look::First),
            poll: Box::pin(sleep(poll)),
            review: Box::pin(sleep(WAIT_MAX)),
            pace: Pace::new(poll, Duration::from_secs(5)),
        }
    }

    /// Jobs that wait in memory.
    fn waiting(&self) -> usize {
        self.buffers.iter().map(VecDeque::len).sum()
    }

    /// Begins jobs while slots are free.
    fn begin_waiting(&mut self) {
        if !self.instance.is_usable() {
            return;
        }
        let mut late = Vec::new();
        for (queue, buffer) in self.buffers.iter_mut().enumerate() {
            while let Some(run) = buffer.front() {
                if run.signal().reason().is_some() || run.soft_deadline().passed() {
                    late.push(run.reference());
                    buffer.pop_front();
                    continue;
                }
                let Some(slot) = self.core.slots.take(queue, run.record().suspect) else { break };
                let run = buffer.pop_front().expect("it was just looked at");
                match self.core.registry.get(run.kind()) {
                    Some(entry) => runner::begin(&self.core, Arc::clone(entry), run, slot),
                    None => late.push(run.reference()),
                }
            }
        }
        self.give_back(late);
    }

    /// Asks the store, if it is time to and there is room.
    fn ask_for_work(&mut self) {
        let Some(look) = self.next_look else { return };
        if self.asking.is_some() || !self.instance.is_usable() || self.core.slots.is_clogged() {
            return;
        }
        let wanted = self.room();
        if wanted.is_empty() {
            return;
        }
        let suspect = self.core.slots.suspects() == 0 && !self.buffers.iter().flatten().any(|run| run.record().suspect);
        self.asked_for = wanted.iter().map(|(_, n)| *n as usize).sum();
        self.next_look = None;
        let (core, instance) = (Arc::clone(&self.core), Arc::clone(&self.instance));
        self.asking = Some(Box::pin(ask(core, instance, wanted, (look, suspect))));
    }

    /// What each queue can take; nothing while every slot has its next job already and half as many more wait.
    fn room(&self) -> Vec<(Name, u32)> {
        let queues = || self.core.slots.queues.iter().zip(&self.buffers);
        let held = |buffer: &VecDeque<Run>| u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        let hungry = queues().any(|(queue, buffer)| {
            let (free, ahead) = (queue.free(), queue.ahead());
            free > held(buffer) || (ahead > 0 && held(buffer) <= ahead / 2)
        });
        if !hungry {
            return Vec::new();
        }
        let room = queues()
            .map(|(queue, buffer)| (queue.name.clone(), (queue.free() + queue.ahead()).saturating_sub(held(buffer))));
        room.filter(|(_, n)| *n > 0).collect()
    }

    fn take_answer(&mut self, asked: Asked) {
        match asked {
            Asked::Nothing { next_due } => {
                self.pace.reset();
                self.core.idle.send_if_modified(|idle| !std::mem::replace(idle, true));
                let poll = around(self.core.settings.poll);
                self.poll_after(next_due.map_or(poll, |due| due.min(poll)));
            }
            Asked::Claimed { jobs, claim, anchor } => {
                self.pace.reset();
                // A suspect comes alone, whatever else is there.
                let more = jobs.len() >= self.asked_for || jobs.first().is_some_and(|job| job.suspect);
                let nothing = jobs.is_empty();
                if !nothing {
                    self.core.idle.send_if_modified(|idle| std::mem::replace(idle, false));
                }
                self.take_jobs(jobs, claim, anchor);
                match (more, nothing) {
                    (true, _) => self.next_look = Some(Look::Not),
                    (false, false) => self.next_look = Some(Look::First),
                    // Another instance was faster.
                    (false, true) => self.poll_after(around(self.core.settings.poll)),
                }
            }
            Asked::NotLive { claim } => {
                self.instance.take_claim(claim, &[]);
                self.core.beat_now.notify_one();
                self.poll_after(around(self.core.settings.poll));
            }
            Asked::Failed { claim, error } => {
                if self.pace.failures() == 0 {
                    tracing::warn!(%error, "could not ask for jobs; trying again");
                }
                let wait = self.pace.next();
                self.poll_after(wait);
                if let Some(claim) = claim {
                    let (core, instance) = (Arc::clone(&self.core), Arc::clone(&self.instance));
                    tokio::spawn(settle_lost(core, instance, claim, error));
                }
            }
        }
    }

    fn take_jobs(&mut self, jobs: Vec<JobRecord>, claim: ClaimId, anchor: Anchor) {
        Tally::add(&self.core.tally.claimed, jobs.len() as u64);
        let mut runs = Vec::with_capacity(jobs.len());
        for job in jobs {
            let Some(queue) = self.core.slots.queues.iter().position(|queue| queue.name == job.queue) else {
                tracing::error!(job = %job.id, queue = %job.queue, "the store gave a job of a queue nobody asked for");
                continue;
            };
            self.core.slots.queues[queue].waited(&job);
            match Run::new(job, Arc::clone(&self.instance), anchor) {
                Ok(run) => runs.push((queue, run)),
                Err(error) => tracing::error!(%error, "left a job to the next heartbeat"),
            }
        }
        let held: Vec<Run> = runs.iter().map(|(_, run)| run.clone()).collect();
        self.instance.take_claim(claim, &held);
        if self.waiting() == 0 {
            self.review.set(sleep(WAIT_MAX));
        }
        for (queue, run) in runs {
            // A suspect's start is recorded already: it goes first.
            if run.record().suspect {
                self.buffers[queue].push_front(run);
            } else {
                self.buffers[queue].push_back(run);
            }
        }
    }

    /// The poll interval has passed.
    fn poll_now(&mut self) {
        self.next_look.get_or_insert(Look::First);
        self.poll.set(sleep(around(self.core.settings.poll)));
    }

    fn poll_after(&mut self, wait: Duration) {
        self.next_look = None;
        self.poll.set(sleep(wait));
    }

    /// Gives back what has waited too long.
    fn give_back_late(&mut self) {
        let mut late = Vec::new();
        for buffer in &mut self.buffers {
            buffer.retain(|run| {
                let stays = run.waited() < WAIT_MAX && run.signal().reason().is_none();
                if !stays {
                    late.push(run.reference());
                }
                stays
            });
        }
        self.give_back(late);
        self.review.set(sleep(WAIT_MAX / 4));
    }

    fn give_back(&self, runs: Vec<RunRef>) {
        if !runs.is_empty() {
            let (core, instance) = (Arc::clone(&self.core), Arc::clone(&self.instance));
            tokio::spawn(async move { core.give_back(&instance, runs).await });
        }
    }

    /// The store declared the instance dead, and the keeper has registered another.
    fn move_to(&mut self, instances: &mut watch::Receiver<Arc<Instance>>) {
        self.instance = Arc::clone(&instances.borrow_and_update());
        self.buffers.iter_mut().for_each(VecDeque::clear);
        self.asking = None;
        self.next_look = Some(Look::First);
    }

    /// Waits for a claim that is on its way, and gives back everything that has not begun.
    async fn end(mut self) {
        if self.asking.is_some() {
            let asked = answer(&mut self.asking).await;
            self.take_answer(asked);
        }
        let left: Vec<RunRef> = self.buffers.iter().flatten().map(Run::reference).collect();
        self.core.give_back(&self.instance, left).await;
    }
}
