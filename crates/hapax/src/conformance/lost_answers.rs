//! Each verb with its answer lost, before it happened and after: settled as a client must, it ends as if the answer had
//! come.

use super::world::{
    KEEP_KEY_MS, KEEP_MS, LEASE_MS, Snapshot, World, again, at_most_once, bare, done, every_end, instance, job, keyed,
    lock, name, once, run_of, wish,
};
use super::{Harness, run};
use crate::error::{ErrorKind, Outcome};
use crate::id::{Fence, InstanceId, JobId};
use crate::model::observe::{Answer, Command};
use crate::model::{
    ClaimRequest, Counters, Finish, Heartbeat, JobState, NewInstance, NewJob, OnceEnd, Refusal, Release, Resolution,
    RunOutcome, RunRef, Settled, Verdict,
};
use crate::store::unreliable::{Coins, Luck, unreliable};

/// All that is compared. Fences are left out: giving back and claiming again costs one, and only their order counts.
fn without_fences(mut shown: Snapshot, totals: Counters) -> (Snapshot, Counters) {
    for (job, runs) in &mut shown.jobs {
        (job.fence, job.ended_fence) = (None, job.ended_fence.map(|_| Fence::from_i64(0)));
        for run in runs {
            run.fence = Fence::from_i64(0);
        }
    }
    for key in shown.keys.iter_mut().flatten() {
        key.fence = None;
    }
    for holder in &mut shown.holders {
        holder.lock.fence = Fence::from_i64(0);
    }
    (shown, totals)
}

/// Runs `command`, made by `prepare`, on stores whose line loses its answer, before it happened and after, has `settle`
/// do what a client does then, and compares the end with that of a store whose answer came.
async fn lost(
    h: &dyn Harness,
    prepare: impl AsyncFn(&World<'_>) -> Command,
    settle: impl AsyncFn(&World<'_>, Command),
) {
    let mut wanted = None;
    for luck in [Luck::Good, Luck::LostBefore, Luck::LostAfter] {
        let harness = h.anew().await;
        let coins = Coins::script([]);
        let mut w = World::watching(&*harness, &[bare("a")]);
        w.store = unreliable(w.store, &coins);
        let command = prepare(&w).await;
        coins.then([luck]);
        match run(&*w.store, &command).await {
            Ok(answer) => drop(answer.expect("the law allows it")),
            Err(error) => {
                assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unreachable, Outcome::MayHaveHappened));
                settle(&w, command).await;
            }
        }
        let end = without_fences(w.snapshot().await, w.totals().await);
        assert_eq!(&end, wanted.get_or_insert_with(|| end.clone()), "{luck:?}");
    }
}

/// Asks again with the same ids; for verbs whose repetition is a no-op with the same answer.
async fn repeat(w: &World<'_>, command: Command) {
    run(&*w.store, &command).await.expect("the line is good again").expect("a repetition is allowed");
}

/// A job that ids decide about, in every world the same.
async fn claimed(w: &World<'_>, (new, by): (&NewJob, &NewInstance)) -> RunRef {
    w.put(std::slice::from_ref(new)).await;
    w.register(by.clone()).await.expect("registered");
    run_of(&w.claim(ClaimRequest { claim: claim_id(), ..wish(by.id) }).await.expect("claimed").jobs[0])
}

/// The claim id of [`claimed`].
const fn claim_id() -> crate::id::ClaimId {
    crate::id::ClaimId::from_uuid(uuid::Uuid::from_u128(1))
}

/// Law 4: an enqueue is asked again with the same ids, and makes one job.
pub async fn a_lost_enqueue_is_repeated(h: &dyn Harness) {
    let jobs = vec![keyed("a"), job(), NewJob { due: crate::model::Due::InMs(5), ..job() }];
    lost(h, async |_| Command::Enqueue(jobs.clone()), repeat).await;
}

/// Law 1: a claim is asked again with the same claim id, and gives the same jobs.
pub async fn a_lost_claim_is_repeated(h: &dyn Harness) {
    let (jobs, by) = ([job(), job(), job()], instance());
    let request = ClaimRequest { queues: vec![(name("q"), 2)], ..wish(by.id) };
    let prepare = async |w: &World<'_>| {
        w.put(&jobs).await;
        w.register(by.clone()).await.expect("registered");
        Command::Claim(request.clone())
    };
    lost(h, prepare, async |w, command| {
        let answer = run(&*w.store, &command).await.expect("the line is good again").expect("live");
        assert!(matches!(answer, Answer::Claimed(claimed) if claimed.jobs.len() == 2));
    })
    .await;
}

/// DESIGN §5: or the claim id is given back, and nothing was claimed.
pub async fn a_lost_claim_is_given_back(h: &dyn Harness) {
    for luck in [Luck::LostBefore, Luck::LostAfter] {
        let harness = h.anew().await;
        let mut w = World::new(&*harness);
        w.put(&[job(), job()]).await;
        let request = wish(w.live().await);
        let before = without_fences(w.snapshot().await, w.totals().await);
        w.store = unreliable(w.store, &Coins::script([luck]));
        w.claim(request.clone()).await.expect_err("lost");
        w.release(request.instance, Release::Claim(request.claim)).await.expect("given back");
        assert_eq!(without_fences(w.snapshot().await, w.totals().await), before);
    }
}

/// DESIGN §5: a suspect that a lost claim brought is started by the store's record; the heartbeat's list finds it, and
/// its holder, who never began it, gives it back.
pub async fn a_lost_suspect_is_found_by_the_heartbeat(h: &dyn Harness) {
    let mut w = World::new(h);
    let (_, run) = w.run_started(job()).await;
    let (by, _) = w.take_over().await;
    w.store = unreliable(w.store, &Coins::script([Luck::LostAfter]));
    let request = ClaimRequest { suspect: true, ..wish(by) };
    w.claim(request.clone()).await.expect_err("lost");
    assert_eq!(w.release(by, Release::Claim(request.claim)).await.expect("answered"), []);
    let Heartbeat::Alive { owned } = w.heartbeat(by, Vec::new()).await.expect("answered") else { panic!("live") };
    assert_eq!(owned.iter().map(|owned| (owned.run.job, owned.claim)).collect::<Vec<_>>(), [(run.job, request.claim)]);
    w.release(by, Release::Runs(vec![owned[0].run])).await.expect("answered");
    let back = w.look(run.job).await;
    assert_eq!((back.state, back.suspect, back.takeovers, back.runs), (JobState::Ready, true, 1, 1));
}

/// The start is recorded again; the task begins only once that was answered.
pub async fn a_lost_start_is_repeated(h: &dyn Harness) {
    let (new, by) = (at_most_once(), instance());
    lost(h, async |w| Command::Start(vec![claimed(w, (&new, &by)).await]), repeat).await;
}

/// Law 3: a finish is settled by the ledger, never by doing it again unseen; whatever the end, it counts once.
pub async fn a_lost_finish_is_settled_by_the_ledger(h: &dyn Harness) {
    for end in every_end() {
        let (new, by) = (keyed("b"), instance());
        let prepare = async |w: &World<'_>| {
            let run = claimed(w, (&new, &by)).await;
            Command::Finish(vec![Finish { run, end: end.clone() }])
        };
        lost(h, prepare, async |w, command| {
            let Command::Finish(finishes) = &command else { unreachable!("prepared") };
            match w.verdict(vec![finishes[0].run]).await.expect("the line is good again")[0] {
                Verdict::Current => repeat(w, command).await,
                Verdict::Ended { .. } => {}
                Verdict::NotMine => panic!("nobody else took it"),
            }
        })
        .await;
    }
}

/// A release is settled by the heartbeat's list: what is still there is given back again.
pub async fn a_lost_release_is_settled_by_the_heartbeat(h: &dyn Harness) {
    let (new, by) = (job(), instance());
    let prepare = async |w: &World<'_>| {
        let run = claimed(w, (&new, &by)).await;
        Command::Release(by.id, Release::Runs(vec![run]))
    };
    lost(h, prepare, async |w, command| {
        let answer = w.heartbeat(by.id, Vec::new()).await.expect("the line is good again");
        let Heartbeat::Alive { owned } = answer else { panic!("live") };
        if !owned.is_empty() {
            repeat(w, command).await;
        }
    })
    .await;
}

/// Giving a claim back twice is giving it back once.
pub async fn a_lost_release_of_a_claim_is_repeated(h: &dyn Harness) {
    let (new, by) = (job(), instance());
    let prepare = async |w: &World<'_>| {
        claimed(w, (&new, &by)).await;
        Command::Release(by.id, Release::Claim(claim_id()))
    };
    lost(h, prepare, repeat).await;
}

/// Progress is said again.
pub async fn lost_progress_is_repeated(h: &dyn Harness) {
    let (new, by) = (job(), instance());
    lost(h, async |w| Command::Progress(claimed(w, (&new, &by)).await, "50 %".to_owned()), repeat).await;
}

/// Registrations, heartbeats, goodbyes and the duties of the reaper and the pruner are simply done again.
pub async fn lost_duties_are_repeated(h: &dyn Harness) {
    let (new, by, other) = (NewJob { keep_ms: KEEP_MS, ..keyed("a") }, instance(), instance());
    lost(h, async |_| Command::Register(by.clone()), repeat).await;
    lost(h, async |w| Command::Heartbeat(by.id, vec![claimed(w, (&new, &by)).await]), repeat).await;
    let prepare = async |w: &World<'_>| {
        let run = claimed(w, (&new, &by)).await;
        w.start(vec![run]).await.expect("started");
        Command::Leave(by.id)
    };
    lost(h, prepare, repeat).await;
    let prepare = async |w: &World<'_>| {
        claimed(w, (&new, &by)).await;
        w.pass(LEASE_MS);
        w.register(other.clone()).await.expect("registered");
        Command::Reap(other.id, 10)
    };
    lost(h, prepare, repeat).await;
    let prepare = async |w: &World<'_>| {
        let run = claimed(w, (&new, &by)).await;
        w.end(run, done()).await;
        w.pass(KEEP_KEY_MS);
        Command::Prune(10)
    };
    lost(h, prepare, repeat).await;
}

/// Law 1: a lock is asked for again with the same acquisition, and there is one grant; a renewal is said again.
pub async fn a_lost_grant_is_found_again(h: &dyn Harness) {
    let request = lock("x");
    lost(h, async |_| Command::AcquireLock(request.clone()), repeat).await;
    lost(h, async |w| Command::RenewLock(w.hold(&request).await, 5 * LEASE_MS), repeat).await;
}

/// A release of a lock is settled by looking who holds it.
pub async fn a_lost_release_of_a_lock_is_settled_by_looking(h: &dyn Harness) {
    let request = lock("x");
    let prepare = async |w: &World<'_>| Command::ReleaseLock(w.hold(&request).await);
    lost(h, prepare, async |w, command| {
        let Command::ReleaseLock(lock) = &command else { unreachable!("prepared") };
        let holders = w.lock_holders(Some(lock.name.clone())).await.expect("the line is good again");
        if holders.iter().any(|holder| holder.lock == *lock) {
            repeat(w, command).await;
        }
    })
    .await;
}

/// Law 7: a once key is claimed, renewed and ended again with the same acquisition, fence and end.
pub async fn lost_steps_of_a_key_are_repeated(h: &dyn Harness) {
    let request = once("a");
    lost(h, async |_| Command::ClaimOnce(request.clone()), repeat).await;
    let fence = async |w: &World<'_>| w.hold_key(&request).await.0;
    lost(h, async |w| Command::RenewOnce(bare("a"), fence(w).await, 5 * LEASE_MS), repeat).await;
    for end in [OnceEnd::Done { result: Some("1".to_owned()) }, OnceEnd::Failed { error: "no".to_owned() }] {
        lost(h, async |w| Command::FinishOnce(bare("a"), fence(w).await, end.clone(), KEEP_KEY_MS), repeat).await;
    }
}

/// What an operator asked is settled by asking again: what was done before is refused by the state that was wanted.
pub async fn lost_words_of_operators_are_said_again(h: &dyn Harness) {
    let (new, by) = (NewJob { once: keyed("a").once, ..at_most_once() }, instance());
    let said_again =
        async |w: &World<'_>, command: Command| match run(&*w.store, &command).await.expect("the line is good again") {
            Ok(_) | Err(Refusal::Illegal { .. } | Refusal::NotPaused { .. }) => {}
            Err(other) => panic!("{other}"),
        };
    let parked = async |w: &World<'_>| -> JobId {
        w.put(std::slice::from_ref(&new)).await;
        w.park(new.id, "test".to_owned()).await.expect("ready");
        new.id
    };
    let waiting = async |w: &World<'_>| -> JobId {
        w.put(std::slice::from_ref(&new)).await;
        new.id
    };
    lost(h, async |w| Command::Cancel(waiting(w).await, "test".to_owned()), repeat).await;
    lost(h, async |w| Command::Cancel(claimed(w, (&new, &by)).await.job, "test".to_owned()), repeat).await;
    lost(h, async |w| Command::Retry(parked(w).await), said_again).await;
    lost(h, async |w| Command::Park(waiting(w).await, "test".to_owned()), said_again).await;
    for found in [Resolution::Done, Resolution::NotDone, Resolution::Retry] {
        let prepare = async |w: &World<'_>| {
            let run = claimed(w, (&new, &by)).await;
            w.end(run, again(RunOutcome::Unknown, 0)).await;
            Command::Resolve(run.job, found)
        };
        lost(h, prepare, said_again).await;
    }
    lost(h, async |_| Command::Pause(name("q"), "test".to_owned()), repeat).await;
    let paused = async |w: &World<'_>| {
        w.pause(name("q"), "test".to_owned()).await.expect("paused");
        Command::Resume(name("q"))
    };
    lost(h, paused, said_again).await;
}

/// What was certainly not sent says so, and did not happen; law 14 in small.
pub async fn what_was_not_sent_did_not_happen(h: &dyn Harness) {
    let mut w = World::new(h);
    w.store = unreliable(w.store, &Coins::script([Luck::NotSent]));
    let new = job();
    let error = w.enqueue(vec![new.clone()]).await.expect_err("not sent");
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unreachable, Outcome::DidNotHappen));
    assert!(error.is_retryable() && error.refusal().is_none());
    assert_eq!(w.snapshot().await.jobs, []);
    w.put(&[new]).await;
}

/// Laws 3, 4 and 7 over a line that loses every third answer: nothing is lost, nothing ends twice, and no write of an
/// honest client is ever refused.
pub async fn a_bad_line_loses_and_doubles_nothing(h: &dyn Harness) {
    let mut w = World::new(h);
    w.store = unreliable(w.store, &Coins::seeded(7, 33));
    let jobs: Vec<NewJob> = (0..40).map(|n| keyed(&n.to_string())).collect();
    let by = instance();
    until_answered(&w, Command::Register(by.clone())).await;
    for new in &jobs {
        until_answered(&w, Command::Enqueue(vec![new.clone()])).await;
    }
    loop {
        let request = ClaimRequest { queues: vec![(name("q"), 3)], ..wish(by.id) };
        let Answer::Claimed(claimed) = until_answered(&w, Command::Claim(request)).await else { panic!("a claim") };
        if claimed.jobs.is_empty() {
            break;
        }
        for job in &claimed.jobs {
            finish_once_only(&w, by.id, run_of(job)).await;
        }
    }
    w.store = h.store();
    let shown = w.snapshot().await;
    assert_eq!(shown.jobs.len(), jobs.len());
    assert!(shown.jobs.iter().all(|(job, _)| (job.state, job.runs, job.refused) == (JobState::Done, 1, 0)));
    assert_eq!(w.totals().await, Counters::default());
}

/// Asks until an answer comes; for verbs whose repetition is a no-op.
async fn until_answered(w: &World<'_>, command: Command) -> Answer {
    loop {
        if let Ok(answer) = run(&*w.store, &command).await {
            return answer.expect("the law allows it");
        }
    }
}

/// Ends a run as done; after a lost answer the ledger says whether it has ended.
async fn finish_once_only(w: &World<'_>, by: InstanceId, run: RunRef) {
    loop {
        if let Ok(settled) = w.finish(vec![Finish { run, end: done() }]).await {
            assert_eq!(settled, [Settled::Counted { state: JobState::Done }], "by {by}");
            return;
        }
        let verdict = until_answered(w, Command::Verdict(vec![run])).await;
        if verdict == Answer::Verdicts(vec![Verdict::Ended { state: JobState::Done }]) {
            return;
        }
        assert_eq!(verdict, Answer::Verdicts(vec![Verdict::Current]));
    }
}
