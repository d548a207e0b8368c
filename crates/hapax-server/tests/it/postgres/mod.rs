//! The program on PostgreSQL, with a schema of its own for each test.

mod doctor;
mod exec;
mod hosts;
pub(crate) mod place;
mod verbs;
