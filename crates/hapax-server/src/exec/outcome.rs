//! What is said at the end: the exit code, one line on stderr, and one JSON object.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;

use hapax::clock::Micros;
use hapax::id::Fence;
use hapax::store::Scope;
use serde::Serialize;
use serde_json::Value;

use super::child::End;
use super::plan::Plan;
use crate::time::Iso;

/// Exit codes of `exec`; every other one is the child's own.
pub(super) mod code {
    /// The child ran, its result could not be recorded.
    pub(in crate::exec) const IN_DOUBT: u8 = 70;
    /// Held by another for longer than the wait.
    pub(in crate::exec) const BUSY: u8 = 75;
    /// The lease was lost while the child ran, which was stopped.
    pub(in crate::exec) const LOST: u8 = 76;
    /// The time was up, the child was stopped.
    pub(in crate::exec) const TIMED_OUT: u8 = 124;
    /// A mistake of hapax itself.
    pub(in crate::exec) const FAILED: u8 = 125;
    /// The command cannot be executed.
    pub(in crate::exec) const CANNOT_EXECUTE: u8 = 126;
    /// The command was not found.
    pub(in crate::exec) const NOT_FOUND: u8 = 127;
}

/// What happened, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// The child ran to its end, good or bad.
    Ran,
    /// It was done before.
    SkippedDone,
    /// Another was at it.
    SkippedBusy,
    /// The lease was lost.
    Lost,
    /// The result could not be recorded.
    InDoubt,
    /// The store was away.
    StoreDown,
    /// The time was up.
    Timeout,
    /// It never ran: the command, or hapax itself.
    NotRun,
}

/// Who did it before, and when.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Done {
    /// Host and process.
    pub(super) by: String,
    /// Store's wall clock.
    pub(super) at: Option<Iso>,
    /// What was kept of it.
    pub(super) result: Value,
}

/// Everything that is known at the end.
#[derive(Debug, Serialize)]
pub(super) struct Ending {
    /// What happened.
    pub(super) outcome: Outcome,
    /// The exit code of `exec`.
    pub(super) exit: u8,
    /// For people.
    pub(super) message: String,
    /// Whom the store protects; nothing without a store.
    pub(super) scope: Option<Scope>,
    /// The lock.
    pub(super) lock: Option<String>,
    /// The key.
    pub(super) key: Option<String>,
    /// The period.
    pub(super) period: Option<String>,
    /// The fence that the child had.
    pub(super) fence: Option<Fence>,
    /// Of the last attempt.
    pub(super) run_id: Option<String>,
    /// How often the child was started.
    pub(super) attempts: u32,
    /// The child's own exit code.
    pub(super) child_exit: Option<i32>,
    /// The signal that ended the child.
    pub(super) child_signal: Option<i32>,
    /// When the first attempt began (this host's wall clock).
    pub(super) started_at: Option<Iso>,
    /// When the last attempt ended (this host's wall clock).
    pub(super) ended_at: Option<Iso>,
    /// Who did it before.
    pub(super) done: Option<Done>,
    /// What the child told.
    pub(super) report: BTreeMap<String, Value>,
}

impl Ending {
    /// An ending in which nothing ran yet.
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            outcome: Outcome::NotRun,
            exit: code::FAILED,
            message: String::new(),
            scope: None,
            lock: plan.lock.clone(),
            key: plan.once.as_ref().map(|once| once.key.clone()),
            period: None,
            fence: None,
            run_id: None,
            attempts: 0,
            child_exit: None,
            child_signal: None,
            started_at: None,
            ended_at: None,
            done: None,
            report: BTreeMap::new(),
        }
    }

    /// Sets what happened.
    pub(super) fn set(&mut self, outcome: Outcome, exit: u8, message: impl Into<String>) {
        (self.outcome, self.exit, self.message) = (outcome, exit, message.into());
    }

    /// Sets what the end of the child means.
    pub(super) fn set_end(&mut self, end: End, name: &str, command: &str) {
        (self.child_exit, self.child_signal) = (None, None);
        match end {
            End::Exited(exit) => {
                self.child_exit = Some(exit);
                let exit = u8::try_from(exit & 0xff).unwrap_or(code::FAILED);
                self.set(Outcome::Ran, exit, format!("{name}: the command ended with {exit}"));
            }
            End::Killed(signal) => {
                self.child_signal = Some(signal);
                let exit = u8::try_from(128 + signal).unwrap_or(code::FAILED);
                self.set(Outcome::Ran, exit, format!("{name}: the command was ended by signal {signal}"));
            }
            End::Cannot(errno) => self.set_cannot(errno, command),
            End::Lost => {
                let message = format!("{name}: the lease was lost while the command ran; the command was stopped");
                self.set(Outcome::Lost, code::LOST, message);
            }
            End::TimedOut => {
                self.set(Outcome::Timeout, code::TIMED_OUT, format!("{name}: the time is up; the command was stopped"));
            }
            End::Unwatched => {
                let message =
                    format!("{name}: the watchdog of the command was ended by somebody; the command was stopped");
                self.set(Outcome::NotRun, code::FAILED, message);
            }
        }
    }

    fn set_cannot(&mut self, errno: i32, command: &str) {
        let error = std::io::Error::from_raw_os_error(errno);
        match error.kind() {
            std::io::ErrorKind::NotFound => {
                let message = format!("`{command}` was not found, or the interpreter that its first line names");
                self.set(Outcome::NotRun, code::NOT_FOUND, message);
            }
            // A process table or a memory that is full is no fault of the command.
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::OutOfMemory => {
                self.set(Outcome::NotRun, code::FAILED, format!("`{command}` could not be started: {error}"));
            }
            _ => self.set(Outcome::NotRun, code::CANNOT_EXECUTE, format!("`{command}` cannot be executed: {error}")),
        }
    }

    /// As one line of JSON.
    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|error| format!("{{\"message\":\"{error}\"}}"))
    }

    /// What is kept with the key, for those who ask later.
    pub(super) fn kept(&self) -> String {
        let kept = serde_json::json!({
            "outcome": self.outcome, "exit": self.exit, "run_id": self.run_id, "attempts": self.attempts,
            "fence": self.fence, "started_at": self.started_at, "ended_at": self.ended_at, "report": self.report,
        });
        kept.to_string()
    }
}

/// The file for the result, opened before anything runs, so that a path that cannot be written is found in time.
#[derive(Debug)]
pub(super) struct ResultFile(File);

impl ResultFile {
    /// Opens it; an old result stays until there is a new one.
    pub(super) fn open(path: &std::path::Path) -> std::io::Result<Self> {
        std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(path).map(Self)
    }

    /// Writes the object.
    pub(super) fn write(mut self, ending: &Ending) -> std::io::Result<()> {
        if self.0.metadata()?.is_file() {
            self.0.set_len(0)?;
        }
        self.0.write_all(format!("{}\n", ending.json()).as_bytes())
    }
}

/// A point of time on this host's wall clock.
pub(super) fn wall_now() -> Micros {
    hapax::clock::Clock::system().now().wall
}
