//! The only file of the library that asks what time it is.
//!
//! Two clocks, two questions. The *wall* clock says when a person wanted something (due times, retention). The *lease*
//! clock says how long something has been held; it never jumps, and it goes on while the machine is suspended.

#[cfg(feature = "testing")]
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

/// A point in time, in microseconds: since 1970 in UTC on the wall clock, since boot on the lease clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Micros(pub i64);

impl Micros {
    /// This instant plus some milliseconds; stays at the end of time instead of overflowing.
    pub fn plus_ms(self, ms: u64) -> Self {
        let us = i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1_000);
        Self(self.0.saturating_add(us))
    }

    /// Whole milliseconds from `earlier` to this instant, zero when it is not later.
    pub fn ms_since(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0) / 1_000).unwrap_or(0)
    }
}

/// What time it is for a store, read in the same step as the change it dates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Wall clock, UTC: due times and retention.
    pub wall: Micros,
    /// Lease clock: leases and run deadlines. On one host `CLOCK_BOOTTIME`; on a server the server's own clock.
    pub lease: Micros,
}

/// Where a store takes its time from. Cheap to clone; clones of a movable clock move together.
#[derive(Clone, Debug, Default)]
pub struct Clock(Source);

#[derive(Clone, Debug, Default)]
enum Source {
    #[default]
    System,
    #[cfg(feature = "testing")]
    Movable(Arc<Mutex<Now>>),
}

impl Clock {
    /// The machine's own clocks.
    pub const fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that stands still until it is moved.
    #[cfg(feature = "testing")]
    pub fn movable() -> Self {
        // Neither clock starts at zero, so that a forgotten default shows.
        let start = Now { wall: Micros(1_700_000_000_000_000), lease: Micros(1_000_000_000) };
        Self(Source::Movable(Arc::new(Mutex::new(start))))
    }

    /// Moves a movable clock forward on both hands; the system's clock stays as it is.
    #[cfg(feature = "testing")]
    pub fn advance(&self, by: std::time::Duration) {
        let ms = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.change(|now| Now { wall: now.wall.plus_ms(ms), lease: now.lease.plus_ms(ms) });
    }

    /// Sets the wall clock alone, as an administrator or a time server does; leases must not notice.
    #[cfg(feature = "testing")]
    pub fn set_wall(&self, wall: Micros) {
        self.change(|now| Now { wall, lease: now.lease });
    }

    #[cfg(feature = "testing")]
    fn change(&self, step: impl FnOnce(Now) -> Now) {
        if let Source::Movable(now) = &self.0 {
            let mut now = now.lock().expect("nobody panics while moving the clock");
            *now = step(*now);
        }
    }

    /// What time it is.
    pub fn now(&self) -> Now {
        match &self.0 {
            Source::System => Now { wall: wall_now(), lease: lease_now() },
            #[cfg(feature = "testing")]
            Source::Movable(now) => *now.lock().expect("nobody panics while moving the clock"),
        }
    }
}

fn wall_now() -> Micros {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// Time since boot, suspended time included: `Instant` stands still while a machine sleeps, and would trust a lease
/// that the store gave away meanwhile.
fn lease_now() -> Micros {
    #[cfg(target_os = "linux")]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(CLOCK);
    Micros(time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_nsec / 1_000))
}

/// The end of a lease as its holder may trust it, by its own clock.
///
/// Counted from *before* the request was sent, minus a margin, so that the holder stops before the store can give the
/// lease to another. Never compared with a store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Micros);

impl Deadline {
    /// The moment at which a request is about to be sent: anchor of the deadline its answer will give.
    pub fn anchor() -> Anchor {
        Anchor(lease_now())
    }

    /// Time left; zero when it has passed.
    pub fn left(self) -> std::time::Duration {
        let us = self.0.0.saturating_sub(lease_now().0);
        std::time::Duration::from_micros(u64::try_from(us).unwrap_or(0))
    }

    /// Whether it has passed.
    pub fn passed(self) -> bool {
        lease_now() >= self.0
    }

    /// Whether it passed at least `by` ago.
    pub(crate) fn passed_by(self, by: std::time::Duration) -> bool {
        lease_now() >= self.0.plus_ms(u64::try_from(by.as_millis()).unwrap_or(u64::MAX))
    }

    /// The instant on `CLOCK_BOOTTIME`, for another process of this host.
    pub const fn boottime(self) -> Micros {
        self.0
    }
}

/// See [`Deadline::anchor`].
#[derive(Clone, Copy, Debug)]
pub struct Anchor(Micros);

impl Anchor {
    /// The deadline of a lease of `lease_ms` that was asked for at this anchor: a tenth of it, at least 50 ms and at
    /// most 5 s, is kept as margin.
    pub fn deadline(self, lease_ms: u64) -> Deadline {
        let margin_ms = (lease_ms / 10).clamp(50.min(lease_ms / 2), 5_000);
        Deadline(self.0.plus_ms(lease_ms - margin_ms))
    }

    /// Time since this anchor was taken.
    pub fn elapsed(self) -> std::time::Duration {
        let us = lease_now().0.saturating_sub(self.0.0);
        std::time::Duration::from_micros(u64::try_from(us).unwrap_or(0))
    }

    /// The instant `ms` after this anchor, without a margin: for a limit that is our own, not a lease.
    pub fn plus_ms(self, ms: u64) -> Deadline {
        Deadline(self.0.plus_ms(ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_stays_at_the_end_of_time() {
        assert_eq!(Micros(i64::MAX - 1).plus_ms(u64::MAX), Micros(i64::MAX));
        assert_eq!(Micros(5).ms_since(Micros(9_000)), 0);
        assert_eq!(Micros(9_000).ms_since(Micros(0)), 9);
    }

    #[test]
    fn a_deadline_ends_before_the_lease() {
        for lease_ms in [1, 10, 100, 1_000, 30_000, 3_600_000] {
            let anchor = Deadline::anchor();
            assert!(anchor.deadline(lease_ms) <= anchor.plus_ms(lease_ms), "lease of {lease_ms} ms");
        }
        assert_eq!(Anchor(Micros(0)).deadline(30_000), Deadline(Micros(27_000_000)));
    }

    #[cfg(feature = "testing")]
    #[test]
    fn the_wall_moves_without_the_leases() {
        let clock = Clock::movable();
        let before = clock.now();
        clock.set_wall(Micros(0));
        assert_eq!(clock.now().lease, before.lease);
        clock.advance(std::time::Duration::from_secs(1));
        assert_eq!(clock.now().lease, before.lease.plus_ms(1_000));
    }
}
