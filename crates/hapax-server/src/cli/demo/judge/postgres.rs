//! In a schema of a PostgreSQL database, which the demo makes and drops.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hapax::host::Finished;
use hapax::store::postgres::PostgresStore;
use hapax::{Hapax, JobError, Run};
use sqlx::{AssertSqlSafe, Executor, PgPool};

use super::{Effect, Effects, Ledger, broken};
use crate::cli::demo::errand::Errand;
use crate::cli::demo::fleet::LEASE;
use crate::exit::Failure;

/// The tables.
const TABLES: &str = "
    create table demo_expected (key text not null);
    create table demo_effects (
        key      text   not null,
        job      text   not null,
        fence    bigint not null,
        instance text   not null,
        process  bigint not null
    )";

/// The statement of an effect.
const EFFECT: &str = "insert into demo_effects (key, job, fence, instance, process) values ($1, $2, $3, $4, $5)";

/// Connections of an instance, and again as many for its effects: three instances leave room on a small server.
const CONNECTIONS: usize = 4;
/// Rows to a statement.
const BATCH: u64 = 1_000;

/// A statement on the tables of this schema.
pub(super) fn in_schema(statement: &str, schema: &str) -> String {
    statement.replace("demo_e", &format!("{schema}.demo_e"))
}

/// By a pool of their own.
#[derive(Debug)]
pub(super) struct Tables {
    pool: PgPool,
    schema: String,
}

impl Tables {
    /// Makes the schema with the store's tables, and those of the demo.
    pub(super) async fn create(url: &str, schema: &str) -> Result<(Hapax, Self), Failure> {
        Hapax::migrate(url).await?;
        let store = PostgresStore::options().open(url).await?;
        let mut tables = Self { pool: store.pool().clone(), schema: schema.to_owned() };
        let made = tables.pool.execute(sqlx::raw_sql(AssertSqlSafe(in_schema(TABLES, schema)))).await;
        if let Err(error) = made {
            tables.clear().await?;
            return Err(broken("the tables of the demo", &error));
        }
        Ok((Hapax::with_store(Arc::new(store)), tables))
    }

    fn text(&self, statement: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(in_schema(statement, &self.schema))
    }
}

#[async_trait]
impl Ledger for Tables {
    async fn expect(&mut self, jobs: u64) -> Result<(), Failure> {
        for from in (0..jobs).step_by(usize::try_from(BATCH).unwrap_or(usize::MAX)) {
            let keys: Vec<String> = (from..jobs.min(from + BATCH)).map(Errand::key_of).collect();
            let insert = sqlx::query(self.text("insert into demo_expected (key) select unnest($1::text[])"));
            let written = insert.bind(keys).execute(&self.pool).await;
            written.map_err(|error| broken("the table of expected keys", &error))?;
        }
        Ok(())
    }

    async fn effect_of(&mut self, key: &str) -> Result<Option<(i64, String)>, Failure> {
        let find = sqlx::query_as(self.text("select fence, instance from demo_effects where key = $1"));
        find.bind(key).fetch_optional(&self.pool).await.map_err(|error| broken("the table of effects", &error))
    }

    /// Who stands still in a transaction here holds up nobody but those who want the very same rows, and the server
    /// ends it soon.
    async fn can_be_written(&mut self, _: Duration) -> Result<bool, Failure> {
        Ok(true)
    }

    async fn count(&mut self, statement: &str) -> Result<u64, Failure> {
        let counted = sqlx::query_scalar(self.text(statement)).fetch_one(&self.pool).await;
        let count: i64 = counted.map_err(|error| broken(statement, &error))?;
        u64::try_from(count).map_err(|error| broken(statement, &error))
    }

    async fn keys(&mut self, statement: &str) -> Result<Vec<String>, Failure> {
        let read = sqlx::query_scalar(self.text(statement)).fetch_all(&self.pool).await;
        read.map_err(|error| broken(statement, &error))
    }

    async fn clear(&mut self) -> Result<(), Failure> {
        let text = format!("set lock_timeout = '30s'; drop schema if exists {} cascade", self.schema);
        let dropped = self.pool.execute(sqlx::raw_sql(AssertSqlSafe(text))).await;
        let what = format!("the schema {} could not be dropped", self.schema);
        dropped.map(drop).map_err(|error| broken(&what, &error))
    }
}

/// Effects of an instance.
#[derive(Debug)]
pub(super) struct InSchema {
    store: PostgresStore,
    effect: String,
}

impl InSchema {
    /// In this schema.
    pub(super) async fn open(url: &str, schema: &str) -> Result<(Hapax, Self), Failure> {
        // The server ends what a frozen instance left open when its lease ends, so that nobody waits for those rows.
        let store = PostgresStore::options().connections(CONNECTIONS).wait(LEASE).open(url).await?;
        let hapax = Hapax::with_store(Arc::new(store.clone()));
        Ok((hapax, Self { store, effect: in_schema(EFFECT, schema) }))
    }

    fn insert(&self, effect: Effect) -> sqlx::query::Query<'_, sqlx::Postgres, sqlx::postgres::PgArguments> {
        sqlx::query(AssertSqlSafe(self.effect.clone()))
            .bind(effect.key)
            .bind(effect.job)
            .bind(effect.fence)
            .bind(effect.instance)
            .bind(i64::from(effect.process))
    }
}

#[async_trait]
impl Effects for InSchema {
    async fn with_finish(&self, run: Run, effect: Effect) -> Result<Finished, JobError> {
        let mut tx = self.store.begin_effect(LEASE).await?;
        self.insert(effect).execute(&mut *tx).await?;
        run.finish_in(tx).await
    }

    async fn careless(&self, run: Run, effect: Effect) -> Result<Finished, JobError> {
        self.insert(effect).execute(self.store.pool()).await?;
        run.finish_in(self.store.begin_effect(LEASE).await?).await
    }
}
