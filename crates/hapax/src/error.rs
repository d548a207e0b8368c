//! One error type that admits ignorance: what kind of trouble, and whether the thing may have happened all the same.

use std::fmt;

use crate::model::Refusal;

/// Result with an [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, as a caller may act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller's input breaks a limit or a format. The text names the field and the mend.
    Invalid,
    /// The write lost its guard, or the state does not allow it; see [`Error::refusal`]. Nothing was changed.
    Refused,
    /// The store cannot be reached or opened.
    Unreachable,
    /// Another writer holds the store for longer than we wait, or undid the commit that it was to share with this one.
    /// Try again.
    Busy,
    /// The store may be read but not written.
    ReadOnly,
    /// No room is left on the store's disk.
    Full,
    /// The file or schema is not hapax's, is damaged, or lies on a file system that cannot keep the promise.
    Unusable,
    /// The store was written by a newer hapax than this program may work with.
    TooNew,
    /// The store was closed, or its thread ended.
    Closed,
    /// The once key stands for other work: the same key came with another fingerprint.
    KeyReused,
    /// The message is older than its key's memory: it may have taken effect before, and nobody would know.
    Quarantined,
    /// The lock is held by others, or the once key's work is being done, for longer than the caller wants to wait.
    Held,
    /// The lease was lost: another may hold it now.
    Lost,
    /// The caller's own code failed inside a transaction of ours; the transaction was rolled back.
    Effect,
    /// Anything else that the store reported.
    Store,
}

/// Whether the change may have been made in spite of the error. Unknown means that it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Certain: nothing was changed.
    DidNotHappen,
    /// The change may be there: ask again with the same id, or read the ledger. Never just do it again.
    MayHaveHappened,
}

/// An error of hapax or of its store.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    outcome: Outcome,
    message: String,
    refusal: Option<Refusal>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error after which nothing was changed, for certain.
    pub fn did_not_happen(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self::build(kind, Outcome::DidNotHappen, message.into())
    }

    /// An error after which the change may have been made.
    pub fn may_have_happened(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self::build(kind, Outcome::MayHaveHappened, message.into())
    }

    /// Bad input: the field, what is wrong with it, and how to mend it.
    pub fn invalid(field: impl fmt::Display, what: impl fmt::Display, mend: impl fmt::Display) -> Self {
        Self::did_not_happen(ErrorKind::Invalid, format!("{field} {what}; {mend}"))
    }

    /// Adds the error that caused this one.
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// What kind of trouble it is.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the change may have been made.
    pub fn outcome(&self) -> Outcome {
        self.0.outcome
    }

    /// Why the store's law refused the change, for [`ErrorKind::Refused`].
    pub fn refusal(&self) -> Option<&Refusal> {
        self.0.refusal.as_ref()
    }

    /// Whether the same call may succeed later without anybody's help.
    pub fn is_retryable(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Unreachable | ErrorKind::Busy | ErrorKind::Full | ErrorKind::ReadOnly)
    }

    fn build(kind: ErrorKind, outcome: Outcome, message: String) -> Self {
        Self(Box::new(Inner { kind, outcome, message, refusal: None, source: None }))
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let mut error = Self::did_not_happen(ErrorKind::Refused, refusal.to_string());
        error.0.refusal = Some(refusal);
        error
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("outcome", &self.0.outcome)
            .field("message", &self.0.message)
            .field("source", &self.0.source)
            .finish()
    }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a text".to_owned())
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|e| e as _)
    }
}
