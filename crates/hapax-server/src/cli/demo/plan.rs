//! What happens when: all of it from the seed.

/// Processes on the stage.
pub(super) const INSTANCES: usize = 3;
/// Every how manyth key is sent a second time.
pub(super) const REPEAT_EVERY: u64 = 5;
/// Every how manyth key comes from a second producer as well, which races the first.
pub(super) const RACE_EVERY: u64 = 7;
/// Every how manyth key is sent once more after everything is done.
pub(super) const LATE_EVERY: u64 = 20;

/// The plan of one demo. Its moments are counted in effects, not in seconds, so that they are the same on any machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// What it was made from.
    pub(super) seed: u64,
    /// Different keys.
    pub(super) jobs: u64,
    /// Which instance is killed first.
    pub(super) kill: usize,
    /// The kill comes after this many effects.
    pub(super) kill_at: u64,
    /// The freeze comes after this many effects. It hits whoever begins the next job, so that it hits somebody.
    pub(super) freeze_at: u64,
    /// So many keys are sent before the freeze: the rest is work for whoever is to freeze, and for the others then.
    pub(super) sent_before_freeze: u64,
}

impl Plan {
    /// The plan of a seed.
    pub(super) fn new(seed: u64, jobs: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut share = |from: u64, to: u64| jobs * random.u64(from..to) / 100;
        let kill_at = share(10, 30);
        let freeze_at = share(40, 60);
        let kill = random.usize(..INSTANCES);
        Self { seed, jobs, kill, kill_at, freeze_at, sent_before_freeze: jobs * 70 / 100 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_can_be_played() {
        for seed in 0..1_000 {
            let plan = Plan::new(seed, 200);
            assert_eq!(plan, Plan::new(seed, 200), "the same seed gives the same plan");
            assert!(plan.kill < INSTANCES, "{plan:?}");
            assert!(0 < plan.kill_at && plan.kill_at < plan.freeze_at, "{plan:?}");
            assert!(plan.freeze_at < plan.sent_before_freeze && plan.sent_before_freeze < plan.jobs, "{plan:?}");
        }
    }

    #[test]
    fn seeds_make_a_difference() {
        let plans: std::collections::BTreeSet<_> =
            (0..100).map(|seed| Plan::new(seed, 3_000)).map(|plan| (plan.kill, plan.kill_at, plan.freeze_at)).collect();
        assert!(plans.len() > 90, "only {} different plans", plans.len());
    }
}
