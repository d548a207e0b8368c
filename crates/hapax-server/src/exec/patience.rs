//! How long a call waits: for what others hold, and for a store that others are writing.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::plan::Plan;
use crate::exit::Failure;

/// How long to wait for another's outcome when nothing was said.
const WAIT_DEFAULT: Duration = Duration::from_hours(1);
/// How long a busy store is waited for at least. It is no reason to give up at once that nobody else was to be waited
/// for: what makes a store busy is a crowd of callers as often as a writer that hangs.
const BUSY_MIN: Duration = Duration::from_secs(30);
/// Between two calls to a busy store, which waits by itself before it says so.
const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// What is left of the patience of one call of `exec`, from its beginning.
#[derive(Debug)]
pub(super) struct Patience {
    started: Instant,
    wait: Duration,
    busy: Duration,
}

impl Patience {
    /// As long as the plan says.
    pub(super) fn new(plan: &Plan) -> Self {
        let others = plan.timeout.map_or(WAIT_DEFAULT, |timeout| timeout.min(WAIT_DEFAULT));
        let default = if plan.once.is_some() { others } else { Duration::ZERO };
        Self {
            started: Instant::now(),
            wait: plan.wait.unwrap_or(default),
            busy: plan.wait.unwrap_or_default().max(BUSY_MIN),
        }
    }

    /// How long there is still to wait for what others hold, the key and the lock together.
    pub(super) fn left(&self) -> Duration {
        self.wait.saturating_sub(self.started.elapsed())
    }

    /// Asks the store again while it is busy: `--wait` is what was said about waiting, whatever the reason. May be
    /// dropped while it waits.
    pub(super) async fn while_busy<T, E: Into<Failure>>(
        &self,
        mut call: impl AsyncFnMut() -> Result<T, E>,
    ) -> Result<T, Failure> {
        let mut pause = PAUSE_FIRST;
        loop {
            let failure = match call().await {
                Ok(answer) => return Ok(answer),
                Err(error) => error.into(),
            };
            let left = self.busy.saturating_sub(self.started.elapsed());
            if !failure.is_busy() || left.is_zero() {
                return Err(failure);
            }
            tracing::debug!(%failure, "the store is busy; asking again");
            sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0).min(left)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use hapax::Error;
    use hapax::error::ErrorKind;

    use super::*;

    fn patience(wait: Duration) -> Patience {
        Patience { started: Instant::now(), wait, busy: wait.max(BUSY_MIN) }
    }

    /// A store that is busy for so long, and says so after the 30 s for which it waits by itself.
    async fn busy_for(length: Duration, wait: Duration) -> Result<Duration, Failure> {
        let patience = patience(wait);
        let busy = async || {
            let left = length.saturating_sub(patience.started.elapsed());
            sleep(left.min(Duration::from_secs(30))).await;
            let free = patience.started.elapsed() >= length;
            if free { Ok(()) } else { Err(Error::did_not_happen(ErrorKind::Busy, "store busy")) }
        };
        patience.while_busy(busy).await.map(|()| patience.started.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_store_is_waited_for_as_long_as_was_said() {
        let minutes = |count| Duration::from_mins(count);
        let came = busy_for(minutes(5), minutes(10)).await.expect("it is free in time");
        assert!((minutes(5)..minutes(6)).contains(&came), "{came:?}");
        assert!(busy_for(minutes(11), minutes(10)).await.is_err_and(|failure| failure.is_busy()));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_wait_a_busy_store_is_waited_for_all_the_same() {
        assert!(busy_for(Duration::from_secs(29), Duration::ZERO).await.is_ok());
        let begun = Instant::now();
        assert!(busy_for(Duration::from_mins(2), Duration::ZERO).await.is_err());
        assert!(begun.elapsed() < Duration::from_secs(31), "not for ever: {:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_but_busy_is_waited_for() {
        let begun = Instant::now();
        let patience = patience(Duration::from_mins(10));
        let away = async || Err::<(), _>(Error::did_not_happen(ErrorKind::Unreachable, "no such folder"));
        assert!(patience.while_busy(away).await.is_err());
        let unclear = async || Err::<(), _>(Error::may_have_happened(ErrorKind::Busy, "who knows"));
        assert!(patience.while_busy(unclear).await.is_err());
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
