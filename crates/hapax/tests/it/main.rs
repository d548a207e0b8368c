//! The one integration-test binary of the library.

mod client;
mod host;
#[cfg(feature = "sqlite")]
mod sqlite;
