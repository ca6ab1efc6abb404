//! Local times, clock changes, and steps that are put off.

use crate::common::{Ran, Sandbox};

fn put(sandbox: &Sandbox, zone: &str, at: &str) -> Ran {
    let mut command = sandbox.command(["enqueue", "--at", at, "true"]);
    Ran::of(command.env("TZ", zone))
}

#[test]
fn a_local_time_is_the_callers_and_stored_as_an_instant() {
    let sandbox = Sandbox::with_shards(1);
    for (zone, at, due) in [
        ("UTC", "2027-07-01 12:00", "2027-07-01T12:00:00.000Z"),
        (
            "Asia/Kathmandu",
            "2027-07-01 12:00",
            "2027-07-01T06:15:00.000Z",
        ),
        (
            "America/St_Johns",
            "2027-07-01 12:00",
            "2027-07-01T14:30:00.000Z",
        ),
        (
            "Europe/London",
            "2027-10-31T01:30:00Z",
            "2027-10-31T01:30:00.000Z",
        ),
        (
            "Europe/London",
            "2027-10-31T01:30:00+01:00",
            "2027-10-31T00:30:00.000Z",
        ),
    ] {
        let id = put(&sandbox, zone, at).expect(0).text();
        let step = sandbox.step(id.trim_end());
        assert_eq!(
            (&step["state"], &step["due"]),
            (&"delayed".into(), &due.into()),
            "{zone} {at}"
        );
    }
    // What is no terminal gets the instant itself, whoever looks.
    let mut show = sandbox.command(["show", "a2"]);
    let text = Ran::of(show.env("TZ", "America/St_Johns")).expect(0).text();
    assert!(text.contains("2027-07-01T06:15:00.000Z"), "{text}");
}

#[test]
fn a_local_time_that_does_not_exist_or_comes_twice_is_refused_with_the_way_out() {
    let sandbox = Sandbox::with_shards(1);
    for (zone, at, said, ways) in [
        (
            "America/New_York",
            "2027-03-14 02:30",
            "does not exist",
            ["2027-03-14T06:30:00Z", "2027-03-14T07:30:00Z"],
        ),
        (
            "Europe/London",
            "2027-10-31 01:30",
            "comes twice",
            ["2027-10-31T00:30:00Z", "2027-10-31T01:30:00Z"],
        ),
    ] {
        let ran = put(&sandbox, zone, at).expect(2);
        assert!(ran.err.contains(said), "{}", ran.err);
        for way in ways {
            assert!(ran.err.contains(way), "{}", ran.err);
            put(&sandbox, zone, way).expect(0);
        }
    }
    assert_eq!(sandbox.count("delayed"), 4);
}

#[test]
fn what_is_put_off_does_not_start_before_its_time_and_holds_up_nobody() {
    let sandbox = Sandbox::with_shards(2);
    let mut command = sandbox.command(["enqueue", "--delay", "700ms", "-k", "late", "true"]);
    let late = Ran::of(command.env("TZ", "Asia/Kathmandu"))
        .expect(0)
        .text();
    let late = late.trim_end();
    sandbox.enqueue(["--array", "1-20", "true"]);
    let runner = sandbox.runner(&["--workers", "2"]);
    sandbox.fairq(["wait", "--all"]).expect(0);
    let instant =
        |value: &serde_json::Value| -> jiff::Timestamp { value.as_str().unwrap().parse().unwrap() };
    let step = sandbox.step(late);
    let claimed = instant(&step["attempts"][0]["claimed"]);
    let waited = claimed.duration_since(instant(&step["created"]));
    assert!(waited.as_millis() >= 700, "{waited:?}");
    drop(runner);
}
