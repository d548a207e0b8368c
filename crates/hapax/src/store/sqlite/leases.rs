//! Locks and permits.

use async_trait::async_trait;
use rusqlite::Connection;

use super::SqliteStore;
use super::slice::Slice;
use crate::error::Result;
use crate::id::Name;
use crate::model::{LockAnswer, LockHolder, LockRef, LockRequest};
use crate::store::Leases;

#[async_trait]
impl Leases for SqliteStore {
    async fn acquire_lock(&self, request: LockRequest) -> Result<LockAnswer> {
        let step = move |connection: &Connection, now| {
            let mut slice = Slice::of(connection);
            slice.locks(Some(&request.name))?.fences()?.decide(|model| model.acquire_lock(now, &request))
        };
        self.write(step).await
    }

    async fn renew_lock(&self, lock: LockRef, lease_ms: u64) -> Result<()> {
        let step = move |connection: &Connection, now| {
            Slice::of(connection).locks(Some(&lock.name))?.decide(|model| model.renew_lock(now, &lock, lease_ms))
        };
        Ok(self.write(step).await??)
    }

    async fn release_lock(&self, lock: LockRef) -> Result<()> {
        let step = move |connection: &Connection, now| {
            Slice::of(connection).locks(Some(&lock.name))?.decide(|model| model.release_lock(now, &lock))
        };
        Ok(self.write(step).await??)
    }

    async fn lock_holders(&self, name: Option<Name>) -> Result<Vec<LockHolder>> {
        let look = move |connection: &Connection, now| {
            let mut slice = Slice::of(connection);
            Ok(slice.locks(name.as_ref())?.ask(|model| model.lock_holders(now, name.as_ref())))
        };
        self.read(look).await
    }

    async fn break_lock(&self, name: Name, reason: String) -> Result<Vec<LockHolder>> {
        let step = move |connection: &Connection, now| {
            Slice::of(connection).locks(Some(&name))?.decide(|model| model.break_lock(now, &name, &reason))
        };
        self.write(step).await
    }
}
