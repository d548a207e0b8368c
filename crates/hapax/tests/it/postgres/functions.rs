//! What SQL may call: the same law as the program's verbs, in the caller's own transaction.

use std::sync::Arc;
use std::time::Duration;

use hapax::client::OnceClaim;
use hapax::clock::Clock;
use hapax::id::{AcquisitionId, Boundary, Name, OnceKey, Payload};
use hapax::model::{
    ClaimRequest, Due, End, Finish, Guarantee, JobRecord, KeyState, LockAnswer, LockRequest, NewInstance, NewJob,
    RetryPolicy, RunRef,
};
use hapax::store::postgres::PostgresStore;
use hapax::store::{Inspect, Jobs, Leases, Once, Workers};
use hapax::{ClaimId, Enqueue, Hapax, InstanceId, JobId, JobState};
use sqlx::postgres::PgRow;
use sqlx::{Connection, Executor, PgConnection, Row};

use super::place::Place;

pub(super) fn name(text: &str) -> Name {
    Name::new("name", text).expect("a legal name")
}

pub(super) fn key(boundary: Boundary, scope: &str, value: &str) -> OnceKey {
    OnceKey::new(boundary, name(scope), value).expect("legal")
}

pub(super) fn job() -> NewJob {
    NewJob {
        id: JobId::new(),
        queue: name("default"),
        kind: name("k"),
        payload: Payload::new("{}").expect("JSON"),
        payload_version: 1,
        priority: 0,
        due: Due::Now,
        once: None,
        guarantee: Guarantee::AtLeastOnce,
        retry: RetryPolicy::default(),
        run_timeout_ms: 600_000,
        keep_ms: 60_000,
    }
}

pub(super) async fn register(store: &PostgresStore) -> InstanceId {
    let id = InstanceId::new();
    let (queues, kinds) = (vec![name("default")], vec![name("k")]);
    let new = NewInstance { id, name: name("host:1"), version: "0".into(), queues, kinds, lease_ms: 30_000 };
    store.register(new).await.expect("registered");
    id
}

/// Claims the first ready job.
pub(super) async fn claim(store: &PostgresStore, instance: InstanceId) -> Option<RunRef> {
    let (queues, kinds) = (vec![(name("default"), 1)], vec![name("k")]);
    let request = ClaimRequest { instance, claim: ClaimId::new(), queues, kinds, suspect: true };
    let jobs = store.claim(request).await.expect("claimed").jobs;
    jobs.first().map(|job| RunRef { job: job.id, fence: job.fence.expect("claimed") })
}

pub(super) async fn look(store: &PostgresStore, id: JobId) -> JobRecord {
    store.job(id).await.expect("read").expect("there").0
}

async fn answer(connection: &mut PgConnection, call: &str) -> Result<PgRow, sqlx::Error> {
    let text = format!("select * from {call}");
    sqlx::query(sqlx::AssertSqlSafe(text)).persistent(false).fetch_one(connection).await
}

/// What `enqueue` answers: the id, whether it existed, whether it is done.
async fn enqueue(connection: &mut PgConnection, arguments: &str) -> (JobId, bool, bool) {
    let row = answer(connection, &format!("enqueue({arguments})")).await.expect("enqueued");
    (row.get("id"), row.get("existed"), row.get("done"))
}

/// The code, message and hint of a refused call.
async fn refusal(connection: &mut PgConnection, call: &str) -> (String, String, String) {
    let error = answer(connection, call).await.expect_err("refused");
    let error = error.into_database_error().expect("of the server");
    let code = error.code().expect("a code").into_owned();
    let hint = error.downcast_ref::<sqlx::postgres::PgDatabaseError>().hint().unwrap_or_default().to_owned();
    (code, error.message().to_owned(), hint)
}

async fn yes(connection: &mut PgConnection, call: &str) -> bool {
    answer(connection, call).await.expect("answered").get(0)
}

/// Waits until a session of the server waits for a lock.
async fn until_it_waits(pid: i32) {
    let mut watcher = PgConnection::connect(&super::place::server()).await.expect("the server answers");
    let text = "select count(*) > 0 from pg_stat_activity where pid = $1 and wait_event_type = 'Lock'";
    let waits = async {
        while !sqlx::query_scalar::<_, bool>(text).bind(pid).fetch_one(&mut watcher).await.expect("read") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waits).await.expect("it waits");
}

async fn pid(connection: &mut PgConnection) -> i32 {
    sqlx::query_scalar("select pg_backend_pid()").fetch_one(connection).await.expect("read")
}

#[tokio::test]
async fn defaults_are_those_of_the_client() {
    let place = Place::new().await;
    let (store, mut own) = (place.store().await, place.connection().await);
    let hapax = Hapax::with_store(Arc::new(store.clone()));
    for (arguments, new) in [
        ("'k', '{}'", Enqueue::new("k", "{}")),
        ("'k', '[1 , 2]', once => 'sql'", Enqueue::new("k", "[1 , 2]").once("rust")),
    ] {
        let (id, existed, done) = enqueue(&mut own, arguments).await;
        assert_eq!((existed, done), (false, false));
        let theirs = hapax.enqueue(new).await.expect("enqueued").id;
        let (mut by_sql, by_client) = (look(&store, id).await, look(&store, theirs).await);
        assert_eq!(id.as_uuid().get_version_num(), 7);
        assert!(by_sql.due_at == by_sql.enqueued_at && by_sql.due_at <= by_client.due_at);
        (by_sql.id, by_sql.due_at, by_sql.enqueued_at) = (by_client.id, by_client.due_at, by_client.enqueued_at);
        by_sql.once = by_sql.once.and_then(|_| by_client.once.clone());
        assert_eq!(by_sql, by_client);
    }
}

#[tokio::test]
async fn a_job_comes_and_goes_with_the_transaction() {
    let place = Place::new().await;
    let (store, mut own) = (place.store().await, place.connection().await);
    own.execute("begin").await.expect("begun");
    let (gone, ..) = enqueue(&mut own, "'k', '{}', once => 'x'").await;
    own.execute("rollback").await.expect("undone");
    assert!(store.job(gone).await.expect("read").is_none());
    let (kept, existed, _) = enqueue(&mut own, "'k', '{}', once => 'x', delay_ms => 3600000").await;
    assert!(!existed, "the key went with the job");
    assert_eq!(look(&store, kept).await.state, JobState::Scheduled);
    // The same id again is the same job.
    let again = enqueue(&mut own, &format!("'k', '{{}}', once => 'x', id => '{kept}'")).await;
    assert_eq!(again, (kept, false, false));
    assert_eq!(store.counters().await.expect("read").duplicates_refused, 0);
}

/// RC-57, by SQL: the key is held while its job lives, outlives it once it is done, and is free when it was cancelled.
#[tokio::test]
async fn a_key_outlives_its_job() {
    let place = Place::new().await;
    let (store, mut own) = (place.store().await, place.connection().await);
    let (first, ..) = enqueue(&mut own, "'k', '{}', once => 'x'").await;
    assert_eq!(enqueue(&mut own, "'k', '{}', once => 'x'").await, (first, true, false));
    let run = claim(&store, register(&store).await).await.expect("ready");
    assert!(yes(&mut own, &format!("finish('{}', {})", run.job, run.fence)).await);
    // Its retention has a floor, for which nobody waits here.
    own.execute("update jobs set purge_at = clock_timestamp() where state = 'done'").await.expect("made older");
    store.prune(100).await.expect("pruned");
    assert!(store.job(first).await.expect("read").is_none());
    assert_eq!(enqueue(&mut own, "'k', '{}', once => 'x'").await, (first, true, true));
    let record = store.find_once(key(Boundary::Enqueue, "k", "x")).await.expect("read").expect("known");
    assert_eq!((record.state, record.refused), (KeyState::Done, 2));

    let (second, ..) = enqueue(&mut own, "'k', '{}', once => 'y'").await;
    hapax::store::Operate::cancel(&store, second, "not wanted".into()).await.expect("cancelled");
    let (third, existed, _) = enqueue(&mut own, "'k', '{}', once => 'y'").await;
    assert!(!existed && third != second);
}

#[tokio::test]
async fn who_wants_the_same_key_waits_for_the_transaction() {
    let place = Place::new().await;
    for (end, existed) in [("commit", true), ("rollback", false)] {
        let (mut first, mut second) = (place.connection().await, place.connection().await);
        let waiting = pid(&mut second).await;
        first.execute("begin").await.expect("begun");
        let call = format!("'k', '{{}}', once => '{end}'");
        let (id, ..) = enqueue(&mut first, &call).await;
        let other = tokio::spawn(async move { enqueue(&mut second, &call).await });
        until_it_waits(waiting).await;
        first.execute(end).await.expect("ended");
        let answer = other.await.expect("answered");
        assert_eq!((answer.1, answer.0 == id), (existed, existed), "after {end}");
    }
}

#[tokio::test]
async fn a_duplicate_in_a_long_transaction_holds_up_nobody() {
    let place = Place::new().await;
    let (store, mut own) = (place.store().await, place.connection().await);
    let (id, ..) = enqueue(&mut own, "'k', '{}', once => 'x'").await;
    let run = claim(&store, register(&store).await).await.expect("ready");
    own.execute("begin").await.expect("begun");
    assert_eq!(enqueue(&mut own, "'k', '{}', once => 'x'").await, (id, true, false));
    let finish = vec![Finish { run, end: End::Done { result: None } }];
    let finished = tokio::time::timeout(Duration::from_secs(10), store.finish(finish)).await.expect("does not wait");
    assert!(finished.expect("finished")[0].counted());
    own.execute("commit").await.expect("kept");
    assert_eq!(store.counters().await.expect("read").duplicates_refused, 1);
}

/// No key is held for a job that does not have it.
#[tokio::test]
async fn an_id_that_was_given_to_two_jobs_holds_no_key() {
    let place = Place::new().await;
    let (mut first, mut second) = (place.connection().await, place.connection().await);
    let (id, waiting) = (JobId::new(), pid(&mut second).await);
    first.execute("begin").await.expect("begun");
    enqueue(&mut first, &format!("'k', '{{}}', id => '{id}'")).await;
    let call = format!("enqueue('k', '{{}}', id => '{id}', once => 'x')");
    let other = tokio::spawn(async move { refusal(&mut second, &call).await });
    until_it_waits(waiting).await;
    first.execute("commit").await.expect("kept");
    let (code, message, _) = other.await.expect("answered");
    assert!(code == "40001" && message.contains(&id.to_string()), "{code}: {message}");
    let (_, existed, _) = enqueue(&mut first, "'k', '{}', once => 'x'").await;
    assert!(!existed);
}

/// RC-55, by SQL, with all else that is no legal argument: the error names the argument and says the mend.
#[tokio::test]
async fn what_is_wrong_is_named() {
    let place = Place::new().await;
    let mut own = place.connection().await;
    for (arguments, named) in [
        ("'', '{}'", "kind"),
        ("null, '{}'", "kind"),
        (r"E'a\tb', '{}'", "kind"),
        ("'k', '{'", "payload"),
        ("'k', null", "payload"),
        ("'k', '{}', queue => repeat('q', 129)", "queue"),
        ("'k', '\"' || repeat('x', 1048576) || '\"'", "payload"),
        ("'k', '{}', once => ''", "once"),
        ("'k', '{}', once => 'x', fingerprint => 'short'", "fingerprint"),
        ("'k', '{}', fingerprint => sha256('x')", "once"),
        ("'k', '{}', priority => 40000", "priority"),
        ("'k', '{}', delay_ms => -1", "delay_ms"),
        ("'k', '{}', delay_ms => 1, due_at => now()", "due_at"),
        ("'k', '{}', max_attempts => 0", "max_attempts"),
        ("'k', '{}', retry_jitter_percent => 101", "retry_jitter_percent"),
        ("'k', '{}', run_timeout_ms => 0", "run_timeout_ms"),
        ("'k', '{}', guarantee => 'sometimes'", "guarantee"),
        ("'k', '{}', keep_ms => null", "keep_ms"),
    ] {
        let (code, message, hint) = refusal(&mut own, &format!("enqueue({arguments})")).await;
        assert_eq!(code, "22023", "{arguments}: {message}");
        assert!(message.contains(named) && !hint.is_empty(), "{arguments}: {message}; {hint}");
    }
    // What JSON allows and databases do not is kept byte for byte.
    let odd = r#" {"a":"\u0000", "b":"\ud800", "a":1.0}"#;
    let id: JobId =
        sqlx::query_scalar("select id from enqueue('k', $1)").bind(odd).fetch_one(&mut own).await.expect("kept");
    assert_eq!(look(&place.store().await, id).await.payload.as_str(), odd);
    // The character itself does not even come to the function.
    let error = sqlx::query("select id from enqueue('k', $1)").bind("\"a\0b\"").fetch_one(&mut own).await;
    let error = error.expect_err("refused").into_database_error().expect("of the server");
    assert_eq!(error.code().as_deref(), Some("22021"), "{error}");
}

#[tokio::test]
async fn another_fingerprint_is_an_error_that_names_both() {
    let place = Place::new().await;
    let mut own = place.connection().await;
    let (id, ..) = enqueue(&mut own, "'k', '1', once => 'x'").await;
    let (code, message, _) = refusal(&mut own, "enqueue('k', '2', once => 'x')").await;
    assert_eq!(code, "HX001");
    for part in [&*id.to_string(), "`x`", "6b86b273ff34", "d4735e3a265e"] {
        assert!(message.contains(part), "{part} in {message}");
    }
    let old = "made_at => now() - interval '31 days'";
    let (code, ..) = refusal(&mut own, &format!("enqueue('k', '2', once => 'old', {old})")).await;
    assert_eq!(code, "HX002");
    let (code, ..) = refusal(&mut own, &format!("once('old', {old})")).await;
    assert_eq!(code, "HX002");
}

#[tokio::test]
async fn an_inbox_takes_each_message_once() {
    let place = Place::new().await;
    let (mut first, mut second) = (place.connection().await, place.connection().await);
    let (store, waiting) = (place.store().await, pid(&mut second).await);
    first.execute("begin").await.expect("begun");
    assert!(yes(&mut first, "once('m-1', 'orders', result => 'kept')").await);
    assert!(!yes(&mut first, "once('m-1', 'orders')").await, "not twice in one transaction either");
    let other = tokio::spawn(async move { (yes(&mut second, "once('m-1', 'orders')").await, second) });
    until_it_waits(waiting).await;
    first.execute("commit").await.expect("kept");
    let (is_first, mut second) = other.await.expect("answered");
    assert!(!is_first);
    assert!(yes(&mut second, "once('m-1', 'invoices')").await, "another scope");

    // The program's verb sees it as done, and its own claim is seen here.
    let hapax = Hapax::with_store(Arc::new(store.clone()));
    let claimed = hapax.once("orders", "m-1").claim().await.expect("answered");
    let OnceClaim::Done(record) = claimed else { panic!("{claimed:?}") };
    assert_eq!((record.result.as_deref(), record.attempts, record.refused), (Some("kept"), 1, 3));
    let OnceClaim::Claimed(guard) = hapax.once("orders", "m-2").claim().await.expect("answered") else {
        panic!("free")
    };
    let (code, message, _) = refusal(&mut second, "once('m-2', 'orders')").await;
    assert_eq!(code, "HX003", "{message}");
    guard.failed("not now").await.expect("freed");
    assert!(yes(&mut second, "once('m-2', 'orders')").await, "what failed is free");
    assert_eq!(store.counters().await.expect("read").duplicates_refused, 3);
}

#[tokio::test]
async fn a_fence_that_was_found_good_stays_so_until_the_commit() {
    let (place, clock) = (Place::new().await, Clock::movable());
    let store = PostgresStore::options().clock(clock.clone()).open(&place.url).await.expect("opens");
    let mut own = place.connection().await;
    store.enqueue(vec![job()]).await.expect("enqueued");
    let one = register(&store).await;
    let run = claim(&store, one).await.expect("ready");
    clock.advance(Duration::from_secs(20));
    let two = register(&store).await;
    own.execute("begin").await.expect("begun");
    assert!(yes(&mut own, &format!("fence_ok('{}', {})", run.job, run.fence)).await);
    assert!(!yes(&mut own, &format!("fence_ok('{}', {})", run.job, run.fence.as_i64() + 1)).await);
    // Its own heartbeat does not wait.
    let beat = tokio::time::timeout(Duration::from_secs(10), store.heartbeat(one, vec![run])).await;
    beat.expect("does not wait").expect("renewed");
    clock.advance(Duration::from_secs(29));
    store.heartbeat(two, vec![]).await.expect("renewed");
    clock.advance(Duration::from_secs(15));
    assert_eq!(store.reap(two, 10).await.expect("live").taken_back, [], "dead, and its row is locked");
    own.execute("commit").await.expect("kept");
    assert_eq!(store.reap(two, 10).await.expect("live").taken_back, [(run.job, JobState::Ready)]);
    assert!(!yes(&mut own, &format!("fence_ok('{}', {})", run.job, run.fence)).await);
    assert_eq!(store.refusals(10).await.expect("read").len(), 2, "kept as evidence");
}

#[tokio::test]
async fn a_lock_that_was_found_good_stays_so_until_the_commit() {
    let (place, clock) = (Place::new().await, Clock::movable());
    let store = PostgresStore::options().clock(clock.clone()).open(&place.url).await.expect("opens");
    let mut own = place.connection().await;
    let ask = || LockRequest {
        name: name("l"),
        permits: 1,
        lease_ms: 1_000,
        acquisition: AcquisitionId::new(),
        holder: name("me"),
    };
    let LockAnswer::Granted(lock) = store.acquire_lock(ask()).await.expect("answered") else { panic!("free") };
    own.execute("begin").await.expect("begun");
    assert!(yes(&mut own, &format!("lock_ok('l', {}, {})", lock.slot, lock.fence)).await);
    assert!(!yes(&mut own, &format!("lock_ok('l', 1, {})", lock.fence)).await);
    let renewed = tokio::time::timeout(Duration::from_secs(10), store.renew_lock(lock.clone(), 1_000)).await;
    renewed.expect("does not wait").expect("renewed");
    clock.advance(Duration::from_secs(2));
    let other = tokio::spawn({
        let (store, ask) = (store.clone(), ask());
        async move { store.acquire_lock(ask).await.expect("answered") }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!other.is_finished(), "a grant waits for the commit");
    own.execute("commit").await.expect("kept");
    assert!(matches!(other.await.expect("answered"), LockAnswer::Granted(_)));
    assert!(!yes(&mut own, &format!("lock_ok('l', {}, {})", lock.slot, lock.fence)).await);
}

/// The finish by SQL and that of the program leave the same rows.
#[tokio::test]
async fn a_finish_is_that_of_the_program() {
    let place = Place::new().await;
    let (store, mut own) = (place.store().await, place.connection().await);
    let by = register(&store).await;
    let mut ended = Vec::new();
    for value in ["sql", "program"] {
        enqueue(&mut own, &format!("'k', '{{}}', once => '{value}', keep_key_ms => 60000")).await;
        let run = claim(&store, by).await.expect("ready");
        let end = |fence| format!("finish('{}', {fence}, repeat('ä', 40000))", run.job);
        if value == "sql" {
            own.execute("begin").await.expect("begun");
            assert!(yes(&mut own, &end(run.fence.as_i64())).await);
            own.execute("rollback").await.expect("undone");
            assert_eq!(look(&store, run.job).await.state, JobState::Running);
            assert!(yes(&mut own, &end(run.fence.as_i64())).await);
            assert!(!yes(&mut own, &end(run.fence.as_i64())).await, "once");
        } else {
            let result = Some(hapax::id::kept_text(&"ä".repeat(40_000)));
            let finish = Finish { run, end: End::Done { result } };
            assert!(store.finish(vec![finish.clone()]).await.expect("finished")[0].counted());
            assert!(!store.finish(vec![finish]).await.expect("answered")[0].counted());
        }
        let mut job = look(&store, run.job).await;
        let mut key = store.find_once(key(Boundary::Enqueue, "k", value)).await.expect("read").expect("known");
        assert_eq!((key.ended_at, key.keep_until), (job.finished_at, job.finished_at.map(|at| at.plus_ms(60_000))));
        assert_eq!(job.purge_at, job.finished_at.map(|at| at.plus_ms(job.keep_ms)));
        assert_eq!(job.ended_fence, Some(run.fence));
        (job.due_at, job.enqueued_at, key.since) = Default::default();
        (job.finished_at, job.purge_at, key.ended_at, key.keep_until) = Default::default();
        (job.fence, job.ended_fence, job.once) = (None, None, None);
        // SQL does not count what it refused in the row of a job that may be another's by now.
        job.refused = 0;
        (job.id, key.holder) = (JobId::from_uuid(uuid::Uuid::nil()), hapax::model::KeyHolder::Claim(name("x")));
        key.key = self::key(Boundary::Enqueue, "k", "x");
        let refusal = store.refusals(1).await.expect("read").remove(0);
        ended.push((
            job,
            key,
            (refusal.verb, refusal.identity == run.job.to_string(), refusal.fence == Some(run.fence)),
        ));
    }
    assert_eq!(ended[0], ended[1]);
}

/// Another fingerprint under a key that is done is another message, not a duplicate.
#[tokio::test]
async fn other_work_under_a_done_key_is_no_duplicate() {
    let place = Place::new().await;
    let mut own = place.connection().await;
    let once = |work: &str| format!("once('m', fingerprint => sha256('{work}'))");
    assert!(yes(&mut own, &once("a")).await);
    assert!(!yes(&mut own, &once("a")).await, "the same again");
    let text = format!("select {}", once("b"));
    let refused = own.fetch_one(sqlx::AssertSqlSafe(text)).await.expect_err("other work");
    assert_eq!(refused.as_database_error().and_then(sqlx::error::DatabaseError::code).as_deref(), Some("HX001"));
}

/// A length that no clock can hold ends at the end of time, and holds up nobody.
#[tokio::test]
async fn an_endless_length_holds_up_no_queue() {
    let place = Place::new().await;
    let (store, mut own) = (place.store().await, place.connection().await);
    let ms = 8_000_000_000_000_000_u64;
    let (id, ..) = enqueue(&mut own, &format!("'k', '{{}}', run_timeout_ms => {ms}, keep_ms => {ms}")).await;
    let run = claim(&store, register(&store).await).await.expect("claimed like any other");
    assert!(yes(&mut own, &format!("finish('{}', {})", run.job, run.fence)).await);
    assert_eq!(look(&store, id).await.state, JobState::Done);
}
