//! The one integration-test binary of the program: each test runs the built `hapax`, as a script would.

mod bad_input;
mod cli;
mod demo;
mod exec;
mod exec_watch;
mod help;
mod job;
mod ledger;
mod lines;
mod nightly_backup;
mod postgres;
mod queue;
mod recipes;
mod store;
mod terminal;
