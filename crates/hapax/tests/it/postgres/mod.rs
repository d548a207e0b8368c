//! The PostgreSQL store, beyond the conformance suite.

mod hints;
pub(crate) mod place;
mod suite;
