//! Bringing the file of an older fairq up to the schema of this one.
//!
//! Whoever opens a shard for writing does it first, in one transaction; of many who come at once one
//! does it and the others find it done. What was there before is kept beside the file. A reader
//! changes nothing: it says what is to be done.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::conn::{self, SCHEMA_VERSION, failed};
use super::layout;
use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::model::ShardId;

/// One step from a version of the schema to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Migration {
    /// The version that it leads to, from the one before.
    pub(super) to: i32,
    /// What it does.
    pub(super) sql: &'static str,
}

/// Every migration that this build knows, oldest first; the last leads to [`SCHEMA_VERSION`].
const MIGRATIONS: &[Migration] = &[];

/// The oldest version that can be brought up.
const FIRST: i32 = match MIGRATIONS {
    [first, ..] => first.to - 1,
    [] => SCHEMA_VERSION,
};

const _: () = {
    let mut version = FIRST;
    let mut at = 0;
    while at < MIGRATIONS.len() {
        version += 1;
        assert!(MIGRATIONS[at].to == version, "a migration is missing");
        at += 1;
    }
    assert!(
        version == SCHEMA_VERSION,
        "no migration leads to this version"
    );
};

/// Returns whether a file of this older version can be brought up.
pub(super) const fn is_known(version: i32) -> bool {
    FIRST <= version
}

/// Brings a shard's file up to this build's version, unless somebody else just has.
pub(super) fn bring_up(path: &Path, shard: ShardId) -> Result<()> {
    run(path, shard, MIGRATIONS)
}

/// Brings a shard's file up to the version of the last of these migrations.
///
/// The write lock is taken first and held to the end: who else wants to migrate waits for it and then
/// sees the new version, and what is kept beside the file is exactly what was migrated.
fn run(path: &Path, shard: ShardId, migrations: &[Migration]) -> Result<()> {
    let wrap = |error: rusqlite::Error| failed(&error, shard, path);
    let connection = conn::plain(path).map_err(wrap)?;
    // Rolled back where it is not committed, by the end of the connection.
    connection.execute_batch("BEGIN IMMEDIATE").map_err(wrap)?;
    let from = version(&connection).map_err(wrap)?;
    let mut left = migrations
        .iter()
        .filter(|migration| migration.to > from)
        .peekable();
    if left.peek().is_none() {
        return Ok(());
    }
    keep(path, shard, from)?;
    for migration in left {
        connection.execute_batch(migration.sql).map_err(wrap)?;
        connection
            .pragma_update(None, "user_version", migration.to)
            .map_err(wrap)?;
    }
    connection.execute_batch("COMMIT").map_err(wrap)
}

fn version(connection: &Connection) -> rusqlite::Result<i32> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Returns where a shard of an older version is kept: `shard-0.db.v1`.
fn kept(path: &Path, version: i32) -> PathBuf {
    let mut kept = path.as_os_str().to_owned();
    kept.push(format!(".v{version}"));
    kept.into()
}

/// Keeps the file as it is beside itself, whole or not at all.
fn keep(path: &Path, shard: ShardId, version: i32) -> Result<()> {
    let kept = kept(path, version);
    let unfinished = kept.with_extension(format!("v{version}.new"));
    let wrap = |error: rusqlite::Error| failed(&error, shard, path);
    let source = conn::plain(path).map_err(wrap)?;
    super::backup::copy(&source, &unfinished).map_err(wrap)?;
    fs::rename(&unfinished, &kept).or_fail(ErrorKind::Unavailable, || {
        format!("cannot make {}", kept.display())
    })?;
    layout::sync_dir(&kept)
}

/// Says that a file is too old to be read as it is.
pub(super) fn older(path: &Path, version: i32) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "{} has schema version {version}, this fairq reads version {SCHEMA_VERSION}",
            path.display()
        ),
    )
    .hint("the next command that writes brings it up, such as fairq run --drain; the old file is kept beside it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Timestamp;
    use crate::store::placement::Placement;
    use std::process::Command;

    /// Twice would fail (the column is there) and count wrongly.
    const LATER: &[Migration] = &[
        Migration {
            to: SCHEMA_VERSION + 1,
            sql: "ALTER TABLE steps ADD COLUMN colour TEXT;
                  UPDATE counters SET value = value + 10 WHERE name = 'next_id'",
        },
        Migration {
            to: SCHEMA_VERSION + 2,
            sql: "CREATE TABLE shelves(id INTEGER PRIMARY KEY);
                  UPDATE counters SET value = value + 100 WHERE name = 'next_id'",
        },
    ];

    const VARIABLE: &str = "FAIRQ_TEST_MIGRATE";

    fn shard() -> ShardId {
        ShardId::first(1).next().unwrap()
    }

    fn make(dir: &Path) -> PathBuf {
        let path = layout::shard_path(dir, shard());
        let identity = layout::Identity {
            store: "s".to_owned(),
            shard: shard(),
            shards: 1,
            placement: Placement::Key,
            created: Timestamp::from_millis(1),
        };
        conn::create(&path, &identity).unwrap();
        path
    }

    fn look(path: &Path) -> (i32, i64, i64) {
        let connection = Connection::open(path).unwrap();
        let one = |sql: &str| connection.query_row(sql, [], |row| row.get(0)).unwrap();
        (
            version(&connection).unwrap(),
            one("SELECT value FROM counters WHERE name = 'next_id'"),
            one("SELECT count(*) FROM sqlite_schema WHERE name = 'shelves'"),
        )
    }

    /// Twenty of these run at once, in processes of their own, when the test below asks for it.
    #[test]
    fn one_of_many_processes() {
        if let Some(path) = std::env::var_os(VARIABLE) {
            let mut gate = String::new();
            std::io::stdin().read_line(&mut gate).unwrap();
            run(Path::new(&path), shard(), LATER).unwrap();
            assert_eq!(look(Path::new(&path)), (SCHEMA_VERSION + 2, 111, 1));
        }
    }

    #[test]
    fn twenty_processes_at_once_migrate_it_once_and_keep_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = make(dir.path());
        let (gate, opener) = std::io::pipe().unwrap();
        let children: Vec<_> = (0..20)
            .map(|_| {
                Command::new(std::env::current_exe().unwrap())
                    .args([
                        "--exact",
                        "store::sqlite::migrate::tests::one_of_many_processes",
                    ])
                    .env(VARIABLE, &path)
                    .stdin(gate.try_clone().unwrap())
                    .stdout(std::process::Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        drop(opener);
        for child in children {
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success() && said.contains("1 passed"),
                "{said}"
            );
        }
        assert_eq!(look(&path), (SCHEMA_VERSION + 2, 111, 1));
        assert_eq!(look(&kept(&path, SCHEMA_VERSION)), (SCHEMA_VERSION, 1, 0));
    }

    #[test]
    fn a_migration_that_fails_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = make(dir.path());
        let broken = Migration {
            to: SCHEMA_VERSION + 2,
            sql: "UPDATE no_such_table SET x = 1",
        };
        run(&path, shard(), &[LATER[0], broken]).unwrap_err();
        assert_eq!(look(&path), (SCHEMA_VERSION, 1, 0));
        run(&path, shard(), LATER).unwrap();
        assert_eq!(look(&path), (SCHEMA_VERSION + 2, 111, 1));
    }
}
