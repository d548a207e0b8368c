//! The PostgreSQL store, beyond the conformance suite.

mod clients;
mod differential;
mod functions;
mod hints;
pub(crate) mod place;
mod rights;
mod schema;
mod statements;
mod suite;
