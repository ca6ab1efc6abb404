//! Where a step runs, and with which variables.

use std::fs;

use crate::common::{Ran, Sandbox};
use crate::kit::{log, refused};

#[test]
fn variables_come_from_the_caller_then_files_then_options() {
    let sandbox = Sandbox::with_shards(1);
    let file = "# of the file\n\nA=file\nB=file\r\nQ=\"as it stands\" $A # x\nE=\n  \nB=later\n";
    fs::write(sandbox.work("one.env"), file).unwrap();
    fs::write(sandbox.work("two.env"), "C=two\nA=two").unwrap();
    let args = [
        "enqueue",
        "--env-file",
        "one.env",
        "--env-file",
        "two.env",
        "-e",
        "B=option",
        "-e",
        "D",
        "--",
        "sh",
        "-c",
        "echo $A,$B,$C,$D,$Q,$E,",
    ];
    let mut command = sandbox.command(args);
    command.env("A", "caller").env("D", "caller");
    Ran::of(&mut command).expect(0);
    sandbox.drain(1).expect(0);
    let expected = "two,option,two,caller,\"as it stands\" $A # x,,\n";
    assert_eq!(log(&sandbox, "a1"), expected);
}

#[test]
fn a_wrong_line_of_a_file_of_variables_is_named() {
    for (text, said) in [
        ("A=1\nB\n", &["line 2 of file", "there is no ="][..]),
        ("=x\n", &["line 1 of file", "no name"]),
        ("A=1\n\n#\n1A=2\n", &["line 4 of file", "no name"]),
        ("export A=1\n", &["line 1 of file", "no name"]),
        ("A=\0\n", &["line 1 of file", "NUL"]),
    ] {
        let ran = refused(&["--env-file", "file", "true"], text, said);
        assert!(ran.err.contains("nothing was stored"), "{}", ran.err);
    }
    let sandbox = Sandbox::new();
    let ran = sandbox
        .fairq(["enqueue", "--env-file", "none", "true"])
        .expect(1);
    assert!(ran.err.contains("none"), "{}", ran.err);
}

/// Also when it is tried again: the runner's own variables stay out of it.
#[test]
fn a_step_gets_its_callers_variables_at_every_try() {
    let sandbox = Sandbox::with_shards(1);
    let args = [
        "enqueue",
        "--retries",
        "1",
        "--backoff",
        "1ms",
        "env | sort; exit 1",
    ];
    let mut command = sandbox.command(args);
    command
        .env("CALLER_ONLY", "1")
        .env("PATH", "/opt/caller:/usr/bin:/bin");
    Ran::of(&mut command).expect(0);
    let mut run = sandbox.command(["run", "--drain"]);
    run.env("RUNNER_ONLY", "1")
        .env("PATH", "/opt/runner:/usr/bin:/bin");
    Ran::of(&mut run).expect(1);
    let of = |attempt| {
        let text = sandbox
            .fairq(["logs", "a1", "--attempt", attempt])
            .expect(0)
            .text();
        let ours = |line: &&str| !line.starts_with("FAIRQ_");
        text.lines()
            .filter(ours)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let first = of("1");
    assert_eq!(first, of("2"));
    assert!(first.contains(&"CALLER_ONLY=1".to_owned()), "{first:?}");
    assert!(first.contains(&"PATH=/opt/caller:/usr/bin:/bin".to_owned()));
    assert!(
        !first
            .iter()
            .any(|line| line.contains("RUNNER") || line.contains("runner"))
    );
}

#[test]
fn a_step_runs_where_its_line_says() {
    let sandbox = Sandbox::with_shards(1);
    fs::create_dir(sandbox.work("sub dir")).unwrap();
    let lines = "{\"command\":\"pwd\",\"cwd\":\"sub dir\"}\n{\"command\":\"pwd\"}\n";
    let args = ["enqueue", "--from-ndjson", "-", "--cwd", "/"];
    sandbox.fairq_with(args, lines.as_bytes()).expect(0);
    sandbox.drain(1).expect(0);
    let sub = fs::canonicalize(sandbox.work("sub dir")).unwrap();
    assert_eq!(log(&sandbox, "a1"), format!("{}\n", sub.display()));
    assert_eq!(log(&sandbox, "a2"), "/\n");
}
