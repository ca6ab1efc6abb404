//! How instants are read and shown.

use super::*;

/// New York's rules, without a time zone database.
fn new_york() -> Zone {
    Zone::new(TimeZone::posix("EST5EDT,M3.2.0,M11.1.0").unwrap())
}

fn at(text: &str) -> Timestamp {
    let exact: jiff::Timestamp = text.parse().unwrap();
    Timestamp::from_millis(exact.as_millisecond())
}

#[test]
fn each_form_names_its_instant() {
    let now = at("2027-01-10T15:00:00Z"); // 10:00 in New York
    for (text, expected) in [
        ("2026-10-25T01:30:00Z", "2026-10-25T01:30:00Z"),
        ("2026-10-25t01:30:00z", "2026-10-25T01:30:00Z"),
        ("2026-10-25T01:30:00+01:00", "2026-10-25T00:30:00Z"),
        ("2026-10-25 01:30:00.25-05:45", "2026-10-25T07:15:00.25Z"),
        ("2026-10-25T01:30Z", "2026-10-25T01:30:00Z"),
        ("2027-01-10 16:00", "2027-01-10T21:00:00Z"),
        ("2027-07-10T16:00:05", "2027-07-10T20:00:05Z"),
        ("16:00", "2027-01-10T21:00:00Z"),
        ("10:00:00.5", "2027-01-10T15:00:00.5Z"),
        ("10:00", "2027-01-11T15:00:00Z"),
        ("09:59:59", "2027-01-11T14:59:59Z"),
        ("00:00", "2027-01-11T05:00:00Z"),
        ("now", "2027-01-10T15:00:00Z"),
        ("now+1h30m", "2027-01-10T16:30:00Z"),
        ("now+90", "2027-01-10T15:01:30Z"),
    ] {
        assert_eq!(new_york().read(text, now).unwrap(), at(expected), "{text}");
    }
}

#[test]
fn what_could_be_misread_is_refused() {
    for text in [
        "",
        "16",
        "16h",
        "4pm",
        "24:00",
        "25:00",
        "16:60",
        "9:00",
        "１６:00",
        "16:00,5",
        "16.00",
        "-16:00",
        "16:00 ",
        "16:00Z",
        "now-1h",
        "now +1h",
        "now+",
        "now+0,5s",
        "now+-1s",
        "NOW",
        "+1h",
        "tomorrow",
        "2027-03-14",
        "2027-02-29 12:00",
        "2027-13-01 12:00",
        "27-03-14 12:00",
        "2027-3-14 12:00",
        "14.03.2027 12:00",
        "03/14/2027 12:00",
        "2027-03-14  12:00",
        "2027-03-14T12",
        "2027-03-14T12:00+1",
        "2027-03-14T12:00:00+01:00[Europe/London]",
        "-002027-03-14T12:00:00Z",
        "20270314T120000Z",
        "1799928000",
        "2027-03-14T12:00:00.Z",
    ] {
        let read = new_york().read(text, at("2027-01-10T15:00:00Z"));
        let error = read.expect_err(text);
        assert_eq!(error.kind(), ErrorKind::Usage, "{text:?}");
        assert!(error.what().contains(&format!("{text:?}")), "{error}");
        assert!(!error.hints().is_empty() || !error.causes().is_empty());
    }
}

#[test]
fn a_local_time_that_does_not_exist_is_refused_with_the_reason() {
    let error = new_york()
        .read("2027-03-14 02:30", at("2027-01-10T15:00:00Z"))
        .unwrap_err();
    assert!(error.what().contains("does not exist"), "{error}");
    assert!(error.hints()[0].contains("2027-03-14T06:30:00Z (2027-03-14 01:30:00 EST)"));
    assert!(error.hints()[0].contains("2027-03-14T07:30:00Z (2027-03-14 03:30:00 EDT)"));
    // The next 02:30 would be left out; the one after the change is not.
    let before = at("2027-03-14T06:00:00Z");
    let error = new_york().read("02:30", before).unwrap_err();
    assert!(
        error.what().contains("does not exist on 2027-03-14"),
        "{error}"
    );
    let evening_before = at("2027-03-14T01:00:00Z");
    assert!(new_york().read("02:30", evening_before).is_err());
    let after = at("2027-03-14T08:00:00Z");
    assert_eq!(
        new_york().read("02:30", after).unwrap(),
        at("2027-03-15T06:30:00Z")
    );
}

#[test]
fn a_local_time_that_comes_twice_is_refused_or_the_next_one() {
    let zone = new_york();
    let early = at("2027-11-07T04:00:00Z");
    let error = zone.read("2027-11-07 01:30", early).unwrap_err();
    assert!(error.what().contains("comes twice"), "{error}");
    for part in ["2027-11-07T05:30:00Z", "2027-11-07T06:30:00Z"] {
        assert!(error.hints()[0].contains(part), "{error:?}");
    }
    for (now, next) in [
        ("2027-11-07T04:00:00Z", "2027-11-07T05:30:00Z"),
        ("2027-11-07T05:30:00Z", "2027-11-07T06:30:00Z"),
        ("2027-11-07T06:15:00Z", "2027-11-07T06:30:00Z"),
        ("2027-11-07T06:30:00Z", "2027-11-08T06:30:00Z"),
    ] {
        assert_eq!(zone.read("01:30", at(now)).unwrap(), at(next), "at {now}");
    }
}

#[test]
fn an_instant_is_shown_with_its_zone() {
    let zone = new_york();
    for (instant, shown) in [
        ("2027-11-07T05:30:00Z", "2027-11-07 01:30:00 EDT"),
        ("2027-11-07T06:30:00Z", "2027-11-07 01:30:00 EST"),
    ] {
        assert_eq!(zone.show(at(instant)), shown);
    }
    let utc = Zone::new(TimeZone::UTC);
    assert_eq!(
        utc.show(at("2027-11-07T06:30:00Z")),
        "2027-11-07 06:30:00 UTC"
    );
    assert_eq!(
        zone.show(Timestamp::from_millis(i64::MAX)),
        format!("{}ms", i64::MAX)
    );
}

#[test]
fn without_a_zone_only_what_needs_none_is_read() {
    let zone = Zone::of(Known {
        zone: TimeZone::UTC,
        trouble: Some("no such zone".to_owned()),
    });
    let now = at("2027-11-07T06:30:00Z");
    assert_eq!(zone.read("now", now).unwrap(), now);
    assert_eq!(zone.read("2027-11-07T06:30:00Z", now).unwrap(), now);
    for text in ["16:00", "2027-11-07 16:00"] {
        assert_eq!(zone.read(text, now).unwrap_err().kind(), ErrorKind::Config);
    }
}

#[test]
fn an_age_is_told_in_its_largest_unit() {
    let now = at("2027-11-07T06:30:00Z");
    for (millis, text) in [
        (0, "now"),
        (999, "now"),
        (-999, "now"),
        (1_000, "1s ago"),
        (59_999, "59s ago"),
        (180_000, "3m ago"),
        (7_200_000, "2h ago"),
        (86_400_000 * 40, "40d ago"),
        (-90_000, "in 1m"),
    ] {
        let instant = Timestamp::from_millis(now.millis() - millis);
        assert_eq!(ago(instant, now), text);
    }
}
