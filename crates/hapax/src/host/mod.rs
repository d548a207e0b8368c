//! WHAT RUNS? One host per process: it claims jobs and runs their tasks, keeps its lease, looks after services, and
//! cleans up after those who died.
//!
//! A *task* is the user's async function for a kind of job; a *run* is one attempt, under a fence. A *service* is code
//! that runs for as long as the host does. Everything here is one loop per duty, each in a file that opens with the
//! list of what it does.
//!
//! This room does not know: how a store keeps anything (it asks by the verbs of `store/`; `effect/` alone names one),
//! what a verb means (the model does), process signals, config files, HTTP. It decides nothing about who may write: the
//! fence does, in the store.
//!
//! ```
//! use hapax::host::{Host, State};
//! use hapax::{Hapax, Job, JobError, Run};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Notify {
//!     order: i64,
//! }
//!
//! impl Job for Notify {
//!     const KIND: &'static str = "notify";
//!     const QUEUE: &'static str = "mail";
//! }
//!
//! async fn notify(job: Notify, State(greeting): State<String>, run: Run) -> Result<(), JobError> {
//!     println!("{greeting}: order {} by delivery {}", job.order, run.delivery_id());
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), hapax::Error> {
//! let host = Host::builder(Hapax::memory(), "hello".to_owned())
//!     .queue("mail", |queue| queue.workers(4))
//!     .task(notify)
//!     .start()
//!     .await?;
//! host.ready().await?;
//! host.drain().await;
//! # Ok(())
//! # }
//! ```

mod builder;
mod claimer;
mod core;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod effect;
mod extract;
mod finisher;
mod handle;
mod handler;
mod instance;
mod keeper;
mod listener;
mod outcome;
mod pace;
mod pruner;
mod reaper;
mod registry;
mod run;
mod runner;
mod service;
mod shutdown;
mod signal;
mod slots;
mod supervisor;
mod worker;

pub use builder::{Host, HostBuilder, QueueOptions, WORKERS_DEFAULT};
#[cfg(feature = "sqlite")]
pub use effect::Effect;
#[cfg(feature = "postgres")]
pub use effect::EffectTx;
pub use extract::{FromRef, FromRun, Meets, MustFinish, Nothing, State};
pub use handle::{HostHandle, HostStats};
pub use handler::{Task, TaskFn};
pub use outcome::{Finished, IntoOutcome, Returned, TaskResult};
pub use run::Run;
pub use service::ServiceOptions;
pub use shutdown::Stop;
pub use signal::StopReason;

/// What `testing/` builds on: single runs without a host around them.
#[cfg(feature = "testing")]
pub(crate) mod parts {
    pub(crate) use super::instance::Instance;
    pub(crate) use super::outcome::end_of;
    pub(crate) use super::registry::{Entry, Registry};
    pub(crate) use super::run::Run;
    pub(crate) use super::runner::execute;
}
