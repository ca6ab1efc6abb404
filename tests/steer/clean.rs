//! Cleaning: what is over and was meant goes with all that is kept of it, and nothing else.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::common::Sandbox;
use crate::kit::{running_step, workers};

/// Counts the files below a directory.
fn files(dir: &Path) -> usize {
    let Ok(entries) = fs::read_dir(dir) else {
        return 0;
    };
    entries
        .map(|entry| {
            let path = entry.unwrap().path();
            if path.is_dir() { files(&path) } else { 1 }
        })
        .sum()
}

#[test]
fn steps_go_with_the_files_of_their_outputs_and_only_those_that_were_meant() {
    let sandbox = Sandbox::with_shards(2);
    let big = "head -c 300000 /dev/zero";
    for (key, line) in [("a", big), ("b", big), ("c", "exit 3"), ("d", "true")] {
        sandbox.enqueue(["-k", key, line]);
    }
    sandbox.drain(2).expect(1);
    let waits = sandbox
        .enqueue(["-k", "e", "--delay", "1h", "true"])
        .remove(0);
    let output = sandbox.store().join("output");
    assert_eq!(files(&output), 2, "large outputs are in files");
    let told = sandbox.json(["clean", "--all", "--dry-run"]);
    assert_eq!(
        (&told["steps"], &told["dry_run"]),
        (&json!(4), &json!(true))
    );
    assert_eq!(sandbox.count("succeeded"), 3);
    let told = sandbox.json(["clean", "-k", "a"]);
    assert_eq!(
        (&told["steps"], &told["files"]),
        (&json!(1), &json!(1)),
        "{told:#}"
    );
    assert_eq!(told["bytes"], 300_000, "{told:#}");
    assert_eq!(files(&output), 1);
    let ran = sandbox.fairq(["clean", "--state", "succeeded"]).expect(0);
    assert!(ran.err.starts_with("2 steps forgotten"), "{}", ran.err);
    assert_eq!(files(&output), 0);
    assert_eq!(sandbox.count("failed"), 1, "dead letters were not meant");
    sandbox.fairq(["clean", "--all"]).expect(0);
    assert_eq!(sandbox.json(["status"])["counts"], json!({"delayed": 1}));
    assert_eq!(sandbox.step(&waits)["state"], "delayed");
    sandbox.fairq(["clean", "--all"]).expect(3);
}

#[test]
fn nothing_is_forgotten_unless_it_was_said_what() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["true"]);
    sandbox.drain(1).expect(0);
    let ran = sandbox.fairq(["clean"]).expect(2);
    assert!(ran.err.contains("--all"), "{}", ran.err);
    sandbox.fairq(["clean", "--state", "ready"]).expect(2);
    sandbox.fairq(["clean", "--older-than", "-1"]).expect(2);
    sandbox.fairq(["clean", "--older-than", "1h"]).expect(3);
    assert_eq!(sandbox.count("succeeded"), 1);
    sandbox.fairq(["clean", "--older-than", "0"]).expect(0);
    sandbox.fairq(["show", "a1"]).expect(3);
}

#[test]
fn a_step_for_which_others_wait_stays() {
    let sandbox = Sandbox::with_shards(2);
    let runner = workers(&sandbox, 1);
    let a = sandbox.enqueue(["-k", "a", "true"]).remove(0);
    sandbox.fairq(["wait", &a]).expect(0);
    let gate = running_step(&sandbox, &["-k", "g"]);
    let b = sandbox
        .enqueue(["-k", "b", "--after", &a, "--after", &gate, "true"])
        .remove(0);
    sandbox.fairq(["clean", "--all"]).expect(3);
    assert_eq!(sandbox.step(&a)["state"], "succeeded");
    fs::write(sandbox.work("go"), "").unwrap();
    sandbox.fairq(["wait", &b]).expect(0);
    sandbox.fairq(["wait", &gate]).expect(0);
    sandbox.fairq(["clean", "--all"]).expect(0);
    assert_eq!(sandbox.json(["status"])["counts"], json!({}));
    drop(runner);
}

#[test]
fn very_many_steps_are_forgotten_in_one_go() {
    let sandbox = Sandbox::with_shards(2);
    sandbox.enqueue_lines(&["-k", "x"], &vec!["true".to_owned(); 12_000]);
    sandbox.fairq(["cancel", "--all"]).expect(0);
    let told = sandbox.json(["clean", "--all"]);
    assert_eq!(told["steps"], 12_000, "{told:#}");
    // Numbers are not given out again.
    let id = sandbox.enqueue(["-k", "x", "true"]).remove(0);
    assert!(id[1..].parse::<u32>().unwrap() > 12_000, "{id}");
}
