//! Long transactions of the user's: what they hold up, and what they must not.

use std::time::Duration;

use hapax::id::{AcquisitionId, Boundary, ClaimId, Name};
use hapax::model::{
    ClaimRequest, End, Finish, KeyClaim, LockAnswer, LockRequest, NewInstance, NewJob, RunOutcome, RunRef,
};
use hapax::store::postgres::{InSchema, PostgresStore};
use hapax::store::{Inspect, Jobs, Leases, Once, Workers};
use hapax::{Enqueue, Enqueued, ErrorKind, Hapax, InstanceId, JobState, Outcome};
use sqlx::{Connection, Transaction};

use super::functions::{job, key};
use super::place::{Place, until_somebody_waits};
use super::shop::until;

fn name(text: &str) -> Name {
    Name::new("name", text).expect("legal")
}

async fn registered(store: &PostgresStore, lease_ms: u64) -> InstanceId {
    let id = InstanceId::new();
    let (queues, kinds) = (vec![name("default")], vec![name("k")]);
    let new = NewInstance { id, name: name("i"), version: String::new(), queues, kinds, lease_ms };
    store.register(new).await.expect("registered");
    id
}

async fn claimed(store: &PostgresStore, instance: InstanceId) -> RunRef {
    let (queues, kinds) = (vec![(name("default"), 1)], vec![name("k")]);
    let request = ClaimRequest { instance, claim: ClaimId::new(), queues, kinds, suspect: true };
    let job = store.claim(request).await.expect("live").jobs.remove(0);
    RunRef { job: job.id, fence: job.fence.expect("claimed") }
}

fn keyed(key: &str) -> Enqueue {
    Enqueue::new("k", "null").once(key).keep_key(Duration::from_millis(1)).keep(Duration::ZERO)
}

async fn enqueue_in(tx: &mut Transaction<'_, sqlx::Postgres>, schema: &str, key: &str) -> Enqueued {
    keyed(key).enqueue_in(InSchema::new(tx, schema)).await.expect("enqueued")
}

/// A handle that gives up soon on what another transaction holds.
async fn impatient(place: &Place) -> PostgresStore {
    let options = PostgresStore::options().wait(Duration::from_millis(700));
    options.open(&place.url).await.expect("opens")
}

/// RC-67 and the other side of it: an open transaction that enqueued a duplicate of a running job holds up neither that
/// job's finish, nor its failure, nor the reaper, nor the pruner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_duplicate_holds_up_nobody() {
    let place = Place::new().await;
    let store = impatient(&place).await;
    let hapax = Hapax::with_store(std::sync::Arc::new(store.clone()));
    for key in ["done", "again", "reaped"] {
        hapax.enqueue(keyed(key)).await.expect("enqueued");
    }
    let (lasting, dying) = (registered(&store, 60_000).await, registered(&store, 300).await);
    let (done, again) = (claimed(&store, lasting).await, claimed(&store, lasting).await);
    let reaped = claimed(&store, dying).await;
    let mut own = place.connection().await;
    let mut tx = own.begin().await.expect("begun");
    for key in ["done", "again", "reaped"] {
        assert!(enqueue_in(&mut tx, &place.schema, key).await.existed, "{key} is held");
    }
    let end = End::Again { outcome: RunOutcome::Failed, delay_ms: 0, detail: "x".to_owned() };
    let ends = [(done, End::Done { result: None }), (again, end)];
    for (run, end) in ends {
        let settled = store.finish(vec![Finish { run, end }]).await.expect("nothing is waited for");
        assert!(settled[0].counted());
    }
    let back = async || !store.reap(lasting, 10).await.expect("nothing is waited for").taken_back.is_empty();
    until("it is taken back", back).await;
    // Its retention has a floor, for which nobody waits here.
    let mut other = place.connection().await;
    let text = "update jobs set purge_at = clock_timestamp() where state = 'done'";
    sqlx::Executor::execute(&mut other, text).await.expect("made older");
    until("the done job is pruned, and its key forgotten", async || {
        store.prune(100).await.expect("nothing is waited for");
        store.job(done.job).await.expect("read").is_none()
    })
    .await;
    let states = [again.job, reaped.job].map(|job| (job, JobState::Ready));
    for (job, state) in states {
        assert_eq!(store.job(job).await.expect("read").expect("kept").0.state, state);
    }
    tx.commit().await.expect("committed");
    hapax.enqueue(keyed("done")).await.expect("its retention is over, so it may come again");
}

/// An open transaction that took a free key: who wants that key waits for its end; everybody else goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_being_taken_is_waited_for() {
    let place = Place::new().await;
    let (patient, store) = (place.store().await, impatient(&place).await);
    let hapax = Hapax::with_store(std::sync::Arc::new(store.clone()));
    let mut own = place.connection().await;
    for commits in [true, false] {
        let key = format!("key-{commits}");
        let mut tx = own.begin().await.expect("begun");
        let theirs = enqueue_in(&mut tx, &place.schema, &key).await;
        let error = hapax.enqueue(keyed(&key)).await.expect_err("it is being taken");
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Busy, Outcome::DidNotHappen), "{error}");
        hapax.enqueue(keyed(&format!("other-{commits}"))).await.expect("another key is not waited for");
        let by = registered(&store, 60_000).await;
        let run = claimed(&store, by).await;
        assert_ne!(run.job, theirs.id, "not before its commit");
        store.reap(by, 10).await.expect("nothing is waited for");
        store.prune(10).await.expect("nothing is waited for");
        let finish = Finish { run, end: End::Done { result: None } };
        assert!(store.finish(vec![finish]).await.expect("nothing is waited for")[0].counted());
        let waiting = Hapax::with_store(std::sync::Arc::new(patient.clone()));
        let wanted = keyed(&key);
        let waiting = tokio::spawn(async move { waiting.enqueue(wanted).await });
        until_somebody_waits(&place).await;
        if commits {
            tx.commit().await.expect("committed");
        } else {
            tx.rollback().await.expect("rolled back");
        }
        let ours = waiting.await.expect("no panic").expect("the way is free");
        assert_eq!((ours.existed, ours.id == theirs.id), (commits, commits), "the first that commits has it");
        let last = registered(&store, 60_000).await;
        assert_eq!(claimed(&store, last).await.job, ours.id);
        store.leave(last).await.expect("left");
        hapax.cancel(ours.id, "not needed").await.expect("cancelled");
    }
}

/// RC-67: what is enqueued with the user's rows is there once they are, and never without them.
#[tokio::test]
async fn jobs_come_and_go_with_the_users_transaction() {
    let place = Place::new().await;
    let store = place.store().await;
    let mut own = place.connection().await;
    for (key, kept) in [("kept", true), ("undone", false)] {
        let mut tx = own.begin().await.expect("begun");
        let job = enqueue_in(&mut tx, &place.schema, key).await.id;
        assert!(store.job(job).await.expect("read").is_none(), "not before the commit");
        if kept {
            tx.commit().await.expect("committed");
        } else {
            tx.rollback().await.expect("rolled back");
        }
        assert_eq!(store.job(job).await.expect("read").is_some(), kept);
    }
    let error = keyed("outside").enqueue_in(InSchema::new(&mut own, &place.schema)).await;
    let error = error.expect_err("there is no transaction");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Invalid, Outcome::DidNotHappen), "{error}");
}

/// One id for two jobs, at once: the second is refused, and its once key is free for others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_that_another_took_holds_no_key() {
    let place = Place::new().await;
    let store = place.store().await;
    let key = key(Boundary::Enqueue, "k", "x");
    let once = Some(KeyClaim { key: key.clone(), fingerprint: None, keep_ms: 0, made_at: None });
    let second = NewJob { once, ..job() };
    let mut own = place.connection().await;
    let mut open = own.begin().await.expect("begun");
    let first = sqlx::query("select enqueue('k', '{}', id => $1)").bind(*second.id.as_uuid());
    first.execute(&mut *open).await.expect("enqueued");
    let refused = tokio::spawn({
        let store = store.clone();
        async move { store.enqueue(vec![second]).await }
    });
    until_somebody_waits(&place).await;
    open.commit().await.expect("committed");
    let refused = refused.await.expect("no panic").expect_err("it is another job");
    assert_eq!((refused.kind(), refused.outcome()), (ErrorKind::Invalid, Outcome::DidNotHappen), "{refused}");
    assert_eq!(store.find_once(key).await.expect("read"), None, "nobody has the key");
}

/// A guard on one permit of a lock holds up neither the renewal nor the release of the others, whoever waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guarded_permit_leaves_the_others_alone() {
    let place = Place::new().await;
    let store = impatient(&place).await;
    let wish = |lease_ms| LockRequest {
        name: name("l"),
        permits: 3,
        lease_ms,
        acquisition: AcquisitionId::new(),
        holder: name("h"),
    };
    let mut held = Vec::new();
    for lease_ms in [60_000, 60_000, 100] {
        let LockAnswer::Granted(lock) = store.acquire_lock(wish(lease_ms)).await.expect("answered") else {
            panic!("a permit is free")
        };
        held.push(lock);
    }
    let mut own = place.connection().await;
    let mut open = own.begin().await.expect("begun");
    InSchema::new(&mut open, &place.schema).lock_guard(&held[2]).await.expect("still the last grant");
    tokio::time::sleep(Duration::from_millis(150)).await;
    let waiting = tokio::spawn({
        let (store, wish) = (place.store().await, wish(60_000));
        async move { store.acquire_lock(wish).await }
    });
    until_somebody_waits(&place).await;
    store.renew_lock(held[0].clone(), 60_000).await.expect("renewed");
    store.release_lock(held[1].clone()).await.expect("released");
    open.commit().await.expect("committed");
    assert!(matches!(waiting.await.expect("no panic"), Ok(LockAnswer::Granted(_))));
}
