//! HOW IS A COMMAND RUN UNDER A LEASE? `hapax exec`: claim, run the child under its watchdog, record, tell.
//!
//! Two processes of this program share the work. hapax talks to the store; the [`watchdog`] is the child's parent and
//! stops it before the lease can pass on, whatever becomes of hapax. They speak through [`wire`]; [`family`] finds the
//! processes; [`claim`] knows the order of key and lock, [`patience`] how long to wait; [`outcome`] what is said at the
//! end.
//!
//! This room does not know: how a store keeps anything, how a command line is read (`cli/exec.rs` does), or what the
//! command does.

mod alarm;
mod child;
pub(crate) mod claim;
mod family;
mod outcome;
mod patience;
pub(crate) mod plan;
mod report;
mod signals;
pub(crate) mod watchdog;
mod wire;

use std::ffi::OsString;
use std::time::Duration;

use hapax::client::{LockGuard, OnceGuard};
use hapax::error::{ErrorKind, Outcome as Happened};
use hapax::model::OnceEnd;
use hapax::store::Health;
use hapax::{AcquisitionId, Error};
use serde_json::Value;

use crate::exit::{Exit, Failure};
use crate::output::{self, Output};
use crate::store::Place;
use crate::time::Iso;
use child::{Child, End, Ended};
use claim::{Claimed, Leases};
use outcome::{Done, Ending, Outcome, ResultFile, code, wall_now};
use patience::Patience;
use plan::{DoneOn, OnStoreDown, Plan};
use report::Report;
use signals::Signals;
use watchdog::{Call, Manners};

/// Pause before the second attempt of a call, doubled before each later one.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// How long to go on recording a result when the store has gone away, if the lease lasts as long.
const RECORD_PATIENCE: Duration = Duration::from_mins(1);
/// How long to wait for the answer when the lock is given back.
const RELEASE_PATIENCE: Duration = Duration::from_secs(10);

/// Does what the plan says; gives the exit code. A failure means that nothing ran.
pub(crate) async fn run(plan: &Plan, place: Result<Place, Failure>, output: &Output) -> Result<u8, Failure> {
    let file = plan.result_file.as_deref().map(|path| {
        ResultFile::open(path).map_err(|error| {
            let what = format!("the result file {} cannot be written: {error}", path.display());
            Failure::usage(what, "give a path that can be written; nothing was run")
        })
    });
    let file = file.transpose()?;
    let mut signals =
        Signals::catch().map_err(|error| Failure::new(Exit::Internal, format!("signals cannot be caught: {error}")))?;
    let mut call = Exec { plan, patience: Patience::new(plan), ending: Ending::new(plan) };
    let failure = call.with_store(place, &mut signals).await.err();
    let mut ending = call.ending;
    if let Some(failure) = &failure {
        ending.set(
            if failure.exit() == Exit::StoreDown { Outcome::StoreDown } else { Outcome::NotRun },
            failure.exit() as u8,
            failure.to_string(),
        );
    }
    if let Some(Err(error)) = file.map(|file| file.write(&ending)) {
        output::say(&format!("hapax: the result file was not written: {error}"));
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    tell(&ending, plan, output);
    Ok(ending.exit)
}

/// One line on stderr. Nothing when the command simply did its work: cron mails every line.
fn tell(ending: &Ending, plan: &Plan, output: &Output) {
    if output.is_json() {
        return output::say(&ending.json());
    }
    let expected = matches!(ending.outcome, Outcome::SkippedDone);
    let silent = ending.outcome == Outcome::Ran || expected && plan.quiet;
    if !silent {
        output::say(&format!("hapax: {}", ending.message));
    }
}

/// One call.
struct Exec<'a> {
    plan: &'a Plan,
    patience: Patience,
    ending: Ending,
}

impl Exec<'_> {
    async fn with_store(&mut self, place: Result<Place, Failure>, signals: &mut Signals) -> Result<(), Failure> {
        let reached = {
            let reaching = self.reach(place);
            tokio::select! {
                reached = reaching => Ok(reached),
                // What was granted meanwhile is given back, or its lease ends by itself.
                signal = signals.next_end() => Err(signal),
            }
        };
        match reached {
            Ok(Ok(claimed)) => self.claimed(claimed, signals).await,
            Ok(Err(failure)) => self.without_store(failure, signals).await,
            Err(signal) => {
                let exit = u8::try_from(128 + signal.as_raw()).unwrap_or(code::FAILED);
                let name = self.plan.name(None);
                let message = format!("{name}: ended by signal {} while waiting", signal.as_raw());
                self.ending.set(Outcome::SkippedBusy, exit, message);
                Ok(())
            }
        }
    }

    /// Opens the store and claims. The period is taken once: who waits over midnight waits for that day.
    async fn reach(&mut self, place: Result<Place, Failure>) -> Result<Claimed, Failure> {
        let place = place?;
        let hapax = self.patience.while_busy(async || place.open().await).await?;
        let health = self.patience.while_busy(async || hapax.health().await).await?;
        self.ending.scope = Some(health.scope);
        self.check_scope(&health)?;
        let span = match &self.plan.once {
            Some(_) => claim::period(self.plan, self.patience.while_busy(async || hapax.now().await).await?)?,
            None => None,
        };
        let claimed = claim::claim(&hapax, self.plan, span.as_ref(), &self.patience).await?;
        self.ending.period = span.map(|span| span.id);
        Ok(claimed)
    }

    fn check_scope(&self, health: &Health) -> Result<(), Failure> {
        match self.plan.scope {
            Some(wanted) if !wanted.is_met(health.scope) => {
                let what = format!("the {} store {} protects one host, not a fleet", health.store, health.address);
                Err(Failure::new(Exit::Unusable, what)
                    .mend("name a store that every host reaches, or leave out --scope"))
            }
            _ => Ok(()),
        }
    }

    /// The store is away, or cannot be used at all: only the former is for `--on-store-down`.
    async fn without_store(&mut self, failure: Failure, signals: &mut Signals) -> Result<(), Failure> {
        // An answer to the claim that was lost leaves a lease which ends by itself; the child has not started.
        let away = matches!(failure.exit(), Exit::StoreDown | Exit::InDoubt);
        match self.plan.on_store_down {
            _ if !away => Err(failure),
            OnStoreDown::Fail => Err(failure.with_exit(Exit::StoreDown)),
            OnStoreDown::Skip => {
                self.ending.set(Outcome::StoreDown, 0, format!("the command was not run, as asked: {failure}"));
                Ok(())
            }
            OnStoreDown::Run => {
                output::say(&format!("hapax: running without any protection, as asked: {failure}"));
                let ended = self.attempts(&Leases::default(), signals).await;
                Self::left(ended.left);
                Ok(())
            }
        }
    }

    async fn claimed(&mut self, claimed: Claimed, signals: &mut Signals) -> Result<(), Failure> {
        let leases = match claimed {
            Claimed::Ours(leases) => leases,
            Claimed::Done(record) => {
                let by = claim::holder(&record);
                let at = record.ended_at.map(Iso);
                let when = record.ended_at.map_or_else(String::new, |at| format!(" at {}", crate::time::iso(at)));
                let message = format!("{} is done: {by} did it{when}; not run again", record.key.value());
                self.ending.set(Outcome::SkippedDone, self.plan.skip_code, message);
                let result = record.result.as_deref().and_then(|text| serde_json::from_str(text).ok());
                self.ending.done = Some(Done { by, at, result: result.unwrap_or(Value::Null) });
                return Ok(());
            }
            Claimed::Busy(who) => {
                self.ending.set(Outcome::SkippedBusy, code::BUSY, format!("{who}; not run"));
                return Ok(());
            }
        };
        self.ending.fence = leases.fence();
        self.run_and_record(leases, signals).await
    }

    async fn run_and_record(&mut self, mut leases: Leases, signals: &mut Signals) -> Result<(), Failure> {
        let mut key = leases.key.take();
        if let (DoneOn::Start, Some(key)) = (self.plan.done_on, &key) {
            self.ending.started_at = Some(Iso(wall_now()));
            let done = OnceEnd::Done { result: Some(r#"{"outcome":"started"}"#.to_owned()) };
            self.patience.while_busy(async || key.record(&done).await).await.map_err(|failure| {
                let failure = failure.with_exit(Exit::StoreDown);
                failure.mend("nothing ran; `hapax once show` says whether the key counts as done all the same")
            })?;
        } else {
            leases.key = key.take();
        }
        let ended = self.attempts(&leases, signals).await;
        let settled = match (key.or(leases.key), ended.end) {
            // Whoever lost it has nothing to say about it any more.
            (Some(_), End::Lost) | (None, _) => Ok(()),
            (Some(key), end) => self.record(&key, end).await,
        };
        if let Err(error) = settled {
            self.not_recorded(&error);
        }
        Self::left(ended.left);
        // What was lost is not there to be given back.
        if let (Some(lock), 0) = (leases.lock.filter(LockGuard::is_held), ended.left) {
            // The command has ended, and whoever started it waits for its code: not for a store that is cut off, and
            // not for longer than the lease would last by itself.
            let patience = lock.left().min(RELEASE_PATIENCE);
            match tokio::time::timeout(patience, lock.release()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "the lock was not given back; its lease ends by itself"),
                Err(_) => tracing::warn!("the store does not answer; the lease of the lock ends by itself"),
            }
        }
        Ok(())
    }

    fn left(left: usize) {
        if left > 0 {
            output::say(&format!(
                "hapax: {left} processes of the command could not be ended; the lease is not given back"
            ));
        }
    }

    /// Records how the work of the key ended, again and again while the lease lasts and the store is away.
    async fn record(&self, key: &OnceGuard, end: End) -> Result<(), Error> {
        let done = match self.plan.done_on {
            DoneOn::Success => end == End::Exited(0),
            DoneOn::Exit => matches!(end, End::Exited(_)),
            DoneOn::Start => true,
        };
        let kept = self.ending.kept();
        let end = if done { OnceEnd::Done { result: Some(kept) } } else { OnceEnd::Failed { error: kept } };
        let recording = async {
            loop {
                match key.record(&end).await {
                    Err(error) if error.is_retryable() || error.outcome() == Happened::MayHaveHappened => {
                        tracing::warn!(%error, "the result is not recorded yet; trying again");
                        let lasts = self.plan.done_on == DoneOn::Start || key.is_held();
                        if !lasts {
                            return Err(error);
                        }
                        tokio::time::sleep(Duration::from_millis(200)).await;
                    }
                    settled => return settled,
                }
            }
        };
        match tokio::time::timeout(RECORD_PATIENCE, recording).await {
            Ok(settled) => settled,
            Err(_) => Err(Error::may_have_happened(ErrorKind::Unreachable, "the store did not answer in time")),
        }
    }

    fn not_recorded(&mut self, error: &Error) {
        let name = self.plan.name(self.ending.period.as_deref());
        if error.kind() == ErrorKind::Refused {
            let message = format!("{name}: the command ended after another had taken over: {error}");
            return self.ending.set(Outcome::Lost, code::LOST, message);
        }
        let what = match self.plan.done_on {
            DoneOn::Start => "it counts as done, its end is in doubt",
            _ => "it may run again",
        };
        let message = format!("{name}: the command ran, its result could not be recorded ({error}); {what}");
        self.ending.set(Outcome::InDoubt, code::IN_DOUBT, message);
    }

    /// Runs the child, again after a failure as often as the plan allows.
    async fn attempts(&mut self, leases: &Leases, signals: &mut Signals) -> Ended {
        let first = leases.key.as_ref().map_or(1, OnceGuard::attempt);
        let mut pause = PAUSE_FIRST;
        for tried in 0.. {
            let ended = self.attempt(leases, signals, first.saturating_add(tried)).await;
            let failed = match ended.end {
                End::Exited(exit) => exit != 0 && self.plan.done_on != DoneOn::Exit,
                End::Killed(_) | End::TimedOut => true,
                End::Cannot(_) | End::Lost | End::Unwatched => false,
            };
            if !failed || ended.asked_to_end.is_some() || ended.left > 0 || tried + 1 >= self.plan.attempts {
                return ended;
            }
            output::say(&format!("hapax: {}; trying again in {} s", self.ending.message, pause.as_secs()));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                signal = signals.next_end() => return Ended { asked_to_end: Some(signal), ..ended },
                () = lost(leases) => {
                    self.end(End::Lost);
                    return Ended { end: End::Lost, ..ended };
                }
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
        unreachable!("a last attempt returns")
    }

    async fn attempt(&mut self, leases: &Leases, signals: &mut Signals, attempt: u32) -> Ended {
        let not_run = |left| Ended { end: End::Unwatched, left, asked_to_end: None };
        let report = match Report::new() {
            Ok(report) => report,
            Err(error) => {
                let message =
                    format!("no temporary file for HAPAX_REPORT: {error}; set TMPDIR to a folder that can be written");
                self.ending.set(Outcome::NotRun, code::FAILED, message);
                return not_run(0);
            }
        };
        let run_id = AcquisitionId::new().to_string();
        let environment = self.environment((&run_id, attempt), &report);
        self.ending.run_id = Some(run_id);
        self.ending.attempts += 1;
        self.ending.started_at.get_or_insert_with(|| Iso(wall_now()));
        let held = leases.deadline().is_some();
        let manners = Manners {
            grace_ms: milliseconds(self.plan.grace),
            ttl_ms: if held { milliseconds(self.plan.ttl) } else { 0 },
        };
        let call = Call { manners, report: report.path().to_owned(), command: self.plan.command.clone() };
        let ended = match Child::start(&call, &environment) {
            Ok(child) => child.supervise(leases, signals, self.plan.timeout).await,
            Err(error) => {
                self.ending.set(Outcome::NotRun, code::FAILED, format!("the watchdog did not start: {error}"));
                return not_run(0);
            }
        };
        self.ending.ended_at = Some(Iso(wall_now()));
        self.ending.report = report.read();
        self.end(ended.end);
        ended
    }

    fn end(&mut self, end: End) {
        let name = self.plan.name(self.ending.period.as_deref());
        self.ending.set_end(end, &name, &self.plan.command[0].to_string_lossy());
    }

    /// What the child finds in its environment beside ours.
    fn environment(&self, (run_id, attempt): (&str, u32), report: &Report) -> Vec<(&'static str, OsString)> {
        let mut set: Vec<(&'static str, OsString)> = vec![
            ("HAPAX_RUN_ID", run_id.into()),
            ("HAPAX_ATTEMPT", attempt.to_string().into()),
            ("HAPAX_REPORT", report.path().into()),
        ];
        let mut text = |name, value: Option<String>| set.extend(value.map(|value| (name, value.into())));
        text("HAPAX_FENCE", self.ending.fence.map(|fence| fence.to_string()));
        text("HAPAX_KEY", self.ending.key.clone());
        text("HAPAX_PERIOD", self.ending.period.clone());
        text("HAPAX_LOCK", self.ending.lock.clone());
        text(
            "HAPAX_DEADLINE",
            self.plan.timeout.map(|timeout| crate::time::iso(wall_now().plus_ms(milliseconds(timeout)))),
        );
        if std::env::var_os("TRACEPARENT").is_none() {
            let trace = AcquisitionId::new().as_uuid().simple().to_string();
            text("TRACEPARENT", Some(format!("00-{trace}-{:016x}-01", fastrand::u64(1..))));
        }
        set
    }
}

/// Ends when a lease is lost; never when nothing is held.
async fn lost(leases: &Leases) {
    leases.lost().await;
}

fn milliseconds(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
