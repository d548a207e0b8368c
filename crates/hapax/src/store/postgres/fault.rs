//! What the server and its driver say, as one of our errors. The only file that knows SQLSTATE codes.

use std::io;
use std::time::Duration;

use sqlx::error::DatabaseError;

use crate::error::{Error, ErrorKind, Outcome};
use crate::id::JobId;

/// An error of a step before its commit: it was undone, so nothing happened.
pub(super) fn before_commit(address: &str, cause: sqlx::Error) -> Error {
    error(address, cause, Outcome::DidNotHappen)
}

/// An error of the commit itself.
pub(super) fn at_commit(address: &str, cause: sqlx::Error) -> Error {
    // An answer that the transaction failed is certain. A lost connection is not, nor a server that is going down, nor
    // one that gave up waiting for its standby: the commit record may be on the disk.
    let certain = cause
        .as_database_error()
        .and_then(DatabaseError::code)
        .is_some_and(|code| !["57", "58", "08", "XX"].iter().any(|class| code.starts_with(class)));
    error(address, cause, if certain { Outcome::DidNotHappen } else { Outcome::MayHaveHappened })
}

/// Waits for an answer of the server, but not for ever: what lies between may have fallen silent without closing
/// anything. Whoever gives up ends the connection with it, so that what was not committed never is.
pub(super) async fn within<T>(patience: Duration, answer: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    let late = |_| {
        let text = format!("no answer within {} ms", patience.as_millis());
        Err(sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, text)))
    };
    tokio::time::timeout(patience, answer).await.unwrap_or_else(late)
}

/// Another transaction took the id of a job for other work.
pub(super) fn taken_id(job: JobId) -> sqlx::Error {
    sqlx::Error::AnyDriverError(Box::new(TakenId(job)))
}

#[derive(Debug, thiserror::Error)]
#[error("job {0} was enqueued by another transaction just now, for other work; give each job an id of its own")]
struct TakenId(JobId);

/// Nothing was free to ask with for too long.
pub(super) fn busy(address: &str, waited_ms: u64) -> Error {
    let text = format!(
        "{address}: every connection of this handle has been in use for {waited_ms} ms; try again, or allow it more \
         connections"
    );
    Error::did_not_happen(ErrorKind::Busy, text)
}

/// The server was asked for what it gives at once, and has not answered.
pub(super) fn silent(address: &str, waited: Duration) -> Error {
    let text = format!("{address}: no answer within {} s; is the network whole?", waited.as_secs());
    Error::did_not_happen(ErrorKind::Unreachable, text)
}

/// Whether the connection is of no more use.
pub(super) fn is_connection_lost(cause: &sqlx::Error) -> bool {
    match cause {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => true,
        sqlx::Error::Database(error) => {
            error.code().is_some_and(|code| code.starts_with("57P") || code.starts_with("08") || code == "25P03")
        }
        _ => false,
    }
}

/// Whether our tables are not there.
pub(super) fn is_missing(cause: &sqlx::Error) -> bool {
    let code = cause.as_database_error().and_then(DatabaseError::code);
    code.is_some_and(|code| matches!(&*code, "42P01" | "3F000"))
}

/// Whether nobody answered in time.
pub(super) fn is_late(cause: &sqlx::Error) -> bool {
    matches!(cause, sqlx::Error::Io(error) if error.kind() == io::ErrorKind::TimedOut)
}

fn error(address: &str, cause: sqlx::Error, outcome: Outcome) -> Error {
    let (kind, mut what) = meaning(&cause);
    if let Some((_, schema)) = address.split_once("?schema=") {
        what = what.replace("in schema hapax ", &format!("in schema {schema} "));
        what = what.replace("on schema hapax ", &format!("on schema {schema} "));
    }
    let text = format!("{address}: {what}");
    let error = match outcome {
        Outcome::DidNotHappen => Error::did_not_happen(kind, text),
        Outcome::MayHaveHappened => Error::may_have_happened(kind, format!("{text}; whether it was kept is not known")),
    };
    error.with_source(cause)
}

fn meaning(cause: &sqlx::Error) -> (ErrorKind, String) {
    match cause {
        sqlx::Error::Database(error) => {
            let code = error.code().unwrap_or_default();
            meaning_of_code(&code, error.message())
        }
        sqlx::Error::Io(error) => (ErrorKind::Unreachable, meaning_of_io(error)),
        sqlx::Error::Tls(error) => {
            (ErrorKind::Unreachable, format!("no encrypted connection: {error}; see `sslmode` in the store URL"))
        }
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => {
            (ErrorKind::Unusable, format!("a row holds what no hapax wrote: {cause}"))
        }
        sqlx::Error::AnyDriverError(error) if error.is::<TakenId>() => (ErrorKind::Invalid, error.to_string()),
        sqlx::Error::Configuration(error) => (ErrorKind::Invalid, format!("the store URL cannot be used: {error}")),
        other => (ErrorKind::Store, other.to_string()),
    }
}

fn meaning_of_io(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            format!("nobody answers there ({error}); is the server running, and are host and port right?")
        }
        io::ErrorKind::NotFound => format!("no such host or socket ({error}); check the host of the store URL"),
        io::ErrorKind::TimedOut => format!("no answer in time ({error})"),
        _ => format!("the connection broke: {error}"),
    }
}

fn meaning_of_code(code: &str, said: &str) -> (ErrorKind, String) {
    let kind = match code {
        "40001" | "40P01" | "55P03" | "57014" => ErrorKind::Busy,
        "25006" => ErrorKind::ReadOnly,
        "53100" => ErrorKind::Full,
        "25P02" => ErrorKind::Effect,
        "42501" | "42P01" | "3F000" | "42883" | "42703" => ErrorKind::Unusable,
        "28P01" | "28000" | "3D000" | "25P03" | "25P04" => ErrorKind::Unreachable,
        _ if code.starts_with("08") || code.starts_with("53") || code.starts_with("57P") => ErrorKind::Unreachable,
        _ if code.starts_with("22") || code.starts_with("23") || code.starts_with("54") => ErrorKind::Invalid,
        _ => ErrorKind::Store,
    };
    (kind, format!("{said}{}", mend(code, said)))
}

/// What to do about it, if that is known.
fn mend(code: &str, said: &str) -> &'static str {
    match code {
        "40001" | "40P01" => "; another transaction was in the way, try again",
        "55P03" => "; another transaction has held the row for too long, try again once it has ended",
        "57014" => "; the server ended the statement (statement_timeout, or by hand)",
        "25006" => "; the server takes no writes now: it is a standby, or was set read-only",
        "53100" => "; make room on the server's disk and try again",
        "53300" => "; raise max_connections, or use a pooler",
        "25P02" => "; an earlier statement of this transaction failed: give its error back instead of going on",
        "42501" => {
            "; let the owner run `hapax migrate`, then `grant usage on schema hapax to ROLE; grant select, insert, \
             update, delete on all tables in schema hapax to ROLE; grant usage, select, update on all sequences in \
             schema hapax to ROLE`"
        }
        "42P01" | "3F000" => "; run `hapax migrate` on this database, or name the right schema",
        "28P01" | "28000" => "; check user and password of the store URL, and the server's pg_hba.conf",
        "3D000" => "; create the database, or name another in the store URL",
        "57P01" | "57P02" | "57P03" => "; the server is starting or stopping, try again",
        "25P03" => "; the transaction stood still for too long, and the server ended it",
        _ if code.starts_with("23") || said.contains("invalid input syntax for type json") => {
            " (a limit of the schema is broken)"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_mean_what_a_caller_may_act_on() {
        for (code, kind) in [
            ("40P01", ErrorKind::Busy),
            ("25006", ErrorKind::ReadOnly),
            ("53100", ErrorKind::Full),
            ("53300", ErrorKind::Unreachable),
            ("57P01", ErrorKind::Unreachable),
            ("42501", ErrorKind::Unusable),
            ("23514", ErrorKind::Invalid),
            ("22021", ErrorKind::Invalid),
            ("0A000", ErrorKind::Store),
        ] {
            assert_eq!(meaning_of_code(code, "x").0, kind, "{code}");
        }
    }

    #[test]
    fn a_lost_answer_to_the_commit_is_not_certain() {
        let lost = || sqlx::Error::Io(io::Error::from(io::ErrorKind::ConnectionReset));
        assert_eq!(at_commit("x", lost()).outcome(), Outcome::MayHaveHappened);
        assert_eq!(before_commit("x", lost()).outcome(), Outcome::DidNotHappen);
        assert_eq!(before_commit("x", lost()).kind(), ErrorKind::Unreachable);
    }
}
