//! Random commands, one after the other: whatever a store answers, the law allows it, and in the end both show the
//! same.

use std::fmt::Write as _;

use super::actors::{Actor, final_questions};
use super::hunt::{cases, hunt, seed};
use super::script::{Op, timed};
use super::show::brief;
use super::witness::Witness;
use super::{Harness, run};
use crate::clock::{Micros, Now};
use crate::error::Error;
use crate::model::observe::{Answer, Command};
use crate::model::{Model, Refusal};

/// Scripts that a test tries unless `HAPAX_CASES` says otherwise.
const CASES_USUAL: u32 = 64;
/// Longest script, in parts of one step or a few that belong together.
const PARTS_MAX: usize = 30;

/// All laws of DESIGN §6 that one store can show: random commands are answered as the model says, on the way and in the
/// end.
pub async fn random_commands_are_answered_by_the_law(h: &dyn Harness) {
    if let Err(wrong) = search(cases(CASES_USUAL), seed(), h).await {
        panic!("{wrong}");
    }
}

/// Looks for commands that the store answers wrongly.
///
/// # Errors
/// The shortest such script, and what is wrong with it.
pub async fn search(cases: u32, seed: u64, h: &dyn Harness) -> Result<(), String> {
    hunt((cases, seed), timed(PARTS_MAX), async |script: Vec<Op>, _| {
        let harness = h.anew().await;
        // In a task of its own, so that a panic in the store or a broken law of the model is shortened as well.
        tokio::spawn(async move { Trial::new(&*harness).play(&script).await })
            .await
            .unwrap_or_else(|panic| Err(format!("the script ends in a panic: {panic}")))
    })
    .await
}

/// One script on one store, with the model beside it.
pub(super) struct Trial<'a> {
    h: &'a dyn Harness,
    pub(super) model: Model,
    pub(super) actor: Actor,
    witness: Witness,
    story: Vec<Told>,
}

/// What a store answered, or why it could not.
type Said = Result<Result<Answer, Refusal>, Error>;

/// One step of a story.
#[derive(Debug)]
enum Told {
    Clock(Op),
    Said(Box<(Command, Said)>),
}

impl<'a> Trial<'a> {
    pub(super) fn new(h: &'a dyn Harness) -> Self {
        Self { h, model: Model::new(), actor: Actor::default(), witness: Witness::default(), story: Vec::new() }
    }

    async fn play(mut self, script: &[Op]) -> Result<(), String> {
        for op in script {
            self.step(op).await?;
        }
        for question in final_questions(&self.actor.jobs.clone()) {
            drop(self.ask(&question).await?);
        }
        self.ask(&Command::Refusals(1_000)).await.map(drop)
    }

    /// One step: a move of the clock, or a command whose answer the model must allow.
    pub(super) async fn step(&mut self, op: &Op) -> Result<(), String> {
        let (clock, now) = (self.h.clock(), self.h.clock().now());
        match op {
            Op::Advance(ms) => clock.advance(std::time::Duration::from_millis(*ms)),
            Op::SetWallBy(ms) => clock.set_wall(Micros(now.wall.0 + ms * 1_000)),
            _ => {}
        }
        let Some(command) = self.actor.command(op, now) else {
            self.story.push(Told::Clock(op.clone()));
            return Ok(());
        };
        let answer = self.ask(&command).await?;
        self.actor.learn(&command, &answer);
        Ok(())
    }

    async fn ask(&mut self, command: &Command) -> Result<Result<Answer, Refusal>, String> {
        let now = self.h.clock().now();
        let answer = run(&*self.h.store(), command).await;
        let answered = answer.as_ref().ok().cloned();
        self.story.push(Told::Said(Box::new((command.clone(), answer))));
        let answer = answered.ok_or_else(|| self.tell("the store failed"))?;
        let alone = picked_in_order(&self.model, now, command, &answer);
        alone.and_then(|()| self.model.observe(now, command, &answer)).map_err(|wrong| self.tell(&wrong))?;
        self.witness.see(now, command, &answer).map_err(|wrong| self.tell(&wrong))?;
        self.still_lawful()?;
        Ok(answer)
    }

    /// The commands so far, with their answers.
    pub(super) fn story(&self) -> String {
        let mut text = String::new();
        for told in &self.story {
            let _ = match told {
                Told::Clock(op) => writeln!(text, "{op:?}"),
                Told::Said(said) => writeln!(text, "{}\n    -> {}", brief(&said.0), brief(&said.1)),
            };
        }
        text
    }

    fn still_lawful(&self) -> Result<(), String> {
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.model.check()));
        checked.map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            self.tell(&text.unwrap_or_else(|| "the model contradicts itself".to_owned()))
        })
    }

    fn tell(&self, wrong: &str) -> String {
        format!("after these commands\n{}the law does not allow it:\n{wrong}", self.story())
    }
}

/// With nobody else about, a claim takes exactly the first jobs in order; the oracle alone would allow others.
fn picked_in_order(model: &Model, now: Now, command: &Command, answer: &Result<Answer, Refusal>) -> Result<(), String> {
    let (Command::Claim(request), Ok(Answer::Claimed(seen))) = (command, answer) else { return Ok(()) };
    let Ok(lawful) = model.clone().claim(now, request) else { return Ok(()) };
    let ids = |jobs: &[crate::model::JobRecord]| jobs.iter().map(|job| job.id).collect::<Vec<_>>();
    let (mut lawful, mut seen) = (ids(&lawful.jobs), ids(&seen.jobs));
    let known = |id| model.job(id).and_then(|job| job.claim).is_some_and(|claim| claim.claim == request.claim);
    if lawful.iter().any(|id| known(*id)) {
        // A repeated claim gives what is left of it, in any order.
        lawful.sort();
        seen.sort();
    }
    if lawful == seen { Ok(()) } else { Err(format!("claimed {seen:?}\n  the first ones are {lawful:?}")) }
}
