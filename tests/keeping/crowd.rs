//! Many at once, and disks that are full or may not be written to.

use std::fs;
use std::process::Stdio;

use nix::sys::signal::Signal;

use crate::common::{Ran, Sandbox, lines, until};
use crate::kit::{harm, healthy, shard, snapshot};

/// Each puts in many, one after another, while others run them and somebody looks on.
#[test]
fn many_enqueuers_runners_and_lookers_never_meet_a_locked_database() {
    const ENQUEUERS: usize = 16;
    const EACH: usize = 12;
    let sandbox = Sandbox::with_shards(2);
    let runners = [
        sandbox.runner(&["--workers", "2", "-q"]),
        sandbox.runner(&["--workers", "2", "-q"]),
    ];
    let line = "i=0; while [ $i -lt $1 ]; do \
                \"$FAIRQ\" enqueue -k \"$2\" \"echo $2-$i >> ran\" || exit; i=$((i + 1)); done";
    let children: Vec<_> = (0..ENQUEUERS)
        .map(|number| {
            let mut shell = sandbox.program("sh");
            shell.args(["-c", line, "sh", &EACH.to_string(), &format!("k{number}")]);
            shell.stdout(Stdio::piped()).stderr(Stdio::piped());
            shell.spawn().unwrap()
        })
        .collect();
    let mut looks = 0;
    until("all is done", || {
        looks += 1;
        sandbox.count("succeeded") == (ENQUEUERS * EACH) as u64
    });
    assert!(looks > 1);
    for child in children {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{said}");
    }
    for runner in runners {
        runner.signal(Signal::SIGTERM);
        let (code, said) = runner.end();
        assert_eq!((code, said.contains("locked")), (0, false), "{said}");
    }
    let mut ran = lines(&sandbox.work("ran"));
    ran.sort_unstable();
    ran.dedup();
    assert_eq!(ran.len(), ENQUEUERS * EACH, "each ran once");
    assert_eq!(lines(&sandbox.work("ran")).len(), ENQUEUERS * EACH);
    healthy(&sandbox);
}

/// A file system of one mebibyte, if this process may mount one; `None` with the reason if not.
struct Small(std::path::PathBuf);

impl Small {
    fn mount(at: std::path::PathBuf) -> Option<Self> {
        fs::create_dir(&at).unwrap();
        let mut mount = std::process::Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs"])
            .arg(&at);
        let ran = mount.output().ok()?;
        ran.status.success().then_some(Self(at))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        std::process::Command::new("umount")
            .arg("-l")
            .arg(&self.0)
            .status()
            .ok();
    }
}

#[test]
fn a_full_disk_is_said_and_work_goes_on_when_there_is_space() {
    let sandbox = Sandbox::new();
    let Some(small) = Small::mount(sandbox.work("small")) else {
        eprintln!("SKIPPED: no tmpfs can be mounted here, so no disk could be filled");
        return;
    };
    let dir = small.0.join("store");
    let store = dir.to_str().unwrap();
    let on = |args: &[&str]| sandbox.fairq(["--store", store].iter().chain(args));
    let count = |state: &str| {
        let counts = on(&["status", "--json"]).expect(0).json();
        counts["counts"][state].as_u64().unwrap_or(0)
    };
    on(&["init", "--shards", "1"]).expect(0);
    on(&[
        "enqueue",
        "until test -e go; do sleep 0.01; done; echo ran >> ran",
    ])
    .expect(0);
    let runner = sandbox.runner_unseen(&["--store", store, "--workers", "1"]);
    until("it runs", || count("running") == 1);
    let ballast = small.0.join("ballast");
    let mut filler = sandbox.program("sh");
    filler.args([
        "-c",
        "cat /dev/zero > \"$1\"",
        "sh",
        ballast.to_str().unwrap(),
    ]);
    assert_ne!(Ran::of(&mut filler).code, 0, "it was not filled");
    // What was not stored is said with the reason.
    let big = "x".repeat(60_000);
    for _ in 0..3 {
        let ran = on(&["enqueue", &big]).expect(75);
        assert!(ran.err.contains("no space left"), "{}", ran.err);
    }
    fs::write(sandbox.work("go"), "").unwrap();
    until("it has ended", || sandbox.work("ran").exists());
    fs::remove_file(&ballast).unwrap();
    until("that is recorded", || count("succeeded") == 1);
    on(&["enqueue", "echo ran >> ran"]).expect(0);
    until("it goes on", || count("succeeded") == 2);
    runner.signal(Signal::SIGTERM);
    let (code, said) = runner.end();
    assert!(code == 0 && said.lines().count() < 50, "{said}");
    assert_eq!(lines(&sandbox.work("ran")), ["ran"; 2]);
    on(&["doctor", "--full"]).expect(0);
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
    let here: i64 = crate::kit::one(&shard(&sandbox, 0), "SELECT count(*) FROM ready");
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
