//! Commands as values, and the oracle: is what a store answered something that the law allows?
//!
//! The oracle does not predict which rows a store picks or which fence it gives. It takes those from the observed
//! answer, checks that they were allowed, makes the same change, and compares all the rest.

use std::collections::BTreeMap;

use super::ledger::KeyFilter;
use super::runs::Cause;
use super::{
    ClaimAnswer, ClaimRequest, Counters, EnqueueAnswer, Finish, Heartbeat, InstanceView, JobFilter, JobRecord,
    JobState, KeyRecord, LockAnswer, LockHolder, LockRef, LockRequest, Model, NewInstance, NewJob, OnceAnswer, OnceEnd,
    OnceRequest, PeekAnswer, Pruned, QueueView, Reaped, Refusal, RefusalRecord, Release, Resolution, RunRecord, RunRef,
    Settled, Verdict,
};
use crate::clock::{Micros, Now};
use crate::id::{Fence, InstanceId, JobId, Name, OnceKey};

/// Any verb of a store, as a value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is the store verb of its name, with that verb's arguments")]
pub enum Command {
    Enqueue(Vec<NewJob>),
    Peek(ClaimRequest),
    Claim(ClaimRequest),
    Start(Vec<RunRef>),
    Finish(Vec<Finish>),
    Release(InstanceId, Release),
    Progress(RunRef, String),
    Verdict(Vec<RunRef>),
    Register(NewInstance),
    Heartbeat(InstanceId, Vec<RunRef>),
    Leave(InstanceId),
    Reap(InstanceId, u32),
    Prune(u32),
    AcquireLock(LockRequest),
    RenewLock(LockRef, u64),
    ReleaseLock(LockRef),
    LockHolders(Option<Name>),
    ClaimOnce(OnceRequest),
    RenewOnce(OnceKey, Fence, u64),
    FinishOnce(OnceKey, Fence, OnceEnd, u64),
    FindOnce(OnceKey),
    ListOnce(KeyFilter),
    ForgetOnce(OnceKey),
    ResolveOnce(OnceKey, OnceEnd, u64),
    BreakLock(Name, String),
    Cancel(JobId, String),
    Retry(JobId),
    Park(JobId, String),
    Resolve(JobId, Resolution),
    Pause(Name, String),
    Resume(Name),
    Job(JobId),
    List(JobFilter),
    Queues,
    Instances,
    Refusals(u32),
    Counters,
    Now,
}

/// What a store answered to a [`Command`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is the answer type of the verbs that give it")]
pub enum Answer {
    Enqueued(Vec<EnqueueAnswer>),
    Peeked(PeekAnswer),
    Claimed(ClaimAnswer),
    Settled(Vec<Settled>),
    Released(Vec<JobId>),
    Verdicts(Vec<Verdict>),
    Heartbeat(Heartbeat),
    Reaped(Reaped),
    Pruned(Pruned),
    Lock(LockAnswer),
    Holders(Vec<LockHolder>),
    Once(OnceAnswer),
    Key(Option<KeyRecord>),
    Keys(Vec<KeyRecord>),
    State(JobState),
    Job(Option<Box<(JobRecord, Vec<RunRecord>)>>),
    Jobs(Vec<JobRecord>),
    Queues(Vec<QueueView>),
    Instances(Vec<InstanceView>),
    Refusals(Vec<RefusalRecord>),
    Counters(Counters),
    Now(Micros),
    Unit,
}

impl Model {
    /// Applies any command.
    pub fn apply(&mut self, now: Now, command: &Command) -> Result<Answer, Refusal> {
        let answer = match command {
            Command::Enqueue(jobs) => Answer::Enqueued(self.enqueue(now, jobs)),
            Command::Peek(request) => Answer::Peeked(self.peek(now, request)),
            Command::Claim(request) => Answer::Claimed(self.claim(now, request)?),
            Command::Start(runs) => Answer::Settled(self.start(now, runs)),
            Command::Finish(finishes) => Answer::Settled(self.finish(now, finishes)),
            Command::Release(instance, what) => Answer::Released(self.release(now, *instance, what)),
            Command::Progress(run, text) => Answer::Settled(vec![self.progress(now, *run, text)]),
            Command::Verdict(runs) => Answer::Verdicts(self.verdict(runs)),
            Command::Register(new) => self.register(now, new).map(|()| Answer::Unit)?,
            Command::Heartbeat(id, started) => Answer::Heartbeat(self.heartbeat(now, *id, started)),
            Command::Leave(id) => Answer::Reaped(self.leave(now, *id)),
            Command::Reap(by, limit) => Answer::Reaped(self.reap(now, *by, *limit)?),
            Command::Prune(limit) => Answer::Pruned(self.prune(now, *limit)),
            other => return self.apply_lease(now, other),
        };
        Ok(answer)
    }

    /// Locks and once keys; apart from [`Model::apply`] only to keep both readable, as the next two.
    fn apply_lease(&mut self, now: Now, command: &Command) -> Result<Answer, Refusal> {
        let answer = match command {
            Command::AcquireLock(request) => Answer::Lock(self.acquire_lock(now, request)),
            Command::RenewLock(lock, lease_ms) => self.renew_lock(now, lock, *lease_ms).map(|()| Answer::Unit)?,
            Command::ReleaseLock(lock) => self.release_lock(now, lock).map(|()| Answer::Unit)?,
            Command::LockHolders(name) => Answer::Holders(self.lock_holders(now, name.as_ref())),
            Command::ClaimOnce(request) => Answer::Once(self.claim_once(now, request)),
            Command::RenewOnce(key, fence, ms) => self.renew_once(now, key, *fence, *ms).map(|()| Answer::Unit)?,
            Command::FinishOnce(key, fence, end, keep_ms) => {
                self.finish_once(now, (key, *fence), end, *keep_ms).map(|()| Answer::Unit)?
            }
            Command::FindOnce(key) => Answer::Key(self.find_once(now, key)),
            Command::ListOnce(filter) => Answer::Keys(self.list_once(now, filter)),
            Command::ForgetOnce(key) => self.forget_once(now, key).map(|()| Answer::Unit)?,
            Command::ResolveOnce(key, end, keep_ms) => {
                self.resolve_once(now, key, end, *keep_ms).map(|()| Answer::Unit)?
            }
            Command::BreakLock(name, reason) => Answer::Holders(self.break_lock(now, name, reason)),
            other => return self.apply_by_people(now, other),
        };
        Ok(answer)
    }

    /// What people do and see.
    fn apply_by_people(&mut self, now: Now, command: &Command) -> Result<Answer, Refusal> {
        let answer = match command {
            Command::Cancel(id, reason) => Answer::State(self.cancel(now, *id, reason)?),
            Command::Retry(id) => Answer::State(self.retry(now, *id)?),
            Command::Park(id, reason) => Answer::State(self.park(now, *id, reason)?),
            Command::Resolve(id, found) => Answer::State(self.resolve(now, *id, *found)?),
            Command::Pause(queue, reason) => {
                self.pause(now, queue, reason);
                Answer::Unit
            }
            Command::Resume(queue) => self.resume(queue).map(|()| Answer::Unit)?,
            Command::Job(id) => {
                Answer::Job(self.job(*id).map(|job| Box::new((job.clone(), self.runs_of(*id).to_vec()))))
            }
            Command::List(filter) => Answer::Jobs(self.list(filter)),
            Command::Queues => Answer::Queues(self.queues()),
            Command::Instances => Answer::Instances(self.instances(now)),
            Command::Refusals(limit) => Answer::Refusals(self.refusals(*limit)),
            Command::Counters => Answer::Counters(self.counters()),
            Command::Now => Answer::Now(now.wall),
            _ => unreachable!("the others handle the rest"),
        };
        Ok(answer)
    }

    /// Checks that `observed` is a legal answer to `command` now, and makes the change that it reports.
    ///
    /// # Errors
    /// What is wrong with it, for a person.
    pub fn observe(&mut self, now: Now, command: &Command, observed: &Result<Answer, Refusal>) -> Result<(), String> {
        if let (Command::Claim(request), Ok(Answer::Claimed(claimed))) = (command, observed) {
            return self.observe_claim(now, request, claimed);
        }
        if let (Command::Prune(limit), Ok(Answer::Pruned(pruned))) = (command, observed) {
            return self.observe_prune(now, *limit, *pruned);
        }
        if let (Command::Reap(by, limit), Ok(Answer::Reaped(reaped))) = (command, observed) {
            return self.observe_reap(now, (*by, *limit), reaped);
        }
        if let Some(fence) = granted_fence(observed)
            && fence.as_i64() > self.fences
        {
            self.fences = fence.as_i64() - 1;
        }
        let expected = self.apply(now, command);
        if let (Ok(Answer::Peeked(lawful)), Ok(Answer::Peeked(seen))) = (&expected, observed) {
            return observe_peek(*lawful, *seen);
        }
        if in_order(expected.clone()) == in_order(observed.clone()) {
            return Ok(());
        }
        Err(format!("{command:?}\n  answered {observed:?}\n  lawful   {expected:?}"))
    }

    /// Which of the forgotten keys go first is the store's choice: it shows nowhere but in this count, now or later.
    fn observe_prune(&mut self, now: Now, limit: u32, observed: Pruned) -> Result<(), String> {
        let expected = self.prune(now, limit);
        if observed.keys <= limit && observed == (Pruned { keys: observed.keys, ..expected }) {
            return Ok(());
        }
        Err(format!("prune of {limit} gave {observed:?}, lawful {expected:?}"))
    }

    fn observe_claim(&mut self, now: Now, request: &ClaimRequest, observed: &ClaimAnswer) -> Result<(), String> {
        self.require_live(now, request.instance).map_err(|refusal| format!("claimed, but {refusal}"))?;
        let repeated = self
            .jobs
            .values()
            .any(|job| job.claim.is_some_and(|c| c.claim == request.claim && c.instance == request.instance));
        if observed.jobs.is_empty() || repeated {
            let expected = self.claim(now, request).map_err(|refusal| refusal.to_string())?;
            let same = by_id(&expected) == by_id(observed);
            return if same { Ok(()) } else { Err(format!("claim gave {observed:?}, lawful {expected:?}")) };
        }
        self.promote(now);
        self.claimable(request, observed)?;
        let fence = observed.jobs[0].fence.ok_or("claimed a job without a fence")?;
        if fence.as_i64() <= self.fences {
            return Err(format!("fence {fence} is not above the last one, {}", self.fences));
        }
        self.fences = fence.as_i64() - 1;
        let picked: Vec<JobId> = observed.jobs.iter().map(|job| job.id).collect();
        let granted = self.grant(now, request, &picked);
        if granted == *observed {
            return Ok(());
        }
        Err(format!("claim left {observed:?}\n  lawful {granted:?}"))
    }

    /// Takes an empty claim for lawful although there is work: a store may pass over jobs that another call holds at
    /// that moment, even one that is refused in the end. Only for a claim that overlapped with such a call.
    ///
    /// # Errors
    /// What is wrong with it, for a person.
    pub fn observe_passing_over(&mut self, now: Now, request: &ClaimRequest) -> Result<(), String> {
        self.require_live(now, request.instance).map_err(|refusal| format!("claimed, but {refusal}"))?;
        let mine = |job: &JobRecord| job.claim.is_some_and(|c| c.claim == request.claim);
        if self.jobs.values().any(mine) {
            return Err("a repeated claim gave nothing back".to_owned());
        }
        self.promote(now);
        Ok(())
    }

    /// A reaper may bite off whatever it likes of what is due, but as much as it may.
    fn observe_reap(&mut self, now: Now, (by, limit): (InstanceId, u32), observed: &Reaped) -> Result<(), String> {
        if !self.may_reap(now, by).map_err(|refusal| format!("reaped, but {refusal}"))? {
            let nothing = *observed == Reaped::default();
            return if nothing { Ok(()) } else { Err(format!("{by} may not reap yet, and reaped {observed:?}")) };
        }
        let dead = self.declare_dead(now);
        let mut due: BTreeMap<JobId, Cause> = self.reapable(now).collect();
        let bite = due.len().min(limit as usize);
        let mut taken_back = Vec::new();
        for (job, _) in &observed.taken_back {
            let cause = due.remove(job).ok_or_else(|| format!("{job} was not to be taken back: {observed:?}"))?;
            taken_back.push((*job, self.take_back(now, *job, cause)));
        }
        let full = taken_back.len() == bite;
        let expected = Reaped { dead, taken_back, more: bite == limit as usize };
        if full && in_order(Ok(Answer::Reaped(expected.clone()))) == in_order(Ok(Answer::Reaped(observed.clone()))) {
            return Ok(());
        }
        Err(format!("reaped {observed:?}\n  lawful {expected:?}, {bite} in all"))
    }

    /// Whether each job of an observed claim could be claimed, within the limits of its queue.
    fn claimable(&self, request: &ClaimRequest, observed: &ClaimAnswer) -> Result<(), String> {
        let mut left: BTreeMap<&Name, u64> = BTreeMap::new();
        for (queue, limit) in &request.queues {
            *left.entry(queue).or_default() += u64::from(*limit);
        }
        let alone = observed.jobs.len() == 1;
        if by_id(observed).len() < observed.jobs.len() {
            return Err(format!("a job was claimed twice in one answer: {observed:?}"));
        }
        for job in &observed.jobs {
            let known = self.jobs.get(&job.id).ok_or_else(|| format!("claimed job {} is unknown", job.id))?;
            let ready = JobState::CLAIMABLE.contains(&known.state) && !self.pauses.contains_key(&known.queue);
            if !ready || !request.kinds.contains(&known.kind) {
                return Err(format!("claimed job {} is {} or not asked for", job.id, known.state));
            }
            if known.suspect && !(request.suspect && alone) {
                return Err(format!("suspect {} was not claimed alone", job.id));
            }
            match left.get_mut(&known.queue) {
                Some(n) if *n > 0 => *n -= 1,
                _ => return Err(format!("more of queue {} than asked for", known.queue)),
            }
        }
        Ok(())
    }
}

fn by_id(answer: &ClaimAnswer) -> BTreeMap<JobId, &JobRecord> {
    answer.jobs.iter().map(|job| (job.id, job)).collect()
}

/// A peek is a hint: it may send somebody to look for nothing, but it may not let work lie.
fn observe_peek(lawful: PeekAnswer, seen: PeekAnswer) -> Result<(), String> {
    let in_time = lawful.next_due_in_ms.is_none_or(|ms| seen.next_due_in_ms.is_some_and(|seen| seen <= ms));
    let looks = seen.ready || !lawful.ready;
    if in_time && looks { Ok(()) } else { Err(format!("peek lets work lie: {seen:?}, lawful {lawful:?}")) }
}

fn granted_fence(observed: &Result<Answer, Refusal>) -> Option<Fence> {
    match observed {
        Ok(Answer::Lock(LockAnswer::Granted(lock))) => Some(lock.fence),
        Ok(Answer::Once(OnceAnswer::Claimed { fence, .. })) => Some(*fence),
        _ => None,
    }
}

/// Answers whose order means nothing, in one order.
fn in_order(answer: Result<Answer, Refusal>) -> Result<Answer, Refusal> {
    answer.map(|answer| match answer {
        Answer::Heartbeat(Heartbeat::Alive { mut owned }) => {
            owned.sort_by_key(|run| run.run);
            Answer::Heartbeat(Heartbeat::Alive { owned })
        }
        Answer::Reaped(mut reaped) => {
            reaped.dead.sort();
            reaped.taken_back.sort();
            Answer::Reaped(reaped)
        }
        Answer::Released(mut ids) => {
            ids.sort();
            Answer::Released(ids)
        }
        other => other,
    })
}
