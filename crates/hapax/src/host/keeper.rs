//! Keeps the lease of the instance, in an OS thread, a runtime and a connection of its own, so that neither a task that
//! blocks nor a full pool can cost it.
//!
//! 1. Registers the instance.
//! 2. Sends a heartbeat every third of a lease, with the starts of runs that have outlasted one, and counts the new
//!    lease from *before* it was sent.
//! 3. Compares what the store counts as the instance's with what is held in memory: gives back what nobody works on,
//!    and tells a run that is no longer owned, or was asked to stop.
//! 4. Tells every run that it is lost when the lease passes without a confirmed renewal; nothing is claimed until then.
//! 5. Registers under a new id when the store has declared the instance dead. The host goes on.
//! 6. Tells runs of their deadline even where timers sleep with the machine, reports those that block their thread, and
//!    keeps the runtime going from which they took it.
//! 7. Leaves at the end, so that what is still owned is taken back at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::core::{Core, Tally};
use super::instance::Instance;
use super::pace::Pace;
use super::signal::StopReason;
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind, Result, panic_text};
use crate::model::{Heartbeat, OwnedRun, RunRef};
use crate::store::Store;
use crate::telemetry;

/// How long the store may take to answer when the instance leaves.
const LEAVE_MAX: Duration = Duration::from_secs(3);

/// Ends the keeper when it is dropped.
#[derive(Debug)]
pub(crate) struct KeeperGuard {
    stop: DropGuard,
    done: oneshot::Receiver<()>,
}

impl KeeperGuard {
    /// Asks the keeper to leave, and waits until it has.
    pub(crate) async fn ended(self) {
        drop(self.stop);
        // An error means that its thread is gone, which is what was waited for.
        let _ = self.done.await;
    }
}

/// Starts the keeper and waits until the store has taken the instance in.
///
/// # Errors
/// What opening a second connection or registering gave.
pub(crate) async fn start(core: Arc<Core>) -> Result<KeeperGuard> {
    let stop = CancellationToken::new();
    let guard = stop.clone().drop_guard();
    let (say_registered, registered) = oneshot::channel();
    let (say_done, done) = oneshot::channel();
    let body = move || {
        thread_body(core, &stop, say_registered);
        let _ = say_done.send(());
    };
    std::thread::Builder::new().name("hapax-keeper".to_owned()).spawn(body).map_err(|error| {
        Error::did_not_happen(ErrorKind::Closed, format!("cannot start the keeper's thread: {error}"))
    })?;
    let ended = |_| Error::did_not_happen(ErrorKind::Closed, "the keeper ended before it had registered");
    registered.await.map_err(ended)??;
    Ok(KeeperGuard { stop: guard, done })
}

fn thread_body(core: Arc<Core>, stop: &CancellationToken, say_registered: oneshot::Sender<Result<()>>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let text = format!("cannot start the keeper's runtime: {error}");
            let _ = say_registered.send(Err(Error::did_not_happen(ErrorKind::Closed, text)));
            return;
        }
    };
    let opened = runtime.block_on(async {
        let store = core.store().another().await?;
        let instance = core.instance();
        let mut keeper = Keeper { core, store, instance, lapsed: false, answered: 0 };
        keeper.register_once().await?;
        Ok(keeper)
    });
    let mut keeper = match opened {
        Ok(keeper) => keeper,
        Err(error) => {
            let _ = say_registered.send(Err(error));
            return;
        }
    };
    let _ = say_registered.send(Ok(()));
    // A panic here is a fault of ours; it must not cost the lease as well.
    while let Err(panic) = catch_unwind(AssertUnwindSafe(|| runtime.block_on(keeper.keep(stop)))) {
        tracing::error!(text = panic_text(panic.as_ref()), "the keeper panicked; it goes on");
    }
    runtime.block_on(keeper.leave());
}

struct Keeper {
    core: Arc<Core>,
    store: Arc<dyn Store>,
    instance: Arc<Instance>,
    /// The lease passed without a confirmed renewal.
    lapsed: bool,
    /// Heartbeats that were answered or failed.
    answered: u64,
}

impl Keeper {
    /// Sends heartbeats until asked to stop.
    async fn keep(&mut self, stop: &CancellationToken) {
        let every = self.core.settings.lease / 3;
        let mut pace = Pace::new(every / 8, every / 2);
        let mut wait = every;
        loop {
            if !self.watch_for(wait, stop).await {
                return;
            }
            let beat = tokio::select! {
                beat = self.beat() => beat,
                () = stop.cancelled() => return,
            };
            wait = match beat {
                Ok(()) => {
                    pace.reset();
                    every
                }
                Err(error) => {
                    telemetry::store_failed("heartbeat");
                    tracing::warn!(%error, failures = pace.failures() + 1, "a heartbeat failed; trying again");
                    pace.next()
                }
            };
            self.answered += 1;
            self.core.beats_answered.send_replace(self.answered);
        }
    }

    /// Waits, and looks after the runs meanwhile; false when asked to stop.
    async fn watch_for(&mut self, wait: Duration, stop: &CancellationToken) -> bool {
        let core = Arc::clone(&self.core);
        let mut due = std::pin::pin!(sleep(wait));
        loop {
            self.look_after_runs();
            tokio::select! {
                () = &mut due => return true,
                () = core.beat_now.notified() => return true,
                () = stop.cancelled() => return false,
                () = sleep(self.tick()) => {}
            }
        }
    }

    /// How often the clock is asked: timers do not count the time that a machine sleeps.
    fn tick(&self) -> Duration {
        (self.core.settings.lease / 20).clamp(Duration::from_millis(5), Duration::from_millis(500))
    }

    /// One heartbeat, whatever comes of it.
    async fn beat(&mut self) -> Result<()> {
        let beat = self.instance.next_beat();
        let started = self.instance.starts_due(beat);
        let anchor = Deadline::anchor();
        let answer = self.wait_for_answer(started.clone()).await?;
        match answer {
            Heartbeat::Alive { owned } => {
                let patience_ms = self.instance.lease_ms / 3;
                self.instance.renewed(anchor.deadline(self.instance.lease_ms), anchor.plus_ms(patience_ms));
                if std::mem::take(&mut self.lapsed) {
                    tracing::info!(instance = %self.instance.id, "the lease is renewed; claiming again");
                    self.core.slots.changed.notify_one();
                }
                self.compare(beat, &started, &owned).await;
            }
            Heartbeat::Dead => self.come_back().await,
        }
        Ok(())
    }

    /// Sends a heartbeat and waits for its answer, at most a third of the lease; looks after the runs meanwhile.
    async fn wait_for_answer(&mut self, started: Vec<RunRef>) -> Result<Heartbeat> {
        let store = Arc::clone(&self.store);
        let id = self.instance.id;
        let every = self.core.settings.lease / 3;
        let mut answer = std::pin::pin!(timeout(every, store.heartbeat(id, started)));
        loop {
            tokio::select! {
                answer = &mut answer => return answer.unwrap_or_else(|_| {
                    let text = format!("no answer to a heartbeat within {every:?}");
                    Err(Error::may_have_happened(ErrorKind::Unreachable, text))
                }),
                () = sleep(self.tick()) => self.look_after_runs(),
            }
        }
    }

    /// Compares the store's view with memory.
    async fn compare(&self, beat: u64, started: &[RunRef], owned: &[OwnedRun]) {
        let found = self.instance.reconcile(beat, started, owned);
        self.count_lost(found.lost, "run");
        if !found.give_back.is_empty() {
            tracing::debug!(runs = found.give_back.len(), "giving back jobs that nobody here works on");
            let release = crate::model::Release::Runs(found.give_back);
            let most = self.core.settings.lease / 10;
            let asked = timeout(most, self.store.release(self.instance.id, release)).await;
            // A store that does not answer must not cost the lease.
            let late = || Error::may_have_happened(ErrorKind::Unreachable, format!("no answer within {most:?}"));
            match asked.unwrap_or_else(|_| Err(late())) {
                Ok(released) => Tally::add(&self.core.tally.given_back, released.len() as u64),
                Err(error) => {
                    telemetry::store_failed("release");
                    tracing::warn!(%error, "could not give jobs back; the next heartbeat will");
                }
            }
        }
    }

    /// Dead is final: everything is lost, and the host goes on as another instance.
    async fn come_back(&mut self) {
        let lost = self.instance.leave_behind();
        tracing::error!(instance = %self.instance.id, lost, "the store has declared this instance dead");
        metrics::counter!(telemetry::LEASES_LOST, "what" => "instance").increment(1);
        self.count_lost(lost, "run");
        let mut pace = Pace::new(Duration::from_millis(50), self.core.settings.lease / 3);
        loop {
            self.instance = Core::new_instance(&self.core.hapax, &self.core.settings);
            // A store that does not answer is asked again, by another id: this one's answer may still come.
            let patience = self.core.settings.lease.max(Duration::from_secs(5));
            let late = || Error::may_have_happened(ErrorKind::Unreachable, format!("no answer within {patience:?}"));
            match timeout(patience, self.register_once()).await.unwrap_or_else(|_| Err(late())) {
                Ok(()) => break,
                Err(error) => {
                    telemetry::store_failed("register");
                    tracing::warn!(%error, "could not register again");
                    sleep(pace.next()).await;
                }
            }
        }
        self.lapsed = false;
        tracing::info!(instance = %self.instance.id, "registered under a new id");
        self.core.instance.send_replace(Arc::clone(&self.instance));
    }

    async fn register_once(&mut self) -> Result<()> {
        self.instance.next_beat();
        let anchor = Deadline::anchor();
        self.store.register(self.core.registration(&self.instance)).await?;
        self.instance.renewed(anchor.deadline(self.instance.lease_ms), anchor.plus_ms(0));
        Ok(())
    }

    /// What the clock alone decides.
    fn look_after_runs(&mut self) {
        if self.core.slots.active() > 0 {
            // A task that blocks the very thread which drove its runtime's timers stops them all, until somebody from
            // outside wakes another thread of it.
            self.core.slots.changed.notify_one();
        }
        if !self.lapsed && self.instance.lease_passed() {
            self.lapsed = true;
            let lost = self.instance.lose_all();
            tracing::error!(instance = %self.instance.id, lost, "the lease passed unrenewed; nothing is claimed");
            metrics::counter!(telemetry::LEASES_LOST, "what" => "instance").increment(1);
            self.count_lost(lost, "run");
        }
        let (mut stuck, grace) = (0, self.core.settings.grace);
        self.instance.each(|run| {
            if run.has_begun() && run.soft_deadline().passed() {
                run.raise(StopReason::Deadline);
            }
            if run.newly_stuck(grace) {
                stuck += 1;
                tracing::error!(
                    job = %run.job_id(), kind = run.kind(), fence = %run.fence(),
                    "a task blocks its thread past its deadline; its slot stays taken until it returns",
                );
            }
        });
        if stuck > 0 {
            Tally::add(&self.core.tally.stuck, stuck);
            metrics::gauge!(telemetry::RUNS_STUCK).increment(u32::try_from(stuck).unwrap_or(u32::MAX));
        }
    }

    fn count_lost(&self, lost: u64, what: &'static str) {
        if lost > 0 {
            Tally::add(&self.core.tally.lost, lost);
            metrics::counter!(telemetry::LEASES_LOST, "what" => what).increment(lost);
        }
    }

    /// Has the store take back what is still owned.
    async fn leave(&mut self) {
        let lost = self.instance.leave_behind();
        if lost > 0 {
            tracing::warn!(lost, "the host ends with runs that did not stop");
        }
        match timeout(LEAVE_MAX, self.store.leave(self.instance.id)).await {
            Ok(Ok(reaped)) => {
                let jobs = reaped.taken_back.len();
                tracing::info!(instance = %self.instance.id, jobs, "left; the store took back what was still owned");
            }
            Ok(Err(error)) => tracing::warn!(%error, "could not leave; the lease runs out by itself"),
            Err(_) => tracing::warn!("the store did not answer; the lease runs out by itself"),
        }
        self.core.hapax.wake().poke();
    }
}
