//! Locks and permits.

use async_trait::async_trait;

use super::PostgresStore;
use super::slice::{Slice, Wanted};
use crate::error::Result;
use crate::id::Name;
use crate::model::{LockAnswer, LockHolder, LockRef, LockRequest};
use crate::store::Leases;

#[async_trait]
impl Leases for PostgresStore {
    async fn acquire_lock(&self, request: LockRequest) -> Result<LockAnswer> {
        self.write(move |step| {
            Box::pin(async move {
                let mut slice = Slice::of(step);
                let now = slice.locks_to_grant(&request.name).await?;
                slice.fences().await?;
                slice.decide_as_of(now, |model, now| model.acquire_lock(now, &request)).await
            })
        })
        .await
    }

    async fn renew_lock(&self, lock: LockRef, lease_ms: u64) -> Result<()> {
        let renewed = self.write(move |step| {
            Box::pin(async move {
                let mut slice = Slice::of(step);
                slice.permit(&lock, Wanted::Renewal).await?;
                slice.decide(|model, now| model.renew_lock(now, &lock, lease_ms)).await
            })
        });
        Ok(renewed.await??)
    }

    async fn release_lock(&self, lock: LockRef) -> Result<()> {
        let released = self.write(move |step| {
            Box::pin(async move {
                let mut slice = Slice::of(step);
                slice.permit(&lock, Wanted::Release).await?;
                slice.decide(|model, now| model.release_lock(now, &lock)).await
            })
        });
        Ok(released.await??)
    }

    async fn lock_holders(&self, name: Option<Name>) -> Result<Vec<LockHolder>> {
        self.read(move |step| {
            Box::pin(async move {
                let now = step.now();
                let mut slice = Slice::of(step);
                match &name {
                    Some(name) => slice.locks(name, Wanted::Look).await?,
                    None => slice.all_locks().await?,
                };
                Ok(slice.ask(|model| model.lock_holders(now, name.as_ref())))
            })
        })
        .await
    }

    async fn break_lock(&self, name: Name, reason: String) -> Result<Vec<LockHolder>> {
        self.write(move |step| {
            Box::pin(async move {
                let mut slice = Slice::of(step);
                slice.locks(&name, Wanted::Release).await?;
                slice.decide(|model, now| model.break_lock(now, &name, &reason)).await
            })
        })
        .await
    }
}
