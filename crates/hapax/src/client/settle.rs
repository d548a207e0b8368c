//! Lost answers: the same call again, with the ids it was made with, until the answer comes.

use std::time::Duration;

use crate::error::{Error, Outcome, Result};

const TRIES_MAX: u32 = 6;
const PAUSE_FIRST: Duration = Duration::from_millis(20);

/// Repeats a call that may have happened: with its own ids that is a no-op, so the answer is the one that was lost.
///
/// An error of the first try that is certain not to have happened is the caller's to decide about. After a lost answer
/// nothing that goes wrong later can make it certain again.
pub(super) async fn settle<T, Fut: Future<Output = Result<T>>>(mut call: impl FnMut() -> Fut) -> Result<T> {
    settle_by(|_| call()).await
}

/// As [`settle`]; the call is told whether an earlier one may have happened.
pub(super) async fn settle_by<T, Fut: Future<Output = Result<T>>>(mut call: impl FnMut(bool) -> Fut) -> Result<T> {
    let (mut pause, mut lost) = (PAUSE_FIRST, None::<Error>);
    for _ in 0..TRIES_MAX {
        match call(lost.is_some()).await {
            Err(error) if error.outcome() == Outcome::MayHaveHappened => {
                tracing::warn!(%error, "the answer was lost; asking again with the same ids");
                lost = Some(error);
            }
            Err(error) if lost.is_some() && error.refusal().is_none() => {
                tracing::warn!(%error, "cannot ask again yet whether it happened");
            }
            settled => return settled,
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
    Err(lost.expect("only a lost answer is asked for again"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn lost() -> Result<u32> {
        Err(Error::may_have_happened(ErrorKind::Unreachable, "lost"))
    }

    fn busy() -> Result<u32> {
        Err(Error::did_not_happen(ErrorKind::Busy, "busy"))
    }

    async fn settled(answers: &[fn() -> Result<u32>]) -> Result<u32> {
        let mut answers = answers.iter();
        settle(|| std::future::ready(answers.next().expect("asked no more often than that")())).await
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_have_happened_is_never_said_not_to_have() {
        assert_eq!(settled(&[lost, busy, || Ok(7)]).await.expect("asked until it is known"), 7);
        let unknown = settled(&[lost, busy, busy, busy, busy, busy]).await.expect_err("never known");
        assert_eq!(unknown.outcome(), Outcome::MayHaveHappened);
        assert_eq!(settled(&[busy]).await.expect_err("certain").outcome(), Outcome::DidNotHappen);
    }
}
