//! Beside the shards: who may read them, on what they lie, and outputs that belong to nobody.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::{Finding, some_of};
use crate::error::Result;
use crate::model::{LocalId, ShardId, StepId};
use crate::store::sqlite::{SqliteStore, network, output_dir};

/// Looks at the files of a store.
pub(super) fn check(store: &SqliteStore, readable: &[ShardId]) -> Vec<Finding> {
    let root = store.root();
    let at = root.display().to_string();
    let mut findings = Vec::new();
    if let Some(kind) = network::kind(root) {
        findings.push(Finding::error(
            "file system",
            &at,
            format!("is on a {kind} file system, where SQLite's locks are not safe"),
            "stop all runners, and move the store to a local disk",
        ));
    }
    let loose = loose(root);
    if !loose.is_empty() {
        findings.push(Finding::warning(
            "modes",
            &at,
            format!("others may look into {}", some_of(&loose)),
            format!("chmod -R go= {at}"),
        ));
    }
    match stray(store, readable) {
        Ok(stray) if stray.is_empty() => {}
        Ok(stray) => {
            let names: Vec<String> = stray
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            findings.push(Finding::warning(
                "outputs",
                &at,
                format!("{} belong to no step", some_of(&names)),
                "fairq doctor --repair removes them",
            ));
        }
        Err(error) => findings.push(Finding::of_error("outputs", &at, &error)),
    }
    findings
}

/// Returns the length of a shard's write-ahead log. It is never opened: closing any descriptor of it
/// would take SQLite's locks away.
pub(super) fn log_length(path: &Path) -> Option<u64> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    fs::metadata(log).ok().map(|about| about.len())
}

/// Returns the names of the directory and of what is in it that others than the owner may use.
fn loose(root: &Path) -> Vec<String> {
    let is_loose = |path: &Path| {
        path.symlink_metadata()
            .is_ok_and(|about| !about.is_symlink() && about.permissions().mode() & 0o077 != 0)
    };
    let mut found = BTreeSet::new();
    if is_loose(root) {
        found.insert(root.display().to_string());
    }
    for path in entries(root).into_iter().filter(|path| is_loose(path)) {
        found.insert(path.display().to_string());
    }
    found.into_iter().collect()
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect()
}

/// Returns the files of outputs that no step of the shards that can be read has, below the store's
/// directory. A try that runs may have its file before it has its row, and is left alone.
pub(in crate::store::sqlite) fn stray(
    store: &SqliteStore,
    readable: &[ShardId],
) -> Result<Vec<PathBuf>> {
    // The files first: what is recorded after that is not among them.
    let mut files: Vec<(StepId, u32, PathBuf)> = Vec::new();
    for folder in entries(&output_dir(store.root())) {
        for file in entries(&folder) {
            let below = file.strip_prefix(store.root()).map(Path::to_owned);
            if let (Some((id, fence)), Ok(below)) = (whose(&file), below) {
                files.push((id, fence, below));
            }
        }
    }
    files.sort_unstable();
    let mut found = Vec::new();
    for shard in store
        .shards
        .iter()
        .filter(|shard| readable.contains(&shard.id()))
    {
        let mut own = files
            .iter()
            .filter(|(id, ..)| id.shard == shard.id())
            .peekable();
        if own.peek().is_none() {
            continue;
        }
        let (named, running) = shard.read(|connection| {
            let running = connection
                .prepare("SELECT id, fence FROM running")?
                .query_map([], |row| Ok((LocalId::new(row.get(0)?), row.get(1)?)))?
                .collect::<rusqlite::Result<BTreeSet<(LocalId, u32)>>>()?;
            let named = named(connection)?;
            Ok((named.into_iter().collect::<BTreeSet<_>>(), running))
        })?;
        let is_stray = |(id, fence, path): &&(StepId, u32, PathBuf)| {
            !named.contains(path) && !running.contains(&(id.local, *fence))
        };
        found.extend(own.filter(is_stray).map(|(.., path)| path.clone()));
    }
    Ok(found)
}

/// Returns the files of outputs that a shard names, below the store's directory.
pub(in crate::store::sqlite) fn named(
    connection: &rusqlite::Connection,
) -> rusqlite::Result<Vec<PathBuf>> {
    connection
        .prepare("SELECT path FROM output WHERE path IS NOT NULL ORDER BY id, fence, stream")?
        .query_map([], |row| Ok(PathBuf::from(OsString::from_vec(row.get(0)?))))?
        .collect()
}

/// Returns whose output a file is, by its name: `a17-3.out` is that of the third claim of `a17`.
fn whose(file: &Path) -> Option<(StepId, u32)> {
    let (id, fence) = file.file_stem()?.to_str()?.rsplit_once('-')?;
    Some((id.parse().ok()?, fence.parse().ok()?))
}
