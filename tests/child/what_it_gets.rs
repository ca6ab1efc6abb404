//! What a command gets: words, variables, program, directory, descriptors, signals.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::sync::Arc;

use fairq::model::{Command, Environment, Span};
use nix::sys::signal::Signal;

use crate::support::*;

#[test]
fn an_argv_arrives_byte_for_byte() {
    let words: &[&[u8]] = &[
        b"$$",
        b"${HOME}",
        b"%n",
        b"%%",
        b"\\n",
        b"*",
        b"~",
        b"",
        b" ",
        b"\xff\xfe\xc3",
        b"-c",
        b"Let's go ; \"q\"\n",
        b"`id`",
        b"--",
    ];
    let mut command: Vec<&[u8]> = vec![b"printf", b"[%s]"];
    command.extend(words);
    let mut expected = Vec::new();
    for word in words {
        expected.extend_from_slice(&[b"[", *word, b"]"].concat());
    }
    let mut bench = Bench::new();
    fs::write(bench.work().join("a file"), "").unwrap();
    assert_eq!(bench.run(argv(&command)).out, expected);
}

#[test]
fn a_shell_line_is_a_shells_and_keeps_its_bytes() {
    let mut bench = Bench::new();
    let line =
        OsString::from_vec(b"printf '\xff%s' a | tr a b; printf '%s.' \"$0\" \"$#\"".to_vec());
    assert_eq!(bench.run(Command::Shell(line)).out, b"\xffbsh.0.");
    assert_eq!(bench.run(sh("")).code(), Some(0));
}

#[test]
fn a_shell_line_may_begin_like_an_option() {
    let mut bench = Bench::new();
    for name in ["-x", "+x", "--", "-"] {
        bench.script(name, "#!/bin/sh\necho ran\n");
        let path = format!("{}:/bin", bench.work().display());
        bench.claim.env = env(&[("PATH", &path)]);
        assert_eq!(bench.run(sh(name)).out, b"ran\n", "{name}");
    }
}

#[test]
fn the_environment_is_the_captured_one_and_the_steps_variables() {
    let mut bench = Bench::new();
    let bad = OsStr::from_bytes(b"x=\xa3\n").to_owned();
    bench.claim.env = Arc::new(Environment::from_pairs([
        ("ONE".into(), bad),
        ("EMPTY".into(), OsString::new()),
        ("FAIRQ_ID".into(), "b9".into()),
        ("FAIRQ_NAME".into(), "the step around us".into()),
        ("FAIRQ_DEADLINE".into(), "stale".into()),
        ("FAIRQ_OTHER".into(), "not ours".into()),
    ]));
    bench.claim.attempt = 3;
    let ran = bench.run(argv(&["/usr/bin/env", "-0"]));
    let mut got: Vec<&[u8]> = ran.out.split(|byte| *byte == 0).collect();
    got.sort_unstable();
    let store = format!("FAIRQ_STORE={}", bench.root.path().display());
    let mut expected: Vec<&[u8]> = vec![
        b"",
        b"ONE=x=\xa3\n",
        b"EMPTY=",
        b"FAIRQ_ID=a17",
        b"FAIRQ_ATTEMPT=3",
        b"FAIRQ_BAND=100",
        b"FAIRQ_KEY=default",
        b"FAIRQ_WORKER=4",
        b"FAIRQ_OTHER=not ours",
        store.as_bytes(),
    ];
    expected.sort_unstable();
    assert_eq!(got, expected);

    bench.claim.name = Some("n\u{e4}me".to_owned());
    let ran = bench.run(argv(&["/usr/bin/printenv", "FAIRQ_NAME"]));
    assert_eq!(ran.out, "n\u{e4}me\n".as_bytes());
}

#[test]
fn the_program_is_found_with_the_steps_own_path() {
    let mut bench = Bench::new();
    fs::create_dir(bench.work().join("tools")).unwrap();
    bench.script("tools/mytool", "#!/bin/sh\necho \"$0\" here\n");
    bench.claim.env = env(&[("PATH", "tools")]);
    let ran = bench.run(argv(&["mytool"]));
    assert!(ran.out.ends_with(b"tools/mytool here\n"), "{:?}", ran.out);
    bench.claim.env = env(&[]);
    assert_eq!(bench.run(argv(&["true"])).code(), Some(0), "without a PATH");
    let ran = bench.run(argv(&["cat", "/proc/self/cmdline"]));
    assert_eq!(ran.out, b"cat\0/proc/self/cmdline\0", "argument 0 as typed");
}

#[test]
fn a_program_without_a_format_is_run_by_the_shell() {
    let mut bench = Bench::new();
    bench.script("plain", "echo \"$1\" \"$2\" \"$#\"\n");
    let ran = bench.run(argv(&["./plain", "a b", "$c"]));
    assert_eq!(ran.out, b"a b $c 2\n");
    assert_eq!(ran.code(), Some(0));
}

#[test]
fn it_runs_in_its_own_directory() {
    let mut bench = Bench::new();
    let ran = bench.run(argv(&["/bin/pwd"]));
    let work = fs::canonicalize(bench.work()).unwrap();
    assert_eq!(ran.out, [work.as_os_str().as_bytes(), b"\n"].concat());
}

#[test]
fn its_standard_input_is_empty() {
    let mut bench = Bench::new();
    let ran = bench.run(argv(&["cat"]));
    assert_eq!((ran.code(), ran.out), (Some(0), Vec::new()));
    assert_eq!(bench.run(sh("read x")).code(), Some(1));
}

#[test]
fn it_gets_no_descriptors_but_the_three() {
    // What the test itself was given by whoever started it may be passed on; count it out.
    let passed_on = fs::read_dir("/proc/self/fdinfo")
        .unwrap()
        .filter_map(|entry| {
            let info = fs::read_to_string(entry.unwrap().path()).ok()?;
            let flags = info
                .lines()
                .find_map(|line| line.strip_prefix("flags:\t"))?;
            let flags = u32::from_str_radix(flags, 8).unwrap();
            (flags & 0o2_000_000 == 0).then_some(())
        });
    let passed_on = passed_on.count();
    let mut bench = Bench::new();
    let _open = fs::File::open("/dev/zero").unwrap();
    let ran = bench.run(sh("ls /proc/$$/fd"));
    let got = ran.out.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(got, passed_on.max(3));
}

#[test]
fn it_leads_a_group_of_its_own_and_no_signal_is_blocked() {
    let mut bench = Bench::new();
    let child = bench
        .start(argv(&["cat", "/proc/self/stat", "/proc/self/status"]))
        .unwrap();
    let group = child.pid().to_string();
    let ran = bench.finish(&child);
    let text = String::from_utf8(ran.out).unwrap();
    assert_eq!(text.split(' ').nth(4), Some(&*group));
    let mask = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
    };
    assert_eq!(mask("SigBlk"), 0);
    let pipe = 1 << (Signal::SIGPIPE as u64 - 1);
    assert_eq!(mask("SigIgn") & pipe, 0, "a pipe that breaks must end it");
}

#[test]
fn a_step_with_a_time_out_is_told_when_its_time_is_over() {
    let mut bench = Bench::new();
    let told = |bench: &mut Bench| {
        let ran = bench.run(sh("echo ${FAIRQ_DEADLINE-none}"));
        String::from_utf8(ran.out).unwrap()
    };
    assert_eq!(told(&mut bench), "none\n");
    bench.claim.policy.timeout = Some(Span::from_millis(90_500));
    assert_eq!(told(&mut bench), "2023-11-14T22:14:50.500Z\n");
}
