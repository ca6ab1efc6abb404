//! Waiting for what was put in, and reading along.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{Ran, Sandbox, until};

const UNTIL_GO: &str = "until test -e go; do sleep 0.01; done";

#[test]
fn enqueue_waits_and_ends_as_the_step_does() {
    let sandbox = Sandbox::with_shards(1);
    let runner = sandbox.runner(&["--workers", "2"]);
    for (args, code) in [
        (&["true"][..], 0),
        (&["exit 7"], 7),
        (&["kill -TERM $$"], 143),
        (&["--", "no such program", "x"], 127),
        (&["--timeout", "20ms", "sleep 100"], 124),
        (
            &[
                "--retries",
                "1",
                "--backoff",
                "1ms",
                "test $FAIRQ_ATTEMPT = 2",
            ],
            0,
        ),
        (&["--array", "1-3", "true"], 0),
        (&["--array", "1-3", "exit $(({} % 2))"], 1),
    ] {
        let all = [&["enqueue", "--wait"], args].concat();
        let ran = sandbox.fairq(&all).expect(code);
        assert!(ran.text().starts_with('a'), "{args:?}: {}", ran.text());
        assert_eq!(ran.err, "", "{args:?}");
    }
    drop(runner);
}

#[test]
fn enqueue_follows_with_the_output_alone_on_standard_output() {
    let sandbox = Sandbox::with_shards(1);
    let runner = sandbox.runner(&["--workers", "2"]);
    let ran = sandbox
        .fairq(["enqueue", "--follow", "echo out; echo err >&2; exit 5"])
        .expect(5);
    assert_eq!(ran.text(), "out\nerr\n");
    assert_eq!(ran.err, "a1\n");
    // Every try, however short, and nothing twice.
    let line = "echo try $FAIRQ_ATTEMPT; test $FAIRQ_ATTEMPT = 3";
    let args = [
        "enqueue",
        "-q",
        "--follow",
        "--retries",
        "2",
        "--backoff",
        "1ms",
        line,
    ];
    let ran = sandbox.fairq(args).expect(0);
    assert_eq!(
        (ran.text().as_str(), ran.err.as_str()),
        ("try 1\ntry 2\ntry 3\n", "")
    );
    let ran = sandbox.fairq([
        "enqueue",
        "-q",
        "--follow",
        "--array",
        "1-2",
        "echo {}; printf x",
    ]);
    let text = ran.expect(0).text();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["a3: 1", "a3: x", "a4: 2", "a4: x"]);
    drop(runner);
}

#[test]
fn wait_ends_with_the_first_or_the_last() {
    let sandbox = Sandbox::with_shards(2);
    let slow = sandbox.enqueue(["-k", "x", UNTIL_GO]).remove(0);
    let quick = sandbox.enqueue(["-k", "y", "exit 3"]).remove(0);
    let runner = sandbox.runner(&["--workers", "2"]);
    // Of those that have ended by then, the code.
    sandbox.fairq(["wait", "--any", &slow, &quick]).expect(1);
    let told = sandbox
        .fairq(["wait", "--any", &slow, &quick, "--json"])
        .expect(1)
        .json();
    let state = |id: &str| {
        let steps = told["steps"].as_array().unwrap().iter();
        let of = |step: &&serde_json::Value| step["id"] == id;
        steps.clone().find(of).unwrap()["state"].clone()
    };
    assert_eq!(
        (state(&slow), state(&quick)),
        ("running".into(), "failed".into())
    );
    sandbox
        .fairq(["wait", &slow, &quick, "--timeout", "30ms"])
        .expect(124);
    sandbox
        .fairq(["wait", "--any", &slow, "--timeout", "30ms"])
        .expect(124);
    let both = sandbox.command(["wait", &slow, &quick]).spawn().unwrap();
    std::fs::write(sandbox.work("go"), "").unwrap();
    assert_eq!(both.wait_with_output().unwrap().status.code(), Some(1));
    sandbox.fairq(["wait", &slow]).expect(0);
    drop(runner);
}

#[test]
fn what_a_step_writes_to_either_stream_is_seen_while_it_runs() {
    let sandbox = Sandbox::with_shards(1);
    // The next line is written only after the one before it has been read.
    sandbox
        .enqueue(["for n in 1 2 3; do echo $n >&2; until test -e $n; do sleep 0.01; done; done"]);
    let mut follower = sandbox
        .command(["logs", "-f", "--exit-code", "a1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let runner = sandbox.runner(&["--workers", "1"]);
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    for n in ["1", "2", "3"] {
        assert_eq!(lines.next().unwrap().unwrap(), n);
        std::fs::write(sandbox.work(n), "").unwrap();
    }
    assert!(lines.next().is_none());
    assert_eq!(follower.wait().unwrap().code(), Some(0));
    drop(runner);
}

#[test]
fn following_several_puts_the_id_before_each_whole_line() {
    let sandbox = Sandbox::with_shards(1);
    for (n, code) in [(1, 0), (2, 4)] {
        let line = format!("printf 'first {n}\\nsec'; echo ond; printf last; exit {code}");
        sandbox.enqueue([&line]);
    }
    let follower = sandbox
        .command(["logs", "-f", "a1", "a2"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    sandbox.drain(2).expect(1);
    let text = Ran::from_output(follower.wait_with_output().unwrap())
        .expect(0)
        .text();
    for id in ["a1", "a2"] {
        let n = &id[1..];
        let own: Vec<&str> = text.lines().filter(|line| line.starts_with(id)).collect();
        let expected = [format!("first {n}"), "second".into(), "last".into()];
        assert_eq!(own, expected.map(|line| format!("{id}: {line}")), "{text}");
    }
    assert_eq!(text.lines().count(), 6, "{text}");
    sandbox.fairq(["logs", "-f", "--exit-code", "a2"]).expect(4);
}

#[test]
fn a_tail_is_of_what_was_there_and_what_comes_follows_it() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue([&format!("seq 100; touch wrote; {UNTIL_GO}; seq 101 105")]);
    let runner = sandbox.runner(&["--workers", "1"]);
    until("it wrote", || sandbox.work("wrote").exists());
    let text = sandbox
        .fairq(["logs", "--tail", "2", "a1"])
        .expect(0)
        .text();
    assert_eq!(text, "99\n100\n");
    let mut follower = sandbox
        .command(["logs", "-f", "--tail", "2", "a1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(follower.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "99\n");
    std::fs::write(sandbox.work("go"), "").unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "100\n101\n102\n103\n104\n105\n");
    assert!(follower.wait().unwrap().success());
    let text = sandbox
        .fairq(["logs", "-f", "--tail", "2", "a1"])
        .expect(0)
        .text();
    assert_eq!(text, "104\n105\n");
    drop(runner);
}

#[test]
fn a_follower_that_goes_away_harms_nobody() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["n=0; while ! test -e go; do n=$((n+1)); echo $n; done; echo $n >count"]);
    let runner = sandbox.runner(&["--workers", "1"]);
    for signal in [Signal::SIGTERM, Signal::SIGKILL].repeat(8) {
        let mut follower = sandbox
            .command(["logs", "-f", "a1"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut byte = [0];
        follower
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut byte)
            .unwrap();
        let pid = i32::try_from(follower.id()).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
        follower.wait().unwrap();
    }
    let head = "\"$FAIRQ\" logs -f a1 | head -n 1";
    let ran = Ran::of(sandbox.program("sh").args(["-c", head])).expect(0);
    assert_eq!((ran.text().as_str(), ran.err.as_str()), ("1\n", ""));
    std::fs::write(sandbox.work("go"), "").unwrap();
    sandbox.fairq(["wait", "a1"]).expect(0);
    let text = sandbox.fairq(["logs", "a1"]).expect(0).text();
    let lines: Vec<&str> = text.lines().collect();
    let count: usize = crate::common::lines(&sandbox.work("count"))[0]
        .parse()
        .unwrap();
    assert_eq!(lines.len(), count);
    assert!(
        lines
            .iter()
            .enumerate()
            .all(|(at, line)| *line == (at + 1).to_string())
    );
    drop(runner);
}
