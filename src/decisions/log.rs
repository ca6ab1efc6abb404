//! Writing a runner's log, off the path that steps take.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{ENDINGS, Pick, Record, SCHEMA, Slot, make_room, path};
use crate::error::{Context as _, ErrorKind, Result};
use crate::event::Decided;
use crate::model::{Band, Candidate, RunnerId, ShardId, Timestamp};

/// A log that has grown so large becomes the predecessor.
const MOST_BYTES: u64 = 1 << 20;
/// So many slots wait to be written; what comes on top is left out. About a quarter of a file.
const MOST_SLOTS: usize = 8192;
/// How long what was decided may wait to be written.
const GATHER: Duration = Duration::from_millis(250);

/// One runner's log while it lives. Any thread may add to it.
#[derive(Debug)]
pub struct DecisionLog {
    buffer: Arc<Buffer>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Buffer {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Noted>,
    /// How many slots `waiting` has.
    slots: usize,
    /// How many pushes were left out since the last one that was not.
    left_out: u64,
    cycles: BTreeMap<ShardId, u64>,
    closed: bool,
}

/// A push, not yet put into words.
#[derive(Debug)]
struct Noted {
    at: Timestamp,
    cycle: u64,
    left_out: u64,
    shard: ShardId,
    band: Band,
    seed: Option<u64>,
    capacity: usize,
    slots: Vec<Candidate>,
}

impl DecisionLog {
    /// Begins a runner's log in this directory, which is made if it is not there; removes the oldest
    /// logs if there are too many.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the directory cannot be used or no thread can be started.
    pub fn begin(dir: &Path, runner: RunnerId) -> Result<Self> {
        let failed = || format!("cannot keep a log of decisions in {}", dir.display());
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .and_then(|()| make_room(dir))
            .or_fail(ErrorKind::Unavailable, failed)?;
        let buffer = Arc::new(Buffer::default());
        let pen = Pen {
            path: path(dir, runner, ENDINGS[0]),
            old: path(dir, runner, ENDINGS[1]),
            last: BTreeMap::new(),
            left_out: 0,
        };
        let gathered = Arc::clone(&buffer);
        let thread = std::thread::Builder::new()
            .name("decisions".to_owned())
            .spawn(move || gathered.write_all(pen))
            .or_fail(ErrorKind::Unavailable, failed)?;
        Ok(Self {
            buffer,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Takes note of a push. Costs a copy of the slots, which are pointers and numbers.
    pub fn note(&self, at: Timestamp, decided: &Decided<'_>) {
        let slots = decided.slots.to_vec();
        let mut state = self.buffer.lock();
        let cycle = state.cycles.entry(decided.shard).or_default();
        *cycle += 1;
        let cycle = *cycle;
        if state.slots + slots.len() > MOST_SLOTS {
            state.left_out += 1;
            return;
        }
        state.slots += slots.len();
        let noted = Noted {
            at,
            cycle,
            left_out: std::mem::take(&mut state.left_out),
            shard: decided.shard,
            band: decided.band,
            seed: decided.seed,
            capacity: decided.capacity,
            slots,
        };
        state.waiting.push(noted);
        let is_first = state.waiting.len() == 1;
        drop(state);
        if is_first {
            self.buffer.changed.notify_one();
        }
    }

    /// Writes what is left. What comes later is not written.
    pub fn close(&self) {
        self.buffer.lock().closed = true;
        self.buffer.changed.notify_one();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            // One that panicked has been heard of.
            drop(thread.join());
        }
    }
}

impl Drop for DecisionLog {
    fn drop(&mut self) {
        self.close();
    }
}

impl Buffer {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what gathers until the log is closed.
    fn write_all(&self, mut pen: Pen) {
        loop {
            let idle = |state: &mut State| state.waiting.is_empty() && !state.closed;
            let state = self
                .changed
                .wait_while(self.lock(), idle)
                .unwrap_or_else(PoisonError::into_inner);
            let mut state = self
                .changed
                .wait_timeout_while(state, GATHER, |state| !state.closed)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            let gathered = std::mem::take(&mut state.waiting);
            state.slots = 0;
            let closed = state.closed;
            drop(state);
            // Nothing depends on the log: where it cannot be written, a runner works on without.
            drop(pen.write(gathered));
            if closed {
                return;
            }
        }
    }
}

/// What the writing thread holds.
struct Pen {
    path: PathBuf,
    old: PathBuf,
    /// What was recorded last of each shard: a window that nobody took from is pushed again at each
    /// heartbeat, and would crowd out what people want to know.
    last: BTreeMap<ShardId, (Band, Vec<Candidate>)>,
    left_out: u64,
}

impl Pen {
    fn write(&mut self, gathered: Vec<Noted>) -> io::Result<()> {
        let mut lines = Vec::new();
        for noted in gathered {
            self.left_out += noted.left_out;
            let pushed = (noted.band, noted.slots);
            if self.last.get(&noted.shard) == Some(&pushed) {
                continue;
            }
            let record = Record {
                schema: SCHEMA,
                at: noted.at,
                cycle: noted.cycle,
                shard: noted.shard,
                band: noted.band,
                pick: noted.seed.map_or(Pick::Stride, |_| Pick::Lottery),
                seed: noted.seed,
                capacity: noted.capacity,
                slots: pushed.1.iter().map(Slot::of).collect(),
                left_out: std::mem::take(&mut self.left_out),
            };
            serde_json::to_writer(&mut lines, &record)?;
            lines.push(b'\n');
            self.last.insert(noted.shard, pushed);
        }
        if lines.is_empty() {
            return Ok(());
        }
        // Opened each time: a runner that starts may have removed what was written long ago.
        let mut file = File::options()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.path)?;
        file.write_all(&lines)?;
        if file.metadata()?.len() >= MOST_BYTES {
            fs::rename(&self.path, &self.old)?;
        }
        Ok(())
    }
}

impl Slot {
    fn of(candidate: &Candidate) -> Self {
        Self(candidate.key.clone(), candidate.turn.as_f64(), candidate.id)
    }
}
