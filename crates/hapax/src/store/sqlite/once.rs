//! Bare once keys. Those of jobs are taken and ended with their jobs, in `jobs.rs` and `runs.rs`.

use async_trait::async_trait;
use rusqlite::Connection;

use super::SqliteStore;
use super::rows::{self, fetch};
use super::slice::Slice;
use crate::clock::Now;
use crate::error::Result;
use crate::id::{Fence, OnceKey};
use crate::model::ledger::KeyFilter;
use crate::model::{KeyRecord, OnceAnswer, OnceEnd, OnceRequest, PAGE_MAX};
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

    async fn list_once(&self, filter: KeyFilter) -> Result<Vec<KeyRecord>> {
        let look = move |connection: &Connection, now: Now| {
            Ok(fetch!(
                connection,
                include_str!("sql/keys/page.sql"),
                rows::key,
                scope = &filter.scope,
                prefix = filter.prefix.as_str(),
                after = filter.after.as_str(),
                now = now.wall,
                limit = filter.limit.clamp(1, PAGE_MAX),
            ))
        };
        self.read(look).await
    }

    async fn forget_once(&self, key: OnceKey) -> Result<()> {
        let step = move |connection: &Connection, now| {
            Slice::of(connection).key(&key)?.decide(|model| model.forget_once(now, &key))
        };
        Ok(self.write(step).await??)
    }

    async fn resolve_once(&self, key: OnceKey, end: OnceEnd, keep_ms: u64) -> Result<()> {
        let step = move |connection: &Connection, now| {
            Slice::of(connection).key(&key)?.decide(|model| model.resolve_once(now, &key, &end, keep_ms))
        };
        Ok(self.write(step).await??)
    }
}
