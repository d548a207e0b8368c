//! The one integration-test binary of the library.

mod client;
#[cfg(feature = "sqlite")]
mod sqlite;
