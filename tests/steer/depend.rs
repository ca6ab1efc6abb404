//! Steps that wait for others, when those fail, are cancelled, or go.

use serde_json::json;

use crate::common::{Sandbox, lines};
use crate::kit::{answer, running_step, touch, until_it_is, workers};

/// On one shard and over two: who waits is told wherever it is.
fn sandboxes() -> impl Iterator<Item = Sandbox> {
    [1, 4].into_iter().map(Sandbox::with_shards)
}

#[test]
fn what_waits_for_a_step_that_fails_never_runs_and_says_why() {
    for sandbox in sandboxes() {
        let a = sandbox.enqueue(["-k", "a", "exit 7"]).remove(0);
        let b = sandbox
            .enqueue(["-k", "b", "--after", &a, ": >marker"])
            .remove(0);
        let c = sandbox
            .enqueue(["-k", "c", "--after", &b, ": >marker"])
            .remove(0);
        let told = sandbox.json(["explain", &b]);
        assert_eq!(told["reasons"][0]["code"], "blocked", "{told:#}");
        let parents = json!([{"parent": a, "need": "success", "met": false, "state": "ready"}]);
        assert_eq!(told["reasons"][0]["evidence"]["parents"], parents);
        sandbox.drain(1).expect(1);
        assert_ne!(sandbox.fairq(["wait", &b]).code, 0);
        for (id, parent) in [(&b, &a), (&c, &b)] {
            let step = sandbox.step(id);
            assert_eq!(step["state"], "cancelled", "{step:#}");
            assert_eq!(step["ending"]["how"], "skipped", "{step:#}");
            let reason = step["ending"]["reason"].as_str().unwrap();
            assert!(reason.contains(parent.as_str()), "{reason}");
            let why = sandbox.json(["explain", id]);
            assert_eq!(why["reasons"][0]["code"], "skipped", "{why:#}");
            assert_eq!(step["attempts"], json!([]), "{step:#}");
        }
        assert_eq!(sandbox.count("blocked"), 0);
        assert!(!sandbox.work("marker").exists());
    }
}

#[test]
fn a_cancelled_child_is_forgotten_by_its_parent_and_its_siblings_go_on() {
    for sandbox in sandboxes() {
        let a = sandbox.enqueue(["-k", "a", "true"]).remove(0);
        let b = sandbox
            .enqueue(["-k", "b", "--after", &a, "true"])
            .remove(0);
        let c = sandbox
            .enqueue(["-k", "c", "--after", &a, "true"])
            .remove(0);
        let mut both = vec![b.clone(), c.clone()];
        both.sort();
        assert_eq!(sandbox.step(&a)["dependents"], json!(both));
        sandbox.fairq(["cancel", &b]).expect(0);
        assert_eq!(sandbox.step(&a)["dependents"], json!([c]));
        sandbox.drain(1).expect(0);
        assert_eq!(sandbox.step(&c)["state"], "succeeded");
        assert_eq!(sandbox.step(&b)["state"], "cancelled");
        // Forgetting it is no trouble either.
        sandbox.fairq(["clean", &b]).expect(0);
        sandbox.fairq(["show", &b]).expect(3);
        assert_eq!(sandbox.step(&c)["after"][0]["parent"], json!(a));
    }
}

#[test]
fn what_waits_for_a_cancelled_step_does_not_run() {
    for sandbox in sandboxes() {
        let a = sandbox.enqueue(["-k", "a", "true"]).remove(0);
        let b = sandbox
            .enqueue(["-k", "b", "--after", &a, ": >marker"])
            .remove(0);
        sandbox.fairq(["cancel", &a]).expect(0);
        // Nobody runs, and it is told all the same.
        let step = sandbox.step(&b);
        assert_eq!(step["state"], "cancelled", "{step:#}");
        assert_eq!(step["ending"]["how"], "skipped", "{step:#}");
        let runner = workers(&sandbox, 1);
        let a = running_step(&sandbox, &["-k", "a"]);
        let b = sandbox
            .enqueue(["-k", "b", "--after", &a, ": >marker"])
            .remove(0);
        sandbox.fairq(["cancel", &a]).expect(0);
        until_it_is(&sandbox, &b, "cancelled");
        let next = sandbox.enqueue(["-k", "b", "true"]).remove(0);
        sandbox.fairq(["wait", &next]).expect(0);
        assert!(!sandbox.work("marker").exists());
        drop(runner);
    }
}

#[test]
fn a_skipped_step_is_retried_with_its_parent_and_waits_for_it_again() {
    for sandbox in sandboxes() {
        let a = sandbox
            .enqueue(["-k", "a", "echo a >>order; test -e good"])
            .remove(0);
        let b = sandbox
            .enqueue(["-k", "b", "--after", &a, "echo b >>order"])
            .remove(0);
        sandbox.drain(1).expect(1);
        touch(&sandbox.work("good"));
        let told = sandbox.json(["retry", &a, &b]);
        assert_eq!(answer(&told, &a)["to"], "ready", "{told:#}");
        assert_eq!(answer(&told, &b)["to"], "blocked", "{told:#}");
        sandbox.drain(1).expect(0);
        assert_eq!(lines(&sandbox.work("order")), ["a", "a", "b"]);
    }
}

#[test]
fn a_released_step_still_waits_for_its_parents() {
    let sandbox = Sandbox::with_shards(1);
    let a = sandbox.enqueue(["--hold", "true"]).remove(0);
    let b = sandbox.enqueue(["--after", &a, "true"]).remove(0);
    sandbox.fairq(["hold", &b]).expect(0);
    let told = sandbox.json(["release", &b]);
    assert_eq!(answer(&told, &b)["to"], "blocked", "{told:#}");
    sandbox.fairq(["release", &a]).expect(0);
    sandbox.drain(1).expect(0);
    assert_eq!(sandbox.count("succeeded"), 2);
}
