//! What the options of one step come to when it is run.

use serde_json::json;

use crate::common::{Sandbox, until};
use crate::kit::{log, refused, state};

#[test]
fn every_option_is_kept_with_the_step() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.fairq(["limit", "set", "gpu", "4"]).expect(0);
    let id = &sandbox.enqueue([
        "--retries",
        "3",
        "--backoff",
        "1s,3,1m",
        "--retry-on",
        "1,5-7",
        "--no-retry-on",
        "6",
        "--timeout",
        "90",
        "--kill-signal",
        "int",
        "--grace",
        "250ms",
        "--on-lost",
        "hold",
        "--limit",
        "gpu:2",
        "--limit",
        "disk",
        "--max-output",
        "64K",
        "--leave-group",
        "--flow",
        "nightly",
        "--expire",
        "2027-01-01T00:00:00Z",
        "true",
    ])[0];
    let step = sandbox.step(id);
    assert_eq!(step["flow"], "nightly");
    let policy = json!({
        "on_lost": "hold",
        "grace_ms": 250,
        "leave_group": true,
        "retries": 3,
        "backoff": {"base_ms": 1_000, "factor": 3.0, "cap_ms": 60_000},
        "retry_on": [1, 5, 6, 7],
        "no_retry_on": [6],
        "timeout_ms": 90_000,
        "kill_signal": 2,
        "expire": "2027-01-01T00:00:00.000Z",
        "limits": {"disk": 1, "gpu": 2},
        "max_output": 65_536,
        "vars": {},
    });
    assert_eq!(step["policy"], policy);
    let plain = &sandbox.enqueue(["true"])[0];
    let policy = &sandbox.step(plain)["policy"];
    assert_eq!(
        (&policy["retries"], &policy["grace_ms"]),
        (&json!(0), &json!(5_000))
    );
}

#[test]
fn values_that_cannot_be_meant_are_refused_by_name() {
    for (args, said) in [
        (&["--retries", "-1"][..], "--retries"),
        (&["--retries", "many"], "\"many\" is not a whole number"),
        (
            &["--backoff", "1s,0.5", "--retries", "1"],
            "the factor \"0.5\"",
        ),
        (
            &["--backoff", "1s"],
            "--backoff says nothing without --retries",
        ),
        (
            &["--retry-on", "5"],
            "--retry-on says nothing without --retries",
        ),
        (
            &["--no-retry-on", "5"],
            "--no-retry-on says nothing without",
        ),
        (
            &["--retry-on", "256", "--retries", "1"],
            "\"256\" is not an exit code",
        ),
        (&["--timeout", "0"], "--timeout 0"),
        (&["--timeout", "0,5s"], "\"0,5s\" is not a duration"),
        (&["--kill-signal", "NOPE"], "\"NOPE\" is not a signal"),
        (&["--grace", "soon"], "\"soon\" is not a duration"),
        (&["--expire", "now"], "over already"),
        (&["--expire", "0"], "over already"),
        (&["--expire", "later"], "\"later\" is not a time"),
        (&["--limit", "gpu:0"], "\"0\" is not a number of places"),
        (
            &["--limit", "gpu:2"],
            "--limit gpu:2: the limit has 1 place",
        ),
        (&["--max-output", "64KB"], "\"64KB\" is not a size"),
        (&["--while", "queued"], "--unique"),
        (&["--unique-fail"], "--unique"),
        (
            &["--unique", "x", "--while", "gone"],
            "queued, active or kept",
        ),
        (&["--array", "5-1"], "runs backwards"),
        (&["--array", "0-99999999"], "at most 10"),
        (&["--param", "x"], "--param"),
        (&["--param", "x=1", "--param", "x=2"], "x comes twice"),
        (&["--param", "FAIRQ_ID=1"], "which is ours"),
        (&["--hold", "--delay", "1s"], "--delay"),
    ] {
        refused(&[args, &["true"]].concat(), "", &[said]);
    }
    refused(
        &["--limit", "gpu:2", "true"],
        "",
        &["fairq limit set gpu 2"],
    );
}

#[test]
fn a_failure_is_tried_again_as_often_as_asked_and_each_try_is_kept() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue([
        "--retries",
        "2",
        "--backoff",
        "1ms",
        "echo $FAIRQ_ATTEMPT; exit 7",
    ]);
    sandbox.enqueue([
        "--retries",
        "2",
        "--backoff",
        "1ms",
        "test -e x || { touch x; exit 1; }",
    ]);
    sandbox.drain(2).expect(1);
    assert_eq!(state(&sandbox, "a1"), "failed");
    for attempt in 1..=3 {
        let of = ["logs", "a1", "--attempt", &attempt.to_string()];
        assert_eq!(sandbox.fairq(of).expect(0).text(), format!("{attempt}\n"));
    }
    let ran = sandbox.fairq(["logs", "a1", "--attempt", "4"]).expect(3);
    assert!(ran.err.contains("there were 3"), "{}", ran.err);
    assert_eq!(state(&sandbox, "a2"), "succeeded");
    assert_eq!(sandbox.step("a2")["attempts"].as_array().unwrap().len(), 2);
}

#[test]
fn codes_decide_whether_it_is_tried_again() {
    let sandbox = Sandbox::with_shards(1);
    let mut expected = Vec::new();
    for (options, command, tries) in [
        (&[][..], &["exit 5"][..], 2),
        (&[], &["kill -9 $$"], 2),
        (&[], &["--", "no such program", "x"], 1),
        (&["--retry-on", "127"], &["--", "no such program", "x"], 2),
        (&["--retry-on", "5,7-9"], &["exit 8"], 2),
        (&["--retry-on", "5,7-9"], &["exit 6"], 1),
        (&["--retry-on", "137"], &["kill -9 $$"], 2),
        (&["--no-retry-on", "5-7"], &["exit 6"], 1),
        (&["--no-retry-on", "5-7"], &["exit 8"], 2),
        (&["--retry-on", "6", "--no-retry-on", "6"], &["exit 6"], 1),
    ] {
        let all = [&["--retries", "1", "--backoff", "1ms"], options, command].concat();
        expected.push((sandbox.enqueue(&all).remove(0), all, tries));
    }
    sandbox.drain(2).expect(1);
    for (id, args, tries) in expected {
        let told = sandbox.step(&id)["attempts"].as_array().unwrap().len();
        assert_eq!(told, tries, "{args:?}");
    }
}

#[test]
fn a_step_whose_time_is_over_is_asked_with_its_signal() {
    let sandbox = Sandbox::with_shards(1);
    let asked = "mkfifo pipe; trap 'echo asked; exit 9' INT; read x <>pipe";
    sandbox.enqueue(["--timeout", "100ms", "--kill-signal", "SIGINT", asked]);
    let deaf = "trap '' TERM; while :; do sleep 0.01; done";
    sandbox.enqueue(["--timeout", "100ms", "--grace", "50ms", deaf]);
    sandbox.drain(2).expect(1);
    assert_eq!(log(&sandbox, "a1"), "asked\n");
    for (id, killed) in [("a1", false), ("a2", true)] {
        let step = sandbox.step(id);
        assert_eq!(step["state"], "failed");
        assert_eq!(step["exit_code"], 124);
        assert_eq!(step["ending"]["killed"], killed, "{step}");
        sandbox.fairq(["wait", id]).expect(124);
    }
}

#[test]
fn what_was_not_started_in_time_fails_with_that_reason() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["--expire", "1ms", "echo ran"]);
    sandbox.enqueue(["--expire", "1h", "echo ran"]);
    sandbox.fairq(["run", "--drain"]);
    assert_eq!(state(&sandbox, "a1"), "failed");
    assert_eq!(sandbox.step("a1")["ending"]["how"], "expired");
    assert_eq!(sandbox.step("a1")["attempts"], json!([]));
    assert_eq!(log(&sandbox, "a2"), "ran\n");
}

#[test]
fn no_more_steps_of_a_limit_run_at_once_than_it_has_places() {
    let sandbox = Sandbox::with_shards(2);
    // Making a directory is exclusive: whoever meets another one fails.
    let alone = "mkdir held && sleep 0.01 && rmdir held";
    for key in ["x", "y", "z"] {
        sandbox.enqueue(["--limit", "one", "--array", "1-4", "-k", key, alone]);
    }
    sandbox.drain(4).expect(0);
    sandbox.fairq(["limit", "set", "three", "3"]).expect(0);
    sandbox.enqueue(["--limit", "three:2", "--array", "1-6", alone]);
    sandbox.drain(4).expect(0);
}

#[test]
fn output_beyond_its_limit_is_cut_off_and_says_so() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue([
        "--max-output",
        "10",
        "printf 0123456789abc; printf short >&2",
    ]);
    sandbox.drain(1).expect(0);
    let out = sandbox.fairq(["logs", "a1", "--stdout"]).expect(0).text();
    assert!(out.starts_with("0123456789\n"), "{out:?}");
    assert!(
        out.contains("cut off after 10 bytes") && !out.contains("abc"),
        "{out:?}"
    );
    let err = sandbox.fairq(["logs", "a1", "--stderr"]).expect(0).text();
    assert_eq!(err, "short");
}

#[test]
fn whoever_puts_something_in_that_is_paused_is_told_so() {
    let sandbox = Sandbox::with_shards(2);
    sandbox.fairq(["pause", "--key", "bob"]).expect(0);
    for (args, told) in [
        (&["-k", "bob", "true"][..], true),
        (&["-k", "ann", "true"], false),
        (&["-k", "bob", "--array", "1-3", "true"], true),
        (&["-q", "-k", "bob", "true"], false),
    ] {
        let ran = sandbox.fairq([&["enqueue"], args].concat()).expect(0);
        let ids = ran.text();
        assert!(ids.lines().all(|line| !line.contains("paused")), "{ids}");
        assert_eq!(
            ran.err.contains("fairq resume"),
            told,
            "{args:?}: {}",
            ran.err
        );
    }
}

#[test]
fn a_try_that_is_lost_with_its_runner_uses_up_no_retry() {
    let sandbox = Sandbox::with_shards(1);
    let line = "echo $FAIRQ_ATTEMPT >>tries; test -e go || sleep 1000; exit 1";
    sandbox.enqueue(["--retries", "1", "--backoff", "1ms", line]);
    let runner = sandbox.runner(&["--workers", "1"]);
    until("it runs", || sandbox.work("tries").exists());
    runner.kill_hard();
    std::fs::write(sandbox.work("go"), "").unwrap();
    sandbox.drain(1).expect(1);
    let tries = crate::common::lines(&sandbox.work("tries"));
    assert_eq!(tries, ["1", "1", "2"]);
    assert_eq!(state(&sandbox, "a1"), "failed");
}
