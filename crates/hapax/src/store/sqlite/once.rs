//! Bare once keys. Those of jobs are taken and ended with their jobs, in `jobs.rs` and `runs.rs`.

use async_trait::async_trait;
use rusqlite::Connection;

use super::SqliteStore;
use super::slice::Slice;
use crate::error::Result;
use crate::id::{Fence, OnceKey};
use crate::model::{KeyRecord, OnceAnswer, OnceEnd, OnceRequest};
use crate::store::Once;

#[async_trait]
impl Once for SqliteStore {
    async fn claim_once(&self, request: OnceRequest) -> Result<OnceAnswer> {
        let step = move |connection: &Connection, now| {
            let mut slice = Slice::of(connection);
            slice.key(&request.claim.key)?.fences()?.decide(|model| model.claim_once(now, &request))
        };
        self.write(step).await
    }

    async fn renew_once(&self, key: OnceKey, fence: Fence, lease_ms: u64) -> Result<()> {
        let step = move |connection: &Connection, now| {
            Slice::of(connection).key(&key)?.decide(|model| model.renew_once(now, &key, fence, lease_ms))
        };
        Ok(self.write(step).await??)
    }

    async fn finish_once(&self, key: OnceKey, fence: Fence, end: OnceEnd, keep_ms: u64) -> Result<()> {
        let step = move |connection: &Connection, now| {
            Slice::of(connection).key(&key)?.decide(|model| model.finish_once(now, (&key, fence), &end, keep_ms))
        };
        Ok(self.write(step).await??)
    }

    async fn find_once(&self, key: OnceKey) -> Result<Option<KeyRecord>> {
        let look = move |connection: &Connection, now| {
            Ok(Slice::of(connection).key(&key)?.ask(|model| model.find_once(now, &key)))
        };
        self.read(look).await
    }
}
