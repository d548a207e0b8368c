//! The one integration-test binary of the library: the conformance suite on every store, and what each room adds.

mod client;
mod diagram;
mod enrolment;
#[cfg(feature = "sqlite")]
mod examples;
mod host;
#[cfg(feature = "sqlite")]
mod kills;
mod memory;
#[cfg(feature = "postgres")]
mod postgres;
mod reach;
#[cfg(feature = "sqlite")]
mod sqlite;
mod wrong_stores;
