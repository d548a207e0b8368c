//! Lost answers: the same call again, with the ids it was made with, until the answer comes.

use std::time::Duration;

use crate::error::{Outcome, Result};

const TRIES_MAX: u32 = 6;
const PAUSE_FIRST: Duration = Duration::from_millis(20);

/// Repeats a call that may have happened: with its own ids that is a no-op, so the answer is the one that was lost.
/// An error that is certain not to have happened is the caller's to decide about.
pub(super) async fn settle<T, Fut: Future<Output = Result<T>>>(mut call: impl FnMut() -> Fut) -> Result<T> {
    let mut pause = PAUSE_FIRST;
    for _ in 1..TRIES_MAX {
        match call().await {
            Err(error) if error.outcome() == Outcome::MayHaveHappened => {
                tracing::warn!(%error, "the answer was lost; asking again with the same ids");
            }
            settled => return settled,
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
    call().await
}
