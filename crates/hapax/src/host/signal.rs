//! How a run learns that it shall stop, and why. One byte and one waiter list for each run, no channel.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Why a run shall stop. When several reasons come together the last one of this list counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// The host shuts down and its drain time is over. The job runs again elsewhere.
    Shutdown = 1,
    /// Somebody asked for the job to be cancelled. If the run still ends well, that counts.
    CancelRequested = 2,
    /// It has run for as long as its kind allows.
    Deadline = 3,
    /// The lease is lost, or may be lost soon: another instance may run the same job. Whatever this run writes under its
    /// fence from now on is refused.
    LeaseLost = 4,
}

impl StopReason {
    const fn from_level(level: u8) -> Option<Self> {
        match level {
            0 => None,
            1 => Some(Self::Shutdown),
            2 => Some(Self::CancelRequested),
            3 => Some(Self::Deadline),
            _ => Some(Self::LeaseLost),
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shutdown => "its host shuts down",
            Self::CancelRequested => "it was asked to stop",
            Self::Deadline => "it ran for as long as it may",
            Self::LeaseLost => "its lease is lost",
        })
    }
}

/// The signal of one run.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    level: AtomicU8,
    /// Set by a host that stops at once: no grace.
    hurry: AtomicU8,
    changed: Notify,
    /// Made only for those who ask for it.
    token: OnceLock<CancellationToken>,
}

impl Signal {
    /// Gives the reason; a stronger one stays.
    pub(crate) fn raise(&self, reason: StopReason) {
        let level = reason as u8;
        if self.level.fetch_max(level, Ordering::SeqCst) >= level {
            return;
        }
        self.changed.notify_waiters();
        // `token` checks the level after it has put its token there, this looks for a token after it has set the level:
        // one of the two sees the other.
        if let Some(token) = self.token.get() {
            token.cancel();
        }
    }

    /// The grace is over.
    pub(crate) fn hurry(&self) {
        self.hurry.store(1, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// The reason, if one was given.
    pub(crate) fn reason(&self) -> Option<StopReason> {
        StopReason::from_level(self.level.load(Ordering::SeqCst))
    }

    /// Waits for a reason.
    pub(crate) async fn raised(&self) -> StopReason {
        self.wait_for(Self::reason).await
    }

    /// Waits until the grace is cut short.
    pub(crate) async fn hurried(&self) {
        self.wait_for(|signal| (signal.hurry.load(Ordering::SeqCst) != 0).then_some(())).await;
    }

    /// A token that is cancelled with the first reason.
    pub(crate) fn token(&self) -> CancellationToken {
        let token = self.token.get_or_init(CancellationToken::new).clone();
        if self.reason().is_some() {
            token.cancel();
        }
        token
    }

    async fn wait_for<T>(&self, seen: impl Fn(&Self) -> Option<T>) -> T {
        loop {
            // Register before looking: what is raised between the look and the wait is not missed.
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(value) = seen(self) {
                return value;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_strongest_reason_counts() {
        let signal = Signal::default();
        let early = signal.token();
        signal.raise(StopReason::LeaseLost);
        signal.raise(StopReason::Shutdown);
        assert_eq!(signal.raised().await, StopReason::LeaseLost);
        assert!(early.is_cancelled() && signal.token().is_cancelled());
    }
}
