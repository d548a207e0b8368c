//! One thread, one commit for many: what fails alone is undone alone, and waiting for others has an end.

use std::future::Future;
use std::time::{Duration, Instant};

use hapax::clock::Clock;
use hapax::id::{Boundary, OnceKey};
use hapax::model::{End, Finish, KeyClaim, NewJob, Settled};
use hapax::store::sqlite::SqliteStore;
use hapax::store::{Inspect, Jobs, Store, Workers};
use hapax::{ErrorKind, JobId, Outcome, Payload};
use rusqlite::Connection;

use super::{asking, claimed, instance, job, name, open_with, place};

/// Calls that were made while the writing thread could not begin: they share the next commit.
async fn together<T>(other: &Connection, calls: Vec<impl Future<Output = T> + Send + 'static>) -> Vec<T>
where
    T: Send + 'static,
{
    other.execute_batch("begin immediate").expect("begun");
    let calls: Vec<_> = calls.into_iter().map(tokio::spawn).collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    other.execute_batch("rollback").expect("ended");
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.expect("no panic"));
    }
    answers
}

#[tokio::test]
async fn a_step_that_fails_leaves_its_neighbours_alone() {
    let place = place();
    let store = SqliteStore::open(&place.file).await.expect("opens");
    let other = Connection::open(&place.file).expect("opens");
    // Past the client's checks: the schema refuses it in the middle of a batch.
    let bad = NewJob { payload: Payload::from_store("{".to_owned()), ..job() };
    let batches = (0..20).map(|n| if n == 7 { vec![job(), bad.clone(), job()] } else { vec![job(), job()] });
    let batches: Vec<Vec<NewJob>> = batches.collect();
    let ids: Vec<Vec<JobId>> = batches.iter().map(|jobs| jobs.iter().map(|job| job.id).collect()).collect();
    let calls = batches.into_iter().map(|jobs| {
        let store = store.clone();
        async move { store.enqueue(jobs).await }
    });
    let answers = together(&other, calls.collect()).await;
    for (n, answer) in answers.into_iter().enumerate() {
        for id in &ids[n] {
            assert_eq!(store.job(*id).await.expect("read").is_some(), n != 7, "call {n}");
        }
        if n == 7 {
            let error = answer.expect_err("the schema refuses it");
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::Invalid, Outcome::DidNotHappen), "{error}");
        } else {
            answer.expect("counts");
        }
    }
}

/// A trigger of the user's may have SQLite roll back the whole commit. Who shared it is told to try again.
#[tokio::test]
async fn a_step_that_takes_its_neighbours_with_it_is_not_held_against_them() {
    let place = place();
    let store = SqliteStore::open(&place.file).await.expect("opens");
    let other = Connection::open(&place.file).expect("opens");
    other
        .execute_batch(
            "create trigger picky before insert on hapax_jobs when new.priority = 99
             begin select raise(rollback, 'not this one'); end",
        )
        .expect("made");
    let jobs: Vec<NewJob> = (0..20).map(|n| NewJob { priority: if n == 7 { 99 } else { 0 }, ..job() }).collect();
    let calls = jobs.iter().cloned().map(|job| {
        let store = store.clone();
        async move { store.enqueue(vec![job]).await }
    });
    let answers = together(&other, calls.collect()).await;
    let mut taken = 0;
    for (n, (job, answer)) in jobs.into_iter().zip(answers).enumerate() {
        assert_eq!(store.job(job.id).await.expect("read").is_some(), answer.is_ok(), "call {n}");
        let Err(error) = answer else { continue };
        assert_eq!(error.outcome(), Outcome::DidNotHappen, "call {n}: {error}");
        if n == 7 {
            assert!(!error.is_retryable() && error.to_string().contains("not this one"), "{error}");
        } else {
            taken += 1;
            assert!(error.is_retryable(), "call {n}: {error}");
            store.enqueue(vec![job]).await.expect("counts");
        }
    }
    assert!(taken > 0, "nobody shared its commit");
}

#[tokio::test]
async fn a_step_that_fails_alone_is_undone_whole() {
    let place = place();
    let store = SqliteStore::open(&place.file).await.expect("opens");
    let (good, bad) = (job(), NewJob { payload: Payload::from_store("{".to_owned()), ..job() });
    store.enqueue(vec![good.clone(), bad]).await.expect_err("the schema refuses it");
    assert!(store.job(good.id).await.expect("read").is_none());
    store.enqueue(vec![good.clone()]).await.expect("counts");
    assert!(store.job(good.id).await.expect("read").is_some());
}

#[tokio::test]
async fn a_call_whose_caller_goes_away_is_carried_out() {
    let place = place();
    let store = SqliteStore::open(&place.file).await.expect("opens");
    let other = Connection::open(&place.file).expect("opens");
    other.execute_batch("begin immediate").expect("begun");
    let new = job();
    let call = store.enqueue(vec![new.clone()]);
    tokio::time::timeout(Duration::from_millis(20), call).await.expect_err("the file is held");
    other.execute_batch("rollback").expect("ended");
    // Whatever is asked after it is answered after it.
    store.verdict(Vec::new()).await.expect("answered");
    assert!(store.job(new.id).await.expect("read").is_some());
}

#[tokio::test]
async fn a_frozen_writer_is_waited_for_and_then_named() {
    let place = place();
    let store = SqliteStore::options().busy_timeout(Duration::from_millis(300));
    let store = store.open(&place.file).await.expect("opens");
    let other = Connection::open(&place.file).expect("opens");
    other.execute_batch("begin immediate").expect("begun");
    let began = Instant::now();
    let (one, two) = tokio::join!(store.enqueue(vec![job()]), store.enqueue(vec![job()]));
    for error in [one.expect_err("the file is held"), two.expect_err("the file is held")] {
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Busy, Outcome::DidNotHappen));
        let text = error.to_string();
        assert!(text.starts_with("store busy: another connection of this process"), "{text}");
        assert!(text.contains("has held the write lock for 0.3 s"), "{text}");
    }
    let waited = began.elapsed();
    assert!((300..2_000).contains(&waited.as_millis()), "each waits its own time, side by side: {waited:?}");
    other.execute_batch("rollback").expect("ended");
    store.enqueue(vec![job()]).await.expect("goes on");
}

#[tokio::test]
async fn a_finish_ends_the_key_of_its_job() {
    let (place, clock) = (place(), Clock::movable());
    let store = open_with(&place, &clock).await;
    let key = OnceKey::new(Boundary::Enqueue, name("k"), &"x".repeat(4_096)).expect("legal");
    let once = KeyClaim { key: key.clone(), fingerprint: None, keep_ms: 1_000, made_at: None };
    store.enqueue(vec![NewJob { once: Some(once), ..job() }]).await.expect("enqueued");
    let by = instance();
    store.register(by.clone()).await.expect("registered");
    let claimed = store.claim(asking(by.id, 1)).await.expect("claimed").jobs.remove(0);
    let run = hapax::model::RunRef { job: claimed.id, fence: claimed.fence.expect("claimed") };
    let settled = store.finish(vec![Finish { run, end: End::Done { result: None } }]).await.expect("written");
    assert!(settled[0].counted());
    let record = hapax::store::Once::find_once(&store, key).await.expect("read").expect("kept");
    assert_eq!(record.state, hapax::model::KeyState::Done);
}

#[tokio::test]
async fn handles_close_for_themselves() {
    let place = place();
    let store = SqliteStore::open(&place.file).await.expect("opens");
    let keeper = store.another().await.expect("opens");
    let run = claimed(&store).await;
    store.close().await;
    store.close().await;
    let settled = keeper.progress(run, "half".to_owned()).await.expect("written");
    assert!(matches!(settled, Settled::Counted { .. }));
    assert_eq!(store.progress(run, "more".to_owned()).await.expect_err("is closed").kind(), ErrorKind::Closed);
}

#[test]
fn no_runtime_of_tokios_is_needed() {
    let place = place();
    // Nothing but a poller: no timers, no reactor.
    let mut work = std::pin::pin!(async {
        let store = SqliteStore::open(&place.file).await.expect("opens");
        claimed(&store).await;
        store.counters().await.expect("read");
        store.close().await;
    });
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    while work.as_mut().poll(&mut context).is_pending() {
        std::thread::sleep(Duration::from_millis(1));
    }
}
