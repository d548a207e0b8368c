//! Random commands over a small world, so that they meet: few queues, kinds, keys, locks and instances; references to
//! earlier jobs, runs and grants by how long ago they came, the stale ones included.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Strategy, any};
use proptest::prop_oneof;
use proptest::sample::select;
use proptest::strategy::Just;

use super::world::{BEAT_MS, LEASE_MS};
use crate::model::job::KEEP_MS_MIN;
use crate::model::{JobState, Resolution, RunOutcome};

/// How long ago something came: 0 is the last one. Wraps around what there is.
pub(super) type Ago = u8;

/// A run of earlier, and what to add to its fence.
pub(super) type RunAgo = (Ago, i8);

/// One step: a command whose references are still open, or a move of the clock.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Enqueue(Vec<NewOp>),
    Peek(Asking),
    Claim(Asking),
    Start(Vec<RunAgo>),
    Finish(Vec<(RunAgo, EndOp)>),
    ReleaseClaim(u8, Ago),
    ReleaseRuns(u8, Vec<RunAgo>),
    Progress(RunAgo, u8),
    Verdict(Vec<RunAgo>),
    Register { host: u8, anew: bool, lease_ms: u64 },
    Heartbeat(u8, Vec<RunAgo>),
    Leave(u8),
    Reap(u8, u32),
    Prune,
    AcquireLock { name: u8, permits: u32, lease_ms: u64, acquisition: u8 },
    RenewLock(Ago, u64),
    ReleaseLock(Ago),
    LockHolders(Option<u8>),
    ClaimOnce { key: KeyOp, lease_ms: u64, acquisition: u8 },
    RenewOnce(Ago, u64),
    FinishOnce { grant: Ago, done: bool, keep_ms: u64 },
    FindOnce(u8),
    ListOnce { prefix: Option<u8>, after: Option<u8>, limit: u32 },
    ForgetOnce(u8),
    ResolveOnce { key: u8, done: bool, keep_ms: u64 },
    BreakLock(u8),
    Cancel(Ago),
    Retry(Ago),
    Park(Ago),
    Resolve(Ago, Resolution),
    Pause(u8),
    Resume(u8),
    Job(Ago),
    List { queue: Option<u8>, state: Option<JobState>, before: Option<Ago>, limit: u32 },
    Queues,
    Instances,
    Refusals,
    Counters,
    Now,
    Advance(u64),
    SetWallBy(i64),
}

/// A new job.
#[derive(Clone, Debug)]
pub(super) struct NewOp {
    pub(super) same_id_as: Option<Ago>,
    pub(super) queue: u8,
    pub(super) kind: u8,
    pub(super) priority: i16,
    pub(super) due_in_ms: i64,
    pub(super) key: Option<KeyOp>,
    pub(super) guarantee: u8,
    pub(super) max_attempts: u32,
    pub(super) run_timeout_ms: u64,
    pub(super) keep_ms: u64,
}

/// A wish for a key: of jobs, or a bare one.
#[derive(Clone, Debug)]
pub(super) struct KeyOp {
    pub(super) key: u8,
    pub(super) fingerprint: Option<u8>,
    pub(super) made_ms_ago: Option<u64>,
    pub(super) keep_ms: u64,
}

/// A wish for work.
#[derive(Clone, Debug)]
pub(super) struct Asking {
    pub(super) host: u8,
    pub(super) same_as: Option<Ago>,
    pub(super) queues: Vec<(u8, u32)>,
    pub(super) kinds: Vec<u8>,
    pub(super) suspect: bool,
}

/// Place of the guarantee in [`Guarantee::ALL`](crate::model::Guarantee::ALL).
const AT_MOST_ONCE: u8 = 3;

/// Instead of a present instance: the last one whose place another took.
pub(super) const FORMER: u8 = 2;

/// How a run ends.
#[derive(Clone, Debug)]
pub(super) enum EndOp {
    Done,
    Again(RunOutcome, u64),
    Park,
    Cancelled,
}

fn run_ago() -> impl Strategy<Value = RunAgo> {
    (0..5_u8, prop_oneof![20 => Just(0_i8), 1 => -1..=1_i8])
}

/// One of the two present instances, or the last one that was replaced.
fn host() -> impl Strategy<Value = u8> {
    prop_oneof![8 => 0..2_u8, 1 => Just(FORMER)]
}

fn keep_ms() -> impl Strategy<Value = u64> {
    select(vec![0, 1, 5_000, 3_600_000])
}

fn lease_ms() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(1_u64), 1 => Just(1_000), 6 => Just(10_000)]
}

fn key_op() -> impl Strategy<Value = KeyOp> {
    let made_ms_ago = option::weighted(0.2, select(vec![0, 4_999, 5_000, 3_600_000]));
    (0..4_u8, option::weighted(0.5, 0..2_u8), made_ms_ago, keep_ms())
        .prop_map(|(key, fingerprint, made_ms_ago, keep_ms)| KeyOp { key, fingerprint, made_ms_ago, keep_ms })
}

fn new_op() -> impl Strategy<Value = NewOp> {
    let place = (option::weighted(0.1, 0..4_u8), 0..2_u8, 0..2_u8, -1..=1_i16);
    let due_in_ms = prop_oneof![4 => Just(0), 1 => select(vec![-5_000, 1, 1_000, 20_000])];
    let limits = (0..5_u8, 1..=3_u32, select(vec![100, 5_000, 60_000]), keep_ms());
    (place, due_in_ms, option::weighted(0.4, key_op()), limits).prop_map(|(place, due_in_ms, key, limits)| {
        let (same_id_as, queue, kind, priority) = place;
        let (guarantee, max_attempts, run_timeout_ms, keep_ms) = limits;
        NewOp { same_id_as, queue, kind, priority, due_in_ms, key, guarantee, max_attempts, run_timeout_ms, keep_ms }
    })
}

fn asking() -> impl Strategy<Value = Asking> {
    let queues = prop_oneof![3 => Just(vec![(0, 3), (1, 3)]), 2 => vec((0..2_u8, 0..3_u32), 0..3)];
    let kinds = prop_oneof![4 => Just(vec![0, 1]), 1 => vec(0..2_u8, 0..2)];
    (host(), option::weighted(0.15, 0..3_u8), queues, kinds, any::<bool>())
        .prop_map(|(host, same_as, queues, kinds, suspect)| Asking { host, same_as, queues, kinds, suspect })
}

fn end_op() -> impl Strategy<Value = EndOp> {
    let outcomes = vec![RunOutcome::Failed, RunOutcome::Unknown, RunOutcome::TimedOut, RunOutcome::Snoozed];
    prop_oneof![
        3 => Just(EndOp::Done),
        3 => (select(outcomes), select(vec![0, 1, 1_000])).prop_map(|(outcome, delay)| EndOp::Again(outcome, delay)),
        1 => Just(EndOp::Park),
        1 => Just(EndOp::Cancelled),
    ]
}

/// What runs do and suffer.
fn of_jobs() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => vec(new_op(), 1..4).prop_map(Op::Enqueue),
        1 => asking().prop_map(Op::Peek),
        8 => asking().prop_map(Op::Claim),
        3 => vec(run_ago(), 1..3).prop_map(Op::Start),
        5 => vec((run_ago(), end_op()), 1..3).prop_map(Op::Finish),
        2 => (0..2_u8, 0..2_u8).prop_map(|(host, claim)| Op::ReleaseClaim(host, claim)),
        2 => (host(), vec(run_ago(), 1..3)).prop_map(|(host, runs)| Op::ReleaseRuns(host, runs)),
        2 => (run_ago(), any::<u8>()).prop_map(|(run, text)| Op::Progress(run, text)),
        1 => vec(run_ago(), 1..3).prop_map(Op::Verdict),
    ]
}

/// What instances and operators do.
fn of_hosts_and_people() -> impl Strategy<Value = Op> {
    let resolutions = vec![Resolution::Done, Resolution::NotDone, Resolution::Retry];
    prop_oneof![
        3 => (0..2_u8, any::<bool>(), lease_ms())
            .prop_map(|(host, anew, lease_ms)| Op::Register { host, anew, lease_ms }),
        3 => (host(), vec(run_ago(), 0..3)).prop_map(|(host, starts)| Op::Heartbeat(host, starts)),
        1 => host().prop_map(Op::Leave),
        4 => (host(), select(vec![1, 2, 100])).prop_map(|(host, limit)| Op::Reap(host, limit)),
        2 => Just(Op::Prune),
        3 => (0..6_u8).prop_map(Op::Cancel),
        3 => (0..6_u8).prop_map(Op::Retry),
        2 => (0..6_u8).prop_map(Op::Park),
        2 => (0..6_u8, select(resolutions)).prop_map(|(job, found)| Op::Resolve(job, found)),
        1 => (0..2_u8).prop_map(Op::Pause),
        1 => (0..2_u8).prop_map(Op::Resume),
    ]
}

/// Locks and bare once keys.
fn of_leases() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..2_u8, 1..4_u32, lease_ms(), 0..4_u8).prop_map(|(name, permits, lease_ms, acquisition)| {
            Op::AcquireLock { name, permits, lease_ms, acquisition }
        }),
        2 => (0..4_u8, lease_ms()).prop_map(|(grant, ms)| Op::RenewLock(grant, ms)),
        2 => (0..4_u8).prop_map(Op::ReleaseLock),
        4 => (key_op(), lease_ms(), 0..4_u8)
            .prop_map(|(key, lease_ms, acquisition)| Op::ClaimOnce { key, lease_ms, acquisition }),
        1 => (0..4_u8, lease_ms()).prop_map(|(grant, ms)| Op::RenewOnce(grant, ms)),
        3 => (0..4_u8, any::<bool>(), keep_ms())
            .prop_map(|(grant, done, keep_ms)| Op::FinishOnce { grant, done, keep_ms }),
        1 => (0..2_u8).prop_map(Op::BreakLock),
        2 => (0..4_u8).prop_flat_map(word_on),
    ]
}

/// What a person says of a key.
fn word_on(key: u8) -> impl Strategy<Value = Op> {
    let resolve = (any::<bool>(), keep_ms()).prop_map(move |(done, keep_ms)| Op::ResolveOnce { key, done, keep_ms });
    prop_oneof![1 => Just(Op::ForgetOnce(key)), 2 => resolve]
}

/// What only reads.
fn of_readers() -> impl Strategy<Value = Op> {
    let state = option::of(select(JobState::ALL.to_vec()));
    prop_oneof![
        2 => (0..6_u8).prop_map(Op::Job),
        1 => (option::of(0..2_u8), state, option::of(0..6_u8), 1..5_u32)
            .prop_map(|(queue, state, before, limit)| Op::List { queue, state, before, limit }),
        1 => (0..4_u8).prop_map(Op::FindOnce),
        1 => (option::of(0..4_u8), option::of(0..4_u8), 1..4_u32)
            .prop_map(|(prefix, after, limit)| Op::ListOnce { prefix, after, limit }),
        1 => option::of(0..2_u8).prop_map(Op::LockHolders),
        1 => Just(Op::Queues),
        1 => Just(Op::Instances),
        1 => Just(Op::Refusals),
        1 => Just(Op::Counters),
        1 => Just(Op::Now),
    ]
}

/// A step that takes no time.
fn timeless_step() -> impl Strategy<Value = Op> {
    prop_oneof![8 => of_jobs(), 5 => of_hosts_and_people(), 3 => of_leases(), 2 => of_readers()]
}

/// Wants all that there is.
fn asking_all() -> impl Strategy<Value = Op> {
    (0..2_u8, any::<bool>()).prop_map(|(host, suspect)| {
        Op::Claim(Asking { host, same_as: None, queues: vec![(0, 3), (1, 3)], kinds: vec![0, 1], suspect })
    })
}

/// Steps that belong together and that chance would hardly ever bring together: work that ends, in every way.
fn work() -> impl Strategy<Value = Vec<Op>> {
    let starts = option::of(vec(run_ago(), 1..3).prop_map(Op::Start));
    let cancel = option::weighted(0.2, (0..3_u8).prop_map(Op::Cancel));
    let decide = option::weighted(0.2, select(vec![Resolution::Done, Resolution::NotDone, Resolution::Retry]));
    let finish = vec((run_ago(), end_op()), 1..4).prop_map(Op::Finish);
    (vec(new_op(), 1..4), asking_all(), starts, cancel, finish, decide).prop_map(
        |(new, claim, starts, cancel, finish, decide)| {
            let mut ops = vec![Op::Enqueue(new), claim];
            ops.extend(starts);
            ops.extend(cancel);
            ops.push(finish);
            ops.extend(decide.into_iter().flat_map(|found| [Op::Resolve(0, found), Op::Resolve(1, found)]));
            ops
        },
    )
}

/// Instances die, or runs pass their deadline, others take over, and the late ones report.
fn takeover() -> impl Strategy<Value = Vec<Op>> {
    let starts = option::of(vec(run_ago(), 1..3).prop_map(Op::Start));
    let cancel = option::weighted(0.2, (0..3_u8).prop_map(Op::Cancel));
    let wait = select(vec![200, 10_000, 70_000]);
    let late = option::of(vec((run_ago(), end_op()), 1..3).prop_map(Op::Finish));
    let (claims, limit) = ((asking_all(), asking_all()), select(vec![1, 100]));
    (claims, starts, cancel, wait, limit, late).prop_map(|(claims, starts, cancel, wait, limit, late)| {
        let mut ops = vec![claims.0];
        ops.extend(starts);
        ops.extend(cancel);
        ops.extend([Op::Advance(wait), register(1, true), Op::Advance(BEAT_MS), Op::Reap(1, limit)]);
        ops.extend([register(0, true), claims.1]);
        ops.extend(late);
        ops
    })
}

/// Doubts that a person decides, and keys of cancelled jobs that others took meanwhile.
fn decisions() -> impl Strategy<Value = Vec<Op>> {
    let resolutions = select(vec![Resolution::Done, Resolution::NotDone, Resolution::Retry]);
    let doubt = (new_op(), resolutions).prop_map(|(new, found)| {
        let new = NewOp { same_id_as: None, guarantee: AT_MOST_ONCE, due_in_ms: 0, ..new };
        let all = Asking { host: 0, same_as: None, queues: vec![(0, 3), (1, 3)], kinds: vec![0, 1], suspect: false };
        let unclear = vec![((0, 0), EndOp::Again(RunOutcome::Unknown, 0)), ((1, 0), EndOp::Done)];
        vec![Op::Enqueue(vec![new]), Op::Claim(all), Op::Finish(unclear), Op::Resolve(0, found)]
    });
    let taken = (new_op(), key_op(), any::<bool>()).prop_map(|(new, key, retried)| {
        let new = NewOp { same_id_as: None, key: Some(key), ..new };
        let again = if retried { vec![new.clone()] } else { Vec::new() };
        vec![Op::Enqueue(vec![new]), Op::Cancel(0), Op::Enqueue(again), Op::Retry(u8::from(retried))]
    });
    prop_oneof![doubt, taken]
}

/// Locks and keys that pass from one to the other.
fn passing_on() -> impl Strategy<Value = Vec<Op>> {
    let acquisitions = (vec(0..4_u8, 2..5), option::weighted(0.2, 1..3_usize));
    let lock = (0..2_u8, 1..4_u32, acquisitions).prop_map(|(name, permits, (acquisitions, broken_after))| {
        let acquire = |acquisition| Op::AcquireLock { name, permits, lease_ms: 10_000, acquisition };
        let mut ops: Vec<Op> = acquisitions.into_iter().map(acquire).collect();
        if let Some(place) = broken_after {
            ops.insert(place, Op::BreakLock(name));
        }
        ops
    });
    let key_and_word = key_op().prop_flat_map(|key| (option::weighted(0.3, word_on(key.key)), Just(key)));
    let key = (key_and_word, vec(0..4_u8, 2..4), option::of(any::<bool>()), keep_ms()).prop_map(
        |((word, key), acquisitions, done, keep_ms)| {
            let claim = |acquisition| Op::ClaimOnce { key: key.clone(), lease_ms: 10_000, acquisition };
            let mut ops: Vec<Op> = acquisitions.into_iter().map(claim).collect();
            ops.insert(1, done.map_or(Op::Advance(10_000), |done| Op::FinishOnce { grant: 0, done, keep_ms }));
            if let Some(word) = word {
                ops.insert(2, word);
            }
            ops
        },
    );
    prop_oneof![lock, key]
}

const fn register(host: u8, anew: bool) -> Op {
    Op::Register { host, anew, lease_ms: LEASE_MS }
}

/// Parts one after the other, on two live instances.
fn joined(parts: &[Vec<Op>]) -> Vec<Op> {
    [vec![register(0, true), register(1, true)], parts.concat()].concat()
}

/// A script in which time goes on, and now and then somebody sets the wall clock. It begins with two live instances.
pub(super) fn timed(parts_max: usize) -> impl Strategy<Value = Vec<Op>> {
    let time = prop_oneof![
        6 => select(vec![1, 100, 1_000, 5_000]).prop_map(|ms| vec![Op::Advance(ms)]),
        2 => select(vec![10_000, 60_000, KEEP_MS_MIN])
            .prop_map(|ms| vec![Op::Advance(ms), register(0, true), register(1, true)]),
        2 => Just(vec![Op::Advance(8 * 86_400_000), Op::Prune, register(0, true)]),
        2 => select(vec![-3_600_000, -1_000, 1_000]).prop_map(|ms| vec![Op::SetWallBy(ms)]),
    ];
    let step = timeless_step().prop_map(|op| vec![op]);
    let part = prop_oneof![18 => step, 4 => time, 4 => work(), 4 => takeover(), 2 => passing_on(), 2 => decisions()];
    vec(part, 1..=parts_max).prop_map(|parts| joined(&parts))
}

/// What several callers may want at once, and only one of them may have.
fn contended() -> impl Strategy<Value = Op> {
    let key = KeyOp { key: 2, fingerprint: None, made_ms_ago: None, keep_ms: 5_000 };
    let lease_ms = 10_000;
    prop_oneof![
        3 => asking_all(),
        1 => (0..4_u8).prop_map(move |acquisition| Op::AcquireLock { name: 0, permits: 1, lease_ms, acquisition }),
        1 => (0..4_u8).prop_map(move |acquisition| Op::ClaimOnce { key: key.clone(), lease_ms, acquisition }),
    ]
}

/// A script that takes no time.
pub(super) fn timeless(steps_max: usize) -> impl Strategy<Value = Vec<Op>> {
    vec(prop_oneof![4 => timeless_step(), 3 => contended()], 1..=steps_max)
}
