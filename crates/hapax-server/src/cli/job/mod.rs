//! `hapax job …`: one job, from its enqueue to what a person decides about it.
//!
//! `push` makes jobs, `lines` makes many of them, `get` and `list` look, `decide` holds the four decisions that a
//! person can take, and `view` is how a job looks in text and in JSON.
//!
//! This room does not know: which step a state allows (the library refuses what is illegal), SQL, or who runs the jobs.

mod decide;
mod get;
mod lines;
mod list;
mod push;
mod view;

use clap::Subcommand;

use super::Global;
use crate::exit::Answer;

/// Enqueues jobs, looks at them, and decides about them
#[derive(Debug, Subcommand)]
pub(crate) enum Job {
    Push(Box<push::Push>),
    Get(get::Get),
    List(list::List),
    Retry(decide::Retry),
    Cancel(decide::Cancel),
    Park(decide::Park),
    Resolve(decide::Resolve),
}

impl Job {
    /// Does it.
    pub(crate) async fn run(self, global: &Global) -> Answer {
        match self {
            Self::Push(push) => push.run(global).await,
            Self::Get(get) => get.run(global).await,
            Self::List(list) => list.run(global).await,
            Self::Retry(retry) => retry.run(global).await,
            Self::Cancel(cancel) => cancel.run(global).await,
            Self::Park(park) => park.run(global).await,
            Self::Resolve(resolve) => resolve.run(global).await,
        }
    }
}
