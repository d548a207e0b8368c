//! The PostgreSQL store, beyond the conformance suite.

pub(crate) mod place;
mod statements;
mod suite;
