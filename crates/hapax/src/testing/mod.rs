//! Helpers for users' own tests (feature `testing`): a store on a clock that the test moves, tasks that run when the
//! test says so, instances that die on command, answers that get lost, and connections that break.
//!
//! What runs here are the real claims, tasks and finishes; only the waiting is the test's. Never in production: a
//! movable clock lets a test lie about time.
//!
//! This room does not know: how a host schedules its work, threads, or any store but the one it is given. It has no
//! second meaning of any verb: the memory store is the model itself.

mod dead;
mod faults;
mod hapax;
mod proxy;

pub use dead::DeadInstance;
pub use faults::{Fault, Faults};
pub use hapax::TestHapax;
pub use proxy::{Proxy, ProxyConnection, ProxyCounts, ProxyFaults, When};

pub use crate::clock::Clock;

/// A job as a store gives it to `instance`, for unit tests.
#[cfg(test)]
pub(crate) fn claimed_job(instance: crate::InstanceId) -> crate::model::JobRecord {
    use crate::id::{ClaimId, JobId, Name, Payload};
    use crate::model::{ClaimRequest, Due, Guarantee, Model, NewInstance, NewJob, RetryPolicy};

    let name = |text| Name::new("name", text).expect("legal");
    let now = crate::clock::Now::default();
    let mut model = Model::new();
    let (queues, kinds) = (vec![name("q")], vec![name("k")]);
    let new = NewInstance { id: instance, name: name("i"), version: String::new(), queues, kinds, lease_ms: 1 };
    model.register(now, &new).expect("a new id");
    let job = NewJob {
        id: JobId::new(),
        queue: name("q"),
        kind: name("k"),
        payload: Payload::new("null").expect("JSON"),
        payload_version: 1,
        priority: 0,
        due: Due::Now,
        once: None,
        guarantee: Guarantee::AtLeastOnce,
        retry: RetryPolicy::default(),
        run_timeout_ms: 60_000,
        keep_ms: 1,
    };
    model.enqueue(now, &[job]);
    let (claim, queues) = (ClaimId::new(), vec![(name("q"), 1)]);
    let request = ClaimRequest { instance, claim, queues, kinds: vec![name("k")], suspect: false };
    model.claim(now, &request).expect("live").jobs.remove(0)
}
