//! Bare once keys: work of any kind that should take effect once, without a job.

use std::time::Duration;

use super::Hapax;
use super::enqueue::millis;
use super::lock::{check_lease, process_name};
use super::renewal::Lease;
use super::settle::settle;
use crate::clock::{Deadline, Micros};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{AcquisitionId, Boundary, Fence, Fingerprint, Name, OnceKey, kept_text};
use crate::model::{KeyClaim, KeyHolder, KeyRecord, OnceAnswer, OnceEnd, OnceRequest};

/// How to claim a once key; from [`Hapax::once`].
#[derive(Clone, Debug)]
#[must_use = "nothing is claimed until `claim` or `run`"]
pub struct OnceOptions {
    hapax: Hapax,
    scope: String,
    value: String,
    fingerprint: Option<Fingerprint>,
    made_at: Option<Micros>,
    lease: Duration,
    keep: Duration,
    holder: String,
}

/// Answer to a claim.
#[derive(Debug)]
pub enum OnceClaim {
    /// The work is the caller's; it ends with [`OnceGuard::done`] or [`OnceGuard::failed`].
    Claimed(OnceGuard),
    /// It was done before; the refusal is counted.
    Done(Box<KeyRecord>),
    /// Another does it now.
    Busy(Box<KeyRecord>),
}

/// What became of [`OnceOptions::run`].
#[derive(Debug)]
pub enum OnceRun<T> {
    /// The work ran here, and the key is done.
    Ran(T),
    /// It was done before.
    Done(Box<KeyRecord>),
    /// Another does it now.
    Busy(Box<KeyRecord>),
}

impl OnceOptions {
    /// What the work is: the same key with another fingerprint is an error.
    pub fn fingerprint(mut self, of: &[u8]) -> Self {
        self.fingerprint = Some(Fingerprint::of(of));
        self
    }

    /// When the message behind the key was made (wall clock, UTC). Older than the key's retention and unknown, it is
    /// quarantined.
    pub const fn made_at(mut self, made_at: Micros) -> Self {
        self.made_at = Some(made_at);
        self
    }

    /// How long the claim outlives a holder that has gone silent; 100 ms to 24 h, 30 s unless told otherwise.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long the key is refused once done; 30 days unless told otherwise.
    pub const fn keep(mut self, keep: Duration) -> Self {
        self.keep = keep;
        self
    }

    /// Who does the work, for people; host and process unless told otherwise.
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = holder.into();
        self
    }

    /// Claims the key; never waits for another's work to end.
    ///
    /// # Errors
    /// [`KeyReused`](ErrorKind::KeyReused) when it stands for other work; [`Quarantined`](ErrorKind::Quarantined) for a
    /// message older than the key's memory; [`Invalid`](ErrorKind::Invalid) for bad input; and what the store can say.
    pub async fn claim(&self) -> Result<OnceClaim> {
        let request = self.request()?;
        let key = request.claim.key.clone();
        let (answer, lease) = self.hapax.renewal.once(request).await?;
        match answer {
            OnceAnswer::Claimed { fence, attempt } => {
                let lease = lease.ok_or_else(|| Error::did_not_happen(ErrorKind::Closed, "the store is closing"))?;
                let (hapax, keep_ms) = (self.hapax.clone(), millis(self.keep));
                Ok(OnceClaim::Claimed(OnceGuard { key, fence, attempt, keep_ms, lease, hapax }))
            }
            OnceAnswer::Done(record) => Ok(OnceClaim::Done(record)),
            OnceAnswer::Busy(record) => Ok(OnceClaim::Busy(record)),
            OnceAnswer::OtherFingerprint { holder, kept, given } => {
                let holder = match holder {
                    KeyHolder::Job(id) => format!("job {id}"),
                    KeyHolder::Claim(who) => format!("the claim of {who}"),
                };
                let what =
                    format!("once key {key} stands for other work: {holder} has fingerprint {kept}, this has {given}");
                Err(Error::did_not_happen(ErrorKind::KeyReused, what))
            }
            OnceAnswer::Quarantined { keep_ms } => {
                let what = format!(
                    "the message behind once key {key} is older than the {keep_ms} ms that keys are remembered"
                );
                Err(Error::did_not_happen(ErrorKind::Quarantined, what))
            }
        }
    }

    /// Claims the key, does the work, and ends the key by its result: done, or free at once when it failed.
    ///
    /// # Errors
    /// What [`claim`](Self::claim) and the work can say; [`Lost`](ErrorKind::Lost) when the lease was lost while the
    /// work ran: it was dropped, and another may do it again.
    pub async fn run<T, E>(&self, work: impl AsyncFnOnce(&OnceGuard) -> Result<T, E>) -> Result<OnceRun<T>, E>
    where
        E: From<Error> + std::fmt::Display,
    {
        let guard = match self.claim().await? {
            OnceClaim::Claimed(guard) => guard,
            OnceClaim::Done(record) => return Ok(OnceRun::Done(record)),
            OnceClaim::Busy(record) => return Ok(OnceRun::Busy(record)),
        };
        let worked = tokio::select! {
            biased;
            () = guard.lost() => {
                let what = format!("once key {}: the lease was lost while the work ran", guard.key);
                return Err(Error::may_have_happened(ErrorKind::Lost, what).into());
            }
            worked = work(&guard) => worked,
        };
        match worked {
            Ok(value) => {
                guard.done(None).await?;
                Ok(OnceRun::Ran(value))
            }
            Err(error) => {
                if let Err(unsaid) = guard.failed(&error.to_string()).await {
                    tracing::warn!(error = %unsaid, "a once key was not freed; its lease ends by itself");
                }
                Err(error)
            }
        }
    }

    /// What is known of the key; nothing once its retention has passed.
    pub async fn look_up(&self) -> Result<Option<KeyRecord>> {
        self.hapax.store().find_once(self.key()?).await
    }

    fn key(&self) -> Result<OnceKey> {
        OnceKey::new(Boundary::Claim, Name::new("scope", &self.scope)?, &self.value)
    }

    fn request(&self) -> Result<OnceRequest> {
        check_lease(self.lease)?;
        let claim = KeyClaim {
            key: self.key()?,
            fingerprint: self.fingerprint,
            keep_ms: millis(self.keep),
            made_at: self.made_at,
        };
        let holder = Name::new("holder", &self.holder)?;
        Ok(OnceRequest { claim, lease_ms: millis(self.lease), acquisition: AcquisitionId::new(), holder })
    }
}

/// The right to do the work of a once key. Dropped without an end, its lease runs out by itself and another may do the
/// work again: it may have taken effect, so nothing is given back early.
#[derive(Debug)]
#[must_use = "say how the work ended: `done` or `failed`"]
pub struct OnceGuard {
    key: OnceKey,
    fence: Fence,
    attempt: u32,
    keep_ms: u64,
    lease: Lease,
    hapax: Hapax,
}

impl OnceGuard {
    /// Grows with every claim of the key.
    pub const fn fence(&self) -> Fence {
        self.fence
    }

    /// Which attempt at this work it is, from 1.
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Ends when the lease is lost. Stop then.
    pub async fn lost(&self) {
        self.lease.lost().cancelled().await;
    }

    /// Whether it is held for certain at this moment.
    pub fn is_held(&self) -> bool {
        self.lease.is_held()
    }

    /// Until when it may be trusted without another renewal, by this host's clock.
    pub fn deadline(&self) -> Deadline {
        self.lease.deadline()
    }

    /// The deadline, once a renewal has moved it beyond `since`: for whoever must tell another process.
    pub async fn renewed(&self, since: Deadline) -> Deadline {
        self.lease.renewed(since).await
    }

    /// Says how the work ended, or that it is as good as done, and keeps the guard: for whoever tries again when the
    /// store is away, or adds a result later. Done twice is no fault, and the later result is kept; the key is
    /// forgotten `keep` after its first end.
    ///
    /// # Errors
    /// [`Refused`](ErrorKind::Refused) when another has claimed the key since, and what the store can say.
    pub async fn record(&self, end: &OnceEnd) -> Result<()> {
        let settled =
            settle(|| self.hapax.store().finish_once(self.key.clone(), self.fence, end.clone(), self.keep_ms));
        settled.await.inspect(|()| self.lease.settle())
    }

    /// The work took effect: the key is refused from now on, and `result` is kept for those who ask.
    ///
    /// # Errors
    /// [`Refused`](ErrorKind::Refused) when another has claimed the key since.
    pub async fn done(self, result: Option<&str>) -> Result<()> {
        self.end(OnceEnd::Done { result: result.map(kept_text) }).await
    }

    /// The work did not take effect: the key is free at once.
    ///
    /// # Errors
    /// [`Refused`](ErrorKind::Refused) when another has claimed the key since.
    pub async fn failed(self, error: &str) -> Result<()> {
        self.end(OnceEnd::Failed { error: kept_text(error) }).await
    }

    async fn end(self, end: OnceEnd) -> Result<()> {
        self.lease.settle();
        settle(|| self.hapax.store().finish_once(self.key.clone(), self.fence, end.clone(), self.keep_ms)).await
    }
}

impl Hapax {
    /// A once key within a scope, to be claimed by [`claim`](OnceOptions::claim) or [`run`](OnceOptions::run).
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let hapax = hapax::Hapax::memory();
    /// use hapax::client::OnceRun;
    ///
    /// let report = || hapax.once("nightly-report", "2026-11-30");
    /// let first = report().run(async |_| Ok::<_, hapax::Error>("sent")).await?;
    /// let again = report().run(async |_| Ok::<_, hapax::Error>("sent")).await?;
    /// assert!(matches!((first, again), (OnceRun::Ran("sent"), OnceRun::Done(_))));
    /// # Ok::<(), hapax::Error>(())
    /// # }).unwrap();
    /// ```
    pub fn once(&self, scope: impl Into<String>, value: impl Into<String>) -> OnceOptions {
        OnceOptions {
            hapax: self.clone(),
            scope: scope.into(),
            value: value.into(),
            fingerprint: None,
            made_at: None,
            lease: Duration::from_secs(30),
            keep: Duration::from_hours(30 * 24),
            holder: process_name(),
        }
    }
}
