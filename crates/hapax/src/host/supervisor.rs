//! Keeps services going.
//!
//! 1. Starts each in a tokio task of its own: one that dies takes no other along.
//! 2. Starts one again that fails, panics, or ends unasked; later each time, up to a cap, and not in step with others.
//! 3. Knows which are ready.
//! 4. Asks all to stop, waits for them, and drops those that do not.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::pace::Pace;
use super::service::Service;
use super::shutdown::Stop;
use crate::clock::Deadline;
use crate::error::panic_text;
use crate::telemetry;

/// A group of services that end together.
#[derive(Debug, Default)]
pub(crate) struct Supervisor {
    stop: CancellationToken,
    abort: CancellationToken,
    tasks: TaskTracker,
    ready: Vec<watch::Receiver<bool>>,
}

impl Supervisor {
    /// Starts a service and looks after it from now on.
    pub(crate) fn start(&mut self, service: Service) {
        let ready = Arc::new(watch::Sender::new(false));
        self.ready.push(ready.subscribe());
        let stop = Stop::new(self.stop.clone(), ready);
        let abort = self.abort.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = look_after(&service, &stop) => {}
                () = abort.cancelled() => {}
            }
        });
    }

    /// What tells whether all are ready.
    pub(crate) fn readiness(&self) -> Vec<watch::Receiver<bool>> {
        self.ready.clone()
    }

    /// Asks all to stop.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
    }

    /// Waits until all have ended, once they were asked to.
    pub(crate) async fn ended(&self) {
        self.tasks.wait().await;
    }

    /// Drops those that have not ended.
    pub(crate) fn abort(&self) {
        self.abort.cancel();
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.stop.cancel();
        self.abort.cancel();
    }
}

/// One service: start, wait for its end, start again.
async fn look_after(service: &Service, stop: &Stop) {
    let mut pace = Pace::new(service.options.base, service.options.cap);
    loop {
        let (make, its_stop) = (Arc::clone(&service.make), stop.clone());
        let begun = Deadline::anchor();
        // The user's function is called inside the task too: it may panic before it gives a future.
        let task = AbortOnDropHandle::new(tokio::spawn(async move { make(its_stop).await }));
        if !service.options.announces_ready {
            stop.announce_ready();
        }
        let ended = task.await;
        if stop.is_requested() {
            if let Ok(Err(error)) = ended {
                tracing::warn!(service = service.name, %error, "a service failed while it stopped");
            }
            return;
        }
        if begun.elapsed() > service.options.cap {
            pace.reset();
        }
        match ended {
            Ok(Ok(())) if service.options.may_end => return,
            Ok(Ok(())) => tracing::warn!(service = service.name, "a service ended unasked"),
            Ok(Err(error)) => tracing::error!(service = service.name, %error, "a service failed"),
            Err(error) => {
                let text = error.try_into_panic().map_or_else(|_| "cancelled".to_owned(), |p| panic_text(p.as_ref()));
                tracing::error!(service = service.name, text, "a service panicked");
            }
        }
        metrics::counter!(telemetry::SERVICE_RESTARTS, "service" => service.name.clone()).increment(1);
        tokio::select! {
            () = tokio::time::sleep(pace.next()) => {}
            () = stop.requested() => return,
        }
    }
}
