//! What a step writes: two files that a worker keeps for life.
//!
//! Making and removing a file is the slowest thing that a runner can do for a short step. So each
//! worker owns one file for each stream; a step gets fresh descriptors that append to them; when
//! it has ended, what it wrote is taken out and the files are empty again. A step that wrote much
//! takes its file along, and so does one that left somebody behind who can still write.
//!
//! **No step may write into another's output.** Before a step gets its descriptors, each takes a
//! shared `flock`. Such a lock belongs to the open file, so that everything that inherits the
//! descriptor keeps it, and it goes when the last of them is closed. After the step the worker
//! asks for an exclusive lock through a descriptor of its own: refused means that somebody can
//! still write, and the file is retired. One gap is left. A process that opens `/dev/stdout` anew
//! holds a descriptor without the lock; if it also closes all those it inherited (both streams'),
//! and leaves the step's process group, nobody sees it. While it is in the group, or holds either
//! stream, both files are retired.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::error::{Context as _, ErrorKind, Result};
use crate::model::{Captured, StepId};

use super::starting::await_starts;

/// What a stream may hold to be kept with the step's record rather than as a file, in bytes.
pub const INLINE_MAX: u64 = 64 * 1024;

/// How many steps share a folder below `output/`.
const STEPS_PER_FOLDER: i64 = 1_000;

/// One of the two streams that a step writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// The standard output.
    Out,
    /// The standard error.
    Err,
}

impl Stream {
    /// Returns what the names of its files end with.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Out => "out",
            Self::Err => "err",
        }
    }
}

/// Returns where a worker's file for a stream lies in its runner's directory.
pub fn live_path(runner_dir: &Path, worker: u32, stream: Stream) -> PathBuf {
    runner_dir.join(format!("{worker}.{}", stream.extension()))
}

/// Returns where a stream of a try is kept if it has a file of its own, below the store's
/// directory: `output/a0/a17-3.out` for the third claim of `a17`. A folder holds 1,000 steps.
pub fn kept_path(id: StepId, fence: u32, stream: Stream) -> PathBuf {
    let folder = id.local.get() / STEPS_PER_FOLDER;
    PathBuf::from(format!(
        "output/{}{folder}/{id}-{fence}.{}",
        id.shard.letter(),
        stream.extension()
    ))
}

/// The two files of one worker.
///
/// Used by that worker alone, for one step after another: [`super::child::start`] opens them,
/// [`Self::collect`] empties them. A step that was started and not collected leaves files that
/// nobody else gets: the next start replaces them.
#[derive(Debug)]
pub struct Capture {
    store: PathBuf,
    worker: u32,
    out: Spool,
    err: Spool,
    used: bool,
}

impl Capture {
    /// Makes the two files of a worker, readable by the owner alone.
    ///
    /// `store` is the store's directory, where large streams go; `runner_dir` is the runner's own
    /// below it, on the same file system.
    ///
    /// # Errors
    ///
    /// Unavailable: the files cannot be made, for instance because the worker has some already.
    pub fn create(store: &Path, runner_dir: &Path, worker: u32) -> Result<Self> {
        Ok(Self {
            store: store.to_owned(),
            worker,
            out: Spool::create(live_path(runner_dir, worker, Stream::Out))?,
            err: Spool::create(live_path(runner_dir, worker, Stream::Err))?,
            used: false,
        })
    }

    /// Returns the worker's number.
    pub const fn worker(&self) -> u32 {
        self.worker
    }

    /// Returns the store's directory.
    pub fn store(&self) -> &Path {
        &self.store
    }

    /// Opens the files for a step: output, error.
    pub(super) fn open(&mut self) -> Result<(File, File)> {
        if self.used {
            let replace = self.out.replace().and_then(|()| self.err.replace());
            replace.or_fail(ErrorKind::Unavailable, || {
                format!("cannot replace {}", self.out.path.display())
            })?;
            self.used = false;
        }
        Ok((self.out.open()?, self.err.open()?))
    }

    /// Notes that a step may have written.
    pub(super) const fn mark_used(&mut self) {
        self.used = true;
    }

    /// Takes out what the step wrote to its output and to its error, and makes the files ready for
    /// the next one. To be called when its main process has ended.
    ///
    /// `left_some` says that something was left in the step's process group.
    /// What is held by somebody still, and has something in it, is kept as a file of its own even
    /// if it is small: what is written later is found there too.
    ///
    /// # Errors
    ///
    /// Unavailable: a file cannot be read, moved or made. The output of this step is lost then, in
    /// whole or in part, but never shown as that of another.
    pub fn collect(
        &mut self,
        id: StepId,
        fence: u32,
        left_some: bool,
    ) -> Result<(Captured, Captured)> {
        let held = left_some || self.is_held()?;
        let mut take = |stream: Stream| {
            let spool = match stream {
                Stream::Out => &mut self.out,
                Stream::Err => &mut self.err,
            };
            spool
                .take(held, &self.store, || kept_path(id, fence, stream))
                .or_fail(ErrorKind::Unavailable, || {
                    format!("cannot keep the output of {id} in {}", spool.path.display())
                })
        };
        let taken = (take(Stream::Out)?, take(Stream::Err)?);
        self.used = false;
        Ok(taken)
    }

    /// Returns whether anybody but us can still write to one of the files.
    fn is_held(&self) -> Result<bool> {
        let look = || -> io::Result<bool> { Ok(self.out.is_held()? || self.err.is_held()?) };
        let held = look().and_then(|held| {
            if held {
                // A process that another worker is starting has a copy of our descriptors for a
                // moment. It is not what we look for.
                await_starts();
                look()
            } else {
                Ok(false)
            }
        });
        held.or_fail(ErrorKind::Unavailable, || {
            format!("cannot lock {}", self.out.path.display())
        })
    }
}

/// One stream's file.
#[derive(Debug)]
struct Spool {
    path: PathBuf,
    /// Our own view of it, which no step ever gets.
    file: File,
}

impl Spool {
    fn create(path: PathBuf) -> Result<Self> {
        match Self::make(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(error) => Err(error).or_fail(ErrorKind::Unavailable, || {
                format!("cannot make {}", path.display())
            }),
        }
    }

    fn make(path: &Path) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
    }

    /// Opens it for a step: to append, with the lock that tells whether it is still held.
    fn open(&self) -> Result<File> {
        let open = || {
            let file = OpenOptions::new().append(true).open(&self.path)?;
            file.lock_shared()?;
            Ok::<_, io::Error>(file)
        };
        open().or_fail(ErrorKind::Unavailable, || {
            format!("cannot open {}", self.path.display())
        })
    }

    fn is_held(&self) -> io::Result<bool> {
        match self.file.try_lock() {
            Ok(()) => self.file.unlock().map(|()| false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Takes out what is in it and leaves it empty, itself or as a new file.
    fn take(
        &mut self,
        held: bool,
        store: &Path,
        keep_as: impl FnOnce() -> PathBuf,
    ) -> io::Result<Captured> {
        let size = self.file.metadata()?.len();
        if size == 0 {
            if held {
                self.replace()?;
            }
            return Ok(Captured::Empty);
        }
        if held || size > INLINE_MAX {
            let path = keep_as();
            move_to(&self.path, &store.join(&path))?;
            self.file = Self::make(&self.path)?;
            return Ok(Captured::File { path, size });
        }
        let bytes = self.read(size)?;
        self.file.set_len(0)?;
        Ok(Captured::Inline(bytes))
    }

    /// Returns the first `size` bytes, or as many as there are.
    fn read(&self, size: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(size).map_err(io::Error::other)?];
        let mut filled = 0;
        while filled < bytes.len() {
            match self.file.read_at(&mut bytes[filled..], filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    /// Leaves the file to whoever holds it, and has a new one from now on.
    fn replace(&mut self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        self.file = Self::make(&self.path)?;
        Ok(())
    }
}

/// Renames a file, making the folder that it goes to if there is none yet.
fn move_to(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(folder) = to.parent() {
                fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(folder)?;
            }
            fs::rename(from, to)
        }
        done => done,
    }
}
