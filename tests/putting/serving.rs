//! Runners that serve only something, or only for so long.

use nix::sys::signal::Signal;

use crate::common::{Sandbox, until};
use crate::kit::state;

#[test]
fn a_runner_of_some_keys_is_not_held_up_by_others() {
    let sandbox = Sandbox::with_shards(2);
    let urgent = sandbox.enqueue(["-k", "ann", "-b", "1", "true"]).remove(0);
    let mine = sandbox.enqueue(["-k", "bob", "-b", "9", "--array", "1-5", "true"]);
    let late = sandbox.enqueue(["-k", "bob", "-b", "20", "true"]).remove(0);
    sandbox
        .fairq(["run", "--drain", "--key", "bob", "--band", "9"])
        .expect(0);
    assert!(mine.iter().all(|id| state(&sandbox, id) == "succeeded"));
    assert_eq!(state(&sandbox, &urgent), "ready");
    assert_eq!(state(&sandbox, &late), "ready");
    sandbox
        .fairq(["run", "--drain", "--key", "bob", "--key", "eve"])
        .expect(0);
    assert_eq!(state(&sandbox, &late), "succeeded");
    assert_eq!(state(&sandbox, &urgent), "ready");
    sandbox.fairq(["run", "--drain", "-b", "1"]).expect(0);
    assert_eq!(state(&sandbox, &urgent), "succeeded");
}

#[test]
fn strict_is_strict_among_what_is_served() {
    let sandbox = Sandbox::with_shards(1);
    for (key, band) in [("x", "1"), ("bob", "30"), ("bob", "10"), ("eve", "20")] {
        sandbox.enqueue(["-k", key, "-b", band, "echo $FAIRQ_BAND >>order"]);
    }
    let args = ["run", "--drain", "--workers", "1", "-k", "bob", "-k", "eve"];
    sandbox.fairq(args).expect(0);
    let order = crate::common::lines(&sandbox.work("order"));
    assert_eq!(order, ["10", "20", "30"]);
}

/// What becomes due by what it ran is not its to run unless it serves it.
#[test]
fn what_follows_from_its_steps_is_left_to_others() {
    let sandbox = Sandbox::with_shards(2);
    let parent = sandbox.enqueue(["-k", "bob", "true"]).remove(0);
    let child = sandbox
        .enqueue(["-k", "ann", "--after", &parent, "true"])
        .remove(0);
    let own = sandbox
        .enqueue(["-k", "bob", "--after", &parent, "true"])
        .remove(0);
    sandbox.fairq(["run", "--drain", "-k", "bob"]).expect(0);
    assert_eq!(state(&sandbox, &own), "succeeded");
    assert_eq!(state(&sandbox, &child), "ready");
    sandbox.drain(1).expect(0);
    assert_eq!(state(&sandbox, &child), "succeeded");
}

#[test]
fn a_paused_key_does_not_hold_up_a_runner_that_drains() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["-k", "bob", "true"]);
    sandbox.enqueue(["-k", "ann", "true"]);
    sandbox.fairq(["pause", "--key", "bob"]).expect(0);
    sandbox
        .fairq(["run", "--drain", "-k", "bob", "-k", "ann"])
        .expect(0);
    assert_eq!(
        (state(&sandbox, "a1"), state(&sandbox, "a2")),
        ("ready".into(), "succeeded".into())
    );
}

#[test]
fn so_many_failures_are_enough() {
    let sandbox = Sandbox::with_shards(1);
    let line = "test {} -gt 2 || exit 1; until test -e go; do sleep 0.01; done";
    sandbox.enqueue(["--array", "1-9", line]);
    let runner = sandbox.runner_unseen(&["--workers", "1", "--max-fail", "2"]);
    until("it takes no more", || runner.said().contains("draining"));
    std::fs::write(sandbox.work("go"), "").unwrap();
    assert_eq!(runner.end().0, 1);
    // One may have been taken before the second failure was known.
    assert_eq!(sandbox.count("failed"), 2);
    assert!(sandbox.count("ready") >= 6);
    // Too few of them change nothing.
    sandbox.enqueue(["exit 1"]);
    sandbox
        .fairq(["run", "--drain", "--max-fail", "99"])
        .expect(1);
    assert_eq!(sandbox.count("ready"), 0);
    sandbox.fairq(["run", "--max-fail", "0"]).expect(2);
}

#[test]
fn a_runner_may_serve_for_a_while() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["until test -e go; do sleep 0.01; done"]);
    let runner = sandbox.runner_unseen(&["--for", "1s", "--workers", "1"]);
    until("it runs", || sandbox.count("running") == 1);
    until("it takes no more", || runner.said().contains("draining"));
    sandbox.enqueue(["true"]);
    std::fs::write(sandbox.work("go"), "").unwrap();
    // What runs may finish; what came later waits.
    assert_eq!(runner.end().0, 0);
    assert_eq!(
        (state(&sandbox, "a1"), state(&sandbox, "a2")),
        ("succeeded".into(), "ready".into())
    );
}

#[test]
fn a_runner_of_some_keys_takes_what_comes_and_stops_when_told() {
    let sandbox = Sandbox::with_shards(2);
    let runner = sandbox.runner(&["--workers", "1", "-k", "bob"]);
    let other = sandbox.enqueue(["-k", "ann", "-b", "1", "true"]).remove(0);
    sandbox
        .fairq(["enqueue", "--wait", "-k", "bob", "true"])
        .expect(0);
    runner.signal(Signal::SIGTERM);
    assert_eq!(runner.end().0, 0);
    assert_eq!(state(&sandbox, &other), "ready");
}
