//! How a job looks: whole for scripts, and as one value for each thing that people ask about.

use hapax::clock::Micros;
use hapax::model::{Claimed, JobRecord, KeyRecord, RefusalRecord, RunRecord};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::time::Iso;

/// The payload as JSON in JSON, byte for byte.
#[derive(Serialize)]
#[serde(untagged)]
enum Payload {
    Json(Box<RawValue>),
    /// What plain SQL wrote past every check.
    Text(String),
}

/// A job for scripts.
pub(super) fn job(job: &JobRecord) -> impl Serialize {
    #[derive(Serialize)]
    struct View {
        payload: Payload,
        #[serde(flatten)]
        rest: Value,
    }
    let text = job.payload.as_str().to_owned();
    let payload = RawValue::from_string(text.clone()).map_or(Payload::Text(text), Payload::Json);
    View { payload, rest: rest(job) }
}

fn rest(job: &JobRecord) -> Value {
    json!({
        "id": job.id,
        "queue": job.queue,
        "kind": job.kind,
        "state": job.state,
        "payload_version": job.payload_version,
        "priority": job.priority,
        "due_at": Iso(job.due_at),
        "enqueued_at": Iso(job.enqueued_at),
        "once_key": job.once.as_ref().map(hapax::OnceKey::value),
        "fingerprint": job.fingerprint,
        "guarantee": job.guarantee,
        "retry": job.retry,
        "run_timeout_ms": job.run_timeout_ms,
        "keep_ms": job.keep_ms,
        "keep_key_ms": job.keep_key_ms,
        "fence": job.fence,
        "claim": job.claim.as_ref().map(claim),
        "runs": job.runs,
        "failures": job.failures,
        "takeovers": job.takeovers,
        "suspect": job.suspect,
        "cancel_requested": job.cancel_requested,
        "progress": job.progress,
        "result": job.result,
        "reason": job.reason,
        "finished_at": time(job.finished_at),
        "purge_at": time(job.purge_at),
        "refused": job.refused,
    })
}

fn claim(claim: &Claimed) -> Value {
    json!({
        "instance": claim.instance,
        "claim": claim.claim,
        "at": Iso(claim.at),
        "started_at": time(claim.started_at),
    })
}

/// An ended run for scripts.
pub(super) fn run(run: &RunRecord) -> Value {
    json!({
        "number": run.number,
        "fence": run.fence,
        "instance": run.instance,
        "started_at": time(run.started_at),
        "ended_at": Iso(run.ended_at),
        "outcome": run.outcome,
        "detail": run.detail,
    })
}

/// A once key for scripts.
pub(super) fn key(key: &KeyRecord) -> Value {
    json!({
        "boundary": key.key.boundary(),
        "scope": key.key.scope(),
        "value": key.key.value(),
        "state": key.state,
        "holder": key.holder,
        "since": Iso(key.since),
        "ended_at": time(key.ended_at),
        "keep_until": time(key.keep_until),
        "refused": key.refused,
        "last_refused_at": time(key.last_refused_at),
    })
}

/// A refused write for scripts.
pub(super) fn refusal(refusal: &RefusalRecord) -> Value {
    json!({ "at": Iso(refusal.at), "verb": refusal.verb, "fence": refusal.fence })
}

fn time(at: Option<Micros>) -> Option<Iso> {
    at.map(Iso)
}
