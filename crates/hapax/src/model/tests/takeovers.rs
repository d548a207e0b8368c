//! Who is blamed for a crash, and who is not.

use super::*;
use crate::model::job::TAKEOVERS_MAX;

/// One payload that kills its instance before anything is known of it, among 500: it alone is parked.
#[test]
fn one_crashing_payload_parks_alone() {
    let mut model = Model::new();
    let jobs: Vec<NewJob> = (0..500).map(|_| job()).collect();
    let crasher = jobs[250].id;
    model.enqueue(at_ms(0), &jobs);
    let mut ms = 0;
    for _ in 0..700 {
        ms += 20_000;
        let by = instance(&mut model, at_ms(ms - 5_000));
        model.reap(at_ms(ms), by, 1_000).expect("live");
        let jobs = claim(&mut model, at_ms(ms), by, true);
        let crash = jobs.iter().position(|job| job.id == crasher);
        // The buffer runs in order; what ran before the crash was not written down yet.
        let finishes: Vec<Finish> = jobs[..if crash.is_some() { 0 } else { jobs.len() }]
            .iter()
            .map(|job| Finish { run: run_of(job), end: End::Done { result: None } })
            .collect();
        assert!(model.finish(at_ms(ms), &finishes).iter().all(Settled::counted));
    }
    model.check();
    let parked = model.list(&JobFilter { state: Some(JobState::Parked), limit: 10, ..JobFilter::default() });
    assert_eq!(parked.iter().map(|job| job.id).collect::<Vec<_>>(), [crasher]);
    assert_eq!(parked[0].takeovers, TAKEOVERS_MAX);
    let done = model.list(&JobFilter { state: Some(JobState::Done), limit: 1_000, ..JobFilter::default() });
    assert_eq!(done.len(), 499, "every neighbour took effect");
}

/// What becomes of a run that takes long, and of a payload that ends its process at once, on one instance after the
/// other, each of which takes up to `suspects` suspects at a time.
fn long_run_beside_a_crasher(suspects: usize) -> (JobState, JobState) {
    let mut model = Model::new();
    let (long, crasher) = (job(), job());
    model.enqueue(at_ms(0), &[long.clone(), crasher.clone()]);
    for ms in (20_000..400_000).step_by(20_000) {
        let by = instance(&mut model, at_ms(ms - 5_000));
        model.reap(at_ms(ms), by, 10).expect("live");
        let mut held = Vec::new();
        for _ in 0..4 {
            let may = held.iter().filter(|job: &&JobRecord| job.suspect).count() < suspects;
            held.extend(claim(&mut model, at_ms(ms), by, may));
        }
        let run = |id: JobId| held.iter().find(|job| job.id == id).map(run_of);
        let long_run: Vec<RunRef> = run(long.id).into_iter().collect();
        // The long run is there at a heartbeat, the crasher never is.
        model.heartbeat(at_ms(ms + 1), by, &long_run);
        if run(crasher.id).is_none() {
            let end = End::Done { result: None };
            let finishes: Vec<Finish> = long_run.into_iter().map(|run| Finish { run, end: end.clone() }).collect();
            model.finish(at_ms(ms + 9_000), &finishes);
        }
        model.check();
    }
    let state = |id: JobId| model.job(id).expect("kept").state;
    (state(long.id), state(crasher.id))
}

/// One suspect at a time keeps a long neighbour from being blamed for the crasher: they share two crashes at most,
/// until both are suspects. Two at a time would go on sharing them.
#[test]
fn a_long_neighbour_is_not_parked_for_the_crasher() {
    assert_eq!(long_run_beside_a_crasher(1), (JobState::Done, JobState::Parked));
    assert_eq!(long_run_beside_a_crasher(2), (JobState::Parked, JobState::Parked), "why hosts take one at a time");
}

/// A payload that hangs, with a time limit shorter than a heartbeat, so that its start is never recorded: it becomes a
/// suspect, whose start is recorded with its claim, and its failures end it.
#[test]
fn runs_that_hang_unseen_do_not_go_round_for_ever() {
    let mut model = Model::new();
    let retry = RetryPolicy { max_attempts: 3, base_ms: 1, cap_ms: 1, jitter_percent: 0 };
    let new = NewJob { run_timeout_ms: 100, retry, ..job() };
    model.enqueue(at_ms(0), std::slice::from_ref(&new));
    let by = instance(&mut model, at_ms(0));
    for ms in (0..10_000).step_by(200).map(at_ms) {
        model.heartbeat(ms, by, &[]);
        model.reap(ms, by, 10).expect("live");
        claim(&mut model, ms, by, true);
        model.check();
    }
    let end = model.job(new.id).expect("kept");
    assert_eq!((end.state, end.failures, end.unstarted_takeovers), (JobState::Parked, 3, 2));
    assert_eq!(model.counters().deadlines, 5);
}

/// "No second attempt" holds for runs that were lost as well.
#[test]
fn a_policy_of_one_attempt_allows_no_takeover() {
    let mut model = Model::new();
    let new = NewJob { retry: RetryPolicy::NEVER, ..job() };
    model.enqueue(at_ms(0), std::slice::from_ref(&new));
    let dead = instance(&mut model, at_ms(0));
    let claimed = claim(&mut model, at_ms(0), dead, false);
    model.start(at_ms(0), &[run_of(&claimed[0])]);
    assert_eq!(model.leave(at_ms(1), dead).taken_back, [(new.id, JobState::Parked)]);
    model.check();
}
