//! hapax: background work that takes effect once.
//!
//! Every piece of work has an identity that outlives any lock, every run has a fence that only grows, and every write
//! is conditional on it. *Execution may repeat; the effect does not.*
//!
//! Start with [`Hapax`] (enqueue, locks, once keys), [`Job`] (a payload type) and [`Host`] (what runs tasks). Errors
//! say whether a change may have been made all the same: [`Error::outcome`].
//!
//! ```
//! use hapax::{Hapax, Job, JobExt};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct CancelOrder {
//!     order: i64,
//! }
//!
//! impl Job for CancelOrder {
//!     const KIND: &'static str = "cancel-order";
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> hapax::Result<()> {
//! let hapax = Hapax::memory();
//! let first = hapax.enqueue(CancelOrder { order: 7 }.once("order-7")).await?;
//! let again = hapax.enqueue(CancelOrder { order: 7 }.once("order-7")).await?;
//! assert!(again.existed && again.id == first.id);
//! # Ok(())
//! # }
//! ```

pub mod client;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod error;
pub mod host;
pub mod id;
pub mod model;
pub mod store;
pub mod task;
pub mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;

pub use client::{Enqueue, Enqueued, Hapax, JobExt, SchemaVersion};
pub use error::{Error, ErrorKind, Outcome, Result};
pub use host::{Host, HostHandle, Run};
pub use id::{AcquisitionId, Boundary, ClaimId, Fence, Fingerprint, InstanceId, JobId, Name, OnceKey, Payload};
pub use model::{Guarantee, JobState, RetryPolicy};
pub use task::{BoxError, Job, JobError};

/// The program of the README compiles.
#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../../../README.md")]
mod readme {}
