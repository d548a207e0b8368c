//! From local times to instants: what a cron expression does when the clock of its zone jumps.
//!
//! *Gap*: times that the clock leaves out fire together, once, at the first instant after the gap. *Overlap*: times
//! that come twice fire the first time only, unless the expression allows every hour: `*/15 * * * *` follows the clock,
//! so that a quarter of an hour stays one.

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use jiff::{Timestamp, ToSpan as _};

use super::Cron;
use crate::clock::Micros;

/// One nominal instant of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occurrence {
    /// The local time that the expression names. Left out by the clock: the last one of the gap.
    pub nominal: DateTime,
    /// Whether it is the second of two equal local times.
    pub second: bool,
    /// When it is.
    pub at: Micros,
}

/// A span of time in which the zone's offset stays the same.
struct Stretch {
    offset: Offset,
    /// From here on; nothing at the beginning of time.
    start: Option<Timestamp>,
    /// Until here, exclusive; nothing at the end of time.
    end: Option<Timestamp>,
}

impl Cron {
    /// The first occurrence after an instant; nothing at the end of the calendar.
    pub fn next(&self, after: Micros, zone: &TimeZone) -> Option<Occurrence> {
        let mut from = Timestamp::from_microsecond(after.0.checked_add(1)?).ok()?;
        loop {
            let stretch = Stretch::around(from, zone);
            if stretch.start == Some(from)
                && let Some(found) = self.left_out(from, zone)
            {
                return Some(found);
            }
            let mut nominal = self.at_or_after(stretch.offset.to_datetime(from))?;
            loop {
                let at = stretch.offset.to_timestamp(nominal).ok()?;
                if stretch.end.is_some_and(|end| at >= end) {
                    break;
                }
                if let Some(found) = self.occurrence(nominal, at, (stretch.offset, zone)) {
                    return Some(found);
                }
                nominal = self.at_or_after(nominal.checked_add(1.minute()).ok()?)?;
            }
            from = stretch.end?;
        }
    }

    /// The last occurrence at or before an instant; nothing at the beginning of the calendar.
    pub fn previous(&self, at: Micros, zone: &TimeZone) -> Option<Occurrence> {
        let mut to = Timestamp::from_microsecond(at.0).ok()?;
        loop {
            let stretch = Stretch::around(to, zone);
            let mut nominal = self.at_or_before(stretch.offset.to_datetime(to))?;
            loop {
                let at = stretch.offset.to_timestamp(nominal).ok()?;
                if stretch.start.is_some_and(|start| at < start) {
                    break;
                }
                if let Some(found) = self.occurrence(nominal, at, (stretch.offset, zone)) {
                    return Some(found);
                }
                nominal = self.at_or_before(nominal.checked_sub(1.minute()).ok()?)?;
            }
            let start = stretch.start?;
            if let Some(found) = self.left_out(start, zone) {
                return Some(found);
            }
            to = start.checked_sub(1.microsecond()).ok()?;
        }
    }

    /// A matching local time under an offset, unless it is a repetition that does not count.
    fn occurrence(&self, nominal: DateTime, at: Timestamp, (offset, zone): (Offset, &TimeZone)) -> Option<Occurrence> {
        let second = match zone.to_ambiguous_timestamp(nominal).offset() {
            AmbiguousOffset::Fold { before, after } => offset == after && before != after,
            _ => false,
        };
        let counts = !second || self.every_hour();
        counts.then(|| Occurrence { nominal, second, at: Micros(at.as_microsecond()) })
    }

    /// What the clock leaves out where it jumps forward at `jump`: one occurrence for all of it, unless the first
    /// instant after the gap fires by its own name.
    fn left_out(&self, jump: Timestamp, zone: &TimeZone) -> Option<Occurrence> {
        let before = Stretch::around(jump.checked_sub(1.microsecond()).ok()?, zone).offset;
        let (from, to) = (before.to_datetime(jump), zone.to_datetime(jump));
        if from >= to || self.at_or_after(to) == Some(to) {
            return None;
        }
        let nominal = self.at_or_before(to).filter(|nominal| *nominal >= from)?;
        Some(Occurrence { nominal, second: false, at: Micros(jump.as_microsecond()) })
    }
}

impl Stretch {
    fn around(at: Timestamp, zone: &TimeZone) -> Self {
        let after = at.checked_add(1.microsecond()).unwrap_or(Timestamp::MAX);
        Self {
            offset: zone.to_offset(at),
            start: zone.preceding(after).next().map(|jump| jump.timestamp()),
            end: zone.following(at).next().map(|jump| jump.timestamp()),
        }
    }
}
