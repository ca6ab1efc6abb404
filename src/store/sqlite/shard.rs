//! One shard as this process sees it: where it reads and where it writes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rusqlite::Connection;

use super::checkpoint::Checkpointer;
use super::conn::{self, Use};
use super::desk::{self, Durability};
use super::layout::{Manifest, shard_path};
use super::pool::{PoolStats, ReadPool};
use super::row::EnvCache;
use super::tx::Tx;
use super::writer::{Writer, WriterStats};
use crate::ambient::Clock;
use crate::error::Result;
use crate::model::ShardId;

/// How many connections read at once: the refiller, and a few for people.
const READERS: u32 = 4;

#[derive(Debug)]
enum Writing {
    /// A thread that groups, started at the first write.
    Thread(OnceLock<Writer>, Arc<Checkpointer>),
    /// The caller's own thread, one at a time.
    Here(Mutex<Option<(Connection, Durability)>>),
}

/// One shard of an open store.
#[derive(Debug)]
pub(super) struct Shard {
    id: ShardId,
    path: PathBuf,
    manifest: Manifest,
    readers: ReadPool,
    writing: Writing,
    starting: Mutex<()>,
    watch: Mutex<Option<Connection>>,
    envs: Arc<EnvCache>,
    clock: Arc<dyn Clock>,
}

impl Shard {
    pub(super) fn new(
        root: &Path,
        id: ShardId,
        manifest: &Manifest,
        checkpointer: Option<Arc<Checkpointer>>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let path = shard_path(root, id);
        let writing = match checkpointer {
            Some(checkpointer) => Writing::Thread(OnceLock::new(), checkpointer),
            None => Writing::Here(Mutex::new(None)),
        };
        Self {
            id,
            readers: ReadPool::new(&path, id, manifest, READERS, Arc::clone(&clock)),
            path,
            manifest: manifest.clone(),
            writing,
            starting: Mutex::new(()),
            watch: Mutex::new(None),
            envs: Arc::default(),
            clock,
        }
    }

    pub(super) const fn id(&self) -> ShardId {
        self.id
    }

    /// Returns the environments of this shard that were read lately.
    pub(super) fn envs(&self) -> Arc<EnvCache> {
        Arc::clone(&self.envs)
    }

    pub(super) fn pool_stats(&self) -> PoolStats {
        self.readers.stats()
    }

    /// Returns what the writer's thread has done; nothing where there is none.
    pub(super) fn writer_stats(&self) -> WriterStats {
        match &self.writing {
            Writing::Thread(writer, _) => writer.get().map(Writer::stats).unwrap_or_default(),
            Writing::Here(_) => WriterStats::default(),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn resize_pool(&self, readers: u32) {
        self.readers.resize(readers);
    }

    /// Reads in one transaction: whatever `read` asks for is of one moment. What moves between tables
    /// while each is asked on its own would be in none of them.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let failed = |error| conn::failed(&error, self.id, &self.path);
        // Opening a file costs a passer-by more than all that it asks.
        if let Writing::Here(slot) = &self.writing
            && let Ok(held) = slot.try_lock()
            && let Some((connection, _)) = &*held
        {
            return snapshot(connection, read).map_err(failed);
        }
        snapshot(&*self.readers.get()?, read).map_err(failed)
    }

    /// Reads on the connection that `data_version` is asked of: it must always be the same one.
    pub(super) fn watch<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = match watch.take() {
            Some(connection) => connection,
            None => conn::open(&self.path, self.id, &self.manifest, Use::Read)?,
        };
        let value = read(&connection).map_err(|error| conn::failed(&error, self.id, &self.path))?;
        // Kept only while it answers: after an error the next call opens the file anew.
        *watch = Some(connection);
        Ok(value)
    }

    /// Writes in one transaction, perhaps together with others, and waits for it.
    pub(super) fn write<T, F>(&self, durability: Durability, mut work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Tx<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        match &self.writing {
            Writing::Thread(writer, checkpointer) => {
                self.writer(writer, checkpointer)?.write(durability, work)
            }
            Writing::Here(connection) => self.write_here(connection, durability, |tx| work(tx)),
        }
    }

    /// Writes in one transaction, perhaps together with others, and calls `done` afterwards.
    pub(super) fn submit<T, F, D>(&self, durability: Durability, mut work: F, done: D)
    where
        T: Send + 'static,
        F: FnMut(&Tx<'_>) -> rusqlite::Result<T> + Send + 'static,
        D: FnOnce(Result<T>) + Send + 'static,
    {
        match &self.writing {
            Writing::Thread(writer, checkpointer) => match self.writer(writer, checkpointer) {
                Ok(writer) => writer.submit(durability, work, done),
                Err(error) => done(Err(error)),
            },
            Writing::Here(connection) => {
                done(self.write_here(connection, durability, |tx| work(tx)));
            }
        }
    }

    /// As [`Self::submit`], by one who writes to this shard again at once or calls [`Self::hurry`].
    pub(super) fn leave<T, F, D>(&self, durability: Durability, work: F, done: D)
    where
        T: Send + 'static,
        F: FnMut(&Tx<'_>) -> rusqlite::Result<T> + Send + 'static,
        D: FnOnce(Result<T>) + Send + 'static,
    {
        if let Writing::Thread(slot, _) = &self.writing
            && let Some(writer) = slot.get()
        {
            writer.leave(durability, work, done);
        } else {
            self.submit(durability, work, done);
        }
    }

    /// Has all written now that was left for later.
    pub(super) fn hurry(&self) {
        if let Writing::Thread(slot, _) = &self.writing
            && let Some(writer) = slot.get()
        {
            writer.hurry();
        }
    }

    /// Returns a connection for a transaction in the caller's own hands, such as one that spans
    /// shards. In a process that visits, the one that it has, if it is free.
    pub(super) fn take_connection(&self) -> Result<Connection> {
        if let Writing::Here(slot) = &self.writing
            && let Ok(mut held) = slot.try_lock()
            && let Some((connection, _)) = held.take()
        {
            return Ok(connection);
        }
        self.own_connection()
    }

    /// Takes back a connection whose transaction is over.
    pub(super) fn give_back(&self, connection: Connection) {
        if let Writing::Here(slot) = &self.writing
            && let Ok(mut held) = slot.try_lock()
        {
            // Whoever uses it next sets how far his commit goes.
            held.get_or_insert((connection, Durability::Full));
        }
    }

    /// Opens a connection in the caller's own hands.
    pub(super) fn own_connection(&self) -> Result<Connection> {
        conn::open(&self.path, self.id, &self.manifest, Use::Visit)
    }

    /// Turns an error of SQLite on this shard into one of ours.
    pub(super) fn failed(&self, error: &rusqlite::Error) -> crate::error::Error {
        conn::failed(error, self.id, &self.path)
    }

    fn writer<'s>(
        &self,
        slot: &'s OnceLock<Writer>,
        checkpointer: &Arc<Checkpointer>,
    ) -> Result<&'s Writer> {
        if let Some(writer) = slot.get() {
            return Ok(writer);
        }
        // One at a time: two writers of one process would fight for the lock.
        let _starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(writer) = slot.get() {
            return Ok(writer);
        }
        let connection = conn::open(&self.path, self.id, &self.manifest, Use::Write)?;
        let writer = Writer::start(
            self.id,
            self.path.clone(),
            connection,
            Arc::clone(checkpointer),
            Arc::clone(&self.clock),
        )?;
        Ok(slot.get_or_init(|| writer))
    }

    fn write_here<T>(
        &self,
        slot: &Mutex<Option<(Connection, Durability)>>,
        durability: Durability,
        work: impl FnOnce(&Tx<'_>) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let mut held = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let (connection, mut level) = match held.take() {
            Some(open) => open,
            None => (
                conn::open(&self.path, self.id, &self.manifest, Use::Visit)?,
                Durability::Normal,
            ),
        };
        let value = transact(&connection, self.id, &mut level, durability, work)
            .map_err(|error| self.failed(&error))?;
        *held = Some((connection, level));
        Ok(value)
    }
}

fn transact<T>(
    connection: &Connection,
    shard: ShardId,
    level: &mut Durability,
    durability: Durability,
    work: impl FnOnce(&Tx<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    desk::set_durability(connection, level, durability)?;
    let tx = Tx::begin(connection, shard)?;
    match work(&tx) {
        Ok(value) => tx.commit().map(|()| value),
        Err(error) => {
            tx.roll_back();
            Err(error)
        }
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        if let Writing::Here(slot) = &mut self.writing
            && let Some((connection, _)) = slot
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner)
                .take()
        {
            conn::leave(connection, &self.path);
        }
    }
}

/// Reads at one moment.
///
/// The transaction is begun and ended by statements that are prepared once a connection: the library's
/// own parses both each time, which a refill, thousands of times a second, would feel.
pub(super) fn snapshot<T>(
    connection: &Connection,
    read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    connection.prepare_cached("BEGIN")?.execute([])?;
    let _end = End(connection);
    read(connection)
}

/// Ends a transaction of reading whatever came of it: a connection that stays in one pins the log.
struct End<'c>(&'c Connection);

impl Drop for End<'_> {
    fn drop(&mut self) {
        // After some errors SQLite has ended it by itself.
        if !self.0.is_autocommit()
            && let Ok(mut end) = self.0.prepare_cached("ROLLBACK")
        {
            drop(end.execute([]));
        }
    }
}
