//! What happens to runs whose owner died or whose time is over: taken back once, blamed rightly, never taken from the
//! living.

use std::collections::BTreeSet;

use super::Harness;
use super::world::{
    BEAT_MS, LEASE_MS, RUN_MS, World, again, at_most_once, counted, done, job, name, refusal, run_of, wish,
};
use crate::id::JobId;
use crate::model::job::{TAKEOVERS_MAX, UNSTARTED_TAKEOVERS_MAX};
use crate::model::{
    ClaimRequest, Counters, Finish, Heartbeat, JobFilter, JobRecord, JobState, NewJob, Reaped, Refusal, RetryPolicy,
    RunOutcome, Settled,
};

/// RC-01, law 5: a job that finished between two bites of the sweep stays as it is, down to its times; the one that is
/// truly stuck in the same sweep is given back.
pub async fn the_sweep_leaves_finished_jobs_alone(h: &dyn Harness) {
    let w = World::new(h);
    w.put(&[job(), job(), job()]).await;
    let dead = w.live().await;
    let claimed = w.take(dead).await;
    let reaper = w.reaper_after(LEASE_MS).await;
    let first = w.reap(reaper, 1).await.expect("live");
    assert_eq!((first.dead.as_slice(), first.taken_back.len(), first.more), ([dead].as_slice(), 1, true));
    let mut left: Vec<&JobRecord> = claimed.iter().filter(|job| job.id != first.taken_back[0].0).collect();
    let late = left.remove(0);
    assert_eq!(w.end(run_of(late), done()).await, counted(JobState::Done), "late, and unchallenged");
    let before = w.job(late.id).await.expect("read");
    w.pass(5);
    let second = w.reap(reaper, 10).await.expect("live");
    assert_eq!(second.taken_back, [(left[0].id, JobState::Ready)]);
    assert_eq!(w.job(late.id).await.expect("read"), before);
}

/// RC-01, variant: a job that another worker took between two bites of the sweep stays with it.
pub async fn the_sweep_leaves_the_successor_alone(h: &dyn Harness) {
    let w = World::new(h);
    w.put(&[job(), job(), job()]).await;
    let dead = w.live().await;
    let claimed = w.take(dead).await;
    w.pass(LEASE_MS - BEAT_MS);
    let (slow, quick) = (w.live().await, w.live().await);
    w.pass(BEAT_MS);
    let bite = w.reap(slow, 1).await.expect("live");
    let rest = w.reap(quick, 10).await.expect("live");
    assert_eq!((bite.taken_back.len(), rest.taken_back.len()), (1, 2));
    let next: Vec<JobRecord> = w.take(quick).await;
    assert_eq!(next.len(), 3);
    w.start(next.iter().map(run_of).collect()).await.expect("started");
    let before = w.snapshot().await.jobs;
    assert_eq!(w.reap(slow, 10).await.expect("live").taken_back, []);
    assert_eq!(w.snapshot().await.jobs, before, "the second run stays as it is");
    for (old, new) in claimed.iter().zip(&next) {
        assert!(!w.end(run_of(old), done()).await.counted());
        assert_eq!(w.end(run_of(new), done()).await, counted(JobState::Done));
    }
}

/// RC-05: a run that outlived its lease is told so; its late report is refused, and the record shows its successor.
pub async fn the_late_run_is_told_and_refused(h: &dyn Harness) {
    let w = World::new(h);
    let (slow, first) = w.run_started(job()).await;
    let (quick, reaped) = w.take_over().await;
    assert_eq!(reaped.dead, [slow]);
    assert_eq!(w.heartbeat(slow, vec![first]).await.expect("answered"), Heartbeat::Dead, "cancel everything");
    let second = run_of(&w.take_suspect(quick).await[0]);
    assert!(second.fence > first.fence);
    let late = w.run_fenced_off("finish", first, w.end(first, done())).await;
    assert_eq!(late, Settled::Refused { state: Some(JobState::Running), current: Some(second.fence) });
    w.end(second, done()).await;
    let end = w.look(first.job).await;
    assert_eq!((end.state, end.ended_fence, end.takeovers, end.refused), (JobState::Done, Some(second.fence), 1, 1));
    let trace = w.runs(first.job).await;
    assert_eq!(trace.iter().map(|run| (run.fence, run.outcome)).collect::<Vec<_>>(), [(first.fence, RunOutcome::Lost)]);
}

/// Only the living reap, and only from the dead: a live owner keeps its runs to the last instant of its lease.
pub async fn a_live_owner_keeps_its_runs(h: &dyn Harness) {
    let w = World::new(h);
    let (by, run) = w.run(job()).await;
    let reaper = w.reaper_after(LEASE_MS - 1).await;
    assert_eq!(w.reap(reaper, 10).await.expect("live"), Reaped::default());
    w.heartbeat(by, vec![run]).await.expect("renewed");
    let reaper = w.reaper_after(LEASE_MS - 1).await;
    assert_eq!(w.reap(reaper, 10).await.expect("live").taken_back, []);
    assert_eq!(w.state(run.job).await, JobState::Running);
}

/// A lease that ran out while nobody reaped is renewed, with all its runs: when the store stood still for everybody,
/// nobody should lose work for it.
pub async fn expired_but_not_dead_is_renewed(h: &dyn Harness) {
    let w = World::new(h);
    let (by, run) = w.run(job()).await;
    w.pass(5 * LEASE_MS);
    let Heartbeat::Alive { owned } = w.heartbeat(by, vec![run]).await.expect("answered") else { panic!("not dead") };
    assert_eq!(owned.iter().map(|owned| owned.run).collect::<Vec<_>>(), [run]);
    let reaper = w.reaper_after(LEASE_MS - 1).await;
    assert_eq!(w.reap(reaper, 10).await.expect("live").dead, []);
    assert_eq!(w.end(run, done()).await, counted(JobState::Done));
}

/// DESIGN §5: when the store stood still for longer than every lease, the first to renew itself waits one heartbeat
/// before it reaps, whatever it asked for before; whoever is there by then has not died. Who stays away has.
pub async fn after_a_stall_nobody_is_taken_for_dead(h: &dyn Harness) {
    let w = World::new(h);
    let (slow, run) = w.run_started(job()).await;
    let (gone, lost) = w.run_started(job()).await;
    let first = w.live().await;
    w.pass(BEAT_MS);
    assert_eq!(w.reap(first, 10).await.expect("live"), Reaped::default(), "nobody's lease has run out");
    w.pass(3 * LEASE_MS);
    assert_eq!(refusal(w.reap(first, 10).await), Refusal::NotLive { instance: first });
    for _ in 0..2 {
        // The second heartbeat finds a lease that holds, and changes nothing about the wait.
        assert!(matches!(w.heartbeat(first, Vec::new()).await.expect("answered"), Heartbeat::Alive { .. }));
        let before = w.snapshot().await;
        assert_eq!(w.reap(first, 10).await.expect("live"), Reaped::default(), "the others come first");
        assert_eq!(w.snapshot().await, before);
        w.pass(BEAT_MS / 2);
    }
    assert!(matches!(w.heartbeat(slow, vec![run]).await.expect("answered"), Heartbeat::Alive { .. }));
    w.pass(BEAT_MS - 2 * (BEAT_MS / 2));
    let reaped = w.reap(first, 10).await.expect("live");
    assert_eq!((reaped.dead, reaped.taken_back), (vec![gone], vec![(lost.job, JobState::Ready)]));
    assert_eq!(w.reap(slow, 10).await.expect("live"), Reaped::default(), "it was away as well, and waits as well");
    assert_eq!(w.end(run, done()).await, counted(JobState::Done));
}

/// What is not known to have started goes back untouched; a second time in a row makes it a suspect.
pub async fn unstarted_runs_go_back_untouched(h: &dyn Harness) {
    let w = World::new(h);
    let new = job();
    w.put(std::slice::from_ref(&new)).await;
    for round in 1..=UNSTARTED_TAKEOVERS_MAX {
        let by = w.live().await;
        assert_eq!(w.take(by).await.len(), 1);
        assert_eq!(w.take_over().await.1.taken_back, [(new.id, JobState::Ready)]);
        let back = w.look(new.id).await;
        assert_eq!((back.runs, back.failures, back.takeovers, back.reason), (0, 0, 0, None));
        assert_eq!((back.unstarted_takeovers, back.suspect), (round, round == UNSTARTED_TAKEOVERS_MAX));
    }
    assert_eq!(w.runs(new.id).await, []);
    let totals = w.totals().await;
    assert_eq!((totals.takeovers, totals.unstarted_takeovers), (0, u64::from(UNSTARTED_TAKEOVERS_MAX)));
}

/// A started run of a dead owner is lost: counted, recorded, and the job is a suspect.
pub async fn started_runs_make_a_suspect(h: &dyn Harness) {
    let w = World::new(h);
    let (by, run) = w.run_started(job()).await;
    let started = w.now().wall;
    assert_eq!(w.take_over().await.1.taken_back, [(run.job, JobState::Ready)]);
    let back = w.look(run.job).await;
    assert_eq!((back.runs, back.failures, back.takeovers, back.suspect), (1, 0, 1, true));
    assert_eq!((back.ended_fence, back.claim), (None, None));
    let trace = w.runs(run.job).await.remove(0);
    assert_eq!((trace.number, trace.fence, trace.instance), (1, run.fence, by));
    assert_eq!((trace.started_at, trace.ended_at), (Some(started), w.now().wall));
    assert_eq!(trace.outcome, RunOutcome::Lost);
    assert_eq!(w.totals().await, Counters { takeovers: 1, ..Counters::default() });
}

/// A suspect is claimed alone, with its start recorded first, and only by those who ask for one.
pub async fn a_suspect_is_claimed_alone(h: &dyn Harness) {
    let w = World::new(h);
    let (_, run) = w.run_started(job()).await;
    let (by, _) = w.take_over().await;
    let others = [NewJob { priority: -9, ..job() }, job()];
    w.put(&others).await;
    let ordinary = w.take(by).await;
    assert_eq!(ordinary.len(), 2, "the suspect is not among them");
    let runs = ordinary.iter().map(run_of).collect();
    w.release(by, crate::model::Release::Runs(runs)).await.expect("released");
    let alone = w.take_suspect(by).await;
    assert_eq!(alone.iter().map(|job| job.id).collect::<Vec<_>>(), [run.job]);
    assert_eq!(alone[0].claim.expect("claimed").started_at, Some(w.now().wall), "its start is recorded first");
    assert_eq!(w.take_suspect(by).await.len(), 2, "no suspect is left, so the others come");
    w.end(run_of(&alone[0]), again(RunOutcome::Failed, 0)).await;
    assert!(!w.look(run.job).await.suspect, "it ended by itself: no suspect any more");
}

/// Bounded takeovers: the last one that is allowed parks the job with a reason, and its neighbours go on.
pub async fn takeovers_without_end_park_the_job(h: &dyn Harness) {
    let w = World::new(h);
    let (_, run) = w.run_started(job()).await;
    for n in 1..=TAKEOVERS_MAX {
        let wanted = if n == TAKEOVERS_MAX { JobState::Parked } else { JobState::Ready };
        let (by, reaped) = w.take_over().await;
        assert_eq!(reaped.taken_back, [(run.job, wanted)]);
        assert_eq!(w.take_suspect(by).await.len(), usize::from(n < TAKEOVERS_MAX));
    }
    let parked = w.look(run.job).await;
    assert_eq!((parked.takeovers, parked.suspect), (TAKEOVERS_MAX, false));
    assert!(parked.reason.is_some_and(|why| why.contains(&TAKEOVERS_MAX.to_string())));
}

/// A policy of one attempt allows no takeover of a run that had started, and any of one that had not.
pub async fn a_policy_of_one_attempt_allows_no_takeover(h: &dyn Harness) {
    let w = World::new(h);
    let once = NewJob { retry: RetryPolicy::NEVER, ..job() };
    let (_, run) = w.run(once).await;
    let (by, _) = w.take_over().await;
    let next = run_of(&w.take(by).await[0]);
    w.start(vec![next]).await.expect("started");
    assert_eq!(w.take_over().await.1.taken_back, [(run.job, JobState::Parked)]);
}

/// At most once: a started run of a dead owner is in doubt, is never claimed again, and waits for a decision.
pub async fn a_lost_run_is_in_doubt_at_most_once(h: &dyn Harness) {
    let w = World::new(h);
    let (_, started) = w.run_started(at_most_once()).await;
    let (_, unstarted) = w.run(at_most_once()).await;
    let (by, reaped) = w.take_over().await;
    let back: BTreeSet<_> = reaped.taken_back.into_iter().collect();
    assert_eq!(back, [(started.job, JobState::InDoubt), (unstarted.job, JobState::Ready)].into());
    let again = w.take(by).await;
    assert_eq!(again.iter().map(|job| job.id).collect::<Vec<_>>(), [unstarted.job]);
    assert_eq!(w.take_suspect(by).await, []);
    let doubt = w.look(started.job).await;
    assert_eq!((doubt.suspect, doubt.purge_at, doubt.reason.is_some()), (false, None, true));
    assert!(!w.end(started, done()).await.counted(), "its late report settles nothing");
    refusal(w.retry(started.job).await);
}

/// The time limit of a run binds a live instance as well; a run that is over counts as a failed attempt.
pub async fn a_live_instance_loses_a_run_past_its_deadline(h: &dyn Harness) {
    let w = World::new(h);
    let retry = RetryPolicy { max_attempts: 2, base_ms: 4_000, cap_ms: 4_000, jitter_percent: 0 };
    let (by, run) = w.run_started(NewJob { run_timeout_ms: 4_500, retry, ..job() }).await;
    w.pass(4_499);
    assert_eq!(w.reap(by, 10).await.expect("live").taken_back, []);
    w.pass(1);
    assert_eq!(w.reap(by, 10).await.expect("live").taken_back, [(run.job, JobState::Scheduled)]);
    let back = w.look(run.job).await;
    assert_eq!((back.runs, back.failures, back.takeovers), (1, 1, 0));
    assert_eq!(back.due_at, w.now().wall.plus_ms(4_000));
    assert_eq!(w.runs(run.job).await[0].outcome, RunOutcome::TimedOut);
    assert!(!w.end(run, done()).await.counted());
    w.heartbeat(by, Vec::new()).await.expect("renewed");
    w.pass(4_000);
    let next = run_of(&w.take(by).await[0]);
    w.start(vec![next]).await.expect("started");
    w.pass(4_500);
    assert_eq!(w.reap(by, 10).await.expect("live").taken_back, [(run.job, JobState::Parked)]);
    assert_eq!(w.totals().await.deadlines, 2);
}

/// At most once: past its deadline nobody knows.
pub async fn a_deadline_is_a_doubt_at_most_once(h: &dyn Harness) {
    let w = World::new(h);
    let (by, run) = w.run_started(NewJob { run_timeout_ms: 5_000, ..at_most_once() }).await;
    w.pass(5_000);
    assert_eq!(w.reap(by, 10).await.expect("live").taken_back, [(run.job, JobState::InDoubt)]);
}

/// A run that hangs unseen, with a time limit shorter than a heartbeat, does not go round for ever: it becomes a
/// suspect, whose start is recorded, and then its failures count.
pub async fn a_run_that_hangs_unseen_is_found_out(h: &dyn Harness) {
    let w = World::new(h);
    let retry = RetryPolicy { max_attempts: 1, ..RetryPolicy::default() };
    let new = NewJob { run_timeout_ms: 100, retry, ..job() };
    w.put(std::slice::from_ref(&new)).await;
    let by = w.reaper_after(BEAT_MS).await;
    let mut states = Vec::new();
    for _ in 0..=UNSTARTED_TAKEOVERS_MAX {
        assert_eq!(w.take_suspect(by).await.len(), 1);
        w.pass(100);
        states.push(w.reap(by, 10).await.expect("live").taken_back[0].1);
    }
    assert_eq!(states, [JobState::Ready, JobState::Ready, JobState::Parked]);
    let end = w.look(new.id).await;
    assert_eq!((end.failures, end.unstarted_takeovers), (1, UNSTARTED_TAKEOVERS_MAX));
    assert_eq!(w.totals().await, Counters { deadlines: 3, ..Counters::default() });
}

/// An instance that goes gives all its runs back at once.
pub async fn who_leaves_gives_its_runs_back(h: &dyn Harness) {
    let w = World::new(h);
    let (by, started) = w.run_started(job()).await;
    w.put(&[job()]).await;
    let unstarted = run_of(&w.take(by).await[0]);
    let back: BTreeSet<_> = w.leave(by).await.expect("left").taken_back.into_iter().collect();
    assert_eq!(back, [(started.job, JobState::Ready), (unstarted.job, JobState::Ready)].into());
    assert_eq!(w.leave(by).await.expect("left").taken_back, [], "again is a no-op");
    let next = w.live().await;
    assert_eq!(w.take(next).await.len(), 1);
    assert_eq!(w.take_suspect(next).await.len(), 1);
}

/// The reaper bites as much as it may and says when there is more; every job comes back once.
pub async fn bites_of_the_reaper_reach_everything(h: &dyn Harness) {
    let w = World::new(h);
    let jobs: Vec<NewJob> = (0..25).map(|_| job()).collect();
    w.put(&jobs).await;
    let by = w.live().await;
    w.take(by).await;
    let reaper = w.reaper_after(LEASE_MS).await;
    let mut back = Vec::new();
    loop {
        let bite = w.reap(reaper, 10).await.expect("live");
        assert!(bite.taken_back.len() <= 10);
        back.extend(bite.taken_back.iter().map(|(job, _)| *job));
        if !bite.more {
            break;
        }
    }
    assert_eq!(back.len(), 25);
    assert_eq!(back.into_iter().collect::<BTreeSet<_>>(), jobs.iter().map(|job| job.id).collect());
}

/// Leases count on the lease clock alone: nobody dies because an administrator set the wall clock.
pub async fn a_set_wall_clock_kills_nobody(h: &dyn Harness) {
    let w = World::new(h);
    let (by, run) = w.run_started(job()).await;
    let reaper = w.reaper_after(BEAT_MS).await;
    let wall = w.now().wall;
    for wall in [wall.plus_ms(1_000 * RUN_MS), crate::clock::Micros(0)] {
        h.clock().set_wall(wall);
        assert_eq!(w.reap(reaper, 10).await.expect("live"), Reaped::default());
    }
    assert!(matches!(w.heartbeat(by, Vec::new()).await.expect("answered"), Heartbeat::Alive { .. }));
    assert_eq!(w.end(run, done()).await, counted(JobState::Done));
}

/// DESIGN §5: one payload that ends its process at once, among 500: it alone is parked, and every neighbour takes
/// effect.
pub async fn one_crashing_payload_parks_alone(h: &dyn Harness) {
    let w = World::new(h);
    let jobs: Vec<NewJob> = (0..500).map(|_| job()).collect();
    let crasher = jobs[250].id;
    w.put(&jobs).await;
    let mut by = w.live().await;
    let all = |by| ClaimRequest { queues: vec![(name("q"), 1_000)], suspect: true, ..wish(by) };
    for _ in 0..1_200 {
        let claimed = w.claim(all(by)).await.expect("live").jobs;
        if claimed.is_empty() {
            break;
        }
        if claimed.iter().any(|job| job.id == crasher) {
            // The process is gone, with all that it had claimed and not written down.
            by = w.take_over().await.0;
        } else {
            let finishes = claimed.iter().map(|job| Finish { run: run_of(job), end: done() }).collect();
            assert!(w.finish(finishes).await.expect("answered").iter().all(Settled::counted));
        }
    }
    let ids = async |state| -> BTreeSet<JobId> {
        let filter = JobFilter { state: Some(state), limit: 1_000, ..JobFilter::default() };
        w.list(filter).await.expect("read").iter().map(|job| job.id).collect()
    };
    assert_eq!(ids(JobState::Parked).await, [crasher].into());
    assert_eq!(ids(JobState::Done).await.len(), 499);
}
