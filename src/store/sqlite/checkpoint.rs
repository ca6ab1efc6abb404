//! Folding the write-ahead log back into the shard's file, off the writer's path.
//!
//! A checkpoint in the writer's path stops it for 40 to 280 ms; one thread beside the writers does
//! them in small steps as soon as there is something to fold. Where it cannot keep up, the writer is
//! made to wait: a log without bound is worse than a slow minute.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;

use super::conn::{self, Use};
use super::layout::{Manifest, shard_path};
use crate::error::{Error, ErrorKind, Result};
use crate::model::ShardId;

/// Frames (pages of 4 KiB) from which a passive pass is made.
const FOLD: u32 = 1_024;
/// Frames from which readers are waited for, so that the log begins anew.
const RESTART: u32 = 16_384;
/// Frames from which the writer waits for a pass.
const HOLD: u32 = 65_536;

#[derive(Debug, Default)]
struct State {
    /// Shards whose log wants folding, with its frames.
    wanted: BTreeMap<ShardId, u32>,
    /// The frames at which a pass was last asked for: one pass for each so many new frames.
    folded: BTreeMap<ShardId, u32>,
    /// How many passes were made on a shard: a writer that waits looks for a change.
    passes: BTreeMap<ShardId, u64>,
    closed: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// A handle on the checkpointing thread of one store.
#[derive(Debug)]
pub(super) struct Checkpointer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Checkpointer {
    /// Starts the thread for all shards of a store.
    pub(super) fn start(root: &Path, manifest: &Manifest) -> Result<Arc<Self>> {
        let mut connections = BTreeMap::new();
        for shard in ShardId::first(manifest.shards) {
            // A shard that cannot be opened now has no writer either.
            if let Ok(opened) = conn::open(&shard_path(root, shard), shard, manifest, Use::Write) {
                connections.insert(shard, opened);
            }
        }
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("checkpointer".to_owned())
            .spawn(move || serve(&theirs, &connections))
            .map_err(|error| {
                Error::new(ErrorKind::Unavailable, "cannot start the checkpointer")
                    .caused_by(&error)
            })?;
        Ok(Arc::new(Self {
            shared,
            thread: Mutex::new(Some(thread)),
        }))
    }

    /// Takes note of a commit; waits for a pass where the log is far too long.
    pub(super) fn committed(&self, shard: ShardId, frames: u32) {
        if frames < FOLD {
            return;
        }
        let mut state = self.shared.lock();
        let folded = state.folded.entry(shard).or_default();
        if frames < *folded {
            // The log has begun anew since.
            *folded = 0;
        }
        if frames - *folded < FOLD {
            return;
        }
        *folded = frames;
        state.wanted.insert(shard, frames);
        self.shared.changed.notify_all();
        if frames >= HOLD {
            let before = state.passes.get(&shard).copied();
            while state.passes.get(&shard).copied() == before && !state.closed {
                state = self
                    .shared
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Ends the thread after the pass that it is in.
    pub(super) fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            drop(thread.join());
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn serve(shared: &Shared, connections: &BTreeMap<ShardId, Connection>) {
    loop {
        let (shard, frames) = {
            let mut state = shared.lock();
            loop {
                if state.closed {
                    return;
                }
                if let Some(next) = state.wanted.pop_first() {
                    break next;
                }
                state = shared
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        };
        if let Some(connection) = connections.get(&shard) {
            let mode = if frames >= RESTART {
                "RESTART"
            } else {
                "PASSIVE"
            };
            // What it returns tells how far it came; a pass that was kept short by a reader is made
            // up for by the next one, and a failing disk is found by the writer itself.
            drop(
                connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
                    row.get::<_, i64>(0)
                }),
            );
        }
        *shared.lock().passes.entry(shard).or_default() += 1;
        shared.changed.notify_all();
    }
}
