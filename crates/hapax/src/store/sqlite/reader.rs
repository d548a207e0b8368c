//! Threads that read, beside the writer: WAL lets them go on whatever it does.
//!
//! Two, so that one long list does not hold up a short look; started at the first read, since the keeper's handle
//! never reads. Each call sees one state of the file from its begin to its end, and takes no lock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use tokio::sync::oneshot;

use super::{fault, probe, writer};
use crate::clock::{Clock, Now};
use crate::error::{Error, ErrorKind, Result, panic_text};

const THREADS: usize = 2;

/// What a reading thread needs.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) file: PathBuf,
    pub(super) identity: Option<(u64, u64)>,
    pub(super) clock: Clock,
    pub(super) busy_ms: u64,
}

/// The way to the threads.
#[derive(Debug)]
pub(super) struct Reader {
    source: Source,
    calls: Mutex<State>,
}

#[derive(Debug)]
enum State {
    NotStarted,
    Running(Sender<Call>),
    Closed,
}

type Call = Box<dyn FnOnce(&mut Thread) + Send>;

impl Reader {
    pub(super) const fn new(source: Source) -> Self {
        Self { source, calls: Mutex::new(State::NotStarted) }
    }

    /// Has something read in one transaction.
    pub(super) async fn read<T, F>(&self, look: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection, Now) -> rusqlite::Result<T> + Send + 'static,
    {
        let (sender, answer) = oneshot::channel();
        let call = move |thread: &mut Thread| {
            let result = catch_unwind(AssertUnwindSafe(|| thread.look(look)));
            let result = result.unwrap_or_else(|panic| {
                let text = format!("a read panicked: {}", panic_text(&*panic));
                Err(Error::did_not_happen(ErrorKind::Store, text))
            });
            // Nobody may be waiting any more.
            drop(sender.send(result));
        };
        self.send(Box::new(call))?;
        let ended = |_| Error::did_not_happen(ErrorKind::Closed, "the store's reading thread ended");
        answer.await.map_err(ended)?
    }

    /// Lets the threads end once they have answered what they were asked.
    pub(super) fn close(&self) {
        *self.calls.lock().unwrap_or_else(PoisonError::into_inner) = State::Closed;
    }

    fn send(&self, call: Call) -> Result<()> {
        let mut state = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::NotStarted) {
            *state = State::Running(start(&self.source)?);
        }
        let sent = matches!(&*state, State::Running(calls) if calls.send(call).is_ok());
        if sent { Ok(()) } else { Err(writer::closed()) }
    }
}

fn start(source: &Source) -> Result<Sender<Call>> {
    let (calls, queue) = channel();
    let queue = Arc::new(Mutex::new(queue));
    for _ in 0..THREADS {
        let mut thread = Thread { source: source.clone(), connection: None };
        let queue = Arc::clone(&queue);
        let work = move || {
            while let Some(call) = next(&queue) {
                call(&mut thread);
            }
        };
        std::thread::Builder::new().name("hapax-reader".to_owned()).spawn(work).map_err(|cause| {
            Error::did_not_happen(ErrorKind::Unreachable, "no thread for reading could be started").with_source(cause)
        })?;
    }
    Ok(calls)
}

/// The thread that holds the queue waits for a call; the other waits for the queue.
fn next(queue: &Mutex<Receiver<Call>>) -> Option<Call> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

struct Thread {
    source: Source,
    connection: Option<Connection>,
}

impl Thread {
    fn look<T>(&mut self, look: impl FnOnce(&Connection, Now) -> rusqlite::Result<T>) -> Result<T> {
        probe::still_there(&self.source.file, self.source.identity)?;
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => open(&self.source).map_err(|cause| fault::before_commit(&self.source.file, cause))?,
        };
        let result = connection.transaction().and_then(|state| look(&state, self.source.clock.now()));
        // Kept only if all went well: what made it fail may have been the connection.
        if result.is_ok() {
            self.connection = Some(connection);
        }
        result.map_err(|cause| fault::before_commit(&self.source.file, cause))
    }
}

fn open(source: &Source) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&source.file, flags)?;
    connection.set_prepared_statement_cache_capacity(super::STATEMENTS_CACHED);
    // Reads wait only while the log is being recovered or taken away.
    connection.busy_timeout(Duration::from_millis(source.busy_ms.min(60_000)))?;
    Ok(connection)
}
