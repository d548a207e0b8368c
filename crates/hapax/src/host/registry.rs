//! The tasks of a host, by the kind of their jobs.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use super::handler::Task;
use super::outcome::{LABELS, TaskResult};
use super::run::Run;
use crate::client::Hapax;
use crate::error::{Error, Result};
use crate::id::Name;
use crate::task::Job;
use crate::telemetry;

/// A future in a box.
pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// One task, with its types rubbed out.
pub(crate) struct Entry {
    pub(crate) kind: Name,
    /// Where its jobs wait unless told otherwise.
    pub(crate) queue: Name,
    call: Box<dyn Fn(Run) -> BoxFuture<TaskResult> + Send + Sync>,
    check: fn(&Hapax) -> Result<()>,
    duration: metrics::Histogram,
    /// In the order of [`LABELS`].
    ended: [metrics::Counter; LABELS.len()],
}

impl Entry {
    pub(crate) fn new<M, S, T>(task: T, state: Arc<S>) -> Result<Self>
    where
        M: 'static,
        S: Send + Sync + 'static,
        T: Task<M, S>,
    {
        Ok(Self {
            kind: Name::new("kind", T::Job::KIND)?,
            queue: Name::new("queue", T::Job::QUEUE)?,
            call: Box::new(move |run| Box::pin(task.clone().call(run, Arc::clone(&state)))),
            check: T::check,
            duration: metrics::histogram!(telemetry::RUN_DURATION, "kind" => T::Job::KIND),
            ended: LABELS.map(|label| metrics::counter!(telemetry::RUNS, "kind" => T::Job::KIND, "outcome" => label)),
        })
    }

    pub(crate) fn call(&self, run: Run) -> BoxFuture<TaskResult> {
        (self.call)(run)
    }

    /// Its task worked for so long.
    pub(crate) fn measured(&self, took: std::time::Duration) {
        self.duration.record(took.as_secs_f64());
    }

    /// A run ended so.
    pub(crate) fn ended(&self, label: &str) {
        if let Some(n) = LABELS.iter().position(|known| *known == label) {
            self.ended[n].increment(1);
        }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("kind", &self.kind).field("queue", &self.queue).finish_non_exhaustive()
    }
}

/// All tasks of a host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registry {
    by_kind: HashMap<String, Arc<Entry>>,
    kinds: Vec<Name>,
}

impl Registry {
    /// Takes a task.
    ///
    /// # Errors
    /// When another one has its kind.
    pub(crate) fn add(&mut self, entry: Entry) -> Result<()> {
        if self.by_kind.contains_key(entry.kind.as_str()) {
            let what = format!("`{}` has two tasks", entry.kind);
            return Err(Error::invalid("kind", what, "give one of the two job types another KIND"));
        }
        self.kinds.push(entry.kind.clone());
        self.by_kind.insert(entry.kind.to_string(), Arc::new(entry));
        Ok(())
    }

    /// Asks every task whether the store can give what it needs.
    pub(crate) fn check(&self, hapax: &Hapax) -> Result<()> {
        self.entries().try_for_each(|entry| {
            (entry.check)(hapax).map_err(|error| {
                Error::did_not_happen(error.kind(), format!("task `{}`: {error}", entry.kind)).with_source(error)
            })
        })
    }

    pub(crate) fn get(&self, kind: &str) -> Option<&Arc<Entry>> {
        self.by_kind.get(kind)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.kinds.iter().filter_map(|kind| self.by_kind.get(kind.as_str())).map(Arc::as_ref)
    }

    pub(crate) fn kinds(&self) -> &[Name] {
        &self.kinds
    }
}
