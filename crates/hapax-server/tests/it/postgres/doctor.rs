//! `hapax doctor` on a server: rights, sessions that stand still, and what the server was told.

use serde_json::Value;
use sqlx::{Connection, Executor, PgConnection};

use super::place::{Place, options, server, sql};
use crate::cli::{Ran, ran};

/// A role of a test's own that goes when it is dropped.
struct Role<'p> {
    place: &'p Place,
    name: String,
}

impl<'p> Role<'p> {
    fn new(place: &'p Place) -> Self {
        let name = place.schema.replace("hapax_test", "hapax_role");
        sql(&format!("create role {name} login"));
        Self { place, name }
    }

    fn url(&self) -> String {
        let server = server();
        let (_, rest) = server.split_once('@').expect("it names a user");
        self.place.at(&format!("postgres://{}@{rest}", self.name))
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        ran(self.place.command_at(&self.url(), arguments), "")
    }
}

impl Drop for Role<'_> {
    fn drop(&mut self) {
        let text = format!("drop owned by {0}; drop role {0}", self.name);
        // While the test fails, a second panic would hide why.
        let _ = std::thread::spawn(move || sql(&text)).join();
    }
}

fn setting<'v>(report: &'v Value, name: &str) -> &'v Value {
    let settings = report["health"]["settings"].as_array().expect("settings");
    settings.iter().find(|setting| setting["name"] == name).unwrap_or_else(|| panic!("{name}: {report}"))
}

#[test]
fn it_shows_the_server_its_settings_and_its_clock() {
    let place = Place::new();
    let text = place.run(&["doctor"]);
    for part in ["PostgreSQL", "every host that reaches the store", "synchronous_commit", "pooler", "clock_offset_ms"] {
        assert!(text.out.contains(part), "{part}: {text:?}");
    }
    let ran = place.run(&["doctor", "-o", "json"]);
    let report = ran.json();
    assert_eq!(report["health"]["scope"], "fleet");
    assert_eq!(setting(&report, "rights")["value"], "complete");
    let offset: i64 = setting(&report, "clock_offset_ms")["value"].as_str().expect("text").parse().expect("a number");
    assert!(offset.abs() < 5_000, "both are on this machine: {offset}");
}

#[test]
fn missing_rights_are_named_with_the_statement_that_grants_them() {
    let place = Place::new();
    let role = Role::new(&place);
    let refused = role.run(&["doctor"]);
    assert!(refused.code == 78 && refused.err.contains("grant usage on schema"), "{refused:?}");
    let Place { schema, .. } = &place;
    let name = &role.name;
    sql(&format!("grant usage on schema {schema} to {name}; grant select on all tables in schema {schema} to {name}"));
    let some = role.run(&["doctor", "-o", "json"]);
    assert_eq!(some.code, 1, "{some:?}");
    let report = some.json();
    let rights = setting(&report, "rights");
    assert!(rights["verdict"] == "broken" && rights["value"].as_str().is_some_and(|v| v.contains("jobs")), "{rights}");
    let push = role.run(&["job", "push", "k"]);
    assert_eq!(push.code, 78, "{push:?}");
    let advice = rights["note"].as_str().expect("a note");
    sql(advice.split_once("run: ").expect("it says what to run").1);
    let all = role.run(&["doctor", "-o", "json"]).json();
    assert_eq!(setting(&all, "rights")["value"], "complete");
    let push = role.run(&["job", "push", "k"]);
    assert_eq!(push.code, 0, "what the note says is enough: {push:?}");
}

#[test]
fn a_transaction_that_was_left_open_is_named() {
    let place = Place::new();
    let role = Role::new(&place);
    let (schema, name) = (&place.schema, &role.name);
    // What the server says of its sessions, five minutes older than it is: nobody waits for a minute to pass.
    sql(&format!(
        "create view {schema}.pg_stat_activity as select pid, usename, datname, application_name, state, xact_start, \
         state_change - interval '5 minutes' as state_change from pg_catalog.pg_stat_activity; \
         grant usage on schema {schema} to {name}; \
         grant select, insert, update, delete on all tables in schema {schema} to {name}; \
         grant usage, select, update on all sequences in schema {schema} to {name}; \
         alter role {name} set search_path = {schema}, pg_catalog"
    ));
    let quiet = role.run(&["doctor", "-o", "json"]).json();
    assert_eq!(setting(&quiet, "idle_in_transaction")["value"], "none");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let connecting = options(&role.url()).application_name("the shop");
    let session = runtime.block_on(async {
        let mut session = PgConnection::connect_with(&connecting).await.expect("it lets us in");
        session.execute("begin; select 1").await.expect("begun");
        session
    });
    let found = role.run(&["doctor", "-o", "json"]).json();
    let found = setting(&found, "idle_in_transaction");
    assert_eq!(found["verdict"], "weak");
    assert!(found["value"].as_str().is_some_and(|value| value.contains("the shop")), "{found}");
    assert!(found["note"].as_str().is_some_and(|note| note.contains("after_release")), "{found}");
    runtime.block_on(session.close()).expect("closed");
}
