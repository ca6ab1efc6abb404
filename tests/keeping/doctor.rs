//! `fairq doctor`: it finds each harm and names it, says nothing of a store that is well, and sets
//! right what it says that it can.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::common::{Sandbox, until};
use crate::kit::{doctor, found, harm, healthy, one, shard, snapshot};

/// A store with steps in every state that a step can be in while nobody runs, outputs of both kinds,
/// links between shards, limits and a pause.
fn lived_in() -> Sandbox {
    let sandbox = Sandbox::with_shards(3);
    for key in ["a", "b", "c", "d", "e"] {
        sandbox.enqueue(["-k", key, "echo fine"]);
        sandbox.enqueue(["-k", key, "head -c 300000 /dev/zero; exit 3"]);
    }
    sandbox.drain(2).expect(1);
    let parents = sandbox.enqueue(["-k", "a", "true"]);
    for key in ["b", "c", "d", "e"] {
        sandbox.enqueue(["-k", key, "--after", &parents[0], "true"]);
        sandbox.enqueue(["-k", key, "--limit", "gpu", "true"]);
        sandbox.enqueue(["-k", key, "--hold", "true"]);
        sandbox.enqueue(["-k", key, "--delay", "1h", "true"]);
        sandbox.enqueue(["-k", key, "-b", "7", "true"]);
    }
    let cancelled = sandbox.enqueue(["-k", "e", "true"]);
    sandbox.fairq(["cancel", &cancelled[0]]).expect(0);
    sandbox.fairq(["pause", "--band", "7"]).expect(0);
    sandbox
}

#[test]
fn nothing_is_found_in_a_store_that_is_well_and_nothing_is_changed() {
    let sandbox = lived_in();
    healthy(&sandbox);
    let before = snapshot(&sandbox.store());
    let ran = sandbox.fairq(["doctor"]).expect(0);
    assert_eq!(ran.text(), "");
    assert_eq!(ran.err, "nothing found in 3 shards\n");
    assert_eq!(snapshot(&sandbox.store()), before);
    // Nor is there anything to repair.
    let (code, answer) = doctor(&sandbox, &["--repair"]);
    assert_eq!(code, 0, "{answer:#}");
    assert_eq!(
        answer["repaired"].as_array().unwrap().len(),
        0,
        "{answer:#}"
    );
    sandbox.fairq(["resume", "--band", "7"]).expect(0);
    sandbox.drain(3).expect(0);
    healthy(&sandbox);
}

#[test]
fn nothing_is_found_while_runners_work() {
    let sandbox = Sandbox::with_shards(3);
    let _runners = [
        sandbox.runner(&["--workers", "2", "-q"]),
        sandbox.runner(&["--workers", "2", "-q"]),
    ];
    for round in 0..6 {
        let parent = sandbox.enqueue(["-k", "p", "true"]);
        let lines = vec!["head -c 70000 /dev/zero".to_owned(); 20];
        for key in ["a", "b", "c"] {
            let options = ["-k", key, "--after", &parent[0], "--limit", "gpu:1"];
            sandbox.enqueue_lines(&options, &lines);
        }
        let (code, answer) = doctor(&sandbox, &[]);
        assert_eq!(code, 0, "round {round}: {answer:#}");
    }
    until("all is done", || sandbox.count("succeeded") == 6 * 61);
    healthy(&sandbox);
}

/// What is done to shard 0, which check finds it, and whether it can be set right.
const HARM: &[(&str, &str, bool)] = &[
    ("UPDATE tally SET n = n + 1", "tally", true),
    ("DELETE FROM tally", "tally", true),
    ("UPDATE tally SET paused = 1 - paused", "tally", true),
    ("UPDATE tally SET head = head + 1", "tally", true),
    (
        "INSERT INTO tally VALUES (0, 1, 'nobody', 5, 1, 1, 1.0)",
        "tally",
        true,
    ),
    (
        "UPDATE counters SET value = 77 WHERE name = 'failed'",
        "counters",
        true,
    ),
    ("DELETE FROM counters WHERE name = 'held'", "counters", true),
    (
        "UPDATE counters SET value = 1 WHERE name = 'next_id'",
        "counters",
        true,
    ),
    ("DELETE FROM ready", "states", true),
    ("DELETE FROM held", "states", true),
    ("DELETE FROM done WHERE state = 1", "states", true),
    (
        "INSERT INTO held SELECT id, 1, NULL, 1, 1 FROM delayed",
        "states",
        false,
    ),
    ("UPDATE ready SET key = 'zz'", "states", false),
    ("DELETE FROM envs", "states", false),
    (
        "DELETE FROM steps WHERE id IN (SELECT id FROM done)",
        "leftovers",
        true,
    ),
    (
        "DELETE FROM steps WHERE id IN (SELECT id FROM ready)",
        "leftovers",
        true,
    ),
    ("INSERT INTO tags VALUES (999, 'lost')", "leftovers", true),
    ("UPDATE blocked SET missing = missing + 1", "edges", true),
    ("UPDATE edges SET state = 1 WHERE state = 0", "edges", true),
    ("UPDATE steps SET created = 99999999999999", "clock", false),
    (
        "INSERT INTO outbox(shard, child, parent, state) VALUES (1, 1, 1, 0)",
        "outbox",
        true,
    ),
    (
        "INSERT INTO places(name, shard, step, n) SELECT 'gpu', 0, min(id), 1 FROM done",
        "limits",
        true,
    ),
    (
        "DELETE FROM pauses; UPDATE tally SET paused = 0",
        "pauses",
        false,
    ),
];

#[test]
fn each_harm_is_found_and_set_right_where_that_can_be() {
    for (sql, check, can_be) in HARM {
        let sandbox = Sandbox::with_shards(2);
        fill(&sandbox);
        healthy(&sandbox);
        harm(&sandbox, 0, sql);
        let (code, answer) = doctor(&sandbox, &[]);
        let findings = found(&answer["findings"]);
        assert_eq!(code, 1, "{sql}");
        assert!(
            findings.iter().any(|(name, _)| name == check),
            "{sql}: {answer:#}"
        );
        let (code, answer) = doctor(&sandbox, &["--repair"]);
        if *can_be {
            assert_eq!(code, 0, "{sql}: {answer:#}");
            assert!(
                !answer["repaired"].as_array().unwrap().is_empty(),
                "{sql}: {answer:#}"
            );
            healthy(&sandbox);
        } else {
            assert_eq!(code, 1, "{sql}: {answer:#}");
            let left = found(&answer["left"]);
            assert!(
                left.iter().any(|(name, _)| name == check),
                "{sql}: {answer:#}"
            );
        }
    }
}

/// Puts something into every table of shard 0 of two.
fn fill(sandbox: &Sandbox) {
    let here = key_on(sandbox, 0);
    let there = key_on(sandbox, 1);
    sandbox.enqueue(["-k", &here, "true"]);
    sandbox.enqueue(["-k", &here, "exit 3"]);
    sandbox.drain(1).expect(1);
    let parent = sandbox.enqueue(["-k", &there, "true"]);
    sandbox.enqueue(["-k", &here, "--after", &parent[0], "true"]);
    sandbox.enqueue(["-k", &here, "true"]);
    sandbox.enqueue(["-k", &here, "true"]);
    sandbox.enqueue(["-k", &here, "-b", "7", "true"]);
    sandbox.enqueue(["-k", &here, "--hold", "true"]);
    sandbox.enqueue(["-k", &here, "--delay", "1h", "true"]);
    sandbox.fairq(["pause", "--band", "7"]).expect(0);
}

/// Returns a key whose steps go to this shard.
fn key_on(sandbox: &Sandbox, number: u8) -> String {
    let shard = format!("\nshard\t{number} ");
    (0..100)
        .map(|number| format!("key{number}"))
        .find(|key| {
            let ran = sandbox.fairq(["enqueue", "--dry-run", "-k", key, "true"]);
            ran.expect(0).text().contains(&shard)
        })
        .unwrap()
}

#[test]
fn a_step_that_stood_nowhere_is_held_and_runs_once_it_is_released() {
    let sandbox = Sandbox::with_shards(1);
    let ids = sandbox.enqueue(["--name", "lost", "echo found"]);
    harm(&sandbox, 0, "DELETE FROM ready; DELETE FROM tally");
    let ran = sandbox.fairq(["doctor"]).expect(1);
    let line = "error: shard 0: a1 stand in no state and never run; \
                fairq doctor --repair holds them until they are released\n";
    assert_eq!(ran.text(), line);
    let ran = sandbox.fairq(["doctor", "--repair"]).expect(0);
    let line = "repaired: shard 0: steps that stood nowhere are held now: 1\n";
    assert!(ran.text().contains(line), "{}", ran.text());
    assert_eq!(sandbox.step(&ids[0])["state"], "held");
    sandbox.fairq(["release", &ids[0]]).expect(0);
    sandbox.drain(1).expect(0);
    assert_eq!(sandbox.fairq(["logs", "a1"]).expect(0).text(), "found\n");
}

/// A claim that was lost with its row may still be in a runner's hands: its fence must not come again.
#[test]
fn a_held_steps_next_fence_is_above_every_lost_one() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["exit 1"]);
    sandbox.drain(1).expect(1);
    sandbox.fairq(["retry", "a1"]).expect(0);
    // As if it had been claimed a second time, and the row were gone.
    harm(&sandbox, 0, "DELETE FROM ready; DELETE FROM tally");
    sandbox.fairq(["doctor", "--repair"]).expect(0);
    assert_eq!(one::<i64>(&shard(&sandbox, 0), "SELECT fence FROM held"), 2);
}

#[test]
fn a_shard_that_is_missing_or_corrupt_is_named_and_the_others_are_looked_at() {
    for way in ["missing", "corrupt", "foreign", "newer", "empty"] {
        let sandbox = Sandbox::with_shards(3);
        for key in ["a", "b", "c", "d"] {
            sandbox.enqueue_lines(&["-k", key], &vec!["true".to_owned(); 200]);
        }
        let path = sandbox.store().join("shard-1.db");
        harm(&sandbox, 1, "PRAGMA wal_checkpoint(TRUNCATE)");
        match way {
            "missing" => fs::remove_file(&path).unwrap(),
            "empty" => fs::write(&path, "").unwrap(),
            "foreign" => fs::write(&path, "a text of some length, no database").unwrap(),
            "newer" => harm(&sandbox, 1, "PRAGMA user_version = 99"),
            _ => {
                let mut bytes = fs::read(&path).unwrap();
                let length = bytes.len();
                // All but the header and the first pages.
                bytes[length / 4..].fill(0xa5);
                fs::write(&path, bytes).unwrap();
            }
        }
        harm(
            &sandbox,
            2,
            "UPDATE counters SET value = 5 WHERE name = 'held'",
        );
        for options in [&[][..], &["--full"]] {
            let (code, answer) = doctor(&sandbox, options);
            assert_eq!(code, 1, "{way}");
            let findings = found(&answer["findings"]);
            let expected = [("file", "shard 1"), ("counters", "shard 2")];
            let expected = expected.map(|(check, place)| (check.to_owned(), place.to_owned()));
            assert_eq!(findings, expected, "{way}: {answer:#}");
        }
        let before = fs::read(&path).ok();
        let (code, answer) = doctor(&sandbox, &["--repair"]);
        assert_eq!(code, 1, "{way}");
        let left = found(&answer["left"]);
        assert_eq!(
            left,
            [("file".to_owned(), "shard 1".to_owned())],
            "{way}: {answer:#}"
        );
        assert_eq!(fs::read(&path).ok(), before, "{way}: it was written to");
    }
}

#[test]
fn steps_of_a_killed_runner_are_found_and_taken_back_with_what_they_still_run() {
    let sandbox = Sandbox::with_shards(2);
    let ids = sandbox.enqueue(["echo $$ > pid; while :; do sleep 1; done"]);
    let runner = sandbox.runner(&["--workers", "1"]);
    until("it runs", || sandbox.work("pid").exists());
    runner.kill_hard();
    let (code, answer) = doctor(&sandbox, &[]);
    assert_eq!(code, 1);
    let finding = &answer["findings"][0];
    assert_eq!(finding["check"], "runners", "{answer:#}");
    assert_eq!(finding["severity"], "error", "{answer:#}");
    assert!(
        finding["what"]
            .as_str()
            .unwrap()
            .contains("1 process group"),
        "{answer:#}"
    );
    let (code, answer) = doctor(&sandbox, &["--repair"]);
    assert_eq!(code, 0, "{answer:#}");
    let repaired = answer["repaired"].to_string();
    assert!(
        repaired.contains(&format!("{} taken back", ids[0])),
        "{repaired}"
    );
    assert_eq!(sandbox.processes(), Vec::<i32>::new());
    assert_eq!(sandbox.step(&ids[0])["state"], "ready");
    healthy(&sandbox);
}

#[test]
fn steps_of_a_runner_without_a_lock_are_found_once_its_lease_is_over() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["until test -e go; do sleep 0.01; done"]);
    let runner = sandbox.runner(&["--workers", "1"]);
    until("it runs", || sandbox.count("running") == 1);
    runner.kill_hard();
    for folder in fs::read_dir(sandbox.store().join("runners")).unwrap() {
        fs::remove_dir_all(folder.unwrap().path()).unwrap();
    }
    // As long as the lease holds, the runner may live for all that anybody knows.
    let (code, answer) = doctor(&sandbox, &["--repair"]);
    assert_eq!((code, sandbox.count("running")), (0, 1), "{answer:#}");
    harm(&sandbox, 0, "UPDATE running SET lease = 1");
    let (code, answer) = doctor(&sandbox, &[]);
    assert_eq!(code, 1, "{answer:#}");
    assert_eq!(answer["findings"][0]["check"], "leases", "{answer:#}");
    let (code, answer) = doctor(&sandbox, &["--repair"]);
    assert_eq!((code, sandbox.count("ready")), (0, 1), "{answer:#}");
}

#[test]
fn a_runner_that_is_stopped_is_told_from_one_that_is_dead() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["until test -e go; do sleep 0.01; done"]);
    let runner = sandbox.runner(&["--workers", "1"]);
    until("it runs", || sandbox.count("running") == 1);
    runner.signal(nix::sys::signal::Signal::SIGSTOP);
    harm(&sandbox, 0, "UPDATE running SET lease = 1");
    let (code, answer) = doctor(&sandbox, &["--repair"]);
    assert_eq!(code, 1, "{answer:#}");
    assert_eq!(answer["left"][0]["check"], "leases", "{answer:#}");
    // It lives, so its step is its own.
    assert_eq!(sandbox.count("running"), 1);
    runner.signal(nix::sys::signal::Signal::SIGCONT);
    fs::write(sandbox.work("go"), "").unwrap();
    until("it goes on", || sandbox.count("succeeded") == 1);
}

#[test]
fn outputs_of_nobody_are_found_and_removed_and_no_others() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["head -c 300000 /dev/zero"]);
    sandbox.drain(1).expect(0);
    let folder = sandbox.store().join("output/a0");
    let kept = folder.join("a1-1.out");
    let stray = folder.join("a1-9.out");
    assert!(kept.exists());
    fs::copy(&kept, &stray).unwrap();
    let (code, answer) = doctor(&sandbox, &[]);
    assert_eq!(code, 1);
    assert_eq!(answer["findings"][0]["check"], "outputs", "{answer:#}");
    let what = answer["findings"][0]["what"].as_str().unwrap();
    assert!(what.contains("output/a0/a1-9.out"), "{what}");
    let (code, answer) = doctor(&sandbox, &["--repair"]);
    assert_eq!(code, 0, "{answer:#}");
    assert!(kept.exists() && !stray.exists());
}

#[test]
fn what_others_may_look_into_is_named() {
    let sandbox = Sandbox::with_shards(1);
    let path = sandbox.store().join("shard-0.db");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let (code, answer) = doctor(&sandbox, &[]);
    assert_eq!(code, 1);
    assert_eq!(answer["findings"][0]["check"], "modes", "{answer:#}");
    let what = answer["findings"][0]["what"].as_str().unwrap();
    assert!(what.contains("shard-0.db"), "{what}");
}

#[test]
fn a_log_without_end_is_found_and_folded_back() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["true"]);
    let log = sandbox.store().join("shard-0.db-wal");
    // Whoever reads keeps others from folding it back.
    let reader = shard(&sandbox, 0);
    reader.execute_batch("BEGIN").unwrap();
    assert_eq!(one::<i64>(&reader, "SELECT count(*) FROM ready"), 1);
    // What is behind the last commit is no part of the log; a sparse file costs nothing.
    let file = fs::File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&log)
        .unwrap();
    file.set_len(600 << 20).unwrap();
    let (code, answer) = doctor(&sandbox, &[]);
    assert_eq!(code, 1);
    assert_eq!(answer["findings"][0]["check"], "log", "{answer:#}");
    drop(reader);
    file.set_len(600 << 20).unwrap();
    let (code, answer) = doctor(&sandbox, &["--repair"]);
    assert_eq!(code, 0, "{answer:#}");
    assert_eq!(sandbox.count("ready"), 1);
    assert!(log.metadata().map_or(0, |about| about.len()) < 1 << 20);
}
