//! Puts a host together: everything that can be wrong with it is said at [`start`](HostBuilder::start).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc, watch};

use super::core::{Core, Settings, Tally};
use super::finisher::{self, Ended};
use super::handle::HostHandle;
use super::handler::{Task, TaskFn};
use super::registry::{Entry, Registry};
use super::service::{Service, ServiceOptions};
use super::shutdown::{Parts, Stop, Wishes, until_ended};
use super::slots::{QueueSlots, Slots};
use super::supervisor::Supervisor;
use super::{keeper, listener, pruner, reaper, worker};
use crate::client::{Hapax, process_name};
use crate::error::{Error, Result};
use crate::id::Name;
use crate::task::BoxError;

/// Tasks of one queue at work at once, unless said otherwise.
pub const WORKERS_DEFAULT: u32 = 10;
/// Shortest lease: below it a busy machine would lose it again and again.
const LEASE_MIN: Duration = Duration::from_millis(100);

/// One process that runs jobs and services. See [`Host::builder`].
#[derive(Debug)]
pub enum Host {}

impl Host {
    /// Begins a host on a store. `state` is what its tasks and services get parts of.
    pub fn builder<S>(hapax: Hapax, state: S) -> HostBuilder<S>
    where
        S: Clone + Send + Sync + 'static,
    {
        HostBuilder {
            hapax,
            state: Arc::new(state),
            registry: Registry::default(),
            queues: Vec::new(),
            services: Vec::new(),
            settings: Settings::default(),
            wrong: None,
        }
    }
}

/// How one queue is served.
///
/// ```
/// use hapax::host::QueueOptions;
///
/// let options = QueueOptions::default().workers(4).prefetch(0);
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "options do nothing until a queue is declared with them"]
pub struct QueueOptions {
    workers: u32,
    prefetch: Option<u32>,
}

impl Default for QueueOptions {
    /// [`WORKERS_DEFAULT`] workers, and twice as many jobs claimed ahead of them at most.
    fn default() -> Self {
        Self { workers: WORKERS_DEFAULT, prefetch: None }
    }
}

impl QueueOptions {
    /// Tasks at work at once in this process, at least 1.
    pub const fn workers(mut self, workers: u32) -> Self {
        self.workers = workers;
        self
    }

    /// Jobs that may be claimed ahead of a free worker, at most; twice the workers unless said otherwise. Only what can
    /// start within some 50 ms at the queue's present pace is: jobs that would wait behind long runs stay where others
    /// can have them.
    pub const fn prefetch(mut self, jobs: u32) -> Self {
        self.prefetch = Some(jobs);
        self
    }
}

/// A host that is being put together.
#[must_use = "a host does nothing until it is started"]
pub struct HostBuilder<S> {
    hapax: Hapax,
    state: Arc<S>,
    registry: Registry,
    queues: Vec<(String, QueueOptions)>,
    services: Vec<Service>,
    settings: Settings,
    /// The first mistake; said at the start.
    wrong: Option<Error>,
}

impl<S> HostBuilder<S>
where
    S: Clone + Send + Sync + 'static,
{
    /// Serves a queue. A queue that no call names is served with [`WORKERS_DEFAULT`] workers if it is the
    /// [`QUEUE`](crate::Job::QUEUE) of a registered task.
    pub fn queue(mut self, name: &str, options: impl FnOnce(QueueOptions) -> QueueOptions) -> Self {
        self.queues.push((name.to_owned(), options(QueueOptions::default())));
        self
    }

    /// Registers the task for its kind of job. It runs for jobs of that kind in every queue of this host.
    pub fn task<M, T>(mut self, task: T) -> Self
    where
        M: 'static,
        // In this order: the shape settles `M`, and only then the compiler can name what is wrong with it.
        T: TaskFn<M> + Task<M, S>,
    {
        let added = Entry::new(task, Arc::clone(&self.state)).and_then(|entry| self.registry.add(entry));
        self.note(added);
        self
    }

    /// Runs `service` for as long as the host runs, and starts it again when it fails, panics or ends unasked.
    pub fn service<F, Fut>(self, name: &str, service: F) -> Self
    where
        F: Fn(S, Stop) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        self.service_with(name, ServiceOptions::new(), service)
    }

    /// As [`service`](Self::service), with options.
    pub fn service_with<F, Fut>(mut self, name: &str, options: ServiceOptions, service: F) -> Self
    where
        F: Fn(S, Stop) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        let twice = self.services.iter().any(|known| known.name == name);
        self.note(if twice {
            Err(Error::invalid("service", format!("`{name}` is there twice"), "give each service a name of its own"))
        } else {
            Name::new("service", name).map(drop)
        });
        let state = Arc::clone(&self.state);
        let make = Arc::new(move |stop| -> super::registry::BoxFuture<_> { Box::pin(service((*state).clone(), stop)) });
        self.services.push(Service { name: name.to_owned(), options, make });
        self
    }

    /// How long the store leaves this host its jobs without hearing from it, at least 100 ms; 30 s unless said
    /// otherwise. A heartbeat goes out every third of it. A shorter lease means a faster takeover after a crash, and
    /// more false ones on a machine that stalls; those cost time, never a second effect.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How often to look for jobs that no hint told of: 200 ms unless said otherwise.
    pub fn poll(mut self, poll: Duration) -> Self {
        self.settings.poll = poll;
        self
    }

    /// How long [`drain`](HostHandle::drain) lets runs finish: 30 s unless said otherwise.
    pub fn drain_timeout(mut self, drain_timeout: Duration) -> Self {
        self.settings.drain_timeout = drain_timeout;
        self
    }

    /// How long a task may go on after it was told to stop, before it is dropped at its next await: 5 s unless said
    /// otherwise. Less where a deadline or the end of a lease leaves less.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// How often to delete what has outlived its retention: every minute unless said otherwise.
    pub fn prune_every(mut self, prune_every: Duration) -> Self {
        self.settings.prune_every = prune_every;
        self
    }

    /// What people see as the name of the instance; the machine's name and the process id unless said otherwise.
    pub fn name(mut self, name: &str) -> Self {
        let checked = Name::new("name", name);
        match checked {
            Ok(name) => self.settings.name = name,
            Err(error) => self.note(Err(error)),
        }
        self
    }

    /// The version of the program, for people.
    pub fn version(mut self, version: &str) -> Self {
        version.clone_into(&mut self.settings.version);
        self
    }

    /// Registers the instance and starts everything.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) when two tasks have one kind, a name or number breaks a limit, or the
    /// store cannot give what a task asks for; else what the store said.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn start(mut self) -> Result<HostHandle> {
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        self.registry.check(&self.hapax)?;
        self.check_settings()?;
        let slots = Arc::new(Slots::new(self.queue_slots()?));
        let (ended, inbox) = mpsc::unbounded_channel();
        let core = Arc::new(Core {
            instance: watch::Sender::new(Core::new_instance(&self.hapax, &self.settings)),
            hapax: self.hapax,
            settings: self.settings,
            registry: self.registry,
            slots,
            ended,
            beat_now: tokio::sync::Notify::new(),
            beats_answered: watch::Sender::new(0),
            idle: watch::Sender::new(false),
            tally: Tally::default(),
        });
        let keeper = keeper::start(Arc::clone(&core)).await?;
        let duties = start_duties(&core, inbox);
        let services = start_services(&core, self.services);
        let readiness = services.readiness();
        let wishes = Wishes::default();
        let parts = Parts { core: Arc::clone(&core), wishes: wishes.clone(), services, duties, keeper };
        let done = tokio_util::sync::CancellationToken::new();
        let ended = done.clone().drop_guard();
        tokio::spawn(async move {
            let _ended = ended;
            until_ended(parts).await;
        });
        Ok(HostHandle::new(core, wishes, readiness, done))
    }

    fn note(&mut self, result: Result<()>) {
        if let Err(error) = result {
            self.wrong.get_or_insert(error);
        }
    }

    fn check_settings(&self) -> Result<()> {
        let Settings { lease, poll, prune_every, .. } = &self.settings;
        if *lease < LEASE_MIN {
            return Err(Error::invalid("lease", format!("is {lease:?}"), format!("give it at least {LEASE_MIN:?}")));
        }
        for (field, value) in [("poll", poll), ("prune_every", prune_every)] {
            if value.is_zero() {
                return Err(Error::invalid(field, "is zero", "give it at least a millisecond"));
            }
        }
        Ok(())
    }

    /// The declared queues, then those that tasks wait for.
    fn queue_slots(&self) -> Result<Vec<QueueSlots>> {
        let mut slots: Vec<QueueSlots> = Vec::new();
        for (name, options) in &self.queues {
            if options.workers == 0 {
                let mend = "give it at least 1 worker, or do not declare it";
                return Err(Error::invalid("workers", format!("of queue `{name}` is 0"), mend));
            }
            if slots.iter().any(|known| known.name.as_str() == name) {
                return Err(Error::invalid("queue", format!("`{name}` is declared twice"), "declare it once"));
            }
            slots.push(slots_of(Name::new("queue", name)?, *options));
        }
        for entry in self.registry.entries() {
            if slots.iter().all(|known| known.name != entry.queue) {
                slots.push(slots_of(entry.queue.clone(), QueueOptions::default()));
            }
        }
        Ok(slots)
    }
}

fn slots_of(name: Name, options: QueueOptions) -> QueueSlots {
    QueueSlots::new(name, options.workers, options.prefetch.unwrap_or(options.workers.saturating_mul(2)))
}

fn start_duties(core: &Arc<Core>, inbox: mpsc::UnboundedReceiver<Ended>) -> Supervisor {
    let mut duties = Supervisor::default();
    let inbox = Arc::new(Mutex::new(inbox));
    let shared = Arc::clone(core);
    let finish = move |stop| finisher::serve(Arc::clone(&shared), Arc::clone(&inbox), stop);
    duties.start(Service::duty("finisher", finish));
    let shared = Arc::clone(core);
    duties.start(Service::duty("reaper", move |stop| reaper::serve(Arc::clone(&shared), stop)));
    let shared = Arc::clone(core);
    duties.start(Service::duty("pruner", move |stop| pruner::serve(Arc::clone(&shared), stop)));
    duties
}

fn start_services(core: &Arc<Core>, of_user: Vec<Service>) -> Supervisor {
    let mut services = Supervisor::default();
    for service in of_user {
        services.start(service);
    }
    if !core.registry.kinds().is_empty() {
        let shared = Arc::clone(core);
        services.start(Service::duty("worker", move |stop| worker::serve(Arc::clone(&shared), stop)));
        let shared = Arc::clone(core);
        services.start(Service::duty("listener", move |stop| listener::serve(Arc::clone(&shared), stop)));
    }
    services
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: Name::new("name", &process_name()).expect("a legal name"),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            lease: Duration::from_secs(30),
            poll: Duration::from_millis(200),
            drain_timeout: Duration::from_secs(30),
            grace: Duration::from_secs(5),
            prune_every: Duration::from_mins(1),
        }
    }
}

impl<S> fmt::Debug for HostBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBuilder")
            .field("kinds", &self.registry.kinds())
            .field("queues", &self.queues)
            .field("services", &self.services)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
