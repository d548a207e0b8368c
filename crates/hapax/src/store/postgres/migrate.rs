//! Whose schema it is, and how it gets its tables.

use sqlx::postgres::PgConnection;
use sqlx::{Executor, Result, Row};
use uuid::Uuid;

use super::fault;
use super::rows::{at_most_one, change, exactly_one, fetch};
use super::step::{Home, Step};
use crate::error::{self, Error, ErrorKind};

/// The newest schema that this program knows, and the version of a fresh one.
pub const VERSION: u32 = 1;

/// One step of the schema. Once released, its text never changes: the next step mends it.
struct Migration {
    version: u32,
    /// The oldest schema that a program must know to work with the tables after this step.
    min_program: u32,
    text: &'static str,
}

const MIGRATIONS: [Migration; 1] =
    [Migration { version: 1, min_program: 1, text: include_str!("migrations/0001_initial.sql") }];

const _: () = assert!(MIGRATIONS[MIGRATIONS.len() - 1].version == VERSION, "the last step leads to the version");

/// What a schema says of itself.
#[derive(Clone, Debug)]
pub(super) struct Meta {
    pub(super) version: u32,
    pub(super) min_program: u32,
    /// Tells this store from every other.
    pub(super) store: Uuid,
}

/// What the schema says of itself; nothing if it has our table without its row.
pub(super) async fn meta(step: &mut Step<'_>) -> Result<Option<Meta>> {
    let read = |row: &sqlx::postgres::PgRow| {
        let number = |at: usize| row.try_get::<i32, _>(at).map(|n| u32::try_from(n).unwrap_or(0));
        Ok(Meta { version: number(0)?, min_program: number(1)?, store: row.try_get(2)? })
    };
    Ok(at_most_one(fetch!(step, include_str!("sql/meta/find.sql"), read)))
}

/// What the schema says of itself. Refuses a database that this program may not work with, without having changed it.
pub(super) async fn look(connection: &mut PgConnection, home: &Home, address: &str) -> error::Result<Meta> {
    match found(connection, home, address).await? {
        Some(meta) if meta.version >= VERSION => judge(&meta, address).map(|()| meta),
        Some(meta) => {
            let text = format!(
                "{address}: the schema has version {}, this program, hapax {}, needs {VERSION}; run `hapax migrate`",
                meta.version,
                env!("CARGO_PKG_VERSION"),
            );
            Err(Error::did_not_happen(ErrorKind::Unusable, text))
        }
        None => {
            let text =
                format!("{address}: there are no hapax tables in it yet; run `hapax migrate`, or call `migrate`");
            Err(Error::did_not_happen(ErrorKind::Unusable, text))
        }
    }
}

/// Refuses tables that this program may not write to.
pub(super) async fn fits(step: &mut Step<'_>, address: &str) -> error::Result<()> {
    let found = meta(step).await.map_err(|cause| fault::before_commit(address, cause))?;
    let text = format!("{address}: the hapax tables are empty; run `hapax migrate`");
    judge(&found.ok_or_else(|| Error::did_not_happen(ErrorKind::Unusable, text))?, address)
}

/// The version of the schema; nothing if there is none.
pub(super) async fn version_of(
    connection: &mut PgConnection,
    home: &Home,
    address: &str,
) -> error::Result<Option<u32>> {
    let Some(meta) = found(connection, home, address).await? else { return Ok(None) };
    judge(&meta, address)?;
    Ok(Some(meta.version))
}

async fn found(connection: &mut PgConnection, home: &Home, address: &str) -> error::Result<Option<Meta>> {
    let cannot = |cause| fault::before_commit(address, cause);
    let table = format!("{}.meta", home.schema());
    let exists = sqlx::query("select to_regclass($1) is not null").bind(table).persistent(false);
    let exists = exists.fetch_one(&mut *connection).await;
    if !exists.and_then(|row| row.try_get::<bool, _>(0)).map_err(cannot)? {
        return Ok(None);
    }
    let mut step = Step::inside(connection, home).await.map_err(cannot)?;
    meta(&mut step).await.map_err(cannot)
}

fn judge(meta: &Meta, address: &str) -> error::Result<()> {
    if meta.min_program <= VERSION {
        return Ok(());
    }
    let text = format!(
        "{address}: the tables were made by a newer hapax. Their schema has version {} and asks for a program that \
         knows version {}; this program, hapax {}, knows version {VERSION}. Update this program, or \
         name another schema",
        meta.version,
        meta.min_program,
        env!("CARGO_PKG_VERSION"),
    );
    Err(Error::did_not_happen(ErrorKind::TooNew, text))
}

/// Makes the schema, or brings it up to date, in the transaction that is open, and commits it; one program after the
/// other.
pub(super) async fn migrate(connection: &mut PgConnection, home: &Home, address: &str) -> error::Result<()> {
    let cannot = |cause| fault::before_commit(address, cause);
    // The lock ends with the transaction: a program that dies here holds up nobody. Two schemas may share it.
    let lock = "select pg_advisory_xact_lock(7526468829)";
    connection.execute(sqlx::raw_sql(lock)).await.map_err(cannot)?;
    let known = match found(connection, home, address).await? {
        Some(meta) => {
            judge(&meta, address)?;
            meta.version
        }
        None => 0,
    };
    let done = steps(connection, home, known).await;
    done.map_err(cannot)?;
    let committed = connection.execute(sqlx::raw_sql("commit")).await;
    committed.map(drop).map_err(|cause| fault::at_commit(address, cause))
}

async fn steps(connection: &mut PgConnection, home: &Home, known: u32) -> Result<()> {
    if known == 0 {
        let schema = home.schema();
        let there = sqlx::query("select 1 from pg_namespace where nspname = $1")
            .bind(home.name())
            .persistent(false)
            .fetch_optional(&mut *connection)
            .await?;
        if there.is_none() {
            // Only then, since it asks for a right that a role may lack in a database that was prepared for it.
            let text = format!("create schema {schema}");
            connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(text))).await?;
        }
    }
    for migration in MIGRATIONS.iter().filter(|migration| migration.version > known) {
        let text = home.in_schema(migration.text);
        connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(text))).await?;
        let mut step = Step::inside(connection, home).await?;
        let number = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
        let (version, min_program) = (number(migration.version), number(migration.min_program));
        let changed = if migration.version == 1 {
            insert_meta(&mut step, (version, min_program)).await?
        } else {
            raise_version(&mut step, (version, min_program)).await?
        };
        exactly_one(changed)?;
    }
    Ok(())
}

async fn insert_meta(step: &mut Step<'_>, (version, min_program): (i32, i32)) -> Result<u64> {
    Ok(change!(step, include_str!("sql/meta/insert.sql"), version = version, min_program = min_program))
}

async fn raise_version(step: &mut Step<'_>, (version, min_program): (i32, i32)) -> Result<u64> {
    Ok(change!(step, include_str!("sql/meta/set_version.sql"), version = version, min_program = min_program))
}
