//! The one writer of a shard in this process.
//!
//! Writes queue here and are grouped: what arrives while a transaction commits forms the next one.
//! A lone write waits for nobody. Threads that fight for SQLite's lock instead were seen to wait for
//! seconds, and a transaction a write costs twice the time and seven times at full durability.
//!
//! A group is one transaction. If any member fails, the group is rolled back and its members are
//! done one by one, so that a bad one sinks nobody; in the usual case this costs nothing, where a
//! savepoint for each member would cost every one of them.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use serde::Serialize;

use super::checkpoint::Checkpointer;
use super::conn;
use super::tx::Tx;
use crate::ambient::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Durations, ShardId};

/// Whether a write must survive a power cut before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// It survives any crash of processes.
    Normal,
    /// It survives a power cut.
    Full,
}

/// What a shard's writer has done and is doing.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WriterStats {
    /// How many writes wait for their turn.
    pub queued: usize,
    /// How many writes were done or refused.
    pub writes: u64,
    /// In how many transactions they were tried.
    pub groups: u64,
    /// The most writes of one transaction.
    pub largest_group: usize,
    /// How long transactions took from their begin to the end of their commit, in microseconds.
    pub commit_micros: Durations,
}

/// The most members of one transaction: keeps the lock short for other processes.
const GROUP: usize = 1024;

/// How long writes that nobody waits for are left for one that somebody waits for. A worker reports
/// an outcome and asks for its next step a few microseconds later; in one transaction both cost
/// little more than either, and in two the second waits for the first.
const LINGER: Duration = Duration::from_micros(150);

/// One write, to be run inside a transaction; run a second time if its group has to be undone.
trait Job: Send {
    fn run(&mut self, tx: &Tx<'_>) -> rusqlite::Result<()>;
    fn finish(self: Box<Self>, outcome: Result<()>);
}

struct Write<T, F, D> {
    work: F,
    value: Option<T>,
    done: D,
}

impl<T, F, D> Job for Write<T, F, D>
where
    T: Send,
    F: FnMut(&Tx<'_>) -> rusqlite::Result<T> + Send,
    D: FnOnce(Result<T>) + Send,
{
    fn run(&mut self, tx: &Tx<'_>) -> rusqlite::Result<()> {
        self.value = Some((self.work)(tx)?);
        Ok(())
    }

    fn finish(self: Box<Self>, outcome: Result<()>) {
        let this = *self;
        let value = outcome.and_then(|()| this.value.ok_or_else(gone));
        (this.done)(value);
    }
}

struct Queued {
    job: Box<dyn Job>,
    durability: Durability,
    /// Whether a thread stands still until it is done.
    awaited: bool,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Queued>,
    /// How many of those that wait are awaited.
    awaited: usize,
    closed: bool,
}

struct Shared {
    shard: ShardId,
    path: PathBuf,
    queue: Mutex<Queue>,
    arrived: Condvar,
    done: Mutex<WriterStats>,
    clock: Arc<dyn Clock>,
    linger: Duration,
}

/// A handle on the writer's thread; dropping it lets the thread finish what is queued.
pub(super) struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("shard", &self.shared.shard)
            .finish_non_exhaustive()
    }
}

impl Writer {
    /// Starts the thread, which owns the connection from now on.
    pub(super) fn start(
        shard: ShardId,
        path: PathBuf,
        connection: Connection,
        checkpointer: Arc<Checkpointer>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            shard,
            path,
            queue: Mutex::default(),
            arrived: Condvar::new(),
            done: Mutex::default(),
            clock,
            linger: LINGER,
        });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(format!("writer-{shard}"))
            .spawn(move || serve(&theirs, &connection, &checkpointer))
            .map_err(|error| {
                Error::new(ErrorKind::Unavailable, "cannot start a writer").caused_by(&error)
            })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Queues a write that nobody stands and waits for. `done` is called with its outcome, by the
    /// writer's thread.
    pub(super) fn submit<T, F, D>(&self, durability: Durability, work: F, done: D)
    where
        T: Send + 'static,
        F: FnMut(&Tx<'_>) -> rusqlite::Result<T> + Send + 'static,
        D: FnOnce(Result<T>) + Send + 'static,
    {
        self.queue(durability, false, work, done);
    }

    fn queue<T, F, D>(&self, durability: Durability, awaited: bool, work: F, done: D)
    where
        T: Send + 'static,
        F: FnMut(&Tx<'_>) -> rusqlite::Result<T> + Send + 'static,
        D: FnOnce(Result<T>) + Send + 'static,
    {
        let job = Box::new(Write {
            work,
            value: None,
            done,
        });
        let mut queue = self.shared.lock();
        if queue.closed {
            drop(queue);
            job.finish(Err(gone()));
            return;
        }
        let wakes = queue.waiting.is_empty() || (awaited && queue.awaited == 0);
        queue.awaited += usize::from(awaited);
        queue.waiting.push_back(Queued {
            job,
            durability,
            awaited,
        });
        drop(queue);
        if wakes {
            self.shared.arrived.notify_one();
        }
    }

    /// Returns what it has done and is doing.
    pub(super) fn stats(&self) -> WriterStats {
        let queued = self.shared.lock().waiting.len();
        let done = self.shared.done().clone();
        WriterStats { queued, ..done }
    }

    /// Queues a write and waits for its outcome.
    pub(super) fn write<T, F>(&self, durability: Durability, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Tx<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        let (answer, outcome) = mpsc::sync_channel(1);
        self.queue(durability, true, work, move |value| {
            // Nobody but us holds the other end, and we wait below.
            drop(answer.send(value));
        });
        outcome.recv().unwrap_or_else(|mpsc::RecvError| Err(gone()))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.arrived.notify_one();
        // The last owner may be the writer's own thread, by way of what it calls after a write: it then
        // ends by itself, and waiting for itself would never end.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A writer that panicked has said so; there is nothing left to wait for.
            drop(thread.join());
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn done(&self) -> MutexGuard<'_, WriterStats> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a transaction of so many writes that was begun at this time.
    fn note(&self, began: Duration, writes: usize, is_over: bool) {
        let took = self.clock.monotonic().saturating_sub(began).as_micros();
        let mut done = self.done();
        done.groups += 1;
        done.largest_group = done.largest_group.max(writes);
        done.commit_micros
            .note(u64::try_from(took).unwrap_or(u64::MAX));
        if is_over {
            done.writes += writes as u64;
        }
    }

    /// Returns what has gathered; empty when there is no more to come.
    fn next_group(&self) -> Vec<Queued> {
        let mut queue = self.lock();
        while queue.waiting.is_empty() && !queue.closed {
            queue = self
                .arrived
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if queue.awaited == 0 && !queue.closed {
            queue = self
                .arrived
                .wait_timeout_while(queue, self.linger, |queue| {
                    queue.awaited == 0 && !queue.closed
                })
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        let size = queue.waiting.len().min(GROUP);
        let group: Vec<Queued> = queue.waiting.drain(..size).collect();
        queue.awaited -= group.iter().filter(|queued| queued.awaited).count();
        group
    }
}

/// Refuses what is still queued if the writer's thread ends by a panic, so that nobody waits for it.
struct Refuse<'s>(&'s Shared);

impl Drop for Refuse<'_> {
    fn drop(&mut self) {
        let left = {
            let mut queue = self.0.lock();
            queue.closed = true;
            std::mem::take(&mut queue.waiting)
        };
        for queued in left {
            queued.job.finish(Err(gone()));
        }
    }
}

thread_local! {
    /// The frames in this thread's shard's WAL, as of the last commit.
    static WAL_FRAMES: Cell<u32> = const { Cell::new(0) };
}

fn serve(shared: &Shared, connection: &Connection, checkpointer: &Checkpointer) {
    let refuse = Refuse(shared);
    connection.wal_hook(Some(|_, frames| {
        WAL_FRAMES.set(u32::try_from(frames).unwrap_or(0));
        Ok(())
    }));
    let mut level = Durability::Normal;
    loop {
        let group = shared.next_group();
        if group.is_empty() {
            break;
        }
        run_group(shared, connection, &mut level, group);
        checkpointer.committed(shared.shard, WAL_FRAMES.get());
    }
    drop(refuse);
}

fn run_group(
    shared: &Shared,
    connection: &Connection,
    level: &mut Durability,
    mut group: Vec<Queued>,
) {
    let began = shared.clock.monotonic();
    let outcome = transact(connection, shared.shard, level, &mut group);
    // Members of a group that was undone are tried again, each alone.
    let is_over = outcome.is_ok() || group.len() == 1;
    shared.note(began, group.len(), is_over);
    match outcome {
        Ok(()) => group
            .into_iter()
            .for_each(|queued| queued.job.finish(Ok(()))),
        Err(_) if group.len() > 1 => {
            for queued in group {
                run_group(shared, connection, level, vec![queued]);
            }
        }
        Err(error) => {
            let error = conn::failed(&error, shared.shard, &shared.path);
            group
                .into_iter()
                .for_each(|queued| queued.job.finish(Err(error.clone())));
        }
    }
}

fn transact(
    connection: &Connection,
    shard: ShardId,
    level: &mut Durability,
    group: &mut [Queued],
) -> rusqlite::Result<()> {
    let wanted = group
        .iter()
        .map(|queued| queued.durability)
        .max()
        .unwrap_or(*level);
    set_durability(connection, level, wanted)?;
    let tx = Tx::begin(connection, shard)?;
    for queued in group {
        if let Err(error) = queued.job.run(&tx) {
            tx.roll_back();
            return Err(error);
        }
    }
    tx.commit()
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

fn gone() -> Error {
    Error::new(ErrorKind::Internal, "the shard's writer has stopped")
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
