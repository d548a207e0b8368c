//! Locks and permits with a fence: closure first, guard second.

use std::fmt;
use std::time::Duration;

use super::Hapax;
use super::enqueue::millis;
use super::renewal::Lease;
use super::settle::settle_by;
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{AcquisitionId, Fence, Name};
use crate::model::{LockAnswer, LockHolder, LockRef, LockRequest};

/// Shortest lease; shorter ones are refused, not rounded.
pub(super) const LEASE_MIN: Duration = Duration::from_millis(100);
/// Longest lease.
pub(super) const LEASE_MAX: Duration = Duration::from_hours(24);
/// Most permits of one lock.
const PERMITS_MAX: u32 = 10_000;
/// Longest part of a machine's name that is shown.
const MACHINE_BYTES_MAX: usize = 100;
/// Between two looks at a lock that is held.
const LOOK_FIRST: Duration = Duration::from_millis(10);
const LOOK_MAX: Duration = Duration::from_millis(500);

/// Why work under a lock did not come to its end.
#[derive(Debug)]
pub enum LockError<E> {
    /// The lease was lost while the work ran, and the work was dropped. Its late writes are refused wherever the fence
    /// is checked.
    Lost,
    /// The work itself failed.
    Work(E),
    /// The lock was not acquired: [`Held`](ErrorKind::Held) after the wait, bad input, or the store.
    Acquire(Error),
}

impl<E: fmt::Display> fmt::Display for LockError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost => f.write_str("the lock was lost while the work ran"),
            Self::Work(error) => error.fmt(f),
            Self::Acquire(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for LockError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Lost => None,
            Self::Work(error) => Some(error),
            Self::Acquire(error) => Some(error),
        }
    }
}

/// How to take a lock; from [`Hapax::lock`].
#[derive(Clone, Debug)]
#[must_use = "nothing is locked until it is acquired"]
pub struct LockOptions {
    hapax: Hapax,
    name: String,
    permits: u32,
    lease: Duration,
    wait: Option<Duration>,
    holder: String,
}

impl LockOptions {
    /// How many may hold it at once; 1 unless told otherwise. Where callers disagree, the smallest number counts, those
    /// of the present holders included.
    pub const fn permits(mut self, permits: u32) -> Self {
        self.permits = permits;
        self
    }

    /// How long it stays held after its holder has gone silent; 100 ms to 24 h, 30 s unless told otherwise. A live
    /// holder renews it.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long to wait for it; for ever unless told otherwise.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Who holds it, for people; host and process unless told otherwise.
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = holder.into();
        self
    }

    /// Takes the lock if a permit is free now; never waits for one.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for bad input, and what the store can say.
    pub async fn try_acquire(&self) -> Result<Option<LockGuard>> {
        Ok(self.ask(&self.request()?).await?.ok())
    }

    /// Takes the lock, waiting for a permit. May be dropped at any await.
    ///
    /// # Errors
    /// [`Held`](ErrorKind::Held) after the wait, naming a holder; [`Invalid`](ErrorKind::Invalid) for bad input; and
    /// what the store can say.
    pub async fn acquire(&self) -> Result<LockGuard> {
        let mut request = self.request()?;
        let waiting = self.wait.map(|wait| Deadline::anchor().plus_ms(millis(wait)));
        let mut look = LOOK_FIRST;
        loop {
            let holders = match self.ask(&request).await? {
                Ok(guard) => return Ok(guard),
                Err(holders) => holders,
            };
            let left = waiting.map(Deadline::left);
            if left.is_some_and(|left| left.is_zero()) {
                return Err(held(&request.name, &holders));
            }
            // Those who wait together should not look together.
            let pause = look.mul_f64(0.5 + fastrand::f64() / 2.0);
            tokio::time::sleep(left.map_or(pause, |left| pause.min(left))).await;
            look = (look * 2).min(LOOK_MAX);
            request.acquisition = AcquisitionId::new();
        }
    }

    /// Runs `work` under the lock and gives it back. The work is dropped the moment the lease is lost.
    ///
    /// Under a timeout around this call the lock is given back without waiting for the store.
    pub async fn with<T, E>(&self, work: impl AsyncFnOnce(&LockGuard) -> Result<T, E>) -> Result<T, LockError<E>> {
        let guard = self.acquire().await.map_err(LockError::Acquire)?;
        let done = tokio::select! {
            biased;
            () = guard.lost() => return Err(LockError::Lost),
            done = work(&guard) => done.map_err(LockError::Work)?,
        };
        match guard.release().await {
            // Another holds it already: it was lost before the work ended.
            Err(error) if error.kind() == ErrorKind::Refused => Err(LockError::Lost),
            Err(error) => {
                tracing::warn!(%error, "a lock was not given back; its lease ends by itself");
                Ok(done)
            }
            Ok(()) => Ok(done),
        }
    }

    async fn ask(&self, request: &LockRequest) -> Result<Result<LockGuard, Vec<LockHolder>>> {
        match self.hapax.renewal.lock(request.clone()).await? {
            (LockAnswer::Granted(lock), Some(lease)) => Ok(Ok(LockGuard { lock, lease, hapax: self.hapax.clone() })),
            (LockAnswer::Granted(_), None) => Err(Error::did_not_happen(ErrorKind::Closed, "the store is closing")),
            (LockAnswer::Busy { holders }, _) => Ok(Err(holders)),
        }
    }

    fn request(&self) -> Result<LockRequest> {
        check_lease(self.lease)?;
        if !(1..=PERMITS_MAX).contains(&self.permits) {
            let what = format!("is {}", self.permits);
            return Err(Error::invalid("permits", what, format!("use 1 to {PERMITS_MAX}")));
        }
        Ok(LockRequest {
            name: Name::new("lock", &self.name)?,
            permits: self.permits,
            lease_ms: millis(self.lease),
            acquisition: AcquisitionId::new(),
            holder: Name::new("holder", &self.holder)?,
        })
    }
}

/// A held lock. Dropping it gives the lock back without waiting: prefer [`release`](Self::release), which says whether
/// it was still held.
#[derive(Debug)]
#[must_use = "the lock is given back when the guard goes away"]
pub struct LockGuard {
    lock: LockRef,
    lease: Lease,
    hapax: Hapax,
}

impl LockGuard {
    /// Grows with every grant: write it beside what the lock protects, `… WHERE id = $1 AND fence <= $2`.
    pub const fn fence(&self) -> Fence {
        self.lock.fence
    }

    /// Which permit it is, from 0. Fences compare within one permit.
    pub const fn slot(&self) -> u32 {
        self.lock.slot
    }

    /// Name, permit and fence, for a guarded write in a transaction of one's own.
    pub const fn lock(&self) -> &LockRef {
        &self.lock
    }

    /// Ends when the lease is lost: refused, or not renewed before the store could give it to another. Stop then.
    pub async fn lost(&self) {
        self.lease.lost().cancelled().await;
    }

    /// Whether it is held for certain at this moment, by this process's clock.
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

    /// How long it may be trusted without another renewal.
    pub fn left(&self) -> Duration {
        self.lease.deadline().left()
    }

    /// Gives the lock back.
    ///
    /// # Errors
    /// [`Refused`](ErrorKind::Refused) when another holds it already: late writes must be refused by their fence.
    pub async fn release(self) -> Result<()> {
        self.lease.settle();
        settle_by(|lost| {
            let released = self.hapax.store().release_lock(self.lock.clone());
            async move {
                match released.await {
                    // After a lost answer this means that it was given back.
                    Err(error) if lost && error.kind() == ErrorKind::Refused => Ok(()),
                    answer => answer,
                }
            }
        })
        .await
    }
}

impl Hapax {
    /// A lock by this name, to be taken by [`acquire`](LockOptions::acquire), [`try_acquire`](LockOptions::try_acquire)
    /// or [`with`](LockOptions::with).
    ///
    /// A lease is no mutex: holders may overlap for as long as one of them is frozen. What the lock protects must check
    /// the fence where that matters.
    pub fn lock(&self, name: impl Into<String>) -> LockOptions {
        LockOptions {
            hapax: self.clone(),
            name: name.into(),
            permits: 1,
            lease: Duration::from_secs(30),
            wait: None,
            holder: process_name(),
        }
    }

    /// Takes the lock if it is free now; never waits for it.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for bad input, and what the store can say.
    pub async fn try_lock(&self, name: &str, lease: Duration) -> Result<Option<LockGuard>> {
        self.lock(name).lease(lease).try_acquire().await
    }

    /// Waits for the lock, runs `work` under it, and gives it back.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let hapax = hapax::Hapax::memory();
    /// use std::time::Duration;
    ///
    /// let fence = hapax
    ///     .with_lock("rebuild", Duration::from_secs(30), async |lease| Ok::<_, std::io::Error>(lease.fence()))
    ///     .await
    ///     .expect("nobody else holds it");
    /// assert!(fence.as_i64() > 0);
    /// # });
    /// ```
    pub async fn with_lock<T, E>(
        &self,
        name: &str,
        lease: Duration,
        work: impl AsyncFnOnce(&LockGuard) -> Result<T, E>,
    ) -> Result<T, LockError<E>> {
        self.lock(name).lease(lease).with(work).await
    }
}

pub(super) fn check_lease(lease: Duration) -> Result<()> {
    if (LEASE_MIN..=LEASE_MAX).contains(&lease) {
        return Ok(());
    }
    Err(Error::invalid("lease", format!("is {lease:?}"), format!("use {LEASE_MIN:?} to {LEASE_MAX:?}")))
}

fn held(name: &Name, holders: &[LockHolder]) -> Error {
    let by = holders.first().map_or_else(String::new, |h| {
        format!(" by {} (fence {}, {} ms of its lease left)", h.holder, h.lock.fence, h.expires_in_ms)
    });
    Error::did_not_happen(ErrorKind::Held, format!("lock {name} is held{by}"))
}

/// Machine and process, for people: `web-1:4711`. A legal name.
pub(crate) fn process_name() -> String {
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let clean: String = machine.chars().filter(|c| !c.is_control()).collect();
    let clean = if clean.is_empty() { "host" } else { &clean[..clean.floor_char_boundary(MACHINE_BYTES_MAX)] };
    format!("{clean}:{}", std::process::id())
}
