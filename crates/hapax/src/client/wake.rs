//! A hint within one process that something may be due. Never trusted: polling is the truth.

use tokio::sync::watch;

/// Shared by the handle that enqueues and the host that works.
#[derive(Clone, Debug)]
pub(crate) struct Wake(watch::Sender<u64>);

/// Register *before* looking into the store, look, then wait: a hint that comes between look and wait is not missed.
#[derive(Debug)]
pub(crate) struct Waiter(watch::Receiver<u64>);

impl Default for Wake {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Wake {
    /// Something may be due.
    pub(crate) fn poke(&self) {
        self.0.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// Registers for hints from now on.
    pub(crate) fn register(&self) -> Waiter {
        Waiter(self.0.subscribe())
    }
}

impl Waiter {
    /// Waits for a hint given since the registration or the last wait.
    pub(crate) async fn wait(&mut self) {
        if self.0.changed().await.is_err() {
            // The handle is gone: no hint will ever come.
            std::future::pending::<()>().await;
        }
    }
}
