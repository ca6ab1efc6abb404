//! What a runner that drains waits for, and what not.

use crate::common::{Sandbox, lines};

#[test]
fn a_runner_that_drains_waits_for_all_that_can_still_become_due() {
    let sandbox = Sandbox::with_shards(3);
    let first = sandbox
        .enqueue([
            "-k",
            "a",
            "--retries",
            "1",
            "--backoff",
            "300ms,1,300ms",
            "--limit",
            "x",
            "echo first >>order; test $FAIRQ_ATTEMPT = 2",
        ])
        .remove(0);
    // On other shards, each behind the one before, and in the way of each other.
    let mut last = first;
    for key in ["b", "c", "d", "e"] {
        last = sandbox
            .enqueue([
                "-k",
                key,
                "--after",
                &last,
                "--limit",
                "x",
                &format!("echo {key} >>order"),
            ])
            .remove(0);
    }
    sandbox.drain(2).expect(0);
    assert_eq!(
        lines(&sandbox.work("order")),
        ["first", "first", "b", "c", "d", "e"]
    );
    assert_eq!(sandbox.count("succeeded"), 5);
}

#[test]
fn a_runner_that_drains_leaves_what_waits_for_a_person_or_its_time() {
    let sandbox = Sandbox::with_shards(2);
    let held = sandbox.enqueue(["--hold", "true"]).remove(0);
    let later = sandbox.enqueue(["--delay", "1h", "true"]).remove(0);
    sandbox.enqueue(["-k", "b", "--after", &held, "true"]);
    sandbox.enqueue(["-k", "c", "--after", &later, "--limit", "x", "true"]);
    sandbox.fairq(["limit", "set", "shut", "0"]).expect(0);
    sandbox.enqueue(["--limit", "shut", "true"]);
    sandbox.fairq(["pause", "--key", "p"]).expect(0);
    sandbox.enqueue(["-k", "p", "true"]);
    let ran = sandbox.drain(1).expect(0);
    for left in ["1 held", "1 delayed", "2 blocked", "1 limited", "1 paused"] {
        assert!(ran.err.contains(left), "{left}: {}", ran.err);
    }
}

/// What a failure means for others is known when the runner has gone, on whatever shard they are.
#[test]
fn nobody_waits_for_a_step_that_failed_when_the_runner_has_gone() {
    let sandbox = Sandbox::with_shards(4);
    let mut last = sandbox.enqueue(["-k", "a", "exit 1"]).remove(0);
    let mut ids = Vec::new();
    for key in ["b", "c", "d", "e", "f"] {
        last = sandbox
            .enqueue(["-k", key, "--after", &last, "true"])
            .remove(0);
        ids.push(last.clone());
    }
    let after_all = sandbox
        .enqueue(["-k", "g", "--after-any", &last, "true"])
        .remove(0);
    sandbox.drain(1).expect(1);
    for id in &ids {
        let step = sandbox.step(id);
        assert_eq!(step["state"], "cancelled", "{step:#}");
    }
    assert_eq!(sandbox.step(&after_all)["state"], "succeeded");
}
