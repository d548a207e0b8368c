//! What a child tells about its work: lines `name=value` in the file that `HAPAX_REPORT` names.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use hapax::id::{AcquisitionId, kept_text};
use serde_json::Value;

/// Longest report that is read; the rest is not looked at.
const BYTES_MAX: u64 = 65_536;
/// Most names that are kept.
const NAMES_MAX: usize = 64;

/// An empty file of this user's, which goes away with this value.
#[derive(Debug)]
pub(super) struct Report(PathBuf);

impl Report {
    /// A new file in the folder for temporary ones.
    pub(super) fn new() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("hapax-report-{}", AcquisitionId::new()));
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self(path))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// What the child has written so far.
    pub(super) fn read(&self) -> BTreeMap<String, Value> {
        let mut bytes = Vec::new();
        if let Ok(file) = std::fs::File::open(&self.0) {
            // Half a report is better than none.
            let _ = file.take(BYTES_MAX).read_to_end(&mut bytes);
        }
        parse(&String::from_utf8_lossy(&bytes))
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The last value of each name; numbers as numbers.
fn parse(text: &str) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for (name, value) in text.lines().filter_map(|line| line.split_once('=')) {
        let name = name.trim();
        if name.is_empty() || (found.len() >= NAMES_MAX && !found.contains_key(name)) {
            continue;
        }
        let value = value.trim();
        let number = serde_json::from_str::<serde_json::Number>(value).ok().map(Value::Number);
        found.insert(kept_text(name), number.unwrap_or_else(|| Value::String(kept_text(value))));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_counts_and_numbers_are_numbers() {
        let report = parse("rows=1\nprogress=40%\nnonsense\n=x\n rows = 1200 \nnote=a=b\n");
        let expected = serde_json::json!({"rows": 1200, "progress": "40%", "note": "a=b"});
        assert_eq!(serde_json::to_value(report).expect("an object"), expected);
    }

    #[test]
    fn the_file_goes_away() {
        let report = Report::new().expect("a file");
        std::fs::write(report.path(), "rows=7").expect("written");
        let path = report.path().to_owned();
        assert_eq!(report.read()["rows"], 7);
        drop(report);
        assert!(!path.exists());
    }
}
