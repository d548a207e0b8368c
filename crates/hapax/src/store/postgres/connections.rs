//! The connections of one handle: a few, opened when they are needed, and none kept whose state is in doubt.
//!
//! Our own instead of the driver's pool, for two reasons. A connection that was lost is told from a server that cannot
//! be reached at once, instead of after the time that a pool may wait. And a step that fails half-way ends its
//! connection rather than give it to the next with a transaction open.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection, Executor, Row};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::fault;
use crate::clock::Micros;
use crate::error::{Error, ErrorKind, Result};

/// How long a server may take to let us in.
const CONNECT_WAITS: Duration = Duration::from_secs(10);

/// What is said at the begin of each step. The settings end with the transaction, so that they work behind a pooler.
///
/// - A plan is made for each call, and never reads a whole table: one made while a table was empty would be kept while
///   it fills.
/// - A wait for a lock ends, and so does a transaction whose program stands still.
fn preamble(reads: bool, wait_ms: u64) -> String {
    let mode = if reads { "isolation level repeatable read read only" } else { "isolation level read committed" };
    format!(
        "begin {mode}; set local plan_cache_mode = force_custom_plan; set local enable_seqscan = off; set local jit = \
         off; set local lock_timeout = {wait_ms}; set local idle_in_transaction_session_timeout = {wait_ms}; select \
         (extract(epoch from clock_timestamp()) * 1000000)::bigint",
    )
}

/// The connections of a handle.
#[derive(Debug)]
pub(super) struct Connections {
    options: PgConnectOptions,
    address: String,
    idle: Arc<Mutex<Option<Vec<PgConnection>>>>,
    permits: Arc<Semaphore>,
    wait: Duration,
}

/// A connection in a transaction of ours. Dropped without `commit`, it ends with its connection.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) connection: PgConnection,
    /// What the server's clock said when it began.
    pub(super) at: Micros,
    idle: Arc<Mutex<Option<Vec<PgConnection>>>>,
    _permit: OwnedSemaphorePermit,
}

impl Connections {
    pub(super) fn new(options: PgConnectOptions, address: String, (most, wait): (usize, Duration)) -> Self {
        let idle = Arc::new(Mutex::new(Some(Vec::new())));
        Self { options, address, idle, permits: Arc::new(Semaphore::new(most)), wait }
    }

    pub(super) const fn options(&self) -> &PgConnectOptions {
        &self.options
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn wait_ms(&self) -> u64 {
        u64::try_from(self.wait.as_millis()).unwrap_or(u64::MAX)
    }

    /// Begins a transaction.
    pub(super) async fn begin(&self, reads: bool) -> Result<Begun> {
        let permit = tokio::time::timeout(self.wait, Arc::clone(&self.permits).acquire_owned()).await;
        let permit = permit.map_err(|_| fault::busy(&self.address, self.wait_ms()))?.map_err(|_| closed())?;
        loop {
            let idle = self.take_idle()?;
            let kept = idle.is_some();
            let mut connection = match idle {
                Some(connection) => connection,
                None => connect(&self.options, &self.address).await?,
            };
            let preamble = preamble(reads, self.wait_ms());
            let begun = tokio::time::timeout(CONNECT_WAITS, begin(&mut connection, &preamble)).await;
            match begun.unwrap_or_else(|_| Err(fault::silent(CONNECT_WAITS))) {
                Ok(at) => return Ok(Begun { connection, at, idle: Arc::clone(&self.idle), _permit: permit }),
                // One that the server, or something on the way, ended while nobody used it: nothing was begun with it.
                Err(cause) if kept && fault::is_connection_lost(&cause) => drop(connection),
                Err(cause) => return Err(fault::before_commit(&self.address, cause)),
            }
        }
    }

    fn take_idle(&self) -> Result<Option<PgConnection>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.as_mut().map(Vec::pop).ok_or_else(closed)
    }

    /// Ends them all; later steps fail.
    pub(super) async fn close(&self) {
        self.permits.close();
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
        for connection in idle.into_iter().flatten() {
            // What cannot be ended in good order ends without.
            let _ = tokio::time::timeout(Duration::from_secs(1), connection.close()).await;
        }
    }
}

/// Opens a connection.
pub(super) async fn connect(options: &PgConnectOptions, address: &str) -> Result<PgConnection> {
    let connecting = tokio::time::timeout(CONNECT_WAITS, PgConnection::connect_with(options));
    let Ok(connected) = connecting.await else {
        let text = format!("{address}: no connection within {} s", CONNECT_WAITS.as_secs());
        return Err(Error::did_not_happen(ErrorKind::Unreachable, text));
    };
    connected.map_err(|cause| fault::before_commit(address, cause))
}

async fn begin(connection: &mut PgConnection, preamble: &str) -> sqlx::Result<Micros> {
    let row = connection.fetch_one(sqlx::raw_sql(sqlx::AssertSqlSafe(preamble.to_owned()))).await?;
    // The simple protocol answers in text.
    let at: i64 = row
        .try_get_raw(0)?
        .as_str()
        .map_err(sqlx::Error::Decode)?
        .parse()
        .map_err(|cause| sqlx::Error::Protocol(format!("the server's time could not be read: {cause}")))?;
    Ok(Micros(at))
}

impl Begun {
    /// Commits, and gives the connection back.
    pub(super) async fn commit(mut self) -> sqlx::Result<()> {
        self.connection.execute(sqlx::raw_sql("commit")).await?;
        self.give_back();
        Ok(())
    }

    /// Undoes the transaction, and gives the connection back if that worked.
    pub(super) async fn roll_back(mut self) {
        let undone = tokio::time::timeout(Duration::from_secs(5), self.connection.execute(sqlx::raw_sql("rollback")));
        if undone.await.is_ok_and(|answer| answer.is_ok()) {
            self.give_back();
        }
    }

    fn give_back(self) {
        if let Some(idle) = self.idle.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            idle.push(self.connection);
        }
    }
}

/// The error of a call that came after the end.
pub(super) fn closed() -> Error {
    Error::did_not_happen(ErrorKind::Closed, "the store was closed; open it again")
}
