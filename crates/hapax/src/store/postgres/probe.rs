//! What kind of server it is, and what its settings are worth.

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Executor, Result, Row};

use super::step::Step;
use super::{connections, fault};
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

/// What the promise rests on, as this role finds it.
pub(super) async fn settings(step: &mut Step<'_>, pooled: bool) -> Result<Vec<Setting>> {
    let text = step.in_schema(include_str!("sql/meta/settings.sql"));
    let query = sqlx::query(sqlx::AssertSqlSafe(text)).persistent(step.prepares());
    let row = query.fetch_one(&mut *step.connection).await?;
    let text = |at: usize| row.try_get::<Option<String>, _>(at).map(Option::unwrap_or_default);
    let seconds = |at: usize| row.try_get::<Option<i64>, _>(at).map(Option::unwrap_or_default);
    let (commit, fsync, pages) = (text(0)?, text(1)?, text(2)?);
    let (read_only, isolation) = (text(3)?, text(4)?);
    let (oldest, dead) = (seconds(5)?, seconds(6)?);
    let flag = |good: bool, bad: Verdict| if good { Verdict::Good } else { bad };
    let setting = |name, value: String, verdict, note: &str| Setting { name, value, verdict, note: note.to_owned() };
    Ok(vec![
        setting(
            "synchronous_commit",
            commit.clone(),
            flag(commit != "off", Verdict::Broken),
            "with `off` a crash of the server may lose what was already answered",
        ),
        setting("fsync", fsync.clone(), flag(fsync == "on", Verdict::Broken), "with `off` a crash may lose anything"),
        setting(
            "full_page_writes",
            pages.clone(),
            flag(pages == "on", Verdict::Broken),
            "with `off` a crash may damage the tables",
        ),
        setting(
            "writable",
            (read_only != "on").to_string(),
            flag(read_only != "on", Verdict::Broken),
            "a standby or a read-only server takes no work",
        ),
        setting(
            "default_transaction_isolation",
            isolation,
            Verdict::Good,
            "of the role; each step of ours says which it needs",
        ),
        setting(
            "oldest_transaction_s",
            oldest.to_string(),
            flag(oldest < 3_600, Verdict::Weak),
            "seconds since the oldest open transaction began; a long one keeps dead rows and slows claims down",
        ),
        setting(
            "dead_rows",
            dead.to_string(),
            flag(dead < 1_000_000, Verdict::Weak),
            "of the jobs, not yet vacuumed; many of them slow claims down",
        ),
        setting(
            "pooler",
            pooled.to_string(),
            Verdict::Good,
            "whether a pooler is on the way; then nothing is kept in sessions, and waking up is by polling",
        ),
    ])
}
