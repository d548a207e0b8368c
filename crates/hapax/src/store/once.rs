//! Bare once keys: the primitive itself. Keys of jobs are taken and ended with their jobs.

use async_trait::async_trait;

use crate::error::Result;
use crate::id::{Fence, OnceKey};
use crate::model::ledger::KeyFilter;
use crate::model::{KeyRecord, OnceAnswer, OnceEnd, OnceRequest};

/// Proved by `conformance/once.rs` and `conformance/ledger.rs`.
#[async_trait]
pub trait Once: Send + Sync {
    /// [`Model::claim_once`](crate::model::Model::claim_once).
    async fn claim_once(&self, request: OnceRequest) -> Result<OnceAnswer>;

    /// [`Model::renew_once`](crate::model::Model::renew_once). Refused as [`Refused`](crate::ErrorKind::Refused).
    async fn renew_once(&self, key: OnceKey, fence: Fence, lease_ms: u64) -> Result<()>;

    /// [`Model::finish_once`](crate::model::Model::finish_once). Refused as [`Refused`](crate::ErrorKind::Refused).
    async fn finish_once(&self, key: OnceKey, fence: Fence, end: OnceEnd, keep_ms: u64) -> Result<()>;

    /// [`Model::find_once`](crate::model::Model::find_once).
    async fn find_once(&self, key: OnceKey) -> Result<Option<KeyRecord>>;

    /// [`Model::list_once`](crate::model::Model::list_once).
    async fn list_once(&self, filter: KeyFilter) -> Result<Vec<KeyRecord>>;

    /// [`Model::forget_once`](crate::model::Model::forget_once). Refused as [`Refused`](crate::ErrorKind::Refused).
    async fn forget_once(&self, key: OnceKey) -> Result<()>;

    /// [`Model::resolve_once`](crate::model::Model::resolve_once). Refused as [`Refused`](crate::ErrorKind::Refused).
    async fn resolve_once(&self, key: OnceKey, end: OnceEnd, keep_ms: u64) -> Result<()>;
}
