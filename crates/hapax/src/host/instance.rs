//! What one registration stands for: an id, a lease by our own clock, and the runs that are held in memory.
//!
//! 1. A run enters `held` with its claim, and leaves it only when the store has answered for it, or when its task was
//!    never begun. So an owned run that is not held was never worked on, and may be given back untouched.
//! 2. A dead instance is left behind whole; the host goes on under a new one.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::run::Run;
use super::signal::StopReason;
use crate::client::Hapax;
use crate::clock::Deadline;
use crate::id::{ClaimId, InstanceId};
use crate::model::{OwnedRun, RunRef};

/// One registration of this process.
pub(crate) struct Instance {
    pub(crate) id: InstanceId,
    /// Where its runs write.
    pub(crate) hapax: Hapax,
    pub(crate) lease_ms: u64,
    /// How long a task may go on after it was told to stop.
    pub(crate) grace: Duration,
    /// Heartbeats sent so far.
    beats: AtomicU64,
    gone: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// The end of the lease as we may trust it; nothing before the store has taken the instance in.
    lease: Option<Deadline>,
    /// After a stall of the store: others must have had the chance to renew before anybody is declared dead.
    reap_from: Option<Deadline>,
    held: HashMap<RunRef, Run>,
    /// Claims whose answer is on its way.
    pending: HashSet<ClaimId>,
}

/// What a heartbeat's answer showed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reconciled {
    /// Owned in the store, unknown in memory: to be given back.
    pub(crate) give_back: Vec<RunRef>,
    /// Held in memory, no longer owned: told that they are lost.
    pub(crate) lost: u64,
}

impl Instance {
    pub(crate) fn new(id: InstanceId, hapax: Hapax, lease_ms: u64, grace: Duration) -> Self {
        let (beats, gone) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { id, hapax, lease_ms, grace, beats, gone, inner: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ------------------------------------------------------------------------------------------------------ its lease

    /// Heartbeats sent so far.
    pub(crate) fn beats(&self) -> u64 {
        self.beats.load(Ordering::Acquire)
    }

    /// A heartbeat is about to be sent; gives its number.
    pub(crate) fn next_beat(&self) -> u64 {
        self.beats.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The store renewed the lease. After a gap longer than a lease nobody is reaped before `reap_from`.
    pub(crate) fn renewed(&self, lease: Deadline, reap_from: Deadline) {
        let mut inner = self.lock();
        if inner.lease.is_some_and(Deadline::passed) {
            inner.reap_from = Some(reap_from);
        }
        inner.lease = Some(lease);
    }

    /// What is left of its lease, as far as it may be trusted.
    #[cfg(feature = "postgres")]
    pub(crate) fn lease_left(&self) -> Duration {
        self.lock().lease.map_or(Duration::ZERO, Deadline::left)
    }

    /// Whether the lease may have run out.
    pub(crate) fn lease_passed(&self) -> bool {
        self.is_gone() || self.lock().lease.is_none_or(Deadline::passed)
    }

    /// Whether it may claim and begin runs.
    pub(crate) fn is_usable(&self) -> bool {
        !self.lease_passed()
    }

    /// Whether it may declare others dead.
    pub(crate) fn may_reap(&self) -> bool {
        let mut inner = self.lock();
        if inner.reap_from.is_some_and(Deadline::passed) {
            inner.reap_from = None;
        }
        let renewed = inner.lease.is_some_and(|lease| !lease.passed());
        !self.is_gone() && renewed && inner.reap_from.is_none()
    }

    /// Whether the store declared it dead, or it left.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// The store does not know it any more: everything it holds is lost. Gives how many runs that were.
    pub(crate) fn leave_behind(&self) -> u64 {
        self.gone.store(true, Ordering::Release);
        let lost = self.lose_all();
        let mut inner = self.lock();
        inner.held.clear();
        inner.pending.clear();
        lost
    }

    /// Tells every run that its lease is lost.
    pub(crate) fn lose_all(&self) -> u64 {
        let mut lost = 0;
        for run in self.lock().held.values().filter(|run| !run.is_ending()) {
            lost += u64::from(run.signal().reason() != Some(StopReason::LeaseLost));
            run.raise(StopReason::LeaseLost);
        }
        lost
    }

    /// How long a task may go on after its lease was lost: half of what the lease keeps as its margin at most, so that
    /// it is dropped before the store gives the job to another.
    pub(crate) fn grace_when_lost(&self) -> Duration {
        self.grace.min(Duration::from_millis((self.lease_ms / 20).clamp(25, 2_500)))
    }

    // ------------------------------------------------------------------------------------------------------- its runs

    /// A claim is about to be sent.
    pub(crate) fn expect_claim(&self, claim: ClaimId) {
        self.lock().pending.insert(claim);
    }

    /// The answer to a claim is here, or given up.
    pub(crate) fn take_claim(&self, claim: ClaimId, runs: &[Run]) {
        let mut inner = self.lock();
        inner.pending.remove(&claim);
        if !self.is_gone() {
            inner.held.extend(runs.iter().map(|run| (run.reference(), run.clone())));
        }
    }

    /// These runs are settled, or were never begun.
    pub(crate) fn drop_runs<'a>(&self, runs: impl IntoIterator<Item = &'a RunRef>) {
        let mut inner = self.lock();
        for run in runs {
            inner.held.remove(run);
        }
    }

    /// Begins a run, if it is still held.
    pub(crate) fn begin(&self, run: &Run) -> bool {
        let inner = self.lock();
        let held = inner.held.contains_key(&run.reference()) && !self.is_gone();
        if held {
            run.begin();
        }
        held
    }

    /// Forgets claims on their way and runs that were not begun; the next heartbeat gives them back.
    pub(crate) fn forget_unbegun(&self) {
        let mut inner = self.lock();
        inner.pending.clear();
        inner.held.retain(|_, run| run.has_begun());
    }

    /// Does something with every held run.
    pub(crate) fn each(&self, mut what: impl FnMut(&Run)) {
        self.lock().held.values().for_each(&mut what);
    }

    /// Runs whose start the store shall learn with heartbeat `beat`.
    pub(crate) fn starts_due(&self, beat: u64) -> Vec<RunRef> {
        let inner = self.lock();
        let due = inner.held.values().filter(|run| run.start_is_due(beat) && !run.is_ending());
        due.map(Run::reference).collect()
    }

    /// Compares the answer to heartbeat `beat` with memory, and tells runs what concerns them.
    pub(crate) fn reconcile(&self, beat: u64, started: &[RunRef], owned: &[OwnedRun]) -> Reconciled {
        let inner = self.lock();
        let mut answer = Reconciled::default();
        let mut known = HashSet::with_capacity(owned.len());
        for theirs in owned {
            match inner.held.get(&theirs.run) {
                Some(run) => {
                    known.insert(theirs.run);
                    if theirs.cancel_requested {
                        run.raise(StopReason::CancelRequested);
                    }
                }
                None if inner.pending.contains(&theirs.claim) => {}
                None => answer.give_back.push(theirs.run),
            }
        }
        for run in started.iter().filter(|run| known.contains(run)).filter_map(|run| inner.held.get(run)) {
            run.mark_start_recorded();
        }
        // A run that came into memory after the heartbeat was sent may be missing from its answer without being lost.
        let asked = |run: &&Run| run.held_since() < beat && !known.contains(&run.reference()) && !run.is_ending();
        for run in inner.held.values().filter(asked) {
            answer.lost += u64::from(run.signal().reason() != Some(StopReason::LeaseLost));
            run.raise(StopReason::LeaseLost);
        }
        answer
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance").field("id", &self.id).field("gone", &self.is_gone()).finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::id::{Fence, JobId};
    use crate::testing::claimed_job;

    fn instance() -> Arc<Instance> {
        let instance = Instance::new(InstanceId::new(), Hapax::memory(), 30_000, Duration::from_secs(5));
        let anchor = Deadline::anchor();
        instance.renewed(anchor.deadline(30_000), anchor.plus_ms(0));
        Arc::new(instance)
    }

    /// A run that is held since the last heartbeat.
    fn held(instance: &Arc<Instance>) -> Run {
        let run = Run::new(claimed_job(instance.id), Arc::clone(instance), Deadline::anchor()).expect("it has a fence");
        instance.take_claim(ClaimId::new(), std::slice::from_ref(&run));
        run
    }

    fn owned(run: RunRef, claim: ClaimId) -> OwnedRun {
        OwnedRun { run, claim, cancel_requested: false }
    }

    #[test]
    fn what_nobody_holds_is_given_back_unless_its_claim_is_on_its_way() {
        let instance = instance();
        let (pending, lost) = (ClaimId::new(), ClaimId::new());
        instance.expect_claim(pending);
        let stranger = |n| RunRef { job: JobId::new(), fence: Fence::from_i64(n) };
        let (coming, left) = (stranger(1), stranger(2));
        let beat = instance.next_beat();
        let found = instance.reconcile(beat, &[], &[owned(coming, pending), owned(left, lost)]);
        assert_eq!(found, Reconciled { give_back: vec![left], lost: 0 });
    }

    #[test]
    fn what_is_no_longer_owned_is_told_unless_it_is_younger_than_the_question() {
        let instance = instance();
        let (older, ending) = (held(&instance), held(&instance));
        ending.set_ending(true);
        let beat = instance.next_beat();
        let younger = held(&instance);
        let found = instance.reconcile(beat, &[], &[]);
        assert_eq!(found, Reconciled { give_back: Vec::new(), lost: 1 });
        assert_eq!(older.signal().reason(), Some(StopReason::LeaseLost));
        assert_eq!((younger.signal().reason(), ending.signal().reason()), (None, None));
        assert_eq!(instance.reconcile(beat, &[], &[]).lost, 0, "told once");
    }

    #[test]
    fn a_wish_to_cancel_reaches_the_run() {
        let instance = instance();
        let run = held(&instance);
        let beat = instance.next_beat();
        let wish = OwnedRun { cancel_requested: true, ..owned(run.reference(), ClaimId::new()) };
        instance.reconcile(beat, &[], &[wish]);
        assert_eq!(run.signal().reason(), Some(StopReason::CancelRequested));
    }

    #[test]
    fn a_start_is_recorded_once_it_has_outlasted_a_heartbeat() {
        let instance = instance();
        let run = held(&instance);
        assert!(instance.begin(&run));
        let first = instance.next_beat();
        assert!(instance.starts_due(first).is_empty(), "it may end before the next one");
        let second = instance.next_beat();
        let due = instance.starts_due(second);
        assert_eq!(due, [run.reference()]);
        instance.reconcile(second, &due, &[owned(run.reference(), ClaimId::new())]);
        assert!(instance.starts_due(instance.next_beat()).is_empty(), "known from now on");
    }

    #[test]
    fn a_dead_instance_begins_nothing() {
        let instance = instance();
        let run = held(&instance);
        assert_eq!(instance.leave_behind(), 1);
        assert!(!instance.begin(&run) && !instance.is_usable() && !instance.may_reap());
        assert!(run.is_lost());
    }
}
