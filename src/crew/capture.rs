//! What a step writes: two files that a worker keeps for life.
//!
//! Making and removing a file is the slowest thing that a runner can do for a short step. So each
//! worker owns one file for each stream; a step gets fresh descriptors that append to them; when
//! it has ended, what it wrote is taken out and the files are empty again. A step that wrote much
//! takes its file along, and so does one that left somebody behind who can still write.
//!
//! **No step may write into another's output.** Before a step gets its descriptors, each takes a
//! shared `flock`. Such a lock belongs to the open file, so that everything that inherits the
//! descriptor keeps it, and it goes when the last copy is closed. Before the next step the worker
//! asks for an exclusive lock through descriptors of its own: refused means that somebody may still
//! write. Often that is only a process that another worker has just started: it has copies of
//! our descriptors until it has become its program, and for a moment longer; by the next step
//! they are mostly gone. So the pair of files is not given up but set aside, unread from then on,
//! and used again when its locks are free.
//!
//! One gap is left. A process that opens `/dev/stdout` anew holds a descriptor without the lock; if
//! it also closes all those it inherited, of both streams, and leaves the step's process group,
//! nobody sees it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use super::limit::Limit;
use crate::error::{Context as _, ErrorKind, Result};
use crate::model::{Captured, Found, StepId, Stream};

/// How many steps share a folder below `output/`.
const STEPS_PER_FOLDER: i64 = 1_000;

/// A stream of a lost try that is no longer than this is kept with its record.
const FOUND_INLINE: u64 = 65_536;

/// Returns what the names of a stream's files end with.
const fn extension(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdout => "out",
        Stream::Stderr => "err",
    }
}

/// Returns where a worker's file for a stream lies in its runner's directory.
pub fn live_path(runner_dir: &Path, worker: u32, stream: Stream) -> PathBuf {
    runner_dir.join(format!("{worker}.{}", extension(stream)))
}

/// Returns where a stream of a try is kept if it has a file of its own, below the store's
/// directory: `output/a0/a17-3.out` for the third claim of `a17`. A folder holds 1,000 steps.
pub fn kept_path(id: StepId, fence: u32, stream: Stream) -> PathBuf {
    let folder = id.local.get() / STEPS_PER_FOLDER;
    PathBuf::from(format!(
        "output/{}{folder}/{id}-{fence}.{}",
        id.shard.letter(),
        extension(stream)
    ))
}

/// Takes out what a dead runner's worker has caught of a try that it was at when it died, and that
/// nobody writes to any more. A small stream is returned, a large one becomes a file of the store.
/// What cannot be read counts as nothing; called again it finds the same.
pub fn find(store: &Path, runner_dir: &Path, worker: u32, id: StepId, fence: u32) -> Found {
    let stream = |stream| {
        let path = kept_path(id, fence, stream);
        let (live, kept) = (live_path(runner_dir, worker, stream), store.join(&path));
        // It may have been moved already, by the runner itself or by who began this before.
        if let Ok(there) = fs::metadata(&kept) {
            let size = there.len();
            return Captured::File { path, size };
        }
        match fs::metadata(&live).map(|there| there.len()) {
            Err(_) | Ok(0) => Captured::Empty,
            Ok(1..=FOUND_INLINE) => fs::read(&live).map_or(Captured::Empty, Captured::Inline),
            Ok(size) => match move_to(&live, &kept) {
                Ok(()) => Captured::File { path, size },
                Err(_) => Captured::Empty,
            },
        }
    };
    Found {
        id,
        fence,
        stdout: stream(Stream::Stdout),
        stderr: stream(Stream::Stderr),
    }
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
    inline_max: u64,
    live: Pair,
    /// What somebody still held when we last looked.
    aside: Option<Pair>,
    names: Names,
    state: State,
}

/// What may be in a worker's two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing, and nobody can write to them.
    Clean,
    /// What a step writes.
    Used,
    /// What a step has written and what was taken out; somebody may have them open still.
    Left,
}

impl Capture {
    /// Makes the two files of a worker, readable by the owner alone.
    ///
    /// `store` is the store's directory, where large streams go; `runner_dir` is the runner's own
    /// below it, on the same file system. A stream of up to `inline_max` bytes is kept with the
    /// step's record rather than as a file.
    ///
    /// # Errors
    ///
    /// Unavailable: the files cannot be made, for instance because the worker has some already.
    pub fn create(store: &Path, runner_dir: &Path, worker: u32, inline_max: u64) -> Result<Self> {
        let names = Names::of(runner_dir, worker);
        let live = names.make().or_fail(ErrorKind::Unavailable, || {
            format!("cannot make {}", names.out.display())
        })?;
        Ok(Self {
            store: store.to_owned(),
            worker,
            inline_max,
            live,
            aside: None,
            names,
            state: State::Clean,
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

    /// Makes sure that nothing of an earlier step is in the files. Whatever is in them after the next
    /// step's note in the journal is then certainly that step's.
    ///
    /// # Errors
    ///
    /// Unavailable: the files cannot be made anew.
    pub(super) fn ready(&mut self) -> Result<()> {
        self.clean().or_fail(ErrorKind::Unavailable, || {
            format!("cannot make {}", self.names.out.display())
        })
    }

    /// Opens the files for a step: output, error.
    pub(super) fn open(&mut self) -> Result<(File, File)> {
        let open = |path: &Path| {
            let file = OpenOptions::new().append(true).open(path)?;
            file.lock_shared()?;
            Ok::<_, io::Error>(file)
        };
        self.clean()
            .and_then(|()| Ok((open(&self.names.out)?, open(&self.names.err)?)))
            .or_fail(ErrorKind::Unavailable, || {
                format!("cannot open {}", self.names.out.display())
            })
    }

    /// Returns what keeps the streams of the step that has the files now within a limit.
    pub(super) fn limit(&self, most: u64) -> io::Result<Limit> {
        let (out, err) = (self.live.out.try_clone()?, self.live.err.try_clone()?);
        Ok(Limit::new(most, out, err))
    }

    /// Notes that a step may have written.
    pub(super) const fn mark_used(&mut self) {
        self.state = State::Used;
    }

    /// Takes out what the step wrote to its output and to its error. To be called when its main
    /// process has ended.
    ///
    /// `left_some` says that something was left in the step's process group. Then a stream that
    /// has anything in it is kept as a file even if it is small, and what is written later is
    /// found there too. What anybody else writes later is not kept.
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
        let taken = self.take(id, fence, left_some);
        taken.or_fail(ErrorKind::Unavailable, || {
            format!(
                "cannot keep the output of {id}, which is in {}",
                self.names.out.display()
            )
        })
    }

    fn take(
        &mut self,
        id: StepId,
        fence: u32,
        left_some: bool,
    ) -> io::Result<(Captured, Captured)> {
        let mut taken = [Captured::Empty, Captured::Empty];
        for (stream, captured) in [Stream::Stdout, Stream::Stderr].into_iter().zip(&mut taken) {
            let (file, name) = match stream {
                Stream::Stdout => (&mut self.live.out, &self.names.out),
                Stream::Stderr => (&mut self.live.err, &self.names.err),
            };
            let size = file.metadata()?.len();
            if size > self.inline_max || (size > 0 && left_some) {
                let path = kept_path(id, fence, stream);
                move_to(name, &self.store.join(&path))?;
                *file = make(name)?;
                *captured = Captured::File { path, size };
            } else if left_some {
                // Nobody can say whether what was left has it open.
                remake(name, file)?;
            } else if size > 0 {
                *captured = Captured::Inline(read(file, size)?);
            }
        }
        self.state = State::Left;
        let [out, err] = taken;
        Ok((out, err))
    }

    /// Has two files from now on that nothing is in and that nobody can write to.
    fn clean(&mut self) -> io::Result<()> {
        match self.state {
            State::Clean => {}
            State::Used => self.renew()?,
            State::Left if self.live.is_held()? => self.set_aside()?,
            State::Left => self.live.empty()?,
        }
        self.state = State::Clean;
        Ok(())
    }

    /// Has another pair of files from now on: the one that was set aside before, if it is free.
    fn set_aside(&mut self) -> io::Result<()> {
        if let Some(aside) = &mut self.aside
            && !aside.is_held()?
        {
            aside.empty()?;
            self.names.exchange()?;
            std::mem::swap(&mut self.live, aside);
            return Ok(());
        }
        self.names.push_aside()?;
        let next = self.names.make()?;
        self.aside = Some(std::mem::replace(&mut self.live, next));
        Ok(())
    }

    /// Leaves the files to whoever has them, and makes others.
    fn renew(&mut self) -> io::Result<()> {
        remake(&self.names.out, &mut self.live.out)?;
        remake(&self.names.err, &mut self.live.err)
    }
}

/// Our own view of two files, which no step ever gets.
#[derive(Debug)]
struct Pair {
    out: File,
    err: File,
}

impl Pair {
    /// Returns whether a step's descriptor of either file is open somewhere.
    fn is_held(&self) -> io::Result<bool> {
        Ok(is_held(&self.out)? || is_held(&self.err)?)
    }

    /// Takes everything out. Asking is cheaper than cutting, and mostly there is nothing.
    fn empty(&self) -> io::Result<()> {
        for file in [&self.out, &self.err] {
            if file.metadata()?.len() > 0 {
                file.set_len(0)?;
            }
        }
        Ok(())
    }
}

/// Where a worker's files lie: those in use, and those set aside.
#[derive(Debug)]
struct Names {
    out: PathBuf,
    err: PathBuf,
    aside_out: PathBuf,
    aside_err: PathBuf,
}

impl Names {
    fn of(runner_dir: &Path, worker: u32) -> Self {
        let aside =
            |stream: Stream| runner_dir.join(format!("{worker}.{}.aside", extension(stream)));
        Self {
            out: live_path(runner_dir, worker, Stream::Stdout),
            err: live_path(runner_dir, worker, Stream::Stderr),
            aside_out: aside(Stream::Stdout),
            aside_err: aside(Stream::Stderr),
        }
    }

    fn make(&self) -> io::Result<Pair> {
        Ok(Pair {
            out: make(&self.out)?,
            err: make(&self.err)?,
        })
    }

    /// Gives the files in use the names of those set aside, which are given up.
    fn push_aside(&self) -> io::Result<()> {
        fs::rename(&self.out, &self.aside_out)?;
        fs::rename(&self.err, &self.aside_err)
    }

    /// Lets the files in use and those set aside change names.
    fn exchange(&self) -> io::Result<()> {
        let swap = RenameFlags::RENAME_EXCHANGE;
        renameat2(AT_FDCWD, &self.out, AT_FDCWD, &self.aside_out, swap)?;
        renameat2(AT_FDCWD, &self.err, AT_FDCWD, &self.aside_err, swap)?;
        Ok(())
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

/// Leaves a file to whoever has it open, and makes another of its name.
fn remake(path: &Path, file: &mut File) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    *file = make(path)?;
    Ok(())
}

fn is_held(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => file.unlock().map(|()| false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Returns the first `size` bytes, or as many as there are.
fn read(file: &File, size: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(size).map_err(io::Error::other)?];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
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
