//! The one thread of a handle that writes, with group commit.
//!
//! 1. It waits for a call, then for the file's write lock, and takes in whatever else is waiting by then.
//! 2. Each call is a step with a savepoint of its own: one that fails or panics is undone alone.
//! 3. One COMMIT for all of them; only then is any of them answered.
//!
//! A step reads the clock once the lock is held, so that waiting for the lock never counts as time held. A call whose
//! caller has gone away is carried out all the same.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::seal::Guard;
use super::{fault, probe};
use crate::clock::{Anchor, Clock, Deadline, Now};
use crate::error::{Error, ErrorKind, Result, panic_text};

/// Most calls that share a commit.
const GROUP_CALLS_MAX: usize = 256;
/// Longest time that a group works before it commits, in milliseconds, so that other processes get their turn.
const GROUP_MS_MAX: u64 = 20;

/// What the thread holds: the connection and what its steps need to know.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) connection: Connection,
    pub(super) clock: Clock,
    pub(super) file: PathBuf,
    /// Which file it was when it was opened.
    pub(super) identity: Option<(u64, u64)>,
    pub(super) busy_ms: u64,
    /// Over effects.
    pub(super) guard: Guard,
}

/// The way to the thread.
#[derive(Debug)]
pub(super) struct Writer(Mutex<Option<Sender<Call>>>);

enum Call {
    Grouped(Box<dyn Grouped>),
    Alone(Box<dyn FnOnce(&Core) + Send>),
    Close(oneshot::Sender<()>),
}

/// A call that may share its commit with others.
trait Grouped: Send {
    /// When it was asked for.
    fn since(&self) -> Anchor;
    /// Does its step; says whether what it did stands.
    fn run(&mut self, core: &Core) -> bool;
    /// Answers: with what the step gave, or with what went wrong around it.
    fn answer(self: Box<Self>, trouble: Option<Error>);
}

struct Step<T, F> {
    since: Anchor,
    work: Option<F>,
    result: Option<Result<T>>,
    answer: oneshot::Sender<Result<T>>,
}

impl<T, F> Grouped for Step<T, F>
where
    T: Send + 'static,
    F: FnOnce(&Connection, Now) -> rusqlite::Result<T> + Send + 'static,
{
    fn since(&self) -> Anchor {
        self.since
    }

    fn run(&mut self, core: &Core) -> bool {
        let Some(work) = self.work.take() else { return false };
        let result = catch_unwind(AssertUnwindSafe(|| work(&core.connection, core.clock.now())));
        let result = match result {
            Ok(result) => result.map_err(|cause| fault::before_commit(&core.file, cause)),
            Err(panic) => Err(panicked(&*panic)),
        };
        let stands = result.is_ok();
        self.result = Some(result);
        stands
    }

    fn answer(self: Box<Self>, trouble: Option<Error>) {
        let answer = match (trouble, self.result) {
            // What its own step said is nearer to the caller than what befell the group.
            (_, Some(Err(own))) => Err(own),
            (Some(trouble), _) => Err(trouble),
            (None, Some(Ok(value))) => Ok(value),
            (None, None) => Err(Error::did_not_happen(ErrorKind::Store, "the step was not reached")),
        };
        // The caller may have gone away; its step counts all the same.
        drop(self.answer.send(answer));
    }
}

impl Writer {
    /// Starts the thread. `open` runs on it, so that no caller's runtime waits for a disk.
    pub(super) async fn start(open: impl FnOnce() -> Result<Core> + Send + 'static) -> Result<Self> {
        let (calls, queue) = channel();
        let (opened, answer) = oneshot::channel();
        let work = move || match open() {
            Ok(core) => {
                drop(opened.send(Ok(())));
                Thread { core, queue, waiting: VecDeque::new() }.run();
            }
            Err(error) => drop(opened.send(Err(error))),
        };
        std::thread::Builder::new().name("hapax-writer".to_owned()).spawn(work).map_err(|cause| {
            Error::did_not_happen(ErrorKind::Unreachable, "no thread for the store could be started").with_source(cause)
        })?;
        answer.await.map_err(|_| thread_ended())??;
        Ok(Self(Mutex::new(Some(calls))))
    }

    /// Has a step carried out in a transaction, by itself or with others. From the first poll on it will be, whether
    /// or not anybody waits for the answer.
    pub(super) async fn step<T, F>(&self, step: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection, Now) -> rusqlite::Result<T> + Send + 'static,
    {
        let (sender, answer) = oneshot::channel();
        let step = Step { since: Deadline::anchor(), work: Some(step), result: None, answer: sender };
        self.send(Call::Grouped(Box::new(step)))?;
        answer.await.map_err(|_| thread_ended())?
    }

    /// Has something carried out between groups, which sees to its own transaction.
    pub(super) async fn alone<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Core) -> Result<T> + Send + 'static,
    {
        let (sender, answer) = oneshot::channel();
        let call = move |core: &Core| {
            let result = catch_unwind(AssertUnwindSafe(|| work(core))).unwrap_or_else(|panic| Err(panicked(&*panic)));
            drop(sender.send(result));
        };
        self.send(Call::Alone(Box::new(call)))?;
        answer.await.map_err(|_| thread_ended())?
    }

    /// Lets the thread end once it has done what it was asked before.
    pub(super) async fn close(&self) {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(calls) = calls else { return };
        let (sender, closed) = oneshot::channel();
        if calls.send(Call::Close(sender)).is_ok() {
            drop(closed.await);
        }
    }

    fn send(&self, call: Call) -> Result<()> {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = calls.as_ref().is_some_and(|calls| calls.send(call).is_ok());
        if sent { Ok(()) } else { Err(closed()) }
    }
}

/// The error of a call that came after the end.
pub(super) fn closed() -> Error {
    Error::did_not_happen(ErrorKind::Closed, "the store was closed; open it again")
}

fn thread_ended() -> Error {
    Error::may_have_happened(ErrorKind::Closed, "the store's thread ended without an answer; this is a fault of hapax")
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic_text(panic);
    Error::did_not_happen(ErrorKind::Store, format!("a step of the store panicked and was undone: {text}"))
}

impl Core {
    /// Begins a transaction that holds the file's write lock; waits for it as long as a call made at `since` may.
    pub(super) fn begin(&self, since: Anchor) -> Result<()> {
        self.begin_by(since, |connection| execute(connection, "BEGIN IMMEDIATE"))
    }

    /// As [`begin`](Self::begin), by another's hand.
    pub(super) fn begin_by<'s, T>(
        &'s self,
        since: Anchor,
        hand: impl Fn(&'s Connection) -> rusqlite::Result<T>,
    ) -> Result<T> {
        // Left over from an earlier step only by a fault; it must never be committed by the next one.
        self.roll_back();
        let deadline = since.plus_ms(self.busy_ms);
        let begun = patiently(deadline, || hand(&self.connection)).map_err(|cause| {
            if fault::is_busy(&cause) {
                fault::busy(&self.file, self.busy_ms)
            } else {
                fault::before_commit(&self.file, cause)
            }
        })?;
        if let Err(gone) = probe::still_there(&self.file, self.identity) {
            drop(begun);
            self.roll_back();
            return Err(gone);
        }
        Ok(begun)
    }

    /// Commits; on an error rolls back, and says whether the commit may have counted all the same.
    pub(super) fn commit(&self) -> Result<()> {
        let deadline = Deadline::anchor().plus_ms(self.busy_ms);
        patiently(deadline, || execute(&self.connection, "COMMIT")).map_err(|cause| {
            let error = fault::at_commit(&self.file, cause);
            self.roll_back();
            error
        })
    }

    /// Ends an open transaction without a trace.
    pub(super) fn roll_back(&self) {
        if !self.connection.is_autocommit() {
            // An error here means that SQLite has rolled back by itself.
            drop(execute(&self.connection, "ROLLBACK"));
        }
    }
}

/// Repeats an attempt while another holds the lock, until `deadline`.
///
/// Short sleeps of random length, instead of SQLite's own which grow to 100 ms: among processes that hammer one file,
/// who sleeps long is always late.
pub(super) fn patiently<T>(
    deadline: Deadline,
    mut attempt: impl FnMut() -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let mut attempts: u32 = 0;
    loop {
        match attempt() {
            Err(cause) if fault::is_busy(&cause) && !deadline.passed() => {}
            other => return other,
        }
        attempts = attempts.saturating_add(1);
        let pause_us = if attempts < 100 { fastrand::u64(100..1_000) } else { fastrand::u64(500..4_000) };
        std::thread::sleep(deadline.left().min(Duration::from_micros(pause_us)));
    }
}

fn execute(connection: &Connection, text: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(text)?.execute([]).map(drop)
}

struct Thread {
    core: Core,
    queue: Receiver<Call>,
    /// Taken from the queue, but not into a group.
    waiting: VecDeque<Call>,
}

impl Thread {
    fn run(mut self) {
        while let Some(call) = self.waiting.pop_front().or_else(|| self.queue.recv().ok()) {
            match call {
                Call::Grouped(first) => self.group(first),
                Call::Alone(work) => {
                    work(&self.core);
                    self.core.roll_back();
                }
                Call::Close(done) => {
                    drop(self.core);
                    // Whoever closed it may not be waiting.
                    let _ = done.send(());
                    return;
                }
            }
        }
    }

    fn group(&mut self, first: Box<dyn Grouped>) {
        if let Err(error) = self.core.begin(first.since()) {
            first.answer(Some(error));
            return;
        }
        let mut calls = self.take_in(first);
        let alone = calls.len() == 1;
        let deadline = Deadline::anchor().plus_ms(GROUP_MS_MAX);
        let mut done = Vec::with_capacity(calls.len());
        while let Some(mut call) = calls.pop_front() {
            let ended = self.step(&mut *call, alone);
            done.push(call);
            if ended {
                // SQLite rolled the whole transaction back: nothing of the group is there, for certain.
                // That is no fault of those that did not fail: they may be tried again, by whoever asked for them.
                let text = "another step of the same commit failed and took this one with it; try again";
                let lost = || Some(Error::did_not_happen(ErrorKind::Busy, text));
                for call in done {
                    call.answer(lost());
                }
                self.put_back(calls);
                return;
            }
            if deadline.passed() {
                break;
            }
        }
        self.put_back(calls);
        let committed = self.core.commit();
        for call in done {
            call.answer(committed.as_ref().err().map(fault::same));
        }
    }

    /// What else waits for the write lock that we hold now.
    fn take_in(&mut self, first: Box<dyn Grouped>) -> VecDeque<Box<dyn Grouped>> {
        let mut calls = VecDeque::from([first]);
        while calls.len() < GROUP_CALLS_MAX {
            match self.waiting.pop_front().or_else(|| self.queue.try_recv().ok()) {
                Some(Call::Grouped(call)) => calls.push_back(call),
                Some(other) => {
                    self.waiting.push_front(other);
                    break;
                }
                None => break,
            }
        }
        calls
    }

    fn put_back(&mut self, calls: VecDeque<Box<dyn Grouped>>) {
        for call in calls.into_iter().rev() {
            self.waiting.push_front(Call::Grouped(call));
        }
    }

    /// Runs one step within its savepoint; a single one needs none, since its transaction is its own. Says whether
    /// the whole transaction is gone.
    fn step(&self, call: &mut dyn Grouped, alone: bool) -> bool {
        let connection = &self.core.connection;
        if alone {
            if !call.run(&self.core) {
                self.core.roll_back();
            }
            return connection.is_autocommit();
        }
        let savepoint = execute(connection, "SAVEPOINT hapax_step");
        let stands = savepoint.is_ok() && call.run(&self.core);
        let mut undone = savepoint;
        if !stands && undone.is_ok() {
            undone = execute(connection, "ROLLBACK TO hapax_step");
        }
        let ended = undone.and_then(|()| execute(connection, "RELEASE hapax_step"));
        if ended.is_err() {
            self.core.roll_back();
        }
        connection.is_autocommit()
    }
}
