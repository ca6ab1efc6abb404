//! The one connection of this process that writes to a shard, and who uses it when.
//!
//! Writes queue here and are grouped: what arrives while a transaction commits forms the next one.
//! A lone write waits for nobody. Threads that fight for SQLite's lock instead were seen to wait for
//! seconds, and a transaction a write costs twice the time and seven times at full durability.
//!
//! Whoever waits for a write does it himself, with all that has queued, if nobody writes just then:
//! waking a thread of its own for it, and being woken by it, costs half as much as the write. That
//! thread is for what nobody waits for, and for times of many writers: they queue for processors
//! too, and then the groups that form while it waits for its turn are what saves most.
//!
//! A group is one transaction. If any member fails, the group is rolled back and its members are
//! done one by one, so that a bad one sinks nobody; in the usual case this costs nothing, where a
//! savepoint for each member would cost every one of them.

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use serde::Serialize;

use super::checkpoint::Checkpointer;
use super::desk::{self, Desk, Durability, Haste, Job, Queued, Tried};
use super::tx::Tx;
use crate::ambient::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Durations, ShardId};

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

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Queued>,
    /// How many of those that wait are awaited.
    awaited: usize,
    /// How many of those that wait may wait on.
    later: usize,
    /// For how many groups more the thread writes what is awaited.
    crowded: u8,
    closed: bool,
}

/// What whoever has queued a write does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Nothing: somebody will come to it.
    Leave,
    /// Wake the writer's thread.
    Wake,
    /// Write, if nobody does.
    Lead,
}

/// After a group that several threads waited for, so many are written by the writer's thread.
const CROWDED: u8 = 250;

struct Shared {
    shard: ShardId,
    queue: Mutex<Queue>,
    arrived: Condvar,
    /// Never locked for while the queue is.
    desk: Mutex<Desk>,
    checkpointer: Arc<Checkpointer>,
    done: Mutex<WriterStats>,
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
            queue: Mutex::default(),
            arrived: Condvar::new(),
            desk: Mutex::new(Desk::new(connection, shard, path, clock)),
            checkpointer,
            done: Mutex::default(),
            linger: LINGER,
        });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(format!("writer-{shard}"))
            .spawn(move || serve(&theirs))
            .map_err(|error| {
                Error::new(ErrorKind::Unavailable, "cannot start a writer").caused_by(&error)
            })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Queues a write that nobody stands and waits for. `done` is called with its outcome, by whatever
    /// thread wrote it.
    pub(super) fn submit<T, F, D>(&self, durability: Durability, work: F, done: D)
    where
        T: Send + 'static,
        F: FnMut(&Tx<'_>) -> rusqlite::Result<T> + Send + 'static,
        D: FnOnce(Result<T>) + Send + 'static,
    {
        let next = self.queue(durability, Haste::Soon, work, done);
        self.shared.go_on(next);
    }

    /// Queues a write for the next group, whenever that is. To be followed by another write, or by
    /// [`Self::hurry`].
    pub(super) fn leave<T, F, D>(&self, durability: Durability, work: F, done: D)
    where
        T: Send + 'static,
        F: FnMut(&Tx<'_>) -> rusqlite::Result<T> + Send + 'static,
        D: FnOnce(Result<T>) + Send + 'static,
    {
        let next = self.queue(durability, Haste::Later, work, done);
        self.shared.go_on(next);
    }

    /// Has all written now that was left for later, by the thread: whoever hurries does not wait for the
    /// file to be free. He may have a process to watch.
    pub(super) fn hurry(&self) {
        let mut queue = self.shared.lock();
        if queue.later == 0 {
            return;
        }
        queue.later = 0;
        for queued in &mut queue.waiting {
            if queued.haste == Haste::Later {
                queued.haste = Haste::Soon;
            }
        }
        drop(queue);
        self.shared.go_on(Next::Wake);
    }

    fn queue<T, F, D>(&self, durability: Durability, haste: Haste, work: F, done: D) -> Next
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
            return Next::Leave;
        }
        let next = match haste {
            Haste::Awaited if queue.crowded == 0 => Next::Lead,
            Haste::Awaited if queue.awaited == 0 => Next::Wake,
            Haste::Soon if queue.waiting.len() == queue.later => Next::Wake,
            Haste::Awaited | Haste::Soon | Haste::Later => Next::Leave,
        };
        queue.awaited += usize::from(haste == Haste::Awaited);
        queue.later += usize::from(haste == Haste::Later);
        queue.waiting.push_back(Queued {
            job,
            durability,
            haste,
        });
        next
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
        let next = self.queue(durability, Haste::Awaited, work, move |value| {
            // Nobody but us holds the other end, and we wait below.
            drop(answer.send(value));
        });
        self.shared.go_on(next);
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

    /// Takes note of transactions.
    fn note(&self, tries: &[Tried]) {
        let mut done = self.done();
        for tried in tries {
            done.groups += 1;
            done.largest_group = done.largest_group.max(tried.writes);
            let took = u64::try_from(tried.took.as_micros()).unwrap_or(u64::MAX);
            done.commit_micros.note(took);
            if tried.is_over {
                done.writes += tried.writes as u64;
            }
        }
    }

    /// Waits until there is something to write; `false` when there is no more to come.
    fn wait(&self) -> bool {
        let mut queue = self.lock();
        while queue.waiting.len() == queue.later && !queue.closed {
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
        !(queue.closed && queue.waiting.is_empty())
    }

    /// Returns what has gathered.
    fn next_group(&self) -> Vec<Queued> {
        let mut queue = self.lock();
        let size = queue.waiting.len().min(GROUP);
        let group: Vec<Queued> = queue.waiting.drain(..size).collect();
        let of = |haste| group.iter().filter(|queued| queued.haste == haste).count();
        let awaited = of(Haste::Awaited);
        queue.awaited -= awaited;
        queue.later -= of(Haste::Later);
        queue.crowded = if awaited > 1 {
            CROWDED
        } else {
            queue.crowded.saturating_sub(1)
        };
        group
    }

    fn go_on(&self, next: Next) {
        match next {
            Next::Leave => {}
            Next::Wake => self.arrived.notify_one(),
            Next::Lead => self.lead(),
        }
    }

    /// Writes what has gathered, unless somebody writes just now: he, or the thread after him, comes to
    /// it then.
    fn lead(&self) {
        let Some(desk) = self.free_desk() else { return };
        let leave = LeaveDesk(self);
        self.work(desk);
        drop(leave);
    }

    /// Writes a group.
    fn work(&self, mut desk: MutexGuard<'_, Desk>) {
        let group = self.next_group();
        if group.is_empty() {
            return;
        }
        let written = desk.write(group);
        drop(desk);
        self.note(&written.tries);
        for (queued, outcome) in written.members {
            queued.job.finish(outcome);
        }
        self.checkpointer.committed(self.shard, written.frames);
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(|poisoned| {
            self.desk.clear_poison();
            desk::after_panic(poisoned.into_inner())
        })
    }

    /// Returns the desk if nobody has it.
    fn free_desk(&self) -> Option<MutexGuard<'_, Desk>> {
        match self.desk.try_lock() {
            Ok(desk) => Some(desk),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(poisoned)) => {
                self.desk.clear_poison();
                Some(desk::after_panic(poisoned.into_inner()))
            }
        }
    }
}

/// Wakes the thread for what others have queued meanwhile: whoever found somebody at the desk has left it
/// at that. Also if the one at the desk leaves it by a panic.
struct LeaveDesk<'s>(&'s Shared);

impl Drop for LeaveDesk<'_> {
    fn drop(&mut self) {
        let is_left = {
            let queue = self.0.lock();
            queue.waiting.len() > queue.later
        };
        if is_left {
            self.0.arrived.notify_one();
        }
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

fn serve(shared: &Shared) {
    let refuse = Refuse(shared);
    while shared.wait() {
        shared.work(shared.desk());
    }
    drop(refuse);
}

fn gone() -> Error {
    Error::new(ErrorKind::Internal, "the shard's writer has stopped")
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
