//! Rows into records and back. The only file that knows how a column is written.
//!
//! Reading never fails over a text: a row that plain SQL spoilt is shown as well as it can be, and blocks nothing.

use rusqlite::types::{FromSql, ToSql, ToSqlOutput, Type, ValueRef};
use rusqlite::{Connection, Result, Row};
use uuid::Uuid;

use crate::clock::Micros;
use crate::id::{
    AcquisitionId, Boundary, ClaimId, Fence, Fingerprint, InstanceId, JobId, KEY_BYTES_MAX, NAME_BYTES_MAX, Name,
    OnceKey, Payload,
};
use crate::model::{
    Claimed, Counters, Guarantee, Instance, JobRecord, JobState, KeyHolder, KeyRecord, KeyState, Lock, NewInstance,
    RefusalRecord, RetryPolicy, RunOutcome, RunRecord,
};

/// Runs a statement by its place-holders in the order in which they first occur, which debug builds check by name.
/// Looking names up for each row would cost more than binding them.
macro_rules! bind {
    ($statement:expr) => {
        debug_assert_eq!($statement.parameter_count(), 0, "every place-holder is bound")
    };
    ($statement:expr $(, $name:ident = $value:expr)+ $(,)?) => {{
        let mut place = 0;
        $(
            place += 1;
            debug_assert_eq!($statement.parameter_name(place), Some(concat!(":", stringify!($name))));
            $statement.raw_bind_parameter(place, $value)?;
        )+
        debug_assert_eq!($statement.parameter_count(), place, "every place-holder is bound");
    }};
}
pub(super) use bind;

/// Runs a write and gives the number of rows that its guard let it change.
macro_rules! change {
    ($connection:expr, $text:expr $(, $name:ident = $value:expr)* $(,)?) => {{
        let mut statement = $connection.prepare_cached($text)?;
        $crate::store::sqlite::rows::bind!(statement $(, $name = $value)*);
        statement.raw_execute()?
    }};
}
pub(super) use change;

/// Runs a statement that gives rows, and reads each with `$read`.
macro_rules! fetch {
    ($connection:expr, $text:expr, $read:expr $(, $name:ident = $value:expr)* $(,)?) => {{
        let mut statement = $connection.prepare_cached($text)?;
        $crate::store::sqlite::rows::bind!(statement $(, $name = $value)*);
        $crate::store::sqlite::rows::read(statement.raw_query(), $read)?
    }};
}
pub(super) use fetch;

/// Reads all rows of a statement.
pub(super) fn read<T>(mut rows: rusqlite::Rows<'_>, read: impl Fn(&Row<'_>) -> Result<T>) -> Result<Vec<T>> {
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.push(read(row)?);
    }
    Ok(all)
}

/// A guarded write that the law allowed must find its row; anything else is a fault of ours and is undone.
pub(super) const fn exactly_one(changed: usize) -> Result<()> {
    if changed == 1 { Ok(()) } else { Err(rusqlite::Error::StatementChangedRows(changed)) }
}

/// One row of a statement that gives at most one.
pub(super) fn at_most_one<T>(rows: Vec<T>) -> Option<T> {
    rows.into_iter().next()
}

/// Milliseconds, or another count without a sign, as SQLite can keep it.
pub(super) fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The longest time limit, in milliseconds, that can be added to `now` before the end of time.
pub(super) const fn most_ms(now: Micros) -> i64 {
    i64::MAX.saturating_sub(now.0) / 1_000
}

/// Names as the JSON list that the statements unfold.
pub(super) fn list<'n>(names: impl IntoIterator<Item = &'n Name>) -> String {
    let names: Vec<&str> = names.into_iter().map(Name::as_str).collect();
    serde_json::to_string(&names).expect("texts are JSON")
}

macro_rules! id_columns {
    ($($id:ident)*) => {$(
        impl ToSql for $id {
            fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
                Ok(ToSqlOutput::Borrowed(ValueRef::Blob(self.as_uuid().as_bytes())))
            }
        }

        impl FromSql for $id {
            fn column_result(value: ValueRef<'_>) -> rusqlite::types::FromSqlResult<Self> {
                <[u8; 16]>::column_result(value).map(|bytes| Self::from_uuid(Uuid::from_bytes(bytes)))
            }
        }
    )*};
}
id_columns!(JobId ClaimId InstanceId AcquisitionId);

macro_rules! integer_columns {
    ($($type:ident: $to:expr, $from:expr;)*) => {$(
        impl ToSql for $type {
            fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
                let to: fn(&$type) -> i64 = $to;
                Ok(ToSqlOutput::from(to(self)))
            }
        }

        impl FromSql for $type {
            fn column_result(value: ValueRef<'_>) -> rusqlite::types::FromSqlResult<Self> {
                i64::column_result(value).map($from)
            }
        }
    )*};
}
integer_columns! {
    Micros: |at| at.0, Micros;
    Fence: |fence| fence.as_i64(), Fence::from_i64;
}

impl ToSql for Name {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.as_str()))
    }
}

impl ToSql for Fingerprint {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Blob(self.as_bytes())))
    }
}

/// The columns of a row, one after the other, in the order of the statement.
struct Columns<'r, 'c> {
    row: &'r Row<'c>,
    at: usize,
}

impl<'r, 'c> Columns<'r, 'c> {
    const fn of(row: &'r Row<'c>) -> Self {
        Self { row, at: 0 }
    }

    fn next<T: FromSql>(&mut self) -> Result<T> {
        self.at += 1;
        self.row.get(self.at - 1)
    }

    fn unsigned(&mut self) -> Result<u64> {
        Ok(u64::try_from(self.next::<i64>()?).unwrap_or(0))
    }

    /// A text; what is not UTF-8 is shown as U+FFFD.
    fn maybe_text(&mut self) -> Result<Option<String>> {
        self.at += 1;
        match self.row.get_ref(self.at - 1)? {
            ValueRef::Null => Ok(None),
            ValueRef::Text(bytes) => Ok(Some(String::from_utf8_lossy(bytes).into_owned())),
            other => Err(rusqlite::Error::InvalidColumnType(self.at - 1, "a text".to_owned(), other.data_type())),
        }
    }

    fn text(&mut self) -> Result<String> {
        Ok(self.maybe_text()?.unwrap_or_default())
    }

    fn name(&mut self) -> Result<Name> {
        let text = self.text()?;
        nearest(&text).map_err(|e| self.odd(e))
    }

    /// A word of ours. An unknown one was written by a newer program, or by hand.
    fn word<T>(&mut self, parse: impl Fn(&str) -> Option<T>) -> Result<T> {
        let text = self.text()?;
        parse(&text).ok_or_else(|| self.odd(format!("`{text}` is no word that this program knows")))
    }

    fn fingerprint(&mut self) -> Result<Option<Fingerprint>> {
        Ok(self.next::<Option<[u8; 32]>>()?.map(Fingerprint::from_bytes))
    }

    fn once_key(&mut self) -> Result<Option<OnceKey>> {
        let (boundary, scope, value) = (self.maybe_text()?, self.maybe_text()?, self.maybe_text()?);
        let (Some(boundary), Some(scope), Some(value)) = (boundary, scope, value) else { return Ok(None) };
        // A boundary that only a newer program knows: the job runs all the same, its key is for that one to see to.
        let Some(boundary) = Boundary::parse(&boundary) else { return Ok(None) };
        let key = |scope: &str, value: &str| OnceKey::new(boundary, Name::new("scope", scope)?, value);
        key(&scope, &value)
            .or_else(|_| key(&legal(&scope, NAME_BYTES_MAX), &legal(&value, KEY_BYTES_MAX)))
            .map(Some)
            .map_err(|e| self.odd(e))
    }

    fn names(&mut self) -> Result<Vec<Name>> {
        let texts: Vec<String> = serde_json::from_str(&self.text()?).map_err(|e| self.odd(e))?;
        texts.iter().map(|text| nearest(text).map_err(|e| self.odd(e))).collect()
    }

    fn odd(&self, what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> rusqlite::Error {
        rusqlite::Error::FromSqlConversionFailure(self.at - 1, Type::Text, what.into())
    }
}

fn nearest(text: &str) -> crate::Result<Name> {
    Name::new("name", text).or_else(|_| Name::new("name", &legal(text, NAME_BYTES_MAX)))
}

/// The nearest text that is within the limits of a name or key.
fn legal(text: &str, bytes_max: usize) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect();
    let end = clean.floor_char_boundary(bytes_max);
    if clean.is_empty() { "\u{FFFD}".to_owned() } else { clean[..end].to_owned() }
}

/// A job, from the columns that `jobs/find.sql` and `jobs/claim.sql` give.
pub(super) fn job(row: &Row<'_>) -> Result<JobRecord> {
    let mut c = Columns::of(row);
    Ok(JobRecord {
        id: c.next()?,
        queue: c.name()?,
        kind: c.name()?,
        payload: Payload::from_store(c.text()?),
        payload_version: c.next()?,
        priority: c.next()?,
        state: c.word(JobState::parse)?,
        due_at: c.next()?,
        enqueued_at: c.next()?,
        once: c.once_key()?,
        fingerprint: c.fingerprint()?,
        guarantee: c.word(Guarantee::parse)?,
        retry: RetryPolicy {
            max_attempts: c.next()?,
            base_ms: c.unsigned()?,
            cap_ms: c.unsigned()?,
            jitter_percent: c.next()?,
        },
        run_timeout_ms: c.unsigned()?,
        keep_ms: c.unsigned()?,
        keep_key_ms: c.unsigned()?,
        fence: c.next()?,
        ended_fence: c.next()?,
        claim: claimed(&mut c)?,
        runs: c.next()?,
        failures: c.next()?,
        takeovers: c.next()?,
        unstarted_takeovers: c.next()?,
        suspect: c.next()?,
        cancel_requested: c.next()?,
        progress: c.maybe_text()?,
        result: c.maybe_text()?,
        reason: c.maybe_text()?,
        finished_at: c.next()?,
        purge_at: c.next()?,
        refused: c.next()?,
    })
}

fn claimed(c: &mut Columns<'_, '_>) -> Result<Option<Claimed>> {
    let (instance, claim): (Option<InstanceId>, Option<ClaimId>) = (c.next()?, c.next()?);
    let (at, started_at, deadline): (Option<Micros>, Option<Micros>, Option<Micros>) =
        (c.next()?, c.next()?, c.next()?);
    // The schema has all of them or none.
    let (Some(instance), Some(claim), Some(at), Some(deadline)) = (instance, claim, at, deadline) else {
        return Ok(None);
    };
    Ok(Some(Claimed { instance, claim, at, started_at, deadline }))
}

/// An ended run, from the columns of `runs/of_job.sql`.
pub(super) fn run(row: &Row<'_>) -> Result<RunRecord> {
    let mut c = Columns::of(row);
    Ok(RunRecord {
        number: c.next()?,
        fence: c.next()?,
        instance: c.next()?,
        started_at: c.next()?,
        ended_at: c.next()?,
        outcome: c.word(RunOutcome::parse)?,
        detail: c.maybe_text()?,
    })
}

/// A once key, from the columns of `keys/find.sql`.
pub(super) fn key(row: &Row<'_>) -> Result<KeyRecord> {
    let mut c = Columns::of(row);
    let key = c.once_key()?.ok_or_else(|| c.odd("a key without a value"))?;
    let fingerprint = c.fingerprint()?;
    let state = c.word(KeyState::parse)?;
    let job: Option<JobId> = c.next()?;
    let holder = if let Some(job) = job {
        c.at += 1;
        KeyHolder::Job(job)
    } else {
        KeyHolder::Claim(c.name()?)
    };
    Ok(KeyRecord {
        key,
        fingerprint,
        state,
        holder,
        fence: c.next()?,
        acquisition: c.next()?,
        lease_until: c.next()?,
        attempts: c.next()?,
        since: c.next()?,
        ended_at: c.next()?,
        keep_until: c.next()?,
        result: c.maybe_text()?,
        refused: c.next()?,
        last_refused_at: c.next()?,
    })
}

/// A permit, from the columns of the statements of `locks/`.
pub(super) fn lock(row: &Row<'_>) -> Result<((Name, u32), Lock)> {
    let mut c = Columns::of(row);
    let identity = (c.name()?, c.next()?);
    let lock = Lock {
        permits: c.next()?,
        fence: c.next()?,
        acquisition: c.next()?,
        holder: c.name()?,
        since: c.next()?,
        lease_until: c.next()?,
    };
    Ok((identity, lock))
}

/// An instance, from the columns of the statements of `instances/`.
pub(super) fn instance(row: &Row<'_>) -> Result<Instance> {
    let mut c = Columns::of(row);
    let new = NewInstance {
        id: c.next()?,
        name: c.name()?,
        version: c.text()?,
        queues: c.names()?,
        kinds: c.names()?,
        lease_ms: c.unsigned()?,
    };
    Ok(Instance {
        new,
        live: c.next()?,
        started_at: c.next()?,
        renewed_at: c.next()?,
        lease_until: c.next()?,
        reap_from: c.next()?,
    })
}

/// A refused write, from the columns of `refusals/list.sql`.
pub(super) fn refusal(row: &Row<'_>) -> Result<RefusalRecord> {
    let mut c = Columns::of(row);
    Ok(RefusalRecord { at: c.next()?, verb: c.text()?, identity: c.text()?, fence: c.next()? })
}

/// Totals, from the columns of `counters/find.sql`.
pub(super) fn counters(row: &Row<'_>) -> Result<Counters> {
    let mut c = Columns::of(row);
    Ok(Counters {
        duplicates_refused: c.unsigned()?,
        writes_refused: c.unsigned()?,
        takeovers: c.unsigned()?,
        unstarted_takeovers: c.unsigned()?,
        deadlines: c.unsigned()?,
    })
}

/// A count alone.
pub(super) fn total(row: &Row<'_>) -> Result<u64> {
    Columns::of(row).unsigned()
}

/// A name alone, from a statement that gives one column.
pub(super) fn name(row: &Row<'_>) -> Result<Name> {
    Columns::of(row).name()
}

/// Writes a job that is not there yet; one with its id is the same job. Gives whether it was new.
pub(super) fn insert_job(connection: &Connection, job: &JobRecord) -> Result<bool> {
    let mut statement = connection.prepare_cached(include_str!("sql/jobs/insert.sql"))?;
    let once = job.once.as_ref();
    bind!(
        statement,
        id = job.id,
        queue = job.queue.as_str(),
        kind = job.kind.as_str(),
        payload_version = job.payload_version,
        priority = job.priority,
        state = job.state.as_str(),
        due_at = job.due_at,
        enqueued_at = job.enqueued_at,
        once_boundary = once.map(|key| key.boundary().as_str()),
        once_scope = once.map(|key| key.scope().as_str()),
        once_value = once.map(OnceKey::value),
        fingerprint = job.fingerprint,
        guarantee = job.guarantee.as_str(),
        max_attempts = job.retry.max_attempts,
        retry_base_ms = count(job.retry.base_ms),
        retry_cap_ms = count(job.retry.cap_ms),
        retry_jitter_percent = job.retry.jitter_percent,
        run_timeout_ms = count(job.run_timeout_ms),
        keep_ms = count(job.keep_ms),
        keep_key_ms = count(job.keep_key_ms),
        payload = job.payload.as_str(),
    );
    Ok(statement.raw_execute()? == 1)
}
