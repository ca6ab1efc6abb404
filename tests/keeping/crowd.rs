//! Many at once, and stores that others lock, lose or may not write to.

use std::fs;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use fairq::ambient::{Clock as _, SystemClock};
use nix::sys::signal::Signal;

use crate::common::{Ran, Sandbox, lines, until};
use crate::kit::{harm, healthy, one, shard, snapshot};

/// These tests press the disk, and what one of them measures the other would spoil.
fn the_disk() -> MutexGuard<'static, ()> {
    static DISK: Mutex<()> = Mutex::new(());
    DISK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Each puts in many, one after another, while others run them and somebody looks on.
/// `FAIRQ_TEST_ENQUEUES` says how many each; 200 make a long test.
#[test]
fn many_enqueuers_runners_and_lookers_never_meet_a_locked_database() {
    const ENQUEUERS: usize = 50;
    let disk = the_disk();
    let each = std::env::var("FAIRQ_TEST_ENQUEUES").map_or(6, |each| each.parse().unwrap());
    let sandbox = Sandbox::with_shards(2);
    let clock = SystemClock::new();
    let runners = [
        sandbox.runner(&["--workers", "2", "-q"]),
        sandbox.runner(&["--workers", "2", "-q"]),
    ];
    let mut times: Vec<Duration> = thread::scope(|scope| {
        let enqueuers: Vec<_> = (0..ENQUEUERS)
            .map(|number| {
                let (sandbox, clock) = (&sandbox, &clock);
                scope.spawn(move || {
                    let times: Vec<Duration> = (0..each)
                        .map(|at| {
                            let key = format!("k{number}");
                            let line = format!("echo {key}-{at} >>ran");
                            let began = clock.monotonic();
                            let ran = sandbox.fairq(["enqueue", "-k", &key, &line]).expect(0);
                            assert_eq!(ran.err, "");
                            clock.monotonic() - began
                        })
                        .collect();
                    times
                })
            })
            .collect();
        while !enqueuers.iter().all(ScopedJoinHandle::is_finished) {
            let ran = sandbox.fairq(["status", "--json"]).expect(0);
            assert_eq!(ran.err, "");
        }
        let times = enqueuers.into_iter().map(|one| one.join().unwrap());
        times.flatten().collect()
    });
    // Nobody is kept waiting for much longer than all the others.
    times.sort_unstable();
    let (median, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    assert!(p99 < median * 10, "{p99:?} beside {median:?}");
    let all = ENQUEUERS * each;
    sandbox.drain(2).expect(0);
    for runner in runners {
        runner.signal(Signal::SIGTERM);
        let (code, said) = runner.end();
        assert_eq!((code, said.contains("locked")), (0, false), "{said}");
    }
    assert_eq!(sandbox.count("succeeded"), all as u64);
    let mut ran = lines(&sandbox.work("ran"));
    assert_eq!(ran.len(), all, "none ran twice");
    ran.sort_unstable();
    ran.dedup();
    assert_eq!(ran.len(), all, "each ran");
    drop(disk);
    healthy(&sandbox);
}

/// Says when it is dropped that something is over.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Readers of ours come and go, and one that stays keeps the log only as long as it is there.
#[test]
fn the_log_does_not_grow_with_what_is_written_though_somebody_always_reads() {
    // So much is written in one flow, and from so much on each that puts steps in folds the log; it
    // begins anew at the first moment then when nobody reads from it, which comes within a few flows.
    const FLOW: u64 = 200 * 100_000;
    const ANEW: u64 = 64 << 20;
    let disk = the_disk();
    let sandbox = Sandbox::with_shards(1);
    let wide = format!("true {}", "x".repeat(100_000));
    let flow = || {
        sandbox.enqueue_lines(&["--hold"], &vec![wide.clone(); 200]);
    };
    let log = || {
        let log = sandbox.store().join("shard-0.db-wal");
        log.metadata().map_or(0, |about| about.len())
    };
    let id = sandbox
        .enqueue(["while :; do echo; sleep 0.02; done"])
        .remove(0);
    let _runner = sandbox.runner(&["--workers", "1", "-q"]);
    until("it runs", || sandbox.count("running") == 1);
    let looks = [&["status", "--json"][..], &["status"], &["inspect", "plan"]];
    let mut follow = sandbox.command(["logs", "-f", &id]);
    let mut follow = follow.stdout(Stdio::null()).spawn().unwrap();
    let is_over = AtomicBool::new(false);
    let flowed = thread::scope(|scope| {
        // Also if we fail: who looks goes on until then.
        let over = Over(&is_over);
        for look in looks {
            let (sandbox, is_over) = (&sandbox, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    sandbox.fairq(look).expect(0);
                }
            });
        }
        let mut longest = 0;
        for _ in 0..9 {
            flow();
            longest = longest.max(log());
        }
        // Somebody else's reader, who stays.
        let reader = shard(&sandbox, 0);
        reader.execute_batch("BEGIN").unwrap();
        let held: i64 = one(&reader, "SELECT count(*) FROM held");
        assert_eq!(held, 9 * 200);
        for _ in 0..3 {
            flow();
        }
        let pinned = log();
        reader.execute_batch("COMMIT").unwrap();
        for _ in 0..5 {
            flow();
        }
        drop(over);
        (longest, pinned, log())
    });
    follow.kill().unwrap();
    follow.wait().unwrap();
    let (longest, pinned, after) = flowed;
    assert!(longest < ANEW + 4 * FLOW, "{longest}");
    assert!(pinned > 3 * FLOW, "nobody kept it: {pinned}");
    assert!(after < pinned.max(ANEW) + FLOW, "{pinned}, then {after}");
    drop(disk);
    healthy(&sandbox);
}

#[test]
fn a_shard_that_another_program_locks_is_busy_and_says_so_and_goes_on_afterwards() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["echo ran >> ran"]);
    let other = shard(&sandbox, 0);
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    // Whoever only looks is not held up.
    assert_eq!(sandbox.count("ready"), 1);
    let ran = sandbox.fairq(["enqueue", "true"]).expect(75);
    assert!(ran.err.contains("held by another process"), "{}", ran.err);
    other.execute_batch("ROLLBACK").unwrap();
    sandbox.drain(1).expect(0);
    assert_eq!(lines(&sandbox.work("ran")), ["ran"]);
    healthy(&sandbox);
}

#[test]
fn a_missing_shard_stops_neither_the_others_nor_the_runner_and_is_said_once() {
    let sandbox = Sandbox::with_shards(2);
    for key in ["a", "b", "c", "d", "e", "f"] {
        sandbox.enqueue(["-k", key, "true"]);
    }
    let here: i64 = one(&shard(&sandbox, 0), "SELECT count(*) FROM ready");
    harm(&sandbox, 1, "PRAGMA wal_checkpoint(TRUNCATE)");
    let gone = sandbox.store().join("shard-1.db");
    let aside = sandbox.work("aside");
    fs::rename(&gone, &aside).unwrap();
    let runner = sandbox.runner(&["--workers", "2"]);
    until("the other shard is served", || {
        sandbox.count("succeeded") == here.unsigned_abs()
    });
    assert!(!gone.exists(), "a new shard was made in its place");
    let ran = sandbox.fairq(["status", "--json"]).expect(0);
    assert!(
        !ran.json()["unreadable_shards"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    let said = runner.said();
    let about = said
        .lines()
        .filter(|line| line.contains("shard-1.db"))
        .count();
    assert!((1..10).contains(&about), "{said}");
    fs::rename(&aside, &gone).unwrap();
    runner.signal(Signal::SIGTERM);
    runner.end();
    sandbox.drain(1).expect(0);
    assert_eq!(sandbox.count("succeeded"), 6);
    healthy(&sandbox);
}

/// Nobody but root passes by the modes of files; root cannot be kept out by them.
#[test]
fn a_store_that_may_not_be_written_is_one_clear_error() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["true"]);
    harm(&sandbox, 0, "PRAGMA wal_checkpoint(TRUNCATE)");
    let root = nix::unistd::geteuid().is_root();
    let chown = |owner: u32| {
        for path in crate::kit::everything(&sandbox.store()) {
            std::os::unix::fs::chown(path, Some(owner), Some(owner)).unwrap();
        }
    };
    let before = snapshot(&sandbox.store());
    let mut tried = sandbox.command(["enqueue", "true"]);
    if root {
        // As somebody to whom the store is closed.
        use std::os::unix::process::CommandExt as _;
        let above = sandbox.store();
        let above = above.parent().unwrap().parent().unwrap();
        let open = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
        fs::set_permissions(above, open).unwrap();
        chown(0);
        tried.uid(65534).gid(65534);
    } else {
        let closed = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o500);
        fs::set_permissions(sandbox.store().join("shard-0.db"), closed).unwrap();
    }
    let ran = Ran::of(&mut tried).expect(75);
    assert_eq!(ran.err.matches("error:").count(), 1, "{}", ran.err);
    assert!(
        ran.err.contains(sandbox.store().to_str().unwrap()),
        "{}",
        ran.err
    );
    if root {
        assert_eq!(snapshot(&sandbox.store()), before);
    }
}
