//! `hapax migrate`: brings a store's schema to this program's version.

use clap::Args;
use serde_json::json;

use super::Global;
use crate::exit::{Answer, Exit};
use crate::output;

/// Brings the store's schema to this program's version
///
/// An SQLite file migrates itself whenever it is opened, so this is only needed to do it at a moment of your choice.
/// Newer schemas are never touched.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hapax migrate\n  hapax migrate --check || echo 'a deploy will migrate'")]
pub(crate) struct Migrate {
    /// Changes nothing: exit code 1 when there is something to do
    #[arg(long)]
    check: bool,
}

impl Migrate {
    /// Does it.
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        let place = global.place()?;
        let output = global.output();
        let missing = place.is_missing();
        let hapax = place.open(&output).await?;
        let health = hapax.health().await?;
        let before = if missing { None } else { Some(health.version) };
        if output.is_json() {
            output::json(&json!({ "before": before, "after": health.version, "address": health.address }))?;
        } else {
            output::data(&format!("schema {}", health.version))?;
        }
        Ok(Exit::Ok)
    }
}
