//! Every example runs, says what it claims, and ends well. Built by `cargo test` beside this binary.

use std::path::PathBuf;
use std::process::Command;

/// Each program in `examples/`, with a word that it must say.
const EXAMPLES: [(&str, &str); 9] = [
    ("at_most_once", "1 launch"),
    ("effect_once", "2 attempts, 1 row"),
    ("enqueue_in_transaction", "send-receipt waits"),
    ("enqueue_once", "1 duplicate refused"),
    ("keyed_delivery", "booked once"),
    ("lock_with_fence", "two of two permits held"),
    ("once_key", "1 repeat(s) refused"),
    ("supervised_service", "an orderly stop"),
    ("test_your_tasks", "1 late write refused"),
];

#[test]
fn every_example_says_what_it_claims() {
    for (name, word) in EXAMPLES {
        let program = built(name);
        let ran = Command::new(&program).output().unwrap_or_else(|e| {
            panic!("{}: {e}; build it with `cargo build -p hapax --examples --all-features`", program.display())
        });
        let said = String::from_utf8_lossy(&ran.stdout);
        let why = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success() && said.contains(word), "{name} ended with {}: {said}{why}", ran.status);
    }
}

#[test]
fn every_file_in_examples_is_run() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let entries = std::fs::read_dir(&folder).expect("the folder is there");
    let mut files: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".rs").map(str::to_owned))
        .collect();
    files.sort();
    assert_eq!(files, EXAMPLES.map(|(name, _)| name));
}

/// `target/debug/examples/NAME`, from `target/debug/deps/it-…`.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it runs");
    test.parent().and_then(|deps| deps.parent()).expect("tests are built in deps/").join("examples").join(name)
}
