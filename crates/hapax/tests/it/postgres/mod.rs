//! The PostgreSQL store, beyond the conformance suite.

mod clients;
mod commits;
mod differential;
mod effects;
mod freezes;
mod functions;
mod held;
mod hints;
mod opening;
mod outages;
mod pgbouncer;
pub(crate) mod place;
mod rights;
mod schema;
mod shop;
mod statements;
mod stress;
mod suite;
