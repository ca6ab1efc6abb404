//! Copying a store while it is used.
//!
//! Each shard is copied in one snapshot: the copy is what the shard held at one instant, and nobody
//! waits for it. Different shards are copied at different instants.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rusqlite::Connection;
use serde::Serialize;

use super::SqliteStore;
use super::check::files;
use super::layout::{self, shard_path};
use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::model::ShardId;

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Copied {
    /// How many shards.
    pub shards: u8,
    /// How many files of outputs.
    pub outputs: u64,
    /// How many files of outputs were gone when their turn came: their steps were forgotten meanwhile.
    pub missing: u64,
    /// How large all of it is.
    pub bytes: u64,
}

impl SqliteStore {
    /// Copies the store into a directory, which is made if it is not there and must be empty. Others
    /// may work with the store meanwhile. `progress` is called before each part with what it is. The
    /// copy is a store once its manifest is there, which is written last.
    ///
    /// # Errors
    ///
    /// `Usage` if the directory is not empty or lies in the store; `Unavailable` if a part cannot be
    /// read or written: what was copied by then stays, and is no store.
    pub fn back_up(&self, to: &Path, progress: &mut dyn FnMut(&str)) -> Result<Copied> {
        self.refuse_target(to)?;
        layout::make_dir(to)?;
        let mut copied = Copied::default();
        for shard in &self.shards {
            progress(&format!("shard {}", shard.id()));
            let unfinished = to.join(format!("shard-{}.db.new", shard.id()));
            let source = shard.own_connection()?;
            copy(&source, &unfinished).map_err(|error| {
                super::conn::failed(&error, shard.id(), &unfinished)
                    .context(format!("cannot copy shard {}", shard.id()))
            })?;
            copied.bytes += fs::metadata(&unfinished).map_or(0, |about| about.len());
            copied.shards += 1;
        }
        for shard in &self.shards {
            let path = to.join(format!("shard-{}.db.new", shard.id()));
            self.copy_outputs(shard.id(), &path, to, progress, &mut copied)?;
        }
        for shard in &self.shards {
            let unfinished = to.join(format!("shard-{}.db.new", shard.id()));
            fs::rename(&unfinished, shard_path(to, shard.id()))
                .or_fail(ErrorKind::Unavailable, || {
                    format!("cannot rename {}", unfinished.display())
                })?;
        }
        layout::make_dirs(to)?;
        layout::write_manifest(to, &self.manifest)?;
        Ok(copied)
    }

    fn refuse_target(&self, to: &Path) -> Result<()> {
        let refused = |what: String| {
            Err(Error::new(ErrorKind::Usage, what).hint("name a new or an empty directory"))
        };
        match fs::read_dir(to) {
            Ok(mut entries) => {
                if entries.next().is_some() {
                    return refused(format!("{} is not empty", to.display()));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return refused(format!("{} is not a directory", to.display()));
            }
            Err(error) => {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    format!("cannot read {}", to.display()),
                )
                .caused_by(&error));
            }
        }
        // The directory may not be there yet: its nearest ancestor that is tells where it will lie.
        let to = std::path::absolute(to).unwrap_or_else(|_| to.to_owned());
        let there = to.ancestors().find_map(|above| above.canonicalize().ok());
        let root = self.root.canonicalize().ok();
        if let (Some(there), Some(root)) = (there, root)
            && there.starts_with(&root)
        {
            return refused(format!("{} lies in the store itself", to.display()));
        }
        Ok(())
    }

    /// Copies the files of outputs that a copied shard names.
    fn copy_outputs(
        &self,
        shard: ShardId,
        copy: &Path,
        to: &Path,
        progress: &mut dyn FnMut(&str),
        copied: &mut Copied,
    ) -> Result<()> {
        let wrap = |error: rusqlite::Error| super::conn::failed(&error, shard, copy);
        let connection = Connection::open(copy).map_err(wrap)?;
        for file in files::named(&connection).map_err(wrap)? {
            progress(&format!("output {}", file.display()));
            let target = to.join(&file);
            let failed = || format!("cannot copy {}", file.display());
            let mut source = match File::open(self.root.join(&file)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    copied.missing += 1;
                    continue;
                }
                opened => opened.or_fail(ErrorKind::Unavailable, failed)?,
            };
            if let Some(folder) = target.parent() {
                layout::make_dir(folder)?;
            }
            let mut made = layout::private_file(&target)?;
            copied.bytes +=
                io::copy(&mut source, &mut made).or_fail(ErrorKind::Unavailable, failed)?;
            made.sync_all().or_fail(ErrorKind::Unavailable, failed)?;
            copied.outputs += 1;
        }
        Ok(())
    }
}

/// Writes all that a connection sees in one snapshot to a new file, which only its owner may use.
/// An unfinished one of that name is replaced.
pub(super) fn copy(source: &Connection, to: &Path) -> rusqlite::Result<()> {
    let cannot = |error: io::Error| rusqlite::Error::ToSqlConversionFailure(Box::new(error));
    // SQLite takes an empty file for a new one, and keeps its mode.
    layout::private_file(to)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.to_string().into()))?;
    let name = to
        .to_str()
        .ok_or_else(|| rusqlite::Error::InvalidPath(to.to_owned()))?;
    source.execute("VACUUM INTO ?1", [name])?;
    let made = Connection::open(to)?;
    made.pragma_update(None, "journal_mode", "WAL")?;
    made.close().map_err(|(_, error)| error)?;
    File::open(to)
        .and_then(|file| file.sync_all())
        .map_err(cannot)
}
