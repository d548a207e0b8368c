//! Every law that binds fields to each other. Tests run it after each command.

use super::job::{JobRecord, JobState, KEEP_MS_MIN, Retention, Step, next};
use super::{Index, KeyHolder, KeyState, Model};

impl Model {
    /// Asserts all laws.
    ///
    /// # Panics
    /// When one is broken: a fault of this program, never of its user.
    pub fn check(&self) {
        let mut index = Index::default();
        for job in self.jobs.values() {
            self.check_job(job);
            index.insert(job);
        }
        assert_eq!(self.index, index, "the orders agree with the jobs");
        self.check_keys();
        for ((name, slot), lock) in &self.locks {
            let fence = lock.fence.as_i64();
            assert!((1..=self.fences).contains(&fence), "lock {name}/{slot} has a fence that was given");
        }
        for (id, runs) in &self.runs {
            let job = self.jobs.get(id).expect("runs are deleted with their job");
            assert!(runs.windows(2).all(|w| w[0].number < w[1].number && w[0].fence < w[1].fence), "runs of {id} grow");
            assert!(runs.last().is_none_or(|run| run.number <= job.runs), "runs of {id} are counted");
        }
    }

    fn check_job(&self, job: &JobRecord) {
        let id = job.id;
        let running = job.state == JobState::Running;
        assert_eq!(running, job.claim.is_some(), "{id} has a claim exactly while it is running");
        assert!(!running || job.fence.is_some(), "{id} runs under a fence");
        assert!(job.fence.is_none_or(|f| (1..=self.fences).contains(&f.as_i64())), "{id} has a fence that was given");
        assert!(job.ended_fence <= job.fence, "{id} did not end under a fence to come");
        assert!(!job.cancel_requested || running, "{id} is asked to stop only while it runs");
        assert!(job.failures <= job.runs, "{id} did not fail more often than it ran");
        assert!(!job.suspect || job.takeovers > 0 || job.unstarted_takeovers > 0, "{id} is a suspect for a reason");
        let timed = JobState::PRUNABLE.contains(&job.state);
        assert_eq!(timed, job.purge_at.is_some(), "{id} has an end of its retention exactly when it may be deleted");
        assert_eq!(timed, Self::may_be_deleted(job.state), "the named set agrees with the table");
        let kept = job.purge_at.is_none_or(|at| job.finished_at.is_some_and(|end| at >= end.plus_ms(KEEP_MS_MIN)));
        assert!(kept, "{id} is kept for as long as its enqueue may be repeated");
        let waits = matches!(job.state, JobState::Scheduled | JobState::Ready | JobState::Running);
        assert_eq!(waits, job.finished_at.is_none(), "{id} has an end exactly when it has ended or waits for a person");
        let suspect_runs = job.suspect && running;
        let started = job.claim.is_some_and(|claim| claim.started_at.is_some());
        assert!(!suspect_runs || started, "{id} is a suspect, so its start was recorded first");
    }

    fn check_keys(&self) {
        for job in self.jobs.values() {
            let Some(key) = &job.once else { continue };
            let record = self.keys.get(key);
            let mine = record.filter(|record| record.holder == KeyHolder::Job(job.id));
            let lives = !JobState::PRUNABLE.contains(&job.state);
            assert_eq!(
                lives,
                mine.is_some_and(|k| k.state == KeyState::Held),
                "{}: its key is held while it lives",
                job.id
            );
        }
        for (key, record) in &self.keys {
            assert_eq!(*key, record.key, "keys are kept under themselves");
            let held = record.state == KeyState::Held;
            assert_eq!(held, record.keep_until.is_none(), "{key} is never forgotten while it is held");
            if let KeyHolder::Job(id) = &record.holder {
                let of_this_key = |job: &&JobRecord| job.once.as_ref() == Some(key);
                let job = self.jobs.get(id).filter(of_this_key);
                let lives = job.is_some_and(|job| !JobState::PRUNABLE.contains(&job.state));
                assert_eq!(held, lives, "{key} is held exactly while its job lives");
            } else {
                assert_eq!(held, record.lease_until.is_some(), "{key} has a lease exactly while it is held");
                assert!(record.fence.is_some(), "{key} was claimed under a fence");
            }
        }
    }

    fn may_be_deleted(state: JobState) -> bool {
        let into = |from: JobState, step: Step| next(from, step).filter(|t| t.to == state);
        JobState::ALL
            .into_iter()
            .any(|from| Step::ALL.into_iter().any(|step| into(from, step).is_some_and(|t| t.keep == Retention::Timed)))
    }
}
