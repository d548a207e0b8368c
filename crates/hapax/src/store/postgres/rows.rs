//! Rows into records and back. The only file that knows how a column is written.
//!
//! Reading never fails over a text: a row that plain SQL spoilt is shown as well as it can be, and blocks nothing.

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgRow, PgTypeInfo, PgValueFormat, PgValueRef};
use sqlx::{Decode, Encode, Postgres, Result, Row, Type};
use uuid::Uuid;

use super::runs::EndedKey;
use super::step::Step;
use crate::clock::Micros;
use crate::id::{
    AcquisitionId, Boundary, ClaimId, Fence, Fingerprint, InstanceId, JobId, KEY_BYTES_MAX, NAME_BYTES_MAX, Name,
    OnceKey, Payload,
};
use crate::model::{
    Claimed, Counters, Guarantee, Instance, JobRecord, JobState, KeyHolder, KeyRecord, KeyState, Lock, NewInstance,
    OwnedRun, Pause, RefusalRecord, RetryPolicy, RunOutcome, RunRecord, RunRef,
};

/// A statement with its values, in the order in which its place-holders first occur, which debug builds check by name.
macro_rules! query {
    ($step:expr, $text:expr $(, $name:ident = $value:expr)* $(,)?) => {{
        let text = $step.text($text, &[$(stringify!($name)),*]);
        sqlx::query(sqlx::AssertSqlSafe(text))$(.bind($value))*.persistent($step.prepares())
    }};
}
pub(super) use query;

/// Runs a write and gives the number of rows that its guard let it change.
macro_rules! change {
    ($step:expr, $text:expr $(, $name:ident = $value:expr)* $(,)?) => {
        $crate::store::postgres::rows::query!($step, $text $(, $name = $value)*)
            .execute(&mut *$step.connection)
            .await?
            .rows_affected()
    };
}
pub(super) use change;

/// Runs a statement that gives rows, and reads each with `$read`.
macro_rules! fetch {
    ($step:expr, $text:expr, $read:expr $(, $name:ident = $value:expr)* $(,)?) => {{
        let rows = $crate::store::postgres::rows::query!($step, $text $(, $name = $value)*)
            .fetch_all(&mut *$step.connection)
            .await?;
        $crate::store::postgres::rows::read(&rows, $read)?
    }};
}
pub(super) use fetch;

/// Reads all rows of a statement.
pub(super) fn read<T>(rows: &[PgRow], read: impl Fn(&PgRow) -> Result<T>) -> Result<Vec<T>> {
    rows.iter().map(read).collect()
}

/// A guarded write that the law allowed must find its row; anything else is a fault of ours and is undone.
pub(super) fn exactly_one(changed: u64) -> Result<()> {
    exactly(1, changed)
}

/// As [`exactly_one`], for a statement that writes many rows.
pub(super) fn exactly(wanted: usize, changed: u64) -> Result<()> {
    if u64::try_from(wanted) == Ok(changed) {
        return Ok(());
    }
    let text = format!("a guarded write found {changed} rows instead of {wanted}; this is a fault of hapax");
    Err(sqlx::Error::Protocol(text))
}

/// One row of a statement that gives at most one.
pub(super) fn at_most_one<T>(rows: Vec<T>) -> Option<T> {
    rows.into_iter().next()
}

/// Milliseconds, or another count without a sign, as a column can keep it.
pub(super) fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Names as an array.
pub(super) fn list<'n>(names: impl IntoIterator<Item = &'n Name>) -> Vec<String> {
    names.into_iter().map(|name| name.as_str().to_owned()).collect()
}

/// Microseconds from 1970, where our times begin, to 2000, where the server's do.
const EPOCH_US: i64 = 946_684_800_000_000;
/// The server's first instant, 4713 BC; what is before it is `-infinity`.
const FIRST_US: i64 = -211_813_488_000_000_000;

impl Type<Postgres> for Micros {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("timestamptz")
    }
}

impl PgHasArrayType for Micros {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::array_of("timestamptz")
    }
}

impl Encode<'_, Postgres> for Micros {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> std::result::Result<IsNull, BoxDynError> {
        let since_2000 = match self.0 {
            i64::MAX => i64::MAX,
            us if us < FIRST_US + EPOCH_US => i64::MIN,
            us => us - EPOCH_US,
        };
        Encode::<Postgres>::encode(since_2000, buffer)
    }
}

impl Decode<'_, Postgres> for Micros {
    fn decode(value: PgValueRef<'_>) -> std::result::Result<Self, BoxDynError> {
        if value.format() == PgValueFormat::Text {
            return Err("a time as text, where the binary form was asked for".into());
        }
        Ok(match <i64 as Decode<Postgres>>::decode(value)? {
            end @ (i64::MAX | i64::MIN) => Self(end),
            since_2000 => Self(since_2000.saturating_add(EPOCH_US)),
        })
    }
}

macro_rules! columns {
    ($($type:ident as $column:ty: $to:expr, $from:expr;)*) => {$(
        impl Type<Postgres> for $type {
            fn type_info() -> PgTypeInfo {
                <$column as Type<Postgres>>::type_info()
            }
        }

        impl PgHasArrayType for $type {
            fn array_type_info() -> PgTypeInfo {
                <$column as PgHasArrayType>::array_type_info()
            }
        }

        impl Encode<'_, Postgres> for $type {
            fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> std::result::Result<IsNull, BoxDynError> {
                let to: fn(&$type) -> $column = $to;
                Encode::<Postgres>::encode(to(self), buffer)
            }
        }

        impl Decode<'_, Postgres> for $type {
            fn decode(value: PgValueRef<'_>) -> std::result::Result<Self, BoxDynError> {
                <$column as Decode<Postgres>>::decode(value).map($from)
            }
        }
    )*};
}
columns! {
    JobId as Uuid: |id| *id.as_uuid(), Self::from_uuid;
    ClaimId as Uuid: |id| *id.as_uuid(), Self::from_uuid;
    InstanceId as Uuid: |id| *id.as_uuid(), Self::from_uuid;
    AcquisitionId as Uuid: |id| *id.as_uuid(), Self::from_uuid;
    Fence as i64: |fence| fence.as_i64(), Self::from_i64;
}

/// The columns of a row, one after the other, in the order of the statement.
struct Columns<'r> {
    row: &'r PgRow,
    at: usize,
}

impl<'r> Columns<'r> {
    const fn of(row: &'r PgRow) -> Self {
        Self { row, at: 0 }
    }

    fn next<T: Decode<'r, Postgres> + Type<Postgres>>(&mut self) -> Result<T> {
        self.at += 1;
        self.row.try_get(self.at - 1)
    }

    /// A number that the column's type is wider than; what does not fit is cut.
    fn number<T: TryFrom<i64> + Bounded>(&mut self) -> Result<T> {
        Ok(T::try_from(self.next::<i64>()?).unwrap_or(T::MOST))
    }

    fn unsigned(&mut self) -> Result<u64> {
        Ok(u64::try_from(self.next::<i64>()?).unwrap_or(0))
    }

    fn maybe_text(&mut self) -> Result<Option<String>> {
        self.next()
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
        let bytes: Option<Vec<u8>> = self.next()?;
        let fixed = |bytes: Vec<u8>| <[u8; 32]>::try_from(bytes).map(Fingerprint::from_bytes);
        bytes.map(fixed).transpose().map_err(|_| self.odd("a fingerprint that is not 32 bytes long"))
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
        let texts: Vec<String> = self.next()?;
        texts.iter().map(|text| nearest(text).map_err(|e| self.odd(e))).collect()
    }

    fn odd(&self, what: impl Into<BoxDynError>) -> sqlx::Error {
        sqlx::Error::ColumnDecode { index: (self.at - 1).to_string(), source: what.into() }
    }
}

/// A number with a greatest value.
trait Bounded {
    const MOST: Self;
}

impl Bounded for u8 {
    const MOST: Self = Self::MAX;
}

impl Bounded for u32 {
    const MOST: Self = Self::MAX;
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

/// A job, from the columns that `jobs/find.sql` gives.
pub(super) fn job(row: &PgRow) -> Result<JobRecord> {
    job_of(&mut Columns::of(row))
}

/// A job with its row key, from `jobs/claim.sql`.
pub(super) fn job_and_key(row: &PgRow) -> Result<(i64, JobRecord)> {
    let mut c = Columns::of(row);
    let job = job_of(&mut c)?;
    Ok((c.next()?, job))
}

fn job_of(c: &mut Columns<'_>) -> Result<JobRecord> {
    Ok(JobRecord {
        id: c.next()?,
        queue: c.name()?,
        kind: c.name()?,
        payload: Payload::from_store(c.text()?),
        payload_version: u16::try_from(c.next::<i32>()?).unwrap_or(u16::MAX),
        priority: c.next()?,
        state: c.word(JobState::parse)?,
        due_at: c.next()?,
        enqueued_at: c.next()?,
        once: c.once_key()?,
        fingerprint: c.fingerprint()?,
        guarantee: c.word(Guarantee::parse)?,
        retry: RetryPolicy {
            max_attempts: c.number()?,
            base_ms: c.unsigned()?,
            cap_ms: c.unsigned()?,
            jitter_percent: u8::try_from(c.next::<i16>()?).unwrap_or(u8::MAX),
        },
        run_timeout_ms: c.unsigned()?,
        keep_ms: c.unsigned()?,
        keep_key_ms: c.unsigned()?,
        fence: c.next()?,
        ended_fence: c.next()?,
        claim: claimed(c)?,
        runs: c.number()?,
        failures: c.number()?,
        takeovers: c.number()?,
        unstarted_takeovers: c.number()?,
        suspect: c.next()?,
        cancel_requested: c.next()?,
        progress: c.maybe_text()?,
        result: c.maybe_text()?,
        reason: c.maybe_text()?,
        finished_at: c.next()?,
        purge_at: c.next()?,
        refused: c.number()?,
    })
}

fn claimed(c: &mut Columns<'_>) -> Result<Option<Claimed>> {
    let (instance, claim): (Option<InstanceId>, Option<ClaimId>) = (c.next()?, c.next()?);
    let (at, started_at, deadline): (Option<Micros>, Option<Micros>, Option<Micros>) =
        (c.next()?, c.next()?, c.next()?);
    // The schema has all of them or none.
    let (Some(instance), Some(claim), Some(at), Some(deadline)) = (instance, claim, at, deadline) else {
        return Ok(None);
    };
    Ok(Some(Claimed { instance, claim, at, started_at, deadline }))
}

/// Which run, from a job's id and fence.
pub(super) fn run_ref(row: &PgRow) -> Result<RunRef> {
    Ok(RunRef { job: row.try_get(0)?, fence: row.try_get(1)? })
}

/// A run that belongs to an instance, from `jobs/of_owner.sql`.
pub(super) fn owned(row: &PgRow) -> Result<OwnedRun> {
    Ok(OwnedRun { run: run_ref(row)?, claim: row.try_get(2)?, cancel_requested: row.try_get(3)? })
}

/// A run that took effect and the once key of its job, from `runs/done.sql`.
pub(super) fn ended(row: &PgRow) -> Result<(RunRef, Option<EndedKey>)> {
    let run = run_ref(row)?;
    let (boundary, scope, value) = (row.try_get(2)?, row.try_get(3)?, row.try_get(4)?);
    let keep_ms = row.try_get(5)?;
    let key = |boundary, scope, value| EndedKey { boundary, scope, value, job: run.job, keep_ms };
    Ok((
        run,
        match (boundary, scope, value) {
            (Some(boundary), Some(scope), Some(value)) => Some(key(boundary, scope, value)),
            _ => None,
        },
    ))
}

/// A paused queue, from `pauses/list.sql`.
pub(super) fn pause(row: &PgRow) -> Result<(Name, Pause)> {
    let mut c = Columns::of(row);
    Ok((c.name()?, Pause { reason: c.text()?, since: c.next()? }))
}

/// An ended run, from the columns of `runs/of_job.sql`.
pub(super) fn run(row: &PgRow) -> Result<RunRecord> {
    let mut c = Columns::of(row);
    Ok(RunRecord {
        number: c.number()?,
        fence: c.next()?,
        instance: c.next()?,
        started_at: c.next()?,
        ended_at: c.next()?,
        outcome: c.word(RunOutcome::parse)?,
        detail: c.maybe_text()?,
    })
}

/// A once key, from the columns of the statements of `keys/`.
pub(super) fn key(row: &PgRow) -> Result<KeyRecord> {
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
        attempts: c.number()?,
        since: c.next()?,
        ended_at: c.next()?,
        keep_until: c.next()?,
        result: c.maybe_text()?,
        refused: c.number()?,
        last_refused_at: c.next()?,
    })
}

/// A permit, from the columns of the statements of `locks/`.
pub(super) fn lock(row: &PgRow) -> Result<((Name, u32), Lock)> {
    let mut c = Columns::of(row);
    let identity = (c.name()?, c.number()?);
    let lock = Lock {
        permits: c.number()?,
        fence: c.next()?,
        acquisition: c.next()?,
        holder: c.name()?,
        since: c.next()?,
        lease_until: c.next()?,
    };
    Ok((identity, lock))
}

/// An instance, from the columns of the statements of `instances/`.
pub(super) fn instance(row: &PgRow) -> Result<Instance> {
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
pub(super) fn refusal(row: &PgRow) -> Result<RefusalRecord> {
    let mut c = Columns::of(row);
    Ok(RefusalRecord { at: c.next()?, verb: c.text()?, identity: c.text()?, fence: c.next()? })
}

/// Totals, from the columns of `counters/find.sql`.
pub(super) fn counters(row: &PgRow) -> Result<Counters> {
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
pub(super) fn total(row: &PgRow) -> Result<u64> {
    Columns::of(row).unsigned()
}

/// A name alone, from a statement that gives one column.
pub(super) fn name(row: &PgRow) -> Result<Name> {
    Columns::of(row).name()
}

/// What a statement of one column gives.
pub(super) fn only<T>(row: &PgRow) -> Result<T>
where
    T: for<'r> Decode<'r, Postgres> + Type<Postgres>,
{
    row.try_get(0)
}

/// What identifies a once key, from `keys/hold_places.sql`.
pub(super) fn place(row: &PgRow) -> Result<(String, String, Vec<u8>)> {
    let mut c = Columns::of(row);
    Ok((c.next()?, c.next()?, c.next()?))
}

/// Once keys as the arrays that the statements unfold.
#[derive(Debug, Default)]
pub(super) struct KeyArrays {
    pub(super) boundaries: Vec<String>,
    pub(super) scopes: Vec<String>,
    pub(super) hashes: Vec<Vec<u8>>,
    pub(super) values: Vec<String>,
}

impl KeyArrays {
    pub(super) fn of<'k>(keys: impl IntoIterator<Item = &'k OnceKey>) -> Self {
        let mut arrays = Self::default();
        for key in keys {
            arrays.boundaries.push(key.boundary().as_str().to_owned());
            arrays.scopes.push(key.scope().as_str().to_owned());
            arrays.hashes.push(key.hash().to_vec());
            arrays.values.push(key.value().to_owned());
        }
        arrays
    }
}

/// Writes jobs that are not there yet; one with its id is the same job. Gives how many were new.
pub(super) async fn insert_jobs(step: &mut Step<'_>, jobs: &[&JobRecord]) -> Result<u64> {
    if jobs.is_empty() {
        return Ok(0);
    }
    macro_rules! column {
        (|$job:ident| $value:expr) => {
            jobs.iter().map(|$job| $value).collect::<Vec<_>>()
        };
    }
    Ok(change!(
        step,
        include_str!("sql/jobs/insert.sql"),
        id = column!(|job| job.id),
        queue = column!(|job| job.queue.as_str()),
        kind = column!(|job| job.kind.as_str()),
        payload_version = column!(|job| i32::from(job.payload_version)),
        priority = column!(|job| job.priority),
        state = column!(|job| job.state.as_str()),
        due_at = column!(|job| job.due_at),
        enqueued_at = column!(|job| job.enqueued_at),
        once_boundary = column!(|job| job.once.as_ref().map(|key| key.boundary().as_str())),
        once_scope = column!(|job| job.once.as_ref().map(|key| key.scope().as_str())),
        once_value = column!(|job| job.once.as_ref().map(OnceKey::value)),
        fingerprint = column!(|job| job.fingerprint.map(|print| print.as_bytes().to_vec())),
        guarantee = column!(|job| job.guarantee.as_str()),
        max_attempts = column!(|job| i64::from(job.retry.max_attempts)),
        retry_base_ms = column!(|job| count(job.retry.base_ms)),
        retry_cap_ms = column!(|job| count(job.retry.cap_ms)),
        retry_jitter_percent = column!(|job| i16::from(job.retry.jitter_percent)),
        run_timeout_ms = column!(|job| count(job.run_timeout_ms)),
        keep_ms = column!(|job| count(job.keep_ms)),
        keep_key_ms = column!(|job| count(job.keep_key_ms)),
        payload = column!(|job| job.payload.as_str()),
    ))
}
