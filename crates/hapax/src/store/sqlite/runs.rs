//! How runs end: by their own finish, or by being taken back.

use rusqlite::{Connection, Result};

use super::rows::{change, count, most_ms};
use super::slice::Slice;
use crate::clock::{Micros, Now};
use crate::id::Fingerprint;
use crate::model::job::KEEP_MS_MIN;
use crate::model::{End, Finish, JobState, RunRef, Settled};

/// Ends runs under their fences; each for itself.
pub(super) fn finish(connection: &Connection, now: Now, finishes: &[Finish]) -> Result<Vec<Settled>> {
    finishes.iter().map(|finish| finish_one(connection, now, finish)).collect()
}

/// Ends one run: the same step for a finish in a group and for one that commits with its effect.
pub(super) fn finish_one(connection: &Connection, now: Now, finish: &Finish) -> Result<Settled> {
    if let End::Done { result } = &finish.end
        && done(connection, now, (finish.run, result.as_deref()))?
    {
        return Ok(Settled::Counted { state: JobState::Done });
    }
    // Any other end, or a run that is not the current one: rarer, and the law's to decide.
    Slice::of(connection).job(finish.run.job)?.decide(|model| model.finish(now, std::slice::from_ref(finish)).remove(0))
}

/// The one end that most runs have: took effect. Gives whether the run was the current one.
fn done(connection: &Connection, now: Now, (run, result): (RunRef, Option<&str>)) -> Result<bool> {
    let mut statement = connection.prepare_cached(include_str!("sql/runs/done.sql"))?;
    super::rows::bind!(
        statement,
        fence = run.fence,
        result = result,
        wall = now.wall,
        keep_ms_min = count(KEEP_MS_MIN),
        most_ms = most_ms(now.wall),
        id = run.job,
    );
    let mut rows = statement.raw_query();
    let Some(row) = rows.next()? else { return Ok(false) };
    let key: (Option<String>, Option<String>, Option<String>) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let keep_key_ms: i64 = row.get(3)?;
    drop(rows);
    if let (Some(boundary), Some(scope), Some(value)) = key {
        let keep_until = now.wall.plus_ms(u64::try_from(keep_key_ms).unwrap_or(0));
        end_key(connection, (now.wall, keep_until), run, (&boundary, &scope, &value))?;
    }
    Ok(true)
}

/// The key of a job that took effect is refused from now on.
fn end_key(
    connection: &Connection,
    (wall, keep_until): (Micros, Micros),
    run: RunRef,
    (boundary, scope, value): (&str, &str, &str),
) -> Result<()> {
    // By its words as they are: the boundary may be one that only a newer program knows.
    change!(
        connection,
        include_str!("sql/keys/done_with_job.sql"),
        wall = wall,
        keep_until = keep_until,
        boundary = boundary,
        scope = scope,
        hash = *Fingerprint::of(value.as_bytes()).as_bytes(),
        job = run.job,
    );
    Ok(())
}
