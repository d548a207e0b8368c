//! Periods: the day, week or month in a zone, a length of time counted from 1970, or from one cron instant to the next.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};

use super::{Cron, Length};
use crate::clock::Micros;
use crate::error::{Error, Result};

/// Shortest and longest length of a period.
const LENGTH_MIN: Length = Length::from_ms(1_000);
const LENGTH_MAX: Length = Length::from_ms(3_660 * 86_400_000);

/// How time is cut into periods, each with a name of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Period {
    /// From midnight to midnight in the zone: `2026-11-30`.
    Day,
    /// From Monday to Monday in the zone: `2026-W49`, as ISO 8601 counts weeks.
    Week,
    /// From the first to the first in the zone: `2026-11`.
    Month,
    /// So long each, counted from 1970-01-01T00:00Z whatever the zone: `P1h@2026-11-30T13:00Z`.
    Every(Length),
    /// From one instant of the expression in the zone to the next: `2026-11-30T02:00`, its nominal local time, with
    /// `~2` behind it when that time comes for the second time.
    Cron(Cron),
}

/// One period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its name; another period of the same kind never has it.
    pub id: String,
    /// Its first instant.
    pub start: Micros,
    /// The first instant after it.
    pub end: Micros,
}

impl FromStr for Period {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim();
        match text {
            "day" => return Ok(Self::Day),
            "week" => return Ok(Self::Week),
            "month" => return Ok(Self::Month),
            _ => {}
        }
        if text.starts_with('@') || text.contains(char::is_whitespace) {
            return text.parse().map(Self::Cron);
        }
        let mend = "use day, week, month, a length such as 1h, or a cron expression such as '0 2 * * *'";
        let length = Length::parse("period", text)
            .map_err(|_| Error::invalid("period", format!("`{text}` is not known"), mend))?;
        if !(LENGTH_MIN..=LENGTH_MAX).contains(&length) {
            return Err(Error::invalid("period", format!("is {length}"), format!("use {LENGTH_MIN} to {LENGTH_MAX}")));
        }
        Ok(Self::Every(length))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Day => f.write_str("day"),
            Self::Week => f.write_str("week"),
            Self::Month => f.write_str("month"),
            Self::Every(length) => length.fmt(f),
            Self::Cron(cron) => cron.fmt(f),
        }
    }
}

impl Period {
    /// Whether the zone makes a difference.
    pub const fn has_zone(&self) -> bool {
        !matches!(self, Self::Every(_))
    }

    /// The period that an instant lies in. Periods of a kind follow each other without holes, also where the clock of
    /// the zone jumps.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for an instant near the ends of the calendar, the years −9999 and 9999.
    pub fn containing(&self, at: Micros, zone: &TimeZone) -> Result<Span> {
        let found = match self {
            Self::Day => of_dates(at, zone, Some, |date| date.tomorrow().ok()),
            Self::Week => of_dates(at, zone, monday, |date| date.checked_add(1.week()).ok()),
            Self::Month => of_dates(at, zone, |date| Some(date.first_of_month()), |d| d.checked_add(1.month()).ok()),
            Self::Every(length) => return every(*length, at).ok_or_else(|| beyond(at)),
            Self::Cron(cron) => return between(cron, at, zone).ok_or_else(|| beyond(at)),
        };
        let (date, start, end) = found.ok_or_else(|| beyond(at))?;
        let id = match self {
            Self::Week => {
                let week = date.iso_week_date();
                format!("{:04}-W{:02}", week.year(), week.week())
            }
            Self::Month => format!("{:04}-{:02}", date.year(), date.month()),
            _ => date.to_string(),
        };
        Ok(Span { id, start, end })
    }
}

fn beyond(at: Micros) -> Error {
    Error::invalid("time", format!("{} µs is beyond the calendar", at.0), "set the clock of the store")
}

/// The period of whole dates around an instant: its first date, first instant and end.
///
/// A date begins with its first instant. Where the clock is put back over midnight, the minutes that come again belong
/// to the date that had begun already, so that periods never go back.
fn of_dates(
    at: Micros,
    zone: &TimeZone,
    first_of: impl Fn(Date) -> Option<Date>,
    following: impl Fn(Date) -> Option<Date>,
) -> Option<(Date, Micros, Micros)> {
    let local = zone.to_datetime(Timestamp::from_microsecond(at.0).ok()?);
    let mut first = first_of(local.date())?;
    let mut next = following(first)?;
    while begin(next, zone)? <= at {
        first = next;
        next = following(first)?;
    }
    Some((first, begin(first, zone)?, begin(next, zone)?))
}

fn monday(date: Date) -> Option<Date> {
    date.checked_sub(i64::from(date.weekday().to_monday_zero_offset()).days()).ok()
}

/// The first instant of a date; of one that the clock leaves out, the end of the gap.
fn begin(date: Date, zone: &TimeZone) -> Option<Micros> {
    let midnight = zone.to_ambiguous_timestamp(date.at(0, 0, 0, 0));
    let at = match midnight.offset() {
        jiff::tz::AmbiguousOffset::Gap { before, .. } => {
            // The gap ends where the old offset ends, which is before midnight as the old offset would have it.
            let late = before.to_timestamp(date.at(0, 0, 0, 0)).ok()?;
            let after = late.checked_add(1.microsecond()).ok()?;
            zone.preceding(after).next()?.timestamp()
        }
        _ => midnight.earlier().ok()?,
    };
    Some(Micros(at.as_microsecond()))
}

fn every(length: Length, at: Micros) -> Option<Span> {
    let us = i64::try_from(length.as_ms()).ok()?.checked_mul(1_000)?;
    let start = at.0.checked_sub(at.0.rem_euclid(us))?;
    let end = start.checked_add(us)?;
    let text = Timestamp::from_microsecond(start).ok()?.strftime("%Y-%m-%dT%H:%M:%S").to_string();
    let text = text.strip_suffix(":00").unwrap_or(&text);
    Some(Span { id: format!("P{length}@{text}Z"), start: Micros(start), end: Micros(end) })
}

fn between(cron: &Cron, at: Micros, zone: &TimeZone) -> Option<Span> {
    let this = cron.previous(at, zone)?;
    let next = cron.next(at, zone)?;
    let mark = if this.second { "~2" } else { "" };
    let id = format!("{}{mark}", this.nominal.strftime("%Y-%m-%dT%H:%M"));
    Some(Span { id, start: this.at, end: next.at })
}
