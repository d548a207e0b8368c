//! What kind of server it is, and what its settings are worth.

use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{Executor, Result, Row};

use super::step::Step;
use super::{connections, fault};
use crate::clock::{Clock, Micros};
use crate::error::{Error, ErrorKind};
use crate::store::{HealthVerdict as Verdict, Setting};

/// The oldest server that has what the statements need.
const OLDEST: i32 = 130_000;

/// A setting that no server knows: one that answers with it has no pooler before it.
const MARK: &str = "hapax.direct";

/// Whether there is a pooler on the way, which gives each transaction another session: then no statement may be kept in
/// the session. It knows a start-up setting of ours by nothing, and refuses it or drops it.
pub(super) async fn is_pooled(options: &PgConnectOptions, address: &str) -> bool {
    let marked = options.clone().options([(MARK, "1")]);
    let Ok(mut connection) = connections::connect(&marked, address).await else { return true };
    // In one message: between two of them a pooler may give the session to another.
    let found = connection.fetch_one(sqlx::raw_sql("select current_setting('hapax.direct', true)")).await;
    found.and_then(|row| row.try_get_unchecked::<Option<String>, _>(0)).ok().flatten().as_deref() != Some("1")
}

/// Refuses a server that cannot keep the promise.
pub(super) async fn fit(connection: &mut PgConnection, address: &str) -> crate::Result<()> {
    let text = "select current_setting('server_version_num')::integer, current_setting('server_version'), \
                current_setting('server_encoding')";
    let row = sqlx::query(text).persistent(false).fetch_one(connection).await;
    let cannot = |cause| fault::before_commit(address, cause);
    let row = row.map_err(cannot)?;
    let number: i32 = row.try_get(0).map_err(cannot)?;
    let (version, encoding): (String, String) = (row.try_get(1).map_err(cannot)?, row.try_get(2).map_err(cannot)?);
    if number < OLDEST {
        let text = format!("{address}: the server is PostgreSQL {version}, hapax needs 13 or newer");
        return Err(Error::did_not_happen(ErrorKind::Unusable, text));
    }
    if encoding != "UTF8" {
        let text = format!("{address}: the database has the encoding {encoding}, hapax needs one with UTF8");
        return Err(Error::did_not_happen(ErrorKind::Unusable, text));
    }
    Ok(())
}

/// The server and its version.
pub(super) async fn engine(step: &mut Step<'_>) -> Result<String> {
    let row = sqlx::query("select current_setting('server_version')")
        .persistent(step.prepares())
        .fetch_one(&mut *step.connection)
        .await?;
    Ok(format!("PostgreSQL {}", row.try_get::<String, _>(0)?))
}

/// A transaction that is open for longer slows claims down.
const OPEN_LONG_S: i64 = 3_600;
/// So many dead rows slow claims down.
const DEAD_MANY: i64 = 1_000_000;
/// A clock that is further off misleads whoever compares logs.
const OFFSET_LARGE_MS: i64 = 1_000;

/// What the promise rests on, as this role finds it.
pub(super) async fn settings(step: &mut Step<'_>, pooled: bool) -> Result<Vec<Setting>> {
    let text = step.in_schema(include_str!("sql/meta/settings.sql"));
    let clock = Clock::system();
    let before = clock.now().wall;
    let query = sqlx::query(sqlx::AssertSqlSafe(text)).persistent(step.prepares());
    let row = query.fetch_one(&mut *step.connection).await?;
    let after = clock.now().wall;
    let mut settings = server(&row)?;
    settings.extend(load(&row)?);
    settings.extend([rights(&row, &step.in_schema("hapax.jobs"))?, pooler(pooled), offset(&row, (before, after))?]);
    Ok(settings)
}

fn setting(name: &'static str, value: String, verdict: Verdict, note: impl Into<String>) -> Setting {
    Setting { name, value, verdict, note: note.into() }
}

const fn good_or(bad: Verdict, good: bool) -> Verdict {
    if good { Verdict::Good } else { bad }
}

fn text(row: &PgRow, at: usize) -> Result<String> {
    row.try_get::<Option<String>, _>(at).map(Option::unwrap_or_default)
}

fn number(row: &PgRow, at: usize) -> Result<i64> {
    row.try_get::<Option<i64>, _>(at).map(Option::unwrap_or_default)
}

/// What the server was told about keeping what it has answered.
fn server(row: &PgRow) -> Result<Vec<Setting>> {
    let (commit, fsync, pages) = (text(row, 0)?, text(row, 1)?, text(row, 2)?);
    let (read_only, isolation) = (text(row, 3)?, text(row, 4)?);
    let broken_unless = |good| good_or(Verdict::Broken, good);
    Ok(vec![
        setting(
            "synchronous_commit",
            commit.clone(),
            broken_unless(commit != "off"),
            "with `off` a crash of the server may lose what was already answered",
        ),
        setting("fsync", fsync.clone(), broken_unless(fsync == "on"), "with `off` a crash may lose anything"),
        setting(
            "full_page_writes",
            pages.clone(),
            broken_unless(pages == "on"),
            "with `off` a crash may damage the tables",
        ),
        setting(
            "writable",
            (read_only != "on").to_string(),
            broken_unless(read_only != "on"),
            "a standby or a read-only server takes no work",
        ),
        setting(
            "default_transaction_isolation",
            isolation,
            Verdict::Good,
            "of the role; each step of ours says which it needs",
        ),
    ])
}

/// What slows it down.
fn load(row: &PgRow) -> Result<Vec<Setting>> {
    let (oldest, dead, idle) = (number(row, 5)?, number(row, 6)?, text(row, 7)?);
    let weak_unless = |good| good_or(Verdict::Weak, good);
    let left_open = idle.is_empty();
    Ok(vec![
        setting(
            "oldest_transaction_s",
            oldest.to_string(),
            weak_unless(oldest < OPEN_LONG_S),
            "seconds since the oldest open transaction began; a long one keeps dead rows and slows claims down",
        ),
        setting(
            "dead_rows",
            dead.to_string(),
            weak_unless(dead < DEAD_MANY),
            "of the jobs, not yet vacuumed; many of them slow claims down",
        ),
        setting(
            "idle_in_transaction",
            if left_open { "none".to_owned() } else { idle },
            weak_unless(left_open),
            "sessions that stand still in an open transaction for over a minute, as far as this role may see them; a \
             pool of sqlx 0.9.0 leaves one behind when `begin` is cancelled, unless its `after_release` rolls back",
        ),
    ])
}

/// What this role may not do, and the statement that mends it.
fn rights(row: &PgRow, jobs: &str) -> Result<Setting> {
    let (missing, role) = (text(row, 8)?, text(row, 9)?);
    if missing.is_empty() {
        return Ok(setting("rights", "complete".to_owned(), Verdict::Good, "of this role on hapax's tables"));
    }
    let schema = jobs.strip_suffix(".jobs").unwrap_or(jobs);
    let role = role.replace('"', "\"\"");
    let mend = format!(
        "the role may not read and write these; let their owner run: grant select, insert, update, delete on all \
         tables in schema {schema} to \"{role}\"; grant usage, select, update on all sequences in schema {schema} to \
         \"{role}\""
    );
    Ok(setting("rights", format!("missing on {missing}"), Verdict::Broken, mend))
}

fn pooler(pooled: bool) -> Setting {
    let note = "whether a pooler is on the way; then nothing is kept in sessions, and waking up is by polling";
    setting("pooler", pooled.to_string(), Verdict::Good, note)
}

/// How far the server's clock is ahead of ours, as seen from the middle of the question. For people alone: no decision
/// compares the two.
fn offset(row: &PgRow, (before, after): (Micros, Micros)) -> Result<Setting> {
    let server = number(row, 10)?;
    let offset = server - (before.0 / 2 + after.0 / 2) / 1_000;
    Ok(setting(
        "clock_offset_ms",
        offset.to_string(),
        good_or(Verdict::Weak, offset.abs() < OFFSET_LARGE_MS),
        "how far the server's clock is ahead of this machine's; due times and leases go by the server's alone",
    ))
}
