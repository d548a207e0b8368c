//! The oracle must be able to say no: answers that no law allows, each refused with a reason.

use super::*;
use crate::model::observe::{Answer, Command};

/// A store with two ready jobs and a live instance, and the request of a claim on it.
fn scene() -> (Model, ClaimRequest) {
    let mut model = Model::new();
    model.enqueue(at_ms(0), &[job(), job()]);
    let instance = instance(&mut model, at_ms(0));
    let (queues, kinds) = (vec![(name("q"), 1)], vec![name("k")]);
    (model, ClaimRequest { instance, claim: ClaimId::new(), queues, kinds, suspect: false })
}

/// Changes an answer.
type Lie = fn(&Model, &mut ClaimAnswer);

/// What the oracle says to an answer of a claim that was changed by `lie`.
fn judge(lie: impl FnOnce(&Model, &mut ClaimAnswer)) -> Result<(), String> {
    let (model, request) = scene();
    let mut answer = model.clone().claim(at_ms(0), &request).expect("live");
    lie(&model, &mut answer);
    model.clone().observe(at_ms(0), &Command::Claim(request), &Ok(Answer::Claimed(answer)))
}

#[test]
fn claims_that_no_law_allows_are_refused() {
    assert_eq!(judge(|_, _| ()), Ok(()), "the truth is allowed");
    let later = Some(Fence::from_i64(77));
    assert_eq!(judge(|_, answer| answer.jobs[0].fence = later), Ok(()), "fences may skip numbers");
    let lies: [(&str, Lie); 7] = [
        ("nothing, though work is there", |_, answer| answer.jobs.clear()),
        ("one job twice", |_, answer| answer.jobs.push(answer.jobs[0].clone())),
        ("more than asked for", |model, answer| {
            let other = model.jobs.values().find(|job| job.id != answer.jobs[0].id).expect("two jobs");
            let claim = answer.jobs[0].claim;
            answer.jobs.push(JobRecord {
                state: JobState::Running,
                fence: answer.jobs[0].fence,
                claim,
                ..other.clone()
            });
        }),
        ("a fence that does not grow", |_, answer| answer.jobs[0].fence = Some(Fence::from_i64(0))),
        ("no fence", |_, answer| answer.jobs[0].fence = None),
        ("a job that nobody knows", |_, answer| answer.jobs[0].id = JobId::new()),
        ("another payload", |_, answer| answer.jobs[0].payload = Payload::from_store("[]".to_owned())),
    ];
    for (what, lie) in lies {
        assert!(judge(lie).is_err(), "{what} was allowed");
    }
}

#[test]
fn grants_that_no_law_allows_are_refused() {
    let request =
        |acquisition| LockRequest { name: name("l"), permits: 1, lease_ms: 1_000, acquisition, holder: name("me") };
    let mut model = Model::new();
    let (mine, other) = (AcquisitionId::new(), AcquisitionId::new());
    let LockAnswer::Granted(lock) = model.acquire_lock(at_ms(0), &request(mine)) else { panic!("free") };
    let judge = |acquisition, fence| {
        let answer = Ok(Answer::Lock(LockAnswer::Granted(LockRef { fence, ..lock.clone() })));
        model.clone().observe(at_ms(0), &Command::AcquireLock(request(acquisition)), &answer)
    };
    assert_eq!(judge(mine, lock.fence), Ok(()), "asking again finds the grant");
    assert!(judge(other, lock.fence).is_err(), "the same grant for two");
    assert!(judge(other, Fence::from_i64(9)).is_err(), "a second grant");
    assert!(judge(mine, Fence::from_i64(9)).is_err(), "another grant for the same wish");
}

#[test]
fn a_peek_may_look_for_nothing_but_not_let_work_lie() {
    let (model, request) = scene();
    let judge = |ready, next_due_in_ms| {
        let answer = Ok(Answer::Peeked(PeekAnswer { ready, next_due_in_ms }));
        model.clone().observe(at_ms(0), &Command::Peek(request.clone()), &answer).is_ok()
    };
    assert!(judge(true, None) && judge(true, Some(1)));
    assert!(!judge(false, None));
}
