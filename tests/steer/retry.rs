//! Retrying, holding and releasing: each answers for each step, and does what it says.

use std::fs;

use serde_json::json;

use crate::common::{Sandbox, lines};
use crate::kit::{answer, running_step, until_it_is, workers};

#[test]
fn dead_letters_run_again_and_everything_else_is_refused_by_name() {
    let sandbox = Sandbox::with_shards(1);
    for line in ["true", "echo x >>tries; test -e good", "true", "true"] {
        sandbox.enqueue([line]);
    }
    sandbox.fairq(["cancel", "a3"]).expect(0);
    sandbox.fairq(["hold", "a4"]).expect(0);
    sandbox.drain(1).expect(1);
    let runner = workers(&sandbox, 1);
    let running = running_step(&sandbox, &[]);
    fs::write(sandbox.work("good"), "").unwrap();
    let args = ["retry", "a1", "a2", "a3", "a4", &running, "a99", "--json"];
    let told = sandbox.fairq(args).expect(1).json();
    for (id, result, from) in [
        ("a1", "refused", json!("succeeded")),
        ("a2", "done", json!("failed")),
        ("a3", "done", json!("cancelled")),
        ("a4", "refused", json!("held")),
        (&running, "refused", json!("running")),
        ("a99", "missing", json!(null)),
    ] {
        let answer = answer(&told, id);
        assert_eq!(
            (&answer["result"], &answer["from"]),
            (&json!(result), &from),
            "{told:#}"
        );
    }
    assert_eq!(answer(&told, "a2")["to"], "ready");
    fs::write(sandbox.work("go"), "").unwrap();
    sandbox.fairq(["wait", "a2", "a3", &running]).expect(0);
    assert_eq!(lines(&sandbox.work("tries")).len(), 2);
    let step = sandbox.step("a2");
    assert_eq!(step["attempts"].as_array().unwrap().len(), 2, "{step:#}");
    assert_eq!(
        step["attempt"], 1,
        "tries are counted from the start: {step:#}"
    );
    assert_eq!(sandbox.step("a4")["state"], "held");
    drop(runner);
}

#[test]
fn all_dead_letters_are_retried_by_one_word() {
    let sandbox = Sandbox::with_shards(2);
    sandbox.enqueue_lines(&["-k", "a"], &vec!["test -e good".to_owned(); 30]);
    sandbox.enqueue_lines(&["-k", "b"], &vec!["true".to_owned(); 3]);
    sandbox.drain(2).expect(1);
    fs::write(sandbox.work("good"), "").unwrap();
    let told = sandbox.json(["retry", "--all"]);
    assert_eq!(told["steps"].as_array().unwrap().len(), 30, "{told:#}");
    sandbox.drain(2).expect(0);
    assert_eq!(sandbox.count("succeeded"), 33);
    sandbox.fairq(["retry", "--state", "failed"]).expect(3);
    sandbox.fairq(["retry", "--all"]).expect(3);
}

#[test]
fn a_held_step_waits_for_its_release_and_then_goes_where_it_belongs() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["-k", "h", "echo a1 >>order"]);
    sandbox.enqueue(["-k", "h", "--delay", "1h", "true"]);
    sandbox.enqueue(["-k", "h", "--hold", "echo a3 >>order"]);
    sandbox.enqueue(["-k", "other", "echo a4 >>order"]);
    let told = sandbox.json(["hold", "-k", "h"]);
    assert_eq!(
        told["steps"].as_array().unwrap().len(),
        2,
        "held ones are not meant: {told:#}"
    );
    sandbox.drain(1).expect(0);
    assert_eq!(lines(&sandbox.work("order")), ["a4"]);
    let ran = sandbox.fairq(["hold", "a1", "a4"]).expect(1);
    assert!(ran.err.contains("a1 is held already"), "{}", ran.err);
    assert!(
        ran.err.contains("a4 cannot be held: it is succeeded"),
        "{}",
        ran.err
    );
    let told = sandbox.json(["release", "--all"]);
    for (id, to) in [("a1", "ready"), ("a2", "delayed"), ("a3", "ready")] {
        assert_eq!(answer(&told, id)["to"], to, "{told:#}");
    }
    sandbox.drain(1).expect(0);
    let mut order = lines(&sandbox.work("order"));
    order.sort();
    assert_eq!(order, ["a1", "a3", "a4"]);
    sandbox.fairq(["release", "a1"]).expect(1);
    sandbox.fairq(["release", "--all"]).expect(3);
}

#[test]
fn what_runs_cannot_be_held() {
    let sandbox = Sandbox::with_shards(1);
    let runner = workers(&sandbox, 1);
    let id = running_step(&sandbox, &[]);
    let ran = sandbox.fairq(["hold", &id]).expect(1);
    assert!(
        ran.err.contains("cannot be held: it is running"),
        "{}",
        ran.err
    );
    fs::write(sandbox.work("go"), "").unwrap();
    until_it_is(&sandbox, &id, "succeeded");
    drop(runner);
}

/// Steps that a live runner has planned already: a hold that was acknowledged is kept all the same.
#[test]
fn a_step_that_was_held_in_time_does_not_start() {
    let sandbox = Sandbox::with_shards(1);
    let runner = workers(&sandbox, 1);
    let first = running_step(&sandbox, &[]);
    let ids = sandbox.enqueue_lines(&[], &vec!["echo $FAIRQ_ID >>order".to_owned(); 20]);
    let (held, free) = ids.split_at(10);
    let range = format!("{}-{}", held[0], held[9]);
    sandbox.fairq(["hold", &range]).expect(0);
    fs::write(sandbox.work("go"), "").unwrap();
    let range = format!("{}-{}", free[0], free[9]);
    sandbox.fairq(["wait", &first, &range]).expect(0);
    assert_eq!(lines(&sandbox.work("order")), free);
    assert_eq!(sandbox.count("held"), 10);
    drop(runner);
}
