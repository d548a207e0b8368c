//! Five-field cron expressions, by the rules of Vixie's cron.
//!
//! Minute, hour, day of the month, month, weekday: numbers, lists `1,5`, ranges `1-5`, steps `*/15`, `10-50/20` and
//! `5/15` (from 5 to the end), names `jan`, `MON`; 0 and 7 are Sunday; `@hourly`, `@daily`, `@midnight`, `@weekly`,
//! `@monthly`, `@yearly`, `@annually`.
//!
//! *Day of month and weekday*: when neither field begins with `*`, a day fits if either fits; otherwise both must.
//! That is how cron has always done it: `0 0 1 * mon` is every Monday and every first.

use std::fmt;
use std::str::FromStr;

use jiff::ToSpan as _;
use jiff::civil::{Date, DateTime, Time};

use crate::error::{Error, Result};

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// How long a month can be; the 29th of February comes at least every eight years.
const MONTH_DAYS: [u32; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
/// The rarest day that passes the check is a 29th of February on one weekday: forty years apart at most.
const MONTHS_SEARCHED: u32 = 50 * 12;

/// A cron expression that fires at least sometimes: one that never would is refused when it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    text: String,
    minutes: Set,
    hours: Set,
    days: Set,
    months: Set,
    weekdays: Set,
    /// Both day fields are restricted: either may fit.
    either_day: bool,
}

/// What a field allows, one bit per number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Set {
    bits: u64,
    /// The field begins with `*`.
    star: bool,
}

/// What a field may hold.
struct Field {
    name: &'static str,
    low: u32,
    high: u32,
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field { name: "minute", low: 0, high: 59, names: &[] },
    Field { name: "hour", low: 0, high: 23, names: &[] },
    Field { name: "day of the month", low: 1, high: 31, names: &[] },
    Field { name: "month", low: 1, high: 12, names: &MONTHS },
    Field { name: "weekday", low: 0, high: 7, names: &WEEKDAYS },
];

impl FromStr for Cron {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim();
        let five = if text.starts_with('@') { shorthand(text)? } else { text };
        let parts: Vec<&str> = five.split_whitespace().collect();
        let Ok(parts) = <[&str; 5]>::try_from(parts) else {
            let what = format!("`{text}` has {} fields", five.split_whitespace().count());
            return Err(invalid(what, "write five: minute, hour, day of the month, month, weekday"));
        };
        let mut sets = [Set { bits: 0, star: false }; 5];
        for ((set, field), part) in sets.iter_mut().zip(&FIELDS).zip(parts) {
            *set = field.parse(part)?;
        }
        let [minutes, hours, days, months, mut weekdays] = sets;
        if weekdays.has(7) {
            weekdays.bits |= 1;
        }
        let either_day = !days.star && !weekdays.star;
        let cron = Self { text: text.to_owned(), minutes, hours, days, months, weekdays, either_day };
        if cron.never() {
            let what = format!("`{text}` names a day that no month has: it would never fire");
            return Err(invalid(what, "mend the day of the month or the month"));
        }
        Ok(cron)
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Cron {
    /// Whether every hour is allowed. Such a schedule follows the clock through an hour that comes twice; one with
    /// stated hours fires in the first of the two only.
    pub(super) const fn every_hour(&self) -> bool {
        self.hours.bits == 0xff_ffff
    }

    /// The first matching local time at or after `from`; nothing at the end of the calendar.
    pub(super) fn at_or_after(&self, from: DateTime) -> Option<DateTime> {
        let whole = from.second() == 0 && from.subsec_nanosecond() == 0;
        let from = if whole { from } else { floor(from).checked_add(1.minute()).ok()? };
        let (mut date, mut earliest) = (from.date(), from.time());
        let mut months = 0;
        while months < MONTHS_SEARCHED {
            if self.months.has(number(date.month())) {
                if self.fits_day(date)
                    && let Some(time) = self.time_from(earliest)
                {
                    return Some(date.to_datetime(time));
                }
                let tomorrow = date.tomorrow().ok()?;
                months += u32::from(tomorrow.month() != date.month());
                date = tomorrow;
            } else {
                date = date.first_of_month().checked_add(1.month()).ok()?;
                months += 1;
            }
            earliest = Time::midnight();
        }
        None
    }

    /// The last matching local time at or before `to`; nothing at the beginning of the calendar.
    pub(super) fn at_or_before(&self, to: DateTime) -> Option<DateTime> {
        let (mut date, mut latest) = (to.date(), to.time());
        let mut months = 0;
        while months < MONTHS_SEARCHED {
            if self.months.has(number(date.month())) {
                if self.fits_day(date)
                    && let Some(time) = self.time_until(latest)
                {
                    return Some(date.to_datetime(time));
                }
                let yesterday = date.yesterday().ok()?;
                months += u32::from(yesterday.month() != date.month());
                date = yesterday;
            } else {
                date = date.first_of_month().yesterday().ok()?;
                months += 1;
            }
            latest = Time::MAX;
        }
        None
    }

    fn fits_day(&self, date: Date) -> bool {
        let day = self.days.has(number(date.day()));
        let weekday = self.weekdays.has(number(date.weekday().to_sunday_zero_offset()));
        if self.either_day { day || weekday } else { day && weekday }
    }

    fn time_from(&self, earliest: Time) -> Option<Time> {
        (earliest.hour()..=23).filter(|hour| self.hours.has(number(*hour))).find_map(|hour| {
            let first = if hour == earliest.hour() { earliest.minute() } else { 0 };
            let minute = (first..=59).find(|minute| self.minutes.has(number(*minute)))?;
            Time::new(hour, minute, 0, 0).ok()
        })
    }

    fn time_until(&self, latest: Time) -> Option<Time> {
        (0..=latest.hour()).rev().filter(|hour| self.hours.has(number(*hour))).find_map(|hour| {
            let last = if hour == latest.hour() { latest.minute() } else { 59 };
            let minute = (0..=last).rev().find(|minute| self.minutes.has(number(*minute)))?;
            Time::new(hour, minute, 0, 0).ok()
        })
    }

    /// Whether no month has any of its days.
    fn never(&self) -> bool {
        let has_day = |month: u32| (1..=MONTH_DAYS[month as usize - 1]).any(|day| self.days.has(day));
        !self.either_day && !(1..=12).any(|month| self.months.has(month) && has_day(month))
    }
}

impl Set {
    const fn has(self, number: u32) -> bool {
        self.bits >> number & 1 == 1
    }
}

impl Field {
    fn parse(&self, text: &str) -> Result<Set> {
        let mut bits = 0;
        for item in text.split(',') {
            bits |= self.item(item)?;
        }
        Ok(Set { bits, star: text.starts_with('*') })
    }

    /// One item of a list: `*`, a number or a range, each with a step or without.
    fn item(&self, item: &str) -> Result<u64> {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, Some(self.step(step)?)),
            None => (item, None),
        };
        let (low, high) = match range.split_once('-') {
            _ if range == "*" => (self.low, self.high),
            Some((low, high)) => (self.number(low)?, self.number(high)?),
            // `5/15` counts from 5 to the end; to take it for a plain 5 would lose runs without a word.
            None => (self.number(range)?, if step.is_some() { self.last() } else { self.number(range)? }),
        };
        if low > high {
            let what = format!("{} `{item}` runs backwards", self.name);
            return Err(invalid(what, "write it as two, such as 22-23,0-6"));
        }
        let step = step.unwrap_or(1) as usize;
        Ok((low..=high).step_by(step).fold(0, |bits, number| bits | 1 << number))
    }

    fn number(&self, text: &str) -> Result<u32> {
        let named = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        let named = named.and_then(|index| u32::try_from(index).ok()).map(|index| index + self.low);
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let found = named.or_else(|| digits.then(|| text.parse().ok()).flatten());
        found.filter(|number| (self.low..=self.high).contains(number)).ok_or_else(|| {
            let words = self.names.first().zip(self.names.last());
            let words = words.map_or_else(String::new, |(first, last)| format!(", or {first} to {last}"));
            let what = format!("{} `{text}` is out of range", self.name);
            invalid(what, format!("use {} to {}{words}", self.low, self.high))
        })
    }

    fn step(&self, text: &str) -> Result<u32> {
        let width = self.last() - self.low + 1;
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse().ok()).flatten().filter(|step| (1..=width).contains(step)).ok_or_else(|| {
            let what = format!("step `{text}` of the {} is out of range", self.name);
            invalid(what, format!("use 1 to {width}; for every 90 minutes and the like say 90m instead of a cron"))
        })
    }

    /// The last number that is not another name for the first.
    fn last(&self) -> u32 {
        if self.names.len() == WEEKDAYS.len() { 6 } else { self.high }
    }
}

fn shorthand(text: &str) -> Result<&'static str> {
    Ok(match text.to_ascii_lowercase().as_str() {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => {
            let mend = "use @hourly, @daily, @weekly, @monthly or @yearly, or five fields";
            return Err(invalid(format!("`{text}` is not known"), mend));
        }
    })
}

fn invalid(what: String, mend: impl fmt::Display) -> Error {
    Error::invalid("cron", what, mend)
}

/// The minute that a local time lies in.
fn floor(local: DateTime) -> DateTime {
    local.date().at(local.hour(), local.minute(), 0, 0)
}

fn number(part: i8) -> u32 {
    u32::try_from(part).unwrap_or(0)
}
