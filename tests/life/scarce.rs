//! A runner that is not given what it asks for, and one that asks for no more than it needs.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use nix::unistd::{Gid, Uid, chown};

use crate::common::{Ran, Sandbox, until};

/// Returns a program that may have so many processes, threads counted: as a user who has no others. That
/// is somebody unknown where we may become that, else ourselves in a namespace with counts of its own.
fn with_processes(sandbox: &Sandbox, most: u32, program: &str) -> Command {
    const NOBODY: u32 = 54_321;
    let limit = format!("--nproc={most}");
    if Uid::effective().is_root() {
        let mut all = vec![sandbox.work("").parent().unwrap().to_owned()];
        while let Some(path) = all.pop() {
            let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
            chown(&path, Some(uid), Some(gid)).unwrap();
            if path.is_dir() {
                all.extend(fs::read_dir(&path).unwrap().map(|one| one.unwrap().path()));
            }
        }
        let mut command = sandbox.program("prlimit");
        command.args([&limit, program]).uid(NOBODY).gid(NOBODY);
        return command;
    }
    let mut command = sandbox.program("unshare");
    command.args(["--user", "prlimit", &limit, program]);
    command
}

/// Steps that cannot be started for want of processes are started later, and that counts as no try.
#[test]
fn steps_wait_for_processes_and_lose_no_try_by_it() {
    const STEPS: usize = 120;
    let sandbox = Sandbox::with_shards(1);
    let words = [
        "enqueue",
        "--array",
        &format!("1-{STEPS}"),
        "--",
        "sleep",
        "0.2",
    ];
    sandbox.fairq(words).expect(0);
    let binary = sandbox.work("fairq");
    fs::copy(env!("CARGO_BIN_EXE_fairq"), &binary).unwrap();
    let mut probe = with_processes(&sandbox, 40, "true");
    if !probe
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
    {
        eprintln!("LEFT OUT: nobody can be had here who has no other processes");
        return;
    }
    let mut runner = with_processes(&sandbox, 40, binary.to_str().unwrap());
    runner.args(["run", "--drain", "--json", "--workers", "100"]);
    let ran = Ran::of(&mut runner).expect(0);
    assert!(
        ran.text().contains("start_delayed"),
        "nothing was scarce: {}",
        ran.text()
    );
    let steps = sandbox.json(["status", "--limit", "0"])["steps"].take();
    let steps = steps.as_array().unwrap();
    assert_eq!(steps.len(), STEPS);
    for step in steps {
        assert_eq!(
            (&step["state"], &step["attempt"]),
            (&"succeeded".into(), &1.into())
        );
    }
}

/// Returns a runner's resident memory in KiB, and how many descriptors it has open.
fn size(pid: u32) -> (u64, usize) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let resident = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let resident = resident.split_whitespace().nth(1).unwrap().parse().unwrap();
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    (resident, open)
}

#[test]
fn a_runner_does_not_grow_with_the_number_of_its_steps() {
    const STEPS: usize = 400;
    let sandbox = Sandbox::with_shards(1);
    let runner = sandbox.runner(&["--workers", "4", "-q"]);
    let sizes: Vec<(u64, usize)> = (1..=4)
        .map(|round| {
            let line = "echo out; echo err >&2".to_owned();
            sandbox.enqueue_lines(&[], &vec![line; STEPS]);
            until("all are done", || {
                sandbox.count("succeeded") == (round * STEPS) as u64
            });
            size(runner.pid())
        })
        .collect();
    let (first, last) = (sizes[0], sizes[3]);
    assert!(last.0 < first.0 + 4_096, "{sizes:?}");
    assert!(last.1 <= first.1 + 4, "{sizes:?}");
}
