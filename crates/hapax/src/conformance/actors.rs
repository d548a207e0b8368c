//! Who speaks the random steps: knows which ids it made and what it was granted, and so turns a step into a command.

use super::script::{Ago, Asking, EndOp, FORMER, KeyOp, NewOp, Op, RunAgo};
use super::world::{bare, instance, job, key, lock, name, once};
use crate::clock::{Micros, Now};
use crate::id::{AcquisitionId, ClaimId, Fence, Fingerprint, InstanceId, JobId, Name, OnceKey};
use crate::model::ledger::KeyFilter;
use crate::model::observe::{Answer, Command};
use crate::model::{
    ClaimRequest, Due, End, Finish, Guarantee, JobFilter, KeyClaim, LockAnswer, LockRef, LockRequest, NewInstance,
    NewJob, OnceAnswer, OnceEnd, OnceRequest, Refusal, Release, RetryPolicy, RunRef,
};

/// What one caller knows.
#[derive(Clone, Debug, Default)]
pub(super) struct Actor {
    /// Keeps the ids of several callers apart.
    salt: u64,
    made: u64,
    pub(super) jobs: Vec<JobId>,
    hosts: [Option<InstanceId>; 2],
    former: Option<InstanceId>,
    claims: Vec<ClaimRequest>,
    runs: Vec<RunRef>,
    locks: Vec<LockRef>,
    grants: Vec<(OnceKey, Fence)>,
}

/// The one that came `ago` before the last.
fn ago<T: Clone>(list: &[T], ago: Ago) -> Option<T> {
    (!list.is_empty()).then(|| list[list.len() - 1 - usize::from(ago) % list.len()].clone())
}

/// Queue, kind or lock number `n`.
fn numbered(what: &str, n: u8) -> Name {
    name(&format!("{what}{n}"))
}

/// The keys of the small world: those of jobs, and two bare ones that jobs may want as well.
pub(super) fn key_number(n: u8) -> OnceKey {
    if n < 2 { key(&format!("key{n}")) } else { bare(&format!("key{n}")) }
}

/// Every lock of the small world.
pub(super) const KEYS: u8 = 4;

impl Actor {
    /// One who knows what this one knows, and makes ids of its own.
    pub(super) fn apart(&self, salt: u64) -> Self {
        Self { salt, ..self.clone() }
    }

    /// Ids that are the same in every run of the same script, and whose order says nothing of their age.
    fn id(&mut self) -> uuid::Uuid {
        self.made += 1;
        let (high, low) = (self.salt.wrapping_add(1), self.made.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        uuid::Uuid::from_u64_pair(low, high)
    }

    fn host(&self, n: u8) -> InstanceId {
        let known = if n == FORMER { self.former } else { self.hosts[usize::from(n)] };
        known.unwrap_or(InstanceId::from_uuid(uuid::Uuid::nil()))
    }

    fn job(&self, of: Ago) -> JobId {
        ago(&self.jobs, of).unwrap_or(JobId::from_uuid(uuid::Uuid::nil()))
    }

    fn run(&self, (of, more): RunAgo) -> RunRef {
        let run = ago(&self.runs, of);
        let run = run.unwrap_or(RunRef { job: self.job(of), fence: Fence::from_i64(1) });
        RunRef { fence: Fence::from_i64(run.fence.as_i64() + i64::from(more)), ..run }
    }

    fn runs(&self, of: &[RunAgo]) -> Vec<RunRef> {
        of.iter().map(|of| self.run(*of)).collect()
    }

    fn lock(&self, of: Ago) -> LockRef {
        let never = LockRef { name: numbered("lock", 0), slot: 0, fence: Fence::from_i64(1) };
        ago(&self.locks, of).unwrap_or(never)
    }

    fn grant(&self, of: Ago) -> (OnceKey, Fence) {
        ago(&self.grants, of).unwrap_or((key_number(2), Fence::from_i64(1)))
    }

    /// The command that a step stands for, now; nothing for a move of the clock.
    pub(super) fn command(&mut self, op: &Op, now: Now) -> Option<Command> {
        let why = || "test".to_owned();
        Some(match op {
            Op::Enqueue(jobs) => Command::Enqueue(jobs.iter().map(|new| self.new_job(new, now)).collect()),
            Op::Peek(asking) => Command::Peek(self.wish(asking)),
            Op::Claim(asking) => Command::Claim(self.wish(asking)),
            Op::Start(runs) => Command::Start(self.runs(runs)),
            Op::Finish(ends) => Command::Finish(ends.iter().map(|(of, end)| finish(self.run(*of), end)).collect()),
            Op::ReleaseClaim(host, of) => {
                let wish = ago(&self.claims, *of);
                let claim = wish.as_ref().map_or(ClaimId::from_uuid(uuid::Uuid::nil()), |wish| wish.claim);
                let by = wish.map(|wish| wish.instance).filter(|_| *host == 0);
                Command::Release(by.unwrap_or_else(|| self.host(*host)), Release::Claim(claim))
            }
            Op::ReleaseRuns(host, runs) => Command::Release(self.host(*host), Release::Runs(self.runs(runs))),
            Op::Progress(run, n) => Command::Progress(self.run(*run), n.to_string()),
            Op::Verdict(runs) => Command::Verdict(self.runs(runs)),
            Op::Register { host, anew, lease_ms } => Command::Register(self.new_instance(*host, *anew, *lease_ms)),
            Op::Heartbeat(host, runs) => Command::Heartbeat(self.host(*host), self.runs(runs)),
            Op::Leave(host) => Command::Leave(self.host(*host)),
            Op::Reap(host, limit) => Command::Reap(self.host(*host), *limit),
            Op::Prune => Command::Prune(1_000),
            Op::Cancel(of) => Command::Cancel(self.job(*of), why()),
            Op::Retry(of) => Command::Retry(self.job(*of)),
            Op::Park(of) => Command::Park(self.job(*of), why()),
            Op::Resolve(of, found) => Command::Resolve(self.job(*of), *found),
            Op::Pause(queue) => Command::Pause(numbered("queue", *queue), why()),
            Op::Resume(queue) => Command::Resume(numbered("queue", *queue)),
            Op::Advance(_) | Op::SetWallBy(_) => return None,
            other => self.command_on_leases(other, now),
        })
    }

    /// Locks, bare keys, and what only reads.
    fn command_on_leases(&self, op: &Op, now: Now) -> Command {
        match op {
            Op::AcquireLock { name, permits, lease_ms, acquisition } => Command::AcquireLock(LockRequest {
                permits: *permits,
                lease_ms: *lease_ms,
                acquisition: acquisition_number(*acquisition),
                ..lock(numbered("lock", *name).as_str())
            }),
            Op::RenewLock(of, lease_ms) => Command::RenewLock(self.lock(*of), *lease_ms),
            Op::ReleaseLock(of) => Command::ReleaseLock(self.lock(*of)),
            Op::LockHolders(name) => Command::LockHolders(name.map(|n| numbered("lock", n))),
            Op::ClaimOnce { key, lease_ms, acquisition } => Command::ClaimOnce(OnceRequest {
                claim: key_claim(key, now),
                lease_ms: *lease_ms,
                acquisition: acquisition_number(*acquisition),
                ..once("-")
            }),
            Op::RenewOnce(of, lease_ms) => {
                let (key, fence) = self.grant(*of);
                Command::RenewOnce(key, fence, *lease_ms)
            }
            Op::FinishOnce { grant, done, keep_ms } => {
                let (key, fence) = self.grant(*grant);
                Command::FinishOnce(key, fence, once_end(*done), *keep_ms)
            }
            Op::FindOnce(n) => Command::FindOnce(key_number(*n)),
            Op::ListOnce { prefix, after, limit } => {
                let value = |n: &Option<u8>| n.map_or_else(String::new, |n| key_number(n).value().to_owned());
                let (scope, prefix, after) = (bare("-").scope().clone(), value(prefix), value(after));
                Command::ListOnce(KeyFilter { scope, prefix, after, limit: *limit })
            }
            Op::ForgetOnce(n) => Command::ForgetOnce(key_number(*n)),
            Op::ResolveOnce { key, done, keep_ms } => Command::ResolveOnce(key_number(*key), once_end(*done), *keep_ms),
            Op::BreakLock(n) => Command::BreakLock(numbered("lock", *n), "test".to_owned()),
            Op::Job(of) => Command::Job(self.job(*of)),
            Op::List { queue, state, before, limit } => Command::List(JobFilter {
                queue: queue.map(|n| numbered("queue", n)),
                kind: None,
                state: *state,
                before: before.map(|of| self.job(of)),
                limit: *limit,
            }),
            Op::Queues => Command::Queues,
            Op::Instances => Command::Instances,
            Op::Refusals => Command::Refusals(1_000),
            Op::Now => Command::Now,
            _ => Command::Counters,
        }
    }

    fn new_job(&mut self, new: &NewOp, now: Now) -> NewJob {
        let made = JobId::from_uuid(self.id());
        let id = new.same_id_as.and_then(|of| ago(&self.jobs, of)).unwrap_or(made);
        self.jobs.push(id);
        let due = match new.due_in_ms {
            0 => Due::Now,
            ms if ms > 0 => Due::InMs(ms.unsigned_abs()),
            ms => Due::At(Micros(now.wall.0 + ms * 1_000)),
        };
        NewJob {
            id,
            queue: numbered("queue", new.queue),
            kind: numbered("kind", new.kind),
            priority: new.priority,
            due,
            once: new.key.as_ref().map(|key| key_claim(key, now)),
            guarantee: Guarantee::ALL[usize::from(new.guarantee)],
            retry: RetryPolicy { max_attempts: new.max_attempts, base_ms: 500, cap_ms: 2_000, jitter_percent: 20 },
            run_timeout_ms: new.run_timeout_ms,
            keep_ms: new.keep_ms,
            ..job()
        }
    }

    fn new_instance(&mut self, host: u8, anew: bool, lease_ms: u64) -> NewInstance {
        let made = InstanceId::from_uuid(self.id());
        let before = self.hosts[usize::from(host)];
        let id = before.filter(|_| !anew).unwrap_or(made);
        self.former = before.filter(|before| *before != id).or(self.former);
        self.hosts[usize::from(host)] = Some(id);
        NewInstance {
            id,
            queues: vec![numbered("queue", host)],
            kinds: vec![numbered("kind", host)],
            lease_ms,
            ..instance()
        }
    }

    fn wish(&mut self, asking: &Asking) -> ClaimRequest {
        if let Some(earlier) = asking.same_as.and_then(|of| ago(&self.claims, of)) {
            return earlier;
        }
        let claim = ClaimId::from_uuid(self.id());
        let wish = ClaimRequest {
            instance: self.host(asking.host),
            claim,
            queues: asking.queues.iter().map(|(queue, limit)| (numbered("queue", *queue), *limit)).collect(),
            kinds: asking.kinds.iter().map(|kind| numbered("kind", *kind)).collect(),
            suspect: asking.suspect,
        };
        self.claims.push(wish.clone());
        wish
    }

    /// Remembers what an answer granted.
    pub(super) fn learn(&mut self, command: &Command, answer: &Result<Answer, Refusal>) {
        match (command, answer) {
            (_, Ok(Answer::Claimed(claimed))) => {
                let runs = claimed.jobs.iter().map(super::world::run_of);
                let known = self.runs.clone();
                self.runs.extend(runs.filter(|run| !known.contains(run)));
            }
            (_, Ok(Answer::Lock(LockAnswer::Granted(lock)))) => self.locks.push(lock.clone()),
            (Command::ClaimOnce(wish), Ok(Answer::Once(OnceAnswer::Claimed { fence, .. }))) => {
                self.grants.push((wish.claim.key.clone(), *fence));
            }
            _ => {}
        }
    }
}

fn finish(run: RunRef, end: &EndOp) -> Finish {
    let why = || "on purpose".to_owned();
    let end = match end {
        EndOp::Done => End::Done { result: Some("1".to_owned()) },
        EndOp::Again(outcome, delay_ms) => End::Again { outcome: *outcome, delay_ms: *delay_ms, detail: why() },
        EndOp::Park => End::Park { reason: why() },
        EndOp::Cancelled => End::Cancelled { reason: why() },
    };
    Finish { run, end }
}

fn once_end(done: bool) -> OnceEnd {
    if done { OnceEnd::Done { result: None } } else { OnceEnd::Failed { error: "no".to_owned() } }
}

fn key_claim(op: &KeyOp, now: Now) -> KeyClaim {
    let made_at = |ms: u64| Micros(now.wall.0 - i64::try_from(ms * 1_000).unwrap_or(0));
    KeyClaim {
        key: key_number(op.key),
        fingerprint: op.fingerprint.map(|n| Fingerprint::of(&[n])),
        keep_ms: op.keep_ms,
        made_at: op.made_ms_ago.map(made_at),
    }
}

/// One of a few acquisitions, so that wishes are repeated, and by others too.
fn acquisition_number(n: u8) -> AcquisitionId {
    AcquisitionId::from_uuid(uuid::Uuid::from_u64_pair(7, u64::from(n)))
}

/// Questions whose answers show all that a store keeps.
pub(super) fn final_questions(jobs: &[JobId]) -> Vec<Command> {
    let mut questions: Vec<Command> = jobs.iter().map(|id| Command::Job(*id)).collect();
    questions.extend((0..KEYS).map(|n| Command::FindOnce(key_number(n))));
    questions.push(Command::List(JobFilter { limit: 1_000, ..JobFilter::default() }));
    let scope = bare("-").scope().clone();
    questions.push(Command::ListOnce(KeyFilter { scope, prefix: String::new(), after: String::new(), limit: 1_000 }));
    questions.extend([Command::LockHolders(None), Command::Queues, Command::Instances, Command::Counters]);
    questions
}
