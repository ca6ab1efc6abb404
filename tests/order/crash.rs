//! What holds over the death of a runner, and whom nobody may take for one of its steps.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use fairq::crew::journal::{Journal, SlotState, Testament};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::{Ran, Sandbox, lines, until};

/// A step that says that it has started and then goes on until a file is there.
const UNTIL_GO: &str = "echo $FAIRQ_ID >>starts; until test -e go; do sleep 0.01; done";

/// Returns everything that is told of steps that are over.
fn told(sandbox: &Sandbox, ids: &[String]) -> Vec<(Value, Vec<u8>, i32)> {
    let status = sandbox.json(["status", "--limit", "0"]);
    let all = (
        serde_json::json!([status["counts"], status["steps"]]),
        Vec::new(),
        0,
    );
    let of = |id: &String| {
        (
            sandbox.json(["show", id]),
            sandbox.fairq(["logs", id]).expect(0).out,
            sandbox.fairq(["wait", id]).code,
        )
    };
    std::iter::once(all).chain(ids.iter().map(of)).collect()
}

#[test]
fn what_is_over_is_told_after_a_crash_as_it_was_before() {
    let sandbox = Sandbox::with_shards(2);
    let mut ids = Vec::new();
    for (key, line) in [
        ("a", "echo $FAIRQ_ID; echo err >&2"),
        ("b", "exit 7"),
        ("c", "kill -9 $$"),
        ("d", "head -c 70000 /dev/zero"),
        ("e", "until test -e go; do sleep 0.01; done"),
    ] {
        ids.extend(sandbox.enqueue_lines(&["-k", key], &vec![line.to_owned(); 3]));
    }
    sandbox.fairq(["cancel", "-k", "e"]).expect(0);
    let runner = sandbox.runner(&["--workers", "2"]);
    sandbox.fairq(["wait", "--all"]);
    // One that runs when it is killed: whatever the crash does, it does not to the others.
    let running = sandbox.enqueue([UNTIL_GO]).remove(0);
    until("it runs", || !lines(&sandbox.work("starts")).is_empty());
    let without = |told: Vec<(Value, Vec<u8>, i32)>| told[1..].to_vec();
    let before = without(told(&sandbox, &ids));
    runner.kill_hard();
    assert_eq!(without(told(&sandbox, &ids)), before);
    fs::write(sandbox.work("go"), "").unwrap();
    sandbox.drain(1);
    assert_eq!(without(told(&sandbox, &ids)), before);
    assert_eq!(sandbox.step(&running)["state"], "succeeded");
    let all = told(&sandbox, &ids).remove(0);
    assert_eq!(all.0[0]["succeeded"], 7);
    assert_eq!(all.0[0]["failed"], 6);
    assert_eq!(all.0[0]["cancelled"], 3);
}

/// A runner that lives keeps its steps, however late it is with its leases and also while it stops.
#[test]
fn a_living_runners_step_runs_once_though_its_lease_is_over_and_others_look() {
    let sandbox = Sandbox::with_shards(1);
    let id = sandbox.enqueue([UNTIL_GO]).remove(0);
    let first = sandbox.runner(&["--workers", "1"]);
    until("it runs", || lines(&sandbox.work("starts")).len() == 1);
    let others_look = |file: &str| {
        let shard = rusqlite::Connection::open(sandbox.store().join("shard-0.db")).unwrap();
        shard
            .busy_timeout(std::time::Duration::from_secs(60))
            .unwrap();
        let over = shard.execute("UPDATE running SET lease = 1", []).unwrap();
        assert_eq!(over, 1);
        // Each looks for what dead runners left as it starts, and works afterwards.
        for _ in 0..2 {
            let other = sandbox.runner(&["--workers", "1"]);
            let line = format!("echo >>{file}");
            let next = sandbox.enqueue([line.as_str()]).remove(0);
            until("it works, or runs what is not its own", || {
                let state = &sandbox.step(&next)["state"];
                state == "succeeded" || lines(&sandbox.work("starts")).len() > 1
            });
            assert_eq!(lines(&sandbox.work("starts")), [id.as_str()]);
            other.signal(Signal::SIGTERM);
            assert_eq!(other.end().0, 0);
        }
        assert_eq!(lines(&sandbox.work("starts")), [id.as_str()]);
        assert_eq!(sandbox.step(&id)["state"], "running");
    };
    others_look("serving");
    first.signal(Signal::SIGTERM);
    until("it stops", || first.said().contains("stopping: 1"));
    others_look("stopping");
    fs::write(sandbox.work("go"), "").unwrap();
    assert_eq!(first.end().0, 0);
    let step = sandbox.step(&id);
    assert_eq!(step["state"], "succeeded");
    assert_eq!(step["attempts"].as_array().unwrap().len(), 1, "{step:#}");
    assert_eq!(lines(&sandbox.work("starts")), [id.as_str()]);
}

/// Kills a process group and waits until none of it is left.
fn end_group(group: i32) {
    killpg(Pid::from_raw(group), Signal::SIGKILL).unwrap();
    until("the group is gone", || {
        killpg(Pid::from_raw(group), None).is_err()
    });
}

/// Somebody who is no step.
struct Bystander(Child);

impl Bystander {
    fn new() -> Self {
        let mut sleep = Command::new("/bin/sleep");
        Self(sleep.arg("600").process_group(0).spawn().unwrap())
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Numbers of processes are used again: whatever a dead runner wrote down may be somebody else's.
#[test]
fn whoever_has_the_numbers_of_a_dead_runner_and_its_steps_is_left_alone() {
    let sandbox = Sandbox::with_shards(1);
    let ids = sandbox.enqueue_lines(&[], &vec![UNTIL_GO.to_owned(); 2]);
    let runner = sandbox.runner(&["--workers", "2"]);
    until("both run", || lines(&sandbox.work("starts")).len() == 2);
    let mut runners = fs::read_dir(sandbox.store().join("runners")).unwrap();
    let dir: PathBuf = runners.next().unwrap().unwrap().path();
    let path = dir.join("journal");
    let is_noted = |slot: &SlotState| matches!(slot, SlotState::Running { .. });
    until("both are noted", || {
        let slots = Testament::read(&path).unwrap().slots;
        slots.iter().filter(|slot| is_noted(slot)).count() == 2
    });
    let pid = runner.pid();
    runner.kill_hard();
    let slots = Testament::read(&path).unwrap().slots;
    // The same journal with the numbers of others in it, born at other times.
    let mut bystanders = Vec::new();
    let forged = dir.join("forged");
    let journal = Journal::create(&forged).unwrap();
    for (worker, slot) in (0..).zip(slots) {
        if let SlotState::Running {
            id,
            fence,
            mut birth,
        } = slot
        {
            end_group(birth.pid.cast_signed());
            let bystander = Bystander::new();
            birth.pid = bystander.0.id();
            bystanders.push(bystander);
            journal.running(worker, id, fence, birth).unwrap();
        }
    }
    fs::rename(&forged, &path).unwrap();
    // So is what the runner says of itself.
    let lock = dir.join("lock");
    let card = fs::read_to_string(&lock).unwrap();
    assert!(card.contains(&pid.to_string()), "{card}");
    let other = bystanders[0].0.id().to_string();
    fs::write(&lock, card.replace(&pid.to_string(), &other)).unwrap();

    fs::remove_file(sandbox.work("starts")).unwrap();
    sandbox.fairq(["cancel", "--no-wait", &ids[0]]).expect(0);
    sandbox.fairq(["kill", "-s", "KILL", &ids[1]]);
    sandbox.fairq(["status"]).expect(0);
    fs::write(sandbox.work("go"), "").unwrap();
    sandbox.fairq(["doctor", "--repair"]);
    sandbox.drain(1);
    assert_eq!(lines(&sandbox.work("starts")), [ids[1].as_str()]);
    assert_eq!(sandbox.step(&ids[0])["state"], "cancelled");
    assert_eq!(sandbox.step(&ids[1])["state"], "succeeded");
    for bystander in &mut bystanders {
        let ended = bystander.0.try_wait().unwrap();
        assert!(ended.is_none(), "{ended:?}");
    }
    kill(Pid::from_raw(pid.cast_signed()), None).unwrap_err();
}

/// As above, where the kernel itself gives the number away again.
#[test]
fn whoever_was_given_the_number_of_a_dead_runners_step_is_left_alone() {
    const APART: [&str; 5] = [
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--mount-proc",
    ];
    const NEXT: &str = "/proc/sys/kernel/ns_last_pid";
    const LINE: &str = r#"
        "$FAIRQ" enqueue 'echo $$ >>pid; exec sleep 1000' >id
        "$FAIRQ" run -q --workers 1 & runner=$!
        until test -s pid; do sleep 0.01; done; old=$(cat pid)
        until "$FAIRQ" inspect runners --json | grep -q "$old"; do sleep 0.01; done
        kill -9 $runner -$old
        while test -e /proc/$old || test -e /proc/$runner; do sleep 0.01; done
        echo $((old - 1)) >/proc/sys/kernel/ns_last_pid
        setsid sleep 1000 & other=$!
        echo $other >other
        "$FAIRQ" doctor >/dev/null
        "$FAIRQ" kill -s KILL $(cat id) 2>/dev/null
        "$FAIRQ" cancel --no-wait $(cat id)
        "$FAIRQ" doctor --repair >/dev/null
        "$FAIRQ" run --drain -q
        grep -q '^State:.[SR]' /proc/$other/status && echo lives >after
        "#;
    let sandbox = Sandbox::with_shards(1);
    let mut probe = sandbox.program("unshare");
    probe
        .args(APART)
        .args(["sh", "-c", &format!("echo 100 >{NEXT}")]);
    let probed = probe.stderr(Stdio::null()).status();
    if !probed.is_ok_and(|status| status.success()) {
        eprintln!("LEFT OUT: no process can say here which number the next one gets");
        return;
    }
    let mut apart = sandbox.program("unshare");
    apart
        .args(APART)
        .arg("--kill-child")
        .args(["sh", "-c", LINE]);
    let ran = Ran::of(&mut apart);
    assert_eq!(
        lines(&sandbox.work("pid")),
        lines(&sandbox.work("other")),
        "{}",
        ran.err
    );
    assert_eq!(lines(&sandbox.work("after")), ["lives"], "{}", ran.err);
    assert_eq!(sandbox.count("cancelled"), 1, "{}", ran.err);
}
