//! An instance that died while it had jobs.

use std::sync::Arc;

use crate::error::Result;
use crate::id::{InstanceId, JobId};
use crate::model::{End, Finish, JobRecord, RunRef, Settled};
use crate::store::Store;

/// What is left of an instance that was killed by [`TestHapax::kill_instance`](super::TestHapax::kill_instance).
#[derive(Debug)]
#[must_use = "it holds the jobs until its lease has passed"]
pub struct DeadInstance {
    store: Arc<dyn Store>,
    id: InstanceId,
    runs: Vec<RunRef>,
}

impl DeadInstance {
    pub(super) fn new(store: Arc<dyn Store>, id: InstanceId, runs: Vec<RunRef>) -> Self {
        Self { store, id, runs }
    }

    pub(super) fn run_of(job: &JobRecord) -> Option<RunRef> {
        job.fence.map(|fence| RunRef { job: job.id, fence })
    }

    /// Its id.
    pub const fn id(&self) -> InstanceId {
        self.id
    }

    /// The runs that it had.
    pub fn runs(&self) -> &[RunRef] {
        &self.runs
    }

    /// The jobs that it had.
    pub fn jobs(&self) -> Vec<JobId> {
        self.runs.iter().map(|run| run.job).collect()
    }

    /// It was not dead after all, only frozen: it wakes up and reports every job as done. Refused for each job that
    /// another has by then.
    ///
    /// # Errors
    /// What the store said.
    pub async fn finish_late(&self) -> Result<Vec<Settled>> {
        let end = || End::Done { result: Some("\"late\"".to_owned()) };
        self.store.finish(self.runs.iter().map(|run| Finish { run: *run, end: end() }).collect()).await
    }
}
