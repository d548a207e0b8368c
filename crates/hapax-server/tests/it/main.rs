//! The one integration-test binary of the program: each test runs the built `hapax`, as a script would.

mod bad_input;
mod cli;
mod demo;
mod help;
mod job;
mod lines;
mod queue;
mod store;
mod terminal;
