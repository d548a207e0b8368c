//! How long to wait after a failure before trying again: longer each time, up to a cap, and never in step with others.

use std::time::Duration;

use crate::model::RetryPolicy;

/// Counts failures in a row.
#[derive(Debug)]
pub(crate) struct Pace {
    policy: RetryPolicy,
    failures: u32,
}

impl Pace {
    /// The first wait is about `base`, none is longer than `cap`.
    pub(crate) fn new(base: Duration, cap: Duration) -> Self {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let policy = RetryPolicy { max_attempts: u32::MAX, base_ms: ms(base), cap_ms: ms(cap), jitter_percent: 30 };
        Self { policy, failures: 0 }
    }

    /// Another failure: how long to wait now.
    pub(crate) fn next(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        Duration::from_millis(self.policy.delay_ms(self.failures, fastrand::u32(..)))
    }

    /// It worked.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Failures since it last worked.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }
}

/// `time`, longer or shorter by up to a tenth.
pub(crate) fn around(time: Duration) -> Duration {
    time.mul_f64(0.9 + 0.2 * fastrand::f64())
}
