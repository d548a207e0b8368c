//! No case is forgotten: the list of cases is compared with the functions that exist.

use std::collections::BTreeSet;
use std::path::Path;

/// Every `pub async fn NAME(h: &dyn Harness)` in the files of the suite, as `file::NAME`.
fn cases_in_files() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/conformance");
    let mut cases = BTreeSet::new();
    for entry in std::fs::read_dir(&folder).expect("the suite's folder") {
        let path = entry.expect("readable").path();
        let room = path.file_stem().expect("a file").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("readable");
        for line in text.lines() {
            let name = line.strip_prefix("pub async fn ").and_then(|rest| rest.split_once("(h: &dyn Harness) {"));
            if let Some((name, _)) = name {
                cases.insert(format!("{room}::{name}"));
            }
        }
    }
    cases
}

#[test]
fn every_case_is_listed() {
    let listed: BTreeSet<String> = hapax::conformance::CASES.iter().map(|case| (*case).to_owned()).collect();
    assert_eq!(listed, cases_in_files(), "list each case in `conformance!`, in crates/hapax/src/conformance/mod.rs");
    assert_eq!(listed.len(), hapax::conformance::CASES.len(), "no case is listed twice");
}

#[test]
fn names_of_cases_are_unique() {
    let names: Vec<&str> = hapax::conformance::CASES.iter().filter_map(|case| case.split("::").nth(1)).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "tests are called by the name alone");
}
