//! Steps that take their runner with them.

use crate::common::{Sandbox, lines};

/// A step whose process kills the runner that has started it.
const DEADLY: &str = "echo $FAIRQ_ID >>starts; echo before it; kill -9 $PPID; sleep 1000";

#[test]
fn a_step_that_kills_its_runners_fails_after_the_third() {
    let sandbox = Sandbox::with_shards(2);
    let id = sandbox.enqueue([DEADLY]).remove(0);
    let other = sandbox
        .enqueue(["-k", "other", "-b", "200", "true"])
        .remove(0);
    let after = sandbox
        .enqueue(["-k", "after", "--after", &id, "true"])
        .remove(0);
    for runs in 1..=3 {
        sandbox.drain(1).expect(137);
        assert_eq!(lines(&sandbox.work("starts")).len(), runs);
    }
    // The next one sees what has become of it, and gets on with the rest.
    sandbox.drain(1);
    assert_eq!(lines(&sandbox.work("starts")).len(), 3);
    assert_eq!(sandbox.step(&other)["state"], "succeeded");
    assert_eq!(sandbox.step(&after)["state"], "cancelled");
    let step = sandbox.step(&id);
    assert_eq!(step["state"], "failed", "{step:#}");
    assert_eq!(step["attempts"].as_array().unwrap().len(), 3, "{step:#}");
    sandbox.fairq(["wait", &id]).expect(137);
    for command in ["show", "explain"] {
        let said = sandbox.fairq([command, &id]).expect(0).text();
        assert!(said.contains("3 runners in a row died"), "{said}");
    }
    let output = sandbox.fairq(["logs", "--attempt", "2", &id]).expect(0);
    assert_eq!(output.text(), "before it\n");
    // Somebody who knows better has three more runs.
    sandbox.fairq(["retry", &id]).expect(0);
    for _ in 0..3 {
        sandbox.drain(1).expect(137);
    }
    sandbox.drain(1);
    assert_eq!(lines(&sandbox.work("starts")).len(), 6);
    assert_eq!(sandbox.step(&id)["state"], "failed");
}

/// The runner is dead, but what its steps wrote is not lost with it, however much it was.
#[test]
fn what_a_lost_try_wrote_is_kept() {
    let sandbox = Sandbox::with_shards(1);
    let lines = 100_000;
    let much = format!("seq {lines}; echo little >&2; kill -9 $PPID; sleep 1000");
    let id = sandbox.enqueue(["--on-lost", "fail", &much]).remove(0);
    sandbox.drain(1).expect(137);
    sandbox.drain(1);
    assert_eq!(sandbox.step(&id)["state"], "failed");
    let said = |stream: &str| sandbox.fairq(["logs", stream, &id]).expect(0).text();
    assert_eq!(said("--stdout").lines().count(), lines);
    assert_eq!(said("--stderr"), "little\n");
}
