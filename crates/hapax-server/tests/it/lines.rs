//! `hapax job push --lines`: a file of payloads, none of which may be lost in silence.

use serde_json::json;

use crate::cli::Cli;

#[test]
fn each_line_becomes_a_job_and_each_bad_one_is_named() {
    let cli = Cli::new();
    let text = "{\"n\":1}\n\nnot json\n{\"n\":2}\r\n\"last without line end\"";
    let ran = cli.run_with(&["job", "push", "k", "--lines", "-"], text);
    assert_eq!(ran.code, 1, "part of it failed: {ran:?}");
    assert_eq!(ran.out.lines().count(), 3, "one id for each job: {ran:?}");
    assert!(ran.err.contains("line 3: payload not JSON"), "{ran:?}");
    assert!(ran.err.contains("5 lines: 3 enqueued, 0 existed, 1 failed, 1 blank"), "{ran:?}");
    let jobs = cli.json(&["job", "list"]);
    assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(3));
}

#[test]
fn keys_from_the_payload_make_a_file_safe_to_send_again() {
    let cli = Cli::new();
    let lines: Vec<String> = (0..2_345).map(|n| format!("{{\"order\":{{\"id\":{n}}}}}")).collect();
    let text = lines.join("\n");
    std::fs::write(cli.folder().join("orders"), &text).expect("written");
    let push = ["job", "push", "ship", "--lines", "orders", "--once-from", "/order/id"];
    let first = cli.run(&push);
    assert_eq!(first.code, 0, "{}", first.err);
    assert!(first.err.contains("2345 lines: 2345 enqueued, 0 existed, 0 failed"), "{}", first.err);
    let again = cli.run(&push);
    assert!(again.err.contains("2345 lines: 0 enqueued, 2345 existed, 0 failed"), "{}", again.err);
    assert_eq!(first.out, again.out, "the ids of those who stand for the work, in the order of the lines");
    let ids: std::collections::BTreeSet<&str> = first.out.lines().collect();
    assert_eq!(ids.len(), 2_345);
}

#[test]
fn the_json_form_has_an_object_for_each_line_and_a_summary() {
    let cli = Cli::new();
    let text = "{\"id\":\"a\"}\n{\"id\":1.5}\n{}\n{\"id\":\"a\"}\n{\"id\":\"a\",\"more\":1}\n";
    let ran = cli.run_with(&["job", "push", "k", "--lines", "-", "--once-from", "/id", "-o", "json"], text);
    assert_eq!(ran.code, 1, "{ran:?}");
    let mut lines = ran.json_lines();
    let summary = lines.pop().expect("the last line");
    assert_eq!(
        summary["summary"],
        json!({ "lines": 5, "enqueued": 1, "existed": 1, "failed": 3, "blank": 0, "complete": true })
    );
    let of = |n: u64| lines.iter().find(|line| line["line"] == json!(n)).expect("every line is answered").clone();
    assert_eq!((of(1)["existed"].clone(), of(4)["existed"].clone()), (json!(false), json!(true)));
    assert_eq!(of(1)["id"], of(4)["id"]);
    assert!(of(2)["error"]["message"].as_str().expect("text").contains("whole number"));
    assert!(of(3)["error"]["message"].as_str().expect("text").contains("not there"));
    assert!(of(5)["error"]["message"].as_str().expect("text").contains("other work"));
}

#[test]
fn lines_over_the_limit_and_not_in_utf8_are_refused_alone() {
    let cli = Cli::new();
    let mut bytes = format!("\"{}\"\n", "x".repeat(1_048_577)).into_bytes();
    bytes.extend(b"\"\xff\"\n\"fine\"\n");
    std::fs::write(cli.folder().join("lines"), bytes).expect("written");
    let ran = cli.run(&["job", "push", "k", "--lines", "lines"]);
    assert_eq!((ran.code, ran.out.lines().count()), (1, 1), "{}", ran.err);
    assert!(ran.err.contains("line 1: payload") && ran.err.contains("over the limit"), "{}", ran.err);
    assert!(ran.err.contains("line 2: payload is not UTF-8"), "{}", ran.err);
}

#[test]
fn what_is_wrong_with_all_lines_enqueues_none() {
    let cli = Cli::new();
    let long = "q".repeat(129);
    let ran = cli.run_with(&["job", "push", "k", "--queue", &long, "--lines", "-"], "1\n2\n");
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("queue") && !cli.file().exists(), "{ran:?}");
    let missing = cli.run(&["job", "push", "k", "--lines", "nowhere"]);
    assert!(missing.code == 2 && missing.err.contains("nowhere"), "{missing:?}");
    for clash in ["--once", "--id"] {
        let ran = cli.run(&["job", "push", "k", "--lines", "-", clash, "01980d6e-3c5a-7cc0-8d3e-5f2b6a1c9e01"]);
        assert_eq!(ran.code, 2, "one key for many lines: {ran:?}");
    }
}
