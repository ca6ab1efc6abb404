//! What is refused is refused with one clear error and changes nothing on disk.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::common::{Ran, Sandbox};

/// Returns everything below a directory: names, modes, bytes. SQLite's index of its log is left out,
/// and so is a log with nothing in it: they come and go with those who only look.
fn snapshot(dir: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        let mode = path.symlink_metadata().unwrap().permissions().mode();
        if path.is_dir() {
            found.extend(snapshot(&path));
            found.insert(path, (mode, Vec::new()));
        } else {
            let bytes = fs::read(&path).unwrap_or_default();
            let name = path.to_str().unwrap();
            if name.ends_with("-shm") || (name.ends_with("-wal") && bytes.is_empty()) {
                continue;
            }
            found.insert(path, (mode, bytes));
        }
    }
    found
}

/// Fails unless the command line is refused in one error with these words, and leaves the directory
/// as it is.
#[track_caller]
fn refused(sandbox: &Sandbox, dir: &Path, args: &[&str], code: i32, said: &str) -> Ran {
    let before = snapshot(dir);
    let ran = sandbox.fairq(args).expect(code);
    assert_eq!(ran.text(), "", "{args:?}");
    assert!(ran.err.starts_with("error: "), "{args:?}: {}", ran.err);
    let errors = ran.err.lines().filter(|line| line.starts_with("error:"));
    assert_eq!(errors.count(), 1, "{args:?}: {}", ran.err);
    assert!(ran.err.contains(said), "{args:?}: {}", ran.err);
    let after = snapshot(dir);
    let names = |found: &BTreeMap<PathBuf, _>| found.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&before), names(&after), "{args:?}");
    assert!(before == after, "{args:?} changed bytes or modes");
    ran
}

/// The library gives several tips in one paragraph.
#[test]
fn each_tip_is_a_hint_of_its_own() {
    let sandbox = Sandbox::with_shards(1);
    let dir = sandbox.store();
    let ran = refused(
        &sandbox,
        &dir,
        &["enqueue", "--limits", "x", "true"],
        2,
        "'--limits'",
    );
    let hints: Vec<&str> = ran
        .err
        .lines()
        .filter_map(|line| line.strip_prefix("hint: "))
        .collect();
    assert!(
        hints.contains(&"a similar argument exists: '--limit'"),
        "{hints:?}"
    );
    assert!(
        hints
            .iter()
            .all(|hint| !hint.contains("\\n") && !hint.contains("tip:")),
        "{hints:?}"
    );
}

#[test]
fn values_that_cannot_be_meant_are_refused_by_name() {
    let sandbox = Sandbox::with_shards(1);
    sandbox.enqueue(["true"]);
    let file = sandbox.work("file");
    fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap().to_owned();
    for (options, said) in [
        (&["-w", "0"][..], "\"0\" is not a weight"),
        (&["-w", "-0"], "\"-0\" is not a weight"),
        (&["-w", "NaN"], "\"NaN\" is not a weight"),
        (&["-w", "inf"], "\"inf\" is not a weight"),
        (&["-w", "-1"], "\"-1\" is not a weight"),
        (&["-w", "1e999"], "\"1e999\" is not a weight"),
        (&["-w", "1,5"], "\"1,5\" is not a weight"),
        (&["-w", ""], "\"\" is not a weight"),
        (&["-b", "-1"], "\"-1\" is not a band"),
        (&["-b", "2147483648"], "\"2147483648\" is not a band"),
        (&["-b", "1.5"], "\"1.5\" is not a band"),
        (&["-b", "urgent"], "\"urgent\" is not a band"),
        (&["-k", ""], "key cannot be empty"),
        (&["-C", "/not/there"], "/not/there"),
        (&["-C", &file], "is not a directory"),
        (&["-e", "=x"], "no name before the ="),
        (&["-e", "NOT_THERE"], "NOT_THERE"),
        (&["--delay", "0,5s"], "\"0,5s\" is not a duration"),
        (&["--delay", "-1s"], "\"-1s\" is not a duration"),
        (&["--at", "-1h"], "\"-1h\" is not a time"),
        (&["--at", "yesterdayish"], "\"yesterdayish\" is not a time"),
        (&["--on-lost", "panic"], "retry, fail or hold"),
        (&["--color", "red"], "\"red\""),
    ] {
        let args = [&["enqueue"], options, &["true"]].concat();
        refused(&sandbox, &sandbox.store(), &args, 2, said);
    }
    assert_eq!(sandbox.count("ready"), 1);
}

#[test]
fn a_bulk_with_one_bad_line_stores_none_and_names_the_line() {
    let sandbox = Sandbox::with_shards(2);
    for (input, said) in [
        (b"true\ntrue\0\ntrue\n".to_vec(), "line 2 of standard input"),
        ([b"true\n\n", &[b'x'; 131_072][..]].concat(), "line 3"),
        (b"\n\n".to_vec(), "no line"),
        (Vec::new(), "no line"),
    ] {
        let ran = sandbox.fairq_with(["enqueue", "--from", "-"], &input);
        let ran = ran.expect(2);
        assert!(ran.err.contains(said), "{}", ran.err);
        assert_eq!(ran.text(), "");
    }
    sandbox.fairq(["enqueue", "--from", "/not/there"]).expect(1);
    assert_eq!(sandbox.json(["status"])["counts"], serde_json::json!({}));
}

#[test]
fn steps_that_are_not_there_are_exit_code_three() {
    let sandbox = Sandbox::with_shards(2);
    sandbox.enqueue(["true"]);
    for args in [
        &["show", "a99"][..],
        &["show", "z1"],
        &["logs", "a99"],
        &["wait", "a99"],
        &["wait", "z1"],
        &["wait", "-k", "nobody"],
        &["wait", "--state", "failed"],
        &["logs", "--attempt", "3", "a1"],
    ] {
        let before = sandbox.json(["status"]);
        let ran = sandbox.fairq(args).expect(3);
        assert_eq!(ran.text(), "", "{args:?}");
        assert!(ran.err.starts_with("error: "), "{args:?}: {}", ran.err);
        assert_eq!(sandbox.json(["status"]), before, "{args:?}");
    }
    for args in [
        &["wait"][..],
        &["logs"],
        &["wait", "a9-a3"],
        &["show", "a1-a2"],
    ] {
        let ran = sandbox.fairq(args).expect(2);
        assert!(ran.err.starts_with("error: "), "{args:?}: {}", ran.err);
    }
    let empty = Sandbox::new();
    for args in [&["show", "a1"][..], &["logs", "a1"], &["wait", "--all"]] {
        let ran = empty.fairq(args).expect(3);
        assert!(ran.err.contains("no store"), "{}", ran.err);
    }
    assert!(!empty.store().exists(), "looking makes no store");
}

/// Commands that need a shard.
const STEPPING: [&[&str]; 4] = [
    &["enqueue", "true"],
    &["show", "a1"],
    &["logs", "a1"],
    &["wait", "a1"],
];

/// Commands that show of a store what they can.
const AROUND: [&[&str]; 4] = [
    &["run", "--drain"],
    &["status"],
    &["inspect", "plan"],
    &["init"],
];

#[test]
fn a_directory_of_somebody_else_is_left_alone() {
    let sandbox = Sandbox::new();
    let dir = sandbox.work("photos");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("cat.jpg"), "meow").unwrap();
    let store = dir.to_str().unwrap();
    // Those that only read, too: "no store yet" would say that there may be one.
    for command in [
        &["enqueue", "true"][..],
        &["run", "--drain"],
        &["init"],
        &["status"],
        &["show", "a1"],
        &["inspect", "plan"],
    ] {
        let args = [&["--store", store], command].concat();
        refused(&sandbox, &dir, &args, 1, "cat.jpg");
    }
}

/// What an unset variable leaves of a command must not become a step that does nothing, and well.
#[test]
fn an_empty_command_is_none() {
    let sandbox = Sandbox::with_shards(1);
    let store = sandbox.store();
    for args in [
        &["enqueue", ""][..],
        &["enqueue", "-c", ""],
        &["enqueue", "--argv", ""],
        &["enqueue", "--", "", "x"],
    ] {
        refused(&sandbox, &store, args, 2, "there is no command");
    }
}

#[test]
fn a_store_where_none_can_be_is_unavailable() {
    let sandbox = Sandbox::new();
    let file = sandbox.work("file");
    fs::write(&file, "mine").unwrap();
    let below = file.join("store");
    // Nobody may make anything in /proc, not even root.
    for store in [
        file.to_str().unwrap(),
        below.to_str().unwrap(),
        "/proc/fairq",
    ] {
        for command in [&["enqueue", "true"][..], &["run", "--drain"], &["init"]] {
            let args = [&["--store", store], command].concat();
            refused(&sandbox, &sandbox.work(""), &args, 75, store);
        }
    }
}

#[test]
fn a_database_of_another_program_in_place_of_a_shard_is_left_alone() {
    let sandbox = Sandbox::with_shards(1);
    let path = sandbox.store().join("shard-0.db");
    fs::remove_file(&path).unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other
        .execute_batch("CREATE TABLE recipes(name); INSERT INTO recipes VALUES ('soup')")
        .unwrap();
    drop(other);
    for command in STEPPING {
        let said = "is not a fairq shard";
        refused(&sandbox, &sandbox.store(), command, 1, said);
    }
    // What only looks around shows what can be seen, and says what cannot.
    let status = sandbox.json(["status"]);
    let error = status["unreadable_shards"][0]["error"].as_str().unwrap();
    assert!(error.contains("is not a fairq shard"), "{error}");
    fs::write(&path, "not a database at all, but long enough to look").unwrap();
    for command in STEPPING {
        refused(&sandbox, &sandbox.store(), command, 1, "shard-0.db");
    }
}

#[test]
fn a_store_of_a_newer_build_is_left_alone_and_both_versions_are_named() {
    let sandbox = Sandbox::with_shards(1);
    let path = sandbox.store().join("shard-0.db");
    let database = rusqlite::Connection::open(&path).unwrap();
    let version: i64 = database
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap();
    database
        .pragma_update(None, "user_version", version + 1)
        .unwrap();
    drop(database);
    for command in STEPPING {
        let said = format!("schema version {}", version + 1);
        let ran = refused(&sandbox, &sandbox.store(), command, 1, &said);
        let known = format!("up to {version}");
        assert!(ran.err.contains(&known), "{}", ran.err);
    }
    let sandbox = Sandbox::with_shards(1);
    let manifest = sandbox.store().join("fairq.toml");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("format = 1", "format = 2")).unwrap();
    for command in STEPPING.iter().chain(&AROUND) {
        refused(&sandbox, &sandbox.store(), command, 1, "format 2");
    }
}

#[test]
fn a_wrong_configuration_is_named_with_file_line_and_key() {
    let sandbox = Sandbox::with_shards(1);
    let path = sandbox.work("fairq.toml");
    let named = path.to_str().unwrap().to_owned();
    let missing = format!("{named}.not-there");
    for command in [
        &["status"][..],
        &["enqueue", "true"],
        &["run"],
        &["config", "show"],
    ] {
        let args = [&["--config", &missing], command].concat();
        refused(&sandbox, &sandbox.store(), &args, 78, &missing);
    }
    for (text, said) in [
        ("wrkers = 3", ":1: unknown key \"wrkers\""),
        (
            "pick = \"stride\"\nwrkers = 3",
            ":2: unknown key \"wrkers\"",
        ),
        ("workers = 0", ":1: workers"),
        ("workers = -1", ":1: workers"),
        ("workers = \"many\"", ":1: workers"),
        ("workers = nan", ":1: workers"),
        ("workers = 1\nworkers = 2", ":2"),
        ("\n\npick = \"fastest\"", ":3: pick"),
        ("shards = 27", ":1: shards"),
        ("[bands]\nurgent = -1", ":2"),
        ("workers", ":1"),
    ] {
        fs::write(&path, text).unwrap();
        let args = ["--config", &named, "status"];
        let ran = refused(&sandbox, &sandbox.store(), &args, 78, said);
        assert!(ran.err.contains(&named), "{}", ran.err);
    }
    let ran = Ran::of(sandbox.command(["status"]).env("FAIRQ_CONFIG", &missing)).expect(78);
    assert!(ran.err.contains(&missing), "{}", ran.err);
    let ran = Ran::of(sandbox.command(["status"]).env("FAIRQ_WORKERS", "many")).expect(78);
    assert!(ran.err.contains("FAIRQ_WORKERS"), "{}", ran.err);
}
