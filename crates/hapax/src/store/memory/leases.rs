//! Locks and permits.

use async_trait::async_trait;

use super::MemoryStore;
use crate::error::Result;
use crate::id::Name;
use crate::model::{LockAnswer, LockHolder, LockRef, LockRequest};
use crate::store::Leases;

#[async_trait]
impl Leases for MemoryStore {
    async fn acquire_lock(&self, request: LockRequest) -> Result<LockAnswer> {
        Ok(self.step(|model, now| model.acquire_lock(now, &request)))
    }

    async fn renew_lock(&self, lock: LockRef, lease_ms: u64) -> Result<()> {
        Ok(self.step(|model, now| model.renew_lock(now, &lock, lease_ms))?)
    }

    async fn release_lock(&self, lock: LockRef) -> Result<()> {
        Ok(self.step(|model, now| model.release_lock(now, &lock))?)
    }

    async fn lock_holders(&self, name: Option<Name>) -> Result<Vec<LockHolder>> {
        Ok(self.step(|model, now| model.lock_holders(now, name.as_ref())))
    }

    async fn break_lock(&self, name: Name, reason: String) -> Result<Vec<LockHolder>> {
        Ok(self.step(|model, now| model.break_lock(now, &name, &reason)))
    }
}
