//! WHERE IS IT KEPT? The seam: small traits in transition words, and the stores behind them.
//!
//! **What an implementer owes.** Each verb is one atomic step that gives what the method of the same name on
//! [`Model`](crate::model::Model) would give; the doc there is the contract, and
//! [`conformance`](mod@crate::conformance) is its proof. Time is read by the store, in the same step. A verb either
//! returns the whole answer or an [`Error`](crate::Error) whose [`Outcome`](crate::Outcome) is honest: what is not
//! certain *may have happened*. A store never retries, never fills in defaults and never logs payloads; validation,
//! retries and metrics live once, in `client/` and `host/`.
//!
//! **What a caller may assume.** Repeating a call with the ids it was made with is a no-op. A future that was polled
//! once may be dropped: the step runs to its end all the same, only its answer is lost.
//!
//! **Why no default methods:** a default drifts apart from the stores that override it.
//!
//! This room does not know: tasks, workers, sessions of users, HTTP. It knows nothing of `client/` and `host/`.

mod hints;
mod inspect;
mod jobs;
mod leases;
pub mod memory;
mod once;
mod operate;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "testing")]
pub mod unreliable;
#[cfg(feature = "testing")]
pub mod wired;
mod workers;

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;

use crate::error::Result;
use crate::id::Name;
use crate::model::{EnqueueAnswer, NewJob};

pub use hints::Hints;
pub use inspect::{Health, HealthVerdict, Inspect, Scope, Setting};
pub use jobs::Jobs;
pub use leases::Leases;
pub use once::Once;
pub use operate::Operate;
pub use workers::Workers;

/// Everything that hapax keeps somewhere. Sealed until 1.0: the seam may still move.
#[async_trait]
pub trait Store: Jobs + Workers + Leases + Once + Operate + Inspect + sealed::Sealed + Debug {
    /// `memory`, `sqlite`, …: for messages and metrics.
    fn name(&self) -> &'static str;

    /// The address, without secrets: for messages.
    fn address(&self) -> String;

    /// A second handle on the same store with a connection of its own, so that whoever holds it never waits behind
    /// the first: the keeper's.
    ///
    /// # Errors
    /// [`Unreachable`](crate::ErrorKind::Unreachable) and what opening the store can say.
    async fn another(&self) -> Result<Arc<dyn Store>>;

    /// A line on which the store tells of new work in these queues, on a connection of its own; nothing where a store
    /// has none, and work is found by polling alone.
    ///
    /// # Errors
    /// [`Unreachable`](crate::ErrorKind::Unreachable) and what opening a connection can say.
    async fn hints(&self, queues: Vec<Name>) -> Result<Option<Box<dyn Hints>>>;

    /// The concrete store, for the one place that lends its transactions to users.
    fn as_any(&self) -> &dyn Any;

    /// Ends the store's threads once everything asked of it so far has been answered. Later calls fail with
    /// [`Closed`](crate::ErrorKind::Closed).
    async fn close(&self);
}

/// A transaction of the user's, on the user's own connection, in which jobs may be enqueued: there once it commits,
/// and never if it does not.
///
/// Sealed; implemented for the transaction types of the SQL stores.
pub trait EnqueueIn: sealed::Sealed {
    /// What an enqueue that ends in a `T` gives: the `T` itself where the driver is synchronous, else a future of it.
    type Answer<T: Send + 'static>;

    /// Takes jobs, in order, each for itself, and makes a `T` of the answers.
    fn enqueue_jobs<T: Send + 'static>(
        self,
        jobs: Vec<NewJob>,
        then: impl FnOnce(Enqueues) -> T + Send + 'static,
    ) -> Self::Answer<T>;

    /// The answer for jobs that were found wrong before the store was asked.
    fn answer<T: Send + 'static>(self, answer: T) -> Self::Answer<T>;
}

/// Answers to an enqueue, in order.
pub type Enqueues = Result<Vec<EnqueueAnswer>>;

pub(crate) mod sealed {
    /// Nobody outside this crate can name it.
    pub trait Sealed {}
}
