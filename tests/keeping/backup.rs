//! `fairq backup`: a copy taken while all work is a store, private and whole.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::common::{Ran, Sandbox, until};
use crate::kit::{everything, healthy, snapshot};

fn with_outputs() -> Sandbox {
    let sandbox = Sandbox::with_shards(2);
    for key in ["a", "b", "c"] {
        sandbox.enqueue(["-k", key, "echo small; head -c 300000 /dev/zero >&2"]);
    }
    sandbox.drain(2).expect(0);
    sandbox.enqueue(["-k", "d", "echo later"]);
    sandbox
}

#[test]
fn the_copy_is_a_store_with_the_same_steps_and_outputs() {
    let sandbox = with_outputs();
    let to = sandbox.work("copy");
    let copy = to.to_str().unwrap();
    let answer = sandbox.json(["backup", copy]);
    assert_eq!(
        (&answer["shards"], &answer["outputs"]),
        (&2.into(), &3.into()),
        "{answer:#}"
    );
    for path in everything(&to) {
        let mode = path.symlink_metadata().unwrap().permissions().mode() & 0o777;
        let right = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, right, "{}", path.display());
    }
    // The file is set up as the store's own is.
    for number in 0..2 {
        let setting = |path: &std::path::Path, pragma: &str| {
            let database = crate::kit::open(&path.join(format!("shard-{number}.db")));
            let value = |row: &rusqlite::Row<'_>| row.get::<_, rusqlite::types::Value>(0);
            database
                .query_row(&format!("PRAGMA {pragma}"), [], value)
                .unwrap()
        };
        for pragma in [
            "application_id",
            "user_version",
            "auto_vacuum",
            "page_size",
            "journal_mode",
        ] {
            assert_eq!(
                setting(&to, pragma),
                setting(&sandbox.store(), pragma),
                "{pragma}"
            );
        }
    }
    let listed = |store: &str| {
        sandbox
            .fairq(["--store", store, "status", "--json", "--limit", "0"])
            .expect(0)
            .json()
    };
    let (old, new) = (listed(sandbox.store().to_str().unwrap()), listed(copy));
    assert_eq!(
        (&old["steps"], &old["counts"]),
        (&new["steps"], &new["counts"])
    );
    for id in ["a1", "b1"] {
        let logs = |store: &str| sandbox.fairq(["--store", store, "logs", id]).out;
        assert_eq!(logs(sandbox.store().to_str().unwrap()), logs(copy));
    }
    sandbox
        .fairq(["--store", copy, "doctor", "--full"])
        .expect(0);
    // It lives: what was to be done is done there, and only there.
    sandbox
        .fairq(["--store", copy, "run", "--drain", "--workers", "1"])
        .expect(0);
    assert_eq!(sandbox.count("ready"), 1);
    assert_eq!(listed(copy)["counts"]["succeeded"], 4);
}

#[test]
fn a_directory_that_is_not_empty_is_left_alone() {
    let sandbox = with_outputs();
    let to = sandbox.work("full");
    fs::create_dir(&to).unwrap();
    fs::write(to.join("mine"), "mine").unwrap();
    let file = to.join("mine");
    let inside = sandbox.store().join("copies/today");
    let before = (snapshot(&to), snapshot(&sandbox.store()));
    for (dir, said) in [
        (&to, "is not empty"),
        (&file, "is not a directory"),
        (&sandbox.store(), "is not empty"),
        (&inside, "lies in the store"),
    ] {
        let ran = sandbox.fairq(["backup", dir.to_str().unwrap()]).expect(2);
        assert!(ran.err.contains(said), "{}", ran.err);
    }
    assert_eq!((snapshot(&to), snapshot(&sandbox.store())), before);
}

#[test]
fn a_copy_taken_under_load_holds_every_step_once_and_is_well() {
    let sandbox = Sandbox::with_shards(3);
    let runner = sandbox.runner(&["--workers", "3", "-q"]);
    let parent = sandbox.enqueue(["-k", "p", "until test -e go; do sleep 0.01; done"]);
    for key in ["a", "b", "c", "d"] {
        sandbox.enqueue_lines(
            &["-k", key],
            &vec!["head -c 70000 /dev/zero".to_owned(); 50],
        );
        sandbox.enqueue(["-k", key, "--after", &parent[0], "true"]);
    }
    until("much is done", || sandbox.count("succeeded") > 20);
    let to = sandbox.work("copy");
    let copy = to.to_str().unwrap();
    sandbox.fairq(["backup", copy]).expect(0);
    fs::write(sandbox.work("go"), "").unwrap();
    until("all is done", || sandbox.count("succeeded") == 205);
    runner.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(runner.end().0, 0);
    healthy(&sandbox);
    let status = sandbox
        .fairq(["--store", copy, "status", "--json"])
        .expect(0)
        .json();
    let counts = status["counts"].as_object().unwrap();
    let all: u64 = counts.values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(all, 205, "{status:#}");
    // What ran at that instant has a lease that is waited for; all else is well.
    let ran = Ran::of(
        sandbox
            .command(["--store", copy, "doctor", "--full", "--json"])
            .env("A", "b"),
    );
    let answer = ran.json();
    let bad: Vec<_> = answer["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|finding| {
            !["outbox", "edges", "leases"].contains(&finding["check"].as_str().unwrap())
        })
        .collect();
    assert!(bad.is_empty(), "{answer:#}");
}
