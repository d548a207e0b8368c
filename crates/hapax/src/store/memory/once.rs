//! Bare once keys.

use async_trait::async_trait;

use super::MemoryStore;
use crate::error::Result;
use crate::id::{Fence, OnceKey};
use crate::model::ledger::KeyFilter;
use crate::model::{KeyRecord, OnceAnswer, OnceEnd, OnceRequest};
use crate::store::Once;

#[async_trait]
impl Once for MemoryStore {
    async fn claim_once(&self, request: OnceRequest) -> Result<OnceAnswer> {
        Ok(self.step(|model, now| model.claim_once(now, &request)))
    }

    async fn renew_once(&self, key: OnceKey, fence: Fence, lease_ms: u64) -> Result<()> {
        Ok(self.step(|model, now| model.renew_once(now, &key, fence, lease_ms))?)
    }

    async fn finish_once(&self, key: OnceKey, fence: Fence, end: OnceEnd, keep_ms: u64) -> Result<()> {
        Ok(self.step(|model, now| model.finish_once(now, (&key, fence), &end, keep_ms))?)
    }

    async fn find_once(&self, key: OnceKey) -> Result<Option<KeyRecord>> {
        Ok(self.step(|model, now| model.find_once(now, &key)))
    }

    async fn list_once(&self, filter: KeyFilter) -> Result<Vec<KeyRecord>> {
        Ok(self.step(|model, now| model.list_once(now, &filter)))
    }

    async fn forget_once(&self, key: OnceKey) -> Result<()> {
        Ok(self.step(|model, now| model.forget_once(now, &key))?)
    }

    async fn resolve_once(&self, key: OnceKey, end: OnceEnd, keep_ms: u64) -> Result<()> {
        Ok(self.step(|model, now| model.resolve_once(now, &key, &end, keep_ms))?)
    }
}
