//! Every metric of the library: its name, unit, labels and meaning, in one place.
//!
//! Numbers go through the [`metrics`] facade, so that a program chooses where they end up; without a recorder they cost
//! next to nothing. Install the recorder *before* a host starts: the handles of a task are made once.
//!
//! Labels never carry ids, keys or error texts: their number must stay small. Spans are named `process {queue}` and
//! carry `job`, `kind`, `fence` and `attempt`.

/// What a metric measures, as Prometheus knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Distribution of observed values.
    Histogram,
}

/// One metric, for recorders, documentation pages and dashboards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Metric {
    /// Its name; the unit stands last.
    pub name: &'static str,
    /// What it measures.
    pub kind: MetricKind,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// One sentence for people.
    pub help: &'static str,
}

/// Jobs that were taken by a store.
pub const JOBS_ENQUEUED: &str = "hapax_jobs_enqueued_total";
/// Duplicates that a once key refused.
pub const DUPLICATES_REFUSED: &str = "hapax_duplicates_refused_total";
/// Ended runs.
pub const RUNS: &str = "hapax_runs_total";
/// Time that a task worked, waiting for its start excluded.
pub const RUN_DURATION: &str = "hapax_run_duration_seconds";
/// Time from a job's due time to its claim.
pub const QUEUE_WAIT: &str = "hapax_queue_wait_seconds";
/// Tasks at work.
pub const RUNS_ACTIVE: &str = "hapax_runs_active";
/// Tasks that block their thread past their deadline.
pub const RUNS_STUCK: &str = "hapax_runs_stuck";
/// Runs that ended and whose finish the store has not confirmed yet.
pub const RUNS_UNCONFIRMED: &str = "hapax_runs_unconfirmed";
/// Leases that ended before their holder gave them back.
pub const LEASES_LOST: &str = "hapax_leases_lost_total";
/// Writes that lost their guard: another holds a higher fence.
pub const FENCE_REJECTED: &str = "hapax_fence_rejected_total";
/// Jobs that the reaper took back, by where they went.
pub const TAKEN_BACK: &str = "hapax_jobs_taken_back_total";
/// Rows that the pruner deleted.
pub const PRUNED: &str = "hapax_pruned_total";
/// Store calls of the host that failed.
pub const STORE_ERRORS: &str = "hapax_store_errors_total";
/// Services that were started again after an end they were not asked for.
pub const SERVICE_RESTARTS: &str = "hapax_service_restarts_total";
/// Worker slots of a queue in this process.
pub const WORKERS: &str = "hapax_workers";

/// All of them, in the order of the documentation.
pub const ALL: &[Metric] = &[
    counter(JOBS_ENQUEUED, &["queue", "kind"], "Jobs that the store took."),
    counter(DUPLICATES_REFUSED, &["boundary"], "Duplicates that a once key refused."),
    counter(
        RUNS,
        &["kind", "outcome"],
        "Ended runs; outcome: done, failed, unknown, timed_out, snoozed, parked, \
        cancelled, refused.",
    ),
    histogram(RUN_DURATION, &["kind"], "Seconds that a task worked."),
    histogram(QUEUE_WAIT, &["queue"], "Seconds from a job's due time to its claim, by the store's clock."),
    gauge(RUNS_ACTIVE, &["queue"], "Tasks at work in this process."),
    gauge(RUNS_STUCK, &[], "Tasks that block their thread past their deadline."),
    gauge(RUNS_UNCONFIRMED, &[], "Ended runs whose finish the store has not confirmed yet."),
    counter(LEASES_LOST, &["what"], "Leases lost by their holder; what: instance, run."),
    counter(FENCE_REJECTED, &["verb"], "Writes refused because their fence was not current."),
    counter(TAKEN_BACK, &["state"], "Jobs taken back from dead owners or at their deadline, by their new state."),
    counter(PRUNED, &["what"], "Rows deleted after their retention; what: jobs, keys, instances, refusals."),
    counter(STORE_ERRORS, &["verb"], "Store calls of the host that failed."),
    counter(SERVICE_RESTARTS, &["service"], "Restarts of services that ended unasked."),
    gauge(WORKERS, &["queue"], "Worker slots of this process."),
];

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Counter, labels, help }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Gauge, labels, help }
}

const fn histogram(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Histogram, labels, help }
}

/// Tells the installed recorder what each metric means. Call it once, after installing the recorder.
pub fn describe() {
    for metric in ALL {
        match metric.kind {
            MetricKind::Counter => metrics::describe_counter!(metric.name, metric.help),
            MetricKind::Gauge => metrics::describe_gauge!(metric.name, metric.help),
            MetricKind::Histogram => metrics::describe_histogram!(metric.name, metric.help),
        }
    }
}

/// A store call of the host failed; `verb` is the verb of the seam.
pub(crate) fn store_failed(verb: &'static str) {
    metrics::counter!(STORE_ERRORS, "verb" => verb).increment(1);
}

/// A write of `verb` lost its guard.
pub(crate) fn fence_rejected(verb: &'static str) {
    metrics::counter!(FENCE_REJECTED, "verb" => verb).increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_say_their_unit() {
        let mut names: Vec<&str> = ALL.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
        for metric in ALL {
            assert!(metric.name.starts_with("hapax_"), "{}", metric.name);
            assert_eq!(metric.kind == MetricKind::Counter, metric.name.ends_with("_total"), "{}", metric.name);
            assert_eq!(metric.kind == MetricKind::Histogram, metric.name.ends_with("_seconds"), "{}", metric.name);
            assert!(metric.help.ends_with('.'), "{} is described by a sentence", metric.name);
        }
    }
}
