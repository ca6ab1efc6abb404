//! The SQLite backend: one file a shard, in a directory of its own.
//!
//! The only code that knows rusqlite. Reading goes through a pool a shard; writing goes through one
//! writer a shard, which in a process that serves is a thread that groups, and in one that only
//! visits is the caller itself.

mod backup;
mod batch;
mod check;
mod checkpoint;
mod clean;
mod conn;
mod desk;
mod edit;
mod granting;
mod grants;
mod history;
mod intake;
mod layout;
mod lease;
mod limits;
mod links;
mod list;
mod migrate;
mod network;
mod outbox;
mod pauses;
#[cfg(test)]
mod plans;
mod pool;
mod read;
mod repair;
mod retry;
mod row;
mod settle;
mod shard;
mod stand;
mod steer;
mod supply;
mod tx;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::checkpoint::Checkpointer;
use self::layout::Manifest;
use self::shard::Shard;
use super::placement::{Placement, Placer};
use super::{Paused, Release, Store};
use crate::ambient::{Clock, Dice};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Released, ShardId, Timestamp};

pub use backup::Copied;
pub use check::{Finding, Look, Severity};
pub use desk::Durability;
pub use layout::{NewStore, decisions_dir, events_dir, looseness, output_dir, runners_dir};
pub use pool::PoolStats;
pub use writer::WriterStats;

/// How a process uses a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It stays: a writer thread a shard, and a checkpointing thread.
    Serve,
    /// It does a thing or two and leaves: no threads, and nothing is opened that is not used.
    Visit,
}

/// A store in a directory.
pub struct SqliteStore {
    root: PathBuf,
    manifest: Manifest,
    placer: Placer,
    // Before the checkpointer: writers wait for it until they are gone.
    shards: Vec<Shard>,
    checkpointer: Option<Arc<Checkpointer>>,
    durability: Durability,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("root", &self.root)
            .field("manifest", &self.manifest)
            .finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the store at `root`; makes it like `new` if there is none. Any number of processes may
    /// do so at once.
    ///
    /// # Errors
    ///
    /// `Damaged` if something else lives there or a shard is not what it must be, `NewerSchema` if a
    /// newer fairq wrote it, `Unavailable` if it cannot be reached.
    pub fn open_or_create(
        root: &Path,
        new: NewStore,
        mode: Mode,
        durability: Durability,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self> {
        let (manifest, _) = layout::ensure(root, new, clock.now(), Dice::fresh().bits())?;
        Self::with_manifest(root, manifest, mode, durability, clock)
    }

    /// Opens the store at `root`; `None` if there is none.
    ///
    /// # Errors
    ///
    /// As [`Self::open_or_create`].
    pub fn open(
        root: &Path,
        mode: Mode,
        durability: Durability,
        clock: &Arc<dyn Clock>,
    ) -> Result<Option<Self>> {
        layout::find(root)?
            .map(|manifest| Self::with_manifest(root, manifest, mode, durability, clock))
            .transpose()
    }

    /// Makes the store at `root` like `new`; `false` if one was there already, which stays as it is.
    ///
    /// # Errors
    ///
    /// As [`Self::open_or_create`].
    pub fn create(root: &Path, new: NewStore, clock: &dyn Clock) -> Result<bool> {
        layout::ensure(root, new, clock.now(), Dice::fresh().bits()).map(|(_, made)| made)
    }

    fn with_manifest(
        root: &Path,
        manifest: Manifest,
        mode: Mode,
        durability: Durability,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self> {
        let checkpointer = match mode {
            Mode::Serve => Some(Checkpointer::start(root, &manifest)?),
            Mode::Visit => None,
        };
        let shards = ShardId::first(manifest.shards)
            .map(|shard| {
                Shard::new(
                    root,
                    shard,
                    &manifest,
                    checkpointer.clone(),
                    Arc::clone(clock),
                )
            })
            .collect();
        // Each process starts its turns elsewhere, or all lone steps would meet on one shard.
        let start = usize::try_from(Dice::fresh().below(1 << 16)).unwrap_or(0);
        Ok(Self {
            root: root.to_owned(),
            placer: Placer::new(manifest.placement, manifest.shards, start),
            manifest,
            shards,
            checkpointer,
            durability,
        })
    }

    /// Returns the store's directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the store's random name.
    pub fn name(&self) -> &str {
        &self.manifest.store
    }

    /// Returns how steps are placed.
    pub const fn placement(&self) -> Placement {
        self.manifest.placement
    }

    /// Returns what the pool of each shard's reading connections has done, in the order of the shards.
    pub fn pools(&self) -> Vec<PoolStats> {
        self.shards.iter().map(Shard::pool_stats).collect()
    }

    /// Returns what the writer of each shard has done in this process, in the order of the shards.
    pub fn writers(&self) -> Vec<WriterStats> {
        self.shards.iter().map(Shard::writer_stats).collect()
    }

    /// Returns the path of a shard's file, for naming and measuring it. Nobody but SQLite may open
    /// it: the locks of a process on a file go with the first of its descriptors that is closed.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such shard.
    pub fn file(&self, shard: ShardId) -> Result<&Path> {
        Ok(self.shard(shard)?.path())
    }

    /// Returns the version of the schema that a shard's file has.
    ///
    /// # Errors
    ///
    /// The shard could not be read.
    pub fn schema_version(&self, shard: ShardId) -> Result<i32> {
        self.shard(shard)?.read(|connection| {
            connection.pragma_query_value(None, "user_version", |row| row.get(0))
        })
    }

    /// Lets so many connections of each shard read at once; those that do so stay.
    pub fn resize_pools(&self, readers: u32) {
        self.shards
            .iter()
            .for_each(|shard| shard.resize_pool(readers));
    }

    /// Returns what is paused, as one shard knows it: every other knows the same, but for the moment in
    /// which it is changed.
    ///
    /// # Errors
    ///
    /// Those of reading that shard.
    pub fn pauses_on(&self, shard: ShardId) -> Result<Vec<Paused>> {
        self.shard(shard)?.read(pauses::read)
    }

    fn shard(&self, shard: ShardId) -> Result<&Shard> {
        self.shards.get(shard.index()).ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                format!(
                    "there is no shard {shard} ({}): this store has {}",
                    shard.letter(),
                    self.shards.len()
                ),
            )
        })
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        // Writers first: each finishes what is queued, and may still wait for a checkpoint.
        self.shards.clear();
        if let Some(checkpointer) = &self.checkpointer {
            checkpointer.close();
        }
    }
}

impl Release for SqliteStore {
    fn deliver(&self, from: ShardId, now: Timestamp) -> Result<Vec<Released>> {
        outbox::deliver(self, from, now)
    }

    fn grant(&self, now: Timestamp) -> Result<Vec<Released>> {
        granting::grant(self, now)
    }

    fn mend(&self, now: Timestamp) -> Result<Vec<Released>> {
        outbox::mend(self, now)
    }
}

impl Store for SqliteStore {
    fn shard_count(&self) -> u8 {
        self.manifest.shards
    }
}
