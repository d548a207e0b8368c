//! The end of the demo: what happened, what the table says, and the verdict.

use std::time::Duration;

use serde_json::json;

use super::judge::{Counts, Ground};
use super::plan::Plan;
use super::producer::Sent;
use crate::exit::Failure;
use crate::output::{self, Output, Table, say};
use crate::time::seconds;

/// What was done to the instances and to the store, and what they did about it.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Seed and number of keys.
    pub(super) seed: u64,
    /// What the producers did.
    pub(super) sent: Sent,
    /// Enqueues that the store says it refused.
    pub(super) duplicates_refused: u64,
    /// Finishes with an effect that the store refused, since another had the job.
    pub(super) late_writers_refused: u64,
    /// Started runs taken over.
    pub(super) takeovers_started: u64,
    /// Claimed jobs, not known to have started, taken over.
    pub(super) takeovers_unstarted: u64,
    /// Instances killed with -9 while they held jobs.
    pub(super) kills: u64,
    /// Instances frozen between a claim and its effect.
    pub(super) freezes: u64,
}

impl Facts {
    /// The facts before anything happened.
    pub(super) fn of(plan: &Plan) -> Self {
        Self { seed: plan.seed, ..Self::default() }
    }

    /// What did not happen although it should have: a demo without it shows nothing.
    fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for (count, what) in [
            (self.duplicates_refused, "no duplicate was refused"),
            (self.late_writers_refused, "no late writer was refused"),
            (self.takeovers_started + self.takeovers_unstarted, "no job was taken over"),
            (self.kills, "no instance was killed while it held jobs"),
            (self.freezes, "no instance was frozen between its claim and its effect"),
        ] {
            if count == 0 {
                missing.push(format!("{what}, so nothing was shown"));
            }
        }
        missing
    }
}

/// Everything together.
#[derive(Debug)]
pub(super) struct Report {
    facts: Facts,
    counts: Counts,
    problems: Vec<String>,
    took: Duration,
}

impl Report {
    /// Puts it together. `stopped` is why the plan was not played to its end.
    pub(super) fn new(facts: Facts, counts: Counts, stopped: Option<Failure>, took: Duration) -> Self {
        let mut problems = counts.problems();
        if facts.sent.accepted > counts.expected {
            problems.push(format!("{} sends were accepted for {} keys", facts.sent.accepted, counts.expected));
        }
        problems.extend(facts.missing());
        problems.extend(stopped.map(|failure| failure.to_string()));
        Self { facts, counts, problems, took }
    }

    /// Whether everything is as promised.
    pub(super) fn passed(&self) -> bool {
        self.problems.is_empty()
    }

    /// Prints it; `kept` is what stays.
    pub(super) fn print(&self, output: &Output, kept: Option<&Ground>) -> Result<(), Failure> {
        if output.is_json() {
            return self.json(kept);
        }
        output::data(&self.table())?;
        output::data("")?;
        if self.passed() {
            output::data(&format!(
                "PASSED: every key took effect exactly once (seed {}, {})",
                self.facts.seed,
                seconds(self.took)
            ))?;
        } else {
            output::data(&format!("FAILED (seed {}, {}):", self.facts.seed, seconds(self.took)))?;
            for problem in &self.problems {
                output::data(&format!("  - {problem}"))?;
            }
        }
        if let Some(ground) = kept {
            say(&ground.look_yourself());
        }
        Ok(())
    }

    fn table(&self) -> String {
        let Facts { takeovers_started: started, takeovers_unstarted: unstarted, .. } = self.facts;
        let mut table = Table::new(&["WHAT", ">COUNT", "MEANING"]);
        for (what, count, meaning) in [
            ("expected keys", self.counts.expected, "different keys that were sent".to_owned()),
            ("effects", self.counts.effects, "rows in a table without a unique constraint".to_owned()),
            ("twice", self.counts.twice, "keys with more than one effect".to_owned()),
            ("lost", self.counts.lost, "keys without an effect".to_owned()),
            ("duplicates refused", self.facts.duplicates_refused, "sends of a key that was known".to_owned()),
            ("late writers refused", self.facts.late_writers_refused, "effects under a fence of the past".to_owned()),
            ("takeovers", started + unstarted, format!("{started} runs known to have started, {unstarted} others")),
            ("kills", self.facts.kills, "instances ended by kill -9 while they held jobs".to_owned()),
            ("freezes", self.facts.freezes, "instances stopped between claim and effect".to_owned()),
        ] {
            table.row([what.to_owned(), count.to_string(), meaning]);
        }
        table.to_string()
    }

    fn json(&self, kept: Option<&Ground>) -> Result<(), Failure> {
        let Facts { seed, sent, .. } = self.facts;
        output::json(&json!({
            "passed": self.passed(),
            "problems": self.problems,
            "seed": seed,
            "took_ms": u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
            "expected": self.counts.expected,
            "effects": self.counts.effects,
            "twice": self.counts.twice,
            "twice_keys": self.counts.twice_keys,
            "lost": self.counts.lost,
            "lost_keys": self.counts.lost_keys,
            "sends_accepted": sent.accepted,
            "sends_refused": sent.refused,
            "duplicates_refused": self.facts.duplicates_refused,
            "late_writers_refused": self.facts.late_writers_refused,
            "takeovers": { "started": self.facts.takeovers_started, "unstarted": self.facts.takeovers_unstarted },
            "kills": self.facts.kills,
            "freezes": self.facts.freezes,
            "file": kept.and_then(Ground::file),
            "schema": kept.and_then(Ground::schema),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            seed: 7,
            sent: Sent { accepted: 10, refused: 3 },
            duplicates_refused: 3,
            late_writers_refused: 1,
            takeovers_started: 0,
            takeovers_unstarted: 4,
            kills: 1,
            freezes: 1,
        }
    }

    fn report(facts: Facts, counts: Counts) -> Report {
        Report::new(facts, counts, None, Duration::from_secs(12))
    }

    fn clean() -> Counts {
        Counts { expected: 10, effects: 10, ..Counts::default() }
    }

    #[test]
    fn it_passes_only_when_everything_happened_and_nothing_is_wrong() {
        assert!(report(facts(), clean()).passed());
        assert!(!report(facts(), Counts { twice: 1, ..clean() }).passed());
        assert!(!report(facts(), Counts { lost: 1, ..clean() }).passed());
        for quiet in [
            Facts { duplicates_refused: 0, ..facts() },
            Facts { late_writers_refused: 0, ..facts() },
            Facts { takeovers_unstarted: 0, ..facts() },
            Facts { kills: 0, ..facts() },
            Facts { freezes: 0, ..facts() },
        ] {
            let report = report(quiet, clean());
            assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
            assert!(report.problems[0].contains("nothing was shown"));
        }
    }

    #[test]
    fn two_accepted_sends_of_one_key_are_a_failure_even_if_the_effects_are_right() {
        let sent = Sent { accepted: 11, refused: 2 };
        assert!(!report(Facts { sent, ..facts() }, clean()).passed());
    }

    #[test]
    fn a_plan_that_was_broken_off_has_not_passed() {
        let stopped = Failure::new(crate::exit::Exit::No, "gave up");
        assert!(!Report::new(facts(), clean(), Some(stopped), Duration::from_secs(1)).passed());
    }

    #[test]
    fn the_table_counts_takeovers_of_both_kinds_together() {
        let text = report(Facts { takeovers_started: 2, ..facts() }, clean()).table();
        let line = text.lines().find(|line| line.starts_with("takeovers")).expect("a line");
        assert_eq!(line.split_whitespace().nth(1), Some("6"), "{line}");
    }
}
