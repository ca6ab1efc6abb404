//! A step that is asked to end: it is over when nobody of it is left, and not before.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

use fairq::ambient::SystemClock;
use fairq::crew::executor::{Executor as _, Force, Process, Ran};
use fairq::crew::shell::Shell;
use fairq::model::{Ending, Policy, Span};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::*;

/// A grandchild that nothing but KILL ends, and a main process that ends as it is asked to.
const STAYS: &str =
    "sh -c 'trap \"\" TERM INT; echo $$ >left; while :; do sleep 0.01; done' & echo $! >main; wait";

/// One step that runs in a seat.
struct Running {
    bench: Bench,
    process: Arc<dyn Process>,
    ran: Receiver<Ran>,
    thread: JoinHandle<()>,
}

fn run(line: &str, policy: Policy) -> Running {
    let bench = Bench::new();
    let (root, clock) = (bench.root.path().to_owned(), Arc::new(SystemClock::new()));
    let mut claim = bench.claim.clone();
    (claim.command, claim.policy) = (sh(line), policy);
    let (started, process) = channel();
    let (over, ran) = channel();
    let thread = std::thread::spawn(move || {
        let shell = Shell::new(root.clone(), root.join("runners"), INLINE_MAX, clock).unwrap();
        let ran = shell
            .seat(9)
            .run(&claim, &mut |process| started.send(process).unwrap());
        over.send(ran).unwrap();
    });
    Running {
        bench,
        process: process.recv().unwrap(),
        ran,
        thread,
    }
}

impl Running {
    fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    fn ending(self) -> Ending {
        let Ran::Ended(outcome) = self.ran.recv().unwrap() else {
            panic!("it could not be started")
        };
        self.thread.join().unwrap();
        assert!(!self.process.end(Force::Ask), "it has ended");
        assert!(!self.process.signal(9), "it has ended");
        outcome.ending
    }
}

#[test]
fn whoever_heeds_the_request_ends_it_at_once_with_all_that_belongs_to_it() {
    let running = run(
        "sh -c 'sh -c \"echo \\$\\$ >deep; exec sleep 1000\"; :'; :",
        Policy::default(),
    );
    let deep = running.bench.pid_in("deep");
    assert!(running.process.end(Force::Ask));
    assert_eq!(running.ending(), Ending::Signalled { signal: 15 });
    assert!(!exists(deep));
}

#[test]
fn a_step_is_not_over_while_somebody_of_its_group_is_left() {
    for leave_group in [false, true] {
        let running = run(
            STAYS,
            Policy {
                leave_group,
                ..Policy::default()
            },
        );
        let left = running.bench.pid_in("left");
        assert!(running.process.end(Force::Ask));
        until("its main process is gone", || {
            !exists(running.process.pid())
        });
        // It is told once more, as all are whose main process has ended, and does not care.
        for _ in 0..3 {
            kill(Pid::from_raw(left.cast_signed()), Signal::SIGTERM).unwrap();
        }
        assert!(exists(left) && !running.is_over());
        assert!(running.process.end(Force::Kill), "something was left");
        assert_eq!(running.ending(), Ending::Signalled { signal: 15 });
        assert!(!exists(left));
    }
}

#[test]
fn a_deaf_step_is_killed_with_all_that_belongs_to_it() {
    let running = run(&format!("trap '' TERM; {STAYS}"), Policy::default());
    let left = running.bench.pid_in("left");
    assert!(running.process.end(Force::Ask));
    assert!(!running.is_over());
    assert!(running.process.end(Force::Kill));
    assert_eq!(running.ending(), Ending::Signalled { signal: 9 });
    assert!(!exists(left));
}

#[test]
fn a_stopped_step_goes_on_to_end() {
    let running = run(
        "trap 'exit 7' TERM; kill -STOP $$; sleep 1000",
        Policy::default(),
    );
    until("it has stopped", || is_stopped(running.process.pid()));
    assert!(running.process.end(Force::Ask));
    assert_eq!(running.ending(), Ending::Exited { code: 7 });
}

#[test]
fn a_step_is_asked_by_the_signal_that_it_named() {
    for (number, code) in [(10, 3), (2, 4), (1, 5)] {
        let running = run(
            // Not by `sleep`: this shell loses a signal that comes while it starts a program.
            "mkfifo pipe; trap 'exit 3' USR1; trap 'exit 4' INT; trap 'exit 5' HUP; trap '' TERM; \
             echo >on; read x <>pipe",
            Policy {
                kill_signal: number,
                ..Policy::default()
            },
        );
        let on = running.bench.work().join("on");
        until("it listens", || on.exists());
        assert!(running.process.end(Force::Ask));
        assert_eq!(running.ending(), Ending::Exited { code });
    }
}

#[test]
fn what_is_left_gets_the_same_signal() {
    let running = run(
        "mkfifo pipe; \
         sh -c 'trap \"echo >got; exit\" USR1; trap \"\" TERM; echo $$ >left; read x <>pipe' & \
         until test -s left; do sleep 0.01; done",
        Policy {
            kill_signal: 10,
            grace: Span::from_millis(3_600_000),
            ..Policy::default()
        },
    );
    let (left, got) = (
        running.bench.pid_in("left"),
        running.bench.work().join("got"),
    );
    until("it is gone", || !exists(left));
    assert!(got.exists());
    let Running {
        ran, bench: _bench, ..
    } = running;
    drop(ran);
}

/// Otherwise the next try would begin beside what is left of this one.
#[test]
fn a_failed_step_that_may_be_tried_again_is_over_when_nobody_is_left() {
    let line = format!("({STAYS}) & until test -s left; do sleep 0.01; done; exit 3");
    let grace = Span::from_millis(100);
    let running = run(
        &line,
        Policy {
            retries: 1,
            grace,
            ..Policy::default()
        },
    );
    let left = running.bench.pid_in("left");
    assert_eq!(running.ending(), Ending::Exited { code: 3 });
    assert!(!exists(left));
}

#[test]
fn a_raw_signal_is_sent_as_it_is() {
    let running = run(
        // No child: one that is stopped between its fork and its exec keeps the shell from stopping.
        "trap 'exit 3' USR1; echo >on; while :; do :; done",
        Policy::default(),
    );
    let on = running.bench.work().join("on");
    until("it listens", || on.exists());
    assert!(!running.process.signal(0) && !running.process.signal(-1));
    assert!(running.process.signal(19));
    until("it has stopped", || is_stopped(running.process.pid()));
    assert!(running.process.signal(18) && running.process.signal(10));
    assert_eq!(running.ending(), Ending::Exited { code: 3 });
}
