//! `hapax version`: which program this is.

use clap::Args;
use hapax::SchemaVersion;
use serde_json::json;

use super::Global;
use crate::exit::{Answer, Exit};
use crate::output;

/// Prints the version of the program, and of the schema that it knows
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hapax version\n  hapax version -o json | jq -r .version")]
pub(crate) struct Version {}

impl Version {
    /// Prints it. It opens no store: that is `migrate`'s.
    pub(crate) fn print(global: &Global) -> Answer {
        let output = global.output();
        let version = env!("CARGO_PKG_VERSION");
        if output.is_json() {
            let schema = json!({ "sqlite": SchemaVersion::SQLITE, "postgres": SchemaVersion::POSTGRES });
            output::json(&json!({ "version": version, "schema": schema }))?;
        } else {
            let (sqlite, postgres) = (SchemaVersion::SQLITE, SchemaVersion::POSTGRES);
            output::data(&format!("hapax {version} (schemas: SQLite {sqlite}, PostgreSQL {postgres})"))?;
        }
        Ok(Exit::Ok)
    }
}
