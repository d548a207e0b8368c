//! `hapax doctor`: whether the store keeps the promise, and whether anything waits for nobody.

use std::path::Path;

use clap::Args;
use hapax::clock::{Clock, Micros};
use hapax::model::{COUNT_MAX, Counters, InstanceView, JobFilter, JobRecord, PAGE_MAX};
use hapax::store::{Health, HealthVerdict, Scope};
use hapax::{Hapax, JobState};
use serde::Serialize;

use super::Global;
use crate::exit::{Answer, Exit, Failure};
use crate::output::{self, Output, Table};
use crate::time::{self, Iso};

/// Below this much free space a store is about to refuse work.
const FREE_BYTES_LOW: u64 = 100 * 1024 * 1024;
/// A ready job that is due for longer than this, while no instance is live, waits for nobody.
const WAITS_LONG_MS: u64 = 60_000;

/// Checks whether the store keeps the promise, and whether anything waits for nobody
///
/// Shows its settings, clocks, disk, counters and instances, and the job that waits longest. Each setting that the
/// promise rests on has a verdict: good, weak (less than it might be, within what is promised) or broken. The exit code
/// is 1 when one is broken.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hapax doctor\n  hapax doctor -o json | jq '.settings[] | select(.verdict != \"good\")'"
)]
pub(crate) struct Doctor {}

/// What was found.
#[derive(Serialize)]
struct Findings {
    health: Health,
    clocks: Clocks,
    disk: Option<Disk>,
    counters: Counters,
    live: usize,
    dead: usize,
    oldest_ready: Option<Oldest>,
    warnings: Vec<String>,
}

/// What this machine's clocks say.
#[derive(Serialize)]
struct Clocks {
    /// Due times and retention.
    wall: Iso,
    /// Leases: time since boot, suspended time included.
    lease_ms: u64,
}

/// The file system that the store's file is on.
#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "units stand last in names")]
struct Disk {
    free_bytes: u64,
    total_bytes: u64,
    file_bytes: u64,
}

/// The ready job that has been due for longest.
#[derive(Serialize)]
struct Oldest {
    job: hapax::JobId,
    kind: hapax::Name,
    queue: hapax::Name,
    due_at: Iso,
    due_for_ms: u64,
    /// There are more ready jobs than were looked at.
    at_least: bool,
}

impl Doctor {
    /// Does it.
    pub(crate) async fn run(&self, global: &Global) -> Answer {
        let place = global.place()?;
        if place.is_missing() {
            let file = place.file().unwrap_or(Path::new("")).display();
            return Err(Failure::new(Exit::StoreDown, format!("there is no store at {file}"))
                .mend("`hapax migrate` or the first `hapax job push` makes it"));
        }
        let output = global.output();
        let hapax = place.open().await?;
        let found = Findings::of(&hapax, place.file(), &output).await?;
        if output.is_json() {
            output::json(&found)?;
        } else {
            output::data(&found.text(&output))?;
        }
        let broken = found.health.settings.iter().any(|setting| setting.verdict == HealthVerdict::Broken);
        Ok(if broken { Exit::No } else { Exit::Ok })
    }
}

impl Findings {
    async fn of(hapax: &Hapax, file: Option<&Path>, output: &Output) -> Result<Self, Failure> {
        let now = Clock::system().now();
        let instances = hapax.instances().await?;
        let is_live = |instance: &&InstanceView| instance.live;
        let live = instances.iter().filter(is_live).count();
        let mut found = Self {
            health: hapax.health().await?,
            clocks: Clocks { wall: Iso(now.wall), lease_ms: now.lease.ms_since(Micros(0)) },
            disk: file.and_then(Disk::of),
            counters: hapax.counters().await?,
            live,
            dead: instances.len() - live,
            oldest_ready: oldest_ready(hapax, output.now()).await?,
            warnings: Vec::new(),
        };
        found.warn();
        Ok(found)
    }

    fn warn(&mut self) {
        if let Some(disk) = self.disk.as_ref().filter(|disk| disk.free_bytes < FREE_BYTES_LOW) {
            self.warnings.push(format!("only {} of the disk are free", bytes(disk.free_bytes)));
        }
        let waits = self.oldest_ready.as_ref().is_some_and(|oldest| oldest.due_for_ms >= WAITS_LONG_MS);
        if waits && self.live == 0 {
            self.warnings.push("jobs are ready and no instance is live: nobody runs them".to_owned());
        }
    }

    fn text(&self, output: &Output) -> String {
        let mut parts = vec![self.facts(output)];
        let mut table = Table::new(&["SETTING", "VALUE", "VERDICT", "NOTE"]);
        for setting in &self.health.settings {
            let verdict = verdict(setting.verdict).to_owned();
            table.row([setting.name.to_owned(), setting.value.clone(), verdict, setting.note.clone()]);
        }
        parts.push(table.to_string());
        parts.extend(self.warnings.iter().map(|warning| format!("warning: {warning}")));
        let mut worst = HealthVerdict::Good;
        for setting in &self.health.settings {
            worst = worse(worst, setting.verdict);
        }
        parts.push(conclusion(worst).to_owned());
        parts.join("\n\n")
    }

    fn facts(&self, output: &Output) -> String {
        let Health { address, engine, version, scope, .. } = &self.health;
        let mut lines = vec![
            fact("store", &format!("{engine}, schema {version}")),
            fact("address", address),
            fact("protects", protects(*scope)),
        ];
        if let Some(disk) = &self.disk {
            let (free, total) = (bytes(disk.free_bytes), bytes(disk.total_bytes));
            lines.push(fact("disk", &format!("{free} free of {total}, the store has {}", bytes(disk.file_bytes))));
        }
        let clocks = format!("wall {}, up for {}", time::iso(output.now()), time::length(self.clocks.lease_ms));
        lines.push(fact("clocks", &clocks));
        lines.push(fact("instances", &format!("{} live, {} dead", self.live, self.dead)));
        lines.push(fact("oldest ready", &self.oldest(output)));
        let Counters { duplicates_refused, writes_refused, takeovers, unstarted_takeovers, deadlines } = self.counters;
        lines.push(fact("refused", &format!("{duplicates_refused} duplicates, {writes_refused} late writes")));
        let taken = format!("{takeovers} started runs, {unstarted_takeovers} unstarted, {deadlines} at their deadline");
        lines.push(fact("taken back", &taken));
        lines.join("\n")
    }

    fn oldest(&self, output: &Output) -> String {
        match &self.oldest_ready {
            None => "no job is ready".to_owned(),
            Some(oldest) => {
                let more = if oldest.at_least { "; there are more than were looked at" } else { "" };
                let due = output.time(oldest.due_at.0);
                format!("job {} ({}, queue {}), due {due}{more}", oldest.job, oldest.kind, oldest.queue)
            }
        }
    }
}

impl Disk {
    /// Nothing when the file system does not say.
    fn of(file: &Path) -> Option<Self> {
        let space = rustix::fs::statvfs(file).ok()?;
        let file_bytes = ["", "-wal"].iter().filter_map(|end| {
            let mut name = file.as_os_str().to_owned();
            name.push(end);
            std::fs::metadata(name).ok().map(|meta| meta.len())
        });
        Some(Self {
            free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
            total_bytes: space.f_blocks.saturating_mul(space.f_frsize),
            file_bytes: file_bytes.sum(),
        })
    }
}

/// Looks at no more ready jobs than a count does.
async fn oldest_ready(hapax: &Hapax, now: Micros) -> Result<Option<Oldest>, Failure> {
    let mut filter = JobFilter { state: Some(JobState::Ready), limit: PAGE_MAX, ..JobFilter::default() };
    let mut oldest: Option<JobRecord> = None;
    let mut seen = 0;
    loop {
        let page = hapax.jobs(filter.clone()).await?;
        seen += page.len() as u64;
        let full = page.len() == PAGE_MAX as usize;
        filter.before = page.last().map(|job| job.id);
        for job in page {
            if oldest.as_ref().is_none_or(|oldest| job.due_at < oldest.due_at) {
                oldest = Some(job);
            }
        }
        if !full || seen >= COUNT_MAX {
            return Ok(oldest.map(|job| Oldest {
                job: job.id,
                due_at: Iso(job.due_at),
                due_for_ms: now.ms_since(job.due_at),
                kind: job.kind,
                queue: job.queue,
                at_least: full,
            }));
        }
    }
}

fn fact(name: &str, value: &str) -> String {
    format!("{name:<13} {value}")
}

const fn verdict(verdict: HealthVerdict) -> &'static str {
    match verdict {
        HealthVerdict::Good => "good",
        HealthVerdict::Weak => "weak",
        HealthVerdict::Broken => "BROKEN",
    }
}

const fn worse(a: HealthVerdict, b: HealthVerdict) -> HealthVerdict {
    match (a, b) {
        (HealthVerdict::Broken, _) | (_, HealthVerdict::Broken) => HealthVerdict::Broken,
        (HealthVerdict::Weak, _) | (_, HealthVerdict::Weak) => HealthVerdict::Weak,
        _ => HealthVerdict::Good,
    }
}

const fn conclusion(worst: HealthVerdict) -> &'static str {
    match worst {
        HealthVerdict::Good => "the store keeps the promise",
        HealthVerdict::Weak => "the store keeps the promise; some settings are weaker than they might be",
        HealthVerdict::Broken => "the store does NOT keep the promise: mend what is BROKEN above",
    }
}

const fn protects(scope: Scope) -> &'static str {
    match scope {
        Scope::Process => "the tasks of one process",
        Scope::Host => "the processes of this one host",
        Scope::Fleet => "every host that reaches the store",
    }
}

/// `12.3 GiB`.
#[expect(clippy::cast_precision_loss, reason = "one digit after the point is shown")]
fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut size = count as f64;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{size:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_said_for_people() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(u64::MAX), "16777216.0 TiB");
    }

    #[test]
    fn one_broken_setting_decides() {
        use HealthVerdict as V;
        assert_eq!(worse(V::Good, V::Weak), V::Weak);
        assert_eq!(worse(V::Broken, V::Weak), V::Broken);
        assert_eq!(worse(V::Good, V::Good), V::Good);
    }
}
