//! The one integration-test binary of the library.

mod client;
mod sqlite;
