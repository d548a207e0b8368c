//! A schema of a test's own in the server that the tests share.

use std::path::Path;

use hapax::store::postgres::PostgresStore;
use sqlx::{Connection, Executor, PgConnection, PgPool, Row};
use uuid::Uuid;

/// The server: from the environment, else as `cargo xtask services up` left it.
pub(crate) fn server() -> String {
    service("HAPAX_TEST_POSTGRES_URL")
}

/// A value that the services left.
pub(crate) fn service(name: &str) -> String {
    if let Ok(value) = std::env::var(name) {
        return value;
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/services/env");
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("{name} is not set; run `cargo xtask services up`")).to_owned()
}

/// A schema that goes when it is dropped.
pub(crate) struct Place {
    pub(crate) schema: String,
    pub(crate) url: String,
    pub(crate) is_pooled: bool,
}

impl Place {
    /// A fresh schema with the tables in it.
    pub(crate) async fn new() -> Self {
        match std::env::var("HAPAX_TEST_BEHIND_PGBOUNCER") {
            Ok(_) => Self::behind_a_pooler().await,
            Err(_) => Self::at(&server()).await,
        }
    }

    /// A fresh schema by way of a pooler in transaction mode.
    pub(crate) async fn behind_a_pooler() -> Self {
        let mut place = Self::at(&service("HAPAX_TEST_PGBOUNCER_URL")).await;
        place.is_pooled = true;
        place
    }

    pub(crate) async fn at(server: &str) -> Self {
        let schema = format!("hapax_test_{}", Uuid::now_v7().simple());
        let separator = if server.contains('?') { '&' } else { '?' };
        let url = format!("{server}{separator}schema={schema}");
        let place = Self { url, schema, is_pooled: false };
        PostgresStore::options().migrate(&place.url).await.expect("the tables can be made");
        place
    }

    /// Makes it as it was when it was new.
    pub(crate) async fn empty(&self) {
        let tables = "delete from jobs; delete from runs; delete from keys; delete from duplicates; delete from locks; \
                      delete from instances; delete from pauses; delete from sleepers; delete from refusals; \
                      delete from counters; alter sequence fences restart";
        self.connection().await.execute(sqlx::raw_sql(tables)).await.expect("it can be emptied");
    }

    pub(crate) async fn store(&self) -> PostgresStore {
        PostgresStore::options().open(&self.url).await.expect("it opens")
    }

    /// A connection of the test's own, whose tables are found without a schema.
    pub(crate) async fn connection(&self) -> PgConnection {
        let mut connection = PgConnection::connect(&server()).await.expect("the server answers");
        let text = format!("set search_path = {}, public", self.schema);
        connection.execute(sqlx::AssertSqlSafe(text)).await.expect("the schema is there");
        connection
    }
}

/// A database of a test's own beside the others, that goes when it is dropped.
pub(crate) struct Elsewhere {
    pub(crate) name: String,
    pub(crate) url: String,
}

impl Place {
    /// A fresh database without any tables.
    pub(crate) async fn database() -> Elsewhere {
        let name = format!("hapax_test_{}", Uuid::now_v7().simple());
        admin(&format!("create database {name}")).await;
        let (base, _) =
            server().rsplit_once('/').map(|(base, name)| (base.to_owned(), name.to_owned())).expect("a URL");
        Elsewhere { url: format!("{base}/{name}"), name }
    }
}

impl Elsewhere {
    pub(crate) async fn pool(&self) -> PgPool {
        PgPool::connect(&self.url).await.expect("it answers")
    }

    /// Makes the tables in a schema of it.
    pub(crate) async fn migrate(&self, schema: &str) {
        PostgresStore::options().schema(schema).migrate(&self.url).await.expect("the tables can be made");
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        last(format!("drop database if exists {} with (force)", self.name));
    }
}

/// A role of a test's own, which may do in a schema what a program needs to, and goes when it is dropped.
pub(crate) struct Role {
    pub(crate) name: String,
}

impl Role {
    /// One without any rights.
    pub(crate) async fn new() -> Self {
        let role = Self { name: format!("hapax_test_{}", Uuid::now_v7().simple()) };
        admin(&format!("create role {} login password 'secret'", role.name)).await;
        role
    }

    /// One with the rights of a program in a schema as it is now.
    pub(crate) async fn of(place: &Place) -> Self {
        let (role, schema) = (Self::new().await, &place.schema);
        let name = &role.name;
        admin(&format!(
            "grant usage on schema {schema} to {name};
             grant select, insert, update, delete on all tables in schema {schema} to {name};
             grant usage, select, update on all sequences in schema {schema} to {name}"
        ))
        .await;
        role
    }

    /// A URL as this role.
    pub(crate) fn url(&self, url: &str) -> String {
        let (scheme, rest) = url.split_once("://").expect("a URL");
        let place = rest.split_once('@').map_or(rest, |(_, place)| place);
        format!("{scheme}://{}:secret@{place}", self.name)
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let name = &self.name;
        last(format!("do $$ begin drop owned by {name}; exception when others then null; end $$"));
        last(format!("drop role if exists {name}"));
    }
}

/// Says something to the server as its superuser.
pub(crate) async fn admin(text: &str) {
    let mut connection = PgConnection::connect(&server()).await.expect("the server answers");
    connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(text.to_owned()))).await.expect(text);
}

/// Waits until a statement about the schema waits for a lock.
pub(crate) async fn until_somebody_waits(place: &Place) {
    let mut own = place.connection().await;
    let text = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like $1
                or (wait_event_type = 'Lock' and query like '%pg_advisory_xact_lock%')";
    let like = format!("%{}%", place.schema);
    let waiting = async || {
        let row = sqlx::query(text).bind(&like).fetch_one(&mut own).await.expect("read");
        row.get::<i64, _>(0) > 0
    };
    super::shop::until("somebody waits for a lock", waiting).await;
}

impl Drop for Place {
    fn drop(&mut self) {
        last(format!("drop schema if exists {} cascade", self.schema));
    }
}

/// The last that a test has to say. On a runtime of its own: that of the test may be ending.
fn last(text: String) {
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut connection = PgConnection::connect(&server()).await.expect("the server answers");
            connection.execute("set lock_timeout = '10s'").await.expect("it is a setting");
            connection.execute(sqlx::AssertSqlSafe(text)).await.expect("it can be dropped");
        });
    };
    let dropped = std::thread::spawn(work).join();
    if !std::thread::panicking() {
        dropped.expect("it was dropped");
    }
}
