//! The embedded store: one SQLite file, for the processes of one host.
//!
//! One thread writes, in groups that share a commit (`writer.rs`); two read beside it (`reader.rs`). Verbs that are
//! asked for thousands of times a second have statements of their own; for all others the file lends the rows concerned
//! to the law and writes back what it decided (`slice.rs`). The user's own tables may live in the same file: then an
//! effect commits together with the finish of its run ([`SqliteStore::finish_with`]), and a job together with the rows
//! that it is about ([`EnqueueIn`](super::EnqueueIn) for `&rusqlite::Transaction`).
//!
//! **Several processes** may open one file. They take turns at SQLite's write lock, which each waits for in short
//! random sleeps, up to the [`busy_timeout`](SqliteOptions::busy_timeout). A process that is stopped *inside* a write
//! transaction stops all writers of the file, and loses nothing; so no transaction of ours waits for anything but the
//! file, and an effect is a plain closure.
//!
//! **Time.** Leases and run deadlines are counted on `CLOCK_BOOTTIME`, together with the id of the boot that it counts
//! from; the first to open the file after a restart ends every lease. Due times and retention use the wall clock.
//!
//! This room does not know: what the verbs mean (the model does), tasks, hosts, networks. It knows nothing of other
//! stores.

mod fault;
mod inspect;
mod jobs;
mod leases;
mod migrate;
mod once;
mod operate;
mod probe;
mod reader;
mod rows;
mod runs;
mod seal;
mod slice;
mod tx;
mod workers;
mod writer;

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, OpenFlags};

use super::sealed::Sealed;
use super::{Hints, Store};
use crate::clock::{Clock, Deadline, Now};
use crate::error::{Error, ErrorKind, Result};
use crate::id::Name;
use reader::{Reader, Source};
use seal::Guard;
use writer::{Core, Writer, patiently};

pub use migrate::VERSION;
pub use tx::{EffectAnswer, EffectPanic, EffectTx, lock_guard};

/// Room for every statement of ours and some of the user's.
const STATEMENTS_CACHED: usize = 128;
/// Hours from 1970 to 2020: epochs of restored files count from there.
const HOURS_TO_2020: i64 = 438_288;

/// How to open a file.
#[derive(Clone, Debug)]
#[must_use]
pub struct SqliteOptions {
    busy_timeout: Duration,
    foreign_keys: bool,
    clock: Clock,
    boot_id: Option<String>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { busy_timeout: Duration::from_secs(30), foreign_keys: true, clock: Clock::system(), boot_id: None }
    }
}

impl SqliteOptions {
    /// How long a call waits while others hold the file's write lock, before it fails with
    /// [`Busy`](crate::ErrorKind::Busy) and nothing changed. Default: 30 s.
    pub const fn busy_timeout(mut self, wait: Duration) -> Self {
        self.busy_timeout = wait;
        self
    }

    /// Whether effects in this file obey the foreign keys of the user's tables. Default: yes.
    pub const fn foreign_keys(mut self, obey: bool) -> Self {
        self.foreign_keys = obey;
        self
    }

    /// Takes time from a clock that a test may move.
    #[cfg(feature = "testing")]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Pretends to be another boot of the machine.
    #[cfg(feature = "testing")]
    pub fn boot_id(mut self, id: &str) -> Self {
        self.boot_id = Some(id.to_owned());
        self
    }

    /// Opens a file; makes it, and our tables in it, if they are not there.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for what is no path of a file, such as `:memory:`;
    /// [`Unreachable`](crate::ErrorKind::Unreachable) when its folder is not there;
    /// [`ReadOnly`](crate::ErrorKind::ReadOnly) when the file or its folder may not be written;
    /// [`Unusable`](crate::ErrorKind::Unusable) when it is not an SQLite database, is damaged, or lies on a network
    /// file system; [`TooNew`](crate::ErrorKind::TooNew) when a newer hapax wrote it;
    /// [`Busy`](crate::ErrorKind::Busy) when another process holds its lock for longer than the `busy_timeout`.
    pub async fn open(self, path: impl AsRef<Path>) -> Result<SqliteStore> {
        let path = path.as_ref().to_owned();
        let options = self.clone();
        let (sender, placed) = tokio::sync::oneshot::channel();
        let writer = Writer::start(move || {
            let core = open(&path, &options)?;
            let (file, identity) = (core.file.clone(), core.identity);
            drop(sender.send(Source { file, identity, clock: core.clock.clone(), busy_ms: core.busy_ms }));
            Ok(core)
        });
        let writer = writer.await?;
        let source = placed.await.map_err(|_| writer::closed())?;
        let file = source.file.clone();
        Ok(SqliteStore(Arc::new(Inner { writer, reader: Reader::new(source), file, options: self })))
    }

    fn busy_ms(&self) -> u64 {
        u64::try_from(self.busy_timeout.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A store in one SQLite file. Clones share its threads.
#[derive(Clone, Debug)]
pub struct SqliteStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    writer: Writer,
    reader: Reader,
    file: PathBuf,
    options: SqliteOptions,
}

impl SqliteStore {
    /// Opens a file with the default options: [`SqliteOptions::open`].
    ///
    /// # Errors
    /// See [`SqliteOptions::open`].
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().open(path).await
    }

    /// The version of hapax's schema in a file, which is neither made nor changed; nothing when there is no such file,
    /// or none of our tables in it.
    ///
    /// # Errors
    /// See [`SqliteOptions::open`].
    pub async fn version_of(path: impl AsRef<Path>) -> Result<Option<u32>> {
        let file = probe::place(path.as_ref())?;
        let looking = tokio::task::spawn_blocking(move || migrate::version_of(&file));
        looking.await.unwrap_or_else(|_| Err(writer::closed()))
    }

    /// Options to open a file with.
    pub fn options() -> SqliteOptions {
        SqliteOptions::default()
    }

    /// The file.
    pub fn file(&self) -> &Path {
        &self.0.file
    }

    /// To be called once after the file was put back from a backup: fences go on above all that were given since the
    /// backup was made, so that a late writer from that time is still refused. Gives the new epoch.
    ///
    /// # Errors
    /// Those of any write.
    pub async fn next_epoch(&self) -> Result<u32> {
        self.write(|connection, now| {
            let text = include_str!("sql/meta/next_epoch.sql");
            let hours = now.wall.0 / 3_600_000_000 - HOURS_TO_2020;
            connection.prepare_cached(text)?.query_row(rusqlite::named_params! { ":hours": hours }, |row| row.get(0))
        })
        .await
    }

    /// Has a step carried out by the thread that writes.
    async fn write<T, F>(&self, step: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection, Now) -> rusqlite::Result<T> + Send + 'static,
    {
        self.0.writer.step(step).await
    }

    /// Has something read by one of the threads that read.
    async fn read<T, F>(&self, look: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection, Now) -> rusqlite::Result<T> + Send + 'static,
    {
        self.0.reader.read(look).await
    }
}

impl Sealed for SqliteStore {}

#[async_trait]
impl Store for SqliteStore {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn address(&self) -> String {
        format!("sqlite:{}", self.0.file.display())
    }

    async fn another(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(self.0.options.clone().open(&self.0.file).await?))
    }

    async fn hints(&self, _: Vec<Name>) -> Result<Option<Box<dyn Hints>>> {
        // Another process that writes a file tells nobody.
        Ok(None)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    async fn close(&self) {
        self.0.reader.close();
        self.0.writer.close().await;
    }
}

/// Opens the connection that writes.
fn open(path: &Path, options: &SqliteOptions) -> Result<Core> {
    let file = probe::place(path)?;
    open_at(&file, options).map_err(|error| match probe::why_not_writable(&file) {
        // SQLite says no more than that it failed; who may write what is a better answer.
        Some(why) if matches!(error.kind(), ErrorKind::ReadOnly | ErrorKind::Unreachable) => {
            Error::did_not_happen(ErrorKind::ReadOnly, why).with_source(error)
        }
        _ => error,
    })
}

fn open_at(file: &Path, options: &SqliteOptions) -> Result<Core> {
    let cannot = |cause| fault::before_commit(file, cause);
    let until = Deadline::anchor().plus_ms(options.busy_ms());
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags).map_err(cannot)?;
    // We wait by ourselves: see `writer::patiently`.
    connection.busy_timeout(Duration::ZERO).map_err(cannot)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
    if connection.is_readonly("main").map_err(cannot)? {
        let what = format!("{}: the file can be read but not written", file.display());
        return Err(Error::did_not_happen(ErrorKind::ReadOnly, what));
    }
    migrate::look(&connection, file, until)?;
    patiently(until, || configure(&connection, options)).map_err(cannot)?;
    let (clock, busy_ms) = (options.clock.clone(), options.busy_ms());
    let (identity, guard) = (probe::identity(file), Guard::default());
    let core = Core { connection, clock, file: file.to_owned(), identity, busy_ms, guard };
    core.begin(Deadline::anchor())?;
    let boot_id = options.boot_id.clone().or_else(probe::boot_id).unwrap_or_else(|| migrate::UNKNOWN_BOOT.to_owned());
    match migrate::migrate(&core.connection, file, (&core.clock, &boot_id)) {
        Ok(()) => core.commit()?,
        Err(error) => {
            core.roll_back();
            return Err(error);
        }
    }
    Ok(core)
}

/// Settings of the connection; that of the file, WAL, is kept in it.
fn configure(connection: &Connection, options: &SqliteOptions) -> rusqlite::Result<()> {
    connection.pragma_update_and_check(None, "journal_mode", "wal", |row| {
        let mode: String = row.get(0)?;
        if mode == "wal" {
            return Ok(());
        }
        let text = format!("the file stays in journal mode `{mode}`, but the store needs `wal`");
        Err(rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, text.into()))
    })?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "foreign_keys", options.foreign_keys)?;
    // Ordinary fsync on macOS does not reach the disk; elsewhere these do nothing.
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "checkpoint_fullfsync", true)?;
    // After a burst the log does not keep the room it took.
    connection.pragma_update(None, "journal_size_limit", 64 * 1_048_576)?;
    connection.pragma_update(None, "cache_size", -16_384)?;
    connection.pragma_update(None, "temp_store", "memory")
}
