//! Locks and permits: one holder for each, as long as its lease lasts, and a fence that only grows.

use std::collections::BTreeSet;

use super::Harness;
use super::world::{LEASE_MS, World, lock, name, refusal};
use crate::clock::Micros;
use crate::id::{AcquisitionId, NAME_BYTES_MAX};
use crate::model::{LockAnswer, LockHolder, LockRef, LockRequest};

/// The holders that a busy lock names.
async fn busy(w: &World<'_>, request: &LockRequest) -> Vec<LockHolder> {
    match w.acquire_lock(request.clone()).await.expect("answered") {
        LockAnswer::Busy { holders } => holders,
        LockAnswer::Granted(lock) => panic!("{lock:?} was granted"),
    }
}

/// Law 1: while a lease lasts, nobody else gets the lock; the answer names who has it and for how long.
pub async fn a_held_lock_is_busy(h: &dyn Harness) {
    let w = World::new(h);
    let mine = LockRequest { holder: name("me"), ..lock("x") };
    let held = w.hold(&mine).await;
    let since = w.now().wall;
    w.pass(2_500);
    let wanted = LockHolder { lock: held, holder: name("me"), since, expires_in_ms: LEASE_MS - 2_500 };
    assert_eq!(busy(&w, &lock("x")).await, std::slice::from_ref(&wanted));
    assert_eq!(w.lock_holders(Some(name("x"))).await.expect("read"), [wanted]);
    w.hold(&lock("y")).await;
}

/// Ids decide: asking again with the same acquisition finds the same grant, and does not extend it.
pub async fn a_repeated_wish_finds_its_grant(h: &dyn Harness) {
    let w = World::new(h);
    let request = lock("x");
    let held = w.hold(&request).await;
    w.pass(1_000);
    assert_eq!(w.hold(&request).await, held);
    assert_eq!(w.lock_holders(None).await.expect("read")[0].expires_in_ms, LEASE_MS - 1_000);
    w.pass(LEASE_MS - 1_000);
    assert!(w.hold(&request).await.fence > held.fence, "its lease ran out: a new grant");
}

/// Laws 1 and 12: the store gives a lock to another at the end of its lease, and not a moment sooner.
pub async fn a_lock_passes_on_at_the_end_of_its_lease(h: &dyn Harness) {
    let w = World::new(h);
    let first = w.hold(&lock("x")).await;
    w.pass(LEASE_MS - 1);
    assert_eq!(busy(&w, &lock("x")).await.len(), 1);
    w.pass(1);
    assert_eq!(w.lock_holders(None).await.expect("read"), []);
    let second = w.hold(&lock("x")).await;
    assert_eq!((&second.name, second.slot), (&first.name, first.slot));
    assert!(second.fence > first.fence);
}

/// Law 1: a renewal counts from now, keeps the fence, and is the only thing that keeps the lock.
pub async fn a_renewal_keeps_the_fence(h: &dyn Harness) {
    let w = World::new(h);
    let held = w.hold(&lock("x")).await;
    for _ in 0..5 {
        w.pass(LEASE_MS - 1);
        w.renew_lock(held.clone(), LEASE_MS).await.expect("in time");
    }
    assert_eq!(w.lock_holders(None).await.expect("read")[0].lock, held);
    w.renew_lock(held.clone(), 3 * LEASE_MS).await.expect("in time");
    w.pass(3 * LEASE_MS - 1);
    assert_eq!(busy(&w, &lock("x")).await[0].lock, held);
    w.renew_lock(held.clone(), 1).await.expect("in time");
    w.pass(1);
    assert!(w.hold(&lock("x")).await.fence > held.fence, "a renewal may shorten a lease");
}

/// Law 1: fences of one slot grow over release, expiry and names that nobody remembers.
pub async fn fences_of_a_lock_grow(h: &dyn Harness) {
    let w = World::new(h);
    let mut last = None;
    for round in 0..12 {
        let held = w.hold(&lock("x")).await;
        assert!(Some(held.fence) > last, "{:?} after {last:?}", held.fence);
        assert!(held.fence.as_i64() > 0);
        last = Some(held.fence);
        if round % 3 == 0 {
            w.pass(LEASE_MS);
        } else {
            w.release_lock(held).await.expect("held");
        }
        if round == 6 {
            w.pass(2 * crate::model::EVIDENCE_KEEP_MS);
            w.prune(1_000).await.expect("pruned");
        }
    }
}

/// A release frees the lock at once; one that came late, and that nobody took over, counts as well.
pub async fn a_released_lock_is_free_at_once(h: &dyn Harness) {
    let w = World::new(h);
    let held = w.hold(&lock("x")).await;
    w.release_lock(held).await.expect("held");
    assert_eq!(w.lock_holders(None).await.expect("read"), []);
    let late = w.hold(&lock("x")).await;
    w.pass(2 * LEASE_MS);
    w.release_lock(late.clone()).await.expect("late, and unchallenged");
    refusal(w.release_lock(late).await);
}

/// As many permits as there are, the lowest free slot first, and no more.
pub async fn permits_are_counted(h: &dyn Harness) {
    let w = World::new(h);
    let ask = || LockRequest { permits: 3, ..lock("x") };
    let mut held: Vec<LockRef> = Vec::new();
    for slot in 0..3 {
        held.push(w.hold(&ask()).await);
        assert_eq!(held[slot as usize].slot, slot);
    }
    let fences: BTreeSet<_> = held.iter().map(|lock| lock.fence).collect();
    assert_eq!(fences.len(), 3, "each permit has its own fence");
    assert_eq!(busy(&w, &ask()).await.len(), 3);
    w.release_lock(held[1].clone()).await.expect("held");
    let next = w.hold(&ask()).await;
    assert_eq!(next.slot, 1);
    assert!(next.fence > held[1].fence);
    assert_eq!(busy(&w, &ask()).await.len(), 3);
    refusal(w.renew_lock(held[1].clone(), LEASE_MS).await);
    w.renew_lock(held[2].clone(), LEASE_MS).await.expect("held");
}

/// Where callers disagree about the number of permits, the smallest counts: who was given a plain lock stays alone.
pub async fn the_smallest_number_of_permits_counts(h: &dyn Harness) {
    let w = World::new(h);
    let ask = |permits| LockRequest { permits, ..lock("x") };
    let alone = w.hold(&ask(1)).await;
    assert_eq!(busy(&w, &ask(5)).await.len(), 1);
    w.release_lock(alone).await.expect("held");
    let (one, two) = (w.hold(&ask(2)).await, w.hold(&ask(5)).await);
    for permits in [1, 2, 5] {
        assert_eq!(busy(&w, &ask(permits)).await.len(), 2, "one of them would share with one other only");
    }
    w.release_lock(one).await.expect("held");
    w.hold(&ask(5)).await;
    assert_eq!(busy(&w, &ask(1)).await.len(), 2, "both would share, but not the one who asks");
    w.release_lock(two).await.expect("held");
    w.pass(LEASE_MS);
    w.hold(&ask(1)).await;
}

/// RC-31: names up to the limit, told apart byte by byte; two names never share a lock.
pub async fn lock_names_are_told_apart(h: &dyn Harness) {
    let w = World::new(h);
    let mut names: Vec<String> = [1, 64, 65, 83, NAME_BYTES_MAX].iter().map(|n| "x".repeat(*n)).collect();
    names.push(format!("{}y", "x".repeat(NAME_BYTES_MAX - 1)));
    names.push("ä".repeat(64));
    names.extend(["X", "x ", " x", "x/0", "é", "e\u{301}", "ß", "ss", "%", "_", "'", "ｘ", "𝄞"].map(str::to_owned));
    let mut held = Vec::new();
    for text in &names {
        held.push(w.hold(&lock(text)).await);
    }
    for (text, lock_ref) in names.iter().zip(&held) {
        assert_eq!(busy(&w, &lock(text)).await[0].lock, *lock_ref, "{text}");
    }
    let mut sorted = held.clone();
    sorted.sort();
    let listed: Vec<LockRef> = w.lock_holders(None).await.expect("read").into_iter().map(|held| held.lock).collect();
    assert_eq!(listed, sorted, "all of them, by name and slot");
}

/// Leases count on the lease clock alone: setting the wall clock ends none and extends none.
pub async fn a_set_wall_clock_moves_no_lease(h: &dyn Harness) {
    let w = World::new(h);
    let held = w.hold(&lock("x")).await;
    for wall in [Micros(0), Micros(4_000_000_000_000_000)] {
        h.clock().set_wall(wall);
        assert_eq!(busy(&w, &lock("x")).await[0].expires_in_ms, LEASE_MS);
    }
    w.renew_lock(held, LEASE_MS).await.expect("held");
    w.pass(LEASE_MS);
    h.clock().set_wall(Micros(0));
    w.hold(&lock("x")).await;
}

/// Laws 1 and 2 over two handles: what one was granted, the other sees as held, and may end if it has the fence.
pub async fn handles_share_the_locks(h: &dyn Harness) {
    let w = World::new(h);
    let second = h.second().await;
    let held = w.hold(&lock("x")).await;
    let answer = second.acquire_lock(lock("x")).await.expect("answered");
    assert!(matches!(answer, LockAnswer::Busy { .. }));
    second.release_lock(held).await.expect("the fence is what counts");
    let LockAnswer::Granted(theirs) = second.acquire_lock(lock("x")).await.expect("answered") else { panic!("free") };
    assert_eq!(busy(&w, &lock("x")).await[0].lock, theirs);
}

/// A wish is one name's: the same acquisition for another name is another wish.
pub async fn an_acquisition_counts_within_its_name(h: &dyn Harness) {
    let w = World::new(h);
    let acquisition = AcquisitionId::new();
    let x = w.hold(&LockRequest { acquisition, ..lock("x") }).await;
    let y = w.hold(&LockRequest { acquisition, ..lock("y") }).await;
    assert_ne!(x.fence, y.fence);
    let other = w.hold(&LockRequest { acquisition, ..lock("x") }).await;
    assert_eq!(other, x);
}

/// Locks that nobody gave back are forgotten once they are no evidence any more; held ones never are.
pub async fn abandoned_locks_are_forgotten_in_the_end(h: &dyn Harness) {
    let w = World::new(h);
    let held = w.hold(&LockRequest { lease_ms: 4 * crate::model::EVIDENCE_KEEP_MS, ..lock("long") }).await;
    w.hold(&lock("x")).await;
    w.pass(LEASE_MS + crate::model::EVIDENCE_KEEP_MS - 1);
    assert_eq!(w.prune(10).await.expect("pruned").locks, 0);
    w.pass(1);
    assert_eq!(w.prune(10).await.expect("pruned").locks, 1);
    assert_eq!(busy(&w, &lock("long")).await[0].lock, held);
}
