//! Points in time and lengths of time, as people write and read them.

use std::time::Duration;

use hapax::clock::Micros;
use jiff::fmt::friendly::SpanParser;
use jiff::{SpanRelativeTo, Timestamp};
use serde::{Serialize, Serializer};

/// A point in time for JSON: RFC 3339, UTC, microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Iso(pub(crate) Micros);

impl std::fmt::Display for Iso {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.6}", timestamp(self.0))
    }
}

impl Serialize for Iso {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

/// RFC 3339 in UTC, to the millisecond: enough for people.
pub(crate) fn iso(at: Micros) -> String {
    format!("{:.3}", timestamp(at))
}

/// A retention of centuries ends where the calendar does.
fn timestamp(at: Micros) -> Timestamp {
    let end = if at.0 < 0 { Timestamp::MIN } else { Timestamp::MAX };
    Timestamp::from_microsecond(at.0).unwrap_or(end)
}

/// `3 min ago`, `in 2 h`, `now`.
pub(crate) fn relative(at: Micros, now: Micros) -> String {
    // To the nearest second: what was asked for as `1h` a moment ago reads `in 1h`.
    let seconds = now.0.abs_diff(at.0).saturating_add(500_000) / 1_000_000;
    let distance = length(seconds.saturating_mul(1_000));
    match at.0.cmp(&now.0) {
        _ if seconds == 0 => "now".to_owned(),
        std::cmp::Ordering::Less => format!("{distance} ago"),
        _ => format!("in {distance}"),
    }
}

/// A length of time in its one or two largest units, in the notation that [`duration`] reads.
pub(crate) fn length(ms: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let Some(first) = UNITS.iter().position(|(size, _)| ms >= *size) else {
        return format!("{ms}ms");
    };
    let (size, name) = UNITS[first];
    let rest = ms % size;
    let second = UNITS.get(first + 1).map(|(size, name)| (rest / size, name)).filter(|(count, _)| *count > 0);
    match second {
        Some((count, second)) => format!("{}{name} {count}{second}", ms / size),
        None => format!("{}{name}", ms / size),
    }
}

/// Reads `90s`, `5m`, `2h`, `1d`, `1h30m`, `1 week`, `PT5M`. A day has 24 hours here; months and years have no length.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    const MEND: &str = "write a number with its unit, such as 90s, 5m, 2h, 1d or 1h30m";
    let span = match SpanParser::new().parse_span(text.trim()) {
        Ok(span) => span,
        Err(_) => text.trim().parse::<jiff::Span>().map_err(|_| format!("`{text}` is no length of time; {MEND}"))?,
    };
    if span.get_years() != 0 || span.get_months() != 0 {
        return Err(format!("`{text}` has months or years, which have no fixed length; write days"));
    }
    if span.is_negative() {
        return Err(format!("`{text}` is negative; {MEND}"));
    }
    let length = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|e| format!("`{text}`: {e}; {MEND}"))?;
    Duration::try_from(length).map_err(|e| format!("`{text}`: {e}; {MEND}"))
}

/// Reads an instant with its offset: `2026-12-24T18:00:00Z`, `2026-12-24 19:00+01:00`.
pub(crate) fn instant(text: &str) -> Result<Micros, String> {
    let at: Timestamp = text
        .trim()
        .parse()
        .map_err(|_| format!("`{text}` is no instant; write date, time and offset, such as 2026-12-24T18:00:00Z"))?;
    Ok(Micros(at.as_microsecond()))
}

/// Whole seconds as `12.3 s`, for reports.
pub(crate) fn seconds(length: Duration) -> String {
    format!("{:.1} s", length.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000;

    #[test]
    fn lengths_are_read_as_people_write_them() {
        for (text, ms) in [
            ("90s", 90 * MS),
            ("5m", 300 * MS),
            ("5min", 300 * MS),
            ("2h", 7_200 * MS),
            ("1d", 86_400 * MS),
            ("1h30m", 5_400 * MS),
            ("1h 30m", 5_400 * MS),
            ("1w", 7 * 86_400 * MS),
            ("36h", 36 * 3_600 * MS),
            ("250ms", 250),
            ("1.5s", 1_500),
            ("0s", 0),
            ("PT90S", 90 * MS),
            (" 10 s ", 10 * MS),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn what_is_no_length_is_refused_with_the_mend() {
        for text in ["", "90", "s", "5 parsecs", "-5m", "5m ago", "1h-30m", "1mo", "1y", "five minutes", "1e9999d"] {
            let error = duration(text).expect_err(text);
            assert!(error.contains("; write"), "{text}: {error}");
        }
    }

    #[test]
    fn lengths_are_said_in_two_units() {
        for (ms, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_000, "1s"),
            (61_000, "1m 1s"),
            (3_600_000, "1h"),
            (5_400_000, "1h 30m"),
            (90_061_000, "1d 1h"),
            (604_800_000, "7d"),
        ] {
            assert_eq!(length(ms), text);
        }
        for ms in [0, 999, 61_000, 5_400_000, 604_800_000] {
            assert_eq!(duration(&length(ms)), Ok(Duration::from_millis(ms)), "what we say we can read");
        }
    }

    #[test]
    fn instants_need_their_offset() {
        assert_eq!(instant("1970-01-01T00:00:01Z"), Ok(Micros(1_000_000)));
        assert_eq!(instant("1970-01-01 01:00:01+01:00"), Ok(Micros(1_000_000)));
        for text in ["", "tomorrow", "2026-12-24", "2026-12-24T18:00:00", "2026-13-01T00:00:00Z"] {
            assert!(instant(text).is_err(), "{text}");
        }
    }

    #[test]
    fn distances_are_said_from_now() {
        let now = Micros(10_000_000_000);
        assert_eq!(relative(now, now), "now");
        assert_eq!(relative(Micros(now.0 - 61_000_000), now), "1m 1s ago");
        assert_eq!(relative(now.plus_ms(7_200_000), now), "in 2h");
        assert_eq!(iso(Micros(1)), "1970-01-01T00:00:00.000Z");
        assert!(iso(Micros(i64::MAX)).starts_with("9999-"), "centuries end where the calendar does");
    }
}
