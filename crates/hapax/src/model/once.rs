//! Once keys: held while the work lives, done for their retention, free only when the work did not take effect.

use super::{
    EnqueueAnswer, KeyClaim, KeyHolder, KeyRecord, KeyState, Model, OnceAnswer, OnceEnd, OnceRequest, Refusal,
};
use crate::clock::Now;
use crate::id::{Fence, Fingerprint, JobId, OnceKey};

/// Why a key is not to be had.
enum Taken {
    OtherFingerprint { kept: Fingerprint, given: Fingerprint },
    Same,
}

impl Model {
    /// Takes the key for a job, or says why not.
    pub(super) fn take_key_for_job(&mut self, now: Now, claim: &KeyClaim, id: JobId) -> Option<EnqueueAnswer> {
        match self.taken(now, claim) {
            None if self.is_quarantined(now, claim) => Some(EnqueueAnswer::Quarantined { keep_ms: claim.keep_ms }),
            None => {
                self.keys.insert(claim.key.clone(), key_of_job(now, claim, id, self.keys.get(&claim.key)));
                None
            }
            Some(_) if self.keys[&claim.key].holder == KeyHolder::Job(id) => Some(EnqueueAnswer::Enqueued { id }),
            Some(Taken::OtherFingerprint { kept, given }) => {
                let holder = self.keys[&claim.key].holder.clone();
                Some(EnqueueAnswer::OtherFingerprint { holder, kept, given })
            }
            Some(Taken::Same) => {
                let key = self.refuse_duplicate(now, &claim.key);
                Some(EnqueueAnswer::Existed { holder: key.holder.clone(), done: key.state == KeyState::Done })
            }
        }
    }

    /// Claims a bare key: the right to do its work until the lease ends.
    pub fn claim_once(&mut self, now: Now, request: &OnceRequest) -> OnceAnswer {
        let claim = &request.claim;
        if let Some(key) = self.keys.get(&claim.key)
            && key.state == KeyState::Held
            && key.acquisition == Some(request.acquisition)
            && !is_expired(key, now)
        {
            let fence = key.fence.expect("a bare claim has a fence");
            return OnceAnswer::Claimed { fence, attempt: key.attempts };
        }
        match self.taken(now, claim) {
            None if self.is_quarantined(now, claim) => OnceAnswer::Quarantined { keep_ms: claim.keep_ms },
            None => self.grant_once(now, request),
            Some(Taken::OtherFingerprint { kept, given }) => {
                OnceAnswer::OtherFingerprint { holder: self.keys[&claim.key].holder.clone(), kept, given }
            }
            Some(Taken::Same) => {
                let key = Box::new(self.refuse_duplicate(now, &claim.key).clone());
                if key.state == KeyState::Done { OnceAnswer::Done(key) } else { OnceAnswer::Busy(key) }
            }
        }
    }

    fn grant_once(&mut self, now: Now, request: &OnceRequest) -> OnceAnswer {
        let fence = self.next_fence();
        let claim = &request.claim;
        let old = self.keys.get(&claim.key).filter(|old| !is_forgotten(old, now));
        let attempt = old.map_or(0, |old| old.attempts).saturating_add(1);
        let key = KeyRecord {
            key: claim.key.clone(),
            fingerprint: claim.fingerprint,
            state: KeyState::Held,
            holder: KeyHolder::Claim(request.holder.clone()),
            fence: Some(fence),
            acquisition: Some(request.acquisition),
            lease_until: Some(now.lease.plus_ms(request.lease_ms)),
            attempts: attempt,
            since: now.wall,
            ended_at: None,
            keep_until: None,
            result: None,
            refused: old.map_or(0, |old| old.refused),
            last_refused_at: old.and_then(|old| old.last_refused_at),
        };
        self.keys.insert(claim.key.clone(), key);
        OnceAnswer::Claimed { fence, attempt }
    }

    /// Extends the lease of a bare claim that has not run out.
    pub fn renew_once(&mut self, now: Now, key: &OnceKey, fence: Fence, lease_ms: u64) -> Result<(), Refusal> {
        match self.held_by(key, fence) {
            Some(held) if !is_expired(held, now) => {
                held.lease_until = Some(now.lease.plus_ms(lease_ms));
                Ok(())
            }
            _ => Err(self.refuse_key(now, "renew_once", key, fence)),
        }
    }

    /// Ends the work of a bare claim. A claim past its lease that nobody took over may still end.
    pub fn finish_once(
        &mut self,
        now: Now,
        (key, fence): (&OnceKey, Fence),
        end: &OnceEnd,
        keep_ms: u64,
    ) -> Result<(), Refusal> {
        let Some(held) = self.held_by(key, fence) else {
            // The same end again, after a lost answer, is no fault; once forgotten, it is gone for the pruner or not. A
            // result that comes with it is news of work that counted as done when it began.
            let ended =
                |k: &&mut KeyRecord| k.fence == Some(fence) && k.state == end_state(end) && !is_forgotten(k, now);
            if let Some(record) = self.keys.get_mut(key).filter(ended) {
                if let OnceEnd::Done { result: Some(result) } = end {
                    record.result = Some(result.clone());
                }
                return Ok(());
            }
            return Err(self.refuse_key(now, "finish_once", key, fence));
        };
        held.state = end_state(end);
        held.result = match end {
            OnceEnd::Done { result } => result.clone(),
            OnceEnd::Failed { error } => Some(error.clone()),
        };
        held.lease_until = None;
        held.ended_at = Some(now.wall);
        held.keep_until = Some(now.wall.plus_ms(keep_ms));
        Ok(())
    }

    /// The record of a key, unless its retention has passed.
    pub fn find_once(&self, now: Now, key: &OnceKey) -> Option<KeyRecord> {
        self.keys.get(key).filter(|record| !is_forgotten(record, now)).cloned()
    }

    /// The job's key ends with the job.
    pub(super) fn end_key_of_job(&mut self, now: Now, id: JobId, state: KeyState) {
        let job = &self.jobs[&id];
        let Some(key) = job.once.as_ref().and_then(|key| self.keys.get_mut(key)) else { return };
        if key.holder == KeyHolder::Job(id) {
            key.state = state;
            key.ended_at = Some(now.wall);
            key.keep_until = Some(now.wall.plus_ms(job.keep_key_ms));
        }
    }

    /// Takes the key of a cancelled job again, so that it may run after all.
    pub(super) fn retake_key_of_job(&mut self, now: Now, id: JobId) -> Result<(), Refusal> {
        let job = &self.jobs[&id];
        let Some(key) = job.once.clone() else { return Ok(()) };
        let claim = KeyClaim { key, fingerprint: job.fingerprint, keep_ms: job.keep_key_ms, made_at: None };
        let mine = self.keys.get(&claim.key).is_some_and(|record| record.holder == KeyHolder::Job(id));
        if !mine && self.taken(now, &claim).is_some() {
            return Err(Refusal::KeyTaken { key: claim.key.to_string() });
        }
        let record = key_of_job(now, &claim, id, self.keys.get(&claim.key));
        self.keys.insert(claim.key.clone(), record);
        Ok(())
    }

    fn taken(&self, now: Now, claim: &KeyClaim) -> Option<Taken> {
        let key = self.keys.get(&claim.key)?;
        if key.state == KeyState::Free || is_forgotten(key, now) || is_expired(key, now) {
            return None;
        }
        match (key.fingerprint, claim.fingerprint) {
            (Some(kept), Some(given)) if kept != given => Some(Taken::OtherFingerprint { kept, given }),
            _ => Some(Taken::Same),
        }
    }

    /// Unknown here, and older than what would still be known: nobody can say whether it took effect.
    fn is_quarantined(&self, now: Now, claim: &KeyClaim) -> bool {
        let unknown = self.keys.get(&claim.key).is_none_or(|key| is_forgotten(key, now));
        unknown && claim.made_at.is_some_and(|made_at| made_at.plus_ms(claim.keep_ms) <= now.wall)
    }

    fn refuse_duplicate(&mut self, now: Now, key: &OnceKey) -> &KeyRecord {
        self.counters.duplicates_refused += 1;
        let record = self.keys.get_mut(key).expect("only known keys refuse duplicates");
        record.refused = record.refused.saturating_add(1);
        // The latest, even if the clock was set back meanwhile: then no order of the refusals need be kept.
        record.last_refused_at = record.last_refused_at.max(Some(now.wall));
        record
    }

    fn held_by(&mut self, key: &OnceKey, fence: Fence) -> Option<&mut KeyRecord> {
        self.keys.get_mut(key).filter(|k| k.state == KeyState::Held && k.fence == Some(fence))
    }

    fn refuse_key(&mut self, now: Now, verb: &str, key: &OnceKey, fence: Fence) -> Refusal {
        self.refuse(now.wall, verb, key.to_string(), Some(fence));
        let held = self.keys.get(key).filter(|record| record.state == KeyState::Held);
        Refusal::Stale { identity: format!("once key {key}"), fence, current: held.and_then(|record| record.fence) }
    }
}

const fn end_state(end: &OnceEnd) -> KeyState {
    match end {
        OnceEnd::Done { .. } => KeyState::Done,
        OnceEnd::Failed { .. } => KeyState::Free,
    }
}

/// A bare claim whose lease ran out: another may take the work over.
pub(super) fn is_expired(key: &KeyRecord, now: Now) -> bool {
    key.state == KeyState::Held && key.lease_until.is_some_and(|until| until <= now.lease)
}

/// Its retention has passed, whether or not the pruner has been by.
pub(super) fn is_forgotten(key: &KeyRecord, now: Now) -> bool {
    key.state != KeyState::Held && key.keep_until.is_some_and(|until| until <= now.wall)
}

fn key_of_job(now: Now, claim: &KeyClaim, id: JobId, old: Option<&KeyRecord>) -> KeyRecord {
    let old = old.filter(|old| !is_forgotten(old, now));
    KeyRecord {
        key: claim.key.clone(),
        fingerprint: claim.fingerprint,
        state: KeyState::Held,
        holder: KeyHolder::Job(id),
        fence: None,
        acquisition: None,
        lease_until: None,
        attempts: 0,
        since: now.wall,
        ended_at: None,
        keep_until: None,
        result: None,
        refused: old.map_or(0, |old| old.refused),
        last_refused_at: old.and_then(|old| old.last_refused_at),
    }
}
