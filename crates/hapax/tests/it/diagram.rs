//! The state diagram of the docs is printed from the law's table.

use std::path::Path;

#[test]
fn schema_of_job_states() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/job-states.md");
    let page = format!(
        "# The states of a job\n\nPrinted from the table in `crates/hapax/src/model/job.rs`; rewritten by \
         `cargo xtask schema`.\n\n```mermaid\n{}```\n",
        hapax::model::state_diagram()
    );
    if std::env::var_os("HAPAX_BLESS").is_some() {
        std::fs::write(&file, &page).expect("written");
    }
    let kept = std::fs::read_to_string(&file).expect("docs/job-states.md is there");
    assert!(kept == page, "docs/job-states.md is not what the table says; look at it and run `cargo xtask schema`");
}
