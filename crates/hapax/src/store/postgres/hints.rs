//! The line on which the server tells of new work: LISTEN, on a connection of its own.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use uuid::Uuid;

use super::fault;
use super::step::Home;
use crate::error::{Error, ErrorKind, Result};
use crate::id::Name;
use crate::store::Hints;

/// How long the server may take to answer on this line before it counts as dead.
const ANSWER_WAITS: Duration = Duration::from_secs(5);

/// A listening connection.
#[derive(Debug)]
pub(super) struct Line {
    listener: PgListener,
    id: Uuid,
    queues: Vec<String>,
    home: std::sync::Arc<Home>,
    address: String,
}

impl Line {
    pub(super) async fn open(
        options: &PgConnectOptions,
        (home, address): (std::sync::Arc<Home>, String),
        queues: &[Name],
    ) -> Result<Self> {
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(ANSWER_WAITS)
            .max_lifetime(None)
            .idle_timeout(None)
            .connect_lazy_with(options.clone());
        let queues = super::rows::list(queues);
        let opening = async {
            let mut listener = PgListener::connect_with(&pool).await?;
            // A lost line is ours to open again: what was missed meanwhile must be looked for.
            listener.eager_reconnect(false);
            listener.ignore_pool_close_event(true);
            listener.listen(&home.channel()).await?;
            Ok(listener)
        };
        let opened: sqlx::Result<PgListener> = opening.await;
        let listener = opened.map_err(|cause| match cause {
            sqlx::Error::PoolTimedOut => lost(&address),
            cause => fault::before_commit(&address, cause),
        })?;
        Ok(Self { listener, id: Uuid::now_v7(), queues, home, address })
    }
}

fn lost(address: &str) -> Error {
    let text = format!("{address}: the line for wake-ups does not answer; work is found by polling until it does");
    Error::did_not_happen(ErrorKind::Unreachable, text)
}

#[async_trait]
impl Hints for Line {
    async fn tell(&mut self, asleep: bool) -> Result<()> {
        let told = if asleep {
            let text = self.home.text(include_str!("sql/sleepers/sleep.sql"), &["listener", "queues"]);
            let query = sqlx::query(sqlx::AssertSqlSafe(text)).bind(self.id).bind(&self.queues);
            tokio::time::timeout(ANSWER_WAITS, query.execute(&mut self.listener)).await
        } else {
            let text = self.home.text(include_str!("sql/sleepers/awake.sql"), &["listener"]);
            let query = sqlx::query(sqlx::AssertSqlSafe(text)).bind(self.id);
            tokio::time::timeout(ANSWER_WAITS, query.execute(&mut self.listener)).await
        };
        let told = told.map_err(|_| lost(&self.address))?;
        told.map(drop).map_err(|cause| fault::before_commit(&self.address, cause))
    }

    async fn wait(&mut self) -> Result<()> {
        match self.listener.try_recv().await {
            Ok(Some(_)) => {
                // Many hints are one.
                while self.listener.next_buffered().is_some() {}
                Ok(())
            }
            Ok(None) => Err(lost(&self.address)),
            Err(cause) => Err(fault::before_commit(&self.address, cause)),
        }
    }
}
