//! How it ended, and signals on the way there.

use std::fs;

use fairq::crew::process::ProcessIdentity;
use fairq::model::Ending;
use nix::sys::signal::Signal;

use crate::support::*;

#[test]
fn every_exit_code_is_reported_as_it_is() {
    let mut bench = Bench::new();
    for code in [0, 1, 2, 125, 126, 127, 128, 129, 130, 143, 255] {
        assert_eq!(bench.run(sh(&format!("exit {code}"))).code(), Some(code));
    }
}

#[test]
fn death_by_a_signal_is_no_exit() {
    let mut bench = Bench::new();
    // 34 is a real-time signal, which has no name.
    for signal in [1, 2, 6, 9, 11, 13, 15, 34] {
        let ran = bench.run(sh(&format!("kill -{signal} $$")));
        assert_eq!(ran.ended.ending, Ending::Signalled { signal });
    }
}

#[test]
fn a_signal_reaches_the_whole_group_while_it_runs_and_nobody_afterwards() {
    let mut bench = Bench::new();
    let child = bench
        .start(sh(
            "sh -c 'sh -c \"echo \\$\\$ >deep; exec sleep 1000\"; :'; :",
        ))
        .unwrap();
    let deep = bench.pid_in("deep");
    let identity = ProcessIdentity::of(child.pid()).unwrap();
    assert!(
        child.birth().is(identity),
        "{:?} {identity:?}",
        child.birth()
    );
    assert!(child.signal_group(Signal::SIGTERM));
    let ran = bench.finish(&child);
    assert_eq!(ran.ended.ending, Ending::Signalled { signal: 15 });
    until("the grandchild is gone", || !exists(deep));
    assert!(!child.signal_group(Signal::SIGKILL));
    let again = child.wait();
    assert_eq!(again.ending, ran.ended.ending);
    assert!(again.leftover.is_none());
}

#[test]
fn a_stopped_child_is_waited_for_and_can_be_killed() {
    let mut bench = Bench::new();
    let child = bench.start(sh("kill -STOP $$; exit 3")).unwrap();
    until("it has stopped", || is_stopped(child.pid()));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| child.wait().ending);
        assert!(child.signal_group(Signal::SIGTERM));
        until("it is stopped still", || is_stopped(child.pid()));
        assert!(!waiting.is_finished());
        assert!(child.signal_group(Signal::SIGKILL));
        assert_eq!(waiting.join().unwrap(), Ending::Signalled { signal: 9 });
    });
}

#[test]
fn descriptors_and_zombies_do_not_pile_up() {
    let mut bench = Bench::new();
    let mut pids = Vec::new();
    for round in 0..200 {
        let child = match round % 4 {
            0 => bench.start(sh("echo a")),
            1 => bench.start(argv(&["no-such-program"])),
            2 => bench.start(argv(&["/no/such/program"])),
            _ => bench.start(argv(&["true"])),
        };
        if let Ok(child) = child {
            pids.push(child.birth());
            bench.finish(&child);
        }
    }
    let open = fs::read_dir("/proc/self/fd").unwrap();
    let root = bench.root.path();
    let after = open
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter(|target| target.starts_with(root))
        .count();
    // Two files, or four where a pair had to be set aside.
    assert!(after <= 4, "{after} descriptors");
    assert_eq!(pids.len(), 100);
    let remains = |birth: &&fairq::crew::process::Birth| {
        ProcessIdentity::of(birth.pid).is_some_and(|process| birth.is(process))
    };
    assert_eq!(pids.iter().filter(remains).count(), 0);
}
