//! Editing: what is named changes, what is not stays, and only of steps that wait.

use serde_json::json;

use crate::common::{Sandbox, lines};
use crate::kit::{answer, running_step, touch, until_it_is, workers};

#[test]
fn what_is_named_changes_and_the_rest_stays() {
    let sandbox = Sandbox::with_shards(1);
    std::fs::create_dir(sandbox.work("there")).unwrap();
    sandbox.enqueue(["-n", "old", "-t", "x", "-w", "2", "-e", "A=1", "true"]);
    let before = sandbox.step("a1");
    let args = [
        "edit",
        "a1",
        "-b",
        "7",
        "-k",
        "bob",
        "-w",
        "3",
        "-n",
        "new",
        "-t",
        "y",
        "-t",
        "z",
        "--flow",
        "f",
        "-C",
        "there",
        "-e",
        "B=2",
        "--retries",
        "4",
        "--timeout",
        "9s",
        "--json",
        "--",
        "sh",
        "-c",
        "echo $A $B $PWD",
    ];
    let told = sandbox.fairq(args).expect(0).json();
    assert_eq!(answer(&told, "a1")["result"], "done", "{told:#}");
    assert_eq!(answer(&told, "a1")["to"], "ready", "{told:#}");
    let step = sandbox.step("a1");
    for (field, value) in [
        ("band", json!(7)),
        ("key", json!("bob")),
        ("weight", json!(3.0)),
        ("name", json!("new")),
        ("tags", json!(["y", "z"])),
        ("flow", json!("f")),
        ("argv", json!(["sh", "-c", "echo $A $B $PWD"])),
        ("created", before["created"].clone()),
    ] {
        assert_eq!(step[field], value, "{field}");
    }
    assert_eq!(step["policy"]["retries"], 4);
    assert_eq!(step["policy"]["timeout_ms"], 9_000);
    assert_eq!(step["policy"]["grace_ms"], before["policy"]["grace_ms"]);
    let args = [
        "edit",
        "a1",
        "-n",
        "",
        "-t",
        "",
        "--flow",
        "",
        "--timeout",
        "0",
    ];
    sandbox.fairq(args).expect(0);
    let step = sandbox.step("a1");
    assert_eq!(step["name"], json!(null));
    assert_eq!(step["tags"], json!([]));
    assert_eq!(step["flow"], json!(null));
    assert_eq!(step["policy"]["timeout_ms"], json!(null));
    assert_eq!(step["policy"]["retries"], 4, "what is not named stays");
    sandbox.drain(1).expect(0);
    let there = sandbox.work("there").canonicalize().unwrap();
    let out = sandbox.fairq(["logs", "a1"]).expect(0).text();
    assert_eq!(out, format!("1 2 {}\n", there.display()));
}

#[test]
fn whatever_can_be_given_can_be_taken_away() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["true"]);
    let plain = sandbox.step("a1");
    sandbox.fairq(["limit", "set", "gpu", "0"]).expect(0);
    for (given, taken) in [
        (&["--limit", "gpu"][..], &["--limit", "none"][..]),
        (&["--limit", "gpu", "--limit", "io"], &["--limit", "none"]),
        (&["--limit", "none:1"], &["--limit", "none"]),
        (&["--expire", "1h"], &["--expire", "none"]),
        (&["--timeout", "1h"], &["--timeout", "none"]),
        (&["--timeout", "1h"], &["--timeout", "0"]),
        (&["--retries", "3"], &["--retries", "0"]),
        (
            &["--retry-on", "1-9", "--retries", "0"],
            &["--retry-on", "none", "--retries", "0"],
        ),
        (
            &["--no-retry-on", "2", "--retries", "0"],
            &["--no-retry-on", "none", "--retries", "0"],
        ),
        (&["--max-output", "1K"], &["--max-output", "none"]),
        (&["--leave-group"], &["--leave-group=false"]),
        (
            &["--name", "n", "--flow", "f", "-t", "t"],
            &["--name", "", "--flow", "", "-t", ""],
        ),
        (&["--delay", "1h"], &["--at", "now"]),
        (
            &["--kill-signal", "INT", "--grace", "1s"],
            &["--kill-signal", "TERM", "--grace", "5s"],
        ),
    ] {
        for (what, is_plain) in [(given, false), (taken, true)] {
            sandbox.fairq([&["edit", "a1"], what].concat()).expect(0);
            let mut step = sandbox.step("a1");
            // It may have become due later than before.
            step["since"] = plain["since"].clone();
            assert_eq!(step == plain, is_plain, "{what:?}: {step} {plain}");
        }
    }
    let refused = sandbox
        .fairq(["enqueue", "--timeout", "0", "true"])
        .expect(2);
    assert!(refused.err.contains("--timeout none"), "{}", refused.err);
}

/// Also of steps that a live runner has planned by what they were.
#[test]
fn a_step_that_was_moved_to_a_better_band_is_next() {
    let sandbox = Sandbox::with_shards(1);
    let runner = workers(&sandbox, 1);
    let first = running_step(&sandbox, &["-b", "1"]);
    let ids = sandbox.enqueue_lines(&[], &vec!["echo $FAIRQ_ID >>order".to_owned(); 30]);
    sandbox.fairq(["edit", &ids[29], "-b", "5"]).expect(0);
    let worse = ["edit", &ids[0], "-b", "300"];
    sandbox.fairq(worse).expect(0);
    touch(&sandbox.work("go"));
    let range = format!("{}-{}", ids[0], ids[29]);
    sandbox.fairq(["wait", &first, &range]).expect(0);
    let order = lines(&sandbox.work("order"));
    assert_eq!(order[0], ids[29], "{order:?}");
    assert_eq!(order[29], ids[0], "{order:?}");
    drop(runner);
}

#[test]
fn the_time_of_a_step_can_be_put_off_and_drawn_near() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["true"]);
    let told = sandbox.json(["edit", "a1", "--delay", "1h"]);
    assert_eq!(answer(&told, "a1")["from"], "ready", "{told:#}");
    assert_eq!(answer(&told, "a1")["to"], "delayed", "{told:#}");
    sandbox.drain(1).expect(0);
    assert_eq!(sandbox.step("a1")["attempts"], json!([]));
    let told = sandbox.json(["edit", "a1", "--at", "now"]);
    assert_eq!(answer(&told, "a1")["to"], "ready", "{told:#}");
    sandbox.drain(1).expect(0);
    assert_eq!(sandbox.step("a1")["state"], "succeeded");
}

#[test]
fn a_step_that_runs_or_is_over_is_not_changed() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["true"]);
    sandbox.drain(1).expect(0);
    let runner = workers(&sandbox, 1);
    let running = running_step(&sandbox, &[]);
    for (id, state) in [("a1", "succeeded"), (running.as_str(), "running")] {
        let ran = sandbox.fairq(["edit", id, "-n", "late"]).expect(1);
        let said = format!("{id} cannot be changed: it is {state}");
        assert!(ran.err.contains(&said), "{}", ran.err);
        assert_eq!(sandbox.step(id)["name"], json!(null));
    }
    touch(&sandbox.work("go"));
    until_it_is(&sandbox, &running, "succeeded");
    drop(runner);
}

#[test]
fn an_edit_that_is_none_is_refused_and_changes_nothing() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["true"]);
    let before = sandbox.step("a1");
    for args in [
        &["edit"][..],
        &["edit", "a1"],
        &["edit", "a1-a2", "-n", "x"],
        &["edit", "a1", "-b", "-1"],
        &["edit", "a1", "-w", "0"],
        &["edit", "a1", "-w", "NaN"],
        &["edit", "a1", "-k", ""],
        &["edit", "a1", "--delay", "0,5s"],
        &["edit", "a1", "--retries", "1_000"],
        &["edit", "a1", "--at", "yesterday"],
        &["edit", "a1", "-C", "/nowhere"],
        &["edit", "a1", "-e", "=x"],
        &["edit", "a1", "--", ""],
        &["edit", "a1", "--backoff", "1s"],
        &["edit", "a1", "--limit", "gpu:0"],
    ] {
        let ran = sandbox.fairq(args).expect(2);
        assert_eq!(ran.text(), "", "{args:?}");
    }
    sandbox.fairq(["edit", "a9", "-n", "x"]).expect(3);
    assert_eq!(sandbox.step("a1"), before);
}
