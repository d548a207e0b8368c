//! WHAT DO I CALL? The handle that a program keeps, and what it does with a store.
//!
//! Everything that must be the same on every store lives here, once: validation, defaults, the settling of lost
//! answers, renewal of leases. The stores below stay thin.
//!
//! This room does not know: how a store keeps anything, SQL, or who runs the jobs. It knows nothing of `host/`.

mod connect;
mod enqueue;
mod inspect;
mod ledger;
mod lock;
mod once;
mod renewal;
mod settle;
mod wake;

use std::sync::Arc;

use crate::store::Store;

pub use connect::SchemaVersion;
pub use enqueue::{Enqueue, Enqueued, JobExt};
pub(crate) use lock::process_name;
pub use lock::{LockError, LockGuard, LockOptions};
pub use once::{OnceClaim, OnceGuard, OnceOptions, OnceRun};
use renewal::Renewal;
pub(crate) use wake::Wake;

/// A cheap handle on a store; clones share it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> hapax::Result<()> {
/// use hapax::{Enqueue, Hapax};
///
/// let hapax = Hapax::memory();
/// let job = hapax.enqueue(Enqueue::new("cancel-order", r#"{"order":7}"#).once("order-7")).await?;
/// assert!(!job.existed);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Hapax {
    store: Arc<dyn Store>,
    wake: Wake,
    renewal: Renewal,
}

impl Hapax {
    /// A handle on a store that was opened by hand.
    pub fn with_store(store: Arc<dyn Store>) -> Self {
        Self { renewal: Renewal::new(store.clone()), store, wake: Wake::default() }
    }

    /// The store itself: its verbs, without this room's validation and defaults.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Ends the store's threads once all that was asked so far has been answered. Locks that are still held end by
    /// themselves.
    pub async fn close(&self) {
        self.store.close().await;
    }

    /// Hints from this process that something may be due.
    pub(crate) const fn wake(&self) -> &Wake {
        &self.wake
    }
}
