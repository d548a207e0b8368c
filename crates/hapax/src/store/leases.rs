//! Locks and permits.

use async_trait::async_trait;

use crate::error::Result;
use crate::id::Name;
use crate::model::{LockAnswer, LockHolder, LockRef, LockRequest};

/// Proved by `conformance/leases.rs` and `conformance/ledger.rs`.
#[async_trait]
pub trait Leases: Send + Sync {
    /// [`Model::acquire_lock`](crate::model::Model::acquire_lock).
    async fn acquire_lock(&self, request: LockRequest) -> Result<LockAnswer>;

    /// [`Model::renew_lock`](crate::model::Model::renew_lock). Refused as [`Refused`](crate::ErrorKind::Refused).
    async fn renew_lock(&self, lock: LockRef, lease_ms: u64) -> Result<()>;

    /// [`Model::release_lock`](crate::model::Model::release_lock). Refused as [`Refused`](crate::ErrorKind::Refused).
    async fn release_lock(&self, lock: LockRef) -> Result<()>;

    /// [`Model::lock_holders`](crate::model::Model::lock_holders).
    async fn lock_holders(&self, name: Option<Name>) -> Result<Vec<LockHolder>>;

    /// [`Model::break_lock`](crate::model::Model::break_lock).
    async fn break_lock(&self, name: Name, reason: String) -> Result<Vec<LockHolder>>;
}
