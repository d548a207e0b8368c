//! One test binary: the conformance suite on every store, and what only one store has.

mod enrolment;
mod memory;
mod reach;
mod wrong_stores;
