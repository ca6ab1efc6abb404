//! Signals, and what a runner leaves to the next one.

use fairq::crew::journal::{SlotState, Testament};
use nix::sys::signal::Signal;

use crate::common::{Sandbox, lines, until};

/// A step that says that it has started and then goes on until a file is there.
const UNTIL_GO: &str =
    "echo $FAIRQ_ID $FAIRQ_ATTEMPT >>starts; until test -e go; do sleep 0.01; done";

#[test]
fn the_first_signal_lets_running_steps_end_and_starts_no_more() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let sandbox = Sandbox::with_shards(1);
        let ids = sandbox.enqueue_lines(&[], &vec![UNTIL_GO.to_owned(); 3]);
        let runner = sandbox.runner(&["--workers", "1"]);
        until("a step runs", || lines(&sandbox.work("starts")).len() == 1);
        runner.signal(signal);
        until("the runner says so", || {
            runner.said().contains("stopping: 1")
        });
        std::fs::write(sandbox.work("go"), "").unwrap();
        let (code, said) = runner.end();
        assert_eq!(code, 0, "{said}");
        assert_eq!(lines(&sandbox.work("starts")), [format!("{} 1", ids[0])]);
        assert_eq!((sandbox.count("succeeded"), sandbox.count("ready")), (1, 2));
    }
}

#[test]
fn the_second_signal_puts_running_steps_back_without_using_up_an_attempt() {
    let sandbox = Sandbox::with_shards(1);
    let ids = sandbox.enqueue_lines(&[], &vec![UNTIL_GO.to_owned(); 3]);
    let runner = sandbox.runner(&["--workers", "2"]);
    until("steps run", || lines(&sandbox.work("starts")).len() == 2);
    runner.signal(Signal::SIGTERM);
    until("the runner drains", || {
        runner.said().contains("stopping: 2")
    });
    runner.signal(Signal::SIGTERM);
    let (code, said) = runner.end();
    assert_eq!(code, 0, "{said}");
    assert!(sandbox.processes().is_empty(), "{said}");
    assert_eq!(sandbox.count("ready"), 3, "{said}");
    for id in &ids {
        assert_eq!(sandbox.step(id)["attempt"], 0, "{id}");
    }
    std::fs::write(sandbox.work("go"), "").unwrap();
    std::fs::remove_file(sandbox.work("starts")).unwrap();
    sandbox.drain(1).expect(0);
    // Each try is the first as far as the step can tell, and they kept their places.
    let starts: Vec<String> = ids.iter().map(|id| format!("{id} 1")).collect();
    assert_eq!(lines(&sandbox.work("starts")), starts);
}

#[test]
fn a_step_that_ignores_the_second_signal_is_killed_by_the_third() {
    let sandbox = Sandbox::with_shards(1);
    let deaf = "trap '' TERM; echo >>starts; while :; do sleep 0.01; done";
    let id = &sandbox.enqueue([deaf])[0];
    let runner = sandbox.runner(&["--workers", "1"]);
    until("it runs", || lines(&sandbox.work("starts")).len() == 1);
    for mark in ["stopping: 1", "ending 1"] {
        runner.signal(Signal::SIGINT);
        until(mark, || runner.said().contains(mark));
    }
    runner.signal(Signal::SIGINT);
    assert_eq!(runner.end().0, 0);
    assert!(sandbox.processes().is_empty());
    let step = sandbox.step(id);
    assert_eq!(
        (&step["state"], &step["attempt"]),
        (&"ready".into(), &0.into())
    );
}

#[test]
fn what_a_killed_runner_ran_is_run_by_the_next() {
    let sandbox = Sandbox::with_shards(2);
    let mut ids = Vec::new();
    for key in ["a", "b", "c", "d", "e"] {
        ids.extend(sandbox.enqueue(["-k", key, UNTIL_GO]));
    }
    let runner = sandbox.runner(&["--workers", "5"]);
    until("all run", || lines(&sandbox.work("starts")).len() == 5);
    runner.kill_hard();
    // The claims stand, though nobody is there: only a runner takes them back. The steps' processes
    // live on, and it ends them too.
    assert_eq!(sandbox.count("running"), 5);
    assert!(!sandbox.processes().is_empty());
    std::fs::remove_file(sandbox.work("starts")).unwrap();
    std::fs::write(sandbox.work("go"), "").unwrap();
    let ran = sandbox.drain(2).expect(0);
    assert_eq!(sandbox.count("succeeded"), 5, "{}", ran.text());
    let mut starts = lines(&sandbox.work("starts"));
    starts.sort();
    // The lost try is given back: its runner died, not the step. It is still told of.
    let mut again: Vec<String> = ids.iter().map(|id| format!("{id} 1")).collect();
    again.sort();
    assert_eq!(starts, again);
    for id in &ids {
        let attempts = sandbox.step(id)["attempts"].take();
        assert_eq!(attempts[0]["ending"]["how"], "lost", "{attempts}");
        assert_eq!(attempts[0]["fence"], 1, "{attempts}");
        assert_eq!(attempts[1]["ending"]["code"], 0, "{attempts}");
        assert_eq!(attempts[1]["fence"], 2, "{attempts}");
    }
    let left = std::fs::read_dir(sandbox.store().join("runners")).unwrap();
    assert_eq!(left.count(), 0, "what the dead runner left is tidied up");
}

/// Two tries of one step at a time would do its work twice over each other, whatever the record says.
/// These do not want to go: they ignore TERM, and one of each is a grandchild.
#[test]
fn no_step_is_started_again_while_its_orphan_lives() {
    const STUBBORN: &str = "trap '' TERM; \
        for pid in $(cat pids 2>/dev/null); do grep -qs ') [^ZX]' /proc/$pid/stat && echo $pid >>overlaps; done; \
        sh -c 'trap \"\" TERM; echo $$ >>pids; until test -e go; do sleep 0.01; done' & \
        echo $$ >>pids; echo >>starts; until test -e go; do sleep 0.01; done; wait";
    let sandbox = Sandbox::with_shards(1);
    let id = &sandbox.enqueue([STUBBORN])[0];
    let first = sandbox.runner(&["--workers", "1"]);
    until("it runs", || lines(&sandbox.work("pids")).len() == 2);
    first.kill_hard();
    let second = sandbox.runner(&["--workers", "1"]);
    until("it runs again", || {
        lines(&sandbox.work("starts")).len() == 2
    });
    std::fs::write(sandbox.work("go"), "").unwrap();
    sandbox.fairq(["wait", id]).expect(0);
    assert!(!sandbox.work("overlaps").exists(), "an orphan was alive");
    drop(second);
}

/// Between a step's end and the record of it, all that is known of what it left is in the journal: the
/// worker is done with it, and the store does not know yet.
#[test]
fn no_step_is_run_again_while_something_lives_that_its_unrecorded_try_left_behind() {
    const LEAVES: &str = "for pid in $(cat left 2>/dev/null); do \
        grep -qs ') [^ZX]' /proc/$pid/stat && echo $pid >>overlaps; done; \
        env -i sh -c 'trap \"\" TERM; echo $$ >>left; while :; do sleep 0.01; done' & \
        echo >>starts; until test -e go; do sleep 0.01; done";
    let sandbox = Sandbox::with_shards(1);
    let id = &sandbox.enqueue(["--grace", "1h", LEAVES])[0];
    let runner = sandbox.runner(&["--workers", "1"]);
    until("it runs", || lines(&sandbox.work("left")).len() == 1);
    // Whoever writes to the shard waits for us: the step ends, and nobody can record it.
    let shard = rusqlite::Connection::open(sandbox.store().join("shard-0.db")).unwrap();
    shard.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::fs::write(sandbox.work("go"), "").unwrap();
    let journal = || {
        let mut runners = std::fs::read_dir(sandbox.store().join("runners")).unwrap();
        let dir = runners.next().unwrap().unwrap().path();
        Testament::read(&dir.join("journal")).unwrap()
    };
    until("the worker is done", || {
        journal().slots == [SlotState::Idle]
    });
    runner.kill_hard();
    shard.execute_batch("ROLLBACK").unwrap();
    assert_eq!(sandbox.step(id)["state"], "running");
    sandbox.drain(1).expect(0);
    assert_eq!(lines(&sandbox.work("starts")).len(), 2);
    assert!(!sandbox.work("overlaps").exists(), "it was alive");
    // What has lost its environment is not found by it.
    let left = lines(&sandbox.work("left"));
    let is_gone = |pid: &String| !std::path::Path::new("/proc").join(pid).exists();
    until("nobody is left", || left.iter().all(is_gone));
}

#[test]
fn a_living_runner_takes_over_from_one_that_is_killed_beside_it() {
    let sandbox = Sandbox::with_shards(1);
    let id = &sandbox.enqueue([UNTIL_GO])[0];
    let first = sandbox.runner(&["--workers", "1"]);
    until("it runs", || lines(&sandbox.work("starts")).len() == 1);
    let second = sandbox.runner(&["--workers", "1"]);
    first.kill_hard();
    until("the other one runs it", || {
        lines(&sandbox.work("starts")).len() == 2
    });
    std::fs::write(sandbox.work("go"), "").unwrap();
    sandbox.fairq(["wait", id]).expect(0);
    assert_eq!(
        lines(&sandbox.work("starts")),
        [format!("{id} 1"), format!("{id} 1")]
    );
    drop(second);
}

#[test]
fn on_lost_decides_what_becomes_of_a_killed_runners_steps() {
    let sandbox = Sandbox::with_shards(1);
    let of = |word: &str| sandbox.enqueue(["--on-lost", word, UNTIL_GO]).remove(0);
    let (failing, held) = (of("fail"), of("hold"));
    let runner = sandbox.runner(&["--workers", "2"]);
    until("both run", || lines(&sandbox.work("starts")).len() == 2);
    runner.kill_hard();
    sandbox.drain(1);
    assert_eq!(sandbox.step(&failing)["state"], "failed");
    assert_eq!(sandbox.step(&held)["state"], "held");
    assert_eq!(lines(&sandbox.work("starts")).len(), 2);
}

/// Drains, and fails if it does not end; the heartbeat is an hour, so whoever waits for it instead of
/// for what happens never does.
fn drain_without_heartbeat(sandbox: &Sandbox) {
    let mut command = sandbox.command(["run", "--drain", "--workers", "3", "--quiet"]);
    let mut run = command
        .env("FAIRQ_HEARTBEAT_MS", "3600000")
        .spawn()
        .unwrap();
    let mut code = None;
    until("the run ends", || {
        code = run.try_wait().unwrap();
        code.is_some()
    });
    assert!(code.unwrap().success());
}

#[test]
fn a_drain_ends_as_soon_as_nothing_is_left_to_do() {
    let sandbox = Sandbox::with_shards(2);
    for round in 0..10 {
        let step = format!("echo {round} >>rounds");
        sandbox.enqueue_lines(&[], &vec![step; 3]);
        drain_without_heartbeat(&sandbox);
        assert_eq!(lines(&sandbox.work("rounds")).len(), 3 * (round + 1));
    }
}

/// A run that is over before its threads have begun must reach them all the same.
#[test]
fn a_drain_with_nothing_to_do_ends() {
    let sandbox = Sandbox::with_shards(1);
    for _ in 0..100 {
        drain_without_heartbeat(&sandbox);
    }
}
