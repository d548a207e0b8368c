//! Nothing stays for ever that nobody can use any more.

use super::*;
use crate::model::observe::{Answer, Command};

/// Crashed holders of keys and locks, dead instances and refusals: gone once they are no evidence any more.
#[test]
fn crashes_leave_nothing_for_ever() {
    let mut model = Model::new();
    let key = OnceKey::new(Boundary::Claim, name("s"), "day-1").expect("legal");
    let claim = KeyClaim { key: key.clone(), fingerprint: None, keep_ms: 1_000, made_at: None };
    let once = OnceRequest { claim, lease_ms: 1_000, acquisition: AcquisitionId::new(), holder: name("me") };
    let OnceAnswer::Claimed { fence, .. } = model.claim_once(at_ms(0), &once) else { panic!("the key is free") };
    let lock = LockRequest {
        name: name("order-7"),
        permits: 1,
        lease_ms: 1_000,
        acquisition: AcquisitionId::new(),
        holder: name("me"),
    };
    model.acquire_lock(at_ms(0), &lock);
    instance(&mut model, at_ms(0));
    let reaper = instance(&mut model, at_ms(995_000));
    model.reap(at_ms(1_000_000), reaper, 10).expect("live");
    model.leave(at_ms(1_000_000), reaper);
    model.heartbeat(at_ms(1_000_000), reaper, &[]);
    assert_eq!(model.prune(at_ms(1_000_000), 10).total(), 0, "all of it is still evidence");
    assert!(model.finish_once(at_ms(1_000_000), (&key, fence), &OnceEnd::Failed { error: "late".into() }, 5).is_ok());
    model.claim_once(at_ms(1_000_001), &once);
    let end = at_ms(1_100_000 + EVIDENCE_KEEP_MS);
    let pruned = model.prune(end, 10);
    assert_eq!(pruned, Pruned { jobs: 0, keys: 1, instances: 2, refusals: 1, locks: 1 });
    assert_eq!(model.find_once(end, &key), None);
    model.check();
}

/// Small bites reach everything in the end, and no bite is larger than asked for.
#[test]
fn bites_of_the_pruner_reach_everything() {
    let mut model = Model::new();
    let jobs: Vec<NewJob> = (0..25).map(|_| job()).collect();
    model.enqueue(at_ms(0), &jobs);
    for new in &jobs {
        model.cancel(at_ms(1), new.id, "test").expect("legal");
    }
    let mut bites = Vec::new();
    loop {
        let Ok(Answer::Pruned(pruned)) = model.apply(at_ms(1_010_000), &Command::Prune(10)) else { panic!("a prune") };
        bites.push(pruned.jobs);
        if pruned.total() == 0 {
            break;
        }
    }
    assert_eq!(bites, [10, 10, 5, 0]);
    model.check();
}
