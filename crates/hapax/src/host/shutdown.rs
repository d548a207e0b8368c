//! How a host is told to end, and the order in which it does.
//!
//! 1. *Drain*: nothing is claimed any more, what waits in memory is given back, services are asked to stop; runs go on.
//! 2. When the drain time is over, or at once if that is wanted, runs are told to stop and dropped after their grace.
//! 3. Every end of a run is handed to the store.
//! 4. The duties end, and the keeper leaves: what is still owned is taken back by the store at once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::core::Core;
use super::signal::StopReason;
use super::supervisor::Supervisor;

/// How far a host has been told to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wish {
    /// Go on.
    #[default]
    Run,
    /// Let runs finish, then end.
    Drain,
    /// End now.
    Now,
}

/// Tells a host what to do; a wish can only grow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wishes(watch::Sender<Wish>);

impl Wishes {
    pub(crate) fn wish(&self, wish: Wish) {
        self.0.send_if_modified(|now| {
            let grows = wish > *now;
            *now = wish.max(*now);
            grows
        });
    }

    /// Waits for at least this wish.
    pub(crate) async fn at_least(&self, wish: Wish) {
        let mut wishes = self.0.subscribe();
        // It cannot fail: this holds the sender.
        let _ = wishes.wait_for(|now| *now >= wish).await;
    }
}

/// What a service is given to learn when it shall stop.
///
/// ```
/// use hapax::BoxError;
/// use hapax::host::Stop;
/// # #[derive(Clone)] struct App;
/// # async fn look_for_files(_: &App) {}
///
/// async fn poller(app: App, stop: Stop) -> Result<(), BoxError> {
///     let mut every = tokio::time::interval(std::time::Duration::from_secs(60));
///     loop {
///         tokio::select! {
///             _ = every.tick() => look_for_files(&app).await,
///             () = stop.requested() => return Ok(()),
///         }
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Stop {
    token: CancellationToken,
    ready: Arc<watch::Sender<bool>>,
}

impl Stop {
    pub(crate) fn new(token: CancellationToken, ready: Arc<watch::Sender<bool>>) -> Self {
        Self { token, ready }
    }

    /// Waits until the service shall stop. It is dropped when it does not stop within the host's drain time.
    pub async fn requested(&self) {
        self.token.cancelled().await;
    }

    /// Whether the service shall stop.
    pub fn is_requested(&self) -> bool {
        self.token.is_cancelled()
    }

    /// A token that is cancelled when the service shall stop, for libraries that take one.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Says that the service is ready, for one that was registered with
    /// [`announces_ready`](super::ServiceOptions::announces_ready).
    pub fn announce_ready(&self) {
        self.ready.send_replace(true);
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stop").field("requested", &self.is_requested()).finish_non_exhaustive()
    }
}

/// How long the last finishes may take once no task is at work.
const FLUSH_MAX: Duration = Duration::from_secs(5);

/// The parts of a host, in the order in which they end.
pub(crate) struct Parts {
    pub(crate) core: Arc<Core>,
    pub(crate) wishes: Wishes,
    /// The user's services and the worker: asked to stop first.
    pub(crate) services: Supervisor,
    /// Finisher, reaper and pruner: needed until every run is settled.
    pub(crate) duties: Supervisor,
    /// Ends the keeper when it is dropped, whatever becomes of this future.
    pub(crate) keeper: super::keeper::KeeperGuard,
}

/// Waits for the wish to end, and ends everything.
pub(crate) async fn until_ended(parts: Parts) {
    let Parts { core, wishes, services, duties, keeper } = parts;
    wishes.at_least(Wish::Drain).await;
    tracing::info!(active = core.slots.active(), "the host stops claiming and lets its runs finish");
    services.stop();
    let drained = tokio::select! {
        // One after the other: a claim whose answer was on its way may still begin runs before the worker has ended.
        () = async { services.ended().await; core.slots.quiet().await; } => true,
        () = tokio::time::sleep(core.settings.drain_timeout) => false,
        () = wishes.at_least(Wish::Now) => false,
    };
    services.abort();
    if !drained {
        cancel_runs(&core, &wishes).await;
        if tokio::time::timeout(FLUSH_MAX, core.slots.quiet()).await.is_err() {
            let (active, unconfirmed) = (core.slots.active(), core.slots.unconfirmed());
            tracing::warn!(
                active,
                unconfirmed,
                "the host ends although not every run is settled; the store takes them back"
            );
        }
    }
    duties.stop();
    if tokio::time::timeout(FLUSH_MAX, duties.ended()).await.is_err() {
        // A store that does not answer keeps nobody here for ever.
        duties.abort();
    }
    keeper.ended().await;
}

/// Tells all runs to stop, and waits for those that heed it or can be dropped.
async fn cancel_runs(core: &Core, wishes: &Wishes) {
    core.instance().each(|run| run.raise(StopReason::Shutdown));
    let patience = core.settings.grace + Duration::from_millis(100);
    tokio::select! {
        () = core.slots.idle() => return,
        () = wishes.at_least(Wish::Now) => {}
        () = tokio::time::sleep(patience) => {}
    }
    core.instance().each(|run| run.signal().hurry());
    // Whoever still does not end blocks its thread.
    let _ = tokio::time::timeout(Duration::from_millis(100), core.slots.idle()).await;
}
