//! hapax: background work that takes effect once.

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
