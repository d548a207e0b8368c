//! The file against the law: the same steps on both, every answer and every view compared.

use std::time::Duration;

use hapax::clock::{Clock, Micros};
use hapax::id::{AcquisitionId, Boundary, Fence, Fingerprint, OnceKey, Payload};
use hapax::model::observe::{Answer, Command};
use hapax::model::{
    ClaimRequest, Due, End, Finish, Guarantee, JobFilter, JobState, KeyClaim, LockAnswer, LockRef, LockRequest, Model,
    NewInstance, NewJob, OnceAnswer, OnceEnd, OnceRequest, Refusal, Release, Resolution, RetryPolicy, RunOutcome,
    RunRef,
};
use hapax::store::sqlite::SqliteStore;
use hapax::store::{Inspect, Jobs, Leases, Once, Operate, Workers};
use hapax::{ClaimId, Error, InstanceId, JobId};

use super::{name, open_with, place};

/// Carries out a command on a store.
async fn perform(store: &SqliteStore, command: Command) -> Result<Answer, Error> {
    use Command as C;
    let answer = match command {
        C::Enqueue(jobs) => Answer::Enqueued(store.enqueue(jobs).await?),
        C::Claim(request) => Answer::Claimed(store.claim(request).await?),
        C::Start(runs) => Answer::Settled(store.start(runs).await?),
        C::Finish(finishes) => Answer::Settled(store.finish(finishes).await?),
        C::Release(instance, what) => Answer::Released(store.release(instance, what).await?),
        C::Progress(run, text) => Answer::Settled(vec![store.progress(run, text).await?]),
        C::Verdict(runs) => Answer::Verdicts(store.verdict(runs).await?),
        C::Register(new) => store.register(new).await.map(|()| Answer::Unit)?,
        C::Heartbeat(id, started) => Answer::Heartbeat(store.heartbeat(id, started).await?),
        C::Leave(id) => Answer::Reaped(store.leave(id).await?),
        C::Reap(by, limit) => Answer::Reaped(store.reap(by, limit).await?),
        C::Prune(limit) => Answer::Pruned(store.prune(limit).await?),
        C::AcquireLock(request) => Answer::Lock(store.acquire_lock(request).await?),
        C::RenewLock(lock, ms) => store.renew_lock(lock, ms).await.map(|()| Answer::Unit)?,
        C::ReleaseLock(lock) => store.release_lock(lock).await.map(|()| Answer::Unit)?,
        C::ClaimOnce(request) => Answer::Once(store.claim_once(request).await?),
        C::RenewOnce(key, fence, ms) => store.renew_once(key, fence, ms).await.map(|()| Answer::Unit)?,
        C::FinishOnce(key, fence, end, ms) => store.finish_once(key, fence, end, ms).await.map(|()| Answer::Unit)?,
        C::FindOnce(key) => Answer::Key(store.find_once(key).await?),
        C::Cancel(id, reason) => Answer::State(store.cancel(id, reason).await?),
        C::Retry(id) => Answer::State(store.retry(id).await?),
        C::Park(id, reason) => Answer::State(store.park(id, reason).await?),
        C::Resolve(id, found) => Answer::State(store.resolve(id, found).await?),
        C::Pause(queue, reason) => store.pause(queue, reason).await.map(|()| Answer::Unit)?,
        C::Resume(queue) => store.resume(queue).await.map(|()| Answer::Unit)?,
        C::Job(id) => Answer::Job(store.job(id).await?.map(Box::new)),
        _ => unreachable!("the generator makes no such command"),
    };
    Ok(answer)
}

/// Makes commands that meet each other: few names, few ids, and now and then one that is wrong.
struct Generator {
    rng: fastrand::Rng,
    instances: Vec<InstanceId>,
    jobs: Vec<JobId>,
    runs: Vec<RunRef>,
    claims: Vec<ClaimId>,
    locks: Vec<LockRef>,
    acquisitions: Vec<AcquisitionId>,
    keys: Vec<(OnceKey, Fence)>,
}

impl Generator {
    fn new(seed: u64) -> Self {
        let rng = fastrand::Rng::with_seed(seed);
        let (instances, jobs, runs, claims) = (vec![InstanceId::new()], vec![JobId::new()], Vec::new(), Vec::new());
        let acquisitions = (0..6).map(|_| AcquisitionId::new()).collect();
        Self { rng, instances, jobs, runs, claims, locks: Vec::new(), acquisitions, keys: Vec::new() }
    }

    fn any<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        // Mostly the newest: those still live.
        let near = if self.rng.u8(..) < 200 { of.len().min(3) } else { of.len() };
        (!of.is_empty()).then(|| of[of.len() - 1 - self.rng.usize(..near)].clone())
    }

    fn job_id(&mut self) -> JobId {
        let jobs = std::mem::take(&mut self.jobs);
        let id = self.any(&jobs).expect("never empty");
        self.jobs = jobs;
        id
    }

    fn instance_id(&mut self) -> InstanceId {
        let instances = std::mem::take(&mut self.instances);
        let id = self.any(&instances).expect("never empty");
        self.instances = instances;
        id
    }

    fn run(&mut self) -> RunRef {
        let runs = std::mem::take(&mut self.runs);
        let run = self.any(&runs).unwrap_or(RunRef { job: JobId::new(), fence: Fence::from_i64(1) });
        self.runs = runs;
        if self.rng.u8(..) < 12 { RunRef { fence: Fence::from_i64(1), ..run } } else { run }
    }

    fn some_runs(&mut self) -> Vec<RunRef> {
        (0..self.rng.usize(..4)).map(|_| self.run()).collect()
    }

    fn key(&mut self, boundary: Boundary) -> OnceKey {
        let scope = if boundary == Boundary::Enqueue { "k" } else { "s" };
        OnceKey::new(boundary, name(scope), &format!("key-{}", self.rng.u8(..5))).expect("legal")
    }

    fn key_claim(&mut self, boundary: Boundary, now: Micros) -> KeyClaim {
        KeyClaim {
            key: self.key(boundary),
            fingerprint: (self.rng.u8(..4) == 0).then(|| Fingerprint::of(&[self.rng.u8(..2)])),
            keep_ms: self.rng.u64(..60_000),
            made_at: (self.rng.u8(..4) == 0).then(|| Micros(now.0 - self.rng.i64(..100_000_000))),
        }
    }

    fn new_job(&mut self, now: Micros) -> NewJob {
        let repeated = self.rng.u8(..) < 20;
        let id = if repeated { self.job_id() } else { JobId::new() };
        self.jobs.push(id);
        NewJob {
            id,
            queue: name(["q", "r"][self.rng.usize(..2)]),
            kind: name(["k", "l", "m"][self.rng.usize(..3)]),
            payload: Payload::new(["{}", r#""\u0000""#, " [1 , 2]"][self.rng.usize(..3)]).expect("JSON"),
            payload_version: self.rng.u16(..),
            priority: self.rng.i16(-2..3),
            due: match self.rng.u8(..4) {
                0 => Due::InMs(self.rng.u64(..20_000)),
                1 => Due::At(Micros(now.0 + self.rng.i64(-9_000_000..9_000_000))),
                _ => Due::Now,
            },
            once: (self.rng.u8(..3) == 0).then(|| self.key_claim(Boundary::Enqueue, now)),
            guarantee: Guarantee::ALL[self.rng.usize(..5)],
            retry: RetryPolicy { max_attempts: self.rng.u32(1..4), base_ms: 500, cap_ms: 4_000, jitter_percent: 0 },
            run_timeout_ms: [1_500, 100_000][self.rng.usize(..2)],
            keep_ms: self.rng.u64(..30_000),
        }
    }

    fn end(&mut self) -> End {
        let outcomes = [RunOutcome::Failed, RunOutcome::Unknown, RunOutcome::TimedOut, RunOutcome::Snoozed];
        match self.rng.u8(..6) {
            0 => End::Park { reason: "parked".into() },
            1 => End::Cancelled { reason: "stopped".into() },
            2 | 3 => End::Again {
                outcome: outcomes[self.rng.usize(..4)],
                delay_ms: [0, 700, 5_000][self.rng.usize(..3)],
                detail: "failed".into(),
            },
            _ => End::Done { result: (self.rng.u8(..2) == 0).then(|| "result".into()) },
        }
    }

    fn claim(&mut self) -> ClaimRequest {
        let claims = std::mem::take(&mut self.claims);
        let claim = if self.rng.u8(..) < 20 { self.any(&claims) } else { None }.unwrap_or_default_id();
        self.claims = claims;
        self.claims.push(claim);
        let mut queues = vec![(name("q"), self.rng.u32(..4)), (name("r"), self.rng.u32(..3))];
        self.rng.shuffle(&mut queues);
        let kinds = if self.rng.bool() { vec![name("k"), name("l"), name("m")] } else { vec![name("l")] };
        ClaimRequest { instance: self.instance_id(), claim, queues, kinds, suspect: self.rng.bool() }
    }

    fn register(&mut self) -> NewInstance {
        let id = if self.rng.u8(..) < 40 { self.instance_id() } else { InstanceId::new() };
        self.instances.push(id);
        NewInstance {
            id,
            name: name("host:7"),
            version: "1".into(),
            queues: vec![name("q"), name("s")],
            kinds: vec![name("k")],
            lease_ms: self.rng.u64(4_000..30_000),
        }
    }

    fn lock(&mut self) -> LockRef {
        let locks = std::mem::take(&mut self.locks);
        let lock = self.any(&locks);
        self.locks = locks;
        lock.unwrap_or(LockRef { name: name("none"), slot: 0, fence: Fence::from_i64(1) })
    }

    fn once_key(&mut self) -> (OnceKey, Fence) {
        let keys = std::mem::take(&mut self.keys);
        let key = self.any(&keys);
        self.keys = keys;
        key.unwrap_or((self.key(Boundary::Claim), Fence::from_i64(1)))
    }

    fn command(&mut self, now: Micros) -> Command {
        match self.rng.u8(..64) {
            0..=9 => Command::Enqueue((0..self.rng.usize(1..5)).map(|_| self.new_job(now)).collect()),
            10..=19 => Command::Claim(self.claim()),
            20..=22 => Command::Start(self.some_runs()),
            23..=30 => {
                let runs = self.some_runs();
                Command::Finish(runs.into_iter().map(|run| Finish { run, end: self.end() }).collect())
            }
            31 => Command::Release(self.instance_id(), Release::Runs(self.some_runs())),
            32 => {
                let claims = self.claims.clone();
                let claim = self.any(&claims).unwrap_or_default_id();
                Command::Release(self.instance_id(), Release::Claim(claim))
            }
            33 => Command::Progress(self.run(), "half".into()),
            34 => Command::Verdict(self.some_runs()),
            35..=38 => Command::Register(self.register()),
            39..=41 => Command::Heartbeat(self.instance_id(), self.some_runs()),
            42 => Command::Leave(self.instance_id()),
            43..=45 => Command::Reap(self.instance_id(), self.rng.u32(1..5)),
            46 => Command::Prune(1_000), // Which rows a smaller bite takes is the store's to choose.
            47 => Command::Job(self.job_id()),
            _ => self.rarer(now),
        }
    }

    fn rarer(&mut self, now: Micros) -> Command {
        let acquisition = self.acquisitions[self.rng.usize(..6)];
        match self.rng.u8(..16) {
            0 | 1 => Command::AcquireLock(LockRequest {
                name: name(["a", "b"][self.rng.usize(..2)]),
                permits: self.rng.u32(1..4),
                lease_ms: self.rng.u64(1_000..20_000),
                acquisition,
                holder: name("me"),
            }),
            2 => Command::RenewLock(self.lock(), self.rng.u64(1_000..20_000)),
            3 => Command::ReleaseLock(self.lock()),
            4..=6 => Command::ClaimOnce(OnceRequest {
                claim: self.key_claim(Boundary::Claim, now),
                lease_ms: self.rng.u64(1_000..20_000),
                acquisition,
                holder: name("me"),
            }),
            7 => {
                let (key, fence) = self.once_key();
                Command::RenewOnce(key, fence, self.rng.u64(1_000..20_000))
            }
            8 => {
                let (key, fence) = self.once_key();
                let done = OnceEnd::Done { result: Some("answer".into()) };
                let end = if self.rng.bool() { done } else { OnceEnd::Failed { error: "broke".into() } };
                Command::FinishOnce(key, fence, end, self.rng.u64(..30_000))
            }
            9 => {
                let boundary = if self.rng.bool() { Boundary::Claim } else { Boundary::Enqueue };
                Command::FindOnce(self.key(boundary))
            }
            10 => Command::Cancel(self.job_id(), "not wanted".into()),
            11 => Command::Retry(self.job_id()),
            12 => Command::Park(self.job_id(), "wait".into()),
            13 => {
                let found = [Resolution::Done, Resolution::NotDone, Resolution::Retry][self.rng.usize(..3)];
                Command::Resolve(self.job_id(), found)
            }
            14 => Command::Pause(name(["q", "t"][self.rng.usize(..2)]), "holiday".into()),
            _ => Command::Resume(name(["q", "t"][self.rng.usize(..2)])),
        }
    }

    /// Remembers what an answer gave, so that later commands can use it.
    fn learn(&mut self, command: &Command, answer: &Result<Answer, Refusal>) {
        match (command, answer) {
            (_, Ok(Answer::Claimed(claimed))) => {
                let run = |job: &hapax::model::JobRecord| RunRef { job: job.id, fence: job.fence.expect("claimed") };
                self.runs.extend(claimed.jobs.iter().map(run));
            }
            (_, Ok(Answer::Lock(LockAnswer::Granted(lock)))) => self.locks.push(lock.clone()),
            (Command::ClaimOnce(request), Ok(Answer::Once(OnceAnswer::Claimed { fence, .. }))) => {
                self.keys.push((request.claim.key.clone(), *fence));
            }
            _ => {}
        }
    }
}

trait OrNew {
    fn unwrap_or_default_id(self) -> ClaimId;
}

impl OrNew for Option<ClaimId> {
    fn unwrap_or_default_id(self) -> ClaimId {
        self.unwrap_or_else(ClaimId::new)
    }
}

/// Every view that people have, on both sides.
async fn compare_views(store: &SqliteStore, model: &Model, (clock, generator): (&Clock, &mut Generator)) {
    let now = clock.now();
    assert_eq!(store.queues().await.expect("read"), model.queues());
    assert_eq!(store.instances().await.expect("read"), model.instances(now));
    assert_eq!(store.counters().await.expect("read"), model.counters());
    assert_eq!(store.refusals(1_000).await.expect("read"), model.refusals(1_000));
    assert_eq!(store.lock_holders(None).await.expect("read"), model.lock_holders(now, None));
    let request = generator.claim();
    assert_eq!(store.peek(request.clone()).await.expect("read"), model.peek(now, &request));
    let rng = &mut generator.rng;
    let filter = JobFilter {
        queue: rng.bool().then(|| name(["q", "r"][rng.usize(..2)])),
        kind: rng.bool().then(|| name(["k", "l"][rng.usize(..2)])),
        state: rng.bool().then(|| JobState::ALL[rng.usize(..7)]),
        before: rng.bool().then(|| generator.jobs[rng.usize(..generator.jobs.len())]),
        limit: rng.u32(..50),
    };
    let page = store.list(filter.clone()).await.expect("read");
    assert_eq!(page, model.list(&filter), "{filter:?}");
    for job in page {
        let (record, runs) = store.job(job.id).await.expect("read").expect("listed");
        assert_eq!((record, &*runs), (job.clone(), model.runs_of(job.id)));
    }
}

async fn rounds(seed: u64, steps: usize) {
    let (place, clock) = (place(), Clock::movable());
    let mut store = open_with(&place, &clock).await;
    let (mut model, mut generator) = (Model::new(), Generator::new(seed));
    for step in 0..steps {
        match generator.rng.u8(..16) {
            0..=3 => clock.advance(Duration::from_millis(generator.rng.u64(..1_000))),
            4 => clock.advance(Duration::from_secs(generator.rng.u64(..12))),
            5 if generator.rng.u8(..40) == 0 => clock.advance(Duration::from_hours(24 * 8)),
            6 if generator.rng.u8(..20) == 0 => {
                clock.set_wall(Micros(clock.now().wall.0 + generator.rng.i64(-5_000_000..5_000_000)));
            }
            _ => {}
        }
        if generator.rng.u8(..100) == 0 {
            // Nothing that counts is in memory.
            hapax::store::Store::close(&store).await;
            store = open_with(&place, &clock).await;
        }
        let command = generator.command(clock.now().wall);
        let answer = match perform(&store, command.clone()).await {
            Ok(answer) => Ok(answer),
            Err(error) => match error.refusal() {
                Some(refusal) => Err(refusal.clone()),
                None => panic!("seed {seed}, step {step}: {command:?}: {error:?}"),
            },
        };
        generator.learn(&command, &answer);
        if let Err(text) = model.observe(clock.now(), &command, &answer) {
            panic!("seed {seed}, step {step}: {text}");
        }
        model.check();
        if step % 8 == 0 {
            compare_views(&store, &model, (&clock, &mut generator)).await;
        }
    }
}

#[tokio::test]
async fn every_answer_is_lawful() {
    let seeds: u64 = std::env::var("HAPAX_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(4);
    for seed in 0..seeds {
        rounds(seed, 400).await;
    }
}
