//! `hapax queue` and `hapax worker`.

use hapax::model::NewInstance;
use hapax::{Hapax, InstanceId, Name};
use serde_json::json;

use crate::cli::Cli;

#[test]
fn queues_are_counted_paused_and_resumed() {
    let cli = Cli::new();
    let empty = cli.run(&["queue", "list"]);
    assert!(empty.code == 0 && empty.out.is_empty() && empty.err.contains("no queues yet"), "{empty:?}");
    cli.push(&["send", "--queue", "mail"]);
    cli.push(&["send", "--queue", "mail", "--in", "1h"]);
    let listed = cli.json(&["queue", "list"]);
    let mail = &listed["queues"][0];
    assert_eq!((&mail["queue"], &mail["pause"]), (&json!("mail"), &json!(null)));
    assert_eq!((&mail["counts"]["ready"], &mail["counts"]["scheduled"]), (&json!(1), &json!(1)));
    assert_eq!(mail["unknown_kinds"], json!(["send"]), "nobody has a task for it");
    let paused = cli.text(&["queue", "pause", "mail", "--reason", "provider down"]);
    assert!(paused.contains("mail is paused: provider down"), "{paused}");
    let text = cli.text(&["queue", "list"]);
    assert!(text.contains("paused now: provider down") && text.contains("no live task for send"), "{text}");
    assert!(text.starts_with("QUEUE"), "{text}");
    assert_eq!(cli.json(&["queue", "list"])["queues"][0]["pause"]["reason"], "provider down");
    assert_eq!(cli.json(&["queue", "resume", "mail"])["paused"], false);
    let again = cli.run(&["queue", "resume", "mail"]);
    assert_eq!(again.code, 4, "there is nothing to resume: {again:?}");
}

#[test]
fn a_pause_needs_its_reason() {
    let cli = Cli::new();
    let without = cli.run(&["queue", "pause", "mail"]);
    assert!(without.code == 2 && without.err.contains("--reason"), "{without:?}");
    let blank = cli.run(&["queue", "pause", "mail", "--reason", "  "]);
    assert!(blank.code == 2 && blank.err.contains("reason is empty"), "{blank:?}");
}

#[tokio::main(flavor = "current_thread")]
async fn register(cli: &Cli, name: &str) -> InstanceId {
    let hapax = Hapax::connect(&cli.url()).await.expect("the store opens");
    let id = InstanceId::new();
    let new = NewInstance {
        id,
        name: Name::new("name", name).expect("legal"),
        version: "9.9".to_owned(),
        queues: vec![Name::new("queue", "mail").expect("legal")],
        kinds: vec![Name::new("kind", "send").expect("legal")],
        lease_ms: 60_000,
    };
    hapax.store().register(new).await.expect("registered");
    hapax.close().await;
    id
}

#[tokio::main(flavor = "current_thread")]
async fn leave(cli: &Cli, id: InstanceId) {
    let hapax = Hapax::connect(&cli.url()).await.expect("the store opens");
    hapax.store().leave(id).await.expect("left");
    hapax.close().await;
}

#[test]
fn instances_are_listed_live_ones_first() {
    let cli = Cli::new();
    let empty = cli.run(&["worker", "list"]);
    assert!(empty.code == 0 && empty.err.contains("no instances"), "{empty:?}");
    let gone = register(&cli, "old-host");
    leave(&cli, gone);
    register(&cli, "new-host");
    let text = cli.text(&["worker", "list"]);
    let rows: Vec<&str> = text.lines().skip(1).collect();
    assert!(rows[0].contains("new-host") && rows[0].contains("live"), "{text}");
    assert!(rows[1].contains("old-host") && rows[1].contains("dead"), "{text}");
    let live = cli.json(&["worker", "list", "--live"]);
    assert_eq!(live["instances"].as_array().map(Vec::len), Some(1));
    assert_eq!(live["instances"][0]["kinds"], json!(["send"]));
    cli.push(&["send", "--queue", "mail"]);
    assert_eq!(cli.json(&["queue", "list"])["queues"][0]["unknown_kinds"], json!([]), "somebody has a task for it");
}
