//! The store's directory: its manifest, its files, and how it comes to be.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::conn;
use super::migrate;
use super::network;
use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::model::{ShardId, Timestamp};
use crate::store::placement::Placement;

const MANIFEST: &str = "fairq.toml";
const LOCK: &str = "init.lock";
const LIMITS_LOCK: &str = "limits.lock";
/// No manifest is larger.
const MOST_BYTES: u64 = 64 * 1024;
/// The layout that this build writes.
const FORMAT: u32 = 1;

/// What kind of store it is, as told by the manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// The layout of the directory.
    pub(super) format: u32,
    /// A random name, which each shard repeats.
    pub(super) store: String,
    /// How many shards there are.
    pub(super) shards: u8,
    /// Where steps go.
    pub(super) placement: Placement,
}

/// Who a shard's file says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) store: String,
    pub(super) shard: ShardId,
    pub(super) shards: u8,
    pub(super) placement: Placement,
    pub(super) created: Timestamp,
}

impl Identity {
    pub(super) fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        let out_of_range =
            |column, value: i64| rusqlite::Error::IntegralValueOutOfRange(column, value);
        let number: i64 = row.get(1)?;
        let shards: i64 = row.get(2)?;
        let placement: String = row.get(3)?;
        Ok(Self {
            store: row.get(0)?,
            shard: u8::try_from(number)
                .ok()
                .and_then(ShardId::new)
                .ok_or_else(|| out_of_range(1, number))?,
            shards: u8::try_from(shards).or(Err(out_of_range(2, shards)))?,
            placement: match placement.as_str() {
                "key" => Placement::Key,
                "spread" => Placement::Spread,
                _ => return Err(rusqlite::Error::InvalidQuery),
            },
            created: Timestamp::from_millis(row.get(4)?),
        })
    }
}

/// Returns the word for a placement in a shard's file.
pub(super) const fn placement_word(placement: Placement) -> &'static str {
    match placement {
        Placement::Key => "key",
        Placement::Spread => "spread",
    }
}

/// What a new store shall be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewStore {
    /// How many shards, from 1.
    pub shards: u8,
    /// Where steps go.
    pub placement: Placement,
}

/// Returns the path of a shard's file.
pub(super) fn shard_path(root: &Path, shard: ShardId) -> PathBuf {
    root.join(format!("shard-{shard}.db"))
}

/// Returns the directory of large outputs.
pub fn output_dir(root: &Path) -> PathBuf {
    root.join("output")
}

/// Returns the directory of live runners.
pub fn runners_dir(root: &Path) -> PathBuf {
    root.join("runners")
}

/// Returns the directory of the logs of decisions.
pub fn decisions_dir(root: &Path) -> PathBuf {
    root.join("decisions")
}

/// Returns the directory of the runners' event logs; the first runner makes it.
pub fn events_dir(root: &Path) -> PathBuf {
    root.join("events")
}

/// The file that is locked by whoever gives places of limits away.
pub(super) fn limits_lock(root: &Path) -> PathBuf {
    root.join(LIMITS_LOCK)
}

/// Opens a file of the store's own, making it if need be, for nobody else to read.
pub(super) fn open_private(path: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

/// Reads the manifest of the store at `root`; `None` if there is no store yet.
pub(super) fn read(root: &Path) -> Result<Option<Manifest>> {
    let path = root.join(MANIFEST);
    let mut bytes = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(MOST_BYTES).read_to_end(&mut bytes));
    match read {
        Ok(_) => understand(root, &bytes),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => Err(Error::new(
            ErrorKind::Unavailable,
            format!("{} is not a directory", root.display()),
        )
        .hint("point --store at a directory")),
        Err(error) => Err(Error::new(
            ErrorKind::Unavailable,
            format!("cannot read the store at {}", root.display()),
        )
        .caused_by(&error)),
    }
}

/// Reads what the manifest of the store at `root` says.
fn understand(root: &Path, bytes: &[u8]) -> Result<Option<Manifest>> {
    // An empty manifest is what a power cut can leave behind; the shards know the same.
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let path = root.join(MANIFEST);
    let manifest: Manifest = toml::from_slice(bytes).map_err(|error| {
        Error::new(ErrorKind::Damaged, format!("{} is not a store's manifest", path.display()))
            .caused_by(&error)
            .hint("nothing was changed; point --store at another directory, or remove this file if the shards beside it are yours: it is made again from them")
    })?;
    if manifest.format > FORMAT {
        return Err(Error::new(
            ErrorKind::NewerSchema,
            format!(
                "{} has format {}, this fairq knows formats up to {FORMAT}",
                root.display(),
                manifest.format
            ),
        )
        .hint("nothing was changed; use the fairq that wrote it, or a newer one"));
    }
    if manifest.format == 0 || !(1..=ShardId::MAX_SHARDS).contains(&manifest.shards) {
        return Err(Error::new(
            ErrorKind::Damaged,
            format!(
                "{} names format {} and {} shards",
                path.display(),
                manifest.format,
                manifest.shards
            ),
        ));
    }
    Ok(Some(manifest))
}

/// Finds the store at `root` and changes nothing there: by its manifest or, where that was lost, by
/// its shards. `None` if there is no store yet.
pub(super) fn find(root: &Path) -> Result<Option<Manifest>> {
    if let Some(manifest) = read(root)? {
        return Ok(Some(manifest));
    }
    // A directory in which something else lives is not a store that is yet to be made.
    refuse_strangers(root)?;
    recover(root)
}

/// Makes the store at `root` if it is not there, and returns its manifest. Any number of processes
/// may do so at once: one makes it, the others find it. `true` if this call made it.
pub(super) fn ensure(
    root: &Path,
    new: NewStore,
    now: Timestamp,
    random: u64,
) -> Result<(Manifest, bool)> {
    if let Some(manifest) = read(root)? {
        return Ok((manifest, false));
    }
    refuse_strangers(root)?;
    make_dir(root)?;
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(root.join(LOCK))
        .or_fail(ErrorKind::Unavailable, || {
            format!("cannot write in {}", root.display())
        })?;
    lock.lock().or_fail(ErrorKind::Unavailable, || {
        format!(
            "cannot lock {}: is it on a network file system?",
            root.display()
        )
    })?;
    if let Some(manifest) = read(root)? {
        return Ok((manifest, false));
    }
    network::refuse(root)?;
    let (manifest, made) = match recover(root)? {
        Some(manifest) => (manifest, false),
        None => (create_shards(root, new, now, random)?, true),
    };
    make_dirs(root)?;
    write_manifest(root, &manifest)?;
    Ok((manifest, made))
}

/// Says who is meant where a store's directory is loose, as a warning; `None` if it is private.
pub fn looseness(root: &Path) -> Option<String> {
    let mode = fs::metadata(root).ok()?.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then(|| {
        format!(
            "{} can be entered by others (mode {mode:04o}); chmod 700 it",
            root.display()
        )
    })
}

/// Makes a directory that only its owner may enter; one that is there stays as it is.
pub(super) fn make_dir(path: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|error| {
            Error::new(
                ErrorKind::Unavailable,
                format!("cannot make the directory {}", path.display()),
            )
            .caused_by(&error)
            .hint("check who may write there, or point --store at another directory")
        })
}

/// Makes the directories of a store.
pub(super) fn make_dirs(root: &Path) -> Result<()> {
    make_dir(&output_dir(root))?;
    make_dir(&runners_dir(root))?;
    make_dir(&decisions_dir(root))
}

/// Refuses to put a store into a directory where something else lives.
fn refuse_strangers(root: &Path) -> Result<()> {
    let ours = |name: &str| {
        matches!(
            name,
            MANIFEST
                | LOCK
                | LIMITS_LOCK
                | "output"
                | "runners"
                | "decisions"
                | "events"
                | "fairq.toml.new"
        ) || (name.starts_with("shard-") && name.contains(".db"))
    };
    let entries = match fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!("cannot read the directory {}", root.display()),
            )
            .caused_by(&error));
        }
    };
    for entry in entries {
        let entry = entry.or_fail(ErrorKind::Unavailable, || {
            format!("cannot list {}", root.display())
        })?;
        let name = entry.file_name();
        if !name.to_str().is_some_and(ours) {
            return Err(Error::new(
                ErrorKind::Damaged,
                format!(
                    "{} holds something else ({}) and no fairq store",
                    root.display(),
                    name.display()
                ),
            )
            .hint("nothing was changed; point --store at an empty or a new directory"));
        }
    }
    Ok(())
}

/// Returns what the manifest must have said, from shards that are there without one.
fn recover(root: &Path) -> Result<Option<Manifest>> {
    let mut manifest: Option<Manifest> = None;
    let mut untouched = true;
    for shard in ShardId::first(ShardId::MAX_SHARDS) {
        let path = shard_path(root, shard);
        if !path.exists() {
            continue;
        }
        let identity = match conn::inspect(&path)? {
            conn::Found::Ours(identity, fresh) => {
                untouched &= fresh;
                identity
            }
            conn::Found::Foreign(what) => return Err(conn::foreign(&path, &what)),
            conn::Found::Newer(version) => return Err(conn::newer(&path, version)),
            conn::Found::Older(version) => return Err(migrate::older(&path, version)),
        };
        let told = Manifest {
            format: FORMAT,
            store: identity.store,
            shards: identity.shards,
            placement: identity.placement,
        };
        match &manifest {
            None => manifest = Some(told),
            Some(first) if *first == told => {}
            Some(first) => {
                return Err(Error::new(
                    ErrorKind::Damaged,
                    format!(
                        "{} holds shards of two stores, {} and {}",
                        root.display(),
                        first.store,
                        told.store
                    ),
                ));
            }
        }
    }
    let Some(manifest) = manifest else {
        return Ok(None);
    };
    let missing: Vec<String> = ShardId::first(manifest.shards)
        .filter(|shard| !shard_path(root, *shard).exists())
        .map(|shard| shard.to_string())
        .collect();
    if missing.is_empty() {
        return Ok(Some(manifest));
    }
    // A process that was killed while it made the store left some of its shards, all untouched:
    // they are made again. Had any of them ever been used, shards would really be missing.
    if untouched {
        return Ok(None);
    }
    Err(Error::new(
        ErrorKind::Damaged,
        format!(
            "{} lacks its manifest and the shards {}",
            root.display(),
            missing.join(", ")
        ),
    )
    .hint("put the missing files back"))
}

fn create_shards(root: &Path, new: NewStore, now: Timestamp, random: u64) -> Result<Manifest> {
    let manifest = Manifest {
        format: FORMAT,
        store: format!("{random:016x}"),
        shards: new.shards,
        placement: new.placement,
    };
    for shard in ShardId::first(new.shards) {
        let path = shard_path(root, shard);
        // Built under another name: what bears a shard's name is always whole.
        let unfinished = root.join(format!("shard-{shard}.db.new"));
        for suffix in ["", "-wal", "-shm"] {
            let mut stale = unfinished.clone().into_os_string();
            stale.push(suffix);
            match fs::remove_file(&stale) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(cannot_remove(Path::new(&stale), &error)),
            }
        }
        // SQLite gives the WAL and its index the modes of the main file.
        private_file(&unfinished)?;
        let identity = Identity {
            store: manifest.store.clone(),
            shard,
            shards: new.shards,
            placement: new.placement,
            created: now,
        };
        conn::create(&unfinished, &identity)?;
        fs::rename(&unfinished, &path).or_fail(ErrorKind::Unavailable, || {
            format!("cannot make {}", path.display())
        })?;
    }
    Ok(manifest)
}

/// Says that a file stays that should go.
pub(super) fn cannot_remove(path: &Path, error: &std::io::Error) -> Error {
    let what = format!("cannot remove {}", path.display());
    Error::new(ErrorKind::Unavailable, what).caused_by(error)
}

/// Makes an empty file that only its owner may use.
pub(super) fn private_file(path: &Path) -> Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .or_fail(ErrorKind::Unavailable, || {
            format!("cannot make {}", path.display())
        })
}

pub(super) fn write_manifest(root: &Path, manifest: &Manifest) -> Result<()> {
    let failed = || format!("cannot write the manifest in {}", root.display());
    let text = toml::to_string(manifest).or_fail(ErrorKind::Internal, failed)?;
    let unfinished = root.join("fairq.toml.new");
    let mut file = private_file(&unfinished)?;
    file.write_all(text.as_bytes())
        .or_fail(ErrorKind::Unavailable, failed)?;
    file.sync_all().or_fail(ErrorKind::Unavailable, failed)?;
    fs::rename(&unfinished, root.join(MANIFEST)).or_fail(ErrorKind::Unavailable, failed)?;
    sync_dir(&unfinished)
}

/// Lets the name of a file in a directory survive a power cut, too: an acknowledged step is worth
/// nothing in a file that nobody finds.
pub(super) fn sync_dir(file: &Path) -> Result<()> {
    let root = file.parent().unwrap_or(file);
    File::open(root)
        .and_then(|directory| directory.sync_all())
        .or_fail(ErrorKind::Unavailable, || {
            format!("cannot make the names in {} last", root.display())
        })
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
