//! Looks for a script that a store gets wrong, and makes it as short as it can.

use std::fmt::Debug;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// How many scripts one hunt tries: `HAPAX_CASES`, or `usual`.
pub(super) fn cases(usual: u32) -> u32 {
    let set = std::env::var("HAPAX_CASES").ok();
    set.map_or(usual, |text| text.parse().expect("HAPAX_CASES is a number"))
}

/// What the scripts are made from: `HAPAX_SEED`, or anything.
pub(super) fn seed() -> u64 {
    let set = std::env::var("HAPAX_SEED").ok();
    set.map_or_else(|| fastrand::u64(..), |text| text.parse().expect("HAPAX_SEED is a number"))
}

/// Longest search for a shorter script.
const SHRINKS_MAX: u32 = 1_000;

/// Tries `cases` scripts from `seed`. `attempt` is told whether it is about a shorter form of what went wrong before.
///
/// # Errors
/// The shortest script found that `attempt` gets wrong, what is wrong with it, and how to get there again.
pub(super) async fn hunt<S: Strategy>(
    (cases, seed): (u32, u64),
    scripts: S,
    attempt: impl AsyncFn(S::Value, bool) -> Result<(), String>,
) -> Result<(), String>
where
    S::Value: Debug,
{
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    for case in 0..cases {
        let mut tree = scripts.new_tree(&mut runner).expect("scripts have no filters that could fail");
        if let Err(first) = attempt(tree.current(), false).await {
            let (wrong, shrinks) = shortest(&mut tree, first, &attempt).await;
            return Err(format!(
                "{wrong}\n(script {case} of HAPAX_SEED={seed} HAPAX_CASES={cases}, shortened {shrinks} times)"
            ));
        }
    }
    Ok(())
}

/// Simplifies as long as it stays wrong, as proptest does; here because an attempt is async.
async fn shortest<T: ValueTree>(
    tree: &mut T,
    mut wrong: String,
    attempt: &impl AsyncFn(T::Value, bool) -> Result<(), String>,
) -> (String, u32) {
    let mut shrinks = 0;
    let mut more = tree.simplify();
    for _ in 0..SHRINKS_MAX {
        if !more {
            break;
        }
        if let Err(shorter) = attempt(tree.current(), true).await {
            wrong = shorter;
            shrinks += 1;
            more = tree.simplify();
        } else {
            more = tree.complicate();
        }
    }
    (wrong, shrinks)
}
