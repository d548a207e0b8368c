//! What people do with locks and bare once keys: look, break, forget, resolve.

use super::Harness;
use super::world::{KEEP_KEY_MS, LEASE_MS, World, bare, keyed, lock, name, once, refusal};
use crate::model::ledger::KeyFilter;
use crate::model::{KeyState, OnceEnd, Refusal};

fn done(result: &str) -> OnceEnd {
    OnceEnd::Done { result: Some(result.to_owned()) }
}

async fn values(w: &World<'_>, prefix: &str, after: &str, limit: u32) -> Vec<String> {
    let scope = bare("a").scope().clone();
    let filter = KeyFilter { scope, prefix: prefix.to_owned(), after: after.to_owned(), limit };
    let found = w.store.list_once(filter).await.expect("listed");
    found.into_iter().map(|record| record.key.value().to_owned()).collect()
}

/// Keys are listed by value, page by page, without those of jobs, other scopes, and what is forgotten.
pub async fn bare_keys_are_listed_by_value(h: &dyn Harness) {
    let w = World::new(h);
    for value in ["b 2", "a 2", "a 10", "ä 1", "a%1"] {
        w.hold_key(&once(value)).await;
    }
    w.put(&[keyed("a 3")]).await;
    assert_eq!(values(&w, "", "", 100).await, ["a 10", "a 2", "a%1", "b 2", "ä 1"]);
    assert_eq!(values(&w, "a ", "", 100).await, ["a 10", "a 2"]);
    assert_eq!(values(&w, "", "a 2", 2).await, ["a%1", "b 2"]);
    assert_eq!(values(&w, "a ", "a 10", 2).await, ["a 2"]);
    assert_eq!(values(&w, "b", "a 2", 2).await, ["b 2"]);
    let (fence, _) = w.hold_key(&once("z")).await;
    w.finish_once(bare("z"), fence, done("x"), KEEP_KEY_MS).await.expect("held");
    assert_eq!(values(&w, "z", "", 100).await, ["z"]);
    w.pass(KEEP_KEY_MS);
    assert_eq!(values(&w, "z", "", 100).await, [""; 0]);
}

/// A forgotten key is new work; one that somebody works on is not forgotten.
pub async fn a_key_is_forgotten_only_when_nobody_works_on_it(h: &dyn Harness) {
    let w = World::new(h);
    let unknown = refusal(w.store.forget_once(bare("a")).await);
    assert!(matches!(unknown, Refusal::NotFound { .. }), "{unknown:?}");
    let (fence, _) = w.hold_key(&once("a")).await;
    let held = refusal(w.store.forget_once(bare("a")).await);
    assert!(matches!(held, Refusal::KeyTaken { .. }), "{held:?}");
    w.finish_once(bare("a"), fence, done("x"), KEEP_KEY_MS).await.expect("held");
    w.store.forget_once(bare("a")).await.expect("nobody works on it");
    assert_eq!(w.key(&bare("a")).await, None);
    assert_eq!(w.hold_key(&once("a")).await.1, 1);
    w.pass(LEASE_MS);
    w.store.forget_once(bare("a")).await.expect("its lease has run out");
}

/// A person's word replaces what was recorded, never what is being done.
pub async fn a_key_is_resolved_by_a_persons_word(h: &dyn Harness) {
    let w = World::new(h);
    let resolve = |end: OnceEnd| w.store.resolve_once(bare("a"), end, KEEP_KEY_MS);
    assert!(matches!(refusal(resolve(done("x")).await), Refusal::NotFound { .. }));
    let (fence, _) = w.hold_key(&once("a")).await;
    assert!(matches!(refusal(resolve(done("x")).await), Refusal::KeyTaken { .. }));
    w.pass(LEASE_MS);
    resolve(done("seen in the bucket")).await.expect("its lease has run out");
    let key = w.key(&bare("a")).await.expect("known");
    assert_eq!((key.state, key.result.as_deref()), (KeyState::Done, Some("seen in the bucket")));
    assert_eq!((key.ended_at, key.lease_until), (Some(w.now().wall), None));
    assert_eq!(key.keep_until, Some(w.now().wall.plus_ms(KEEP_KEY_MS)));
    resolve(OnceEnd::Failed { error: "it was empty".to_owned() }).await.expect("nobody works on it");
    assert_eq!(w.key(&bare("a")).await.expect("known").state, KeyState::Free);
    assert!(w.finish_once(bare("a"), fence, done("late"), KEEP_KEY_MS).await.is_err(), "the old holder is late");
    assert!(w.hold_key(&once("a")).await.0 > fence);
    w.put(&[keyed("a")]).await;
    let of_job = w.store.resolve_once(super::world::key("a"), done("x"), KEEP_KEY_MS).await;
    assert!(matches!(refusal(of_job), Refusal::KeyTaken { .. }), "the key of a job ends with its job");
}

/// A result that comes later replaces the one that was kept, for as long as nobody else has the key.
pub async fn a_later_result_replaces_the_kept_one(h: &dyn Harness) {
    let w = World::new(h);
    let (fence, _) = w.hold_key(&once("a")).await;
    w.finish_once(bare("a"), fence, done("started"), KEEP_KEY_MS).await.expect("held");
    let first = w.key(&bare("a")).await.expect("known");
    w.pass(1_000);
    w.finish_once(bare("a"), fence, done("ended"), KEEP_KEY_MS).await.expect("the same end");
    let second = w.key(&bare("a")).await.expect("known");
    assert_eq!(second.result.as_deref(), Some("ended"));
    assert_eq!((second.ended_at, second.keep_until), (first.ended_at, first.keep_until));
    w.finish_once(bare("a"), fence, OnceEnd::Done { result: None }, KEEP_KEY_MS).await.expect("the same end");
    assert_eq!(w.key(&bare("a")).await.expect("known").result.as_deref(), Some("ended"), "nothing replaces nothing");
}

/// A broken lock is free at once, its holder is refused from then on, and the reason is kept.
pub async fn a_broken_lock_is_free_and_its_holder_refused(h: &dyn Harness) {
    let w = World::new(h);
    let held = w.hold(&lock("L")).await;
    let other = w.hold(&lock("other")).await;
    let broken = w.store.break_lock(name("L"), "its host is gone".to_owned()).await.expect("broken");
    assert_eq!(broken.iter().map(|holder| holder.lock.clone()).collect::<Vec<_>>(), std::slice::from_ref(&held));
    let evidence = w.store.refusals(10).await.expect("read").remove(0);
    assert_eq!((evidence.verb.as_str(), evidence.fence), ("break_lock", Some(held.fence)));
    assert!(evidence.identity.starts_with("lock L/0 of ") && evidence.identity.ends_with(": its host is gone"));
    assert!(w.store.renew_lock(held.clone(), LEASE_MS).await.is_err());
    assert!(w.hold(&lock("L")).await.fence > held.fence);
    w.store.renew_lock(other, LEASE_MS).await.expect("nobody broke that one");
    assert_eq!(w.store.break_lock(name("nobody's"), "no".to_owned()).await.expect("nothing to do"), []);
}

/// The store tells the wall clock that its periods and retentions go by.
pub async fn the_store_tells_its_wall_clock(h: &dyn Harness) {
    let w = World::new(h);
    assert_eq!(w.store.now().await.expect("told"), w.now().wall);
    w.pass(1_234);
    assert_eq!(w.store.now().await.expect("told"), w.now().wall);
}
