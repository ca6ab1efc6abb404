//! What is kept of a step's output if it has a limit.

use std::sync::Arc;
use std::sync::mpsc::channel;

use fairq::ambient::SystemClock;
use fairq::crew::capture::live_path;
use fairq::crew::executor::{Executor as _, Force, Outcome, Process, Ran, Seat};
use fairq::crew::shell::Shell;
use fairq::model::{Captured, Claim, Stream};

use crate::support::*;

struct Limited {
    bench: Bench,
    seat: Box<dyn Seat>,
}

impl Limited {
    fn new(most: u64) -> Self {
        let mut bench = Bench::new();
        bench.claim.policy.max_output = Some(most);
        let root = bench.root.path().to_owned();
        let runner = root.join("runners");
        let shell = Shell::new(root, runner, INLINE_MAX, Arc::new(SystemClock::new())).unwrap();
        Self {
            seat: shell.seat(7),
            bench,
        }
    }

    fn run_with(&mut self, line: &str, mut started: impl FnMut(Arc<dyn Process>)) -> Outcome {
        self.bench.claim.fence += 1;
        let claim = Claim {
            command: sh(line),
            ..self.bench.claim.clone()
        };
        match self.seat.run(&claim, &mut started) {
            Ran::Ended(outcome) => outcome,
            Ran::NotNow(reason) => panic!("{reason}"),
        }
    }

    /// Returns what is kept of its output and of its error.
    fn run(&mut self, line: &str) -> (String, String) {
        let outcome = self.run_with(line, |_| ());
        (self.text(&outcome.stdout), self.text(&outcome.stderr))
    }

    fn text(&self, captured: &Captured) -> String {
        if let Captured::File { path, size } = captured {
            let kept = std::fs::metadata(self.bench.root.path().join(path)).unwrap();
            assert_eq!(kept.len(), *size);
        }
        String::from_utf8(self.bench.bytes(captured)).unwrap()
    }
}

#[test]
fn what_is_within_the_limit_is_kept_as_it_is() {
    let mut limited = Limited::new(10);
    let kept = limited.run("printf 0123456789; printf abc >&2");
    assert_eq!(kept, ("0123456789".to_owned(), "abc".to_owned()));
    assert_eq!(limited.run(":"), (String::new(), String::new()));
}

#[test]
fn what_is_beyond_it_is_cut_off_and_the_end_says_so() {
    let mut limited = Limited::new(10);
    let note = "[fairq: output was cut off after 10 bytes]\n";
    let (out, err) = limited.run("printf 0123456789x; printf 'abcdefghi\\njkl' >&2");
    assert_eq!(out, format!("0123456789\n{note}"));
    assert_eq!(err, format!("abcdefghi\n{note}"));
    // The next step of the worker finds nothing of it.
    assert_eq!(limited.run("echo b"), ("b\n".to_owned(), String::new()));
}

#[test]
fn nothing_at_all_may_be_kept() {
    let (out, err) = Limited::new(0).run("echo a; echo b >&2; echo c");
    let note = "[fairq: output was cut off after 0 bytes]\n";
    assert_eq!((out.as_str(), err.as_str()), (note, note));
}

#[test]
fn a_limit_above_what_is_kept_inline_holds_for_the_file() {
    let most = INLINE_MAX + 5;
    let (out, _) = Limited::new(most).run("head -c 1000000 /dev/zero | tr '\\0' x");
    let note = format!("\n[fairq: output was cut off after {most} bytes]\n");
    let beginning = out.strip_suffix(&note).expect("it is said at the end");
    assert_eq!(beginning.len() as u64, most);
    assert!(beginning.bytes().all(|byte| byte == b'x'));
}

/// The disk does not fill up: it is cut off while the step writes, and what was first stays.
#[test]
fn it_is_cut_off_while_the_step_runs() {
    let mut limited = Limited::new(4);
    let (root, work) = (
        limited.bench.root.path().to_owned(),
        limited.bench.work().to_owned(),
    );
    let (send, process) = channel::<Arc<dyn Process>>();
    let watcher = std::thread::spawn(move || {
        let process = process.recv().unwrap();
        let live = live_path(&root.join("runners"), 7, Stream::Stdout);
        let size = || std::fs::metadata(&live).map_or(0, |file| file.len());
        for _ in 0..3 {
            until("it writes", || size() > 40);
            process.trim();
        }
        std::fs::write(work.join("enough"), "").unwrap();
        until("it has stopped writing", || {
            work.join("enough-too").exists()
        });
        process.trim();
        assert_eq!(size(), 4);
        assert!(process.end(Force::Ask));
    });
    let outcome = limited.run_with(
        "until test -e enough; do echo 0123456789; done; echo >enough-too; sleep 1000",
        |process| send.send(process).unwrap(),
    );
    watcher.join().unwrap();
    let note = "[fairq: output was cut off after 4 bytes]\n";
    assert_eq!(limited.text(&outcome.stdout), format!("0123\n{note}"));
}

#[test]
fn nobody_cuts_the_next_steps_output() {
    let mut limited = Limited::new(4);
    let mut first = None;
    limited.run_with("echo 0123456789", |process| first = Some(process));
    limited.bench.claim.policy.max_output = None;
    let first = first.unwrap();
    let outcome = limited.run_with("echo 0123456789; sleep 0.01; echo abc", |_| first.trim());
    first.trim();
    assert_eq!(limited.text(&outcome.stdout), "0123456789\nabc\n");
}
