//! The verbs that ask a store and change it.

use super::place::{Place, by_way_of, server};
use crate::cli::ran;

#[test]
fn migrate_makes_the_tables_and_every_other_verb_asks_for_it() {
    let place = Place::empty();
    for verb in [
        &["job", "push", "k"][..],
        &["job", "list"],
        &["queue", "list"],
        &["worker", "list"],
        &["lock", "list"],
        &["once", "list"],
        &["doctor"],
        &["exec", "--lock", "L", "--", "true"],
    ] {
        let early = place.run(verb);
        assert!(early.code == 78 && early.err.contains("hapax migrate"), "{verb:?}: {early:?}");
    }
    assert_eq!(place.run(&["migrate", "--check"]).code, 1, "there is something to do");
    assert_eq!(place.run(&["job", "list"]).code, 78, "a check makes nothing");
    let first = place.json(&["migrate"]);
    assert!(first["before"].is_null() && first["after"].as_u64() >= Some(1), "{first}");
    assert!(place.text(&["migrate"]).contains("nothing to do"));
    assert_eq!(place.run(&["migrate", "--check"]).code, 0);
    assert_eq!(place.json(&["job", "list"])["jobs"], serde_json::json!([]));
}

#[test]
fn a_server_that_is_away_or_lets_nobody_in_is_69_and_no_password_is_shown() {
    let place = Place::empty();
    let secret = |address: &str, database: &str, user: &str| {
        let url = by_way_of(&server(), address);
        let (_, rest) = url.split_once('@').expect("it names a user");
        let (at, _) = rest.rsplit_once('/').expect("it names a database");
        format!("postgres://{user}:se%63ret-word@{at}/{database}?schema={}", place.schema)
    };
    let known = super::place::options(&server());
    let there = format!("{}:{}", known.get_host(), known.get_port());
    // Nobody listens on port 1.
    let (closed, unknown) = (secret("127.0.0.1:1", "postgres", "postgres"), secret(&there, "no_such_db", "postgres"));
    for url in [closed, unknown, secret(&there, "postgres", "hapax_no_such_role")] {
        for verb in [
            &["job", "push", "k"][..],
            &["queue", "list"],
            &["migrate"],
            &["migrate", "--check"],
            &["doctor"],
            &["exec", "--once-per", "day", "--key", "k", "--", "sh", "-c", "echo ran"],
        ] {
            let away = ran(place.command_at(&url, verb), "");
            assert_eq!((away.code, away.out.as_str()), (69, ""), "{url} {verb:?}: {away:?}");
            assert!(!away.err.contains("secret") && !away.err.contains("se%63ret"), "{away:?}");
        }
    }
    let unread = ran(place.command_at("postgres://me:secret-word@db:notaport/x", &["job", "list"]), "");
    assert!(unread.code == 2 && unread.err.contains("store URL") && !unread.err.contains("secret"), "{unread:?}");
    let other = ran(place.command_at("mysql://me:secret-word@db/x", &["job", "list"]), "");
    assert!(other.code == 2 && other.err.contains("postgres://") && !other.err.contains("secret"), "{other:?}");
}

#[test]
fn jobs_queues_and_workers() {
    let place = Place::new();
    let push = |more: &[&str]| place.text(&[&["job", "push", "send-mail", r#"{"to":7}"#], more].concat());
    let id = push(&["--once", "mail-7"]).trim().to_owned();
    assert_eq!(push(&["--once", "mail-7"]).trim(), id, "the same work is there already");
    let other = place.run(&["job", "push", "send-mail", r#"{"to":8}"#, "--once", "mail-7"]);
    assert_eq!(other.code, 4, "{other:?}");
    let job = &place.json(&["job", "get", &id])["job"];
    assert_eq!((&job["kind"], &job["state"]), (&"send-mail".into(), &"ready".into()), "{job}");
    assert!(place.text(&["job", "list"]).contains("send-mail"));
    assert!(place.text(&["queue", "list"]).contains("default"));
    place.text(&["queue", "pause", "default", "--reason", "by hand"]);
    place.text(&["queue", "resume", "default"]);
    place.text(&["job", "park", &id, "--reason", "by hand"]);
    place.text(&["job", "retry", &id]);
    place.text(&["job", "cancel", &id]);
    assert_eq!(place.json(&["job", "get", &id])["job"]["state"], "cancelled");
    assert_eq!(place.run(&["job", "get", "01981111-1111-7111-8111-111111111111"]).code, 3);
    place.text(&["worker", "list"]);
}

#[test]
fn locks_and_once_keys() {
    let place = Place::new();
    let script = "cat > /dev/null; $HAPAX lock show L; $HAPAX once list";
    let options = ["exec", "--once-per", "day", "--key", "k", "--lock", "L", "--", "sh", "-c", script];
    let mut command = place.command(&options);
    command.env("HAPAX", crate::cli::HAPAX).env("PATH", "/usr/bin:/bin");
    let inside = ran(command, "");
    assert_eq!(inside.code, 0, "{inside:?}");
    assert!(inside.out.contains("held"), "{inside:?}");
    assert!(place.text(&["once", "show", "k"]).contains("done"));
    let again = place.run(&["exec", "--once-per", "day", "--key", "k", "--", "sh", "-c", "echo again"]);
    assert_eq!((again.code, again.out.as_str()), (0, ""), "{again:?}");
    let period = place.text(&["once", "list"]);
    let day = period.split_whitespace().find(|word| word.starts_with("20") && word.len() == 10).expect("a day");
    place.text(&["once", "forget", "k", day]);
    let anew = place.run(&["exec", "--once-per", "day", "--key", "k", "--", "sh", "-c", "echo anew"]);
    assert_eq!((anew.code, anew.out.as_str()), (0, "anew\n"), "{anew:?}");
}
