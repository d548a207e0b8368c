//! Locks and permits: a lease with a fence for each slot of a name.

use super::{Lock, LockAnswer, LockHolder, LockRef, LockRequest, Model, Refusal};
use crate::clock::Now;
use crate::id::Name;

impl Model {
    /// Grants the lowest free slot, if fewer than `permits` are held; the same acquisition finds its grant again.
    ///
    /// Where callers disagree about `permits`, the smallest number counts, those of the present holders included: who
    /// was given a plain lock stays alone, whatever others ask for.
    pub fn acquire_lock(&mut self, now: Now, request: &LockRequest) -> LockAnswer {
        let held: Vec<LockHolder> = self.lock_holders(now, Some(&request.name));
        let own = self
            .locks_of(&request.name)
            .find(|(_, lock)| lock.acquisition == request.acquisition && lock.lease_until > now.lease);
        if let Some((slot, lock)) = own {
            return LockAnswer::Granted(LockRef { name: request.name.clone(), slot, fence: lock.fence });
        }
        let of_holders = self.locks_of(&request.name).filter(|(_, lock)| lock.lease_until > now.lease);
        let permits = of_holders.map(|(_, lock)| lock.permits).fold(request.permits, u32::min);
        if held.len() >= permits as usize {
            return LockAnswer::Busy { holders: held };
        }
        // Fewer are held than permits are asked for, so one of the first permits is free.
        let free = |slot: &u32| held.iter().all(|h| h.lock.slot != *slot);
        let slot = (0..=request.permits).find(free).expect("one more slot than holders");
        let fence = self.next_fence();
        let lock = Lock {
            fence,
            acquisition: request.acquisition,
            holder: request.holder.clone(),
            permits: request.permits,
            since: now.wall,
            lease_until: now.lease.plus_ms(request.lease_ms),
        };
        self.locks.insert((request.name.clone(), slot), lock);
        LockAnswer::Granted(LockRef { name: request.name.clone(), slot, fence })
    }

    /// Extends a lease that has not run out.
    pub fn renew_lock(&mut self, now: Now, lock: &LockRef, lease_ms: u64) -> Result<(), Refusal> {
        let held = self.locks.get_mut(&(lock.name.clone(), lock.slot));
        match held {
            Some(held) if held.fence == lock.fence && held.lease_until > now.lease => {
                held.lease_until = now.lease.plus_ms(lease_ms);
                Ok(())
            }
            _ => Err(self.refuse_lock(now, "renew_lock", lock)),
        }
    }

    /// Gives a permit back; one that ran out without being taken by another counts as given back.
    pub fn release_lock(&mut self, now: Now, lock: &LockRef) -> Result<(), Refusal> {
        let identity = (lock.name.clone(), lock.slot);
        if self.locks.get(&identity).is_some_and(|held| held.fence == lock.fence) {
            self.locks.remove(&identity);
            return Ok(());
        }
        Err(self.refuse_lock(now, "release_lock", lock))
    }

    /// Whether `lock` is still the last grant of its slot: what a guarded write inside a user's transaction asks.
    pub fn guard_lock(&mut self, now: Now, lock: &LockRef) -> Result<(), Refusal> {
        if self.locks.get(&(lock.name.clone(), lock.slot)).is_some_and(|held| held.fence == lock.fence) {
            return Ok(());
        }
        Err(self.refuse_lock(now, "guard_lock", lock))
    }

    /// Who holds permits now: of one lock, or of all.
    pub fn lock_holders(&self, now: Now, name: Option<&Name>) -> Vec<LockHolder> {
        let wanted = |(key, lock): &(&(Name, u32), &Lock)| {
            lock.lease_until > now.lease && name.is_none_or(|name| key.0 == *name)
        };
        let view = |(key, lock): (&(Name, u32), &Lock)| LockHolder {
            lock: LockRef { name: key.0.clone(), slot: key.1, fence: lock.fence },
            holder: lock.holder.clone(),
            since: lock.since,
            expires_in_ms: lock.lease_until.ms_since(now.lease),
        };
        self.locks.iter().filter(wanted).map(view).collect()
    }

    fn locks_of<'a>(&'a self, name: &'a Name) -> impl Iterator<Item = (u32, &'a Lock)> {
        self.locks
            .range((name.clone(), 0)..)
            .take_while(move |(key, _)| key.0 == *name)
            .map(|(key, lock)| (key.1, lock))
    }

    fn refuse_lock(&mut self, now: Now, verb: &str, lock: &LockRef) -> Refusal {
        let identity = format!("lock {}/{}", lock.name, lock.slot);
        self.refuse(now.wall, verb, identity.clone(), Some(lock.fence));
        let current = self.locks.get(&(lock.name.clone(), lock.slot)).map(|held| held.fence);
        Refusal::Stale { identity, fence: lock.fence, current }
    }
}
