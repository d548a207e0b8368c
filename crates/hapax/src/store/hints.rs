//! Hints of the store itself that work may be there. Polling is the truth; a hint only makes it faster.

use std::fmt::Debug;

use async_trait::async_trait;

use crate::error::Result;

/// A line on which the store tells of new work, open until it is dropped.
///
/// Whoever waits registers before looking: tell that you are about to sleep, look into the store once more, then wait.
#[async_trait]
pub trait Hints: Send + Debug {
    /// Says whether this host sleeps: only then does the store take the trouble of a hint. Also the proof that the line
    /// is not dead, so it is to be said again every few seconds.
    ///
    /// # Errors
    /// The line is lost; open another.
    async fn tell(&mut self, asleep: bool) -> Result<()>;

    /// Waits for a hint. May be dropped at any time without losing one.
    ///
    /// # Errors
    /// The line is lost; open another.
    async fn wait(&mut self) -> Result<()>;
}
