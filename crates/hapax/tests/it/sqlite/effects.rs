//! Effects that commit with the finish of their run, and jobs that commit with the user's rows.

use hapax::clock::Clock;
use hapax::id::AcquisitionId;
use hapax::model::{End, Finish, LockAnswer, LockRequest, Settled};
use hapax::store::sqlite::{EffectAnswer, EffectPanic, EffectTx, SqliteStore, lock_guard};
use hapax::store::{EnqueueIn, Inspect, Jobs, Leases};
use hapax::{BoxError, ErrorKind, JobState, Outcome};
use rusqlite::hooks::{AuthContext, Authorization};
use rusqlite::{Connection, TransactionBehavior};

use super::{Place, claimed, job, name, open_with, place};

async fn with_orders() -> (Place, SqliteStore, Connection) {
    let place = place();
    let store = SqliteStore::open(&place.file).await.expect("opens");
    let own = Connection::open(&place.file).expect("opens");
    own.execute_batch("create table stock (item integer primary key, n integer not null check (n >= 0))")
        .expect("made");
    own.execute_batch("insert into stock values (1, 5)").expect("made");
    (place, store, own)
}

fn stock(own: &Connection) -> i64 {
    own.query_row("select n from stock", [], |row| row.get(0)).expect("read")
}

fn take(tx: &EffectTx<'_>) -> Result<i64, BoxError> {
    tx.execute("update stock set n = n - 1", [])?;
    Ok(tx.query_row("select n from stock", [], |row| row.get(0))?)
}

#[tokio::test]
async fn effect_follow_up_and_finish_are_one_commit() {
    let (_place, store, own) = with_orders().await;
    let run = claimed(&store).await;
    let follow_up = job();
    let next = follow_up.clone();
    let effect = move |tx: &EffectTx<'_>| {
        assert_eq!((tx.run(), tx.fence()), (run, run.fence));
        tx.enqueue(vec![next])?;
        tx.set_result("one taken");
        take(tx)
    };
    let answer = store.finish_with(run, effect).await.expect("carried out");
    assert!(matches!(answer, EffectAnswer::Counted { value: 4, state: JobState::Done }), "{answer:?}");
    let (done, _) = store.job(run.job).await.expect("read").expect("kept");
    assert_eq!((done.state, done.result.as_deref(), done.runs), (JobState::Done, Some("one taken"), 1));
    assert_eq!(store.job(follow_up.id).await.expect("read").expect("there").0.state, JobState::Ready);
    assert_eq!(stock(&own), 4);

    // Once more, as a late run would: refused without being called, and kept as evidence.
    let answer = store.finish_with(run, |_| -> Result<(), BoxError> { panic!("is not called") }).await;
    let answer = answer.expect("carried out");
    assert!(matches!(answer, EffectAnswer::Refused { state: Some(JobState::Done), .. }), "{answer:?}");
    assert_eq!(store.refusals(10).await.expect("read").len(), 1);
    assert_eq!(store.job(run.job).await.expect("read").expect("kept").0.refused, 1);
}

#[tokio::test]
async fn an_effect_that_fails_or_panics_leaves_no_trace() {
    let (_place, store, own) = with_orders().await;
    let run = claimed(&store).await;
    let (left, also_left) = (job(), job());
    let (one, two) = (left.clone(), also_left.clone());
    let failing = move |tx: &EffectTx<'_>| {
        take(tx)?;
        tx.enqueue(vec![one])?;
        Err::<(), BoxError>("no more".into())
    };
    let answer = store.finish_with(run, failing).await.expect("carried out");
    assert!(matches!(&answer, EffectAnswer::EffectFailed(e) if e.to_string() == "no more"), "{answer:?}");
    let panicking = move |tx: &EffectTx<'_>| -> Result<(), BoxError> {
        take(tx)?;
        tx.enqueue(vec![two])?;
        panic!("out of {}", "stock")
    };
    let answer = store.finish_with(run, panicking).await.expect("carried out");
    let EffectAnswer::EffectFailed(error) = answer else { panic!("{answer:?}") };
    assert!(error.is::<EffectPanic>());
    assert_eq!(error.to_string(), "the effect panicked: out of stock");
    // SQLite itself rolls all of it back.
    let rolled = |tx: &EffectTx<'_>| Ok(tx.execute("insert or rollback into stock values (1, 1)", []).map(drop)?);
    let answer = store.finish_with(run, rolled).await.expect("carried out");
    assert!(matches!(answer, EffectAnswer::EffectFailed(_)), "{answer:?}");
    assert_eq!(stock(&own), 5);
    for id in [left.id, also_left.id] {
        assert!(store.job(id).await.expect("read").is_none());
    }
    // The run is current, and the thread is well.
    let answer = store.finish_with(run, take).await.expect("carried out");
    assert!(matches!(answer, EffectAnswer::Counted { value: 4, .. }), "{answer:?}");
}

#[tokio::test]
async fn an_effect_cannot_commit_half_of_itself() {
    let (_place, store, own) = with_orders().await;
    let run = claimed(&store).await;
    for ending in ["commit", "end", "rollback", "commit; begin", "rollback; begin immediate"] {
        let effect = move |tx: &EffectTx<'_>| {
            take(tx)?;
            // Some do not look at what a statement answers.
            drop(tx.execute_batch(ending));
            drop(tx.execute_batch("begin"));
            drop(tx.execute("update stock set n = n - 1", []));
            Ok(())
        };
        let error = store.finish_with(run, effect).await.expect_err(ending);
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Effect, Outcome::DidNotHappen), "{ending}: {error}");
        let tried = ending.split([';', ' ']).next().expect("a word").to_uppercase().replace("END", "COMMIT");
        assert!(error.to_string().starts_with(&format!("the effect tried {tried};")), "{error}");
        assert_eq!(stock(&own), 5, "{ending}");
    }
    // A statement has all of it rolled back, and the next ones would stand alone.
    for begin in ["", "savepoint mine; update stock set n = 0; release mine"] {
        let effect = move |tx: &EffectTx<'_>| {
            drop(tx.execute("insert or rollback into stock values (1, 1)", []));
            drop(tx.execute_batch(begin));
            drop(tx.execute("update stock set n = n - 1", []));
            Ok(())
        };
        let error = store.finish_with(run, effect).await.expect_err(begin);
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Effect, Outcome::DidNotHappen), "{begin}: {error}");
        assert_eq!(stock(&own), 5, "{begin}");
    }
    let effect = |tx: &EffectTx<'_>| {
        tx.authorizer(None::<fn(AuthContext<'_>) -> Authorization>)?;
        tx.commit_hook(None::<fn() -> bool>)?;
        take(tx)?;
        Ok(tx.execute_batch("commit")?)
    };
    let error = store.finish_with(run, effect).await.expect_err("is noticed");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Effect, Outcome::MayHaveHappened), "{error}");
    assert_eq!(stock(&own), 4, "somebody took great pains");
    assert_eq!(store.verdict(vec![run]).await.expect("read"), [hapax::model::Verdict::Current]);
    assert!(store.finish(vec![Finish { run, end: End::Done { result: None } }]).await.expect("written")[0].counted());
}

/// What would outlast the effect, on the connection that every later write goes through.
#[tokio::test]
async fn an_effect_cannot_break_out() {
    let (place, store, own) = with_orders().await;
    let run = claimed(&store).await;
    let attach = format!("attach '{}' as other", place.file.with_extension("other").display());
    let forbidden = [
        ("pragma writable_schema = on", "PRAGMA writable_schema"),
        ("pragma query_only = 1", "PRAGMA query_only"),
        ("pragma main.max_page_count(3)", "PRAGMA max_page_count"),
        (&attach, "ATTACH"),
        ("detach main", "DETACH"),
        ("begin", "BEGIN"),
    ];
    for (text, named) in forbidden.map(|(text, named)| (text.to_owned(), named)) {
        let said = text.clone();
        let looks_away = move |tx: &EffectTx<'_>| {
            drop(tx.execute_batch(&said));
            take(tx)
        };
        let tells = move |tx: &EffectTx<'_>| {
            tx.execute_batch(&text)?;
            take(tx)
        };
        for error in [store.finish_with(run, looks_away).await, store.finish_with(run, tells).await] {
            let error = error.expect_err(named);
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::Effect, Outcome::DidNotHappen), "{error}");
            assert!(error.to_string().starts_with(&format!("the effect tried {named}")), "{error}");
            assert_eq!(stock(&own), 5, "{named}");
        }
    }
    assert!(!place.file.with_extension("other").exists());
    let lawful = move |tx: &EffectTx<'_>| {
        let columns: i64 = tx.query_row("select count(*) from pragma_table_info('stock')", [], |row| row.get(0))?;
        tx.pragma_query(None, "table_info", |_| Ok(()))?;
        tx.pragma(None, "table_info", "stock", |_| Ok(()))?;
        tx.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))?;
        tx.execute_batch("create temp table seen (n); alter table stock add column note text; pragma foreign_keys")?;
        tx.execute_batch("savepoint mine; update stock set n = 0; rollback to mine; release mine")?;
        tx.enqueue(vec![job()])?;
        assert_eq!(columns, 2);
        take(tx)
    };
    let answer = store.finish_with(run, lawful).await.expect("carried out");
    assert!(matches!(answer, EffectAnswer::Counted { value: 4, .. }), "{answer:?}");
}

#[tokio::test]
async fn a_deferred_constraint_that_fails_at_the_commit_undoes_all() {
    let (_place, store, own) = with_orders().await;
    own.execute_batch("create table orders (item integer references stock (item) deferrable initially deferred)")
        .expect("made");
    let run = claimed(&store).await;
    let effect = |tx: &EffectTx<'_>| Ok(tx.execute("insert into orders values (99)", []).map(drop)?);
    let error = store.finish_with(run, effect).await.expect_err("99 is not in stock");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Invalid, Outcome::DidNotHappen), "{error}");
    assert_eq!(store.verdict(vec![run]).await.expect("read"), [hapax::model::Verdict::Current]);
}

#[tokio::test]
async fn jobs_come_and_go_with_the_users_transaction() {
    let (_place, store, mut own) = with_orders().await;
    let (kept, dropped) = (job(), job());
    let tx = own.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
    tx.execute("update stock set n = 3", []).expect("written");
    (&tx).enqueue_jobs(vec![kept.clone()], |answers| answers).expect("enqueued");
    assert!(store.job(kept.id).await.expect("read").is_none(), "not before the commit");
    tx.commit().expect("committed");
    let tx = own.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
    (&tx).enqueue_jobs(vec![dropped.clone()], |answers| answers).expect("enqueued");
    tx.rollback().expect("rolled back");
    assert_eq!(store.job(kept.id).await.expect("read").expect("there").0.state, JobState::Ready);
    assert!(store.job(dropped.id).await.expect("read").is_none());
}

#[tokio::test]
async fn a_failed_step_leaves_the_users_transaction_as_it_was() {
    let (_place, store, mut own) = with_orders().await;
    let (good, later) = (job(), job());
    let bad = hapax::model::NewJob { payload: hapax::Payload::from_store("{".to_owned()), ..job() };
    let tx = own.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
    let error = (&tx).enqueue_jobs(vec![good.clone(), bad], |answers| answers).expect_err("the schema refuses it");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Invalid, Outcome::DidNotHappen));
    (&tx).enqueue_jobs(vec![later.clone()], |answers| answers).expect("goes on");
    tx.commit().expect("committed");
    assert!(store.job(good.id).await.expect("read").is_none());
    assert!(store.job(later.id).await.expect("read").is_some());
}

#[tokio::test]
async fn another_file_has_no_place_for_jobs() {
    let place = place();
    let mut own = Connection::open(&place.file).expect("opens");
    let tx = own.transaction().expect("begun");
    let error = (&tx).enqueue_jobs(vec![job()], |answers| answers).expect_err("no tables");
    assert_eq!(error.kind(), ErrorKind::Unusable);
    assert!(error.to_string().contains("SqliteStore::open"), "{error}");
}

#[tokio::test]
async fn a_transaction_that_read_before_is_told_how_to_begin() {
    let (_place, store, mut own) = with_orders().await;
    let tx = own.transaction().expect("begun");
    tx.query_row("select n from stock", [], |row| row.get::<_, i64>(0)).expect("read");
    store.enqueue(vec![job()]).await.expect("enqueued");
    let error = (&tx).enqueue_jobs(vec![job()], |answers| answers).expect_err("its state is old");
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.to_string().contains("BEGIN IMMEDIATE"), "{error}");
}

#[tokio::test]
async fn a_lock_is_guarded_until_the_commit() {
    let (place, clock) = (place(), Clock::movable());
    let store = open_with(&place, &clock).await;
    let mut own = Connection::open(&place.file).expect("opens");
    let request = || LockRequest {
        name: name("rebuild"),
        permits: 1,
        lease_ms: 1_000,
        acquisition: AcquisitionId::new(),
        holder: name("me"),
    };
    let Ok(LockAnswer::Granted(first)) = store.acquire_lock(request()).await else { panic!("is free") };
    let tx = own.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
    lock_guard(&tx, &first).expect("is held");
    tx.commit().expect("committed");
    clock.advance(std::time::Duration::from_secs(2));
    let tx = own.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
    lock_guard(&tx, &first).expect("is over, but nobody took it");
    tx.commit().expect("committed");
    let Ok(LockAnswer::Granted(second)) = store.acquire_lock(request()).await else { panic!("is free") };
    let tx = own.transaction_with_behavior(TransactionBehavior::Immediate).expect("begun");
    let error = lock_guard(&tx, &first).expect_err("passed on");
    assert_eq!(error.kind(), ErrorKind::Refused);
    lock_guard(&tx, &second).expect("is held");
    tx.commit().expect("committed");
    assert_eq!(store.refusals(10).await.expect("read").len(), 1);
}

#[tokio::test]
async fn an_effect_and_a_group_take_turns() {
    let (_place, store, own) = with_orders().await;
    own.execute_batch("update stock set n = 100").expect("made");
    let mut runs = Vec::new();
    for _ in 0..20 {
        runs.push(claimed(&store).await);
    }
    let calls: Vec<_> = runs
        .iter()
        .enumerate()
        .map(|(n, run)| {
            let (store, run) = (store.clone(), *run);
            tokio::spawn(async move {
                if n % 2 == 0 {
                    let answer = store.finish_with(run, take).await.expect("carried out");
                    return matches!(answer, EffectAnswer::Counted { .. });
                }
                let finish = Finish { run, end: End::Done { result: None } };
                let settled = store.finish(vec![finish]).await.expect("written");
                settled.iter().all(Settled::counted)
            })
        })
        .collect();
    for call in calls {
        assert!(call.await.expect("no panic"));
    }
    assert_eq!(stock(&own), 90);
}
