//! A schema of a test's own in the server that the tests share.

use std::path::Path;

use hapax::store::postgres::PostgresStore;
use sqlx::{Connection, Executor, PgConnection};
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
}

impl Place {
    /// A fresh schema with the tables in it.
    pub(crate) async fn new() -> Self {
        Self::at(&server()).await
    }

    /// As [`new`](Self::new), by way of another address of the same server.
    pub(crate) async fn at(server: &str) -> Self {
        let schema = format!("hapax_test_{}", Uuid::now_v7().simple());
        let separator = if server.contains('?') { '&' } else { '?' };
        let place = Self { url: format!("{server}{separator}schema={schema}"), schema };
        PostgresStore::options().migrate(&place.url).await.expect("the tables can be made");
        place
    }

    /// Makes it as it was when it was new.
    pub(crate) async fn empty(&self) {
        let tables = "delete from jobs; delete from runs; delete from keys; delete from duplicates; delete from locks; \
                      delete from instances; delete from pauses; delete from refusals; delete from counters; \
                      alter sequence fences restart";
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

impl Drop for Place {
    fn drop(&mut self) {
        let text = format!("drop schema if exists {} cascade", self.schema);
        // On a runtime of its own: that of the test may be ending.
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let mut connection = PgConnection::connect(&server()).await.expect("the server answers");
                connection.execute("set lock_timeout = '10s'").await.expect("it is a setting");
                connection.execute(sqlx::AssertSqlSafe(text)).await.expect("the schema can be dropped");
            });
        };
        let dropped = std::thread::spawn(work).join();
        if !std::thread::panicking() {
            dropped.expect("the schema was dropped");
        }
    }
}
