//! What SQLite says, as one of our errors. The only file that knows its codes.

use std::path::Path;
use std::time::Duration;

use rusqlite::ErrorCode;
use rusqlite::ffi;

use crate::error::{Error, ErrorKind, Outcome};

/// Whether another connection holds what we want: waiting helps.
pub(super) fn is_busy(cause: &rusqlite::Error) -> bool {
    match cause.sqlite_error() {
        // A transaction that has read an old state may never write: its snapshot will not come back by waiting.
        Some(error) if error.extended_code == ffi::SQLITE_BUSY_SNAPSHOT => false,
        Some(error) => matches!(error.code, ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked),
        None => false,
    }
}

/// An error of a step before its commit: it was undone, so nothing happened.
pub(super) fn before_commit(file: &Path, cause: rusqlite::Error) -> Error {
    error(file, cause, Outcome::DidNotHappen)
}

/// An error of the commit itself.
pub(super) fn at_commit(file: &Path, cause: rusqlite::Error) -> Error {
    // Busy: refused before the first byte was written; the transaction is still open, and we roll it back. A constraint
    // is a deferred one, or a commit hook of the user's: both are asked before anything is written. Whatever else it
    // was, the commit record may be on the disk and come back after a crash.
    let certain = matches!(
        cause.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::ConstraintViolation)
    );
    error(file, cause, if certain { Outcome::DidNotHappen } else { Outcome::MayHaveHappened })
}

/// The same error for each call of a group.
pub(super) fn same(error: &Error) -> Error {
    match error.outcome() {
        Outcome::DidNotHappen => Error::did_not_happen(error.kind(), error.to_string()),
        Outcome::MayHaveHappened => Error::may_have_happened(error.kind(), error.to_string()),
    }
}

/// The write lock could not be had in time.
pub(super) fn busy(file: &Path, waited_ms: u64) -> Error {
    let holder = match super::probe::lock_holder(file) {
        Some(pid) if pid == std::process::id() => "another connection of this process".to_owned(),
        Some(pid) => format!("another process (pid {pid})"),
        None => "another process".to_owned(),
    };
    let seconds = Duration::from_millis(waited_ms).as_secs_f64();
    let text = format!(
        "store busy: {holder} has held the write lock for {seconds:.1} s; it is free again once that one commits or \
         ends. The file is {}",
        file.display()
    );
    Error::did_not_happen(ErrorKind::Busy, text)
}

fn error(file: &Path, cause: rusqlite::Error, outcome: Outcome) -> Error {
    let (kind, what) = meaning(&cause);
    let text = format!("{}: {what}", file.display());
    let error = match outcome {
        Outcome::DidNotHappen => Error::did_not_happen(kind, text),
        Outcome::MayHaveHappened => Error::may_have_happened(kind, format!("{text}; whether it was kept is not known")),
    };
    error.with_source(cause)
}

fn meaning(cause: &rusqlite::Error) -> (ErrorKind, String) {
    match cause {
        rusqlite::Error::StatementChangedRows(n) => {
            (ErrorKind::Store, format!("a guarded write found {n} rows instead of one; this is a fault of hapax"))
        }
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::IntegralValueOutOfRange(..) => {
            (ErrorKind::Unusable, format!("a row holds what no hapax wrote: {cause}"))
        }
        rusqlite::Error::SqliteFailure(..) | rusqlite::Error::SqlInputError { .. } => meaning_of_code(cause),
        other => (ErrorKind::Store, other.to_string()),
    }
}

fn meaning_of_code(cause: &rusqlite::Error) -> (ErrorKind, String) {
    let extended = cause.sqlite_error().map_or(0, |error| error.extended_code);
    let code = cause.sqlite_error_code().unwrap_or(ErrorCode::Unknown);
    match code {
        ErrorCode::DatabaseBusy if extended == ffi::SQLITE_BUSY_SNAPSHOT => (
            ErrorKind::Busy,
            "another wrote since this transaction first read; begin transactions that write with BEGIN IMMEDIATE"
                .to_owned(),
        ),
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            (ErrorKind::Busy, "store busy: another connection holds its lock".to_owned())
        }
        ErrorCode::ReadOnly if extended == ffi::SQLITE_READONLY_DBMOVED => {
            (ErrorKind::Unusable, "the file was moved or deleted while it was in use; open it again".to_owned())
        }
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied => (
            ErrorKind::ReadOnly,
            "the file can be read but not written; give this user the right to write it and its folder".to_owned(),
        ),
        ErrorCode::DiskFull => (ErrorKind::Full, "no room is left on its disk; make room and try again".to_owned()),
        ErrorCode::NotADatabase => {
            (ErrorKind::Unusable, "this is not an SQLite database (or an encrypted one); name another file".to_owned())
        }
        ErrorCode::DatabaseCorrupt => (
            ErrorKind::Unusable,
            format!(
                "the database is damaged ({cause}); restore a backup, or save what is left with `sqlite3 .recover`"
            ),
        ),
        ErrorCode::CannotOpen => (ErrorKind::Unreachable, format!("cannot be opened: {cause}")),
        ErrorCode::SystemIoFailure => (ErrorKind::Unreachable, format!("its disk reports an error: {cause}")),
        ErrorCode::ConstraintViolation | ErrorCode::TooBig => {
            (ErrorKind::Invalid, format!("a limit of the schema is broken: {cause}"))
        }
        _ if cause.to_string().contains("no such table: hapax_") => {
            (ErrorKind::Unusable, "the database has no hapax tables; open it once with `SqliteStore::open`".to_owned())
        }
        _ => (ErrorKind::Store, cause.to_string()),
    }
}
