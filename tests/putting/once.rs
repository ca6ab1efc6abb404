//! Steps of which there is to be one at a time.

use std::process::Stdio;

use crate::common::{Ran, Sandbox, until};

#[test]
fn another_one_of_a_unique_key_is_needless_while_the_first_counts() {
    let sandbox = Sandbox::with_shards(3);
    let put = |key: &str, scope: &str| {
        let args = ["--unique", "u", "--while", scope, "-k", key, "true"];
        sandbox.enqueue(args).remove(0)
    };
    // The key of fairness, and so the shard, does not matter.
    let first = put("x", "active");
    for key in ["x", "y", "z"] {
        for scope in ["queued", "active", "kept"] {
            assert_eq!(put(key, scope), first);
        }
    }
    sandbox.drain(1).expect(0);
    assert_eq!(put("y", "kept"), first);
    let second = put("y", "active");
    assert_ne!(second, first);
    assert_eq!(sandbox.enqueue(["--unique", "u", "true"]), [second]);
    assert_eq!(sandbox.enqueue(["--unique", "v", "true"]).len(), 1);
    assert_eq!(sandbox.count("ready"), 2);
}

#[test]
fn a_running_one_counts_as_active_and_not_as_queued() {
    let sandbox = Sandbox::with_shards(1);
    let line = "until test -e go; do sleep 0.01; done";
    sandbox.enqueue(["--unique", "u", line]);
    let runner = sandbox.runner(&["--workers", "1"]);
    until("it runs", || sandbox.count("running") == 1);
    assert_eq!(sandbox.enqueue(["--unique", "u", line]), ["a1"]);
    let next = sandbox.enqueue(["--unique", "u", "--while", "queued", "true"]);
    assert_eq!(next, ["a2"]);
    let again = sandbox.enqueue(["--unique", "u", "--while", "queued", "true"]);
    assert_eq!(again, ["a2"]);
    std::fs::write(sandbox.work("go"), "").unwrap();
    sandbox.fairq(["wait", "a1", "a2"]).expect(0);
    drop(runner);
}

#[test]
fn who_asks_to_fail_is_told_by_the_code() {
    let sandbox = Sandbox::with_shards(1);
    let put = |json: &[&str]| {
        let args = [
            &["enqueue", "--unique", "u", "--unique-fail"],
            json,
            &["true"],
        ]
        .concat();
        sandbox.fairq(args)
    };
    let first = put(&[]).expect(0);
    assert_eq!((first.text().as_str(), first.err.as_str()), ("a1\n", ""));
    let second = put(&[]).expect(4);
    assert_eq!(second.text(), "a1\n");
    assert!(second.err.contains("there already"), "{}", second.err);
    let told = put(&["--json"]).expect(4).json();
    assert_eq!(told["ids"], serde_json::json!(["a1"]));
    assert_eq!(told["met"], serde_json::json!(["a1"]));
    assert_eq!(sandbox.count("ready"), 1);
}

#[test]
fn of_many_who_ask_at_once_one_puts_it_in() {
    let sandbox = Sandbox::with_shards(4);
    let asked: Vec<_> = (0..12)
        .map(|key| {
            let key = format!("k{key}");
            let args = ["enqueue", "--unique", "u", "-k", &key, "true"];
            let mut command = sandbox.command(args);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    let mut told: Vec<String> = asked
        .into_iter()
        .map(|child| {
            Ran::from_output(child.wait_with_output().unwrap())
                .expect(0)
                .text()
        })
        .collect();
    told.dedup();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(sandbox.count("ready"), 1);
}
