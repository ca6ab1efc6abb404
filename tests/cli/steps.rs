//! What a step gets: words, variables, a directory, no input; and what is told of its end.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use crate::common::{Ran, Sandbox, lines, until};

fn words<const N: usize>(words: [&[u8]; N]) -> Vec<OsString> {
    words.map(|word| OsString::from_vec(word.to_vec())).to_vec()
}

/// Puts a step in, runs it, and returns what it wrote.
fn output_of<A: AsRef<OsStr>>(sandbox: &Sandbox, args: impl IntoIterator<Item = A>) -> Vec<u8> {
    let id = &sandbox.enqueue(args)[0];
    sandbox.drain(1).expect(0);
    sandbox.fairq(["logs", id]).expect(0).out
}

#[test]
fn an_argv_reaches_the_step_byte_for_byte() {
    let sandbox = Sandbox::with_shards(1);
    let mut args = words([b"--", b"printf", b"%s\\n"]);
    let given: [&[u8]; 12] = [
        b"$$",
        b"${HOME}",
        b"%n",
        b"%%",
        b"\\n",
        b"*",
        b"~",
        b"",
        b"a'b\"c",
        b"--help",
        b"\xff\xfe",
        b"two\nlines\t",
    ];
    args.extend(given.map(|word| OsString::from_vec(word.to_vec())));
    let out = output_of(&sandbox, args);
    let mut expected = given.join(&b'\n');
    expected.push(b'\n');
    assert_eq!(out, expected);
}

#[test]
fn one_word_is_a_shell_line_and_more_are_not() {
    let sandbox = Sandbox::with_shards(1);
    assert_eq!(output_of(&sandbox, ["echo $((1+1)) | tr 2 3"]), b"3\n");
    assert_eq!(output_of(&sandbox, ["echo", "$((1+1))"]), b"$((1+1))\n");
    assert_eq!(output_of(&sandbox, ["-c", "echo $0 $#"]), b"sh 0\n");
    assert_eq!(output_of(&sandbox, ["--argv", "pwd"]).last(), Some(&b'\n'));
    assert_eq!(output_of(&sandbox, ["echo", "-n", "--band"]), b"--band");
}

#[test]
fn a_file_name_with_quotes_survives_every_form() {
    let name = "Let's go ; \"q\" $HOME\\.txt";
    let quoted = "'Let'\\''s go ; \"q\" $HOME\\.txt'";
    let sandbox = Sandbox::with_shards(1);
    let take = || fs::remove_file(sandbox.work(name)).unwrap();
    output_of(&sandbox, ["--", "touch", name]);
    take();
    output_of(&sandbox, [&format!("touch {quoted}")]);
    take();
    let ids = sandbox.enqueue_lines(&[], &[format!("touch -- {quoted}")]);
    sandbox.drain(1).expect(0);
    take();
    // What is shown of a step can be pasted back into a shell and does the same.
    for id in ["a1", "a2", &ids[0]] {
        let command = sandbox.step(id)["command"].as_str().unwrap().to_owned();
        let mut shell = sandbox.program("sh");
        Ran::of(shell.args(["-c", &command])).expect(0);
        take();
    }
}

#[test]
fn options_end_where_the_command_begins() {
    let sandbox = Sandbox::with_shards(1);
    let out = output_of(
        &sandbox,
        ["-b", "3", "--tag", "t", "echo", "-b", "9", "--json"],
    );
    assert_eq!(out, b"-b 9 --json\n");
    let out = output_of(&sandbox, ["-t", "one", "-t", "two", "--", "echo", "x"]);
    assert_eq!(out, b"x\n");
    assert_eq!(
        sandbox.step("a2")["tags"],
        serde_json::json!(["one", "two"])
    );
    // A program whose name begins with a dash needs the --, and the error says so.
    let ran = sandbox.fairq(["enqueue", "-dashed", "x"]).expect(2);
    assert!(ran.err.contains("-d"), "{}", ran.err);
    let id = &sandbox.enqueue(["--", "-dashed", "x"])[0];
    assert_eq!(sandbox.step(id)["argv"][0], "-dashed");
    let store = sandbox.store();
    let store = store.to_str().unwrap();
    for args in [
        ["--store", store, "enqueue", "true"],
        ["enqueue", "--store", store, "true"],
    ] {
        sandbox.fairq(args).expect(0);
    }
}

#[test]
fn bytes_that_are_no_text_do_no_harm_anywhere() {
    let sandbox = Sandbox::with_shards(1);
    let out = output_of(&sandbox, words([b"--", b"printf", b"%s", b"\xff\xfe"]));
    assert_eq!(out, b"\xff\xfe");
    let bad = OsStr::from_bytes(b"\xff");
    for args in [
        vec![OsStr::new("status"), bad],
        vec![OsStr::new("show"), bad],
        vec![bad],
        vec![
            OsStr::new("enqueue"),
            OsStr::new("-k"),
            bad,
            OsStr::new("true"),
        ],
        vec![
            OsStr::new("wait"),
            OsStr::new("--timeout"),
            bad,
            OsStr::new("a1"),
        ],
    ] {
        sandbox.fairq(&args).expect(2);
    }
    // A directory whose name is no text is one to run in, too.
    let dir = sandbox.work("").join(OsStr::from_bytes(b"d\xe9"));
    fs::create_dir(&dir).unwrap();
    let args = [OsStr::new("-C"), dir.as_os_str(), OsStr::new("touch here")];
    output_of(&sandbox, args);
    assert!(dir.join("here").exists());
    // Nor does a variable that is none of our business.
    for args in [
        &["enqueue", "printf %s \"$BAD\""][..],
        &["run", "--drain"],
        &["status"],
        &["show", "a3", "--show-env"],
        &["wait", "a3"],
        &["logs", "a3"],
        &["inspect", "plan"],
        &["config", "show"],
    ] {
        let mut command = sandbox.command(args);
        let ran = Ran::of(command.env("BAD", OsStr::from_bytes(b"\xa3"))).expect(0);
        if args[0] == "logs" {
            assert_eq!(ran.out, b"\xa3");
        }
    }
}

/// Returns the variables that a step was given, ours left out.
fn variables(env: &[u8]) -> Vec<String> {
    let mut found: Vec<String> = String::from_utf8(env.to_vec())
        .unwrap()
        .lines()
        .filter(|line| !line.starts_with("FAIRQ_") && !line.starts_with("_="))
        .map(str::to_owned)
        .collect();
    found.sort();
    found
}

#[test]
fn a_step_gets_the_variables_of_who_put_it_in_and_none_of_the_runners() {
    let sandbox = Sandbox::with_shards(1);
    let mut command = sandbox.command(["enqueue", "--", "env"]);
    command
        .env("CALLER_ONLY", "1")
        .env("PATH", "/opt/caller:/usr/bin:/bin");
    Ran::of(&mut command).expect(0);
    let args = [
        "enqueue",
        "--clean-env",
        "-e",
        "A=1=2",
        "-e",
        "CALLER_ONLY",
        "-e",
        "E=",
        "/usr/bin/env",
    ];
    Ran::of(sandbox.command(args).env("CALLER_ONLY", "1")).expect(0);
    let mut run = sandbox.command(["run", "--drain"]);
    run.env("RUNNER_ONLY", "1")
        .env("PATH", "/opt/runner:/usr/bin:/bin");
    Ran::of(&mut run).expect(0);
    let of = |id: &str| variables(&sandbox.fairq(["logs", id]).expect(0).out);
    let whole = of("a1");
    assert!(whole.contains(&"CALLER_ONLY=1".to_owned()), "{whole:?}");
    assert!(
        whole.contains(&"PATH=/opt/caller:/usr/bin:/bin".to_owned()),
        "{whole:?}"
    );
    assert!(
        !whole
            .iter()
            .any(|line| line.contains("RUNNER") || line.contains("runner"))
    );
    let clean: Vec<String> = of("a2")
        .into_iter()
        // What the shell that the line needs sets by itself.
        .filter(|line| {
            !line.starts_with("PWD=") && !line.starts_with("SHLVL=") && !line.starts_with("OLDPWD")
        })
        .collect();
    assert_eq!(clean, ["A=1=2", "CALLER_ONLY=1", "E="]);
}

#[test]
fn a_program_is_looked_for_on_the_callers_path_and_an_option_wins() {
    use std::os::unix::fs::PermissionsExt as _;
    let sandbox = Sandbox::with_shards(1);
    for place in ["caller", "runner", "option"] {
        let dir = sandbox.work(place);
        fs::create_dir(&dir).unwrap();
        let tool = dir.join("tool");
        fs::write(&tool, format!("#!/bin/sh\necho {place}\n")).unwrap();
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o700)).unwrap();
    }
    let path = |place: &str| format!("{}:/usr/bin:/bin", sandbox.work(place).display());
    let option = format!("PATH={}", path("option"));
    for args in [
        &["enqueue", "tool", "x"][..],
        &["enqueue", "tool"],
        &["enqueue", "-e", &option, "tool", "x"],
    ] {
        Ran::of(sandbox.command(args).env("PATH", path("caller"))).expect(0);
    }
    Ran::of(
        sandbox
            .command(["run", "--drain"])
            .env("PATH", path("runner")),
    )
    .expect(0);
    for (id, place) in [("a1", "caller\n"), ("a2", "caller\n"), ("a3", "option\n")] {
        assert_eq!(sandbox.fairq(["logs", id]).expect(0).text(), place, "{id}");
    }
    let shown = sandbox.fairq(["show", "a3", "--show-env"]).expect(0).text();
    assert!(shown.contains(&option), "{shown}");
    let masked = sandbox.fairq(["show", "a3"]).expect(0).text();
    assert!(!masked.contains(&option), "{masked}");
}

#[test]
fn a_step_knows_who_and_where_it_is() {
    let sandbox = Sandbox::with_shards(1);
    let line = "echo $FAIRQ_ID $FAIRQ_ATTEMPT $FAIRQ_BAND $FAIRQ_KEY $FAIRQ_NAME $FAIRQ_STORE";
    let out = output_of(&sandbox, ["-b", "7", "-k", "alice", "-n", "hello", line]);
    let expected = format!("a1 1 7 alice hello {}\n", sandbox.store().display());
    assert_eq!(String::from_utf8(out).unwrap(), expected);
    // A step may put steps in: they go into the same store, wherever it runs.
    let other = sandbox.work("elsewhere");
    fs::create_dir_all(other.join(".fairq")).unwrap();
    let other = other.to_str().unwrap();
    sandbox.enqueue([
        "-C",
        other,
        "\"$FAIRQ\" enqueue -n child 'echo I am a child'",
    ]);
    sandbox.drain(1).expect(0);
    assert_eq!(sandbox.step("a3")["name"], "child");
    assert_eq!(
        sandbox.fairq(["logs", "a3"]).expect(0).text(),
        "I am a child\n"
    );
}

#[test]
fn steps_run_in_their_own_directory_though_the_runners_is_gone() {
    let sandbox = Sandbox::with_shards(1);
    let gone = sandbox.work("gone");
    fs::create_dir(&gone).unwrap();
    let mut runner = sandbox
        .command(["run", "--workers", "1"])
        .current_dir(&gone)
        .spawn()
        .unwrap();
    until("the runner is there", || {
        sandbox.json(["status"])["runners"]
            .as_array()
            .unwrap()
            .len()
            == 1
    });
    fs::remove_dir(&gone).unwrap();
    let id = &sandbox.enqueue(["pwd"])[0];
    sandbox.fairq(["wait", id]).expect(0);
    let here = format!("{}\n", sandbox.work("").canonicalize().unwrap().display());
    assert_eq!(sandbox.fairq(["logs", id]).expect(0).text(), here);
    runner.kill().unwrap();
    runner.wait().unwrap();
}

#[test]
fn a_directory_that_is_gone_is_named_and_the_queue_goes_on() {
    let sandbox = Sandbox::with_shards(1);
    let gone = sandbox.work("gone");
    fs::create_dir(&gone).unwrap();
    sandbox.enqueue(["-C", gone.to_str().unwrap(), "true"]);
    sandbox.enqueue(["true"]);
    fs::remove_dir(&gone).unwrap();
    sandbox.drain(1).expect(1);
    assert_eq!(sandbox.step("a1")["state"], "failed");
    let shown = sandbox.fairq(["show", "a1"]).expect(0).text();
    let result = shown
        .lines()
        .find(|line| line.starts_with("result"))
        .unwrap();
    assert!(result.contains(gone.to_str().unwrap()), "{result}");
    assert!(!result.contains("/bin/sh"), "{result}");
    assert_eq!(sandbox.step("a2")["state"], "succeeded");
    // One who has no directory any more is told so.
    let mut command = sandbox.program("sh");
    let line = "mkdir d && cd d && rmdir ../d && exec \"$FAIRQ\" enqueue true";
    let ran = Ran::of(command.args(["-c", line])).expect(1);
    assert!(ran.err.contains("directory is gone"), "{}", ran.err);
}

#[test]
fn a_step_reads_nothing_and_the_runners_input_is_left_alone() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["--", "cat"]);
    sandbox.enqueue(["read x; echo got $?"]);
    fs::write(sandbox.work("input"), "a\nb\n").unwrap();
    let mut shell = sandbox.program("sh");
    let line = "{ \"$FAIRQ\" run --drain -q; cat; } <input";
    let ran = Ran::of(shell.args(["-c", line])).expect(0);
    assert_eq!(ran.text(), "a\nb\n");
    assert_eq!(sandbox.fairq(["logs", "a1"]).expect(0).out, b"");
    assert_eq!(sandbox.fairq(["logs", "a2"]).expect(0).out, b"got 1\n");
}

#[test]
fn every_exit_code_is_kept_and_only_zero_is_success() {
    let sandbox = Sandbox::with_shards(1);
    let codes = [
        0, 1, 2, 3, 70, 75, 78, 124, 125, 126, 127, 128, 130, 143, 255,
    ];
    let steps: Vec<String> = codes.iter().map(|code| format!("exit {code}")).collect();
    let ids = sandbox.enqueue_lines(&[], &steps);
    sandbox.drain(2).expect(1);
    for (id, code) in ids.iter().zip(codes) {
        let step = sandbox.step(id);
        assert_eq!(
            step["ending"],
            serde_json::json!({"how": "exited", "code": code})
        );
        assert_eq!(step["exit_code"], code);
        let state = if code == 0 { "succeeded" } else { "failed" };
        assert_eq!(step["state"], state, "{id}");
        sandbox.fairq(["wait", id]).expect(code);
        sandbox.fairq(["logs", "--exit-code", id]).expect(code);
    }
}

#[test]
fn a_death_by_signal_is_no_exit() {
    let sandbox = Sandbox::with_shards(1);
    for (signal, number) in [("KILL", 9), ("SEGV", 11), ("TERM", 15)] {
        let id = &sandbox.enqueue([format!("kill -{signal} $$")])[0];
        sandbox.drain(1).expect(1);
        let step = sandbox.step(id);
        assert_eq!(step["state"], "failed");
        assert_eq!(step["ending"]["how"], "signalled", "{step}");
        assert_eq!(step["exit_code"], 128 + number);
        sandbox.fairq(["wait", id]).expect(128 + number);
        let shown = sandbox.fairq(["show", id]).expect(0).text();
        assert!(shown.contains(signal), "{shown}");
    }
}

#[test]
fn a_step_whose_program_is_not_there_fails_with_that_reason() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["--", "no-such-program", "x"]);
    sandbox.drain(1).expect(1);
    assert_eq!(sandbox.step("a1")["state"], "failed");
    let shown = sandbox.fairq(["show", "a1"]).expect(0).text();
    assert!(
        shown.contains("\"no-such-program\" is not in PATH"),
        "{shown}"
    );
    sandbox.fairq(["wait", "a1"]).expect(127);
}

#[test]
fn what_a_step_leaves_in_the_background_does_not_hold_it() {
    let sandbox = Sandbox::with_shards(1);
    let out = output_of(&sandbox, ["sleep 1000 & echo hi"]);
    assert_eq!(out, b"hi\n");
    until("what it left has ended", || sandbox.processes().is_empty());
}

#[test]
fn delayed_and_held_steps_wait_and_a_drain_does_not_wait_for_them() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["--hold", "touch held"]);
    sandbox.enqueue(["--delay", "1h", "touch delayed"]);
    sandbox.enqueue(["--at", "2001-01-01T00:00:00Z", "echo past >>ran"]);
    sandbox.drain(1).expect(0);
    let states: Vec<_> = ["a1", "a2", "a3"]
        .map(|id| sandbox.step(id)["state"].as_str().unwrap().to_owned())
        .into();
    assert_eq!(states, ["held", "delayed", "succeeded"]);
    assert_eq!(lines(&sandbox.work("ran")), ["past"]);
    // One that comes due while a runner serves is run.
    let id = &sandbox.enqueue(["--delay", "200ms", "true"])[0];
    let runner = sandbox.runner(&["--workers", "1"]);
    sandbox.fairq(["wait", id]).expect(0);
    drop(runner);
}
