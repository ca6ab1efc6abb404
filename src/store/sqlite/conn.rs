//! One connection to a shard's file: how it is opened, set up and believed.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::layout::{self, Identity, Manifest};
use super::migrate;
use crate::error::{Error, ErrorKind, Result};
use crate::model::ShardId;

/// `fair` in ASCII: how a file says that it is ours.
pub(super) const APPLICATION_ID: i32 = 0x6661_6972;
/// The schema that this build writes.
pub(super) const SCHEMA_VERSION: i32 = 1;

const SCHEMA: &str = include_str!("../../../schema.sql");

/// How long a busy shard is waited for before we give up.
const BUSY_LIMIT: Duration = Duration::from_secs(20);

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Reading only; never takes a write lock.
    Read,
    /// The only writer of this process, in a process that serves.
    Write,
    /// One write in a process that then leaves.
    Visit,
}

/// Opens the file of one shard of this store and makes sure that it is.
pub(super) fn open(
    path: &Path,
    shard: ShardId,
    manifest: &Manifest,
    role: Use,
) -> Result<Connection> {
    let connection = connect(path, role).map_err(|error| failed(&error, shard, path))?;
    let who = || identity(&connection).map_err(|error| failed(&error, shard, path));
    let found = match who()? {
        Found::Older(version) if role == Use::Read => return Err(migrate::older(path, version)),
        Found::Older(_) => {
            migrate::bring_up(path, shard)?;
            who()?
        }
        found @ (Found::Ours(..) | Found::Foreign(_) | Found::Newer(_)) => found,
    };
    match found {
        Found::Ours(identity, _) if identity.store == manifest.store && identity.shard == shard => {
            Ok(connection)
        }
        Found::Ours(identity, _) => Err(Error::new(
            ErrorKind::Damaged,
            format!(
                "{} is shard {} of the store {}, not shard {shard} of {}",
                path.display(),
                identity.shard,
                identity.store,
                manifest.store
            ),
        )
        .hint("a file was copied or renamed; put back the right one, nothing was changed")),
        Found::Foreign(what) => Err(foreign(path, &what)),
        Found::Newer(version) => Err(newer(path, version)),
        Found::Older(version) => Err(migrate::older(path, version)),
    }
}

/// What a file turned out to be.
pub(super) enum Found {
    /// A shard that we can use, and whether no step was ever put into it.
    Ours(Identity, bool),
    /// Something that we must not touch, and what it is.
    Foreign(String),
    /// A shard written by a newer fairq.
    Newer(i32),
    /// A shard written by an older fairq, which can be brought up.
    Older(i32),
}

/// Reads who a file is without changing it.
pub(super) fn inspect(path: &Path) -> Result<Found> {
    let shard = ShardId::first(1).next().expect("there is a first shard");
    let connection = connect(path, Use::Read).map_err(|error| failed(&error, shard, path))?;
    match identity(&connection) {
        Ok(found) => Ok(found),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
            Ok(Found::Foreign("not an SQLite database".to_owned()))
        }
        Err(error) => Err(failed(&error, shard, path)),
    }
}

/// Makes a new shard's file at a path where nothing is.
pub(super) fn create(path: &Path, identity: &Identity) -> Result<()> {
    let wrap = |error: rusqlite::Error| failed(&error, identity.shard, path);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(wrap)?;
    connection
        .pragma_update(None, "page_size", 4096)
        .map_err(wrap)?;
    // Lets pages that hold nothing any more be given back while others work.
    connection
        .pragma_update(None, "auto_vacuum", "INCREMENTAL")
        .map_err(wrap)?;
    connection
        .pragma_update(None, "journal_mode", "WAL")
        .map_err(wrap)?;
    connection
        .pragma_update(None, "synchronous", "FULL")
        .map_err(wrap)?;
    let tx = connection.transaction().map_err(wrap)?;
    tx.execute_batch(SCHEMA).map_err(wrap)?;
    tx.execute(
        "INSERT INTO shard(only, store, number, shards, placement, created)
         VALUES (1, ?1, ?2, ?3, ?4, ?5)",
        (
            &identity.store,
            identity.shard.number(),
            identity.shards,
            layout::placement_word(identity.placement),
            identity.created.millis(),
        ),
    )
    .map_err(wrap)?;
    tx.pragma_update(None, "application_id", APPLICATION_ID)
        .map_err(wrap)?;
    tx.pragma_update(None, "user_version", SCHEMA_VERSION)
        .map_err(wrap)?;
    tx.commit().map_err(wrap)?;
    connection.close().map_err(|(_, error)| wrap(error))
}

/// How every connection is opened: readers too may write, for one that may not could not recover the
/// log of a process that was killed; `query_only` keeps them from it.
pub(super) const FLAGS: OpenFlags =
    OpenFlags::SQLITE_OPEN_READ_WRITE.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);

/// Opens a file as it is, for more than a look and less than daily use.
pub(super) fn plain(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, FLAGS)?;
    connection.busy_handler(Some(wait_a_little))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    Ok(connection)
}

fn connect(path: &Path, role: Use) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, FLAGS)?;
    set_up(&connection, role)?;
    Ok(connection)
}

/// Sets a new connection up for its use.
pub(super) fn set_up(connection: &Connection, role: Use) -> rusqlite::Result<()> {
    connection.busy_handler(Some(wait_a_little))?;
    // Without this guarantee SQLite prepares a cached statement anew at every bind of a LIMIT:
    // 15 us instead of 2 (and 20 to 27 once statistics exist).
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(128);
    let (cache, autocheckpoint) = match role {
        Use::Read => ("PRAGMA cache_size = -8192;", 0),
        // A checkpoint in the writer's path stops it for 40 to 280 ms: a thread of its own does them.
        Use::Write => ("PRAGMA cache_size = -16384;", 0),
        // A passer-by does not pay for checkpoints, except as a backstop where nobody serves; SQLite's own
        // 2 MB are enough for it, and each word to it costs 8 us.
        Use::Visit => ("", 16_000),
    };
    connection.execute_batch(&format!(
        "{cache}
         PRAGMA mmap_size = 0;
         PRAGMA temp_store = MEMORY;
         PRAGMA journal_size_limit = 67108864;
         PRAGMA wal_autocheckpoint = {autocheckpoint};
         PRAGMA synchronous = NORMAL;"
    ))?;
    match role {
        Use::Read => connection.pragma_update(None, "query_only", true)?,
        Use::Write => {}
        Use::Visit => {
            // The last one to close would otherwise fold in and delete the WAL each time: 6.9 ms, not
            // 3.0. See `leave`.
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        }
    }
    Ok(())
}

/// From so many bytes of log on, a passer-by that is the last to leave folds it in. Whoever comes next
/// to a log that nobody has open reads all of it first, 4 us a page; folding it takes 3 ms, so that is
/// done once in a dozen visits.
const LONG_LOG: u64 = 48 * 4_120;

/// Closes the connection of a process that leaves.
pub(super) fn leave(connection: Connection, path: &Path) {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    if std::fs::metadata(log).is_ok_and(|log| log.len() >= LONG_LOG) {
        // It happens at closing, and only where nobody else has the file open. Where it cannot be asked
        // for, the next one to leave asks.
        connection
            .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)
            .ok();
    }
    drop(connection);
}

fn identity(connection: &Connection) -> rusqlite::Result<Found> {
    let application: i32 =
        connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if application != APPLICATION_ID {
        return Ok(Found::Foreign(
            "an SQLite database of another program".to_owned(),
        ));
    }
    let version: i32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version > SCHEMA_VERSION {
        return Ok(Found::Newer(version));
    }
    if version < SCHEMA_VERSION {
        return Ok(if migrate::is_known(version) {
            Found::Older(version)
        } else {
            Found::Foreign(format!("of schema version {version}, which no fairq wrote"))
        });
    }
    connection.query_row(
        "SELECT store, number, shards, placement, created,
                (SELECT value = 1 FROM counters WHERE name = 'next_id')
           FROM shard",
        [],
        |row| Ok(Found::Ours(Identity::read(row)?, row.get(5)?)),
    )
}

/// Says that a file is not ours.
pub(super) fn foreign(path: &Path, what: &str) -> Error {
    Error::new(
        ErrorKind::Damaged,
        format!("{} is not a fairq shard: it is {what}", path.display()),
    )
    .hint("nothing was changed; point --store at another directory")
}

/// Says that a file is too new for this build.
pub(super) fn newer(path: &Path, version: i32) -> Error {
    Error::new(
        ErrorKind::NewerSchema,
        format!(
            "{} has schema version {version}, this fairq knows versions up to {SCHEMA_VERSION}",
            path.display()
        ),
    )
    .hint("nothing was changed; use the fairq that wrote it, or a newer one")
}

/// Called by SQLite while another connection holds the lock that we want.
///
/// SQLite's own time-out backs off to sleeps of 100 ms, and whoever wakes early wins: waits of
/// seconds were seen. Short uneven sleeps cut the longest wait 5 to 15 times.
#[expect(
    clippy::disallowed_methods,
    reason = "SQLite asks us to wait here; there is no condition"
)]
fn wait_a_little(times: i32) -> bool {
    const MEAN: Duration = Duration::from_micros(500);
    let times = u32::try_from(times).unwrap_or(0);
    if MEAN * times > BUSY_LIMIT {
        return false;
    }
    std::thread::sleep(Duration::from_micros(u64::from(200 + 37 * times % 600)));
    true
}

/// Turns an error of SQLite into one of ours.
pub(super) fn failed(error: &rusqlite::Error, shard: ShardId, path: &Path) -> Error {
    let what = |text: &str| format!("shard {shard} ({}) {text}", path.display());
    let error_of = |kind, text: &str| Error::new(kind, what(text)).caused_by(error);
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            error_of(ErrorKind::Busy, "is held by another process")
                .hint("nothing was lost; try again")
        }
        Some(ErrorCode::DiskFull) => error_of(ErrorKind::Unavailable, "has no space left")
            .hint("nothing was lost; free some space on its file system"),
        Some(ErrorCode::DatabaseCorrupt) => error_of(ErrorKind::Damaged, "is corrupt")
            .hint("stop all runners, then restore a backup of this file"),
        Some(ErrorCode::NotADatabase) => foreign(path, "not an SQLite database"),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            error_of(ErrorKind::Unavailable, "cannot be written")
                .hint("check the owner and the permissions of the store's directory")
        }
        Some(ErrorCode::CannotOpen) => error_of(ErrorKind::Unavailable, "cannot be opened")
            .hint("check that the file is there and who may read and write it"),
        Some(ErrorCode::SystemIoFailure) => {
            error_of(ErrorKind::Unavailable, "cannot be read or written")
        }
        Some(_) | None => error_of(ErrorKind::Internal, "answered unexpectedly"),
    }
}
