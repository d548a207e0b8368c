//! Odd requests: nothing that a caller may send makes the law contradict itself.

use super::*;

/// A queue named twice goes on where it stopped.
#[test]
fn a_queue_named_twice_gives_no_job_twice() {
    let mut model = Model::new();
    model.enqueue(at_ms(0), &[job(), job(), job()]);
    let by = instance(&mut model, at_ms(0));
    let queues = vec![(name("q"), 1), (name("empty"), 5), (name("q"), 1)];
    let request = ClaimRequest { instance: by, claim: ClaimId::new(), queues, kinds: vec![name("k")], suspect: false };
    assert_eq!(model.claim(at_ms(0), &request).expect("live").jobs.len(), 2);
    model.check();
}

/// Each part of a call is judged for itself, one after the other: the second of two equal ones comes too late.
#[test]
fn a_run_named_twice_ends_once() {
    let mut model = Model::new();
    model.enqueue(at_ms(0), &[job(), job()]);
    let by = instance(&mut model, at_ms(0));
    let claimed = claim(&mut model, at_ms(0), by, false);
    let (one, two) = (run_of(&claimed[0]), run_of(&claimed[1]));
    assert_eq!(model.release(at_ms(1), by, &Release::Runs(vec![one, one])), [one.job]);
    assert_eq!(model.counters().writes_refused, 1, "the second is refused and recorded");
    assert!(model.start(at_ms(1), &[two, two]).iter().all(Settled::counted));
    let done = Finish { run: two, end: End::Done { result: None } };
    let settled = model.finish(at_ms(2), &[done.clone(), done]);
    assert_eq!(settled.iter().map(Settled::counted).collect::<Vec<_>>(), [true, false]);
    model.check();
}

/// Numbers at the ends of their types neither wrap nor panic.
#[test]
fn the_ends_of_numbers_are_harmless() {
    let mut model = Model::new();
    let end = Now { wall: Micros(i64::MAX), lease: Micros(i64::MAX) };
    let big = NewJob { due: Due::InMs(u64::MAX), keep_ms: u64::MAX, run_timeout_ms: u64::MAX, ..job() };
    let early = NewJob { due: Due::At(Micros(i64::MIN)), priority: i16::MIN, ..big.clone() };
    model.enqueue(at_ms(0), &[big, NewJob { id: JobId::new(), ..early }]);
    let by = instance(&mut model, at_ms(0));
    let claimed = claim(&mut model, at_ms(0), by, false);
    let again = End::Again { outcome: RunOutcome::Failed, delay_ms: u64::MAX, detail: String::new() };
    assert_eq!(claimed.len(), 1, "the end of time is not yet");
    model.finish(at_ms(0), &[Finish { run: run_of(&claimed[0]), end: again }]);
    model.peek(
        at_ms(0),
        &ClaimRequest { instance: by, claim: ClaimId::new(), queues: vec![], kinds: vec![], suspect: true },
    );
    model.check();
    model.heartbeat(end, by, &[]);
    model.prune(end, u32::MAX);
    model.check();
}

/// Whoever was given a lock to share with fewer is not joined by those who would share it with more.
#[test]
fn the_smallest_number_of_permits_counts() {
    let ask = |model: &mut Model, permits: u32| {
        let request = LockRequest {
            name: name("l"),
            permits,
            lease_ms: 1_000,
            acquisition: AcquisitionId::new(),
            holder: name("me"),
        };
        match model.acquire_lock(at_ms(0), &request) {
            LockAnswer::Granted(lock) => Some(lock),
            LockAnswer::Busy { .. } => None,
        }
    };
    // Every order of wishes for 1, 2 or 3 permits, five long, each with a release of the first grant in the middle.
    for wishes in 0..3_u32.pow(5) {
        let mut model = Model::new();
        let mut held: Vec<(u32, LockRef)> = Vec::new();
        for turn in 0..5 {
            let permits = wishes / 3_u32.pow(turn) % 3 + 1;
            held.extend(ask(&mut model, permits).map(|lock| (permits, lock)));
            if turn == 2 {
                model.release_lock(at_ms(0), &held.remove(0).1).expect("held");
            }
            let fewest = held.iter().map(|(permits, _)| *permits).min().unwrap_or(1);
            assert!(held.len() <= fewest as usize, "{held:?}");
            model.check();
        }
    }
}
