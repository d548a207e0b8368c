//! What really happened: plain SQL on the table of effects, and the verdict.
//!
//! Two tables belong to the demo. `demo_expected` holds the keys that were to take effect. `demo_effects` gets a row
//! from every effect that is committed; it has no unique constraint, no index, no trigger.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use serde::Serialize;

use super::broken;
use super::errand::Errand;
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
pub(super) const EFFECT: &str =
    "insert into demo_effects (key, job, fence, instance, process) values (?1, ?2, ?3, ?4, ?5)";

/// For people who want to look themselves; an empty answer is the good one.
pub(super) const LOOK_YOURSELF: &str = "select key, count(*) from demo_effects group by key having count(*) > 1";

const EXPECTED: &str = "select count(*) from demo_expected";
const EFFECTS: &str = "select count(*) from demo_effects";
const TWICE: &str = "select count(*) from (select key from demo_effects group by key having count(*) > 1)";
const TWICE_KEYS: &str = "select key from demo_effects group by key having count(*) > 1 order by key limit 5";
const LOST: &str = "select count(*) from (select key from demo_expected except select key from demo_effects)";
const LOST_KEYS: &str = "select key from demo_expected except select key from demo_effects order by key limit 5";
const UNKNOWN: &str = "select count(*) from (select key from demo_effects except select key from demo_expected)";

/// What the table says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    /// Keys that were to take effect.
    pub(super) expected: u64,
    /// Rows that effects have left.
    pub(super) effects: u64,
    /// Keys that took effect more than once.
    pub(super) twice: u64,
    /// Keys that did not take effect.
    pub(super) lost: u64,
    /// Keys that took effect and that nobody had sent.
    pub(super) unknown: u64,
    /// Some of the keys that took effect more than once.
    pub(super) twice_keys: Vec<String>,
    /// Some of the lost keys.
    pub(super) lost_keys: Vec<String>,
}

impl Counts {
    /// What is wrong, in sentences; nothing when all is well.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.twice > 0 {
            let keys = self.twice_keys.join(", ");
            problems.push(format!("{} keys took effect more than once, such as {keys}", self.twice));
        }
        if self.lost > 0 {
            problems.push(format!("{} keys took no effect, such as {}", self.lost, self.lost_keys.join(", ")));
        }
        if self.unknown > 0 {
            problems.push(format!("{} keys took effect that nobody had sent", self.unknown));
        }
        if self.expected == 0 {
            problems.push("no key was expected: nothing was shown".to_owned());
        }
        problems
    }
}

/// The demo's own tables, by a connection of their own.
#[derive(Debug)]
pub(super) struct Ledger(Connection);

impl Ledger {
    /// Makes the tables in a file, which may be a store already.
    pub(super) fn create(file: &Path) -> Result<Self, Failure> {
        let open = || -> rusqlite::Result<Connection> {
            let connection = Connection::open(file)?;
            connection.busy_timeout(Duration::from_secs(10))?;
            connection.execute_batch(TABLES)?;
            Ok(connection)
        };
        open().map(Self).map_err(|error| broken(&format!("the tables in {}", file.display()), &error))
    }

    /// Writes down which keys are to take effect.
    pub(super) fn expect(&mut self, jobs: u64) -> Result<(), Failure> {
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

    /// How many effects there are by now.
    pub(super) fn effects(&self) -> Result<u64, Failure> {
        self.count(EFFECTS)
    }

    /// The fence under which a key took effect, if it did.
    pub(super) fn effect_of(&self, key: &str) -> Result<Option<(i64, String)>, Failure> {
        let find = "select fence, instance from demo_effects where key = ?1";
        let row = self.0.query_row(find, [key], |row| Ok((row.get(0)?, row.get(1)?)));
        row.optional().map_err(|error| broken("the table of effects", &error))
    }

    /// Whether nobody stands inside a write transaction: a process that was stopped there would stop all the others.
    pub(super) fn can_be_written(&self, patience: Duration) -> Result<bool, Failure> {
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

    /// Commits an effect by itself, whatever becomes of the run: what hapax is there to replace.
    pub(super) fn effect(&self, values: impl rusqlite::Params) -> Result<(), Failure> {
        self.0.execute(EFFECT, values).map(drop).map_err(|error| broken("the table of effects", &error))
    }

    /// Counts.
    pub(super) fn judge(&self) -> Result<Counts, Failure> {
        Ok(Counts {
            expected: self.count(EXPECTED)?,
            effects: self.count(EFFECTS)?,
            twice: self.count(TWICE)?,
            lost: self.count(LOST)?,
            unknown: self.count(UNKNOWN)?,
            twice_keys: self.keys(TWICE_KEYS)?,
            lost_keys: self.keys(LOST_KEYS)?,
        })
    }

    fn count(&self, statement: &str) -> Result<u64, Failure> {
        let count: i64 =
            self.0.query_row(statement, [], |row| row.get(0)).map_err(|error| broken(statement, &error))?;
        u64::try_from(count).map_err(|error| broken(statement, &error))
    }

    fn keys(&self, statement: &str) -> Result<Vec<String>, Failure> {
        let read = || -> rusqlite::Result<Vec<String>> {
            self.0.prepare(statement)?.query_map([], |row| row.get(0))?.collect()
        };
        read().map_err(|error| broken(statement, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table as it should be after `jobs` errands.
    fn ledger(jobs: u64) -> (tempfile::TempDir, Ledger) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut ledger = Ledger::create(&folder.path().join("demo.db")).expect("a file");
        ledger.expect(jobs).expect("written");
        for number in 0..jobs {
            effect(&ledger, &Errand::key_of(number));
        }
        (folder, ledger)
    }

    fn effect(ledger: &Ledger, key: &str) {
        ledger.effect((key, "job", 1, "instance", 1)).expect("written");
    }

    #[test]
    fn a_clean_table_passes() {
        let (_folder, ledger) = ledger(20);
        let counts = ledger.judge().expect("judged");
        assert_eq!((counts.expected, counts.effects, counts.twice, counts.lost), (20, 20, 0, 0));
        assert_eq!(counts.problems(), [""; 0]);
        assert_eq!(ledger.effect_of("order-000003").expect("asked"), Some((1, "instance".to_owned())));
        assert_eq!(ledger.effect_of("order-000020").expect("asked"), None);
    }

    #[test]
    fn a_planted_duplicate_is_found() {
        let (_folder, ledger) = ledger(20);
        effect(&ledger, "order-000007");
        let counts = ledger.judge().expect("judged");
        assert_eq!((counts.effects, counts.twice, counts.lost), (21, 1, 0));
        assert_eq!(counts.problems(), ["1 keys took effect more than once, such as order-000007"]);
    }

    #[test]
    fn a_planted_loss_is_found() {
        let (_folder, ledger) = ledger(20);
        ledger.0.execute("delete from demo_effects where key = 'order-000011'", []).expect("deleted");
        let counts = ledger.judge().expect("judged");
        assert_eq!((counts.effects, counts.twice, counts.lost), (19, 0, 1));
        assert_eq!(counts.problems(), ["1 keys took no effect, such as order-000011"]);
    }

    #[test]
    fn a_duplicate_does_not_hide_a_loss() {
        let (_folder, ledger) = ledger(20);
        ledger.0.execute("update demo_effects set key = 'order-000001' where key = 'order-000002'", []).expect("moved");
        let counts = ledger.judge().expect("judged");
        assert_eq!((counts.effects, counts.twice, counts.lost), (20, 1, 1), "as many rows as keys, and yet wrong");
        assert_eq!(counts.problems().len(), 2);
    }

    #[test]
    fn strangers_and_an_empty_stage_are_found() {
        let (_folder, ledger) = ledger(0);
        effect(&ledger, "nobody-sent-this");
        let counts = ledger.judge().expect("judged");
        assert_eq!((counts.expected, counts.unknown), (0, 1));
        assert_eq!(counts.problems().len(), 2);
    }

    #[test]
    fn a_writer_that_stands_still_is_noticed() {
        let (folder, ledger) = ledger(1);
        let other = Connection::open(folder.path().join("demo.db")).expect("a second connection");
        other.execute_batch("begin immediate").expect("the lock");
        assert!(!ledger.can_be_written(Duration::from_millis(10)).expect("asked"));
        other.execute_batch("rollback").expect("given back");
        assert!(ledger.can_be_written(Duration::from_millis(10)).expect("asked"));
    }
}
