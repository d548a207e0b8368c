//! The PostgreSQL store, beyond the conformance suite.

mod commits;
mod effects;
mod freezes;
mod held;
mod opening;
mod outages;
mod pgbouncer;
pub(crate) mod place;
mod shop;
mod stress;
mod suite;
