//! Any store behind a bad line: a step happens or not, and its answer arrives or not.
//!
//! Two coins for each call, and so four things that a caller may meet; the errors say no more than what a client of a
//! real network could know.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use super::Store;
use super::wired::{Wire, Wired, call};
use crate::error::{Error, ErrorKind, Result};
use crate::model::observe::{Answer, Command};

/// What becomes of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Luck {
    /// It happens, and its answer arrives.
    Good,
    /// It never left: the connection was refused. Certain, so the error says that it did not happen.
    NotSent,
    /// It was lost on its way. The caller cannot tell this from the next one.
    LostBefore,
    /// It happens, and its answer is lost.
    LostAfter,
}

/// Decides about each call. Clones share their coins, so that a test may go on throwing them.
#[derive(Clone, Debug)]
pub struct Coins(Arc<Mutex<Inner>>);

#[derive(Debug)]
enum Inner {
    Script(VecDeque<Luck>),
    Random { rng: fastrand::Rng, bad_percent: u8 },
}

impl Coins {
    /// One luck for each call, in order; good luck once they are used up.
    pub fn script(lucks: impl IntoIterator<Item = Luck>) -> Self {
        Self(Arc::new(Mutex::new(Inner::Script(lucks.into_iter().collect()))))
    }

    /// `bad_percent` of all calls have bad luck, one of the three kinds at random; the same seed throws the same coins.
    pub fn seeded(seed: u64, bad_percent: u8) -> Self {
        Self(Arc::new(Mutex::new(Inner::Random { rng: fastrand::Rng::with_seed(seed), bad_percent })))
    }

    /// From now on as this script says; for coins that are already in a store's hands.
    pub fn then(&self, lucks: impl IntoIterator<Item = Luck>) {
        *self.0.lock().expect("nobody panics while throwing") = Inner::Script(lucks.into_iter().collect());
    }

    fn throw(&self) -> Luck {
        match &mut *self.0.lock().expect("nobody panics while throwing") {
            Inner::Script(lucks) => lucks.pop_front().unwrap_or(Luck::Good),
            Inner::Random { rng, bad_percent } => {
                let bad = rng.u8(0..100) < *bad_percent;
                if bad { [Luck::NotSent, Luck::LostBefore, Luck::LostAfter][rng.usize(0..3)] } else { Luck::Good }
            }
        }
    }
}

#[async_trait]
impl Wire for Coins {
    async fn carry(&self, store: &dyn Store, command: Command) -> Result<Answer> {
        let lost = || Error::may_have_happened(ErrorKind::Unreachable, "the answer was lost on its way");
        match self.throw() {
            Luck::Good => call(store, command).await,
            Luck::NotSent => {
                Err(Error::did_not_happen(ErrorKind::Unreachable, "the connection was refused; nothing was sent"))
            }
            Luck::LostBefore => Err(lost()),
            Luck::LostAfter => {
                drop(call(store, command).await);
                Err(lost())
            }
        }
    }
}

/// `store` behind a bad line. All of its handles share the coins.
pub fn unreliable(store: Arc<dyn Store>, coins: &Coins) -> Arc<dyn Store> {
    Arc::new(Wired::new(store, Arc::new(coins.clone())))
}
