//! What these tests share: harm done to a store behind the binary's back, and how it looks.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::Hasher as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::Sandbox;

/// Opens a shard's file as another program would.
pub(crate) fn shard(sandbox: &Sandbox, number: u8) -> rusqlite::Connection {
    open(&sandbox.store().join(format!("shard-{number}.db")))
}

/// Opens a database as another program would.
pub(crate) fn open(path: &Path) -> rusqlite::Connection {
    let database = rusqlite::Connection::open(path).unwrap();
    database
        .busy_timeout(std::time::Duration::from_secs(60))
        .unwrap();
    database
}

/// Does something to a shard that nobody should.
#[track_caller]
pub(crate) fn harm(sandbox: &Sandbox, number: u8, sql: &str) {
    shard(sandbox, number).execute_batch(sql).unwrap();
}

/// Returns the only value of a statement.
#[track_caller]
pub(crate) fn one<T: rusqlite::types::FromSql>(database: &rusqlite::Connection, sql: &str) -> T {
    database.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Returns everything below a directory, deepest last.
pub(crate) fn everything(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_owned()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        if path.symlink_metadata().unwrap().is_dir() {
            let entries = fs::read_dir(&path).unwrap();
            found.extend(entries.map(|entry| entry.unwrap().path()));
        }
        next += 1;
    }
    found
}

/// Returns the modes and contents of all files below a directory, those of SQLite's shared memory
/// left out: looking writes there. Contents are shown by their length and a hash.
pub(crate) fn snapshot(dir: &Path) -> BTreeMap<PathBuf, (u32, usize, u64)> {
    let is_noise = |path: &Path| {
        let name = path.to_string_lossy();
        name.ends_with("-shm") || name.ends_with("-wal") && path.metadata().unwrap().len() == 0
    };
    let look = |path: PathBuf| {
        let about = path.symlink_metadata().unwrap();
        let bytes = if about.is_file() {
            fs::read(&path).unwrap()
        } else {
            Vec::new()
        };
        let mut hasher = DefaultHasher::new();
        hasher.write(&bytes);
        (
            path,
            (about.permissions().mode(), bytes.len(), hasher.finish()),
        )
    };
    let all = everything(dir).into_iter();
    all.filter(|path| !is_noise(path)).map(look).collect()
}

/// As [`snapshot`], of the manifest and the shards only: a runner has folders and logs of its own.
pub(crate) fn shards(dir: &Path) -> BTreeMap<PathBuf, (u32, usize, u64)> {
    let mut all = snapshot(dir);
    all.retain(|path, _| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("shard-") || name == "fairq.toml"
    });
    all
}

/// Returns what `doctor` says, and its exit code.
#[track_caller]
pub(crate) fn doctor(sandbox: &Sandbox, options: &[&str]) -> (i32, Value) {
    let ran = sandbox.fairq(["doctor", "--json"].iter().chain(options));
    assert!(ran.code == 0 || ran.code == 1, "{}", ran.err);
    (ran.code, ran.json())
}

/// Returns the checks that found something, and where.
pub(crate) fn found(answer: &Value) -> Vec<(String, String)> {
    let of = |finding: &Value, part: &str| finding[part].as_str().unwrap().to_owned();
    let findings = answer.as_array().unwrap().iter();
    findings
        .map(|finding| (of(finding, "check"), of(finding, "place")))
        .collect()
}

/// Fails unless nothing is to be found, not even by looking closely.
#[track_caller]
pub(crate) fn healthy(sandbox: &Sandbox) {
    let (code, answer) = doctor(sandbox, &["--full"]);
    assert_eq!(
        (code, found(&answer["findings"])),
        (0, vec![]),
        "{answer:#}"
    );
}
