//! Random commands, several callers at once: there must be one order of all commands, in which every answer is lawful
//! and nobody is answered before they asked.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::collection::vec;

use super::actors::{Actor, final_questions};
use super::hunt::{cases, hunt, seed};
use super::order::{Event, find_order};
use super::random::Trial;
use super::script::{Op, timed, timeless};
use super::show::brief;
use super::{Harness, run};
use crate::model::observe::Command;
use crate::store::Store;

/// Histories that a test tries unless `HAPAX_CASES` says otherwise.
const CASES_USUAL: u32 = 60;
/// Callers at once.
const CALLERS: usize = 3;
/// Longest script of one caller.
const STEPS_MAX: usize = 6;
/// Longest script of what came before.
const PARTS_MAX: usize = 12;
/// How often a shorter script is tried before it counts as right: what went wrong once may go right by luck.
const TRIES: u32 = 16;

/// What happens before the callers begin, and what each of them does.
type Script = (Vec<Op>, Vec<Vec<Op>>);

/// Law 1 and all that build on it: whatever several callers do at once, it is as if they had come one after the other.
pub async fn concurrent_commands_have_an_order(h: &dyn Harness) {
    if let Err(wrong) = search(cases(CASES_USUAL), seed(), h).await {
        panic!("{wrong}");
    }
}

/// Looks for a history without a lawful order.
///
/// # Errors
/// The shortest such script, and the history.
pub async fn search(cases: u32, seed: u64, h: &dyn Harness) -> Result<(), String> {
    let scripts = (timed(PARTS_MAX), vec(timeless(STEPS_MAX), CALLERS));
    hunt((cases, seed), scripts, async |script: Script, shortening| {
        for _ in 0..if shortening { TRIES } else { 1 } {
            let harness = h.anew().await;
            let script = script.clone();
            tokio::spawn(async move { play(&*harness, &script).await })
                .await
                .unwrap_or_else(|panic| Err(format!("the script ends in a panic: {panic}")))?;
        }
        Ok(())
    })
    .await
}

/// Plays one script: the beginning alone, then the callers at once on a clock that stands still, then the questions.
async fn play(h: &dyn Harness, (beginning, scripts): &Script) -> Result<(), String> {
    let mut trial = Trial::new(h);
    for op in beginning {
        trial.step(op).await?;
    }
    let order = Arc::new(AtomicU64::new(0));
    let mut callers = Vec::new();
    for (salt, script) in (1..).zip(scripts) {
        let caller = Caller { actor: trial.actor.apart(salt), order: Arc::clone(&order), now: h.clock().now() };
        callers.push(tokio::spawn(caller.speak(h.second().await, script.clone())));
    }
    let mut events = Vec::new();
    let mut jobs = Vec::new();
    for caller in callers {
        let (actor, heard) = caller.await.map_err(|panic| format!("a caller panicked: {panic}"))??;
        jobs.extend(actor.jobs);
        events.push(heard);
    }
    jobs.sort();
    jobs.dedup();
    let asker = Caller { actor: Actor::default(), order, now: h.clock().now() };
    events.push(asker.ask_all(&*h.store(), final_questions(&jobs)).await?);
    find_order(&trial.model, h.clock().now(), &events).map(drop).map_err(|wrong| tell(&trial, &events, &wrong))
}

struct Caller {
    actor: Actor,
    order: Arc<AtomicU64>,
    now: crate::clock::Now,
}

impl Caller {
    /// Does its script, and remembers when it asked what and when it was answered what.
    async fn speak(mut self, store: Arc<dyn Store>, script: Vec<Op>) -> Result<(Actor, Vec<Event>), String> {
        let mut events = Vec::new();
        for op in script {
            let Some(command) = self.actor.command(&op, self.now) else { continue };
            let event = self.ask(&*store, command).await?;
            self.actor.learn(&event.command, &event.answer);
            events.push(event);
            // Lets the others in between, on however few threads.
            tokio::task::yield_now().await;
        }
        Ok((self.actor, events))
    }

    async fn ask_all(&self, store: &dyn Store, questions: Vec<Command>) -> Result<Vec<Event>, String> {
        let mut events = Vec::new();
        for question in questions {
            events.push(self.ask(store, question).await?);
        }
        Ok(events)
    }

    async fn ask(&self, store: &dyn Store, command: Command) -> Result<Event, String> {
        let asked = self.order.fetch_add(1, Ordering::SeqCst);
        let answer = run(store, &command).await.map_err(|error| format!("{}: {error}", brief(&command)))?;
        let answered = self.order.fetch_add(1, Ordering::SeqCst);
        Ok(Event { command, answer, asked, answered })
    }
}

fn tell(trial: &Trial<'_>, events: &[Vec<Event>], wrong: &str) -> String {
    let mut text = format!("after these commands\n{}these callers spoke at once:\n", trial.story());
    for (n, events) in (1..).zip(&events[..events.len() - 1]) {
        for event in events {
            let (asked, answered) = (event.asked, event.answered);
            let (command, answer) = (brief(&event.command), brief(&event.answer));
            let _ = writeln!(text, "caller {n}, from {asked} to {answered}: {command}\n    -> {answer}");
        }
    }
    text + wrong
}
