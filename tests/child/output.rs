//! What it writes, and that nobody else's is mixed in.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use fairq::crew::capture::{Capture, kept_path};
use fairq::model::Stream;

use crate::support::INLINE_MAX;
use fairq::model::Captured;

use crate::support::*;

#[test]
fn silence_costs_no_file() {
    let mut bench = Bench::new();
    let ran = bench.run(sh("true"));
    assert_eq!(ran.captured, (Captured::Empty, Captured::Empty));
    assert!(!bench.root.path().join("output").exists());
}

#[test]
fn little_is_kept_inline_each_stream_for_itself_and_never_twice() {
    let mut bench = Bench::new();
    let ran = bench.run(sh("printf 'a\\377'; echo b >&2; printf c"));
    assert_eq!(ran.captured.0, Captured::Inline(b"a\xffc".to_vec()));
    assert_eq!(ran.captured.1, Captured::Inline(b"b\n".to_vec()));
    let ran = bench.run(sh("printf d"));
    assert_eq!(
        ran.captured,
        (Captured::Inline(b"d".to_vec()), Captured::Empty)
    );
    let ran = bench.run(sh("true"));
    assert_eq!(ran.captured, (Captured::Empty, Captured::Empty));
    let live = fs::metadata(bench.live(Stream::Stdout)).unwrap();
    assert_eq!((live.len(), live.mode() & 0o777), (0, 0o600));
}

#[test]
fn what_does_not_fit_inline_has_a_file_of_its_own() {
    let mut bench = Bench::new();
    let ran = bench.run(sh(&format!("head -c {INLINE_MAX} /dev/zero")));
    assert_eq!(ran.captured.0, Captured::Inline(vec![0; 65_536]));
    let more = INLINE_MAX + 1;
    let ran = bench.run(sh(&format!(
        "head -c {more} /dev/urandom | tee copy; echo e >&2"
    )));
    let path = kept_path(bench.claim.id, bench.claim.fence, Stream::Stdout);
    assert_eq!(path, Path::new("output/a0/a17-2.out"));
    assert_eq!(
        ran.captured.0,
        Captured::File {
            path: path.clone(),
            size: more
        }
    );
    assert_eq!(ran.out, fs::read(bench.work().join("copy")).unwrap());
    assert_eq!(ran.err, b"e\n");
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    let kept = bench.root.path().join(path);
    assert_eq!(mode(&kept), 0o600);
    assert_eq!(mode(kept.parent().unwrap()), 0o700);
    assert_eq!(bench.run(sh("echo next")).out, b"next\n");
}

#[test]
fn what_is_written_can_be_read_while_it_runs() {
    let mut bench = Bench::new();
    let child = bench
        .start(sh("echo live; until test -e go; do sleep 0.01; done"))
        .unwrap();
    let live = bench.live(Stream::Stdout);
    until("the line is there", || {
        fs::read(&live).unwrap() == b"live\n"
    });
    fs::write(bench.work().join("go"), "").unwrap();
    assert_eq!(bench.finish(&child).out, b"live\n");
}

const WRITES_LATE: &str = "echo $$ >leaked; until test -e write; do sleep 0.01; done; echo late; echo late >&2; : >written";

/// Leaves somebody outside the group who holds both streams until the end.
const HOLDS: &str = "setsid sh -c ': >away; until test -e end; do sleep 0.01; done' & until test -e away; do sleep 0.01; done; rm away";

/// Runs a step that leaves somebody behind who writes when told to, a number of steps whose
/// files must be set aside, and one that runs while it is written.
/// Returns what the store has of the first step's output in the end.
fn leak(who: &str, to: &str, rounds: u32) -> Option<Vec<u8>> {
    let mut bench = Bench::new();
    bench.claim.policy.leave_group = true;
    let late = format!("{who} sh -c '{WRITES_LATE}' {to}");
    let ran = bench.run(sh(&format!(
        "{late} & echo hi; until test -s leaked; do sleep 0.01; done"
    )));
    assert_eq!(ran.out, b"hi\n", "{late}");
    let first = bench.claim.fence;
    let leaked = bench.pid_in("leaked");
    assert!(exists(leaked), "{late}");

    for _ in 0..rounds {
        let ran = bench.run(sh(HOLDS));
        assert_eq!((&*ran.out, &*ran.err), (&b""[..], &b""[..]), "{late}");
    }
    let child = bench
        .start(sh("echo mine; until test -e end; do sleep 0.01; done"))
        .unwrap();
    fs::write(bench.work().join("write"), "").unwrap();
    until("it has written", || bench.work().join("written").exists());
    fs::write(bench.work().join("end"), "").unwrap();
    let ran = bench.finish(&child);
    assert_eq!((&*ran.out, &*ran.err), (&b"mine\n"[..], &b""[..]), "{late}");
    until("it has gone", || !exists(leaked));
    for _ in 0..3 {
        let ran = bench.run(sh(HOLDS));
        assert_eq!((&*ran.out, &*ran.err), (&b""[..], &b""[..]), "{late}");
    }
    let kept = kept_path(bench.claim.id, first, Stream::Stdout);
    fs::read(bench.root.path().join(kept)).ok()
}

#[test]
fn a_leaked_child_does_not_hang_us_and_writes_into_no_other_step() {
    for rounds in 0..4 {
        assert_eq!(leak("", "", rounds), Some(b"hi\nlate\n".to_vec()));
    }
}

#[test]
fn a_child_that_leaked_out_of_the_group_writes_into_no_other_step() {
    for rounds in 0..4 {
        assert_eq!(leak("setsid", "", rounds), None);
    }
}

#[test]
fn a_leaked_child_that_opened_the_stream_anew_writes_into_no_other_step() {
    for rounds in 0..4 {
        let anew = ">>/dev/stdout 2>>/dev/stderr";
        assert_eq!(leak("", anew, rounds), Some(b"hi\nlate\n".to_vec()));
        // Out of the group, but with one stream as it was.
        assert_eq!(leak("setsid", ">>/dev/stdout", rounds), None);
    }
}

#[test]
fn workers_that_start_steps_at_once_do_not_take_each_other_for_leaks() {
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut bench = Bench::new();
                for round in 0..100 {
                    let text = format!("{round}\n").into_bytes();
                    let ran = bench.run(argv(&["echo", &round.to_string()]));
                    assert_eq!(ran.captured.0, Captured::Inline(text));
                }
                // Two pairs and no more, however often they went round.
                let runner = bench.root.path().join("runners");
                assert!(fs::read_dir(runner).unwrap().count() <= 4);
                assert!(!bench.root.path().join("output").exists());
            });
        }
    });
}

#[test]
fn output_that_was_never_collected_is_nobody_elses() {
    let mut bench = Bench::new();
    bench.start(sh("echo first")).unwrap().wait();
    assert_eq!(bench.run(sh("echo second")).out, b"second\n");
}

#[test]
fn a_worker_has_its_files_once() {
    let bench = Bench::new();
    let runner = bench.root.path().join("runners");
    assert!(Capture::create(bench.root.path(), &runner, 4, INLINE_MAX).is_err());
}
