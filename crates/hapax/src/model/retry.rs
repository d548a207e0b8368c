//! When a failed job runs again: arithmetic that cannot overflow, with jitter given from outside.

use serde::{Deserialize, Serialize};

/// Retry as data, kept with the job, so that any instance, the dashboard and the tests compute the same.
///
/// The delay before attempt *n + 1* is `base_ms` · 2^(n − 1), at most `cap_ms`, shortened by up to `jitter_percent` of
/// itself, so that jobs that failed together do not come back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Failed attempts after which the job is parked; at least 1.
    pub max_attempts: u32,
    /// Delay after the first failure, in milliseconds.
    pub base_ms: u64,
    /// Longest delay, in milliseconds.
    pub cap_ms: u64,
    /// How much of the delay may be taken off at random, 0 to 100.
    pub jitter_percent: u8,
}

impl Default for RetryPolicy {
    /// 20 attempts, from 1 s up to 1 h, spread over 20 %: about half a day in all.
    fn default() -> Self {
        Self { max_attempts: 20, base_ms: 1_000, cap_ms: 3_600_000, jitter_percent: 20 }
    }
}

impl RetryPolicy {
    /// No second attempt: the first failure parks the job.
    pub const NEVER: Self = Self { max_attempts: 1, base_ms: 1_000, cap_ms: 1_000, jitter_percent: 0 };

    /// The delay after `failures` failed attempts. `random` spreads it: 0 takes nothing off, `u32::MAX` takes off all
    /// that `jitter_percent` allows.
    pub fn delay_ms(&self, failures: u32, random: u32) -> u64 {
        let base = self.base_ms.max(1);
        let factor = 1_u64.checked_shl(failures.saturating_sub(1)).unwrap_or(u64::MAX);
        let full = base.saturating_mul(factor).min(self.cap_ms.max(base));
        let share = u128::from(full) * u128::from(self.jitter_percent.min(100)) / 100;
        let off = share * u128::from(random) / u128::from(u32::MAX);
        full - u64::try_from(off).unwrap_or(0).min(full - 1)
    }

    /// Whether `failures` failed attempts use the policy up.
    pub const fn is_used_up(&self, failures: u32) -> bool {
        failures >= self.max_attempts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RC-63: attempts at and past every width of a shift, in debug and release builds.
    #[test]
    fn delay_grows_to_its_cap_and_stays_there() {
        let policy = RetryPolicy { jitter_percent: 0, ..RetryPolicy::default() };
        let mut last = 0;
        for failures in [0, 1, 2, 11, 12, 31, 32, 63, 64, 65, 1_000, u32::MAX] {
            let delay = policy.delay_ms(failures, 0);
            assert!(delay >= last && delay >= 1, "{failures} failures: {delay} after {last}");
            last = delay;
        }
        assert_eq!(policy.delay_ms(1, 0), 1_000);
        assert_eq!(policy.delay_ms(12, 0), 2_048_000);
        assert_eq!(policy.delay_ms(u32::MAX, 0), 3_600_000);
    }

    /// RC-63: odd policies, as SQL or an old version may have written them, never give zero or a panic.
    #[test]
    fn odd_policies_still_give_a_delay() {
        for base_ms in [0, 1, u64::MAX] {
            for cap_ms in [0, 1, u64::MAX] {
                let policy = RetryPolicy { max_attempts: 0, base_ms, cap_ms, jitter_percent: 255 };
                for random in [0, 1, u32::MAX] {
                    assert!(policy.delay_ms(64, random) >= 1, "{policy:?} {random}");
                }
            }
        }
    }

    /// RC-63: a thousand jobs that failed in one second do not march in step.
    #[test]
    fn jitter_spreads_the_due_times() {
        let policy = RetryPolicy::default();
        let delays: std::collections::BTreeSet<u64> =
            (0..1_000_u32).map(|n| policy.delay_ms(10, n * (u32::MAX / 1_000))).collect();
        assert!(delays.len() > 900, "only {} different delays", delays.len());
        assert!(delays.iter().all(|d| (409_600..=512_000).contains(d)), "within 20 % below 512 s");
    }
}
