//! A store in the user's PostgreSQL, for every host that reaches it.
//!
//! Each verb is one transaction: a few statements under READ COMMITTED whose guards are in their `where`, and row locks
//! taken in one order. Verbs that are asked for thousands of times a second have statements of their own; for all
//! others the tables lend the rows concerned, locked, to the law and write back what it decided (`slice.rs`). The user's
//! own tables may live in the same database: then an effect commits together with the finish of its run
//! ([`PostgresStore::finish_in`]), and a job together with the rows that it is about
//! ([`EnqueueIn`](super::EnqueueIn) for `&mut PgConnection`).
//!
//! **Sessions.** Nothing is kept in a session: settings, locks and time-outs end with their transaction. So the store
//! works behind a pooler in transaction mode, which is noticed when the store is opened.
//!
//! **Time.** The server's clock decides leases, deadlines, due times and retention; it is read at the begin of each
//! transaction, and once more after locks were waited for. No clock of ours is compared with it.
//!
//! This room does not know: what the verbs mean (the model does), tasks, hosts. It knows nothing of other stores.

mod connections;
mod fault;
mod inspect;
mod jobs;
mod leases;
mod migrate;
mod once;
mod operate;
mod probe;
mod rows;
mod runs;
mod slice;
mod step;
mod tx;
mod workers;

use std::any::Any;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::Store;
use super::sealed::Sealed;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use connections::Connections;
use step::{Home, Step};

pub use migrate::VERSION;
pub use tx::{InSchema, lock_guard};

/// How to open a store.
#[derive(Clone, Debug)]
#[must_use]
pub struct PostgresOptions {
    schema: String,
    connections: usize,
    wait: Duration,
    pooled: Option<bool>,
    clock: Option<Clock>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            schema: step::DEFAULT_SCHEMA.to_owned(),
            connections: 8,
            wait: Duration::from_secs(30),
            pooled: None,
            clock: None,
        }
    }
}

impl PostgresOptions {
    /// The schema that holds hapax's tables: one for each application that shares the database. Default: `hapax`.
    pub fn schema(mut self, name: &str) -> Self {
        name.clone_into(&mut self.schema);
        self
    }

    /// Most connections that this handle opens; at least 1. A host's heartbeats have one of their own beside them, and
    /// effects those of the pool. Default: 8.
    pub const fn connections(mut self, most: usize) -> Self {
        self.connections = if most == 0 { 1 } else { most };
        self
    }

    /// How long a call waits for a connection of this handle, and a statement for a row that another transaction has
    /// locked, before it fails with [`Busy`](crate::ErrorKind::Busy) and nothing changed; and how long a transaction of
    /// ours may stand still before the server ends it. Default: 30 s.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Whether a pooler in transaction mode is on the way. Default: found out when the store is opened.
    pub const fn pooled(mut self, is_pooled: bool) -> Self {
        self.pooled = Some(is_pooled);
        self
    }

    /// Takes time from a clock that a test may move, instead of from the server.
    #[cfg(feature = "testing")]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Opens the store at `url`: `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, with `?schema=NAME` for another schema
    /// and whatever else libpq's URLs may say (`sslmode`, …). The database is not changed: see
    /// [`migrate`](Self::migrate).
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a URL that is none; [`Unreachable`](crate::ErrorKind::Unreachable)
    /// when nobody answers, or the server does not let us in; [`Unusable`](crate::ErrorKind::Unusable) when the schema is
    /// not there, when rights are missing, or when the server is too old; [`TooNew`](crate::ErrorKind::TooNew) when a
    /// newer hapax made the schema.
    pub async fn open(self, url: &str) -> Result<PostgresStore> {
        let (connect, options) = self.parse(url)?;
        let pool = effect_pool(&options, connect.clone());
        options.open_with((connect, pool)).await
    }

    /// Opens the store in the database of the user's own pool. Effects take their connections from that pool; for all
    /// else the store opens its own with the same options, so that no crowd of tasks can starve a heartbeat.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_pool(self, pool: &PgPool) -> Result<PostgresStore> {
        let connect = (*pool.connect_options()).clone();
        self.open_with((connect, pool.clone())).await
    }

    async fn open_with(mut self, (connect, pool): (PgConnectOptions, PgPool)) -> Result<PostgresStore> {
        let address = address(&connect, &self.schema);
        // No pooler knows it, and no value of ours is a float.
        let connect = connect.extra_float_digits(None).application_name("hapax");
        let mut first = connections::connect(&connect, &address).await?;
        probe::fit(&mut first, &address).await?;
        let home = Home::new(&self.schema, self.clock.clone());
        migrate::look(&mut first, &home, &address).await?;
        // Ended in good order; that it could not be is no fault of the store.
        drop(sqlx::Connection::close(first).await);
        if self.pooled.is_none() {
            self.pooled = Some(probe::is_pooled(&connect).await);
        }
        Ok(self.with((connect, pool), home, address))
    }

    fn with(self, (connect, pool): (PgConnectOptions, PgPool), home: Home, address: String) -> PostgresStore {
        // Behind a pooler a statement that was prepared in one session is unknown in the next.
        let kept = if self.pooled == Some(true) { 0 } else { STATEMENTS_CACHED };
        let connect = connect.statement_cache_capacity(kept);
        let connections = Connections::new(connect, address, (self.connections, self.wait));
        PostgresStore(Arc::new(Inner { connections, pool, home: Arc::new(home), options: self }))
    }

    /// Makes hapax's schema and tables in the database at `url`, or brings them up to date. Many may do so at once, and
    /// one that is interrupted leaves nothing behind. The role must be allowed to create schemas in the database, or to
    /// create tables in the schema if that is there.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn migrate(&self, url: &str) -> Result<()> {
        let (connect, options) = self.clone().parse(url)?;
        options.migrate_with(&connect).await
    }

    /// As [`migrate`](Self::migrate), in the database of the user's own pool.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn migrate_pool(&self, pool: &PgPool) -> Result<()> {
        self.migrate_with(&pool.connect_options()).await
    }

    async fn migrate_with(&self, connect: &PgConnectOptions) -> Result<()> {
        let address = address(connect, &self.schema);
        let connect = connect.clone().extra_float_digits(None).application_name("hapax");
        let home = Home::new(&self.schema, self.clock.clone());
        let step = async move {
            let mut connection = connections::connect(&connect, &address).await?;
            probe::fit(&mut connection, &address).await?;
            migrate::migrate(&mut connection, &home, &address).await
        };
        // In a task of its own: whoever waits may be dropped, the tables are made all the same.
        tokio::spawn(step).await.unwrap_or_else(|_| Err(ended()))
    }

    /// The version of hapax's schema in the database at `url`, which is not changed; nothing when there is none.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn version_of(&self, url: &str) -> Result<Option<u32>> {
        let (connect, options) = self.clone().parse(url)?;
        let address = address(&connect, &options.schema);
        let mut connection = connections::connect(&connect.extra_float_digits(None), &address).await?;
        migrate::version_of(&mut connection, &Home::new(&options.schema, None), &address).await
    }

    /// What a URL says: how to connect, and what is ours in it.
    fn parse(mut self, url: &str) -> Result<(PgConnectOptions, Self)> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (ours, theirs): (Vec<&str>, Vec<&str>) =
            query.split('&').filter(|pair| !pair.is_empty()).partition(|pair| pair.starts_with("schema="));
        if let Some(schema) = ours.last().and_then(|pair| pair.strip_prefix("schema=")) {
            schema.clone_into(&mut self.schema);
        }
        let legal = (1..=63).contains(&self.schema.len()) && !self.schema.contains(char::is_control);
        if !legal {
            return Err(Error::invalid("schema", "is no name", "use 1 to 63 bytes, such as `hapax`"));
        }
        let url = if theirs.is_empty() { base.to_owned() } else { format!("{base}?{}", theirs.join("&")) };
        let connect = PgConnectOptions::from_str(&url).map_err(|cause| {
            let mend = "use postgres://USER:PASSWORD@HOST:PORT/DATABASE";
            Error::invalid("store URL", format!("cannot be read: {cause}"), mend)
        })?;
        Ok((connect, self))
    }
}

/// Room for every statement of ours.
const STATEMENTS_CACHED: usize = 128;

/// Where effects take their connections from when the user has no pool. A transaction that a cancelled begin left open
/// ends when its connection comes back. A plain `rollback` would do, were it not for the server, which warns each time
/// that there is nothing to undo.
fn effect_pool(options: &PostgresOptions, connect: PgConnectOptions) -> PgPool {
    PgPoolOptions::new()
        .max_connections(u32::try_from(options.connections).unwrap_or(u32::MAX))
        .min_connections(0)
        .acquire_timeout(options.wait)
        .after_release(|connection, _| {
            Box::pin(async move {
                sqlx::Executor::execute(connection, sqlx::raw_sql("begin; rollback")).await?;
                Ok(true)
            })
        })
        .connect_lazy_with(connect.extra_float_digits(None).application_name("hapax"))
}

/// For messages: without a password.
fn address(connect: &PgConnectOptions, schema: &str) -> String {
    let database = connect.get_database().unwrap_or_else(|| connect.get_username());
    let at = format!("postgres://{}@{}:{}/{database}", connect.get_username(), connect.get_host(), connect.get_port());
    if schema == step::DEFAULT_SCHEMA { at } else { format!("{at}?schema={schema}") }
}

fn ended() -> Error {
    Error::may_have_happened(
        ErrorKind::Closed,
        "the task of the store ended without an answer; this is a fault of hapax",
    )
}

/// A store in a PostgreSQL database. Clones share its connections.
#[derive(Clone, Debug)]
pub struct PostgresStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    connections: Connections,
    pool: PgPool,
    home: Arc<Home>,
    options: PostgresOptions,
}

/// What a step does, once its transaction has begun.
type Work<'s, T> = Pin<Box<dyn Future<Output = sqlx::Result<T>> + Send + 's>>;

impl PostgresStore {
    /// Options to open a store with.
    pub fn options() -> PostgresOptions {
        PostgresOptions::default()
    }

    /// The pool that effects take their connections from.
    pub fn pool(&self) -> &PgPool {
        &self.0.pool
    }

    /// Whether a pooler in transaction mode is on the way.
    pub fn is_pooled(&self) -> bool {
        self.0.options.pooled == Some(true)
    }

    /// To be called once after the database was put back from a backup, or a standby without the last transactions took
    /// over: fences go on above all that may have been given since, so that a late writer from that time is still
    /// refused. Gives the new epoch.
    ///
    /// # Errors
    /// Those of any write.
    pub async fn next_epoch(&self) -> Result<u32> {
        let epoch = self.write(|step| {
            Box::pin(async move {
                let hours = step.now().wall.0 / 3_600_000_000 - HOURS_TO_2020;
                let text = include_str!("sql/meta/next_epoch.sql");
                Ok(rows::at_most_one(rows::fetch!(step, text, rows::only::<i64>, hours = hours)).unwrap_or_default())
            })
        });
        Ok(u32::try_from(epoch.await?).unwrap_or(u32::MAX))
    }

    /// Carries out a step in a transaction of its own. From the first poll on it runs to its end, whether or not anybody
    /// waits for the answer.
    async fn write<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'s> FnOnce(&'s mut Step<'_>) -> Work<'s, T> + Send + 'static,
    {
        let inner = Arc::clone(&self.0);
        tokio::spawn(async move { inner.carry_out(false, work).await }).await.unwrap_or_else(|_| Err(ended()))
    }

    /// Reads in one transaction, which sees one state of the tables and takes no lock.
    async fn read<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'s> FnOnce(&'s mut Step<'_>) -> Work<'s, T> + Send + 'static,
    {
        let inner = Arc::clone(&self.0);
        tokio::spawn(async move { inner.carry_out(true, work).await }).await.unwrap_or_else(|_| Err(ended()))
    }
}

/// Hours from 1970 to 2020: epochs of restored databases count from there.
const HOURS_TO_2020: i64 = 438_288;

impl Inner {
    async fn carry_out<T, F>(&self, reads: bool, work: F) -> Result<T>
    where
        F: for<'s> FnOnce(&'s mut Step<'_>) -> Work<'s, T> + Send,
    {
        let mut begun = self.connections.begin(reads).await?;
        // A server that is cut off says nothing at all. Locks are waited for twice at most; then it is not a lock.
        let limit = self.options.wait.saturating_mul(2);
        let done = {
            let mut step = Step::begun(&mut begun.connection, &self.home, begun.at);
            tokio::time::timeout(limit, work(&mut step)).await.unwrap_or_else(|_| Err(fault::silent(limit)))
        };
        let address = self.connections.address();
        match done {
            Ok(value) => match tokio::time::timeout(limit, begun.commit()).await {
                Ok(Ok(())) => Ok(value),
                Ok(Err(cause)) if reads => Err(fault::before_commit(address, cause)),
                Ok(Err(cause)) => Err(fault::at_commit(address, cause)),
                Err(_) => Err(fault::at_commit(address, fault::silent(limit))),
            },
            Err(cause) => {
                if !fault::is_connection_lost(&cause) {
                    begun.roll_back().await;
                }
                Err(fault::before_commit(address, cause))
            }
        }
    }
}

impl Sealed for PostgresStore {}

#[async_trait]
impl Store for PostgresStore {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn address(&self) -> String {
        self.0.connections.address().to_owned()
    }

    async fn another(&self) -> Result<Arc<dyn Store>> {
        let (inner, address) = (&self.0, self.address());
        let connections = Connections::new(
            inner.connections.options().clone(),
            address,
            (inner.options.connections, inner.options.wait),
        );
        let (pool, home, options) = (inner.pool.clone(), Arc::clone(&inner.home), inner.options.clone());
        let another = Self(Arc::new(Inner { connections, pool, home, options }));
        // Opened now, so that whoever asks for it learns now that it cannot be had.
        another.now().await?;
        Ok(Arc::new(another))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    async fn close(&self) {
        self.0.connections.close().await;
    }
}

use super::Inspect as _;
