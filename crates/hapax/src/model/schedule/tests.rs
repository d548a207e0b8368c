//! The calendar's traps, as tables, and random instants in every zone.

use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan as _};
use proptest::prelude::*;

use super::*;
use crate::clock::Micros;

fn at(text: &str) -> Micros {
    Micros(text.parse::<Timestamp>().expect(text).as_microsecond())
}

fn utc(at: Micros) -> String {
    Timestamp::from_microsecond(at.0).expect("in the calendar").to_string()
}

fn cron(text: &str) -> Cron {
    text.parse().expect(text)
}

/// The next so many instants of an expression after a start.
fn walk(text: &str, zone_name: &str, (after, count): (&str, usize)) -> Vec<String> {
    let (cron, zone) = (cron(text), zone(zone_name).expect("known"));
    let next = |last: &Occurrence| cron.next(last.at, &zone);
    std::iter::successors(cron.next(at(after), &zone), next).take(count).map(|found| utc(found.at)).collect()
}

#[test]
fn a_gap_fires_at_its_end_and_an_overlap_once() {
    let table: &[(&str, &str, &str, &[&str])] = &[
        // RC-11: the daily job in the hour that is left out, and its quarter-hour neighbour.
        ("30 2 * * *", "America/New_York", "2025-03-08T07:30:00Z", &["2025-03-09T07:00:00Z", "2025-03-10T06:30:00Z"]),
        (
            "*/15 * * * *",
            "America/New_York",
            "2025-03-09T06:30:00Z",
            &["2025-03-09T06:45:00Z", "2025-03-09T07:00:00Z", "2025-03-09T07:15:00Z"],
        ),
        // Many times of one gap fire together.
        ("*/20 2 * * *", "Europe/Berlin", "2026-03-28T02:00:00Z", &["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"]),
        // An hour that comes twice: stated hours once, every hour both times.
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", &["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]),
        (
            "30 * * * *",
            "Europe/Berlin",
            "2026-10-24T23:45:00Z",
            &["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"],
        ),
        // RC-13: the zone of the host is none of its business.
        ("30 1 * * *", "UTC", "2022-10-29T02:00:00Z", &["2022-10-30T01:30:00Z", "2022-10-31T01:30:00Z"]),
        ("0 1 * * *", "UTC", "2022-10-29T02:00:00Z", &["2022-10-30T01:00:00Z"]),
        // Half an hour of summer time, and a whole day that was left out.
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-02T16:00:00Z", &["2026-10-03T15:30:00Z"]),
        ("0 12 * * *", "Pacific/Apia", "2011-12-29T22:00:01Z", &["2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z"]),
        // RC-15 and RC-19.
        ("0 7 * * 1-5", "Asia/Taipei", "2026-05-08T23:30:00Z", &["2026-05-10T23:00:00Z"]),
        ("0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", &["2104-02-29T00:00:00Z"]),
    ];
    for (text, zone, after, expected) in table {
        assert_eq!(walk(text, zone, (after, expected.len())), *expected, "{text} in {zone}");
    }
}

#[test]
fn forms_that_mean_the_same_fire_the_same() {
    let same: &[&[&str]] = &[
        &["0 0 * * 0", "0 0 * * 7", "0 0 * * SUN", "@weekly"],
        &["0 0 * * 6,7", "0 0 * * sat,sun", "0 0 * * 0,6", "0 0 * * 6-7"],
        &["0 0 * * 5-7", "0 0 * * fri,sat,sun"],
        &["5/15 * * * *", "5,20,35,50 * * * *", "5-59/15 * * * *"],
        &["0/15 * * * *", "*/15 * * * *", "0,15,30,45 * * * *"],
        &["0 0/6 * * *", "0 */6 * * *", "0 0,6,12,18 * * *"],
        &["@daily", "@midnight", "0 0 * * *", "00 00 */1 1-12 0-7"],
        &["@yearly", "@annually", "0 0 1 jan *"],
        &["0 0 1,15 * mon", "0 0 1,15 * 1"],
    ];
    for forms in same {
        let runs: Vec<_> = forms.iter().map(|form| walk(form, "UTC", ("2026-05-09T00:00:00Z", 40))).collect();
        assert!(runs.windows(2).all(|pair| pair[0] == pair[1]), "{forms:?}");
    }
}

#[test]
fn two_day_fields_mean_either_unless_one_begins_with_a_star() {
    let days = |text| walk(text, "UTC", ("2026-05-31T12:00:00Z", 5));
    let either =
        ["2026-06-01", "2026-06-05", "2026-06-12", "2026-06-13", "2026-06-19"].map(|d| format!("{d}T00:00:00Z"));
    assert_eq!(days("0 0 1,13 * fri"), either);
    let both = ["2026-06-05", "2026-06-19", "2026-07-03", "2026-07-17", "2026-07-31"].map(|d| format!("{d}T00:00:00Z"));
    assert_eq!(days("0 0 */2 * fri"), both);
}

#[test]
fn what_never_fires_or_is_no_cron_is_refused_at_once() {
    let refused = [
        "0 0 30 2 *",
        "0 0 31 4,6,9,11 *",
        "0 0 31 2 *",
        "",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "5-2 * * * *",
        "*/0 * * * *",
        "*/90 * * * *",
        "5/ * * * *",
        "1, * * * *",
        "-1 * * * *",
        "+1 * * * *",
        "1.5 * * * *",
        "* * * foo *",
        "* * L * *",
        "@reboot",
        "@every 5m",
    ];
    for text in refused {
        let error = text.parse::<Cron>().expect_err(text).to_string();
        assert!(error.starts_with("cron `") || error.starts_with("cron "), "{text}: {error}");
    }
    assert_eq!("*/90 * * * *".parse::<Cron>().expect_err("too long").to_string().matches("90m").count(), 1);
}

#[test]
fn rare_days_are_found_without_a_search_through_every_minute() {
    assert_eq!(walk("0 0 29 2 *", "America/New_York", ("1896-03-01T00:00:00Z", 1)), ["1904-02-29T05:00:00Z"]);
    assert_eq!(walk("0 0 29 2 *", "UTC", ("9996-03-01T00:00:00Z", 1)), [""; 0], "the calendar ends");
}

#[test]
fn periods_have_the_names_that_people_use() {
    let table = [
        ("day", "UTC", "2026-11-30T23:59:59Z", "2026-11-30"),
        ("day", "Europe/Berlin", "2026-11-30T23:59:59Z", "2026-12-01"),
        ("week", "UTC", "2026-11-30T00:00:00Z", "2026-W49"),
        ("week", "UTC", "2027-01-01T00:00:00Z", "2026-W53"),
        ("week", "UTC", "2024-12-30T00:00:00Z", "2025-W01"),
        ("month", "Pacific/Auckland", "2026-11-30T12:00:00Z", "2026-12"),
        ("1h", "UTC", "2026-11-30T13:59:59Z", "P1h@2026-11-30T13:00Z"),
        ("60m", "Asia/Kolkata", "2026-11-30T13:59:59Z", "P1h@2026-11-30T13:00Z"),
        ("30s", "UTC", "2026-11-30T13:59:59Z", "P30s@2026-11-30T13:59:30Z"),
        ("0 2 * * *", "Europe/Berlin", "2026-11-30T00:59:59Z", "2026-11-29T02:00"),
        ("0 2 * * *", "Europe/Berlin", "2026-11-30T01:00:00Z", "2026-11-30T02:00"),
        ("30 2 * * *", "America/New_York", "2025-03-09T07:00:00Z", "2025-03-09T02:30"),
        ("30 * * * *", "Europe/Berlin", "2026-10-25T01:31:00Z", "2026-10-25T02:30~2"),
    ];
    for (period, zone_name, instant, id) in table {
        let span = period.parse::<Period>().expect(period).containing(at(instant), &zone(zone_name).expect("known"));
        assert_eq!(span.expect(period).id, id, "{period} in {zone_name} at {instant}");
    }
    for text in ["hour", "", "0s", "1ms", "days", "20000w", "1.5h", "-1h"] {
        assert!(text.parse::<Period>().is_err(), "{text}");
    }
    assert!(zone("Berlin").is_err() && zone("utc").is_ok());
}

#[test]
fn lengths_read_and_print_one_way() {
    let table = [("90m", "1h30m"), ("1h 30m", "1h30m"), ("1500ms", "1s500ms"), ("7d", "1w"), ("0", "0s"), ("0h", "0s")];
    for (text, printed) in table {
        assert_eq!(Length::parse("ttl", text).expect(text).to_string(), printed);
    }
    for text in ["", "5", "5 m", "m", "-5m", "5min", "1.5h", "99999999999999999999s", "999999999999999w", "５m"] {
        let error = Length::parse("ttl", text).expect_err(text).to_string();
        assert!(error.starts_with("ttl "), "{text}: {error}");
    }
}

/// What the documented rules say, minute by minute, without any cleverness.
fn fires(cron: &Cron, minute: Timestamp, zone: &TimeZone) -> bool {
    let local = zone.to_datetime(minute);
    let fits = |local| cron.at_or_after(local) == Some(local);
    if fits(local) {
        return match zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Fold { after, .. } => zone.to_offset(minute) != after || cron.every_hour(),
            _ => true,
        };
    }
    let before = zone.to_offset(minute - 1.microsecond()).to_datetime(minute);
    let mut left_out = std::iter::successors(Some(before), |local| local.checked_add(1.minute()).ok());
    left_out.by_ref().take_while(|left_out| *left_out < local).any(fits)
}

fn zones() -> Vec<String> {
    jiff::tz::db().available().map(|name| name.to_string()).collect()
}

fn field(low: u32, high: u32) -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just("*".to_owned()),
        2 => (low..=high).prop_map(|n| n.to_string()),
        1 => (low..=high, low..=high).prop_map(|(a, b)| format!("{},{}", a.min(b), a.max(b))),
        1 => (low..=high, low..=high).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        1 => (2..=(high - low)).prop_map(|step| format!("*/{step}")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Around a jump of the clock in any zone, both directions agree with the rules taken minute by minute.
    #[test]
    fn both_directions_agree_with_the_rules(
        pick in any::<prop::sample::Index>(),
        start in -315_000_000i64..3_000_000_000,
        (minute, hour) in (field(0, 59), field(0, 23)),
    ) {
        let zone = zone(pick.get::<String>(&zones())).expect("listed");
        let start = Timestamp::from_second(start - start.rem_euclid(60)).expect("in range");
        let jump = zone.following(start).next().map_or(start, |jump| jump.timestamp());
        // Offsets of old times have seconds; the minute-by-minute rules below have not.
        prop_assume!(jump.as_second() % 60 == 0 && zone.to_offset(jump).seconds() % 60 == 0);
        prop_assume!(zone.to_offset(jump - 1.second()).seconds() % 60 == 0);
        let cron: Cron = format!("{minute} {hour} * * *").parse().expect("legal");
        let from = jump - 26.hours();
        let minutes = (0..52 * 60).map(|n| from + n.minutes());
        let expected: Vec<Micros> =
            minutes.filter(|m| fires(&cron, *m, &zone)).map(|m| Micros(m.as_microsecond())).collect();
        let last = Micros((from + (52 * 60 - 1).minutes()).as_microsecond());
        let first = Micros(from.as_microsecond());
        let next = |found: &Occurrence| cron.next(found.at, &zone);
        let forward: Vec<Micros> = std::iter::successors(cron.next(Micros(first.0 - 1), &zone), next)
            .map(|found| found.at).take_while(|at| *at <= last).collect();
        prop_assert_eq!(&forward, &expected, "{} in {:?} around {}", cron, zone.iana_name(), jump);
        let back = |found: &Occurrence| cron.previous(Micros(found.at.0 - 1), &zone);
        let mut backward: Vec<Micros> = std::iter::successors(cron.previous(last, &zone), back)
            .map(|found| found.at).take_while(|at| *at >= first).collect();
        backward.reverse();
        prop_assert_eq!(&backward, &expected, "backwards: {} in {:?} around {}", cron, zone.iana_name(), jump);
    }

    /// Periods hold their instant, follow each other without holes, and never share a name.
    #[test]
    fn periods_follow_each_other(
        pick in any::<prop::sample::Index>(),
        instant in -2_000_000_000i64..6_000_000_000,
        kind in prop::sample::select(vec!["day", "week", "month", "1h", "90s", "36h", "*/20 * * * *", "30 2 * * *"]),
    ) {
        let zone = zone(pick.get::<String>(&zones())).expect("listed");
        let period: Period = kind.parse().expect("legal");
        let jump = Timestamp::from_second(instant).expect("in range");
        let jump = zone.following(jump).next().map_or(jump, |jump| jump.timestamp()).as_second();
        for second in [instant, jump - 1, jump, jump + 1, jump + 1_800, jump + 5_400] {
            let at = Micros(second * 1_000_000);
            let span = period.containing(at, &zone).expect("in the calendar");
            prop_assert!(span.start <= at && at < span.end, "{span:?} holds {second}");
            prop_assert_eq!(&period.containing(Micros(span.end.0 - 1), &zone).expect("same"), &span);
            let next = period.containing(span.end, &zone).expect("in the calendar");
            prop_assert_eq!(next.start, span.end);
            prop_assert_ne!(next.id, span.id);
        }
    }
}
