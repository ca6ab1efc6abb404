//! Named limits: never more at once than there are places, whoever runs, retries or waits.

use serde_json::{Value, json};

use crate::common::{Sandbox, lines, until};
use crate::kit::{running_step, touch, until_it_is, until_there_are, workers};

/// Returns what `limit ls` says of a limit.
fn limit(sandbox: &Sandbox, name: &str) -> Value {
    let told = sandbox.json(["limit", "ls"]);
    let limits = told["limits"].as_array().unwrap();
    let found = limits.iter().find(|limit| limit["name"] == name);
    found.unwrap_or_else(|| panic!("{told:#}")).clone()
}

/// Several runners with many workers each: the lock that every step tries for is always free.
#[test]
fn of_a_limit_of_one_there_is_never_a_second() {
    let sandbox = Sandbox::with_shards(2);
    let line = "flock -n lock sleep 0.005 || : >violated".to_owned();
    for key in ["a", "b", "c"] {
        sandbox.enqueue_lines(&["-k", key, "--limit", "one"], &vec![line.clone(); 25]);
    }
    let runners = [8, 8, 8].map(|count| workers(&sandbox, count));
    until_there_are(&sandbox, 75, "succeeded");
    assert!(!sandbox.work("violated").exists());
    drop(runners);
}

/// Steps that are retried wait for places like all others.
#[test]
fn retried_steps_stay_within_their_limit() {
    let sandbox = Sandbox::with_shards(2);
    sandbox.fairq(["limit", "set", "two", "2"]).expect(0);
    let line = "for n in 1 2; do if mkdir slot$n 2>/dev/null; then sleep 0.02; rmdir slot$n; exit 1; fi; done; \
                : >violated; exit 1";
    for key in ["a", "b"] {
        sandbox.enqueue_lines(&["-k", key, "--limit", "two"], &vec![line.to_owned(); 10]);
    }
    let runner = workers(&sandbox, 8);
    for tries in [1, 2, 3] {
        until_there_are(&sandbox, 20, "failed");
        assert!(!sandbox.work("violated").exists(), "in try {tries}");
        if tries < 3 {
            let told = sandbox.json(["retry", "--state", "failed"]);
            assert_eq!(told["steps"].as_array().unwrap().len(), 20);
            // Every step has to be over once more before the count says anything.
            until("all were tried again", || {
                let told = sandbox.json(["status", "--limit", "0"]);
                let steps = told["steps"].as_array().unwrap();
                let more = |step: &Value| {
                    let id = step["id"].as_str().unwrap();
                    sandbox.step(id)["attempts"].as_array().unwrap().len() > tries
                };
                steps.iter().all(more)
            });
        }
    }
    drop(runner);
}

#[test]
fn a_limit_that_is_changed_holds_at_once_and_ends_nothing() {
    let sandbox = Sandbox::with_shards(2);
    let runner = workers(&sandbox, 10);
    sandbox.fairq(["limit", "set", "n", "1"]).expect(0);
    let line = "until [ -e go-$FAIRQ_ID ]; do sleep 0.01; done".to_owned();
    let ids = sandbox.enqueue_lines(&["--limit", "n"], &vec![line; 20]);
    until_there_are(&sandbox, 1, "running");
    let told = sandbox.json(["limit", "set", "n", "8"]);
    assert_eq!((&told["places"], &told["before"]), (&json!(8), &json!(1)));
    until_there_are(&sandbox, 8, "running");
    sandbox.fairq(["limit", "set", "n", "2"]).expect(0);
    let running = |sandbox: &Sandbox| -> Vec<String> {
        let of = |id: &&String| sandbox.step(id)["state"] == "running";
        ids.iter().filter(of).cloned().collect()
    };
    let eight = running(&sandbox);
    assert_eq!(eight.len(), 8, "lowering ends nothing");
    // Until fewer than two are left, nobody follows those that end.
    for (ended, id) in eight.iter().enumerate().take(6) {
        touch(&sandbox.work(&format!("go-{id}")));
        until_it_is(&sandbox, id, "succeeded");
        assert_eq!(running(&sandbox).len(), 7 - ended);
    }
    touch(&sandbox.work(&format!("go-{}", eight[6])));
    until_it_is(&sandbox, &eight[6], "succeeded");
    until_there_are(&sandbox, 2, "running");
    let told = limit(&sandbox, "n");
    assert_eq!((&told["places"], &told["waiting"]), (&json!(2), &json!(11)));
    assert_eq!(told["holders"].as_object().unwrap().len(), 2, "{told:#}");
    drop(runner);
}

/// The better band's steps wait for one place; workers that they cannot use are not kept for them.
#[test]
fn what_waits_for_a_limit_keeps_no_worker_from_worse_bands() {
    let sandbox = Sandbox::with_shards(1);
    let runner = workers(&sandbox, 4);
    let high = ["-b", "1", "-k", "high", "--limit", "k"];
    let line = "until [ -e go-$FAIRQ_ID ]; do sleep 0.01; done".to_owned();
    let first = sandbox.enqueue_lines(&high, &vec![line.clone(); 5]);
    until_it_is(&sandbox, &first[0], "running");
    let low = sandbox.enqueue_lines(&["-b", "200", "-k", "low"], &vec![line; 6]);
    until_there_are(&sandbox, 4, "running");
    for id in &low[..3] {
        assert_eq!(sandbox.step(id)["state"], "running");
    }
    // The worker that has become free takes one of the low steps or the next of the limit, whichever
    // is due first; the next one that becomes free takes it for certain.
    touch(&sandbox.work(&format!("go-{}", first[0])));
    until("it has a place", || {
        sandbox.step(&first[1])["state"] != "limited"
    });
    touch(&sandbox.work(&format!("go-{}", low[0])));
    until_it_is(&sandbox, &first[1], "running");
    assert_eq!(sandbox.step(&low[4])["state"], "ready");
    drop(runner);
}

#[test]
fn a_place_goes_to_the_best_band_that_waits() {
    let sandbox = Sandbox::with_shards(2);
    let runner = workers(&sandbox, 2);
    let first = running_step(&sandbox, &["--limit", "k"]);
    let line = "echo $FAIRQ_ID >>order".to_owned();
    let low = sandbox.enqueue_lines(&["-b", "200", "--limit", "k"], &vec![line.clone(); 200]);
    let high = sandbox
        .enqueue(["-b", "1", "-k", "else", "--limit", "k", &line])
        .remove(0);
    let told = sandbox.json(["explain", &low[0]]);
    let reason = &told["reasons"][0];
    assert_eq!(reason["code"], "limited", "{told:#}");
    assert_eq!(reason["evidence"]["before"], json!({"1": 1}), "{reason:#}");
    touch(&sandbox.work("go"));
    sandbox
        .fairq(["wait", &first, &high, "--timeout", "90s"])
        .expect(0);
    until_there_are(&sandbox, 202, "succeeded");
    assert_eq!(lines(&sandbox.work("order"))[0], high);
    drop(runner);
}

#[test]
fn a_limit_that_nobody_set_has_one_place_and_one_of_none_starts_nothing() {
    let sandbox = Sandbox::with_shards(1);
    assert_eq!(sandbox.json(["limit", "ls"])["limits"], json!([]));
    sandbox.fairq(["limit", "rm", "x"]).expect(3);
    sandbox.fairq(["limit", "set", "none", "0"]).expect(0);
    let runner = workers(&sandbox, 2);
    let id = sandbox.enqueue(["--limit", "none:1", "true"]).remove(0);
    let other = sandbox.enqueue(["-b", "200", "true"]).remove(0);
    sandbox.fairq(["wait", &other]).expect(0);
    assert_eq!(sandbox.step(&id)["state"], "limited");
    let told = sandbox.json(["limit", "rm", "none"]);
    assert_eq!((&told["places"], &told["before"]), (&json!(1), &json!(0)));
    sandbox.fairq(["wait", &id]).expect(0);
    for args in [
        &["limit", "set", "x", "-1"][..],
        &["limit", "set", "x", "1.5"],
        &["limit", "set", "x", "1_0"],
        &["limit", "set", "a:b", "1"],
        &["limit", "set", "", "1"],
        &["limit", "set", "x"],
        &["limit"],
    ] {
        sandbox.fairq(args).expect(2);
    }
    drop(runner);
}
