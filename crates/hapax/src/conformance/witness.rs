//! A second judge, who knows nothing of the model: sees what was asked and answered, and holds it against DESIGN §6.
//!
//! Where the model itself were wrong, every store would be wrong with it, and the oracle would nod.

use std::collections::{BTreeMap, BTreeSet};

use crate::clock::{Micros, Now};
use crate::id::{Fence, JobId, Name, OnceKey};
use crate::model::observe::{Answer, Command};
use crate::model::{
    Due, End, EnqueueAnswer, Finish, Guarantee, JobRecord, JobState, LockAnswer, LockRef, LockRequest, NewJob,
    OnceAnswer, OnceEnd, OnceRequest, Refusal, Resolution, Settled,
};

/// What was seen so far.
#[derive(Debug, Default)]
pub(super) struct Witness {
    /// The latest that the wall clock ever showed: what was due then stays due.
    latest: Micros,
    jobs: BTreeMap<JobId, Seen>,
    /// Jobs enqueued more than once under one id: pruned in between or not, this judge cannot tell.
    muddled: BTreeSet<JobId>,
    locks: BTreeMap<(Name, u32), Held>,
    keys: BTreeMap<OnceKey, KeySeen>,
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is something that was seen or not, and all may be at once")]
struct Seen {
    due: Option<Micros>,
    at_most_once: bool,
    key: Option<(OnceKey, u64)>,
    fence: Option<Fence>,
    /// A run of an at-most-once job has begun, and nobody said yet that it had no effect.
    may_have_happened: bool,
    done: bool,
    /// Done or cancelled, for all that is known: its key may be another's.
    ended: bool,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    fence: Fence,
    until: Micros,
    permits: u32,
}

#[derive(Clone, Copy, Debug)]
enum KeySeen {
    Job(JobId),
    Claim(Held),
    DoneUntil(Micros),
}

impl Witness {
    /// Takes note of an answer.
    ///
    /// # Errors
    /// The law that it breaks.
    pub(super) fn see(&mut self, now: Now, command: &Command, answer: &Result<Answer, Refusal>) -> Result<(), String> {
        self.latest = self.latest.max(now.wall);
        let Ok(answer) = answer else { return Ok(()) };
        match (command, answer) {
            (Command::Enqueue(jobs), Answer::Enqueued(answers)) => {
                jobs.iter().zip(answers).try_for_each(|(job, answer)| self.enqueued(now, job, answer))
            }
            (_, Answer::Claimed(claimed)) => claimed.jobs.iter().try_for_each(|job| self.claimed(job)),
            (Command::Start(runs), Answer::Settled(settled)) => {
                for (run, _) in runs.iter().zip(settled).filter(|(_, settled)| settled.counted()) {
                    self.with(run.job, |job| job.may_have_happened = job.at_most_once);
                }
                Ok(())
            }
            (Command::Finish(finishes), Answer::Settled(settled)) => {
                finishes.iter().zip(settled).try_for_each(|(finish, settled)| self.finished(now, finish, *settled))
            }
            (_, Answer::Released(ids)) => {
                // Whoever gives a run back says that it was not begun. One that was asked to stop may end by it.
                for id in ids {
                    self.with(*id, |job| (job.may_have_happened, job.ended) = (false, true));
                }
                Ok(())
            }
            (_, Answer::Reaped(reaped)) => {
                reaped.taken_back.iter().try_for_each(|(id, state)| self.taken_back(*id, *state))
            }
            (Command::Retry(id) | Command::Resolve(id, Resolution::Retry), Answer::State(_)) => self.retried(now, *id),
            (Command::Cancel(id, _) | Command::Park(id, _) | Command::Resolve(id, _), Answer::State(state)) => {
                self.ended(now, *id, *state);
                Ok(())
            }
            (command, answer) => self.see_leases(now, command, answer),
        }
    }

    fn see_leases(&mut self, now: Now, command: &Command, answer: &Answer) -> Result<(), String> {
        match (command, answer) {
            (Command::AcquireLock(request), Answer::Lock(LockAnswer::Granted(lock))) => self.locked(now, request, lock),
            (Command::RenewLock(lock, lease_ms), Answer::Unit) => {
                let held = self.locks.get_mut(&(lock.name.clone(), lock.slot)).filter(|held| held.fence == lock.fence);
                let held = held.filter(|held| held.until > now.lease);
                let held = held.ok_or_else(|| format!("law 2: {lock:?} was renewed, and is not held"))?;
                held.until = now.lease.plus_ms(*lease_ms);
                Ok(())
            }
            (Command::ReleaseLock(lock), Answer::Unit) => {
                let held = self.locks.get_mut(&(lock.name.clone(), lock.slot)).filter(|held| held.fence == lock.fence);
                held.ok_or_else(|| format!("law 2: {lock:?} was released, and is another's"))?.until = now.lease;
                Ok(())
            }
            (Command::ClaimOnce(request), Answer::Once(OnceAnswer::Claimed { fence, .. })) => {
                self.key_claimed(now, request, *fence)
            }
            (Command::RenewOnce(key, fence, lease_ms), Answer::Unit) => match self.keys.get_mut(key) {
                Some(KeySeen::Claim(held)) if held.fence == *fence && held.until > now.lease => {
                    held.until = now.lease.plus_ms(*lease_ms);
                    Ok(())
                }
                other => Err(format!("law 2: {key} was renewed under {fence}, and is {other:?}")),
            },
            (Command::FinishOnce(key, fence, end, keep_ms), Answer::Unit) => {
                match (self.keys.get_mut(key), end) {
                    (Some(KeySeen::Claim(held)), _) if held.fence != *fence => {
                        return Err(format!("law 2: {key} was ended under {fence}, and is {held:?}"));
                    }
                    (Some(KeySeen::Claim(held)), OnceEnd::Failed { .. }) => held.until = now.lease,
                    (Some(seen @ KeySeen::Claim(_)), OnceEnd::Done { .. }) => {
                        *seen = KeySeen::DoneUntil(now.wall.plus_ms(*keep_ms));
                    }
                    _ => {}
                }
                Ok(())
            }
            (Command::BreakLock(name, _), Answer::Holders(_)) => {
                let of_name = self.locks.iter_mut().filter(|((locked, _), _)| locked == name);
                of_name.for_each(|(_, held)| held.until = held.until.min(now.lease));
                Ok(())
            }
            (Command::ForgetOnce(key) | Command::ResolveOnce(key, OnceEnd::Failed { .. }, _), Answer::Unit) => {
                self.resolved(now, key, None)
            }
            (Command::ResolveOnce(key, OnceEnd::Done { .. }, keep_ms), Answer::Unit) => {
                self.resolved(now, key, Some(now.wall.plus_ms(*keep_ms)))
            }
            _ => Ok(()),
        }
    }

    /// A person says what became of the work of a key: done until then, or free. Not while somebody does it.
    fn resolved(&mut self, now: Now, key: &OnceKey, done_until: Option<Micros>) -> Result<(), String> {
        match (self.keys.get(key), done_until) {
            (Some(KeySeen::Job(_) | KeySeen::Claim(_)), _) => self.key_is_free(now, key)?,
            // The fence of the last claim is remembered: the next one must be higher.
            (Some(KeySeen::DoneUntil(_)), None) => drop(self.keys.remove(key)),
            _ => {}
        }
        if let Some(until) = done_until {
            self.keys.insert(key.clone(), KeySeen::DoneUntil(until));
        }
        Ok(())
    }

    fn with(&mut self, id: JobId, change: impl FnOnce(&mut Seen)) {
        if let Some(job) = self.jobs.get_mut(&id) {
            change(job);
        }
    }

    fn enqueued(&mut self, now: Now, new: &NewJob, answer: &EnqueueAnswer) -> Result<(), String> {
        if !matches!(answer, EnqueueAnswer::Enqueued { .. }) {
            return Ok(());
        }
        if self.jobs.contains_key(&new.id) {
            self.muddled.insert(new.id);
            return Ok(());
        }
        let due = match new.due {
            Due::Now => now.wall,
            Due::InMs(ms) => now.wall.plus_ms(ms),
            Due::At(at) => at,
        };
        let key = new.once.as_ref().map(|once| (once.key.clone(), once.keep_ms));
        if let Some((key, _)) = &key {
            self.key_is_free(now, key)?;
            self.keys.insert(key.clone(), KeySeen::Job(new.id));
        }
        let at_most_once = new.guarantee == Guarantee::AtMostOnce;
        let seen = Seen {
            due: Some(due),
            at_most_once,
            key,
            fence: None,
            may_have_happened: false,
            done: false,
            ended: false,
        };
        self.jobs.insert(new.id, seen);
        Ok(())
    }

    /// Law 7: a key is held while its work lives, and refused once it is done.
    fn key_is_free(&self, now: Now, key: &OnceKey) -> Result<(), String> {
        let taken = match self.keys.get(key) {
            Some(KeySeen::Job(id)) => !self.muddled.contains(id) && !self.jobs.get(id).is_none_or(|job| job.ended),
            Some(KeySeen::Claim(held)) => held.until > now.lease,
            Some(KeySeen::DoneUntil(until)) => *until > self.latest,
            None => false,
        };
        if taken { Err(format!("law 7: {key} was given, and is {:?}", self.keys.get(key))) } else { Ok(()) }
    }

    fn claimed(&mut self, job: &JobRecord) -> Result<(), String> {
        let id = job.id;
        if self.muddled.contains(&id) {
            return Ok(());
        }
        let Some(seen) = self.jobs.get_mut(&id) else { return Err(format!("law 4: {id} was never enqueued")) };
        if job.fence == seen.fence {
            return Ok(());
        }
        if job.fence < seen.fence {
            return Err(format!("law 1: {id} was claimed under {:?} after {:?}", job.fence, seen.fence));
        }
        if seen.due.is_some_and(|due| due > self.latest) {
            return Err(format!("law 4: {id} was claimed before its due time"));
        }
        if seen.may_have_happened {
            return Err(format!("at most once: {id} may have taken effect, and was claimed again"));
        }
        if seen.done {
            return Err(format!("law 5: {id} is done, and was claimed again"));
        }
        seen.fence = job.fence;
        seen.ended = false;
        seen.may_have_happened = seen.at_most_once && job.claim.is_some_and(|claim| claim.started_at.is_some());
        Ok(())
    }

    fn finished(&mut self, now: Now, finish: &Finish, settled: Settled) -> Result<(), String> {
        let (id, fence) = (finish.run.job, finish.run.fence);
        let Settled::Counted { state } = settled else { return Ok(()) };
        if self.muddled.contains(&id) {
            return Ok(());
        }
        let Some(seen) = self.jobs.get_mut(&id) else { return Err(format!("law 4: {id} was never enqueued")) };
        if seen.fence.is_some_and(|current| current != fence) {
            return Err(format!("law 2: {id} was ended under {fence}, and is run under {:?}", seen.fence));
        }
        if seen.ended {
            return Err(format!("law 3: {id} was ended before, and is {state} once more"));
        }
        seen.may_have_happened = state == JobState::InDoubt;
        if let End::Again { delay_ms, .. } = finish.end {
            seen.due = Some(now.wall.plus_ms(delay_ms));
        }
        self.ended(now, id, state);
        Ok(())
    }

    /// A job that lives again takes its key again.
    fn retried(&mut self, now: Now, id: JobId) -> Result<(), String> {
        let Some(seen) = self.jobs.get_mut(&id) else { return Ok(()) };
        (seen.due, seen.may_have_happened) = (None, false);
        let (was_ended, done) = (std::mem::take(&mut seen.ended), seen.done);
        if self.muddled.contains(&id) {
            return Ok(());
        }
        if done {
            return Err(format!("law 5: {id} is done, and was retried"));
        }
        if let (true, Some((key, _))) = (was_ended, self.jobs[&id].key.clone()) {
            if !matches!(self.keys.get(&key), Some(KeySeen::Job(holder)) if *holder == id) {
                self.key_is_free(now, &key)?;
            }
            self.keys.insert(key, KeySeen::Job(id));
        }
        Ok(())
    }

    fn taken_back(&mut self, id: JobId, state: JobState) -> Result<(), String> {
        let doubtful = self.jobs.get(&id).is_some_and(|job| job.may_have_happened) && !self.muddled.contains(&id);
        if doubtful && state != JobState::InDoubt {
            return Err(format!("at most once: {id} may have taken effect, and is {state}"));
        }
        self.with(id, |job| {
            job.due = None;
            job.ended = state == JobState::Cancelled;
        });
        Ok(())
    }

    fn ended(&mut self, now: Now, id: JobId, state: JobState) {
        let Some(seen) = self.jobs.get_mut(&id) else { return };
        seen.ended = matches!(state, JobState::Done | JobState::Cancelled);
        seen.done |= state == JobState::Done;
        if let (JobState::Done, Some((key, keep_ms))) = (state, &seen.key) {
            self.keys.insert(key.clone(), KeySeen::DoneUntil(now.wall.plus_ms(*keep_ms)));
        }
    }

    /// Law 1: one unexpired lease for each slot, no more slots than permits, and a fence that grows.
    fn locked(&mut self, now: Now, request: &LockRequest, lock: &LockRef) -> Result<(), String> {
        let slot = (lock.name.clone(), lock.slot);
        if let Some(held) = self.locks.get(&slot) {
            let again = held.fence == lock.fence && held.until > now.lease;
            if again {
                return Ok(());
            }
            if held.until > now.lease || held.fence >= lock.fence {
                return Err(format!("law 1: {lock:?} was granted over {held:?}"));
            }
        }
        let held = Held { fence: lock.fence, until: now.lease.plus_ms(request.lease_ms), permits: request.permits };
        self.locks.insert(slot, held);
        let of_name = self.locks.iter().filter(|((name, _), held)| *name == lock.name && held.until > now.lease);
        let permits: Vec<u32> = of_name.map(|(_, held)| held.permits).collect();
        match permits.iter().min() {
            Some(fewest) if permits.len() > *fewest as usize => {
                Err(format!("law 1: {lock:?} is one of {}, one of whom shares with {fewest}", permits.len()))
            }
            _ => Ok(()),
        }
    }

    fn key_claimed(&mut self, now: Now, request: &OnceRequest, fence: Fence) -> Result<(), String> {
        let key = &request.claim.key;
        if let Some(KeySeen::Claim(held)) = self.keys.get(key) {
            if held.fence == fence && held.until > now.lease {
                return Ok(());
            }
            if held.fence >= fence {
                return Err(format!("law 1: {key} was granted under {fence} after {held:?}"));
            }
        }
        self.key_is_free(now, key)?;
        let held = Held { fence, until: now.lease.plus_ms(request.lease_ms), permits: 1 };
        self.keys.insert(key.clone(), KeySeen::Claim(held));
        Ok(())
    }
}
