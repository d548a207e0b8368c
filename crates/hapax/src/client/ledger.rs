//! The once ledger and the locks, for people: look, break, forget, resolve.

use std::time::Duration;

use super::Hapax;
use super::enqueue::millis;
use super::settle::settle;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Boundary, Name, OnceKey, kept_text};
use crate::model::ledger::KeyFilter;
use crate::model::{KeyRecord, LockHolder, OnceEnd, PAGE_MAX};

impl Hapax {
    /// A page of bare once keys of a scope, by value. For the next page set [`KeyFilter::after`] to the last value.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) when the limit is not between 1 and 1,000.
    pub async fn once_keys(&self, filter: KeyFilter) -> Result<Vec<KeyRecord>> {
        if !(1..=PAGE_MAX).contains(&filter.limit) {
            let what = format!("is {}", filter.limit);
            return Err(Error::invalid("limit", what, format!("use 1 to {PAGE_MAX}")));
        }
        self.store().list_once(filter).await
    }

    /// Forgets a bare once key: its work counts as never done, and may be done again.
    ///
    /// # Errors
    /// [`Refused`](ErrorKind::Refused) when it is not known or somebody works on it; [`Invalid`](ErrorKind::Invalid)
    /// for a scope or value that breaks a limit.
    pub async fn forget_once(&self, scope: &str, value: &str) -> Result<()> {
        let key = key(scope, value)?;
        let mut asked_before = false;
        settle(|| {
            let again = std::mem::replace(&mut asked_before, true);
            let call = self.store().forget_once(key.clone());
            async move {
                match call.await {
                    // After a lost answer "it is not known" is what was wanted.
                    Err(error) if again && error.kind() == ErrorKind::Refused => Ok(()),
                    answer => answer,
                }
            }
        })
        .await
    }

    /// Says what became of the work of a bare once key whose end was never recorded, or was recorded wrongly. Done, it
    /// is refused for `keep`; failed, it is free.
    ///
    /// # Errors
    /// As [`forget_once`](Self::forget_once).
    pub async fn resolve_once(&self, (scope, value): (&str, &str), end: OnceEnd, keep: Duration) -> Result<()> {
        let key = key(scope, value)?;
        let end = match end {
            OnceEnd::Done { result } => OnceEnd::Done { result: result.as_deref().map(kept_text) },
            OnceEnd::Failed { error } => OnceEnd::Failed { error: kept_text(&error) },
        };
        settle(|| self.store().resolve_once(key.clone(), end.clone(), millis(keep))).await
    }

    /// Takes every permit of a lock from its holders, and says who they were. They learn of it at their next renewal,
    /// and stop; until then they and the next holder may overlap. The reason is kept with the evidence.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for a name that breaks a limit or an empty reason.
    pub async fn break_lock(&self, name: &str, reason: &str) -> Result<Vec<LockHolder>> {
        let name = Name::new("lock", name)?;
        if reason.trim().is_empty() {
            return Err(Error::invalid("reason", "is empty", "say why, for whoever asks who broke it"));
        }
        let reason = kept_text(reason);
        self.store().break_lock(name, reason).await
    }
}

fn key(scope: &str, value: &str) -> Result<OnceKey> {
    OnceKey::new(Boundary::Claim, Name::new("scope", scope)?, value)
}
