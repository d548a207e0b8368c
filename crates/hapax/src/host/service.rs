//! Services: code of the user's that runs for as long as the host does.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::registry::BoxFuture;
use super::shutdown::Stop;
use crate::task::BoxError;

/// How a service is looked after.
///
/// ```
/// use std::time::Duration;
/// use hapax::host::ServiceOptions;
///
/// let options = ServiceOptions::new().restart_after(Duration::from_millis(100)).restart_cap(Duration::from_secs(30));
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until a service is registered with them"]
pub struct ServiceOptions {
    pub(crate) base: Duration,
    pub(crate) cap: Duration,
    pub(crate) may_end: bool,
    pub(crate) announces_ready: bool,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl ServiceOptions {
    /// Restarted whenever it ends, after 1 s at first and up to 1 min later; ready as soon as it has begun.
    pub const fn new() -> Self {
        Self { base: Duration::from_secs(1), cap: Duration::from_mins(1), may_end: false, announces_ready: false }
    }

    /// The wait before the first restart; doubled at each further one, and spread a little.
    pub const fn restart_after(mut self, base: Duration) -> Self {
        self.base = base;
        self
    }

    /// The longest wait before a restart. A service that worked for longer than this starts again with the first wait.
    pub const fn restart_cap(mut self, cap: Duration) -> Self {
        self.cap = cap;
        self
    }

    /// Returning `Ok` means that the service is done, rather than an end nobody asked for.
    pub const fn may_end(mut self) -> Self {
        self.may_end = true;
        self
    }

    /// The service says itself when it is ready, by [`Stop::announce_ready`].
    pub const fn announces_ready(mut self) -> Self {
        self.announces_ready = true;
        self
    }
}

/// Makes a service anew for each start.
pub(crate) type MakeService = Arc<dyn Fn(Stop) -> BoxFuture<Result<(), BoxError>> + Send + Sync>;

/// A service and how it is looked after.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) options: ServiceOptions,
    pub(crate) make: MakeService,
}

impl Service {
    /// A duty of the host itself: restarted soon, ready at once.
    pub(crate) fn duty<F, Fut>(name: &str, make: F) -> Self
    where
        F: Fn(Stop) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        let options =
            ServiceOptions::new().restart_after(Duration::from_millis(200)).restart_cap(Duration::from_secs(10));
        Self { name: name.to_owned(), options, make: Arc::new(move |stop| Box::pin(make(stop))) }
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("name", &self.name).field("options", &self.options).finish_non_exhaustive()
    }
}
