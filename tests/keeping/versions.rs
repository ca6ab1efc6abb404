//! Stores of other versions, and what is no store at all: named, and left as it is.

use std::fs;
use std::path::Path;

use crate::common::{Ran, Sandbox};
use crate::kit::{harm, shards, snapshot};

/// Every command that opens a store, with what it needs to get that far.
const COMMANDS: &[&[&str]] = &[
    &["init"],
    &["enqueue", "true"],
    &["run", "--drain"],
    &["status"],
    &["show", "a1"],
    &["logs", "a1"],
    &["wait", "a1"],
    &["explain", "a1"],
    &["cancel", "a1"],
    &["kill", "a1"],
    &["retry", "a1"],
    &["hold", "a1"],
    &["release", "a1"],
    &["edit", "a1", "-b", "5"],
    &["pause", "--all"],
    &["resume", "--all"],
    &["limit", "set", "gpu", "2"],
    &["limit", "ls"],
    &["limit", "rm", "gpu"],
    &["clean", "--all"],
    &["doctor"],
    &["backup", "copy"],
    &["stats"],
    &["events"],
    &["inspect", "plan"],
    &["inspect", "shards"],
];

/// Those that never look into a store; `workers` speaks with runners only, as some of
/// `inspect` do.
const ELSEWHERE: [&str; 4] = ["config", "completions", "man", "workers"];

#[test]
fn the_list_of_commands_is_whole() {
    let help = Sandbox::new().fairq(["--help"]).expect(0).text();
    let (_, below) = help.split_once("\nCommands:\n").unwrap();
    for line in below.lines().take_while(|line| !line.is_empty()) {
        let name = line.split_whitespace().next().unwrap();
        let known = COMMANDS.iter().any(|command| command[0] == name);
        assert!(
            known || ELSEWHERE.contains(&name) || name == "help",
            "{name} is not tried"
        );
    }
}

#[test]
fn every_command_leaves_a_newer_store_alone_and_says_both_versions() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["true"]);
    harm(
        &sandbox,
        0,
        "PRAGMA user_version = 2; PRAGMA wal_checkpoint(TRUNCATE)",
    );
    let before = shards(&sandbox.store());
    let mut named = 0;
    for command in COMMANDS {
        let ran = sandbox.fairq(*command);
        assert!(
            !ran.err.contains("panicked") && ran.code != 70,
            "{command:?}: {}",
            ran.err
        );
        let said = format!("{}{}", ran.text(), ran.err);
        // Some do not look into a shard: who asks only runners, or the manifest.
        if said.contains("schema version 2") {
            named += 1;
            assert!(said.contains("versions up to 1"), "{command:?}: {said}");
        }
        assert_eq!(shards(&sandbox.store()), before, "{command:?}");
    }
    assert!(named > 20, "{named} of {} say it", COMMANDS.len());
    // The layout of the directory has a number of its own, which all of them see.
    let manifest = sandbox.store().join("fairq.toml");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("format = 1", "format = 2")).unwrap();
    let before = snapshot(&sandbox.store());
    for command in COMMANDS {
        let ran = sandbox.fairq(*command).expect(1);
        let both = ran.err.contains("format 2") && ran.err.contains("formats up to 1");
        assert!(both, "{command:?}: {}", ran.err);
        assert_eq!(snapshot(&sandbox.store()), before, "{command:?}");
    }
}

/// What may stand where a shard should be, by the words that say so.
const IMPOSTORS: [&str; 5] = [
    "not an SQLite database",
    "lacks a header",
    "an SQLite database of another program",
    "no fairq wrote",
    "cannot be opened",
];

/// Puts an impostor in place.
fn put(at: &Path, words: &str) {
    match words {
        "not an SQLite database" => fs::write(at, "a text of some length, no database").unwrap(),
        "lacks a header" => fs::write(at, "").unwrap(),
        "cannot be opened" => fs::create_dir(at).unwrap(),
        "no fairq wrote" => crate::kit::open(at)
            .execute_batch("CREATE TABLE t(x); PRAGMA application_id = 0x66616972")
            .unwrap(),
        _ => crate::kit::open(at)
            .execute_batch("CREATE TABLE recipes(name)")
            .unwrap(),
    }
}

#[test]
fn what_stands_where_a_shard_should_be_is_named_and_left_alone() {
    let sandbox = Sandbox::with_shards(1);
    let path = sandbox.store().join("shard-0.db");
    for words in IMPOSTORS {
        for name in ["shard-0.db", "shard-0.db-wal", "shard-0.db-shm"] {
            let beside = sandbox.store().join(name);
            if beside.is_dir() {
                fs::remove_dir(&beside).unwrap();
            } else if beside.exists() {
                fs::remove_file(&beside).unwrap();
            }
        }
        put(&path, words);
        let before = snapshot(&sandbox.store());
        // An empty file is an empty database, which is that of somebody else.
        let words = words.replace("lacks a header", "of another program");
        for command in [
            &["enqueue", "true"][..],
            &["show", "a1"],
            &["cancel", "a1"],
            &["doctor"],
        ] {
            let ran = sandbox.fairq(command);
            let said = format!("{}{}", ran.text(), ran.err);
            assert!(
                ran.code == 1 || ran.code == 75,
                "{words}: {command:?}: {said}"
            );
            assert!(said.contains(&words), "{words}: {command:?}: {said}");
            assert!(said.contains("shard-0.db"), "{words}: {command:?}: {said}");
            assert_eq!(snapshot(&sandbox.store()), before, "{words}: {command:?}");
        }
    }
}

#[test]
fn what_is_named_as_a_store_and_is_none_is_refused() {
    let sandbox = Sandbox::new();
    let text = sandbox.work("notes.txt");
    fs::write(&text, "milk").unwrap();
    let empty = sandbox.work("empty");
    fs::write(&empty, "").unwrap();
    let database = sandbox.work("recipes.db");
    crate::kit::open(&database)
        .execute_batch("CREATE TABLE recipes(name)")
        .unwrap();
    let before = snapshot(&sandbox.work(""));
    for path in [&text, &empty, &database] {
        for command in COMMANDS {
            let store = ["--store", path.to_str().unwrap()];
            let ran = Ran::of(&mut sandbox.command(store.iter().chain(*command))).expect(75);
            assert!(
                ran.err.contains("is not a directory"),
                "{command:?}: {}",
                ran.err
            );
        }
    }
    assert_eq!(snapshot(&sandbox.work("")), before);
}
