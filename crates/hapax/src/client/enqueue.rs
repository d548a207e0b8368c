//! Enqueueing: one job or many, now or later, with a once key, by itself or in the caller's own transaction.

use std::time::Duration;

use serde::Serialize;

use super::Hapax;
use super::settle::settle;
use crate::clock::Micros;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Boundary, Fingerprint, JobId, Name, OnceKey, Payload};
use crate::model::{Due, EnqueueAnswer, Guarantee, KeyClaim, KeyHolder, NewJob, RetryPolicy};
use crate::store::EnqueueIn;
use crate::task::Job;

/// How long an ended job is kept unless told otherwise: 7 days.
const KEEP_JOB: Duration = Duration::from_hours(7 * 24);
/// How long the once key of a done job is refused unless told otherwise: 30 days.
const KEEP_KEY: Duration = Duration::from_hours(30 * 24);

/// What became of an enqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Enqueued {
    /// The job that stands for the work: the new one, or the one that has the once key.
    pub id: JobId,
    /// Whether the work was there before. Nothing was enqueued then; the refusal is counted.
    pub existed: bool,
}

/// A job on its way into a store. Every setter may be called in any order; what is wrong comes out at the end.
///
/// ```
/// use std::time::Duration;
/// use hapax::Enqueue;
///
/// let reminder = Enqueue::new("send-reminder", r#"{"order":7}"#)
///     .queue("mail")
///     .once("reminder-7")
///     .due_in(Duration::from_mins(30));
/// # drop(reminder);
/// ```
#[derive(Debug)]
#[must_use = "nothing is enqueued until it is handed to `enqueue` or `enqueue_in`"]
pub struct Enqueue {
    kind: String,
    payload: Result<String>,
    queue: String,
    id: JobId,
    payload_version: u16,
    priority: i16,
    due: Due,
    key: Option<String>,
    fingerprint: Option<Fingerprint>,
    made_at: Option<Micros>,
    guarantee: Guarantee,
    retry: RetryPolicy,
    run_timeout: Duration,
    keep: Duration,
    keep_key: Duration,
}

impl Enqueue {
    /// A job of `kind` with a payload of JSON text, for work whose type this program does not have.
    pub fn new(kind: impl Into<String>, payload: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            payload: Ok(payload.into()),
            queue: "default".to_owned(),
            id: JobId::new(),
            payload_version: 1,
            priority: 0,
            due: Due::Now,
            key: None,
            fingerprint: None,
            made_at: None,
            guarantee: Guarantee::default(),
            retry: RetryPolicy::default(),
            run_timeout: Duration::from_mins(10),
            keep: KEEP_JOB,
            keep_key: KEEP_KEY,
        }
    }

    /// A job with the identity and defaults of its type.
    pub fn of<J: Job>(job: &J) -> Self {
        let payload = serde_json::to_string(job)
            .map_err(|e| Error::invalid("payload", format!("does not serialize: {e}"), "mend its Serialize"));
        Self {
            payload,
            queue: J::QUEUE.to_owned(),
            payload_version: J::PAYLOAD_VERSION,
            key: job.once_key(),
            guarantee: J::GUARANTEE,
            retry: J::RETRY,
            run_timeout: J::RUN_TIMEOUT,
            ..Self::new(J::KIND, "")
        }
    }

    /// Waits in this queue instead of the kind's own.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = queue.into();
        self
    }

    /// Made by the caller, so that a call whose answer was lost can be repeated even after a restart: for as long as
    /// the job lives, and for as long as it is [kept](Self::keep) after that.
    pub const fn id(mut self, id: JobId) -> Self {
        self.id = id;
        self
    }

    /// The work is wanted once: while a job with this key lives, and for the key's retention after it is done, the
    /// same key of the same kind is refused. 1 to 4,096 bytes, no control characters.
    pub fn once(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// What the work is, if the payload does not say it: the same key with another fingerprint is an error. The
    /// default is the payload itself.
    pub const fn fingerprint(mut self, fingerprint: Fingerprint) -> Self {
        self.fingerprint = Some(fingerprint);
        self
    }

    /// When the message behind the once key was made (wall clock, UTC). Older than the key's retention and unknown, it
    /// is quarantined: it may have taken effect before.
    pub const fn made_at(mut self, made_at: Micros) -> Self {
        self.made_at = Some(made_at);
        self
    }

    /// Smaller runs first; 0 unless told otherwise.
    pub const fn priority(mut self, priority: i16) -> Self {
        self.priority = priority;
        self
    }

    /// Not before `delay` has passed by the store's clock.
    pub fn due_in(mut self, delay: Duration) -> Self {
        self.due = Due::InMs(millis(delay));
        self
    }

    /// Not before this instant (wall clock, UTC).
    pub const fn due_at(mut self, at: Micros) -> Self {
        self.due = Due::At(at);
        self
    }

    /// What the "once" of its effect rests on.
    pub const fn guarantee(mut self, guarantee: Guarantee) -> Self {
        self.guarantee = guarantee;
        self
    }

    /// When a failed run is repeated, and how often.
    pub const fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// The longest that one run may take; at least 1 ms.
    pub const fn run_timeout(mut self, timeout: Duration) -> Self {
        self.run_timeout = timeout;
        self
    }

    /// How long the job is kept after it is done or cancelled; 7 days unless told otherwise, and never less than 10
    /// minutes.
    pub const fn keep(mut self, keep: Duration) -> Self {
        self.keep = keep;
        self
    }

    /// How long its once key is refused after it is done, whether or not the job is still kept; 30 days unless told
    /// otherwise.
    pub const fn keep_key(mut self, keep: Duration) -> Self {
        self.keep_key = keep;
        self
    }

    /// Enqueues it in a transaction of the caller's: there once that commits, never if it does not.
    ///
    /// # Errors
    /// As [`Hapax::enqueue`]. Whether the job is there is decided by the caller's commit.
    pub fn enqueue_in<C: EnqueueIn>(self, tx: C) -> C::Answer<Result<Enqueued>> {
        match self.into_job() {
            Err(error) => tx.answer(Err(error)),
            Ok(job) => {
                let key = key_text(&job);
                tx.enqueue_jobs(vec![job], move |answers| answer(answers?.into_iter().next(), key.as_deref()))
            }
        }
    }

    fn into_job(self) -> Result<NewJob> {
        let kind = Name::new("kind", &self.kind)?;
        let queue = Name::new("queue", &self.queue)?;
        let payload = Payload::new(&self.payload?)?;
        if self.retry.max_attempts == 0 {
            return Err(Error::invalid("retry.max_attempts", "is 0", "allow at least 1 attempt"));
        }
        if self.run_timeout < Duration::from_millis(1) {
            return Err(Error::invalid("run_timeout", "is below 1 ms", "allow each run some time"));
        }
        let once = match self.key {
            None => None,
            Some(key) => Some(KeyClaim {
                key: OnceKey::new(Boundary::Enqueue, kind.clone(), &key)?,
                fingerprint: Some(self.fingerprint.unwrap_or_else(|| Fingerprint::of(payload.as_str().as_bytes()))),
                keep_ms: millis(self.keep_key),
                made_at: self.made_at,
            }),
        };
        Ok(NewJob {
            id: self.id,
            queue,
            kind,
            payload,
            payload_version: self.payload_version,
            priority: self.priority,
            due: self.due,
            once,
            guarantee: self.guarantee,
            retry: self.retry,
            run_timeout_ms: millis(self.run_timeout),
            keep_ms: millis(self.keep),
        })
    }
}

impl<J: Job> From<J> for Enqueue {
    fn from(job: J) -> Self {
        Self::of(&job)
    }
}

/// Short forms for payload types: `CancelOrder { order: 7 }.once("order-7").due_in(delay)`.
pub trait JobExt: Job + Sized {
    /// See [`Enqueue::once`].
    fn once(self, key: impl Into<String>) -> Enqueue {
        Enqueue::of(&self).once(key)
    }

    /// See [`Enqueue::due_in`].
    fn due_in(self, delay: Duration) -> Enqueue {
        Enqueue::of(&self).due_in(delay)
    }

    /// See [`Enqueue::priority`].
    fn priority(self, priority: i16) -> Enqueue {
        Enqueue::of(&self).priority(priority)
    }

    /// See [`Enqueue::enqueue_in`].
    fn enqueue_in<C: EnqueueIn>(self, tx: C) -> C::Answer<Result<Enqueued>> {
        Enqueue::of(&self).enqueue_in(tx)
    }
}

impl<J: Job> JobExt for J {}

impl Hapax {
    /// Enqueues one job; acknowledged means kept.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for a broken limit; [`KeyReused`](ErrorKind::KeyReused) when the once key
    /// stands for other work; [`Quarantined`](ErrorKind::Quarantined) for a message older than its key's memory; and
    /// what the store can say. A duplicate is no error: see [`Enqueued::existed`].
    pub async fn enqueue(&self, job: impl Into<Enqueue>) -> Result<Enqueued> {
        let mut answers = self.enqueue_many([job.into()]).await?;
        answers.pop().unwrap_or_else(|| Err(no_answer()))
    }

    /// Enqueues many jobs in one transaction; each is answered for itself, in order.
    ///
    /// # Errors
    /// When one of them breaks a limit nothing is enqueued, and the error says which. Also what the store can say.
    pub async fn enqueue_many(&self, jobs: impl IntoIterator<Item = Enqueue>) -> Result<Vec<Result<Enqueued>>> {
        let jobs: Vec<NewJob> = jobs.into_iter().map(Enqueue::into_job).collect::<Result<_>>()?;
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<Option<String>> = jobs.iter().map(key_text).collect();
        let answers = settle(|| self.store().enqueue(jobs.clone())).await?;
        self.wake().poke();
        Ok(answers.into_iter().zip(keys).map(|(a, key)| answer(Some(a), key.as_deref())).collect())
    }
}

fn key_text(job: &NewJob) -> Option<String> {
    job.once.as_ref().map(|once| once.key.value().to_owned())
}

fn answer(answer: Option<EnqueueAnswer>, key: Option<&str>) -> Result<Enqueued> {
    let key = key.unwrap_or_default();
    match answer.ok_or_else(no_answer)? {
        EnqueueAnswer::Enqueued { id } => Ok(Enqueued { id, existed: false }),
        EnqueueAnswer::Existed { holder: KeyHolder::Job(id), .. } => Ok(Enqueued { id, existed: true }),
        EnqueueAnswer::Existed { holder: KeyHolder::Claim(who), .. } => {
            let what = format!("once key `{key}` is claimed by {who}, not by a job");
            Err(Error::did_not_happen(ErrorKind::KeyReused, what))
        }
        EnqueueAnswer::OtherFingerprint { holder, kept, given } => {
            let holder = match holder {
                KeyHolder::Job(id) => format!("job {id}"),
                KeyHolder::Claim(who) => format!("the claim of {who}"),
            };
            let what = format!(
                "once key `{key}` stands for other work: {holder} has fingerprint {kept}, this payload has {given}; \
                 use another key, or send the same payload"
            );
            Err(Error::did_not_happen(ErrorKind::KeyReused, what))
        }
        EnqueueAnswer::Quarantined { keep_ms } => {
            let what = format!(
                "the message behind once key `{key}` is older than the {keep_ms} ms that keys are remembered: it may \
                 have taken effect before; check by hand, then enqueue it without `made_at`"
            );
            Err(Error::did_not_happen(ErrorKind::Quarantined, what))
        }
    }
}

fn no_answer() -> Error {
    Error::may_have_happened(ErrorKind::Store, "the store gave no answer for this job")
}

/// Milliseconds, rounded up: what was asked for is never cut to nothing.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
