//! The PostgreSQL store, beyond the conformance suite.

mod differential;
mod functions;
pub(crate) mod place;
mod statements;
mod suite;
