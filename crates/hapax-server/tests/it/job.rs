//! `hapax job`: from the enqueue to a person's decision.

use hapax::model::{ClaimRequest, End, Finish, NewInstance, RunOutcome, RunRef};
use hapax::{ClaimId, Hapax, InstanceId, Name};
use serde_json::json;

use crate::cli::Cli;

const NOBODY: &str = "01980d6e-3c5a-7cc0-8d3e-5f2b6a1c9e01";

/// Claims the only ready job as an instance would, and ends its run like this.
#[tokio::main(flavor = "current_thread")]
async fn run_once(cli: &Cli, kind: &str, end: End) {
    let hapax = Hapax::connect(&cli.url()).await.expect("the store opens");
    let store = hapax.store();
    let (instance, queue) = (InstanceId::new(), Name::new("queue", "default").expect("legal"));
    let kind = Name::new("kind", kind).expect("legal");
    let new = NewInstance {
        id: instance,
        name: Name::new("name", "test").expect("legal"),
        version: "1".to_owned(),
        queues: vec![queue.clone()],
        kinds: vec![kind.clone()],
        lease_ms: 60_000,
    };
    store.register(new).await.expect("registered");
    let claim =
        ClaimRequest { instance, claim: ClaimId::new(), queues: vec![(queue, 1)], kinds: vec![kind], suspect: false };
    let jobs = store.claim(claim).await.expect("claimed").jobs;
    let job = jobs.first().expect("a ready job");
    let run = RunRef { job: job.id, fence: job.fence.expect("a claimed job has a fence") };
    let ended = store.finish(vec![Finish { run, end: end.clone() }]).await.expect("finished");
    assert!(ended[0].counted(), "{ended:?}");
    // The same again is a late write.
    let late = store.finish(vec![Finish { run, end }]).await.expect("answered");
    assert!(!late[0].counted(), "{late:?}");
    store.leave(instance).await.expect("left");
    hapax.close().await;
}

fn unknown() -> End {
    End::Again { outcome: RunOutcome::Unknown, delay_ms: 0, detail: "no answer".to_owned() }
}

#[test]
fn push_prints_the_id_and_get_shows_the_job() {
    let cli = Cli::new();
    let id = cli.push(&["send-mail", r#"{"to": 7}"#, "--queue", "mail", "--once", "mail-7", "--priority", "-3"]);
    assert_eq!(id.len(), 36, "{id}");
    let text = cli.text(&["job", "get", &id]);
    for part in [&id, "state        ready", "send-mail", "mail", r#"{"to": 7}"#, "mail-7 held", "priority     -3"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let got = cli.json(&["job", "get", &id]);
    assert_eq!(got["job"]["id"], json!(id));
    assert_eq!(got["job"]["payload"], json!({ "to": 7 }), "JSON in JSON, not text in JSON");
    assert_eq!(got["job"]["once_key"], "mail-7");
    assert_eq!(got["key"]["state"], "held");
    assert!(got["job"]["enqueued_at"].as_str().expect("text").ends_with('Z'), "RFC 3339 in UTC");
}

#[test]
fn every_option_of_push_reaches_the_job() {
    let cli = Cli::new();
    let mut arguments = vec!["report", "[1]", "--in", "1h30m", "--attempts", "3", "--timeout", "90s"];
    arguments.extend([
        "--guarantee",
        "at-most-once",
        "--keep",
        "2d",
        "--keep-key",
        "1w",
        "--once",
        "r",
        "--id",
        NOBODY,
    ]);
    assert_eq!(cli.push(&arguments), NOBODY);
    assert_eq!(cli.push(&arguments), NOBODY, "the same id again is the same call again");
    let job = cli.json(&["job", "get", NOBODY])["job"].clone();
    assert_eq!(job["state"], "scheduled");
    assert_eq!(job["retry"]["max_attempts"], 3);
    assert_eq!(job["run_timeout_ms"], 90_000);
    assert_eq!(job["guarantee"], "at_most_once");
    assert_eq!(job["keep_ms"], 2 * 86_400_000_u64);
    assert_eq!(job["keep_key_ms"], 7 * 86_400_000_u64);
    let due: jiff::Timestamp = job["due_at"].as_str().expect("text").parse().expect("RFC 3339");
    let enqueued: jiff::Timestamp = job["enqueued_at"].as_str().expect("text").parse().expect("RFC 3339");
    assert_eq!(due.duration_since(enqueued).as_secs(), 5_400);
    let at = cli.push(&["report", "--at", "2100-01-01T01:00:00+01:00"]);
    assert_eq!(cli.json(&["job", "get", &at])["job"]["due_at"], "2100-01-01T00:00:00.000000Z");
}

#[test]
fn a_known_key_is_said_and_is_no_failure() {
    let cli = Cli::new();
    let first = cli.json(&["job", "push", "ship", "{}", "--once", "o-1"]);
    assert_eq!(first["existed"], false);
    let again = cli.json(&["job", "push", "ship", "{}", "--once", "o-1"]);
    assert_eq!((&again["existed"], &again["id"]), (&json!(true), &first["id"]));
    let text = cli.run(&["job", "push", "ship", "{}", "--once", "o-1"]);
    assert_eq!((text.code, text.out.trim()), (0, first["id"].as_str().expect("text")));
    assert!(text.err.contains("existed") && text.err.contains("o-1"), "{text:?}");
    let other = cli.run(&["job", "push", "ship", r#"{"other":1}"#, "--once", "o-1"]);
    assert_eq!(other.code, 4, "the same key for other work: {other:?}");
    assert!(other.err.contains("o-1") && other.err.contains("mend:"), "{other:?}");
}

#[test]
fn payloads_come_from_stdin_and_files_without_their_line_end() {
    let cli = Cli::new();
    std::fs::write(cli.folder().join("p.json"), "{\"n\":1}\r\n").expect("written");
    let direct = cli.push(&["k", "{\"n\":1}", "--once", "1"]);
    let file = cli.run(&["job", "push", "k", "@p.json", "--once", "1"]);
    assert_eq!(file.out.trim(), direct, "the same work however it came: {file:?}");
    let stdin = cli.run_with(&["job", "push", "k", "-", "--once", "1"], "{\"n\":1}\n");
    assert_eq!(stdin.out.trim(), direct, "{stdin:?}");
    let none = cli.push(&["k"]);
    assert_eq!(cli.json(&["job", "get", &none])["job"]["payload"], json!({}));
    let negative = cli.push(&["k", "-5"]);
    assert_eq!(cli.json(&["job", "get", &negative])["job"]["payload"], json!(-5));
}

#[test]
fn list_filters_pages_and_says_how_to_go_on() {
    let cli = Cli::new();
    let empty = cli.run(&["job", "list"]);
    assert_eq!((empty.code, empty.out.as_str()), (0, ""), "{empty:?}");
    assert!(empty.err.contains("no jobs yet"), "{empty:?}");
    let ids: Vec<String> = (0..5).map(|n| cli.push(&["k", &n.to_string(), "--queue", "q"])).collect();
    cli.push(&["other", "--in", "1h"]);
    let page = cli.json(&["job", "list", "--queue", "q", "--limit", "2"]);
    let found: Vec<&str> = page["jobs"].as_array().expect("jobs").iter().filter_map(|j| j["id"].as_str()).collect();
    assert_eq!(found, [ids[4].as_str(), ids[3].as_str()], "newest first");
    assert_eq!(page["next_before"], json!(ids[3]));
    let text = cli.run(&["job", "list", "--queue", "q", "--limit", "2"]);
    assert!(text.err.contains(&format!("--before {}", ids[3])), "{text:?}");
    let rest = cli.json(&["job", "list", "--queue", "q", "--before", &ids[3]]);
    assert_eq!((rest["jobs"].as_array().map(Vec::len), &rest["next_before"]), (Some(3), &json!(null)));
    let scheduled = cli.json(&["job", "list", "--state", "scheduled", "--kind", "other"]);
    assert_eq!(scheduled["jobs"].as_array().map(Vec::len), Some(1));
    let none = cli.run(&["job", "list", "--state", "in-doubt"]);
    assert!(none.code == 0 && none.err.contains("no such jobs"), "{none:?}");
    let iso = cli.text(&["job", "list", "--kind", "other", "--time", "iso"]);
    assert!(iso.contains("Z ") && !iso.contains("now"), "{iso}");
    let text = cli.text(&["job", "list", "--kind", "other"]);
    assert!(text.contains("in 1h") || text.contains("in 59m"), "{text}");
}

#[test]
fn decisions_are_taken_and_reported_one_by_one() {
    let cli = Cli::new();
    let (a, b) = (cli.push(&["k"]), cli.push(&["k"]));
    let parked = cli.json(&["job", "park", &a, "--reason", "ask first"]);
    assert_eq!(parked["jobs"], json!([{ "id": a, "ok": true, "state": "parked" }]));
    assert!(cli.text(&["job", "get", &a]).contains("ask first"));
    assert_eq!(cli.text(&["job", "retry", &a]), format!("{a}  ready\n"));
    let both = cli.run(&["job", "cancel", &a, NOBODY, &b, "--reason", "not wanted"]);
    assert_eq!(both.code, 3, "the highest code: {both:?}");
    assert_eq!(both.out, format!("{a}  cancelled\n{b}  cancelled\n"), "one that is unknown keeps nobody back");
    assert!(both.err.contains(NOBODY), "{both:?}");
    let again = cli.run(&["job", "park", &a, NOBODY, "-o", "json"]);
    assert_eq!(again.code, 4, "{again:?}");
    let report = again.json();
    assert_eq!([&report["jobs"][0]["error"]["exit"], &report["jobs"][1]["error"]["exit"]], [&json!(4), &json!(3)]);
}

#[test]
fn a_job_in_doubt_waits_for_the_one_who_looked() {
    let cli = Cli::new();
    let ids: Vec<String> = ["done", "not-done", "retry"]
        .iter()
        .map(|found| {
            let id = cli.push(&["pay", "{}", "--guarantee", "at_most_once", "--once", found]);
            run_once(&cli, "pay", unknown());
            assert_eq!(cli.json(&["job", "get", &id])["job"]["state"], "in_doubt");
            assert_eq!(cli.run(&["job", "retry", &id]).code, 4, "nobody repeats it by accident");
            assert_eq!(cli.run(&["job", "resolve", &id, found]).code, 0);
            id
        })
        .collect();
    let state = |id: &str| cli.json(&["job", "get", id])["job"]["state"].clone();
    assert_eq!([state(&ids[0]), state(&ids[1]), state(&ids[2])], ["done", "cancelled", "ready"].map(|s| json!(s)));
    assert_eq!(cli.run(&["job", "resolve", &ids[0], "retry"]).code, 4, "it is not in doubt any more");
}

#[test]
fn runs_and_refused_writes_are_shown_with_the_job() {
    let cli = Cli::new();
    let id = cli.push(&["flaky", "{}", "--attempts", "1"]);
    let failed = End::Again { outcome: RunOutcome::Failed, delay_ms: 0, detail: "503\u{1b}[2J".to_owned() };
    run_once(&cli, "flaky", failed);
    let got = cli.json(&["job", "get", &id]);
    assert_eq!(got["job"]["state"], "parked");
    assert_eq!(got["runs"][0]["outcome"], "failed");
    assert_eq!(got["refused_writes"][0]["verb"], "finish");
    assert!(got["refused_writes"][0]["fence"].is_string(), "fences are text: readers of JSON lose digits");
    let text = cli.text(&["job", "get", &id]);
    assert!(text.contains("Late writes refused: 1"), "{text}");
    assert!(text.contains("503\\u{1b}[2J") && !text.contains('\u{1b}'), "an error cannot steer a terminal: {text}");
}

#[test]
fn an_unknown_job_is_not_found() {
    let cli = Cli::new();
    cli.push(&["k"]);
    let got = cli.run(&["job", "get", NOBODY]);
    assert_eq!((got.code, got.out.as_str()), (3, ""));
    assert!(got.err.contains(NOBODY) && got.err.contains("mend:"), "{got:?}");
    let json = cli.run(&["job", "get", NOBODY, "-o", "json"]);
    let error: serde_json::Value = serde_json::from_str(&json.err).expect("errors are JSON too when that was asked");
    assert_eq!(error["error"]["exit"], 3);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let cli = Cli::new();
    cli.push(&["k"]);
    let mut command = crate::cli::bare(cli.folder());
    command.env("HAPAX_STORE_URL", cli.url()).args(["job", "list"]);
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}
