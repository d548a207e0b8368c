//! What really happened: plain SQL on the table of effects, and the verdict.
//!
//! Two tables belong to the demo. `demo_expected` holds the keys that were to take effect. `demo_effects` gets a row
//! from every effect that is committed; it has no unique constraint, no index, no trigger. What the stores do each in
//! their own way is all in here: how the tables are asked, and how an effect is committed.
//!
//! This room does not know: the tables of hapax, or what was done to the instances.

mod postgres;
mod sqlite;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hapax::host::Finished;
use hapax::{Hapax, JobError, Run};
use serde::Serialize;

use super::broken;
use crate::exit::Failure;

/// For people who want to look themselves; an empty answer is the good one.
const LOOK_YOURSELF: &str = "select key, count(*) from demo_effects group by key having count(*) > 1";

const EXPECTED: &str = "select count(*) from demo_expected";
const EFFECTS: &str = "select count(*) from demo_effects";
const TWICE: &str = "select count(*) from (select key from demo_effects group by key having count(*) > 1) as keys";
const TWICE_KEYS: &str = "select key from demo_effects group by key having count(*) > 1 order by key limit 5";
const LOST: &str = "select count(*) from (select key from demo_expected except select key from demo_effects) as keys";
const LOST_KEYS: &str = "select key from demo_expected except select key from demo_effects order by key limit 5";
const UNKNOWN: &str =
    "select count(*) from (select key from demo_effects except select key from demo_expected) as keys";

/// Where the demo plays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ground {
    /// In a file.
    File(PathBuf),
    /// In a schema of a PostgreSQL database, at this URL, which names it.
    Schema {
        /// The store; with its password.
        url: String,
        /// The schema.
        name: String,
    },
}

/// The row that an effect leaves.
#[derive(Clone, Debug)]
pub(super) struct Effect {
    /// Of the errand.
    pub(super) key: String,
    /// The job.
    pub(super) job: String,
    /// Of the run.
    pub(super) fence: i64,
    /// Who did it, by name.
    pub(super) instance: String,
    /// Who did it, by process id.
    pub(super) process: u32,
}

/// How an instance commits effects.
#[async_trait]
pub(super) trait Effects: fmt::Debug + Send + Sync {
    /// The effect and the finish of the run, in one transaction.
    async fn with_finish(&self, run: Run, effect: Effect) -> Result<Finished, JobError>;

    /// The effect by itself, whatever becomes of the run, and then the finish: what hapax is there to replace.
    async fn careless(&self, run: Run, effect: Effect) -> Result<Finished, JobError>;
}

/// The demo's own tables, past the store that is judged.
#[async_trait]
pub(super) trait Ledger: fmt::Debug + Send {
    /// Writes down which keys are to take effect.
    async fn expect(&mut self, jobs: u64) -> Result<(), Failure>;

    /// The fence under which a key took effect and who did it, if it did.
    async fn effect_of(&mut self, key: &str) -> Result<Option<(i64, String)>, Failure>;

    /// Whether nobody stands inside a transaction in which, stopped, it would stop all the others.
    async fn can_be_written(&mut self, patience: Duration) -> Result<bool, Failure>;

    /// The number that a statement gives.
    async fn count(&mut self, statement: &str) -> Result<u64, Failure>;

    /// The keys that a statement gives.
    async fn keys(&mut self, statement: &str) -> Result<Vec<String>, Failure>;

    /// Takes away what was made, unless it goes by itself.
    async fn clear(&mut self) -> Result<(), Failure>;

    /// How many effects there are by now.
    async fn effects(&mut self) -> Result<u64, Failure> {
        self.count(EFFECTS).await
    }

    /// Counts.
    async fn judge(&mut self) -> Result<Counts, Failure> {
        Ok(Counts {
            expected: self.count(EXPECTED).await?,
            effects: self.count(EFFECTS).await?,
            twice: self.count(TWICE).await?,
            lost: self.count(LOST).await?,
            unknown: self.count(UNKNOWN).await?,
            twice_keys: self.keys(TWICE_KEYS).await?,
            lost_keys: self.keys(LOST_KEYS).await?,
        })
    }
}

impl Ground {
    /// Makes the store and the demo's tables in it.
    pub(super) async fn make(&self) -> Result<(Hapax, Box<dyn Ledger>), Failure> {
        match self {
            Self::File(file) => {
                let hapax = Hapax::sqlite(file).await?;
                Ok((hapax, Box::new(sqlite::Tables::create(file)?)))
            }
            Self::Schema { url, name } => {
                let (hapax, tables) = postgres::Tables::create(url, name).await?;
                Ok((hapax, Box::new(tables)))
            }
        }
    }

    /// Opens what was made, for an instance.
    pub(super) async fn join(&self) -> Result<(Hapax, Arc<dyn Effects>), Failure> {
        match self {
            Self::File(file) => Ok((Hapax::sqlite(file).await?, Arc::new(sqlite::InFile::new(file)))),
            Self::Schema { url, name } => {
                let (hapax, effects) = postgres::InSchema::open(url, name).await?;
                Ok((hapax, Arc::new(effects)))
            }
        }
    }

    /// How to look into it afterwards.
    pub(super) fn look_yourself(&self) -> String {
        match self {
            Self::File(file) => {
                format!("the file is {0}; look yourself:\n  sqlite3 {0} \"{LOOK_YOURSELF}\"", file.display())
            }
            Self::Schema { name, .. } => {
                let look = postgres::in_schema(LOOK_YOURSELF, name);
                format!(
                    "the schema is {name}; look yourself, in psql:\n  {look};\nand when you are done:\n  drop schema \
                     {name} cascade;"
                )
            }
        }
    }

    /// The file, when it is one.
    pub(super) fn file(&self) -> Option<&PathBuf> {
        match self {
            Self::File(file) => Some(file),
            Self::Schema { .. } => None,
        }
    }

    /// The schema, when it is one.
    pub(super) fn schema(&self) -> Option<&str> {
        match self {
            Self::File(_) => None,
            Self::Schema { name, .. } => Some(name),
        }
    }
}

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
