//! What people do with locks and bare once keys: look, break, forget, resolve.

use super::{KeyHolder, KeyRecord, KeyState, LockHolder, Model, OnceEnd, PAGE_MAX, Refusal, RefusalRecord};
use crate::clock::Now;
use crate::id::{Boundary, Name, OnceKey};

/// Which bare once keys to list, in the order of their values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFilter {
    /// Of this scope.
    pub scope: Name,
    /// Only values that begin so; empty for all.
    pub prefix: String,
    /// Only values after this one: the last of the page before; empty for the first page.
    pub after: String,
    /// Most keys to return; 1 to [`PAGE_MAX`].
    pub limit: u32,
}

impl Model {
    /// A page of bare once keys that are not forgotten.
    pub fn list_once(&self, now: Now, filter: &KeyFilter) -> Vec<KeyRecord> {
        let wanted = |record: &&KeyRecord| {
            let key = &record.key;
            key.boundary() == Boundary::Claim
                && *key.scope() == filter.scope
                && key.value().starts_with(&filter.prefix)
                && key.value() > filter.after.as_str()
                && !super::once::is_forgotten(record, now)
        };
        self.keys.values().filter(wanted).take(filter.limit.clamp(1, PAGE_MAX) as usize).cloned().collect()
    }

    /// Forgets a key: its work counts as never done. Refused while somebody does it.
    pub fn forget_once(&mut self, now: Now, key: &OnceKey) -> Result<(), Refusal> {
        self.undisputed(now, key)?;
        self.keys.remove(key);
        Ok(())
    }

    /// Says what became of the work of a bare key, for one whose end was never recorded or was recorded wrongly: done
    /// from now on, or free. Refused while somebody does it, and for the key of a job, which ends with its job.
    pub fn resolve_once(&mut self, now: Now, key: &OnceKey, end: &OnceEnd, keep_ms: u64) -> Result<(), Refusal> {
        let record = self.undisputed(now, key)?;
        if let KeyHolder::Job(_) = record.holder {
            return Err(Refusal::KeyTaken { key: key.to_string() });
        }
        let (state, result) = match end {
            OnceEnd::Done { result } => (KeyState::Done, result.clone()),
            OnceEnd::Failed { error } => (KeyState::Free, Some(error.clone())),
        };
        (record.state, record.result) = (state, result);
        record.lease_until = None;
        record.ended_at = Some(now.wall);
        record.keep_until = Some(now.wall.plus_ms(keep_ms));
        Ok(())
    }

    /// Takes every permit of a lock from its holders, and says who they were. They learn of it at their next renewal;
    /// until then holders may overlap. The reason is kept with the evidence.
    pub fn break_lock(&mut self, now: Now, name: &Name, reason: &str) -> Vec<LockHolder> {
        let holders = self.lock_holders(now, Some(name));
        for held in &holders {
            self.locks.remove(&(name.clone(), held.lock.slot));
            let identity = format!("lock {name}/{} of {}: {reason}", held.lock.slot, held.holder);
            let (verb, fence) = ("break_lock".to_owned(), Some(held.lock.fence));
            self.refusals.push(RefusalRecord { at: now.wall, verb, identity, fence });
        }
        holders
    }

    /// A key that is remembered and that nobody works on now.
    fn undisputed(&mut self, now: Now, key: &OnceKey) -> Result<&mut KeyRecord, Refusal> {
        let known = self.keys.get_mut(key).filter(|record| !super::once::is_forgotten(record, now));
        let record = known.ok_or_else(|| Refusal::NotFound { what: format!("once key {key}") })?;
        if record.state == KeyState::Held && !super::once::is_expired(record, now) {
            return Err(Refusal::KeyTaken { key: key.to_string() });
        }
        Ok(record)
    }
}
