//! What goes wrong in a proxy, and what has gone wrong so far.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::ProxyConnection;

/// Which commits a fault falls on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum When {
    /// None.
    #[default]
    Never,
    /// The n-th from now on, counted over all connections from 1, and only that one.
    Nth(u32),
    /// Each with this probability, from 0 to 1.
    Chance(f64),
}

impl From<f64> for When {
    fn from(probability: f64) -> Self {
        Self::Chance(probability)
    }
}

impl When {
    /// Whether it falls on this commit, for which a number from 0 to 1 was drawn.
    fn falls(&mut self, drawn: f64) -> bool {
        match self {
            Self::Never => false,
            Self::Chance(probability) => drawn < *probability,
            Self::Nth(left) if *left > 1 => {
                *left -= 1;
                false
            }
            Self::Nth(_) => {
                *self = Self::Never;
                true
            }
        }
    }
}

/// What a [`Proxy`](super::Proxy) has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProxyCounts {
    /// Connections that were let in.
    pub accepted: u64,
    /// Connections that were closed at once, as [`ProxyFaults::refuse`] wants it.
    pub refused: u64,
    /// Connections that were let in and closed, since the server itself could not be reached.
    pub unreachable: u64,
    /// Connections that were cut by hand.
    pub cut: u64,
    /// Commits that clients sent, those that were then not passed on included.
    pub commits: u64,
    /// Commits that were not passed on to the server: nothing was committed.
    pub commits_not_forwarded: u64,
    /// Commits that succeeded and whose client was not told.
    pub commits_not_answered: u64,
}

/// What happens to one commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is passed on, and so is the answer.
    Pass,
    /// It is not passed on.
    NotForwarded,
    /// If it succeeds, the answer is not passed on.
    NotAnswered,
}

/// Lets a [`Proxy`](super::Proxy) fail. Each fault lasts until [`mend`](Self::mend).
#[derive(Clone, Debug)]
pub struct ProxyFaults(Arc<Shared>);

impl ProxyFaults {
    pub(super) const fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.0
    }

    /// Closes every connection that is open, on both sides. New ones are let in.
    pub fn cut_all(&self) {
        for connection in self.0.connections() {
            connection.cut();
        }
    }

    /// Closes new connections before anything is said. Open ones stay.
    pub fn refuse(&self) {
        self.0.standing.send_modify(|standing| standing.refuse = true);
    }

    /// Passes nothing on any more, in either direction and on every connection, new ones included, and closes nothing.
    /// What is sent meanwhile arrives when it is mended.
    pub fn blackhole(&self) {
        self.0.standing.send_modify(|standing| standing.silent = true);
    }

    /// Passes each portion of bytes on only after this time, in each direction.
    pub fn delay(&self, by: Duration) {
        self.0.standing.send_modify(|standing| standing.delay = by);
    }

    /// Cuts the connection instead of passing a commit on: the server rolls back, and the client does not know.
    pub fn cut_before_commit(&self, when: impl Into<When>) {
        self.0.commits().before = when.into();
    }

    /// Cuts the connection instead of passing on that a commit succeeded: the client does not know that it did.
    pub fn cut_answer_to_commit(&self, when: impl Into<When>) {
        self.0.commits().answer = when.into();
    }

    /// Ends every fault of this type. A connection that was silenced on its own stays so.
    pub fn mend(&self) {
        *self.0.commits() = Commits::default();
        self.0.standing.send_replace(Standing::default());
    }
}

/// Faults that are not about commits.
#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    refuse: bool,
    silent: bool,
    delay: Duration,
}

#[derive(Debug, Default)]
struct Commits {
    before: When,
    answer: When,
}

/// What the connections of a proxy share.
#[derive(Debug)]
pub(super) struct Shared {
    seed: u64,
    standing: watch::Sender<Standing>,
    commits: Mutex<Commits>,
    counts: Mutex<ProxyCounts>,
    open: Mutex<BTreeMap<u64, ProxyConnection>>,
}

impl Shared {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            standing: watch::Sender::default(),
            commits: Mutex::default(),
            counts: Mutex::default(),
            open: Mutex::default(),
        }
    }

    fn commits(&self) -> MutexGuard<'_, Commits> {
        self.commits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<u64, ProxyConnection>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn counts(&self) -> ProxyCounts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self, what: impl FnOnce(&mut ProxyCounts)) {
        what(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn connections(&self) -> Vec<ProxyConnection> {
        self.open().values().cloned().collect()
    }

    /// Lets a new connection in, or not.
    pub(super) fn admit(&self) -> Option<ProxyConnection> {
        if self.standing.borrow().refuse {
            self.count(|counts| counts.refused += 1);
            return None;
        }
        let mut number = 0;
        self.count(|counts| {
            counts.accepted += 1;
            number = counts.accepted;
        });
        let connection = ProxyConnection::new(number);
        self.open().insert(number, connection.clone());
        Some(connection)
    }

    /// A connection has ended.
    pub(super) fn forget(&self, number: u64) {
        self.open().remove(&number);
    }

    /// The dice of a connection: its own, so that connections do not change each other's luck.
    pub(super) fn random(&self, number: u64) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number))
    }

    /// Decides about the next commit.
    pub(super) fn fate(&self, random: &mut fastrand::Rng) -> Fate {
        self.count(|counts| counts.commits += 1);
        // Always both: what was set before must not change what is drawn later.
        let (before, answer) = (random.f64(), random.f64());
        let mut commits = self.commits();
        match (commits.before.falls(before), commits.answer.falls(answer)) {
            (true, _) => Fate::NotForwarded,
            (false, true) => Fate::NotAnswered,
            (false, false) => Fate::Pass,
        }
    }

    /// Waits while the connection is silent, and then for as long as everything is delayed.
    pub(super) async fn until_passable(&self, mut own: watch::Receiver<bool>) {
        let mut standing = self.standing.subscribe();
        while standing.borrow_and_update().silent || *own.borrow_and_update() {
            // Neither can end before the connection does.
            let _ = tokio::select! {
                changed = standing.changed() => changed,
                changed = own.changed() => changed,
            };
        }
        let delay = standing.borrow().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }
}
