//! Random commands prove nothing about what they never reach: every kind of answer must turn up, more than once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hapax::conformance::random;
use hapax::model::observe::{Answer, Command};
use hapax::model::{EnqueueAnswer, Heartbeat, LockAnswer, OnceAnswer, Refusal, Release, Settled, Verdict};
use hapax::store::Store;
use hapax::store::wired::{Wire, call};

use super::wrong_stores::Wrong;

/// How often each kind of answer came.
static SEEN: Mutex<BTreeMap<String, u32>> = Mutex::new(BTreeMap::new());

/// Changes nothing, and counts the kinds of answers.
#[derive(Debug)]
struct Counting;

#[async_trait]
impl Wire for Counting {
    async fn carry(&self, store: &dyn Store, command: Command) -> hapax::Result<Answer> {
        let answer = call(store, command.clone()).await;
        let kinds = match &answer {
            Ok(answer) => kinds_of(&command, answer),
            Err(error) => vec![format!("refused: {}", refusal(error.refusal().expect("nothing else goes wrong")))],
        };
        let mut seen = SEEN.lock().expect("unpoisoned");
        for kind in kinds {
            *seen.entry(kind).or_default() += 1;
        }
        answer
    }
}

fn refusal(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Illegal { step, .. } => format!("illegal {step:?}"),
        other => format!("{other:?}").split([' ', '{']).next().unwrap_or_default().to_owned(),
    }
}

/// What an answer says, without its details.
fn kinds_of(command: &Command, answer: &Answer) -> Vec<String> {
    match (command, answer) {
        (_, Answer::Enqueued(answers)) => answers.iter().map(enqueued).collect(),
        (Command::Claim(request), Answer::Claimed(claimed)) => claimed
            .jobs
            .iter()
            .map(|job| {
                let started = job.claim.is_some_and(|claim| claim.started_at.is_some());
                let suspect = if job.suspect { " suspect" } else { "" };
                assert!(!job.suspect || started && request.suspect, "a suspect is started");
                format!("claimed{suspect}")
            })
            .collect(),
        (command, Answer::Settled(settled)) => settled.iter().map(|one| settled_as(command, *one)).collect(),
        (Command::Release(_, what), Answer::Released(ids)) => {
            let what = if matches!(what, Release::Claim(_)) { "claim" } else { "runs" };
            vec![format!("released {what}: {}", ids.len().min(1))]
        }
        (_, Answer::Verdicts(verdicts)) => verdicts.iter().map(|one| verdict(*one)).collect(),
        (_, Answer::Heartbeat(Heartbeat::Alive { owned })) => vec![format!("alive: {}", owned.len().min(1))],
        (_, Answer::Heartbeat(Heartbeat::Dead)) => vec!["dead".to_owned()],
        (command, Answer::Reaped(reaped)) => {
            let verb = if matches!(command, Command::Leave(_)) { "left" } else { "reaped" };
            let back = reaped.taken_back.iter().map(|(_, state)| format!("{verb}: {state}"));
            back.chain(reaped.dead.iter().map(|_| "died".to_owned())).collect()
        }
        (_, Answer::Pruned(pruned)) => {
            let kinds = [
                ("jobs", pruned.jobs),
                ("keys", pruned.keys),
                ("instances", pruned.instances),
                ("refusals", pruned.refusals),
                ("locks", pruned.locks),
            ];
            kinds.iter().filter(|(_, n)| *n > 0).map(|(kind, _)| format!("pruned {kind}")).collect()
        }
        (_, Answer::Lock(LockAnswer::Granted(lock))) => vec![format!("lock granted, slot {}", lock.slot)],
        (_, Answer::Lock(LockAnswer::Busy { .. })) => vec!["lock busy".to_owned()],
        (_, Answer::Once(once)) => vec![claimed_once(once)],
        (Command::Cancel(..), Answer::State(state)) => vec![format!("cancel: {state}")],
        (Command::Retry(_) | Command::Resolve(..), Answer::State(state)) => vec![format!("decided: {state}")],
        (Command::ForgetOnce(_), Answer::Unit) => vec!["key forgotten".to_owned()],
        (Command::ResolveOnce(..), Answer::Unit) => vec!["key resolved".to_owned()],
        (Command::BreakLock(..), Answer::Holders(holders)) => vec![format!("lock broken: {}", holders.len().min(1))],
        (Command::ListOnce(_), Answer::Keys(keys)) => vec![format!("keys listed: {}", keys.len().min(1))],
        (_, Answer::Now(_)) => vec!["told the time".to_owned()],
        (_, Answer::State(state)) => vec![format!("operator: {state}")],
        _ => Vec::new(),
    }
}

fn enqueued(answer: &EnqueueAnswer) -> String {
    match answer {
        EnqueueAnswer::Existed { done, .. } => format!("existed, done: {done}"),
        other => format!("{other:?}").split(' ').next().unwrap_or_default().to_lowercase(),
    }
}

fn settled_as(command: &Command, settled: Settled) -> String {
    let verb = match command {
        Command::Start(_) => "start",
        Command::Finish(_) => "finish",
        _ => "progress",
    };
    match settled {
        Settled::Counted { state } => format!("{verb}: {state}"),
        Settled::Refused { state, .. } => format!("{verb} refused: {}", state.map_or("gone", |state| state.as_str())),
    }
}

fn verdict(verdict: Verdict) -> String {
    match verdict {
        Verdict::Ended { .. } => "verdict: ended".to_owned(),
        other => format!("verdict: {other:?}"),
    }
}

fn claimed_once(answer: &OnceAnswer) -> String {
    match answer {
        OnceAnswer::Claimed { attempt, .. } => format!("key claimed, attempt {}", attempt.min(&2)),
        other => format!("key {}", format!("{other:?}").split([' ', '(']).next().unwrap_or_default().to_lowercase()),
    }
}

/// Every kind of answer that random commands must bring.
const WANTED: &str = "
    enqueued; existed, done: false; existed, done: true; otherfingerprint; quarantined;
    claimed; claimed suspect; released claim: 1; released runs: 1; released runs: 0;
    start: running; start refused: ready; start refused: running; progress: running;
    finish: done; finish: scheduled; finish: ready; finish: parked; finish: cancelled; finish: in_doubt;
    finish refused: ready; finish refused: running; finish refused: done; finish refused: cancelled;
    finish refused: parked; finish refused: in_doubt; finish refused: scheduled; finish refused: gone;
    verdict: Current; verdict: ended; verdict: NotMine; alive: 0; alive: 1; dead; died;
    left: ready; reaped: ready; reaped: parked; reaped: cancelled; reaped: in_doubt; reaped: scheduled;
    pruned jobs; pruned keys; pruned instances; pruned refusals; pruned locks;
    lock granted, slot 0; lock granted, slot 1; lock granted, slot 2; lock busy;
    key claimed, attempt 1; key claimed, attempt 2; key busy; key done; key otherfingerprint; key quarantined;
    key forgotten; key resolved; lock broken: 0; lock broken: 1; keys listed: 0; keys listed: 1; told the time;
    cancel: running; cancel: cancelled; decided: ready; decided: done; decided: cancelled; operator: parked;
    refused: NotLive; refused: NotFound; refused: NotPaused; refused: KeyTaken; refused: Stale;
    refused: illegal Cancel; refused: illegal Retry; refused: illegal Park; refused: illegal ResolveDone";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_commands_reach_every_corner() {
    random::search(200, 1, &Wrong::new(|| Arc::new(Counting))).await.expect("the memory store is right");
    let seen = SEEN.lock().expect("unpoisoned").clone();
    let rare: Vec<(&str, u32)> = WANTED
        .split(';')
        .map(|kind| (kind.trim(), seen.get(kind.trim()).copied().unwrap_or(0)))
        .filter(|(_, n)| *n < 2)
        .collect();
    println!("{seen:#?}");
    assert!(rare.is_empty(), "too rare to prove anything: {rare:?}");
}
