//! Enqueue, claim, start, release, progress and verdict; how runs end is in `runs.rs`.

use std::collections::BTreeSet;

use super::job::{Claimed, JobRecord, JobState, Step, next};
use super::{
    ClaimAnswer, ClaimRequest, Due, EnqueueAnswer, Model, NewJob, PeekAnswer, Refusal, Release, RunRef, Settled,
    Verdict,
};
use crate::clock::{Micros, Now};
use crate::id::{Fence, InstanceId, JobId, Name};

impl Model {
    /// Takes jobs, in order; each for itself.
    pub fn enqueue(&mut self, now: Now, jobs: &[NewJob]) -> Vec<EnqueueAnswer> {
        jobs.iter().map(|job| self.enqueue_one(now, job)).collect()
    }

    fn enqueue_one(&mut self, now: Now, new: &NewJob) -> EnqueueAnswer {
        if self.jobs.contains_key(&new.id) {
            return EnqueueAnswer::Enqueued { id: new.id };
        }
        if let Some(once) = &new.once
            && let Some(refused) = self.take_key_for_job(now, once, new.id)
        {
            return refused;
        }
        let due_at = match new.due {
            Due::Now => now.wall,
            Due::InMs(ms) => now.wall.plus_ms(ms),
            Due::At(at) => at,
        };
        let job = JobRecord {
            id: new.id,
            queue: new.queue.clone(),
            kind: new.kind.clone(),
            payload: new.payload.clone(),
            payload_version: new.payload_version,
            priority: new.priority,
            state: if due_at > now.wall { JobState::Scheduled } else { JobState::Ready },
            due_at,
            enqueued_at: now.wall,
            once: new.once.as_ref().map(|once| once.key.clone()),
            fingerprint: new.once.as_ref().and_then(|once| once.fingerprint),
            guarantee: new.guarantee,
            retry: new.retry,
            run_timeout_ms: new.run_timeout_ms,
            keep_ms: new.keep_ms,
            keep_key_ms: new.once.as_ref().map_or(0, |once| once.keep_ms),
            fence: None,
            ended_fence: None,
            claim: None,
            runs: 0,
            failures: 0,
            takeovers: 0,
            unstarted_takeovers: 0,
            suspect: false,
            cancel_requested: false,
            progress: None,
            result: None,
            reason: None,
            finished_at: None,
            purge_at: None,
            refused: 0,
        };
        self.index.insert(&job);
        self.jobs.insert(new.id, job);
        EnqueueAnswer::Enqueued { id: new.id }
    }

    /// Whether a claim by `request`'s queues and kinds may find something.
    pub fn peek(&self, now: Now, request: &ClaimRequest) -> PeekAnswer {
        let open = |queue: &Name| !self.pauses.contains_key(queue);
        let waiting =
            |(queue, _): &(Name, u32)| open(queue) && self.ready_in(queue).any(|job| request.kinds.contains(&job.kind));
        let due = self.index.scheduled.iter().take_while(|(at, _)| *at <= now.wall).any(|(_, id)| {
            let job = &self.jobs[id];
            let asked = request.queues.iter().any(|(queue, _)| *queue == job.queue);
            asked && open(&job.queue) && request.kinds.contains(&job.kind)
        });
        let later = self.index.scheduled.iter().map(|(at, _)| *at).find(|at| *at > now.wall);
        // Rounded up: to wake before the due time would be to wake for nothing.
        let next_due_in_ms = later.map(|at| at.ms_since(now.wall) + 1);
        PeekAnswer { ready: due || request.queues.iter().any(waiting), next_due_in_ms }
    }

    /// Gives work to a live instance: one suspect alone, or the first of each queue. All of one claim share a fence.
    pub fn claim(&mut self, now: Now, request: &ClaimRequest) -> Result<ClaimAnswer, Refusal> {
        self.require_live(now, request.instance)?;
        let owned = self.owned(request.instance).into_iter().map(|id| &self.jobs[&id]);
        let earlier: Vec<JobRecord> =
            owned.filter(|job| job.claim.is_some_and(|c| c.claim == request.claim)).cloned().collect();
        if !earlier.is_empty() {
            return Ok(ClaimAnswer { jobs: earlier });
        }
        self.promote(now);
        let picked = self.pick(request);
        Ok(self.grant(now, request, &picked))
    }

    /// Makes due jobs ready.
    pub(super) fn promote(&mut self, now: Now) {
        let due: Vec<JobId> = self
            .index
            .scheduled
            .range(..=(now.wall, JobId::from_uuid(uuid::Uuid::max())))
            .map(|(_, id)| *id)
            .take(super::PROMOTED_MAX)
            .collect();
        for id in due {
            self.step(id, Step::Due);
        }
    }

    fn pick(&self, request: &ClaimRequest) -> Vec<JobId> {
        let open = |(queue, limit): &&(Name, u32)| *limit > 0 && !self.pauses.contains_key(queue);
        if request.suspect
            && let Some(id) = request.queues.iter().filter(open).find_map(|(q, _)| self.asked(request, q, true).next())
        {
            return vec![id];
        }
        let mut picked = Vec::new();
        for (queue, limit) in request.queues.iter().filter(open) {
            picked.extend(self.asked(request, queue, false).take(*limit as usize));
        }
        picked
    }

    /// Ready jobs of a queue that the request has a task for: the suspects, or the others.
    fn asked<'a>(&'a self, request: &'a ClaimRequest, queue: &'a Name, suspect: bool) -> impl Iterator<Item = JobId> {
        let mine = move |job: &&JobRecord| job.suspect == suspect && request.kinds.contains(&job.kind);
        self.ready_in(queue).filter(mine).map(|job| job.id)
    }

    /// Ready jobs of a queue, in the order of their claims.
    fn ready_in<'a>(&'a self, queue: &'a Name) -> impl Iterator<Item = &'a JobRecord> {
        let first = (queue.clone(), i16::MIN, Micros(i64::MIN), JobId::from_uuid(uuid::Uuid::nil()));
        self.index.ready.range(first..).take_while(move |entry| entry.0 == *queue).map(|entry| &self.jobs[&entry.3])
    }

    /// Hands `picked` jobs to the instance, under one new fence.
    pub(super) fn grant(&mut self, now: Now, request: &ClaimRequest, picked: &[JobId]) -> ClaimAnswer {
        if picked.is_empty() {
            return ClaimAnswer::default();
        }
        let fence = self.next_fence();
        for id in picked {
            self.step(*id, Step::Claim);
            self.change(*id, |job| {
                job.fence = Some(fence);
                job.progress = None;
                job.claim = Some(Claimed {
                    instance: request.instance,
                    claim: request.claim,
                    at: now.wall,
                    started_at: job.suspect.then_some(now.wall),
                    deadline: now.lease.plus_ms(job.run_timeout_ms),
                });
            });
        }
        ClaimAnswer { jobs: picked.iter().map(|id| self.jobs[id].clone()).collect() }
    }

    /// Records that runs have begun, and counts their deadline from now.
    pub fn start(&mut self, now: Now, runs: &[RunRef]) -> Vec<Settled> {
        runs.iter()
            .map(|run| match self.current(*run) {
                Ok(()) => {
                    self.begin(now, run.job);
                    Settled::Counted { state: JobState::Running }
                }
                Err(refused) => self.refuse_run(now, "start", *run, refused),
            })
            .collect()
    }

    pub(super) fn begin(&mut self, now: Now, id: JobId) {
        self.change(id, |job| {
            let timeout_ms = job.run_timeout_ms;
            if let Some(claim) = &mut job.claim
                && claim.started_at.is_none()
            {
                claim.started_at = Some(now.wall);
                claim.deadline = now.lease.plus_ms(timeout_ms);
            }
        });
    }

    /// Takes back what was not begun, untouched; gives the ids that were released.
    pub fn release(&mut self, now: Now, instance: InstanceId, what: &Release) -> Vec<JobId> {
        let ids: Vec<JobId> = match what {
            Release::Claim(claim) => {
                let owned = self.owned(instance);
                let unstarted =
                    |id: &JobId| self.jobs[id].claim.is_some_and(|c| c.claim == *claim && c.started_at.is_none());
                owned.into_iter().filter(unstarted).collect()
            }
            Release::Runs(runs) => {
                let current = runs.iter().filter(|run| self.current(**run).is_ok()).map(|run| run.job);
                // A run named twice is given back once.
                current.collect::<BTreeSet<JobId>>().into_iter().collect()
            }
        };
        for id in &ids {
            let cancelled = self.jobs[id].cancel_requested;
            self.leave_run(now, *id, if cancelled { Step::EndCancelled } else { Step::Release });
        }
        ids
    }

    /// Keeps what the current run says of its progress.
    pub fn progress(&mut self, now: Now, run: RunRef, text: &str) -> Settled {
        match self.current(run) {
            Ok(()) => {
                self.change(run.job, |job| job.progress = Some(text.to_owned()));
                Settled::Counted { state: JobState::Running }
            }
            Err(refused) => self.refuse_run(now, "progress", run, refused),
        }
    }

    /// What the ledger says of runs whose answer was lost.
    pub fn verdict(&self, runs: &[RunRef]) -> Vec<Verdict> {
        runs.iter()
            .map(|run| match self.jobs.get(&run.job) {
                Some(job) if self.current(*run).is_ok() => {
                    debug_assert_eq!(job.state, JobState::Running);
                    Verdict::Current
                }
                Some(job) if job.ended_fence == Some(run.fence) => Verdict::Ended { state: job.state },
                _ => Verdict::NotMine,
            })
            .collect()
    }

    /// Whether `run` is the current run of its job; else the answer to give.
    pub(super) fn current(&self, run: RunRef) -> Result<(), Settled> {
        let job = self.jobs.get(&run.job);
        match job {
            Some(job) if job.state == JobState::Running && job.fence == Some(run.fence) => Ok(()),
            _ => Err(Settled::Refused { state: job.map(|j| j.state), current: job.and_then(|j| j.fence) }),
        }
    }

    pub(super) fn refuse_run(&mut self, now: Now, verb: &str, run: RunRef, refused: Settled) -> Settled {
        self.refuse(now.wall, verb, run.job.to_string(), Some(run.fence));
        if let Some(job) = self.jobs.get_mut(&run.job) {
            job.refused += 1;
        }
        refused
    }

    /// Applies one cell of the table, which must allow it.
    pub(super) fn step(&mut self, id: JobId, step: Step) {
        let state = self.jobs[&id].state;
        let transition = next(state, step).unwrap_or_else(|| panic!("{step:?} from {state} is not in the table"));
        self.change(id, |job| job.state = transition.to);
    }

    /// Ids of the jobs that belong to an instance.
    pub(super) fn owned(&self, instance: InstanceId) -> Vec<JobId> {
        let first = (instance, JobId::from_uuid(uuid::Uuid::nil()));
        self.index.owned.range(first..).take_while(|(owner, _)| *owner == instance).map(|(_, id)| *id).collect()
    }

    pub(super) fn fence_of(&self, id: JobId) -> Fence {
        self.jobs[&id].fence.expect("a claimed job has a fence")
    }
}
