//! Keeps leases of locks and once keys alive, on a thread and a connection of its own, so that neither a task that
//! blocks its thread nor a pool that is used up can cost a lease.
//!
//! Its duties: 1. acquire, and give back what was granted to a caller who went away meanwhile; 2. renew at a third of
//! the lease; 3. tell the holder that the lease is lost, on refusal or before the store could give it to another;
//! 4. give back the lock of a guard that was dropped.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::settle::settle;
use crate::clock::{Anchor, Deadline};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Fence, OnceKey};
use crate::model::{LockAnswer, LockRef, LockRequest, OnceAnswer, OnceRequest};
use crate::store::Store;

/// Handle on the renewal thread, which starts with the first lease and ends after the last.
#[derive(Clone, Debug)]
pub(super) struct Renewal(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    orders: Mutex<Option<mpsc::UnboundedSender<Order>>>,
}

enum Order {
    Lock(LockRequest, oneshot::Sender<Result<Leased<LockAnswer>>>),
    Once(OnceRequest, oneshot::Sender<Result<Leased<OnceAnswer>>>),
}

/// An answer, and the lease if it granted one.
pub(super) type Leased<A> = (A, Option<Lease>);

/// What is held under a lease.
#[derive(Clone, Debug)]
enum Held {
    Lock(LockRef),
    Once(OnceKey, Fence),
}

/// A lease as its holder sees it. Ends when it is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    state: Arc<LeaseState>,
    /// Keeps the thread's door open while something is held.
    _renewal: Renewal,
}

#[derive(Debug)]
struct LeaseState {
    deadline: watch::Sender<Deadline>,
    lost: CancellationToken,
    /// The holder is done with it: renew no more.
    ended: CancellationToken,
    /// The holder released it or has ended its work: nothing is left to give back.
    settled: CancellationToken,
}

impl Lease {
    /// Until when the holder may trust it.
    pub(super) fn deadline(&self) -> Deadline {
        *self.state.deadline.borrow()
    }

    /// The deadline, once a renewal has moved it beyond `since`.
    pub(super) async fn renewed(&self, since: Deadline) -> Deadline {
        let mut deadlines = self.state.deadline.subscribe();
        match deadlines.wait_for(|deadline| *deadline > since).await {
            Ok(deadline) => *deadline,
            // Not while this lease keeps the sender.
            Err(_) => std::future::pending().await,
        }
    }

    /// Cancelled once it is lost.
    pub(super) fn lost(&self) -> &CancellationToken {
        &self.state.lost
    }

    /// Whether it is held for certain.
    pub(super) fn is_held(&self) -> bool {
        !self.state.lost.is_cancelled() && !self.deadline().passed()
    }

    /// Renews no more, and gives nothing back: its end is written by the caller.
    pub(super) fn settle(&self) {
        self.state.settled.cancel();
        self.state.ended.cancel();
    }
}

impl Drop for Lease {
    /// Neither blocks nor spawns: the renewal task sees it and gives the lock back.
    fn drop(&mut self) {
        self.state.ended.cancel();
    }
}

impl Renewal {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self(Arc::new(Shared { store, orders: Mutex::new(None) }))
    }

    /// Acquires a lock. May be dropped at any await: what is granted afterwards is given back.
    pub(super) async fn lock(&self, request: LockRequest) -> Result<Leased<LockAnswer>> {
        let (reply, answer) = oneshot::channel();
        self.order(Order::Lock(request, reply))?;
        answer.await.map_err(|_| thread_ended())?
    }

    /// Claims a once key. May be dropped at any await: the lease of what is granted afterwards ends by itself.
    pub(super) async fn once(&self, request: OnceRequest) -> Result<Leased<OnceAnswer>> {
        let (reply, answer) = oneshot::channel();
        self.order(Order::Once(request, reply))?;
        answer.await.map_err(|_| thread_ended())?
    }

    fn order(&self, order: Order) -> Result<()> {
        let mut door = self.0.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let order = match &*door {
            Some(orders) => match orders.send(order) {
                Ok(()) => return Ok(()),
                Err(mpsc::error::SendError(order)) => order,
            },
            None => order,
        };
        let (orders, inbox) = mpsc::unbounded_channel();
        let thread = Thread { store: self.0.store.clone(), renewal: Arc::downgrade(&self.0) };
        std::thread::Builder::new()
            .name("hapax-renewal".to_owned())
            .spawn(move || thread.run(inbox))
            .map_err(|e| Error::did_not_happen(ErrorKind::Closed, "the renewal thread did not start").with_source(e))?;
        orders.send(order).map_err(|_| thread_ended())?;
        *door = Some(orders);
        Ok(())
    }
}

fn thread_ended() -> Error {
    Error::may_have_happened(ErrorKind::Closed, "the thread that renews leases has ended")
}

struct Thread {
    store: Arc<dyn Store>,
    renewal: std::sync::Weak<Shared>,
}

impl Thread {
    fn run(self, inbox: mpsc::UnboundedReceiver<Order>) {
        match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(self.serve(inbox)),
            Err(error) => tracing::error!(%error, "the renewal thread has no runtime; locks are refused"),
        }
    }

    async fn serve(self, mut inbox: mpsc::UnboundedReceiver<Order>) {
        let mut own: Option<Arc<dyn Store>> = None;
        let mut tasks = tokio::task::JoinSet::new();
        while let Some(order) = inbox.recv().await {
            while tasks.try_join_next().is_some() {}
            let store = match &own {
                Some(store) => Ok(store.clone()),
                None => self.store.another().await.inspect(|store| own = Some(store.clone())),
            };
            let renewal = self.renewal.upgrade().map(Renewal);
            tasks.spawn(fill(order, store, renewal));
        }
        // Nobody can ask for more; leases that were dropped are still given back.
        while tasks.join_next().await.is_some() {}
        if let Some(store) = own {
            store.close().await;
        }
    }
}

async fn fill(order: Order, store: Result<Arc<dyn Store>>, renewal: Option<Renewal>) {
    match order {
        Order::Lock(request, reply) => {
            let lease_ms = request.lease_ms;
            let anchor = Deadline::anchor();
            let asked = async {
                let store = store?;
                let answer = settle(|| store.acquire_lock(request.clone())).await?;
                Ok((store, answer))
            };
            let held = |answer: &LockAnswer| match answer {
                LockAnswer::Granted(lock) => Some(Held::Lock(lock.clone())),
                LockAnswer::Busy { .. } => None,
            };
            hold(asked.await, (held, reply), (anchor, lease_ms), renewal).await;
        }
        Order::Once(request, reply) => {
            let lease_ms = request.lease_ms;
            let anchor = Deadline::anchor();
            let asked = async {
                let store = store?;
                let answer = settle(|| store.claim_once(request.clone())).await?;
                Ok((store, answer))
            };
            let held = |answer: &OnceAnswer| match answer {
                OnceAnswer::Claimed { fence, .. } => Some(Held::Once(request.claim.key.clone(), *fence)),
                _ => None,
            };
            hold(asked.await, (held, reply), (anchor, lease_ms), renewal).await;
        }
    }
}

/// Hands the answer to the caller and keeps the lease until it ends.
async fn hold<A>(
    asked: Result<(Arc<dyn Store>, A)>,
    (held, reply): (impl FnOnce(&A) -> Option<Held>, oneshot::Sender<Result<Leased<A>>>),
    (anchor, lease_ms): (Anchor, u64),
    renewal: Option<Renewal>,
) {
    // A caller who has gone away needs no answer; its lease, if any, is dropped here and given back below.
    let (store, answer) = match asked {
        Ok(asked) => asked,
        Err(error) => return drop(reply.send(Err(error))),
    };
    let Some((held, renewal)) = held(&answer).zip(renewal) else {
        return drop(reply.send(Ok((answer, None))));
    };
    let state = Arc::new(LeaseState {
        deadline: watch::Sender::new(anchor.deadline(lease_ms)),
        lost: CancellationToken::new(),
        ended: CancellationToken::new(),
        settled: CancellationToken::new(),
    });
    let lease = Lease { state: state.clone(), _renewal: renewal };
    drop(reply.send(Ok((answer, Some(lease)))));
    keep(&*store, &held, &state, lease_ms).await;
}

async fn keep(store: &dyn Store, held: &Held, state: &LeaseState, lease_ms: u64) {
    let third = Duration::from_millis((lease_ms / 3).max(1));
    let mut pause = third;
    loop {
        tokio::select! {
            biased;
            () = state.ended.cancelled() => return give_back(store, held, state).await,
            () = rest(state, pause) => {}
        }
        let anchor = Deadline::anchor();
        let renewed = tokio::select! {
            biased;
            () = state.ended.cancelled() => return give_back(store, held, state).await,
            renewed = held.renew(store, lease_ms) => Ok(renewed),
            () = rest(state, Duration::MAX) => Err(()),
        };
        match renewed {
            Ok(Ok(())) => {
                state.deadline.send_replace(anchor.deadline(lease_ms));
                pause = third;
            }
            Ok(Err(error)) if error.kind() == ErrorKind::Refused => return lose(held, state, &error.to_string()),
            Ok(Err(error)) => {
                tracing::warn!(%error, ?held, "a lease was not renewed; trying again");
                pause = third / 8;
            }
            Err(()) => {}
        }
        if state.deadline.borrow().passed() {
            return lose(held, state, "it was not renewed in time");
        }
    }
}

/// Waits for `pause`, or until the lease has passed. Timers stand still while a machine is suspended, so the clock is
/// asked again and again.
async fn rest(state: &LeaseState, pause: Duration) {
    const TICK: Duration = Duration::from_millis(200);
    let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
    let until = Deadline::anchor().plus_ms(pause_ms);
    loop {
        let left = until.left().min(state.deadline.borrow().left());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(TICK)).await;
    }
}

fn lose(held: &Held, state: &LeaseState, why: &str) {
    tracing::warn!(?held, why, "a lease is lost");
    state.lost.cancel();
}

/// The guard of a lock was dropped: others need not wait for the end of the lease. A once key is not given back, for
/// its work may have taken effect.
async fn give_back(store: &dyn Store, held: &Held, state: &LeaseState) {
    state.lost.cancel();
    if let Held::Lock(lock) = held
        && !state.settled.is_cancelled()
        && let Err(error) = settle(|| store.release_lock(lock.clone())).await
    {
        tracing::debug!(%error, ?lock, "a dropped lock was not given back; its lease ends by itself");
    }
}

impl Held {
    async fn renew(&self, store: &dyn Store, lease_ms: u64) -> Result<()> {
        match self {
            Self::Lock(lock) => store.renew_lock(lock.clone(), lease_ms).await,
            Self::Once(key, fence) => store.renew_once(key.clone(), *fence, lease_ms).await,
        }
    }
}
