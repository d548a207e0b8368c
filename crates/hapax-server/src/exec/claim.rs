//! Claiming the key of a period, then the lock: always in this order, so that nobody waits for what another holds who
//! waits in turn.
//!
//! Who waits for another's outcome holds nothing. Who waits for the lock holds at most the key of its own period, which
//! nobody waits for while holding the lock.

use std::time::Duration;

use hapax::client::{LockGuard, OnceClaim, OnceGuard, OnceOptions};
use hapax::clock::{Deadline, Micros};
use hapax::error::ErrorKind;
use hapax::id::Fence;
use hapax::model::schedule::Span;
use hapax::model::{KeyHolder, KeyRecord, KeyState};
use hapax::{Hapax, Result};

use super::patience::Patience;
use super::plan::Plan;
use crate::exit::Failure;

/// The scope in which `exec` claims its keys.
pub(crate) const SCOPE: &str = "exec";
/// How much longer than its period a key is refused once done.
const KEEP_AFTER_MS: u64 = 30 * 86_400_000;
/// Between two looks at another's work.
const LOOK_FIRST: Duration = Duration::from_millis(20);
const LOOK_MAX: Duration = Duration::from_millis(500);

/// What is held while the child runs; nothing when it runs without the store.
#[derive(Debug, Default)]
pub(super) struct Leases {
    /// The key of the period.
    pub(super) key: Option<OnceGuard>,
    /// The lock.
    pub(super) lock: Option<LockGuard>,
}

/// What came of claiming.
pub(super) enum Claimed {
    /// The child may run.
    Ours(Leases),
    /// Another has done it.
    Done(Box<KeyRecord>),
    /// Another holds the key or the lock; the text says who.
    Busy(String),
}

impl Leases {
    /// Until when all of them may be trusted.
    pub(super) fn deadline(&self) -> Option<Deadline> {
        self.key.as_ref().map(OnceGuard::deadline).into_iter().chain(self.lock.as_ref().map(LockGuard::deadline)).min()
    }

    /// The deadline of all, once it is later than `since`.
    pub(super) async fn renewed(&self, since: Option<Deadline>) -> Deadline {
        let Some(since) = since else { return std::future::pending().await };
        if let Some(key) = &self.key {
            key.renewed(since).await;
        }
        if let Some(lock) = &self.lock {
            lock.renewed(since).await;
        }
        match self.deadline() {
            Some(deadline) => deadline,
            None => std::future::pending().await,
        }
    }

    /// Ends when one of them is lost.
    pub(super) async fn lost(&self) {
        let key = async {
            match &self.key {
                Some(key) => key.lost().await,
                None => std::future::pending().await,
            }
        };
        let lock = async {
            match &self.lock {
                Some(lock) => lock.lost().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = key => {}
            () = lock => {}
        }
    }

    /// The fence for the child: of the lock, whose identity is the same in every period.
    pub(super) fn fence(&self) -> Option<Fence> {
        self.lock.as_ref().map(LockGuard::fence).or_else(|| self.key.as_ref().map(OnceGuard::fence))
    }
}

/// Claims what the plan wants, waiting as long as it allows.
pub(super) async fn claim(
    hapax: &Hapax,
    plan: &Plan,
    span: Option<&Span>,
    patience: &Patience,
) -> Result<Claimed, Failure> {
    let mut leases = Leases::default();
    if let (Some(once), Some(span)) = (&plan.once, span) {
        let now = patience.while_busy(async || hapax.now().await).await?;
        let keep_ms = span.end.ms_since(now).saturating_add(KEEP_AFTER_MS);
        let value = key_value(&once.key, &span.id);
        let options = hapax.once(SCOPE, value).lease(plan.ttl).keep(Duration::from_millis(keep_ms));
        match claim_key(&options, plan.ttl, patience).await? {
            Key::Ours(guard) => leases.key = Some(guard),
            Key::Done(record) => return Ok(Claimed::Done(record)),
            Key::Busy(who) => return Ok(Claimed::Busy(who)),
        }
    }
    let Some(name) = &plan.lock else { return Ok(Claimed::Ours(leases)) };
    let options = hapax.lock(name).permits(plan.permits).lease(plan.ttl);
    let acquire = async || match options.clone().wait(patience.left()).acquire().await {
        Err(error) if error.kind() == ErrorKind::Held => Ok(Err(error.to_string())),
        answer => answer.map(Ok),
    };
    let answer = patience.while_busy(acquire).await;
    let why = match answer {
        Ok(Ok(guard)) => {
            leases.lock = Some(guard);
            return Ok(Claimed::Ours(leases));
        }
        Ok(Err(ref held)) => held.clone(),
        Err(ref failure) => failure.to_string(),
    };
    if let Some(key) = leases.key {
        // Nothing has run: the next caller need not wait for the end of the lease.
        let given_back = key.failed(&format!("not run: {why}")).await;
        given_back.unwrap_or_else(|error| tracing::debug!(%error, "the key was not given back"));
    }
    answer.map(|_| Claimed::Busy(why))
}

/// The once key of a period. No period's name has a blank, so the last one parts the two.
pub(crate) fn key_value(key: &str, period: &str) -> String {
    format!("{key} {period}")
}

enum Key {
    Ours(OnceGuard),
    Done(Box<KeyRecord>),
    Busy(String),
}

/// Claims the key, or waits for what becomes of it in another's hands.
async fn claim_key(options: &OnceOptions, ttl: Duration, patience: &Patience) -> Result<Key, Failure> {
    loop {
        let mut seen = match patience.while_busy(async || options.claim().await).await? {
            OnceClaim::Claimed(guard) => return Ok(Key::Ours(guard)),
            OnceClaim::Done(record) => return Ok(Key::Done(record)),
            OnceClaim::Busy(record) => record,
        };
        // Looking counts no refused duplicate; claiming would. One whose lease has not moved for as long as ours would
        // last is worth a claim: the store alone knows whether it has run out.
        let mut moved = tokio::time::Instant::now();
        let mut look = LOOK_FIRST;
        while moved.elapsed() < ttl {
            if patience.left().is_zero() {
                return Ok(Key::Busy(busy(&seen)));
            }
            let pause = look.mul_f64(0.5 + fastrand::f64() / 2.0);
            tokio::time::sleep(pause.min(patience.left())).await;
            look = (look * 2).min(LOOK_MAX);
            match patience.while_busy(async || options.look_up().await).await? {
                Some(record) if record.state == KeyState::Done => return Ok(Key::Done(Box::new(record))),
                Some(record) if record.state == KeyState::Held => {
                    if (record.fence, record.lease_until) != (seen.fence, seen.lease_until) {
                        moved = tokio::time::Instant::now();
                    }
                    *seen = record;
                }
                // It failed: whoever comes first takes over.
                _ => break,
            }
        }
    }
}

fn busy(record: &KeyRecord) -> String {
    format!("{} is being done by {} since {}", record.key.value(), holder(record), crate::time::iso(record.since))
}

/// Who has a key, for people.
pub(crate) fn holder(record: &KeyRecord) -> String {
    match &record.holder {
        KeyHolder::Claim(name) => name.to_string(),
        KeyHolder::Job(id) => format!("job {id}"),
    }
}

/// The period that an instant lies in.
pub(super) fn period(plan: &Plan, now: Micros) -> Result<Option<Span>> {
    plan.once.as_ref().map(|once| once.period.containing(now, &once.zone)).transpose()
}
