//! Bare once keys. Those of jobs are taken and ended with their jobs, in `jobs.rs` and `runs.rs`.

use std::collections::BTreeSet;

use async_trait::async_trait;

use super::PostgresStore;
use super::rows::{self, fetch};
use super::slice::{self, Slice};
use crate::clock::Now;
use crate::error::Result;
use crate::id::{Fence, OnceKey};
use crate::model::ledger::KeyFilter;
use crate::model::{KeyRecord, Model, OnceAnswer, OnceEnd, OnceRequest, PAGE_MAX, Refusal};
use crate::store::Once;

#[async_trait]
impl Once for PostgresStore {
    async fn claim_once(&self, request: OnceRequest) -> Result<OnceAnswer> {
        self.write(move |step| {
            Box::pin(async move {
                let mut slice = Slice::of(step);
                slice.wanted_key(&request.claim.key).await?.fences().await?;
                slice.decide(|model, now| model.claim_once(now, &request)).await
            })
        })
        .await
    }

    async fn renew_once(&self, key: OnceKey, fence: Fence, lease_ms: u64) -> Result<()> {
        self.change_key(key, move |model, now, key| model.renew_once(now, key, fence, lease_ms)).await
    }

    async fn finish_once(&self, key: OnceKey, fence: Fence, end: OnceEnd, keep_ms: u64) -> Result<()> {
        self.change_key(key, move |model, now, key| model.finish_once(now, (key, fence), &end, keep_ms)).await
    }

    async fn find_once(&self, key: OnceKey) -> Result<Option<KeyRecord>> {
        self.read(move |step| {
            Box::pin(async move {
                let now = step.now();
                let found = slice::key(step, &key).await?;
                let mut law = Model::new();
                law.keys.extend(found.map(|record| (key.clone(), record)));
                Ok(law.find_once(now, &key))
            })
        })
        .await
    }

    async fn list_once(&self, filter: KeyFilter) -> Result<Vec<KeyRecord>> {
        self.read(move |step| {
            Box::pin(async move {
                let now = step.now();
                Ok(fetch!(
                    step,
                    include_str!("sql/keys/page.sql"),
                    rows::key,
                    scope = filter.scope.as_str(),
                    prefix = filter.prefix.as_str(),
                    after = filter.after.as_str(),
                    now = now.wall,
                    limit = i64::from(filter.limit.clamp(1, PAGE_MAX)),
                ))
            })
        })
        .await
    }

    async fn forget_once(&self, key: OnceKey) -> Result<()> {
        self.change_key(key, Model::forget_once).await
    }

    async fn resolve_once(&self, key: OnceKey, end: OnceEnd, keep_ms: u64) -> Result<()> {
        self.change_key(key, move |model, now, key| model.resolve_once(now, key, &end, keep_ms)).await
    }
}

impl PostgresStore {
    async fn change_key<F>(&self, key: OnceKey, decision: F) -> Result<()>
    where
        F: FnOnce(&mut Model, Now, &OnceKey) -> std::result::Result<(), Refusal> + Send + 'static,
    {
        let changed = self.write(move |step| {
            Box::pin(async move {
                let mut slice = Slice::of(step);
                slice.keys(&BTreeSet::from([key.clone()])).await?;
                slice.decide(|model, now| decision(model, now, &key)).await
            })
        });
        Ok(changed.await??)
    }
}
