//! Streams: data and nothing else on standard output, and readers that go away.

use std::fs::File;
use std::io::Read as _;
use std::process::{Command, Stdio};

use crate::common::{Ran, Sandbox, until};

/// Every command that reads, for a store with a step `a1` that has ended.
const READING: [&[&str]; 8] = [
    &["status"],
    &["status", "--limit", "0", "--sort", "id"],
    &["show", "a1"],
    &["show", "a1", "--show-env"],
    &["wait", "a1"],
    &["inspect", "plan"],
    &["config", "show"],
    &["config", "show", "--origin"],
];

/// Runs a command to its end with its standard output going elsewhere.
fn to(command: &mut Command, out: impl Into<Stdio>) -> Ran {
    command.stdout(out).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    // What is given away is closed here, or a pipe's reader would wait for us.
    command.stdout(Stdio::null());
    Ran::from_output(child.wait_with_output().unwrap())
}

fn with_one_step_done() -> Sandbox {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["-k", "k", "echo out; echo err >&2"]);
    sandbox.drain(1).expect(0);
    sandbox
}

#[test]
fn the_id_and_nothing_else_is_what_enqueue_prints() {
    let sandbox = Sandbox::with_shards(1);
    let ran = sandbox.fairq(["enqueue", "--", "true"]).expect(0);
    assert_eq!((ran.text().as_str(), ran.err.as_str()), ("a1\n", ""));
    let ran = sandbox.fairq_with(["enqueue", "--from", "-"], b"true\n\nfalse\ntrue");
    let ran = ran.expect(0);
    assert_eq!(
        (ran.text().as_str(), ran.err.as_str()),
        ("a2\na3\na4\n", "")
    );
    let ran = sandbox.fairq_with(["enqueue", "-0", "--from", "-"], b"true\0echo 'a\nb'\0");
    assert_eq!(ran.expect(0).text(), "a5\na6\n");
    let ran = sandbox.fairq(["enqueue", "-q", "true"]).expect(0);
    assert_eq!((ran.text().as_str(), ran.err.as_str()), ("", ""));
    let ran = sandbox.fairq(["enqueue", "--json", "true"]).expect(0);
    assert_eq!(ran.text(), "{\"schema\":1,\"ids\":[\"a8\"]}\n");
    assert_eq!(sandbox.count("ready"), 8);
}

#[test]
fn a_dry_run_tells_the_standing_and_stores_nothing() {
    let sandbox = Sandbox::new();
    let args = ["enqueue", "--dry-run", "--json", "-k", "bob", "true"];
    let before = sandbox.fairq(args).expect(0).json();
    assert_eq!(before["due_in_this_band"], 0);
    assert!(!sandbox.store().exists());
    sandbox.enqueue(["-k", "alice", "true"]);
    sandbox.enqueue(["-k", "alice", "true"]);
    sandbox.enqueue(["-b", "1", "true"]);
    let standing = sandbox.fairq(args).expect(0).json();
    assert_eq!(standing["due_in_this_band"], 2);
    assert_eq!(standing["due_in_better_bands"], 1);
    assert_eq!(standing["due_of_this_key"], 0);
    assert_eq!(standing["expected_share"], 0.5);
    assert_eq!(sandbox.count("ready"), 3);
}

#[test]
fn json_is_one_value_with_its_version_whatever_there_is_to_warn_of() {
    let sandbox = with_one_step_done();
    // Something to warn of: a store that others may enter.
    let loose = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(sandbox.store(), loose).unwrap();
    let runner = sandbox.runner(&["--workers", "1"]);
    let cache: &[&str] = &["inspect", "cache"];
    let init: &[&str] = &["init"];
    for args in READING.iter().chain([&cache, &init]) {
        let ran = Ran::of(sandbox.command(*args).arg("--json")).expect(0);
        let value = ran.json();
        assert_eq!(value["schema"], 1, "{args:?}");
        assert_eq!(ran.text().lines().count(), 1, "{args:?}");
        if !matches!(args, ["config", ..] | ["inspect", "cache"]) {
            assert!(ran.err.contains("warning: "), "{args:?}: {}", ran.err);
        }
    }
    drop(runner);
    let empty = Sandbox::new().json(["status"]);
    assert_eq!(empty["counts"], serde_json::json!({}));
}

#[test]
fn a_run_tells_its_events_and_a_summary_as_json_lines() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["true"]);
    sandbox.enqueue(["exit 7"]);
    let ran = sandbox.fairq(["run", "--drain", "--json"]).expect(1);
    let text = ran.text();
    let events: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(events.iter().all(|event| event["schema"] == 1), "{text}");
    assert!(
        events.iter().all(|event| event["event"].is_string()),
        "{text}"
    );
    let summary = events.last().unwrap();
    assert_eq!(summary["event"], "summary");
    assert_eq!(
        (&summary["succeeded"], &summary["failed"]),
        (&1.into(), &1.into())
    );
    assert_eq!(ran.err, "");
    let quiet = sandbox.fairq(["run", "--drain", "-q"]).expect(0);
    assert_eq!((quiet.text().as_str(), quiet.err.as_str()), ("", ""));
}

#[test]
fn the_summary_of_a_run_reads_well() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["true"]);
    let ran = sandbox.drain(1).expect(0);
    let summary = ran.err.lines().last().unwrap().to_owned();
    assert!(
        summary.starts_with("1 succeeded, 0 failed in "),
        "{summary}"
    );
    assert_eq!(summary.matches("/s").count(), 1, "{summary}");
}

#[test]
fn logs_are_the_bytes_that_the_step_wrote() {
    let sandbox = Sandbox::with_shards(1);
    let inline = "printf 'a\\377\\000b'; printf 'e\\n\\376' >&2";
    // Beyond what is kept inline: it lies in a file of its own.
    let large = "head -c 300000 /dev/zero | tr '\\0' '\\303'";
    let ids = sandbox.enqueue_lines(&[], &[inline.to_owned(), large.to_owned()]);
    sandbox.drain(1).expect(0);
    let logs = |args: &[&str]| {
        let ran = sandbox.fairq([&["logs", &ids[0]], args].concat()).expect(0);
        assert_eq!(ran.err, "");
        ran.out
    };
    assert_eq!(logs(&[]), b"a\xff\0be\n\xfe");
    assert_eq!(logs(&["--stdout"]), b"a\xff\0b");
    assert_eq!(logs(&["--stderr"]), b"e\n\xfe");
    assert_eq!(logs(&["--stderr", "--tail", "1"]), b"\xfe");
    assert_eq!(logs(&["-f"]), b"a\xff\0be\n\xfe");
    assert_eq!(logs(&["--attempt", "1"]), b"a\xff\0be\n\xfe");
    assert!(sandbox.fairq(["logs", &ids[1]]).expect(0).out == vec![0xc3; 300_000]);
}

#[test]
fn following_goes_on_over_any_bytes_to_the_end() {
    let sandbox = Sandbox::with_shards(1);
    let line = "printf 'caf\\303'; touch begun; until test -e go; do sleep 0.01; done; \
                printf '\\251 \\377\\n'; echo last >&2; exit 5";
    let id = &sandbox.enqueue([line])[0];
    let mut follow = sandbox
        .command(["logs", "-f", "--exit-code", id])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = follow.stdout.take().unwrap();
    let runner = sandbox.runner(&["--workers", "1"]);
    // The part is shown while the step still runs.
    let mut first = [0; 4];
    out.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"caf\xc3");
    assert!(sandbox.work("begun").exists());
    std::fs::write(sandbox.work("go"), "").unwrap();
    let mut rest = Vec::new();
    out.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"\xa9 \xff\nlast\n");
    assert_eq!(follow.wait().unwrap().code(), Some(5));
    drop(runner);
}

#[test]
fn a_reader_that_went_away_ends_it_quietly() {
    let sandbox = with_one_step_done();
    let help: &[&str] = &["--help"];
    let logs: &[&str] = &["logs", "a1"];
    for args in READING.iter().chain([&help, &logs]) {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = sandbox.command(*args);
        let ran = to(&mut command, writer).expect(0);
        let told: Vec<&str> = ran
            .err
            .lines()
            .filter(|line| line.contains("rror"))
            .collect();
        assert!(told.is_empty(), "{args:?}: {}", ran.err);
    }
}

#[test]
fn what_cannot_be_written_is_an_error() {
    let sandbox = with_one_step_done();
    let logs: &[&str] = &["logs", "a1"];
    let enqueue: &[&str] = &["enqueue", "true"];
    let printing = READING.iter().filter(|args| args[0] != "wait");
    for args in printing.chain([&logs, &enqueue]) {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let ran = to(&mut sandbox.command(*args), full).expect(1);
        let said = "cannot write to standard output";
        assert!(ran.err.contains(said), "{args:?}: {}", ran.err);
    }
}

#[test]
fn a_step_that_was_acknowledged_exists_though_nobody_heard() {
    let sandbox = Sandbox::with_shards(2);
    let mut stored = 0;
    for round in 0..30 {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut command = sandbox.command(["enqueue", "true"]);
        if round % 2 == 0 {
            drop(reader);
            stored += 1;
            to(&mut command, writer).expect(0);
        } else {
            // Killed as soon as its id is there.
            let mut child = command.stdout(writer).spawn().unwrap();
            drop(command);
            let mut reader = reader;
            let mut byte = [0; 1];
            reader.read_exact(&mut byte).unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            stored += 1;
        }
        assert_eq!(sandbox.count("ready"), stored);
    }
    // No standard output at all: whatever it says, it does what it says.
    let mut shell = sandbox.program("sh");
    shell.args(["-c", "exec \"$FAIRQ\" enqueue true >&-"]);
    let ran = Ran::of(&mut shell);
    let after = sandbox.count("ready");
    assert_eq!(after, stored + u64::from(ran.code == 0), "{}", ran.err);
    sandbox.drain(2).expect(0);
    assert_eq!(sandbox.count("succeeded"), after);
}

#[test]
fn no_escape_sequence_reaches_a_pipe() {
    let sandbox = Sandbox::with_shards(1);
    let evil = "printf '\\033[2Jx'; : \u{1b}[31m \u{202e} \u{7}";
    let args = ["-n", "name\u{1b}[1m", "-k", "key\u{1b}]0;t\u{7}", evil];
    sandbox.enqueue(args);
    sandbox.drain(1).expect(0);
    for args in READING {
        for json in [&[][..], &["--json"]] {
            let ran = sandbox.fairq([args, json].concat()).expect(0);
            assert!(!ran.out.contains(&0x1b), "{args:?}: {}", ran.text());
            assert!(!ran.err.contains('\x1b'), "{args:?}: {}", ran.err);
            assert!(!ran.out.contains(&0x07), "{args:?}: {}", ran.text());
        }
    }
    let error = sandbox.fairq(["show", "\u{1b}[31m"]).expect(2).err;
    assert!(!error.contains('\x1b'), "{error}");
    let error = sandbox
        .fairq(["enqueue", "-C", "/\u{1b}[31m", "true"])
        .expect(2)
        .err;
    assert!(!error.contains('\x1b'), "{error}");
    // What was asked for is given: the raw bytes.
    until("logs are raw", || {
        sandbox.fairq(["logs", "a1"]).out == b"\x1b[2Jx"
    });
}

#[test]
fn the_locale_changes_nothing() {
    let mut told = Vec::new();
    for locale in [
        Some("C"),
        Some("de_DE.UTF-8"),
        Some("tr_TR.UTF-8"),
        Some("POSIX"),
        None,
    ] {
        let sandbox = Sandbox::with_shards(1);
        let run = |args: &[&str]| {
            let mut command = sandbox.command(args);
            match locale {
                Some(locale) => command.env("LC_ALL", locale).env("LANG", locale),
                None => command.env_remove("LC_ALL"),
            };
            let ran = Ran::of(&mut command);
            (ran.code, ran.text())
        };
        let mut all = vec![
            run(&[
                "enqueue",
                "--clean-env",
                "-w",
                "1.5",
                "--delay",
                "1.5h",
                "true",
            ]),
            run(&["enqueue", "-w", "1,5", "true"]),
            run(&["enqueue", "--delay", "0,5s", "true"]),
            run(&["status", "--state", "DELAYED"]),
            run(&["config", "show", "--json"]),
        ];
        let (code, status) = run(&["status", "--state", "delayed", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        let step = &status["steps"][0];
        all.push((
            code,
            format!("{} {} {}", step["id"], step["weight"], step["state"]),
        ));
        let root = sandbox.store().display().to_string();
        for (_, text) in &mut all {
            *text = text.replace(&root, "STORE");
        }
        told.push(all);
    }
    for other in &told[1..] {
        assert_eq!(*other, told[0]);
    }
}
