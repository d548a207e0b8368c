//! Tests that need a store: one binary.

#[cfg(feature = "sqlite")]
mod sqlite;
