//! In an SQLite file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use hapax::host::Finished;
use hapax::{JobError, Run};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use super::{Effect, Effects, Ledger, broken};
use crate::cli::demo::errand::Errand;
use crate::exit::Failure;

/// The tables.
const TABLES: &str = "
    create table if not exists demo_expected (key text not null) strict;
    create table if not exists demo_effects (
        key      text    not null,
        job      text    not null,
        fence    integer not null,
        instance text    not null,
        process  integer not null
    ) strict;";

/// The statement of an effect.
const EFFECT: &str = "insert into demo_effects (key, job, fence, instance, process) values (?1, ?2, ?3, ?4, ?5)";

/// By a connection of their own.
#[derive(Debug)]
pub(super) struct Tables(Connection);

impl Tables {
    /// Makes them in a file, which may be a store already.
    pub(super) fn create(file: &Path) -> Result<Self, Failure> {
        let open = || -> rusqlite::Result<Connection> {
            let connection = Connection::open(file)?;
            connection.busy_timeout(Duration::from_secs(10))?;
            connection.execute_batch(TABLES)?;
            Ok(connection)
        };
        open().map(Self).map_err(|error| broken(&format!("the tables in {}", file.display()), &error))
    }
}

#[async_trait]
impl Ledger for Tables {
    async fn expect(&mut self, jobs: u64) -> Result<(), Failure> {
        let mut write = || -> rusqlite::Result<()> {
            let tx = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let mut insert = tx.prepare("insert into demo_expected (key) values (?1)")?;
            for number in 0..jobs {
                insert.execute([Errand::key_of(number)])?;
            }
            drop(insert);
            tx.commit()
        };
        write().map_err(|error| broken("the table of expected keys", &error))
    }

    async fn effect_of(&mut self, key: &str) -> Result<Option<(i64, String)>, Failure> {
        let find = "select fence, instance from demo_effects where key = ?1";
        let row = self.0.query_row(find, [key], |row| Ok((row.get(0)?, row.get(1)?)));
        row.optional().map_err(|error| broken("the table of effects", &error))
    }

    async fn can_be_written(&mut self, patience: Duration) -> Result<bool, Failure> {
        let probe = || -> rusqlite::Result<()> {
            self.0.busy_timeout(patience)?;
            self.0.execute_batch("begin immediate; rollback")
        };
        let probed = probe();
        self.0.busy_timeout(Duration::from_secs(10)).map_err(|error| broken("the store's file", &error))?;
        match probed {
            Ok(()) => Ok(true),
            Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => Ok(false),
            Err(error) => Err(broken("the store's file", &error)),
        }
    }

    async fn count(&mut self, statement: &str) -> Result<u64, Failure> {
        let count: i64 =
            self.0.query_row(statement, [], |row| row.get(0)).map_err(|error| broken(statement, &error))?;
        u64::try_from(count).map_err(|error| broken(statement, &error))
    }

    async fn keys(&mut self, statement: &str) -> Result<Vec<String>, Failure> {
        let read = || -> rusqlite::Result<Vec<String>> {
            self.0.prepare(statement)?.query_map([], |row| row.get(0))?.collect()
        };
        read().map_err(|error| broken(statement, &error))
    }

    /// The file goes with its folder.
    async fn clear(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

/// Effects of an instance.
#[derive(Debug)]
pub(super) struct InFile(PathBuf);

impl InFile {
    /// In this file.
    pub(super) fn new(file: &Path) -> Self {
        Self(file.to_owned())
    }
}

#[async_trait]
impl Effects for InFile {
    async fn with_finish(&self, run: Run, effect: Effect) -> Result<Finished, JobError> {
        run.finish_with(move |tx| {
            tx.execute(EFFECT, (effect.key, effect.job, effect.fence, effect.instance, effect.process))?;
            Ok(())
        })
        .await
    }

    async fn careless(&self, run: Run, effect: Effect) -> Result<Finished, JobError> {
        let row = (effect.key, effect.job, effect.fence, effect.instance, effect.process);
        Tables::create(&self.0)?.0.execute(EFFECT, row)?;
        run.finish_with(|_| Ok(())).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table as it should be after `jobs` errands.
    async fn tables(jobs: u64) -> (tempfile::TempDir, Tables) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut tables = Tables::create(&folder.path().join("demo.db")).expect("a file");
        tables.expect(jobs).await.expect("written");
        for number in 0..jobs {
            effect(&tables, &Errand::key_of(number));
        }
        (folder, tables)
    }

    fn effect(tables: &Tables, key: &str) {
        tables.0.execute(EFFECT, (key, "job", 1, "instance", 1)).expect("written");
    }

    #[tokio::test]
    async fn a_clean_table_passes() {
        let (_folder, mut tables) = tables(20).await;
        let counts = tables.judge().await.expect("judged");
        assert_eq!((counts.expected, counts.effects, counts.twice, counts.lost), (20, 20, 0, 0));
        assert_eq!(counts.problems(), [""; 0]);
        assert_eq!(tables.effect_of("order-000003").await.expect("asked"), Some((1, "instance".to_owned())));
        assert_eq!(tables.effect_of("order-000020").await.expect("asked"), None);
    }

    #[tokio::test]
    async fn a_planted_duplicate_is_found() {
        let (_folder, mut tables) = tables(20).await;
        effect(&tables, "order-000007");
        let counts = tables.judge().await.expect("judged");
        assert_eq!((counts.effects, counts.twice, counts.lost), (21, 1, 0));
        assert_eq!(counts.problems(), ["1 keys took effect more than once, such as order-000007"]);
    }

    #[tokio::test]
    async fn a_planted_loss_is_found() {
        let (_folder, mut tables) = tables(20).await;
        tables.0.execute("delete from demo_effects where key = 'order-000011'", []).expect("deleted");
        let counts = tables.judge().await.expect("judged");
        assert_eq!((counts.effects, counts.twice, counts.lost), (19, 0, 1));
        assert_eq!(counts.problems(), ["1 keys took no effect, such as order-000011"]);
    }

    #[tokio::test]
    async fn a_duplicate_does_not_hide_a_loss() {
        let (_folder, mut tables) = tables(20).await;
        tables.0.execute("update demo_effects set key = 'order-000001' where key = 'order-000002'", []).expect("moved");
        let counts = tables.judge().await.expect("judged");
        assert_eq!((counts.effects, counts.twice, counts.lost), (20, 1, 1), "as many rows as keys, and yet wrong");
        assert_eq!(counts.problems().len(), 2);
    }

    #[tokio::test]
    async fn strangers_and_an_empty_stage_are_found() {
        let (_folder, mut tables) = tables(0).await;
        effect(&tables, "nobody-sent-this");
        let counts = tables.judge().await.expect("judged");
        assert_eq!((counts.expected, counts.unknown), (0, 1));
        assert_eq!(counts.problems().len(), 2);
    }

    #[tokio::test]
    async fn a_writer_that_stands_still_is_noticed() {
        let (folder, mut tables) = tables(1).await;
        let other = Connection::open(folder.path().join("demo.db")).expect("a second connection");
        other.execute_batch("begin immediate").expect("the lock");
        assert!(!tables.can_be_written(Duration::from_millis(10)).await.expect("asked"));
        other.execute_batch("rollback").expect("given back");
        assert!(tables.can_be_written(Duration::from_millis(10)).await.expect("asked"));
    }
}
