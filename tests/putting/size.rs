//! Long commands, large environments, much output.

use crate::common::{Ran, Sandbox, until};
use crate::kit::refused;

#[test]
fn a_long_argv_runs_as_it_is_and_a_too_long_one_is_refused_with_sizes() {
    let sandbox = Sandbox::with_shards(1);
    let args: Vec<String> = (0..10_000).map(|n| format!("{n:0>100}")).collect();
    let words = ["--", "printf", "%s\n"].map(str::to_owned);
    let id = sandbox.enqueue(words.iter().chain(&args)).remove(0);
    sandbox.drain(1).expect(0);
    let out = sandbox.fairq(["logs", &id]).expect(0).text();
    assert!(out.lines().eq(args.iter().map(String::as_str)));
    let word = "x".repeat(131_072);
    let line = format!("{{\"command\":[\"true\",\"{word}\"]}}");
    refused(&["--from-ndjson", "-"], &line, &["too large", "128"]);
    let many = format!("\"{}\",", "x".repeat(100_000)).repeat(25);
    let line = format!("{{\"command\":[{many}\"x\"]}}");
    refused(
        &["--from-ndjson", "-"],
        &line,
        &["line 1", "too large", "2"],
    );
    let value = "x".repeat(100_000);
    let line = format!("{{\"command\":\"true\",\"env\":{{\"A\":\"{value}{value}\"}}}}");
    refused(
        &["--from-ndjson", "-"],
        &line,
        &["the variable A is too large"],
    );
}

/// Members are measured with their values in them.
#[test]
fn a_member_that_grows_too_large_is_refused_and_none_is_stored() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["true"]);
    let value = format!("v=x,{}", "y".repeat(90_000));
    let ran = sandbox
        .fairq(["enqueue", "--param", &value, "echo {v}{v}"])
        .expect(2);
    assert!(ran.err.contains("too large"), "{}", ran.err);
    assert_eq!(sandbox.count("ready"), 1);
}

#[test]
fn output_without_a_newline_is_the_same_bytes() {
    let sandbox = Sandbox::with_shards(1);
    let line = "head -c 8000000 /dev/urandom | tr -d '\\n' | tee copy";
    sandbox.enqueue([line]);
    sandbox.drain(1).expect(0);
    let copy = std::fs::read(sandbox.work("copy")).unwrap();
    assert!(sandbox.fairq(["logs", "a1"]).expect(0).out == copy);
}

/// What a step writes goes past the runner and not through it.
#[test]
fn a_runner_does_not_grow_with_the_output_of_its_steps() {
    let sandbox = Sandbox::with_shards(1);
    let runner = sandbox.runner(&["--workers", "1"]);
    let peak = || -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", runner.pid())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmHWM:"))
            .unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    sandbox.enqueue(["--wait", "true"]);
    let before = peak();
    sandbox.enqueue(["--wait", "head -c 200000000 /dev/zero"]);
    let grown = peak() - before;
    assert!(grown < 32_000, "{grown} KiB more");
    let size = Ran::of(
        sandbox
            .program("sh")
            .args(["-c", "\"$FAIRQ\" logs a2 | wc -c"]),
    );
    assert_eq!(size.expect(0).text().trim(), "200000000");
}

#[test]
fn steps_read_nothing_whatever_the_runner_is_given() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["cat; echo end"]);
    let script = "printf 'a\\nb\\n' | { \"$FAIRQ\" run --drain -q; cat; }";
    let left = Ran::of(sandbox.program("sh").args(["-c", script])).expect(0);
    assert_eq!(left.text(), "a\nb\n");
    assert_eq!(sandbox.fairq(["logs", "a1"]).text(), "end\n");
    until("it is over", || sandbox.count("succeeded") == 1);
}

/// Whoever closes a shard's file last folds its log in, which takes longer than all else that a passer-by
/// does.
#[test]
fn a_passer_by_folds_no_log_in_that_is_short() {
    let sandbox = Sandbox::with_shards(2);
    let log = |shard: u8| sandbox.store().join(format!("shard-{shard}.db-wal"));
    let [a, b] = [0, 1].map(log);
    assert!(!a.exists() && !b.exists());
    let id = sandbox.enqueue(["true"]).remove(0);
    let there = || [&a, &b].map(|log| log.exists());
    assert_eq!(there(), [id.starts_with('a'), id.starts_with('b')], "{id}");
    // But for a long one, which whoever comes next would have to read.
    let wide = format!("true {}", "x".repeat(100_000));
    sandbox.enqueue_lines(&[], &vec![wide; 8]);
    assert_eq!(there(), [false, false]);
}
