//! Bare once keys: held while the work is done, refused once it is done, free when it failed.

use super::Harness;
use super::world::{KEEP_KEY_MS, LEASE_MS, World, bare, fingerprint, job, key_claim, name, once};
use crate::id::{Boundary, KEY_BYTES_MAX, OnceKey};
use crate::model::{
    EVIDENCE_KEEP_MS, EnqueueAnswer, KeyClaim, KeyHolder, KeyState, NewJob, OnceAnswer, OnceEnd, OnceRequest,
};

/// An end that took effect.
fn effect(result: &str) -> OnceEnd {
    OnceEnd::Done { result: Some(result.to_owned()) }
}

/// An end that did not.
fn failure() -> OnceEnd {
    OnceEnd::Failed { error: "no".to_owned() }
}

/// A wish, whatever the answer.
async fn ask(w: &World<'_>, request: &OnceRequest) -> OnceAnswer {
    w.claim_once(request.clone()).await.expect("answered")
}

/// Law 1: while one has the key, others are told who; asking again with the same acquisition finds the same grant.
pub async fn a_held_key_is_busy(h: &dyn Harness) {
    let w = World::new(h);
    let mine = OnceRequest { holder: name("me"), ..once("a") };
    let (fence, attempt) = w.hold_key(&mine).await;
    assert_eq!(attempt, 1);
    w.pass(LEASE_MS - 1);
    assert_eq!(w.hold_key(&mine).await, (fence, 1));
    let OnceAnswer::Busy(held) = ask(&w, &once("a")).await else { panic!("it is held") };
    assert_eq!((held.state, held.holder.clone()), (KeyState::Held, KeyHolder::Claim(name("me"))));
    assert_eq!((held.fence, held.attempts, held.refused), (Some(fence), 1, 1));
    assert_eq!(held.last_refused_at, Some(w.now().wall));
    assert_eq!(w.key(&bare("a")).await, Some(*held));
    assert_eq!(w.totals().await.duplicates_refused, 1);
}

/// Law 7: work that is done is refused, with its result, until its retention ends; each refusal is counted.
pub async fn done_is_refused_until_its_retention_ends(h: &dyn Harness) {
    let w = World::new(h);
    let (fence, _) = w.hold_key(&once("a")).await;
    let ended = w.now().wall;
    w.finish_once(bare("a"), fence, effect("report.pdf"), KEEP_KEY_MS).await.expect("held");
    for n in 1..4 {
        let OnceAnswer::Done(key) = ask(&w, &once("a")).await else { panic!("it is done") };
        assert_eq!((key.state, key.result.as_deref(), key.refused), (KeyState::Done, Some("report.pdf"), n));
        assert_eq!((key.ended_at, key.keep_until), (Some(ended), Some(ended.plus_ms(KEEP_KEY_MS))));
        assert_eq!(key.lease_until, None);
        w.pass(KEEP_KEY_MS / 4);
        w.prune(100).await.expect("pruned");
    }
    w.pass(KEEP_KEY_MS / 4 - 1);
    assert!(matches!(ask(&w, &once("a")).await, OnceAnswer::Done(_)));
    w.pass(1);
    assert_eq!(w.key(&bare("a")).await, None, "forgotten, whether or not the pruner has been by");
    assert_eq!(w.hold_key(&once("a")).await.1, 1, "new work, from the first attempt");
}

/// A bare claim whose work failed is free again at once; its attempts are counted.
pub async fn failed_work_frees_the_key_at_once(h: &dyn Harness) {
    let w = World::new(h);
    let mut last = None;
    for n in 1..=3 {
        let (fence, attempt) = w.hold_key(&once("a")).await;
        assert_eq!(attempt, n);
        assert!(Some(fence) > last);
        last = Some(fence);
        w.finish_once(bare("a"), fence, failure(), KEEP_KEY_MS).await.expect("held");
        let key = w.key(&bare("a")).await.expect("remembered");
        assert_eq!((key.state, key.result.as_deref(), key.lease_until), (KeyState::Free, Some("no"), None));
    }
    assert_eq!(w.totals().await.duplicates_refused, 0);
}

/// Law 1: a claim past its lease is taken over, under a greater fence, as the next attempt.
pub async fn a_key_passes_on_at_the_end_of_its_lease(h: &dyn Harness) {
    let w = World::new(h);
    let crashed = once("a");
    let (first, _) = w.hold_key(&crashed).await;
    w.pass(LEASE_MS - 1);
    assert!(matches!(ask(&w, &once("a")).await, OnceAnswer::Busy(_)));
    w.pass(1);
    let (second, attempt) = w.hold_key(&once("a")).await;
    assert_eq!(attempt, 2);
    assert!(second > first);
    assert!(matches!(ask(&w, &crashed).await, OnceAnswer::Busy(_)), "the old wish finds no grant any more");
    assert_eq!(w.key(&bare("a")).await.expect("held").refused, 2, "the count of refusals is kept");
}

/// A renewal keeps the fence and the key.
pub async fn a_renewed_key_stays_held(h: &dyn Harness) {
    let w = World::new(h);
    let (fence, _) = w.hold_key(&once("a")).await;
    for _ in 0..4 {
        w.pass(LEASE_MS - 1);
        w.renew_once(bare("a"), fence, LEASE_MS).await.expect("in time");
    }
    let key = w.key(&bare("a")).await.expect("held");
    assert_eq!((key.fence, key.lease_until), (Some(fence), Some(w.now().lease.plus_ms(LEASE_MS))));
}

/// Late but unchallenged: work past its lease that nobody took over may still end.
pub async fn late_work_that_nobody_took_over_may_end(h: &dyn Harness) {
    let w = World::new(h);
    let (fence, _) = w.hold_key(&once("a")).await;
    w.pass(10 * LEASE_MS);
    w.finish_once(bare("a"), fence, effect("late"), KEEP_KEY_MS).await.expect("unchallenged");
    assert!(matches!(ask(&w, &once("a")).await, OnceAnswer::Done(_)));
}

/// Law 2: late work that another took over is refused; the effect that counts is the other's.
pub async fn late_work_that_another_took_over_is_refused(h: &dyn Harness) {
    let w = World::new(h);
    let (late, _) = w.hold_key(&once("a")).await;
    w.pass(LEASE_MS);
    let (current, _) = w.hold_key(&once("a")).await;
    super::world::refusal(w.finish_once(bare("a"), late, effect("late"), KEEP_KEY_MS).await);
    w.finish_once(bare("a"), current, effect("second"), KEEP_KEY_MS).await.expect("held");
    super::world::refusal(w.finish_once(bare("a"), late, failure(), KEEP_KEY_MS).await);
    assert_eq!(w.key(&bare("a")).await.expect("done").result.as_deref(), Some("second"));
}

/// Ids decide: the same end said twice is said once; another end comes too late.
pub async fn the_same_end_twice_is_no_fault(h: &dyn Harness) {
    let w = World::watching(h, &[bare("a"), bare("b")]);
    let (fence, _) = w.hold_key(&once("a")).await;
    w.finish_once(bare("a"), fence, effect("x"), KEEP_KEY_MS).await.expect("held");
    let before = w.snapshot().await;
    w.pass(1);
    w.finish_once(bare("a"), fence, effect("x"), KEEP_KEY_MS).await.expect("the same");
    assert_eq!(w.snapshot().await, before);
    super::world::refusal(w.finish_once(bare("a"), fence, failure(), KEEP_KEY_MS).await);
    assert_eq!(w.snapshot().await, before);
    let (fence, _) = w.hold_key(&once("b")).await;
    for _ in 0..2 {
        w.finish_once(bare("b"), fence, failure(), KEEP_KEY_MS).await.expect("the same");
    }
    super::world::refusal(w.finish_once(bare("b"), fence, effect("x"), KEEP_KEY_MS).await);
}

/// The same key with another fingerprint is an error that names both; with none it is a duplicate.
pub async fn another_fingerprint_is_an_error(h: &dyn Harness) {
    let w = World::new(h);
    let with = |of: &str| {
        let claim = KeyClaim { fingerprint: Some(fingerprint(of)), ..key_claim(bare("a")) };
        OnceRequest { claim, ..once("a") }
    };
    let (fence, _) = w.hold_key(&with("order 7, 10 €")).await;
    for done in [false, true] {
        let answer = ask(&w, &with("order 7, 99 €")).await;
        let (kept, given) = (fingerprint("order 7, 10 €"), fingerprint("order 7, 99 €"));
        let holder = KeyHolder::Claim(name("somebody"));
        assert_eq!(answer, OnceAnswer::OtherFingerprint { holder, kept, given });
        let same = ask(&w, &with("order 7, 10 €")).await;
        let none = ask(&w, &once("a")).await;
        for answer in [same, none] {
            assert!(if done { matches!(answer, OnceAnswer::Done(_)) } else { matches!(answer, OnceAnswer::Busy(_)) });
        }
        if !done {
            w.finish_once(bare("a"), fence, effect("x"), KEEP_KEY_MS).await.expect("held");
        }
    }
    assert_eq!(w.totals().await.duplicates_refused, 4, "an error is no duplicate");
}

/// Law 7: a message older than the key's memory is quarantined, never taken for new, unless the key is known.
pub async fn an_old_message_is_quarantined(h: &dyn Harness) {
    let w = World::new(h);
    let made = |value: &str, ms_ago: u64| {
        let made_at = crate::clock::Micros(w.now().wall.0 - i64::try_from(ms_ago).expect("small") * 1_000);
        OnceRequest { claim: KeyClaim { made_at: Some(made_at), ..key_claim(bare(value)) }, ..once(value) }
    };
    let answer = ask(&w, &made("a", KEEP_KEY_MS)).await;
    assert_eq!(answer, OnceAnswer::Quarantined { keep_ms: KEEP_KEY_MS });
    assert_eq!(w.key(&bare("a")).await, None, "it takes nothing");
    let (fence, _) = w.hold_key(&made("a", KEEP_KEY_MS - 1)).await;
    w.finish_once(bare("a"), fence, effect("x"), KEEP_KEY_MS).await.expect("held");
    assert!(matches!(ask(&w, &made("a", 9 * KEEP_KEY_MS)).await, OnceAnswer::Done(_)), "known to be done");
    w.pass(KEEP_KEY_MS);
    assert!(matches!(ask(&w, &made("a", KEEP_KEY_MS)).await, OnceAnswer::Quarantined { .. }), "forgotten");
}

/// RC-31 and DESIGN §5a: keys up to 4,096 bytes, told apart by every byte; boundary and scope are part of the key.
pub async fn keys_are_told_apart(h: &dyn Harness) {
    let w = World::new(h);
    let long = |len: usize, end: &str| format!("{}{end}", "k".repeat(len - end.len()));
    let mut values: Vec<String> = ["a", "A", "a ", "é", "e\u{301}", "%", "_", "'"].map(str::to_owned).to_vec();
    for len in [300, KEY_BYTES_MAX] {
        values.extend([long(len, "a"), long(len, "b")]);
    }
    values.push("ä".repeat(KEY_BYTES_MAX / 2));
    let key = |boundary, scope: &str, value: &str| OnceKey::new(boundary, name(scope), value).expect("legal");
    let mut keys: Vec<OnceKey> = values.iter().map(|value| key(Boundary::Claim, "s", value)).collect();
    keys.extend([key(Boundary::Claim, "S", "a"), key(Boundary::Claim, "s:a", "a"), key(Boundary::Enqueue, "s", "a")]);
    for key in &keys {
        let (_, attempt) = w.hold_key(&OnceRequest { claim: key_claim(key.clone()), ..once("-") }).await;
        assert_eq!(attempt, 1, "{key}");
    }
    for key in &keys {
        assert_eq!(w.key(key).await.expect("held").key, *key, "kept whole, for people");
    }
}

/// A job and a bare claim may want the very same key: one of them has it.
pub async fn a_key_is_one_key_whoever_asks(h: &dyn Harness) {
    let w = World::new(h);
    let new = NewJob { once: Some(key_claim(bare("a"))), ..job() };
    assert_eq!(w.offer(&new).await, EnqueueAnswer::Enqueued { id: new.id });
    let OnceAnswer::Busy(key) = ask(&w, &once("a")).await else { panic!("the job has it") };
    assert_eq!((key.holder, key.fence, key.lease_until), (KeyHolder::Job(new.id), None, None));
    w.pass(100 * LEASE_MS);
    assert!(matches!(ask(&w, &once("a")).await, OnceAnswer::Busy(_)), "a job's key has no lease");
    w.cancel(new.id, "test".to_owned()).await.expect("legal");
    w.hold_key(&once("a")).await;
    let late = NewJob { once: Some(key_claim(bare("a"))), ..job() };
    let holder = KeyHolder::Claim(name("somebody"));
    assert_eq!(w.offer(&late).await, EnqueueAnswer::Existed { holder, done: false });
    w.pass(LEASE_MS);
    assert_eq!(w.offer(&late).await, EnqueueAnswer::Enqueued { id: late.id }, "the claim ran out");
}

/// Law 7 and its limits: held keys and done ones within their retention stay; abandoned claims go once they are no
/// evidence any more.
pub async fn keys_are_pruned_when_nobody_can_need_them(h: &dyn Harness) {
    let w = World::new(h);
    w.hold_key(&once("crashed")).await;
    w.hold_key(&OnceRequest { lease_ms: 4 * EVIDENCE_KEEP_MS, ..once("long") }).await;
    let (fence, _) = w.hold_key(&once("done")).await;
    w.finish_once(bare("done"), fence, effect("x"), 2 * EVIDENCE_KEEP_MS).await.expect("held");
    let (fence, _) = w.hold_key(&once("failed")).await;
    w.finish_once(bare("failed"), fence, failure(), KEEP_KEY_MS).await.expect("held");
    w.pass(KEEP_KEY_MS);
    assert_eq!(w.prune(10).await.expect("pruned").keys, 1, "the failed one");
    w.pass(LEASE_MS + EVIDENCE_KEEP_MS - KEEP_KEY_MS - 1);
    assert_eq!(w.prune(10).await.expect("pruned").keys, 0);
    w.pass(1);
    assert_eq!(w.prune(10).await.expect("pruned").keys, 1, "the crashed one");
    assert!(matches!(ask(&w, &once("long")).await, OnceAnswer::Busy(_)));
    assert!(matches!(ask(&w, &once("done")).await, OnceAnswer::Done(_)));
}
