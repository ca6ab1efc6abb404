//! The connection that a shard is written through, and a group of writes in one transaction.

use std::cell::Cell;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use rusqlite::Connection;

use super::conn;
use super::tx::Tx;
use crate::ambient::Clock;
use crate::error::Result;
use crate::model::ShardId;

/// Whether a write must survive a power cut before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// It survives any crash of processes.
    Normal,
    /// It survives a power cut.
    Full,
}

/// One write, to be run inside a transaction; run a second time if its group has to be undone.
pub(super) trait Job: Send {
    fn run(&mut self, tx: &Tx<'_>) -> rusqlite::Result<()>;
    fn finish(self: Box<Self>, outcome: Result<()>);
}

/// How long a write may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Haste {
    /// A thread stands still until it is done.
    Awaited,
    /// Nobody stands still, but it is to be written soon.
    Soon,
    /// Whoever brought it will write again at once, or say that he does not.
    Later,
}

pub(super) struct Queued {
    pub(super) job: Box<dyn Job>,
    pub(super) durability: Durability,
    pub(super) haste: Haste,
}

/// How a transaction went.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tried {
    /// From its begin to the end of its commit.
    pub(super) took: Duration,
    pub(super) writes: usize,
    /// Whether its writes are not tried again.
    pub(super) is_over: bool,
}

/// What has become of a group.
#[derive(Default)]
pub(super) struct Written {
    /// Each member, to be finished.
    pub(super) members: Vec<(Queued, Result<()>)>,
    pub(super) tries: Vec<Tried>,
    /// How many frames the log has now; 0 if nothing came to it.
    pub(super) frames: u32,
}

/// What writing to a shard takes.
pub(super) struct Desk {
    connection: Connection,
    level: Durability,
    shard: ShardId,
    path: PathBuf,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk")
            .field("shard", &self.shard)
            .finish_non_exhaustive()
    }
}

thread_local! {
    /// The frames in the log that this thread's commit has led to.
    static FRAMES: Cell<u32> = const { Cell::new(0) };
}

impl Desk {
    /// Returns the desk of a shard, whose connection it owns from now on.
    pub(super) fn new(
        connection: Connection,
        shard: ShardId,
        path: PathBuf,
        clock: Arc<dyn Clock>,
    ) -> Self {
        connection.wal_hook(Some(|_, frames| {
            FRAMES.set(u32::try_from(frames).unwrap_or(0));
            Ok(())
        }));
        Self {
            connection,
            level: Durability::Normal,
            shard,
            path,
            clock,
        }
    }

    /// Writes a group in one transaction; if that fails, each member in one of its own.
    pub(super) fn write(&mut self, group: Vec<Queued>) -> Written {
        FRAMES.set(0);
        let mut written = Written::default();
        self.attempt(group, &mut written);
        written.frames = FRAMES.get();
        written
    }

    fn attempt(&mut self, mut group: Vec<Queued>, written: &mut Written) {
        let began = self.clock.monotonic();
        let outcome = self.transact(&mut group);
        written.tries.push(Tried {
            took: self.clock.monotonic().saturating_sub(began),
            writes: group.len(),
            is_over: outcome.is_ok() || group.len() == 1,
        });
        let members = &mut written.members;
        match outcome {
            Ok(()) => members.extend(group.into_iter().map(|queued| (queued, Ok(())))),
            Err(_) if group.len() > 1 => {
                for queued in group {
                    self.attempt(vec![queued], written);
                }
            }
            Err(error) => {
                let error = conn::failed(&error, self.shard, &self.path);
                members.extend(group.into_iter().map(|queued| (queued, Err(error.clone()))));
            }
        }
    }

    fn transact(&mut self, group: &mut [Queued]) -> rusqlite::Result<()> {
        let wanted = group
            .iter()
            .map(|queued| queued.durability)
            .max()
            .unwrap_or(self.level);
        set_durability(&self.connection, &mut self.level, wanted)?;
        let tx = Tx::begin(&self.connection, self.shard)?;
        for queued in group {
            if let Err(error) = queued.job.run(&tx) {
                tx.roll_back();
                return Err(error);
            }
        }
        tx.commit()
    }
}

/// Ends the transaction that somebody's panic has left open.
pub(super) fn after_panic(desk: MutexGuard<'_, Desk>) -> MutexGuard<'_, Desk> {
    if !desk.connection.is_autocommit() {
        // If it cannot be ended, the next write says so.
        drop(desk.connection.execute_batch("ROLLBACK"));
    }
    desk
}

/// Sets how far the next commit goes; costs a microsecond, and nothing where it stays.
pub(super) fn set_durability(
    connection: &Connection,
    level: &mut Durability,
    wanted: Durability,
) -> rusqlite::Result<()> {
    if *level != wanted {
        let word = match wanted {
            Durability::Normal => "NORMAL",
            Durability::Full => "FULL",
        };
        connection.pragma_update(None, "synchronous", word)?;
        *level = wanted;
    }
    Ok(())
}
