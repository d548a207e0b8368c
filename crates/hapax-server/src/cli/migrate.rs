//! `hapax migrate`: brings a store's schema to this program's version.

use clap::Args;
use serde_json::json;

use super::Global;
use crate::exit::{Answer, Exit};
use crate::output;

/// Brings the store's schema to this program's version
///
/// A PostgreSQL database needs it before anything else, and again when a new program says so; the role must be allowed
/// to create a schema, the roles of all other verbs need not. An SQLite file migrates itself whenever it is opened, so
/// there it only chooses the moment. Many may do it at once. A newer schema is never touched.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hapax migrate\n  hapax migrate --store postgres://owner@db/shop\n  \
                  hapax migrate --check || echo 'there is something to do'")]
pub(crate) struct Migrate {
    /// Changes nothing: exit code 1 when there is something to do
    #[arg(long)]
    check: bool,
}

impl Migrate {
    /// Does it.
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        let (place, output) = (global.place()?, global.output());
        let before = place.schema().await?;
        let after = if self.check || !before.is_behind() { before.found } else { place.migrate().await?.found };
        if output.is_json() {
            let behind = after.is_none_or(|after| after < before.known);
            output::json(&json!({ "before": before.found, "after": after, "known": before.known, "behind": behind }))?;
        } else {
            output::data(&told(self.check, (before.found, after), before.known))?;
        }
        Ok(if self.check && before.is_behind() { Exit::No } else { Exit::Ok })
    }
}

fn told(check: bool, (before, after): (Option<u32>, Option<u32>), known: u32) -> String {
    match (before, after) {
        (None, None) => format!("there is no store yet; this program would make it with schema {known}"),
        (None, Some(after)) => format!("made with schema {after}"),
        (Some(before), _) if check && before < known => format!("schema {before}; this program would make it {known}"),
        (Some(before), Some(after)) if before != after => format!("schema {before} is {after} now"),
        (Some(before), _) => format!("schema {before}, nothing to do"),
    }
}

#[cfg(test)]
mod tests {
    use super::told;

    #[test]
    fn every_way_is_said() {
        assert!(told(true, (None, None), 2).contains("no store yet"));
        assert_eq!(told(false, (None, Some(2)), 2), "made with schema 2");
        assert_eq!(told(true, (Some(1), Some(1)), 2), "schema 1; this program would make it 2");
        assert_eq!(told(false, (Some(1), Some(2)), 2), "schema 1 is 2 now");
        assert_eq!(told(false, (Some(3), Some(3)), 2), "schema 3, nothing to do");
    }
}
