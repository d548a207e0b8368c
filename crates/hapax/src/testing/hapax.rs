//! A store, a clock and tasks in the hand of a test.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::dead::DeadInstance;
use crate::client::{Enqueue, Hapax};
use crate::clock::{Clock, Deadline};
use crate::host::parts::{Entry, Instance, Registry, Run, end_of, execute};
use crate::host::{Task, TaskFn};
use crate::id::{ClaimId, InstanceId, JobId, Name};
use crate::model::{
    ClaimRequest, Finish, Guarantee, Heartbeat, JobFilter, JobRecord, JobState, NewInstance, PAGE_MAX, Release,
};
use crate::store::memory::MemoryStore;
use crate::task::Job;

/// Most jobs of a queue that are claimed at once.
const CLAIM: u32 = 100;
/// Rounds after which [`TestHapax::drain`] takes jobs for endless.
const ROUNDS_MAX: u32 = 10_000;

/// Runs jobs in a test: real claims, tasks and finishes, at times of the test's choice.
///
/// A failing store or a broken setting panics, as tests want it.
///
/// ```
/// use std::time::Duration;
///
/// use hapax::testing::TestHapax;
/// use hapax::{Job, JobError, JobState, Run};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Charge {
///     cents: u32,
/// }
///
/// impl Job for Charge {
///     const KIND: &'static str = "charge";
/// }
///
/// async fn charge(_job: Charge, run: Run) -> Result<(), JobError> {
///     if run.attempt() == 1 { Err(JobError::retry("the card reader is busy")) } else { Ok(()) }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let test = TestHapax::new(()).task(charge);
/// let id = test.enqueue(&Charge { cents: 500 }).await;
/// test.assert_enqueued(|job: &Charge| job.cents == 500).await;
///
/// assert_eq!(test.run_due().await, 1);
/// assert_eq!(test.state_of(id).await, JobState::Scheduled, "it failed and waits");
///
/// test.advance(Duration::from_secs(1));
/// assert_eq!(test.run_due().await, 1);
/// assert_eq!(test.state_of(id).await, JobState::Done);
/// # }
/// ```
pub struct TestHapax<S = ()> {
    hapax: Hapax,
    clock: Clock,
    state: Arc<S>,
    registry: Registry,
    instance: Mutex<Option<Arc<Instance>>>,
}

impl<S: Send + Sync + 'static> TestHapax<S> {
    /// How long the store waits for a dead instance.
    pub const LEASE: Duration = Duration::from_secs(30);

    /// A memory store on a movable clock; `state` is what tasks get parts of.
    pub fn new(state: S) -> Self {
        let clock = Clock::movable();
        let store = Arc::new(MemoryStore::with_clock(clock.clone()));
        Self::on(Hapax::with_store(store), clock, state)
    }

    /// Any store that was opened on the movable `clock`.
    pub fn on(hapax: Hapax, clock: Clock, state: S) -> Self {
        let instance = Mutex::new(None);
        Self { hapax, clock, state: Arc::new(state), registry: Registry::default(), instance }
    }

    /// Registers a task.
    ///
    /// # Panics
    /// When another has its kind, or the store cannot give what it asks for.
    pub fn task<M, T>(mut self, task: T) -> Self
    where
        M: 'static,
        T: TaskFn<M> + Task<M, S>,
    {
        let entry = Entry::new(task, Arc::clone(&self.state)).expect("the task's names are legal");
        self.registry.add(entry).expect("one task for each kind");
        self.registry.check(&self.hapax).expect("the store gives what the task asks for");
        self
    }

    /// The handle that the code under test is given.
    pub const fn hapax(&self) -> &Hapax {
        &self.hapax
    }

    /// The clock, to be moved from elsewhere too.
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Moves the clock forward. Nothing runs by that alone.
    pub fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// Enqueues a job that is due now, with its own once key if it has one. Gives its id, or that of the job that has
    /// the key already.
    pub async fn enqueue<J: Job>(&self, job: &J) -> JobId {
        self.take(Enqueue::of(job)).await
    }

    /// Enqueues a job that is due after `delay`.
    pub async fn enqueue_in<J: Job>(&self, job: &J, delay: Duration) -> JobId {
        self.take(Enqueue::of(job).due_in(delay)).await
    }

    async fn take(&self, job: Enqueue) -> JobId {
        self.hapax.enqueue(job).await.expect("the store takes the job").id
    }

    /// Takes back what dead instances have left, and runs everything that is due now, in this very task, one after the
    /// other; gives how many runs that were. What becomes due by it, such as a follow-up job, runs too. Delays after
    /// failures are those of the job's policy without the random part.
    ///
    /// # Panics
    /// When the store fails.
    pub async fn run_due(&self) -> usize {
        let mut runs = 0;
        loop {
            // Each time anew: a task may have moved the clock past the lease.
            let instance = self.registered().await;
            self.reap(&instance).await;
            let anchor = Deadline::anchor();
            let jobs = self.claim(instance.id, true).await;
            if jobs.is_empty() {
                return runs;
            }
            for job in jobs {
                let run = Run::new(job, Arc::clone(&instance), anchor).expect("it has a fence");
                self.run_one(&run).await;
                runs += 1;
            }
        }
    }

    /// Runs until no job of a known kind is left to come, moving the clock to each next due time; gives how many runs
    /// that were. A job that fails runs again and again, until it is done or parked.
    ///
    /// # Panics
    /// When jobs keep coming for 10,000 rounds, or when the store fails.
    pub async fn drain(&self) -> usize {
        let mut runs = 0;
        for _ in 0..ROUNDS_MAX {
            runs += self.run_due().await;
            let request = self.request(self.registered().await.id, true).await;
            let answer = self.hapax.store().peek(request).await.expect("the store answers");
            match answer.next_due_in_ms {
                Some(ms) => self.advance(Duration::from_millis(ms)),
                None => return runs,
            }
        }
        panic!("jobs keep coming: {runs} runs so far");
    }

    /// Simulates an instance that claims everything due, begins it, and dies without a word. Its jobs come back once
    /// [`LEASE`](Self::LEASE) has passed: move the clock, then [`run_due`](Self::run_due).
    pub async fn kill_instance(&self) -> DeadInstance {
        let dead = self.kill_instance_before_start().await;
        let runs = dead.runs().to_vec();
        self.hapax.store().start(runs).await.expect("the store records starts");
        dead
    }

    /// As [`kill_instance`](Self::kill_instance), but nobody knows of any start: the jobs come back untouched.
    pub async fn kill_instance_before_start(&self) -> DeadInstance {
        let id = self.register("dead").await;
        let mut runs = Vec::new();
        loop {
            let jobs = self.claim(id, true).await;
            if jobs.is_empty() {
                return DeadInstance::new(Arc::clone(self.hapax.store()), id, runs);
            }
            runs.extend(jobs.iter().filter_map(DeadInstance::run_of));
        }
    }

    /// Payloads of the jobs of a kind that wait, are due later, or run, oldest first; at most 1,000.
    ///
    /// # Panics
    /// When a payload is no `J`, or when the store fails.
    pub async fn enqueued<J: Job>(&self) -> Vec<J> {
        let kind = Some(Name::new("kind", J::KIND).expect("a legal kind"));
        let filter = JobFilter { kind, limit: PAGE_MAX, ..JobFilter::default() };
        let mut jobs = self.hapax.store().list(filter).await.expect("the store answers");
        jobs.retain(|job| matches!(job.state, JobState::Scheduled | JobState::Ready | JobState::Running));
        jobs.reverse();
        jobs.iter().map(|job| serde_json::from_str(job.payload.as_str()).expect("a payload of its kind")).collect()
    }

    /// Asserts that a job of the kind waits for which `wanted` holds.
    ///
    /// # Panics
    /// When there is none: with the payloads that are there.
    pub async fn assert_enqueued<J: Job>(&self, wanted: impl Fn(&J) -> bool) {
        let jobs = self.enqueued::<J>().await;
        let found = jobs.iter().any(wanted);
        let texts = || jobs.iter().filter_map(|job| serde_json::to_string(job).ok()).collect::<Vec<_>>();
        assert!(found, "no such job of kind `{}` is enqueued, only {:?}", J::KIND, texts());
    }

    /// Where a job stands.
    ///
    /// # Panics
    /// When there is no such job.
    pub async fn state_of(&self, id: JobId) -> JobState {
        self.job(id).await.state
    }

    /// A job as the store keeps it.
    ///
    /// # Panics
    /// When there is no such job.
    pub async fn job(&self, id: JobId) -> JobRecord {
        let found = self.hapax.store().job(id).await.expect("the store answers");
        found.expect("the job exists").0
    }

    // ------------------------------------------------------------------------------------------------------ inside

    /// The live instance of this test, registered anew when its lease ran out.
    async fn registered(&self) -> Arc<Instance> {
        let known = self.instance.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(instance) = known {
            let answer = self.hapax.store().heartbeat(instance.id, Vec::new()).await.expect("the store answers");
            if let Heartbeat::Alive { .. } = answer {
                return instance;
            }
        }
        let lease_ms = u64::try_from(Self::LEASE.as_millis()).unwrap_or(u64::MAX);
        let id = self.register("test").await;
        let instance = Arc::new(Instance::new(id, self.hapax.clone(), lease_ms, Duration::from_secs(5)));
        // The lease is counted on the movable clock alone.
        let never = Deadline::anchor().plus_ms(u64::MAX);
        instance.renewed(never, never);
        *self.instance.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&instance));
        instance
    }

    async fn register(&self, name: &str) -> InstanceId {
        let id = InstanceId::new();
        self.take_lease((id, name), Self::LEASE).await;
        id
    }

    async fn take_lease(&self, (id, name): (InstanceId, &str), lease: Duration) {
        let new = NewInstance {
            id,
            name: Name::new("name", name).expect("legal"),
            version: "test".to_owned(),
            queues: self.queues().await.into_iter().map(|(queue, _)| queue).collect(),
            kinds: self.registry.kinds().to_vec(),
            lease_ms: u64::try_from(lease.as_millis()).unwrap_or(u64::MAX),
        };
        self.hapax.store().register(new).await.expect("the store takes an instance");
    }

    /// Every queue that has jobs.
    async fn queues(&self) -> Vec<(Name, u32)> {
        let queues = self.hapax.store().queues().await.expect("the store answers");
        queues.into_iter().map(|view| (view.queue, CLAIM)).collect()
    }

    async fn request(&self, instance: InstanceId, suspect: bool) -> ClaimRequest {
        let (queues, kinds) = (self.queues().await, self.registry.kinds().to_vec());
        ClaimRequest { instance, claim: ClaimId::new(), queues, kinds, suspect }
    }

    async fn claim(&self, instance: InstanceId, suspect: bool) -> Vec<JobRecord> {
        let request = self.request(instance, suspect).await;
        self.hapax.store().claim(request).await.expect("the store gives jobs").jobs
    }

    /// Whoever registers waits for a third of its lease before it reaps. A test should not have to move the clock for
    /// that, so the lease is next to nothing meanwhile.
    async fn reap(&self, instance: &Instance) {
        self.take_lease((instance.id, "test"), Duration::from_millis(1)).await;
        while self.hapax.store().reap(instance.id, CLAIM).await.expect("the store reaps").more {}
        self.take_lease((instance.id, "test"), Self::LEASE).await;
    }

    async fn run_one(&self, run: &Run) {
        let store = self.hapax.store();
        if run.record().guarantee == Guarantee::AtMostOnce && !run.start_is_recorded() {
            let answers = store.start(vec![run.reference()]).await.expect("the store records the start");
            if !answers[0].counted() {
                return;
            }
        }
        let Some(entry) = self.registry.get(run.kind()) else {
            let _ = store.release(run.instance(), Release::Runs(vec![run.reference()])).await;
            return;
        };
        run.begin();
        let how = execute(run, entry).await;
        if run.settled().is_none() {
            let end = end_of(run.record(), how, 0);
            store.finish(vec![Finish { run: run.reference(), end }]).await.expect("the store takes the finish");
        }
    }
}

impl<S> fmt::Debug for TestHapax<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestHapax").field("hapax", &self.hapax).field("now", &self.clock.now()).finish_non_exhaustive()
    }
}
