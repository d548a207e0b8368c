//! What opening a store says when it cannot, and how its tables are made. Nothing that is said holds a password.

use std::time::Duration;

use hapax::store::postgres::{InSchema, PostgresStore};
use hapax::testing::Proxy;
use hapax::{Enqueue, Error, ErrorKind, Hapax, Outcome, SchemaVersion};
use sqlx::{Connection, Executor, PgConnection, Row};

use super::place::{Place, Role, admin, server};
use super::shop::{by_way_of, server_address};

/// What opening says; never what it must not.
async fn said(url: &str) -> Error {
    let error = Hapax::postgres(url).await.map(drop).expect_err(url);
    assert_eq!(error.outcome(), Outcome::DidNotHappen, "{error}");
    for text in [error.to_string(), format!("{error:?}")] {
        assert!(!text.contains("secret"), "{text}");
    }
    error
}

#[track_caller]
fn assert_says(error: &Error, kind: ErrorKind, mend: &str) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(mend), "no word of `{mend}`: {error}");
}

#[tokio::test]
async fn a_wrong_address_is_said_with_its_mend() {
    let at = server_address();
    for url in ["postgres://me:secret@[::1/x", "postgres://me:secret@127.0.0.1:port/x"] {
        assert_says(&said(url).await, ErrorKind::Invalid, "postgres://USER:PASSWORD@HOST:PORT/DATABASE");
    }
    let too_long = format!("postgres://me:secret@{at}/postgres?schema={}", "s".repeat(64));
    assert_says(&said(&too_long).await, ErrorKind::Invalid, "schema");
    // Nobody listens where somebody has just stopped listening.
    let closed = Proxy::plain("127.0.0.1:1").await.expect("a port is free").address();
    assert_says(&said(&format!("postgres://me:secret@{closed}/x")).await, ErrorKind::Unreachable, "connection");
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a port is free");
    assert_says(
        &said(&format!("postgres://me:secret@{free}/x")).await,
        ErrorKind::Unreachable,
        "is the server running",
    );
    let nowhere = "postgres://me:secret@no-such-host.invalid/x";
    assert_says(&said(nowhere).await, ErrorKind::Unreachable, "");
    let role = format!("postgres://hapax_test_nobody:secret@{at}/postgres");
    assert_says(&said(&role).await, ErrorKind::Unreachable, "check user and password");
    let (base, _) = server().rsplit_once('/').map(|(base, name)| (base.to_owned(), name.to_owned())).expect("a URL");
    assert_says(&said(&format!("{base}/hapax_test_nowhere")).await, ErrorKind::Unreachable, "create the database");
    let schema = format!("{}?schema=hapax_test_nothing", server());
    assert_says(&said(&schema).await, ErrorKind::Unusable, "hapax migrate");
}

#[tokio::test]
async fn missing_rights_are_said_with_their_grants() {
    let (place, role) = (Place::new().await, Role::new().await);
    let url = role.url(&place.url);
    assert_says(&said(&url).await, ErrorKind::Unusable, "grant usage on schema");
    admin(&format!("grant usage on schema {} to {}", place.schema, role.name)).await;
    assert_says(&said(&url).await, ErrorKind::Unusable, "grant usage on schema");
    admin(&format!("grant select on all tables in schema {} to {}", place.schema, role.name)).await;
    let hapax = Hapax::postgres(&url).await.expect("may look");
    assert!(hapax.queues().await.expect("may look").is_empty());
    let error = hapax.enqueue(Enqueue::new("k", "null")).await.expect_err("may not write");
    assert_eq!(error.outcome(), Outcome::DidNotHappen);
    assert_says(&error, ErrorKind::Unusable, "grant usage on schema");
    assert!(error.to_string().contains(&format!("in schema {} to", place.schema)), "names the schema: {error}");
    let granted = Role::of(&place).await;
    let hapax = Hapax::postgres(&granted.url(&place.url)).await.expect("opens");
    hapax.enqueue(Enqueue::new("k", "null").once("key")).await.expect("may write");
}

#[tokio::test]
async fn a_newer_schema_is_left_alone() {
    let place = Place::new().await;
    let mut own = place.connection().await;
    // A newer program may work beside this one, for a rolling deploy.
    own.execute("update meta set version = 99").await.expect("written");
    Hapax::postgres(&place.url).await.expect("opens all the same");
    assert_eq!(SchemaVersion::of(&place.url).await.expect("read").found, Some(99));
    own.execute("update meta set min_program = 98").await.expect("written");
    assert_says(&said(&place.url).await, ErrorKind::TooNew, "Update this program");
    for error in [
        Hapax::migrate(&place.url).await.expect_err("not by this program"),
        SchemaVersion::of(&place.url).await.expect_err("not by this program"),
    ] {
        assert_says(&error, ErrorKind::TooNew, "Update this program");
    }
    let mut tx = own.begin().await.expect("begun");
    let error = Enqueue::new("k", "null")
        .enqueue_in(InSchema::new(&mut tx, &place.schema))
        .await
        .expect_err("not by this program");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::TooNew, Outcome::DidNotHappen), "{error}");
    drop(tx);
}

/// Whether the schema of a place is there.
async fn is_there(schema: &str) -> bool {
    let mut own = PgConnection::connect(&server()).await.expect("the server answers");
    let row = sqlx::query("select count(*) from pg_namespace where nspname = $1").bind(schema).fetch_one(&mut own);
    row.await.expect("read").get::<i64, _>(0) == 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_make_the_tables_at_once() {
    let place = Place::new().await;
    admin(&format!("drop schema {} cascade", place.schema)).await;
    let all = (0..8).map(|_| {
        let url = place.url.clone();
        tokio::spawn(async move { Hapax::migrate(&url).await })
    });
    for migrated in all.collect::<Vec<_>>() {
        migrated.await.expect("no panic").expect("one after the other");
    }
    let hapax = Hapax::postgres(&place.url).await.expect("opens");
    hapax.enqueue(Enqueue::new("k", "null")).await.expect("works");
    let rows: i64 = place.connection().await.fetch_one("select count(*) from meta").await.expect("read").get(0);
    assert_eq!(rows, 1);
}

/// Broken off before its commit it leaves nothing, and after its commit everything; another goes on.
#[tokio::test]
async fn making_the_tables_may_be_broken_off() {
    let place = Place::new().await;
    admin(&format!("drop schema {} cascade", place.schema)).await;
    let proxy = Proxy::postgres(server_address()).await.expect("a port is free");
    let url = by_way_of(&place.url, proxy.address());
    proxy.faults().cut_before_commit(1.0);
    let error = Hapax::migrate(&url).await.expect_err("it was cut");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unreachable, Outcome::MayHaveHappened), "{error}");
    assert!(!is_there(&place.schema).await, "nothing was made");
    proxy.faults().mend();
    proxy.faults().cut_answer_to_commit(1.0);
    let error = Hapax::migrate(&url).await.expect_err("it was cut");
    assert_eq!(error.outcome(), Outcome::MayHaveHappened, "{error}");
    assert!(is_there(&place.schema).await, "it was made all the same");
    proxy.faults().mend();
    Hapax::migrate(&url).await.expect("finds it as it should be");
    Hapax::postgres(&url).await.expect("opens");
}

/// No superuser is needed: the right to create schemas, or the right to create tables in one that is there.
#[tokio::test]
async fn a_plain_role_makes_the_tables() {
    // The role goes last, once nothing is left that it owns.
    let (role, elsewhere) = (Role::new().await, Place::database().await);
    let url = role.url(&elsewhere.url);
    let error = Hapax::migrate(&url).await.expect_err("may not create anything");
    assert_says(&error, ErrorKind::Unusable, "");
    assert!(!error.to_string().contains("secret") && error.outcome() == Outcome::DidNotHappen, "{error}");
    admin(&format!("grant create on database {} to {}", elsewhere.name, role.name)).await;
    Hapax::migrate(&url).await.expect("may create schemas");
    Hapax::postgres(&url).await.expect("owns them");
    admin(&format!("revoke create on database {} from {}", elsewhere.name, role.name)).await;
    let mut own = PgConnection::connect(&elsewhere.url).await.expect("it answers");
    let prepared = format!("create schema prepared; grant usage, create on schema prepared to {}", role.name);
    own.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(prepared))).await.expect("prepared");
    let url = format!("{url}?schema=prepared");
    Hapax::migrate(&url).await.expect("may create tables");
    let hapax = Hapax::postgres(&url).await.expect("owns them");
    hapax.enqueue(Enqueue::new("k", "null")).await.expect("works");
    hapax.close().await;
}

/// A server that lets us in and then says nothing: an error in time, not a program that hangs.
#[tokio::test]
async fn a_server_that_says_nothing_is_given_up() {
    let place = Place::new().await;
    let proxy = Proxy::postgres(server_address()).await.expect("a port is free");
    let url = by_way_of(&place.url, proxy.address());
    let store = PostgresStore::options().wait(Duration::from_millis(500)).open(&url).await.expect("opens");
    let hapax = Hapax::with_store(std::sync::Arc::new(store));
    hapax.enqueue(Enqueue::new("k", "null")).await.expect("works");
    proxy.faults().blackhole();
    let error = hapax.enqueue(Enqueue::new("k", "null")).await.expect_err("nobody answers");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unreachable, Outcome::DidNotHappen), "{error}");
    proxy.faults().mend();
    hapax.enqueue(Enqueue::new("k", "null")).await.expect("goes on by itself");
}
