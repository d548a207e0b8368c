//! Instances, their leases, and the pruner.

use super::Harness;
use super::world::{
    BEAT_MS, KEEP_KEY_MS, KEEP_MS, LEASE_MS, World, again, at_most_once, done, instance, job, keyed, name, refusal,
    run_of,
};
use crate::id::NAME_BYTES_MAX;
use crate::model::job::KEEP_MS_MIN;
use crate::model::{
    EVIDENCE_KEEP_MS, Heartbeat, JobState, NewInstance, NewJob, OwnedRun, Pruned, Reaped, Refusal, Release, RunOutcome,
};

/// An instance is shown as it registered, live, with the time left of its lease.
pub async fn a_registered_instance_is_shown(h: &dyn Harness) {
    let w = World::new(h);
    let new = NewInstance {
        name: name(&"ä".repeat(NAME_BYTES_MAX / 2)),
        version: "1.2.3-rc.4+build.5".to_owned(),
        queues: vec![name("b"), name("a"), name("b, c")],
        kinds: vec![name("x\"y"), name("[]")],
        ..instance()
    };
    w.register(new.clone()).await.expect("registered");
    w.pass(1_500);
    let shown = w.instances().await.expect("read").remove(0);
    assert_eq!((shown.id, &shown.name, &shown.version), (new.id, &new.name, &new.version));
    assert_eq!((&shown.queues, &shown.kinds), (&new.queues, &new.kinds));
    assert_eq!((shown.live, shown.expires_in_ms, shown.running), (true, LEASE_MS - 1_500, 0));
    assert_eq!(shown.started_at, shown.renewed_at);
    w.put(&[job(), job()]).await;
    let by = w.live().await;
    w.take(by).await;
    let shown = w.instances().await.expect("read");
    assert_eq!(shown.len(), 2);
    assert!(shown.windows(2).all(|pair| pair[0].id < pair[1].id), "by id");
    assert_eq!(shown.iter().find(|one| one.id == by).expect("shown").running, 2);
}

/// Ids decide: registering again while live renews the lease and keeps the runs.
pub async fn registering_again_renews(h: &dyn Harness) {
    let w = World::new(h);
    let new = instance();
    w.register(new.clone()).await.expect("registered");
    let started_at = w.now().wall;
    w.put(&[job()]).await;
    let run = run_of(&w.take(new.id).await[0]);
    w.pass(LEASE_MS - 1);
    w.register(NewInstance { kinds: vec![name("other")], ..new.clone() }).await.expect("renewed");
    let shown = w.instances().await.expect("read").remove(0);
    assert_eq!((shown.started_at, shown.renewed_at, shown.running), (started_at, w.now().wall, 1));
    assert_eq!((shown.expires_in_ms, shown.kinds), (LEASE_MS, vec![name("other")]));
    assert!(w.end(run, done()).await.counted());
}

/// DESIGN §5: dead is final; a dead id cannot register again, whether it died or left.
pub async fn dead_is_final(h: &dyn Harness) {
    let w = World::new(h);
    let (died, left) = (instance(), instance());
    w.register(died.clone()).await.expect("registered");
    w.pass(LEASE_MS - BEAT_MS);
    w.register(left.clone()).await.expect("registered");
    w.pass(BEAT_MS);
    assert_eq!(w.reap(left.id, 10).await.expect("live").dead, [died.id]);
    w.leave(left.id).await.expect("left");
    let before = w.snapshot().await;
    for new in [died, left] {
        assert_eq!(refusal(w.register(new.clone()).await), Refusal::NotLive { instance: new.id });
        assert_eq!(w.heartbeat(new.id, Vec::new()).await.expect("answered"), Heartbeat::Dead);
    }
    assert_eq!(w.snapshot().await, before);
    assert!(before.instances.iter().all(|shown| !shown.live));
}

/// Whoever has just come reaps nothing for one heartbeat: for all it knows the store stood still until now, and the
/// others are about to renew themselves.
pub async fn a_new_instance_waits_before_it_reaps(h: &dyn Harness) {
    let w = World::new(h);
    let (dead, run) = w.run(job()).await;
    w.pass(LEASE_MS);
    let new = instance();
    for _ in 0..2 {
        // Registering again begins anew.
        w.register(new.clone()).await.expect("registered");
        w.pass(BEAT_MS - 1);
        let before = w.snapshot().await;
        assert_eq!(w.reap(new.id, 10).await.expect("live"), Reaped::default());
        assert_eq!(w.snapshot().await, before);
    }
    w.pass(1);
    let reaped = w.reap(new.id, 10).await.expect("live");
    assert_eq!((reaped.dead, reaped.taken_back), (vec![dead], vec![(run.job, JobState::Ready)]));
}

/// One heartbeat renews the instance's lease, whatever it runs, and tells what belongs to it.
pub async fn a_heartbeat_renews_and_tells(h: &dyn Harness) {
    let w = World::new(h);
    let (by, run) = w.run(job()).await;
    w.run(job()).await;
    for _ in 0..3 {
        w.pass(LEASE_MS - 1);
        let claim = w.look(run.job).await.claim.expect("claimed").claim;
        let owned = vec![OwnedRun { run, claim, cancel_requested: false }];
        assert_eq!(w.heartbeat(by, Vec::new()).await.expect("answered"), Heartbeat::Alive { owned });
    }
    let shown = w.instances().await.expect("read").into_iter().find(|shown| shown.id == by).expect("shown");
    assert_eq!((shown.renewed_at, shown.expires_in_ms), (w.now().wall, LEASE_MS));
    w.end(run, done()).await;
    assert_eq!(w.heartbeat(by, vec![run]).await.expect("answered"), Heartbeat::Alive { owned: Vec::new() });
}

/// The starts of runs that outlast a heartbeat are recorded with it, once.
pub async fn a_heartbeat_records_starts(h: &dyn Harness) {
    let w = World::new(h);
    w.put(&[job(), job()]).await;
    let by = w.live().await;
    let runs: Vec<_> = w.take(by).await.iter().map(run_of).collect();
    w.pass(1_000);
    let first = w.now();
    for _ in 0..2 {
        w.heartbeat(by, vec![runs[0], runs[0]]).await.expect("answered");
        w.pass(1_000);
    }
    let claim = w.look(runs[0].job).await.claim.expect("claimed");
    assert_eq!(claim.started_at, Some(first.wall));
    assert_eq!(claim.deadline, first.lease.plus_ms(super::world::RUN_MS), "its time limit counts from there");
    assert_eq!(w.look(runs[1].job).await.claim.expect("claimed").started_at, None);
}

/// Many runs at once: one heartbeat tells all of them and records all of their starts.
pub async fn a_heartbeat_carries_many_runs(h: &dyn Harness) {
    let w = World::new(h);
    w.put(&(0..600).map(|_| job()).collect::<Vec<_>>()).await;
    let by = w.live().await;
    let mut runs: Vec<_> = w.take(by).await.iter().map(run_of).collect();
    let Heartbeat::Alive { owned } = w.heartbeat(by, runs.clone()).await.expect("answered") else { panic!("live") };
    let mut told: Vec<_> = owned.iter().map(|owned| owned.run).collect();
    told.sort();
    runs.sort();
    assert_eq!(told, runs);
    assert_eq!(w.release(by, Release::Claim(owned[0].claim)).await.expect("answered"), [], "all have started");
}

/// Law 7: jobs that may still run, and jobs that wait for a person, are kept whatever their age.
pub async fn the_pruner_keeps_what_is_not_over(h: &dyn Harness) {
    let w = World::new(h);
    let brief = || NewJob { keep_ms: 1, ..job() };
    let (_, parks) = w.run(brief()).await;
    w.end(parks, crate::model::End::Park { reason: "given up".to_owned() }).await;
    let (_, doubt) = w.run(NewJob { keep_ms: 1, ..at_most_once() }).await;
    w.end(doubt, again(RunOutcome::Unknown, 0)).await;
    w.run(brief()).await;
    w.put(&[brief(), NewJob { due: crate::model::Due::InMs(u64::MAX), ..brief() }]).await;
    w.pass(EVIDENCE_KEEP_MS - 1);
    let before = w.snapshot().await;
    assert_eq!(w.prune(1_000).await.expect("pruned"), Pruned::default());
    assert_eq!(w.snapshot().await, before);
    let states: Vec<JobState> = before.jobs.iter().map(|(job, _)| job.state).collect();
    assert_eq!(states.len(), 5);
    assert!(!states.contains(&JobState::Done) && !states.contains(&JobState::Cancelled));
}

/// Ended jobs go once their own retention has passed, with their runs; not a moment sooner.
pub async fn ended_jobs_go_after_their_retention(h: &dyn Harness) {
    let w = World::new(h);
    let (by, done_run) = w.run(job()).await;
    w.end(done_run, again(RunOutcome::Failed, 0)).await;
    let next = run_of(&w.take(by).await[0]);
    w.end(next, done()).await;
    let cancelled = NewJob { keep_ms: 2 * KEEP_MS, ..job() };
    w.put(std::slice::from_ref(&cancelled)).await;
    w.cancel(cancelled.id, "test".to_owned()).await.expect("ready");
    w.pass(KEEP_MS - 1);
    assert_eq!(w.prune(10).await.expect("pruned").jobs, 0);
    w.pass(1);
    assert_eq!(w.prune(10).await.expect("pruned").jobs, 1);
    assert_eq!(w.job(done_run.job).await.expect("read"), None);
    w.pass(KEEP_MS);
    assert_eq!(w.prune(10).await.expect("pruned").jobs, 1);
    assert_eq!(w.snapshot().await.jobs, []);
}

/// A job that need not be kept is kept all the same for as long as an enqueue whose answer was lost may be repeated:
/// else it would run a second time.
pub async fn an_ended_job_is_kept_for_a_repeated_enqueue(h: &dyn Harness) {
    let w = World::new(h);
    let (by, run) = w.run(NewJob { keep_ms: 0, ..job() }).await;
    w.end(run, done()).await;
    let again = NewJob { keep_ms: 0, id: run.job, ..job() };
    let cancelled = NewJob { keep_ms: 1, ..job() };
    w.put(std::slice::from_ref(&cancelled)).await;
    w.cancel(cancelled.id, "test".to_owned()).await.expect("ready");
    w.pass(KEEP_MS_MIN - 1);
    assert_eq!(w.prune(10).await.expect("pruned").jobs, 0);
    w.put(&[again, cancelled]).await;
    w.heartbeat(by, Vec::new()).await.expect("answered");
    assert_eq!(w.take(by).await, [], "it is the same job, and has ended");
    w.pass(1);
    assert_eq!(w.prune(10).await.expect("pruned").jobs, 2);
}

/// A cancelled job that was retried is alive again, and nobody prunes it.
pub async fn a_retried_job_is_not_pruned(h: &dyn Harness) {
    let w = World::new(h);
    let new = job();
    w.put(std::slice::from_ref(&new)).await;
    w.cancel(new.id, "test".to_owned()).await.expect("ready");
    w.retry(new.id).await.expect("cancelled");
    w.pass(2 * KEEP_MS);
    assert_eq!(w.prune(10).await.expect("pruned").jobs, 0);
}

/// Evidence is kept for its time: dead instances and refusals; an instance that still owns runs stays until they end.
pub async fn evidence_goes_after_its_time(h: &dyn Harness) {
    let w = World::new(h);
    let (dead, run) = w.run(job()).await;
    w.take_over().await;
    w.end(run, done()).await;
    assert_eq!(w.refusals(10).await.expect("read").len(), 1);
    w.pass(EVIDENCE_KEEP_MS - 1);
    let pruned = w.prune(10).await.expect("pruned");
    assert_eq!((pruned.instances, pruned.refusals), (1, 0), "the dead one renewed a lease ago");
    w.pass(1);
    assert_eq!(w.prune(10).await.expect("pruned").refusals, 1);
    assert_eq!(w.refusals(10).await.expect("read"), []);
    let left = w.instances().await.expect("read");
    assert!(left.iter().all(|shown| shown.id != dead && shown.live), "who was never declared dead is kept");
    assert_eq!(w.totals().await.writes_refused, 1, "the totals are kept");
}

/// The pruner takes bites of at most the given size, and in the end everything is gone.
pub async fn bites_of_the_pruner_reach_everything(h: &dyn Harness) {
    let w = World::new(h);
    let jobs: Vec<NewJob> = (0..25).map(|n| keyed(&n.to_string())).collect();
    w.put(&jobs).await;
    for job in &jobs {
        w.cancel(job.id, "test".to_owned()).await.expect("ready");
    }
    w.pass(KEEP_KEY_MS);
    let mut bites = Vec::new();
    loop {
        let bite = w.prune(10).await.expect("pruned");
        bites.push((bite.jobs, bite.keys));
        if bite.total() == 0 {
            break;
        }
    }
    assert_eq!(bites, [(10, 10), (10, 10), (5, 5), (0, 0)]);
    assert_eq!(w.prune(0).await.expect("pruned").total(), 0);
}
