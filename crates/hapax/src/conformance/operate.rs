//! What people do to jobs and queues: every state, every step, and the table decides.

use super::Harness;
use super::world::{World, again, at_most_once, counted, done, job, keyed, name, refusal, run_of, wish};
use crate::id::JobId;
use crate::model::job::next;
use crate::model::{
    ClaimRequest, Due, End, JobState, KeyState, NewJob, Refusal, Resolution, RetryPolicy, RunOutcome, Step,
};

/// A job that stands in `state`.
async fn job_in(w: &World<'_>, state: JobState) -> JobId {
    let ended = async |end: End| {
        let (_, run) = w.run_started(at_most_once()).await;
        w.end(run, end).await;
        run.job
    };
    let waiting = async |due: Due| {
        let new = NewJob { due, ..job() };
        w.put(std::slice::from_ref(&new)).await;
        new.id
    };
    let id = match state {
        JobState::Scheduled => waiting(Due::InMs(3_600_000)).await,
        JobState::Ready => waiting(Due::Now).await,
        JobState::Running => w.run(job()).await.1.job,
        JobState::Done => ended(done()).await,
        JobState::Parked => ended(End::Park { reason: "given up".to_owned() }).await,
        JobState::Cancelled => ended(End::Cancelled { reason: "pointless".to_owned() }).await,
        JobState::InDoubt => ended(again(RunOutcome::Unknown, 0)).await,
    };
    assert_eq!(w.state(id).await, state);
    id
}

/// What an operator's step on a job in `state` gives by the table; cancel is a wish while it runs, and idempotent.
fn by_table(state: JobState, step: Step) -> Option<JobState> {
    match (state, step) {
        (JobState::Running, Step::Cancel) => Some(JobState::Running),
        (JobState::Cancelled, Step::Cancel) => Some(JobState::Cancelled),
        _ => next(state, step).map(|transition| transition.to),
    }
}

/// Law 5 and the table of states: each operator's step on a job in each state does what the table says, or is refused
/// by a name and changes nothing.
pub async fn every_state_allows_what_the_table_says(h: &dyn Harness) {
    let w = World::new(h);
    let steps = [Step::Cancel, Step::Retry, Step::Park, Step::ResolveDone, Step::ResolveNotDone, Step::ResolveRetry];
    for state in JobState::ALL {
        for step in steps {
            let id = job_in(&w, state).await;
            let before = w.snapshot().await;
            let answer = match step {
                Step::Cancel => w.cancel(id, "test".to_owned()).await,
                Step::Retry => w.retry(id).await,
                Step::Park => w.park(id, "test".to_owned()).await,
                Step::ResolveDone => w.resolve(id, Resolution::Done).await,
                Step::ResolveNotDone => w.resolve(id, Resolution::NotDone).await,
                _ => w.resolve(id, Resolution::Retry).await,
            };
            if let Some(to) = by_table(state, step) {
                assert_eq!(answer.expect("allowed"), to, "{state} {step:?}");
                assert_eq!(w.state(id).await, to, "{state} {step:?}");
            } else {
                assert_eq!(refusal(answer), Refusal::Illegal { job: id, state, step });
                assert_eq!(w.snapshot().await, before, "{state} {step:?}");
            }
        }
    }
    assert_eq!(w.totals().await.writes_refused, 0, "what is not allowed is no stale write");
}

/// A job that nobody knows is not found, by any step.
pub async fn an_unknown_job_is_not_found(h: &dyn Harness) {
    let w = World::new(h);
    let id = JobId::new();
    let missing = Refusal::NotFound { what: format!("job {id}") };
    assert_eq!(refusal(w.cancel(id, "test".to_owned()).await), missing);
    assert_eq!(refusal(w.retry(id).await), missing);
    assert_eq!(refusal(w.park(id, "test".to_owned()).await), missing);
    assert_eq!(refusal(w.resolve(id, Resolution::Done).await), missing);
    assert_eq!(w.job(id).await.expect("read"), None);
}

/// A cancel of a waiting job leaves its reason, and its times.
pub async fn a_cancel_leaves_its_reason(h: &dyn Harness) {
    let w = World::new(h);
    let new = job();
    w.put(std::slice::from_ref(&new)).await;
    w.cancel(new.id, "order \"7\" is gone".to_owned()).await.expect("ready");
    let (end, now) = (w.look(new.id).await, w.now().wall);
    assert_eq!(end.reason.as_deref(), Some("order \"7\" is gone"));
    assert_eq!((end.finished_at, end.purge_at), (Some(now), Some(now.plus_ms(new.keep_ms))));
    w.pass(1);
    w.cancel(new.id, "again".to_owned()).await.expect("cancelled");
    assert_eq!(w.look(new.id).await, end, "cancelling a cancelled job changes nothing");
    let by = w.live().await;
    assert_eq!(w.take(by).await, []);
}

/// A retry gives all attempts back, now; the runs so far stay counted.
pub async fn a_retry_gives_all_attempts_back(h: &dyn Harness) {
    let w = World::new(h);
    let retry = RetryPolicy { max_attempts: 2, ..RetryPolicy::default() };
    let (by, run) = w.run(NewJob { retry, ..job() }).await;
    w.end(run, again(RunOutcome::Failed, 0)).await;
    let second = run_of(&w.take(by).await[0]);
    assert_eq!(w.end(second, again(RunOutcome::Failed, 0)).await, counted(JobState::Parked));
    w.pass(5_000);
    assert_eq!(w.retry(run.job).await.expect("parked"), JobState::Ready);
    let back = w.look(run.job).await;
    assert_eq!((back.failures, back.takeovers, back.unstarted_takeovers, back.runs), (0, 0, 0, 2));
    assert_eq!((back.due_at, back.finished_at, back.purge_at), (w.now().wall, None, None));
    let third = run_of(&w.take(by).await[0]);
    assert_eq!(w.end(third, again(RunOutcome::Failed, 0)).await, counted(JobState::Ready), "one more is left");
    assert_eq!(w.runs(run.job).await.iter().map(|run| run.number).collect::<Vec<_>>(), [1, 2, 3]);
}

/// A retry of a scheduled job brings it forward.
pub async fn a_retry_brings_a_scheduled_job_forward(h: &dyn Harness) {
    let w = World::new(h);
    let new = NewJob { due: Due::InMs(3_600_000), ..keyed("a") };
    w.put(std::slice::from_ref(&new)).await;
    w.pass(10);
    assert_eq!(w.retry(new.id).await.expect("scheduled"), JobState::Ready);
    assert_eq!(w.look(new.id).await.due_at, w.now().wall);
    let by = w.live().await;
    assert_eq!(w.take(by).await.len(), 1);
}

/// A parked job waits for a person, however long, and says why.
pub async fn a_parked_job_waits(h: &dyn Harness) {
    let w = World::new(h);
    let new = job();
    w.put(std::slice::from_ref(&new)).await;
    w.park(new.id, "look at this first".to_owned()).await.expect("ready");
    w.pass(100 * 86_400_000);
    let by = w.live().await;
    assert_eq!(w.take(by).await, []);
    let parked = w.look(new.id).await;
    assert_eq!((parked.reason.as_deref(), parked.purge_at), (Some("look at this first"), None));
}

/// A doubt is settled by a decision: it was done, it was not, or it shall run again with all its attempts.
pub async fn a_decision_settles_a_doubt(h: &dyn Harness) {
    let w = World::new(h);
    for found in [Resolution::Done, Resolution::NotDone, Resolution::Retry] {
        let (_, run) = w.run_started(NewJob { once: keyed("a").once, ..at_most_once() }).await;
        w.end(run, again(RunOutcome::Unknown, 0)).await;
        w.pass(1_000);
        let (state, key) = match found {
            Resolution::Done => (JobState::Done, KeyState::Done),
            Resolution::NotDone => (JobState::Cancelled, KeyState::Free),
            Resolution::Retry => (JobState::Ready, KeyState::Held),
        };
        assert_eq!(w.resolve(run.job, found).await.expect("in doubt"), state);
        let settled = w.look(run.job).await;
        assert_eq!(settled.finished_at, (state != JobState::Ready).then_some(w.now().wall));
        assert_eq!(settled.purge_at.is_some(), state != JobState::Ready);
        assert_eq!(w.key(&super::world::key("a")).await.expect("known").state, key);
        refusal(w.resolve(run.job, found).await);
        // The next round needs the key.
        w.pass(super::world::KEEP_KEY_MS);
    }
}

/// A paused queue gives nothing, others do; its running jobs go on; a pause keeps its beginning.
pub async fn a_paused_queue_gives_nothing(h: &dyn Harness) {
    let w = World::new(h);
    let (by, run) = w.run(job()).await;
    w.put(&[job(), NewJob { queue: name("open"), ..job() }, NewJob { due: Due::InMs(1), ..job() }]).await;
    let since = w.now().wall;
    w.pause(name("q"), "deploy".to_owned()).await.expect("paused");
    w.pass(1_000);
    w.pause(name("q"), "longer deploy".to_owned()).await.expect("paused");
    let queues = vec![(name("q"), 10), (name("open"), 10)];
    let all = ClaimRequest { queues, suspect: true, ..wish(by) };
    assert!(w.peek(all.clone()).await.expect("read").ready, "the other queue has work");
    assert_eq!(w.claim(all).await.expect("claimed").jobs.len(), 1);
    assert!(!w.peek(wish(by)).await.expect("read").ready, "nothing to be had from a paused queue");
    let view = w.queues().await.expect("read").into_iter().find(|view| view.queue == name("q")).expect("shown");
    assert_eq!(view.pause, Some(crate::model::Pause { reason: "longer deploy".to_owned(), since }));
    assert_eq!(w.end(run, done()).await, counted(JobState::Done));
    w.resume(name("q")).await.expect("paused");
    assert_eq!(w.take(by).await.len(), 2);
}

/// Resuming what is not paused is refused by name; a queue may be paused before it has a job.
pub async fn a_queue_is_resumed_once(h: &dyn Harness) {
    let w = World::new(h);
    let not_paused = Refusal::NotPaused { queue: name("new") };
    assert_eq!(refusal(w.resume(name("new")).await), not_paused);
    w.pause(name("new"), "not yet".to_owned()).await.expect("paused");
    assert_eq!(w.queues().await.expect("read").len(), 1, "it is shown");
    w.put(&[NewJob { queue: name("new"), ..job() }]).await;
    w.resume(name("new")).await.expect("paused");
    assert_eq!(refusal(w.resume(name("new")).await), not_paused);
    assert_eq!(w.queues().await.expect("read")[0].pause, None);
}

/// A suspect of a paused queue stays where it is, and does not keep others from coming.
pub async fn a_suspect_of_a_paused_queue_waits(h: &dyn Harness) {
    let w = World::new(h);
    let (_, run) = w.run_started(job()).await;
    let (by, _) = w.take_over().await;
    w.pause(name("q"), "look at it".to_owned()).await.expect("paused");
    w.put(&[NewJob { queue: name("open"), ..job() }]).await;
    let queues = vec![(name("q"), 10), (name("open"), 10)];
    let claimed = w.claim(ClaimRequest { queues, suspect: true, ..wish(by) }).await.expect("claimed").jobs;
    assert_eq!(claimed.len(), 1);
    assert_ne!(claimed[0].id, run.job);
}
