//! What a program keeps of a host that runs.

use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::core::{Core, Tally};
use super::shutdown::{Wish, Wishes};
use crate::error::{Error, ErrorKind, Result};
use crate::id::InstanceId;

/// A host that runs. Put it into an [`Arc`] to share it.
///
/// Dropping it asks the host to drain, and waits for nothing; await [`drain`](Self::drain) where the end matters.
///
/// A program decides itself when its host ends. Usual is: the first `SIGTERM` drains, the second stops now.
///
/// ```no_run
/// # async fn signal() {}
/// # async fn end(host: hapax::host::HostHandle) {
/// signal().await;
/// tokio::select! {
///     () = host.drain() => {}
///     () = signal() => {
///         host.stop_now();
///         host.join().await;
///     }
/// }
/// # }
/// ```
#[must_use = "dropping the handle asks the host to drain"]
pub struct HostHandle {
    core: Arc<Core>,
    wishes: Wishes,
    readiness: Vec<watch::Receiver<bool>>,
    done: CancellationToken,
}

/// Numbers of a host since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostStats {
    /// Whether the lease holds. While it does not, nothing is claimed or begun: the store has not answered for too
    /// long.
    pub lease_held: bool,
    /// Tasks at work now.
    pub active: u64,
    /// Runs that have ended and whose finish the store has not confirmed yet.
    pub unconfirmed: u64,
    /// Jobs claimed.
    pub claimed: u64,
    /// Runs whose end counted.
    pub finished: u64,
    /// Runs whose end was refused, since another had the job.
    pub refused: u64,
    /// Runs that were told that their lease is lost.
    pub lost: u64,
    /// Jobs given back before they began.
    pub given_back: u64,
    /// Jobs taken back from others, or at their deadline.
    pub taken_back: u64,
    /// Tasks that blocked their thread past their deadline.
    pub stuck: u64,
}

impl HostHandle {
    pub(crate) fn new(
        core: Arc<Core>,
        wishes: Wishes,
        readiness: Vec<watch::Receiver<bool>>,
        done: CancellationToken,
    ) -> Self {
        Self { core, wishes, readiness, done }
    }

    /// Waits until every service is ready and jobs are being claimed.
    ///
    /// # Errors
    /// [`Closed`](ErrorKind::Closed) when the host ends first.
    pub async fn ready(&self) -> Result<()> {
        let all = async {
            for ready in &self.readiness {
                // An error means that the service is gone for good; then the host is ending.
                if ready.clone().wait_for(|ready| *ready).await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::select! {
            () = all => Ok(()),
            () = self.done.cancelled() => {
                Err(Error::did_not_happen(ErrorKind::Closed, "the host ended before it was ready"))
            }
        }
    }

    /// Stops claiming, lets runs finish for at most the drain time, tells the rest to stop, and gives everything back.
    /// Waits until the host has ended. Dropping the future does not take the wish back.
    pub async fn drain(&self) {
        self.wishes.wish(Wish::Drain);
        self.join().await;
    }

    /// Ends the host without waiting for its runs: each is dropped at its next await. Gives everything back; await
    /// [`join`](Self::join) to see it done.
    pub fn stop_now(&self) {
        self.wishes.wish(Wish::Now);
    }

    /// Waits until the host has ended, whoever asked for it.
    pub async fn join(&self) {
        self.done.cancelled().await;
    }

    /// The instance under which the host is registered; another one after the store has declared it dead.
    pub fn instance_id(&self) -> InstanceId {
        self.core.instance().id
    }

    /// What it did so far.
    pub fn stats(&self) -> HostStats {
        let tally = &self.core.tally;
        HostStats {
            lease_held: self.core.instance().is_usable(),
            active: self.core.slots.active().into(),
            unconfirmed: self.core.slots.unconfirmed().into(),
            claimed: Tally::get(&tally.claimed),
            finished: Tally::get(&tally.finished),
            refused: Tally::get(&tally.refused),
            lost: Tally::get(&tally.lost),
            given_back: Tally::get(&tally.given_back),
            taken_back: Tally::get(&tally.taken_back),
            stuck: Tally::get(&tally.stuck),
        }
    }

    /// Sends a heartbeat now and waits until it was answered or failed.
    #[cfg(feature = "testing")]
    pub async fn beat(&self) {
        let mut answered = self.core.beats_answered.subscribe();
        answered.mark_unchanged();
        self.core.beat_now.notify_one();
        // An error would mean that the host is gone.
        let _ = answered.changed().await;
    }

    /// Reaps now; gives how many jobs were taken back.
    ///
    /// # Errors
    /// What the store said.
    #[cfg(feature = "testing")]
    pub async fn reap(&self) -> Result<u64> {
        super::reaper::reap(&self.core).await
    }
}

impl Drop for HostHandle {
    fn drop(&mut self) {
        self.wishes.wish(Wish::Drain);
    }
}

impl fmt::Debug for HostHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostHandle")
            .field("instance", &self.instance_id())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
