//! Exit codes, and the one error type of the program: what is wrong, the mend, and which code says so to a script.

use std::fmt;
use std::process::ExitCode;

use hapax::error::{Error, ErrorKind, Outcome};
use hapax::model::Refusal;
use miette::Diagnostic;

/// What a verb gives: an exit code that is no error, or a failure.
pub(crate) type Answer = Result<Exit, Failure>;

/// Exit codes of every verb but `exec`, which passes its child's through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Exit {
    /// It worked.
    Ok = 0,
    /// It worked and the answer is no, or part of it failed.
    No = 1,
    /// Bad usage or bad input; nothing was changed.
    Usage = 2,
    /// No such job.
    NotFound = 3,
    /// Refused: the state does not allow it, or the once key stands for other work.
    Conflict = 4,
    /// The store cannot be reached, is held by others, may not be written, or is full. Nothing was changed.
    StoreDown = 69,
    /// It may have happened.
    InDoubt = 70,
    /// The store is not usable, or was written by a newer hapax.
    Unusable = 78,
    /// A mistake of hapax itself.
    Internal = 125,
    /// Ended by Ctrl-C.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The code for an error of the library.
fn exit_of(error: &Error) -> Exit {
    if error.outcome() == Outcome::MayHaveHappened {
        return Exit::InDoubt;
    }
    match error.kind() {
        ErrorKind::Invalid => Exit::Usage,
        ErrorKind::Refused if matches!(error.refusal(), Some(Refusal::NotFound { .. })) => Exit::NotFound,
        ErrorKind::Refused | ErrorKind::KeyReused | ErrorKind::Quarantined | ErrorKind::Held | ErrorKind::Lost => {
            Exit::Conflict
        }
        ErrorKind::Unreachable | ErrorKind::Busy | ErrorKind::ReadOnly | ErrorKind::Full | ErrorKind::Closed => {
            Exit::StoreDown
        }
        ErrorKind::Unusable | ErrorKind::TooNew => Exit::Unusable,
        _ => Exit::Internal,
    }
}

/// An error on its way to a person or a script.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
    help: Option<String>,
    busy: bool,
}

impl Failure {
    /// An error with this code.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), help: None, busy: false }
    }

    /// Bad input: the field and what is wrong with it, then the mend.
    pub(crate) fn usage(message: impl Into<String>, mend: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message).mend(mend)
    }

    /// Adds how to mend it.
    pub(crate) fn mend(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The same with another code.
    pub(crate) fn with_exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// Says before the message where it happened.
    pub(crate) fn at(mut self, place: impl fmt::Display) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// The code to end with.
    pub(crate) const fn exit(&self) -> Exit {
        self.exit
    }

    /// Whether another writer held the store and nothing was changed: the same call again may work.
    pub(crate) const fn is_busy(&self) -> bool {
        self.busy
    }

    /// How to mend it, if anything is known.
    pub(crate) fn help_text(&self) -> Option<&str> {
        self.help.as_deref()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let mut message = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            // Many errors repeat their cause in their own text.
            let text = error.to_string();
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            cause = error.source();
        }
        let busy = error.kind() == ErrorKind::Busy && error.outcome() == Outcome::DidNotHappen;
        let failure = Self { busy, ..Self::new(exit_of(&error), message.clone()) };
        // The library says "field what; mend".
        match message.rsplit_once("; ") {
            Some((what, mend)) => Self { message: what.to_owned(), ..failure }.mend(mend),
            None => failure,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl Diagnostic for Failure {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_error_has_its_code() {
        let certain = |kind| Failure::from(Error::did_not_happen(kind, "no")).exit() as u8;
        assert_eq!(certain(ErrorKind::Invalid), 2);
        assert_eq!(certain(ErrorKind::Refused), 4);
        assert_eq!(certain(ErrorKind::KeyReused), 4);
        assert_eq!(certain(ErrorKind::Quarantined), 4);
        for down in [ErrorKind::Unreachable, ErrorKind::Busy, ErrorKind::ReadOnly, ErrorKind::Full] {
            assert_eq!(certain(down), 69, "{down:?}");
        }
        assert_eq!(certain(ErrorKind::Unusable), 78);
        assert_eq!(certain(ErrorKind::TooNew), 78);
        assert_eq!(certain(ErrorKind::Store), 125);
        let unclear = Error::may_have_happened(ErrorKind::Unreachable, "gone while committing");
        assert_eq!(Failure::from(unclear).exit(), Exit::InDoubt, "what may have happened is never called down");
        let unknown = Error::from(Refusal::NotFound { what: "job 7".to_owned() });
        assert_eq!(Failure::from(unknown).exit(), Exit::NotFound);
    }

    #[test]
    fn the_mend_stands_apart_from_the_message() {
        let failure = Failure::from(Error::invalid("queue", "is empty", "give at least one character"));
        assert_eq!(failure.to_string(), "queue is empty");
        assert_eq!(failure.help_text(), Some("give at least one character"));
    }
}
