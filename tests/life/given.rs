//! What a runner is given by whoever starts it, and what of that reaches steps.

use std::process::Stdio;

use nix::sys::signal::Signal;

use crate::common::{Ran, Sandbox, lines, until};

/// A lock or a pipe that a step inherits would outlive its runner.
#[test]
fn no_descriptor_of_the_runners_parent_reaches_a_step() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["ls -l /proc/self/fd >seen"]);
    let mut shell = sandbox.program("sh");
    let line = "exec 7>>given 9<.; \"$FAIRQ\" run --drain -j1 -q; ls -l /proc/self/fd >kept";
    Ran::of(shell.args(["-c", line])).expect(0);
    let holds = |file: &str, what: &str| {
        let open = lines(&sandbox.work(file));
        open.iter().filter(|line| line.contains(what)).count()
    };
    assert_eq!((holds("kept", "given"), holds("seen", "given")), (1, 0));
    // The three streams, and what `ls` itself has open.
    assert_eq!(
        holds("seen", " -> "),
        4,
        "{:#?}",
        lines(&sandbox.work("seen"))
    );
}

/// A script puts what it starts in the background out of the reach of QUIT, and nohup out of that of
/// HUP: of a runner, not of its steps.
#[test]
fn a_step_ignores_no_signal_though_its_runner_does() {
    // Where a thread may not have a directory of its own, steps are made in another way.
    let parts = std::thread::spawn(|| nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS));
    if parts.join().unwrap().is_err() {
        println!("left out: unshare is forbidden here");
        return;
    }
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["grep SigIgn /proc/self/status >seen"]);
    let mut shell = sandbox.program("sh");
    let line = "trap '' QUIT USR1 HUP; grep SigIgn /proc/self/status >own; \
                exec \"$FAIRQ\" run --drain -j1 -q";
    Ran::of(shell.args(["-c", line])).expect(0);
    let ignored = |file: &str| {
        let line = lines(&sandbox.work(file)).remove(0);
        let (_, mask) = line.split_once('\t').unwrap();
        // Two above the named ones are the C library's own.
        u64::from_str_radix(mask, 16).unwrap() & 0x7fff_ffff
    };
    assert_ne!(ignored("own"), 0);
    assert_eq!(ignored("seen"), 0);
}

/// Whatever each step costs in descriptors is given back.
#[test]
fn few_descriptors_are_enough_for_many_steps() {
    let sandbox = Sandbox::with_shards(2);
    let count = 300;
    sandbox.enqueue_lines(&[], &vec!["echo out; echo err >&2".to_owned(); count]);
    let mut shell = sandbox.program("sh");
    let line = "ulimit -n 80; exec \"$FAIRQ\" run --drain -j8 -q";
    Ran::of(shell.args(["-c", line])).expect(0);
    assert_eq!(sandbox.count("succeeded"), count as u64);
}

/// In a container the runner is often process 1, to whom everybody is left whose parent has died.
#[test]
fn a_runner_that_is_process_1_reaps_what_is_left_to_it() {
    let sandbox = Sandbox::with_shards(1);
    let apart = [
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--mount-proc",
    ];
    let mut probe = sandbox.program("unshare");
    let can = probe.args(apart).arg("true").stderr(Stdio::null()).status();
    if !can.is_ok_and(|status| status.success()) {
        println!("left out: no process can be put into a namespace of its own here");
        return;
    }
    // Each leaves one behind that ends by itself, and one that is ended.
    let line = "(setsid sh -c 'echo >>orphan-$FAIRQ_ID' &); \
        until [ -e orphan-$FAIRQ_ID ]; do sleep 0.01; done; (sleep 1000 &); exit 3"
        .to_owned();
    let count = 40;
    sandbox.enqueue_lines(&[], &vec![line; count]);
    let mut runner = sandbox.program("unshare");
    runner
        .args(apart)
        .arg("--kill-child")
        .args(["sh", "-c", "exec \"$FAIRQ\" run -j4 -q"]);
    let mut runner = runner.spawn().unwrap();
    until("all have ended", || sandbox.count("failed") == count as u64);
    let first = children(runner.id());
    assert_eq!(first.len(), 1, "{first:?}");
    until("all are reaped", || children(first[0]).is_empty());
    nix::sys::signal::kill(pid(first[0]), Signal::SIGTERM).unwrap();
    assert!(runner.wait().unwrap().success());
    // Nobody took the ending of a step away from whoever waited for it.
    for step in sandbox.json(["status", "--limit", "0"])["steps"]
        .as_array()
        .unwrap()
    {
        assert_eq!(step["ending"]["code"], 3, "{step:#}");
    }
}

fn pid(number: u32) -> nix::unistd::Pid {
    nix::unistd::Pid::from_raw(number.cast_signed())
}

/// Returns the children of a process, zombies too.
fn children(parent: u32) -> Vec<u32> {
    let mark = format!("\nPPid:\t{parent}\n");
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            std::fs::read_to_string(format!("/proc/{pid}/status"))
                .is_ok_and(|status| status.contains(&mark))
        })
        .collect()
}
