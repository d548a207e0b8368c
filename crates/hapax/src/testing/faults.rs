//! A store whose calls fail, or whose answers get lost, when the test says so.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::Notify;

use crate::client::Hapax;
use crate::error::{Error, ErrorKind, Result};
use crate::model::observe::{Answer, Command};
use crate::store::Store;
use crate::store::wired::{Wire, Wired, call};

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The store cannot be reached, and that is certain: nothing happened.
    Unreachable,
    /// The request is lost on its way: nothing happened, and nobody knows.
    RequestLost,
    /// The answer is lost on its way: it happened, and nobody knows.
    AnswerLost,
    /// No answer for as long as the fault lasts; then the call goes through.
    Silence,
}

/// Lets calls of a store fail by a script. Verbs are named as in the traits of the store: `claim`, `finish`,
/// `heartbeat`, … Effects that are committed with their finish do not pass here.
///
/// ```
/// use hapax::Hapax;
/// use hapax::testing::{Fault, Faults};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let faults = Faults::default();
/// let hapax = faults.between(&Hapax::memory());
///
/// faults.once("counters", Fault::AnswerLost);
/// assert!(hapax.store().counters().await.is_err());
/// assert!(hapax.store().counters().await.is_ok());
/// assert_eq!(faults.calls("counters"), 2);
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Script>);

#[derive(Debug, Default)]
struct Script {
    verbs: Mutex<HashMap<&'static str, Verb>>,
    mended: Notify,
}

#[derive(Debug, Default)]
struct Verb {
    calls: u64,
    /// For the next calls, in order.
    next: Vec<Fault>,
    /// For all calls after those.
    lasting: Option<Fault>,
}

impl Faults {
    /// The same store, with these faults in between: also on the connections of hosts that are built on it.
    pub fn between(&self, hapax: &Hapax) -> Hapax {
        Hapax::with_store(Arc::new(Wired::new(Arc::clone(hapax.store()), Arc::new(self.clone()))))
    }

    /// Lets one call of the verb go wrong, the next one that no earlier `once` has taken.
    pub fn once(&self, verb: &'static str, fault: Fault) {
        self.verbs().entry(verb).or_default().next.push(fault);
    }

    /// Lets every call of the verb go wrong until it is mended.
    pub fn cut(&self, verb: &'static str, fault: Fault) {
        self.verbs().entry(verb).or_default().lasting = Some(fault);
    }

    /// Lets calls of the verb go through again.
    pub fn mend(&self, verb: &'static str) {
        let mut verbs = self.verbs();
        let found = verbs.entry(verb).or_default();
        found.next.clear();
        found.lasting = None;
        drop(verbs);
        self.0.mended.notify_waiters();
    }

    /// How often the verb was called.
    pub fn calls(&self, verb: &'static str) -> u64 {
        self.verbs().get(verb).map_or(0, |verb| verb.calls)
    }

    fn verbs(&self) -> MutexGuard<'_, HashMap<&'static str, Verb>> {
        self.0.verbs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault(&self, verb: &'static str) -> Option<Fault> {
        let mut verbs = self.verbs();
        let verb = verbs.entry(verb).or_default();
        verb.calls += 1;
        if verb.next.is_empty() { verb.lasting } else { Some(verb.next.remove(0)) }
    }

    async fn until_mended(&self, verb: &'static str) {
        loop {
            let mut mended = std::pin::pin!(self.0.mended.notified());
            mended.as_mut().enable();
            if self.verbs().get(verb).is_none_or(|verb| verb.lasting.is_none()) {
                return;
            }
            mended.await;
        }
    }
}

#[async_trait]
impl Wire for Faults {
    async fn carry(&self, store: &dyn Store, command: Command) -> Result<Answer> {
        let verb = verb_of(&command);
        let lost = |what: &str| {
            let text = format!("{verb}: the {what} was lost on its way");
            Err(Error::may_have_happened(ErrorKind::Unreachable, text))
        };
        match self.fault(verb) {
            None => call(store, command).await,
            Some(Fault::Unreachable) => {
                Err(Error::did_not_happen(ErrorKind::Unreachable, format!("{verb}: the store cannot be reached")))
            }
            Some(Fault::RequestLost) => lost("request"),
            Some(Fault::AnswerLost) => {
                call(store, command).await?;
                lost("answer")
            }
            Some(Fault::Silence) => {
                self.until_mended(verb).await;
                call(store, command).await
            }
        }
    }
}

/// The name of a command's verb in the traits.
const fn verb_of(command: &Command) -> &'static str {
    match command {
        Command::Enqueue(..) => "enqueue",
        Command::Peek(..) => "peek",
        Command::Claim(..) => "claim",
        Command::Start(..) => "start",
        Command::Finish(..) => "finish",
        Command::Release(..) => "release",
        Command::Progress(..) => "progress",
        Command::Verdict(..) => "verdict",
        Command::Register(..) => "register",
        Command::Heartbeat(..) => "heartbeat",
        Command::Leave(..) => "leave",
        Command::Reap(..) => "reap",
        Command::Prune(..) => "prune",
        Command::AcquireLock(..) => "acquire_lock",
        Command::RenewLock(..) => "renew_lock",
        Command::ReleaseLock(..) => "release_lock",
        Command::LockHolders(..) => "lock_holders",
        Command::ClaimOnce(..) => "claim_once",
        Command::RenewOnce(..) => "renew_once",
        Command::FinishOnce(..) => "finish_once",
        Command::FindOnce(..) => "find_once",
        Command::ListOnce(..) => "list_once",
        Command::ForgetOnce(..) => "forget_once",
        Command::ResolveOnce(..) => "resolve_once",
        Command::BreakLock(..) => "break_lock",
        Command::Cancel(..) => "cancel",
        Command::Retry(..) => "retry",
        Command::Park(..) => "park",
        Command::Resolve(..) => "resolve",
        Command::Pause(..) => "pause",
        Command::Resume(..) => "resume",
        Command::Job(..) => "job",
        Command::List(..) => "list",
        Command::Queues => "queues",
        Command::Instances => "instances",
        Command::Refusals(..) => "refusals",
        Command::Counters => "counters",
        Command::Now => "now",
    }
}
