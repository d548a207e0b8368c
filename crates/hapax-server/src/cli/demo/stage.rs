//! Plays the plan: sends, waits for the moment, kills, freezes, wakes, and sends again. Waiting is always for an event.

use std::time::{Duration, Instant};

use hapax::model::{Counters, InstanceView, JobFilter, PAGE_MAX};
use hapax::{Hapax, JobState};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::fleet::{Fleet, Frozen};
use super::judge::{Counts, Ground, Ledger};
use super::plan::{INSTANCES, Plan};
use super::producer::{self, Sent};
use super::report::Facts;
use super::{broken, limit};
use crate::exit::{Exit, Failure};
use crate::progress::Bar;
use crate::time::seconds;

/// How often the stage is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often a line is said where there is no bar.
const LINE_EVERY: Duration = Duration::from_secs(2);
/// How far the producers may be ahead of the effects.
const AHEAD: u64 = 400;
/// Sent at every look while nobody has begun a job to freeze with.
const TRICKLE: u64 = 5;
/// How often a fault is tried again that hit nothing: an instance that held no job, or stood inside a transaction.
const TRIES: u32 = 8;
/// How long nobody has to have written before the frozen instance is taken to hold a file's only write lock. Others
/// starve each other for a while on a busy disk; not for as long as this.
const LOCK_PATIENCE: Duration = Duration::from_millis(1_500);
/// How long the instances may take to end when they are asked.
const DRAIN: Duration = Duration::from_secs(15);

/// What was seen at one look.
#[derive(Clone, Debug, Default)]
struct Seen {
    effects: u64,
    counters: Counters,
    instances: Vec<InstanceView>,
}

impl Seen {
    /// Jobs that the store counts as those of the instances with this name.
    fn held_by(&self, name: &str) -> u64 {
        self.named(name).map(|instance| instance.running).sum()
    }

    /// Whether nobody of this name is live, and nothing is left with them.
    fn is_over(&self, name: &str) -> bool {
        self.named(name).all(|instance| !instance.live && instance.running == 0)
    }

    fn named(&self, name: &str) -> impl Iterator<Item = &InstanceView> {
        self.instances.iter().filter(move |instance| instance.name.as_str() == name)
    }

    fn takeovers(&self) -> u64 {
        self.counters.takeovers + self.counters.unstarted_takeovers
    }
}

/// The stage with all that is on it.
#[derive(Debug)]
pub(super) struct Stage {
    plan: Plan,
    hapax: Hapax,
    ledger: Box<dyn Ledger>,
    fleet: Fleet,
    /// So many keys may have been sent by now.
    allowed: watch::Sender<u64>,
    /// The most that may be allowed in this part of the plan.
    hold: u64,
    producers: JoinSet<Result<Sent, Failure>>,
    facts: Facts,
    seen: Seen,
    bar: Bar,
    begun: Instant,
    last_line: Instant,
}

impl Stage {
    /// Makes the store, and the tables in it.
    pub(super) async fn open(plan: Plan, ground: &Ground, fleet: Fleet, bar: Bar) -> Result<Self, Failure> {
        let (hapax, mut ledger) = ground.make().await?;
        if let Err(failure) = ledger.expect(plan.jobs).await {
            ledger.clear().await?;
            return Err(failure);
        }
        let now = Instant::now();
        Ok(Self {
            facts: Facts::of(&plan),
            hold: plan.sent_before_freeze,
            fleet,
            allowed: watch::Sender::new(0),
            producers: JoinSet::new(),
            seen: Seen::default(),
            begun: now,
            last_line: now,
            plan,
            hapax,
            ledger,
            bar,
        })
    }

    /// The whole plan.
    pub(super) async fn play(&mut self) -> Result<(), Failure> {
        self.say(&format!("{INSTANCES} instances, {} keys, seed {}", self.plan.jobs, self.plan.seed));
        (0..INSTANCES).try_for_each(|index| self.fleet.start(index))?;
        // A connection of its own, so that the two producers really race.
        let second = Hapax::with_store(self.hapax.store().another().await?);
        let jobs = self.plan.jobs;
        self.producers.spawn(producer::first(self.hapax.clone(), jobs, self.allowed.subscribe()));
        self.producers.spawn(producer::second(second, jobs, self.allowed.subscribe()));
        self.kill().await?;
        self.freeze().await?;
        self.hold = jobs;
        self.until("every key has taken effect", |seen| seen.effects >= jobs).await?;
        while let Some(sent) = self.producers.join_next().await {
            self.facts.sent.add(sent.map_err(|error| broken("a producer", &error))??);
        }
        self.say("everything is done; some keys are sent once more");
        self.facts.sent.add(producer::late(&self.hapax, jobs).await?);
        self.fleet.drain(DRAIN).await?;
        self.look().await
    }

    /// What happened so far.
    pub(super) fn facts(&self) -> Facts {
        let Counters { duplicates_refused, takeovers, unstarted_takeovers, .. } = self.seen.counters;
        Facts {
            duplicates_refused,
            takeovers_started: takeovers,
            takeovers_unstarted: unstarted_takeovers,
            ..self.facts.clone()
        }
    }

    /// What the table says.
    pub(super) async fn judge(&mut self) -> Result<Counts, Failure> {
        self.ledger.judge().await
    }

    /// Takes away what was made for it.
    pub(super) async fn clear(&mut self) -> Result<(), Failure> {
        self.ledger.clear().await
    }

    /// Says a line without tearing the bar.
    pub(super) fn say(&self, line: &str) {
        self.bar.say(&format!("{:>7}  {line}", seconds(self.begun.elapsed())));
    }

    /// Ends every process, and takes the bar away.
    pub(super) fn end_at_once(&mut self) {
        self.producers.abort_all();
        self.fleet.end_at_once();
        self.bar.clear();
    }

    /// Kills an instance while it holds jobs, waits until others have them, and starts it again.
    async fn kill(&mut self) -> Result<(), Failure> {
        let at = self.plan.kill_at;
        self.until("the moment of the kill", |seen| seen.effects >= at).await?;
        for turn in 0..TRIES {
            let index = (self.plan.kill + turn as usize) % INSTANCES;
            let name = self.fleet.name(index).to_owned();
            self.until("the instance to be killed holds jobs", |seen| seen.held_by(&name) > 0).await?;
            self.fleet.kill(index)?;
            self.look().await?;
            let held = self.seen.held_by(&name);
            self.say(&format!("kill -9 of instance {}, which held {held} jobs", index + 1));
            self.fleet.start(index)?;
            if held == 0 {
                continue;
            }
            self.facts.kills += 1;
            let before = self.seen.takeovers();
            self.until("the dead instance's jobs are taken over", |seen| {
                seen.is_over(&name) && seen.takeovers() > before
            })
            .await?;
            self.say(&format!("its jobs were taken over; instance {} is there again", index + 1));
            return Ok(());
        }
        Err(Failure::new(Exit::No, format!("{TRIES} instances were killed, and none of them held a job")))
    }

    /// Freezes an instance between its claim and its effect, until another has done the very job; then wakes it, and
    /// waits until its late write was refused.
    async fn freeze(&mut self) -> Result<(), Failure> {
        let at = self.plan.freeze_at;
        self.until("the moment of the freeze", |seen| seen.effects >= at).await?;
        let frozen = self.stop().await?;
        self.facts.freezes += 1;
        let (index, name) = (frozen.index, self.fleet.name(frozen.index).to_owned());
        self.say(&format!("instance {} froze with job {} under fence {}", index + 1, frozen.key, frozen.fence));
        let before = self.seen.takeovers();
        self.until("the frozen instance's jobs are taken over", |seen| {
            seen.is_over(&name) && seen.takeovers() > before
        })
        .await?;
        let (fence, other) = loop {
            if let Some(effect) = self.ledger.effect_of(&frozen.key).await? {
                break effect;
            }
            self.pause("another instance does the frozen one's job").await?;
        };
        self.say(&format!("{other} has done {} under fence {fence}; instance {} wakes up", frozen.key, index + 1));
        self.fleet.wake(index)?;
        while self.refused_finishes(Some(&frozen)).await? == 0 {
            self.pause("the late write is refused").await?;
        }
        self.say(&format!("its late write under fence {} was refused", frozen.fence));
        Ok(())
    }

    /// Lets whoever begins the next job stop itself, outside of any transaction.
    async fn stop(&mut self) -> Result<Frozen, Failure> {
        let notes = self.fleet.notes().clone();
        let failed = |error: std::io::Error| broken("the notes", &error);
        for _ in 0..TRIES {
            std::fs::write(notes.wish(), "").map_err(failed)?;
            while !notes.frozen().exists() {
                self.hold = (self.hold + TRICKLE).min(self.plan.jobs);
                self.pause("an instance freezes").await?;
            }
            let text = std::fs::read_to_string(notes.frozen()).map_err(failed)?;
            let frozen: Frozen = serde_json::from_str(&text).map_err(|error| broken("the notes", &error))?;
            while !self.fleet.is_stopped(frozen.index)? {
                self.pause("the instance stands still").await?;
            }
            if self.others_go_on().await? {
                return Ok(frozen);
            }
            // Its keeper was in the middle of a heartbeat. It holds a file's only write lock, so nobody can go on.
            self.say("it froze inside a transaction and stops all writers, which shows nothing; once more");
            std::fs::remove_file(notes.frozen()).map_err(failed)?;
            self.fleet.wake(frozen.index)?;
        }
        Err(Failure::new(Exit::No, format!("{TRIES} freezes all stopped the instance inside a transaction")))
    }

    /// Whether the stopped instance leaves the store to others: one of them has written since, or this process could.
    async fn others_go_on(&mut self) -> Result<bool, Failure> {
        let (before, asked) = (self.ledger.effects().await?, Instant::now());
        while asked.elapsed() < LOCK_PATIENCE {
            if self.ledger.can_be_written(LOOK_EVERY).await? || self.ledger.effects().await? > before {
                return Ok(true);
            }
            self.pause("somebody writes beside the frozen instance").await?;
        }
        Ok(false)
    }

    /// Finishes that the store refused: of one run, or of all.
    async fn refused_finishes(&mut self, of: Option<&Frozen>) -> Result<u64, Failure> {
        let refusals = self.hapax.refusals(PAGE_MAX).await?;
        let finishes = refusals.iter().filter(|refusal| refusal.verb == "finish");
        let count = |wanted: &dyn Fn(&hapax::model::RefusalRecord) -> bool| {
            finishes.clone().filter(|refusal| wanted(refusal)).count() as u64
        };
        self.facts.late_writers_refused = count(&|_| true);
        Ok(match of {
            None => self.facts.late_writers_refused,
            Some(run) => {
                count(&|refusal| refusal.fence == Some(run.fence) && refusal.identity.contains(&run.job.to_string()))
            }
        })
    }

    /// Waits for what is asked, looking again and again.
    async fn until(&mut self, what: &str, is: impl Fn(&Seen) -> bool) -> Result<(), Failure> {
        loop {
            self.look().await?;
            if is(&self.seen) {
                return Ok(());
            }
            self.pause(what).await?;
        }
    }

    /// Waits a moment, unless the limit has passed or something has gone wrong meanwhile.
    async fn pause(&mut self, what: &str) -> Result<(), Failure> {
        let limit = limit(self.plan.jobs);
        if self.begun.elapsed() > limit {
            let jobs = self.jobs_by_state().await?;
            let what = format!("gave up after {}, while waiting until {what}; jobs: {jobs}", seconds(limit));
            return Err(Failure::new(Exit::No, what));
        }
        self.fleet.check()?;
        tokio::time::sleep(LOOK_EVERY).await;
        self.look().await
    }

    /// Where the jobs stand, and why one is parked if any is: what a person asks first when it goes on too long.
    async fn jobs_by_state(&self) -> Result<String, Failure> {
        let counts = self.hapax.queues().await?.into_iter().flat_map(|queue| queue.counts);
        let mut parts: Vec<String> =
            counts.filter(|(_, count)| *count > 0).map(|(state, count)| format!("{count} {state}")).collect();
        let parked = JobFilter { state: Some(JobState::Parked), limit: 1, ..JobFilter::default() };
        for job in self.hapax.jobs(parked).await? {
            parts.push(format!("one is parked since {}", job.reason.unwrap_or_default()));
        }
        Ok(parts.join(", "))
    }

    /// Looks at everything, shows it, and lets the producers go on.
    async fn look(&mut self) -> Result<(), Failure> {
        self.seen = Seen {
            effects: self.ledger.effects().await?,
            counters: self.hapax.counters().await?,
            instances: self.hapax.instances().await?,
        };
        self.refused_finishes(None).await?;
        self.allowed.send_replace(self.hold.min(self.seen.effects + AHEAD));
        if let Some(ended) = self.producers.try_join_next() {
            self.facts.sent.add(ended.map_err(|error| broken("a producer", &error))??);
        }
        self.show();
        Ok(())
    }

    fn show(&mut self) {
        let (effects, jobs) = (self.seen.effects, self.plan.jobs);
        let (again, late) = (self.seen.counters.duplicates_refused, self.facts.late_writers_refused);
        let text =
            format!("{effects}/{jobs}, {} taken over, refused: {again} again, {late} late", self.seen.takeovers());
        self.bar.set(effects, &text);
        if !self.bar.is_drawn() && self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            self.say(&text);
        }
    }
}
