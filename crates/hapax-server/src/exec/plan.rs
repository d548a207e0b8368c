//! What is to be done: the command line of `hapax exec` after every check that needs no store.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use hapax::model::schedule::Period;
use hapax::store::Scope;
use jiff::tz::TimeZone;

/// When the work of a period counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DoneOn {
    /// When the command has ended with 0; else the next caller may do it
    #[default]
    Success,
    /// When the command has ended by itself, with any code
    Exit,
    /// When the command is about to start: never twice, perhaps not at all
    Start,
}

/// What to do when the store is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnStoreDown {
    /// Exit with 69
    #[default]
    Fail,
    /// Exit with 0, the command not run
    Skip,
    /// Run the command all the same, protected by nothing
    Run,
}

/// Whom the store must protect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum WantedScope {
    /// The processes of this host
    Host,
    /// Every host that reaches the store
    Fleet,
}

impl WantedScope {
    /// Whether a store does.
    pub(super) fn is_met(self, scope: Scope) -> bool {
        match self {
            Self::Host => matches!(scope, Scope::Host | Scope::Fleet),
            Self::Fleet => scope == Scope::Fleet,
        }
    }
}

/// Once per period.
#[derive(Clone, Debug)]
pub(crate) struct Once {
    /// What is done once.
    pub(crate) key: String,
    /// How often it may be done again.
    pub(crate) period: Period,
    /// Where its days begin.
    pub(crate) zone: TimeZone,
}

/// A checked command line.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The command and its arguments.
    pub(crate) command: Vec<OsString>,
    /// The key and its period.
    pub(crate) once: Option<Once>,
    /// The lock.
    pub(crate) lock: Option<String>,
    /// How many may hold the lock.
    pub(crate) permits: u32,
    /// How long to wait for others.
    pub(crate) wait: Option<Duration>,
    /// Length of the leases.
    pub(crate) ttl: Duration,
    /// Longest time of one attempt.
    pub(crate) timeout: Option<Duration>,
    /// From TERM to KILL.
    pub(crate) grace: Duration,
    /// When it counts as done.
    pub(crate) done_on: DoneOn,
    /// How often this call tries.
    pub(crate) attempts: u32,
    /// What to do without a store.
    pub(crate) on_store_down: OnStoreDown,
    /// Exit code when it was done before.
    pub(crate) skip_code: u8,
    /// Where the result goes.
    pub(crate) result_file: Option<PathBuf>,
    /// Whom the store must protect.
    pub(crate) scope: Option<WantedScope>,
    /// Say nothing when nothing is wrong.
    pub(crate) quiet: bool,
}

impl Plan {
    /// What is held or done, for messages: `backup 2026-11-30`, `lock deploy`.
    pub(super) fn name(&self, period: Option<&str>) -> String {
        match (&self.once, &self.lock, period) {
            (Some(once), _, Some(period)) => format!("{} {period}", once.key),
            (Some(once), _, None) => once.key.clone(),
            (None, Some(lock), _) => format!("lock {lock}"),
            (None, None, _) => "the command".to_owned(),
        }
    }
}
