//! Helpers for users' own tests (feature `testing`): a store on a clock that the test moves, tasks that run when the
//! test says so, instances that die on command, and answers that get lost.
//!
//! What runs here are the real claims, tasks and finishes; only the waiting is the test's. Never in production: a
//! movable clock lets a test lie about time.
//!
//! This room does not know: how a host schedules its work, threads, or any store but the one it is given. It has no
//! second meaning of any verb: the memory store is the model itself.

mod dead;
mod faults;
mod hapax;

pub use dead::DeadInstance;
pub use faults::{Fault, FaultyStore};
pub use hapax::TestHapax;

pub use crate::clock::Clock;
