//! One test binary for everything that needs more than its own file.

mod host;
