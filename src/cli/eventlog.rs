//! The log of events that each runner keeps in the store, for `fairq events`.
//!
//! Emitting pushes a value under a lock and returns; a thread of its own writes lines, several times
//! a second. A runner that is killed takes the last moment's events with it. The log is bounded: one
//! file and its predecessor a runner, and the files of so many runners.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::mem;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use super::event_json::{self, Teller};
use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::event::{Event, Level, Sink};
use crate::model::{RunnerId, Timestamp};

/// The ending of a log's name; its predecessor has [`OLD`] after it.
pub(super) const ENDING: &str = ".ndjson";
pub(super) const OLD: &str = ".old";
/// A file that has grown beyond this gives way to a new one.
const MOST_BYTES: u64 = 4 << 20;
/// The logs of so many runners are kept, this one's included.
const MOST_RUNNERS: usize = 16;
/// Events that wait to be written; what is more is counted and left out.
const MOST_PENDING: usize = 1 << 16;
/// How long events gather before they are written.
const GATHER: Duration = Duration::from_millis(50);

/// Keeps events of level debug and above.
#[derive(Debug)]
pub(super) struct EventLog {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    pending: Mutex<Pending>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Pending {
    events: Vec<(Timestamp, Event)>,
    missed: u64,
    closed: bool,
}

impl EventLog {
    /// Starts the log of a runner in this directory, which is made if it is not there, and removes
    /// the oldest logs of runners that are not in `alive`.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the directory, the file or the thread cannot be made.
    pub(super) fn start(dir: &Path, runner: RunnerId, alive: &[RunnerId]) -> Result<Self> {
        let failed = || format!("cannot keep events in {}", dir.display());
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .or_fail(ErrorKind::Unavailable, failed)?;
        prune(dir, alive).or_fail(ErrorKind::Unavailable, failed)?;
        let mut file = LogFile::open(dir.join(format!("{runner}{ENDING}")), runner)
            .or_fail(ErrorKind::Unavailable, failed)?;
        let shared = Arc::new(Shared::default());
        let source = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("event-log".to_owned())
            .spawn(move || source.write_to(&mut file))
            .map_err(|error| Error::new(ErrorKind::Unavailable, failed()).caused_by(&error))?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Writes what has gathered, and nothing after that.
    pub(super) fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            // One that panicked has been heard of.
            drop(thread.join());
        }
    }
}

impl Sink for EventLog {
    fn emit(&self, at: Timestamp, event: &Event) {
        if event.level() < Level::Debug {
            return;
        }
        let mut pending = self.shared.lock();
        if pending.events.len() >= MOST_PENDING {
            pending.missed += 1;
            return;
        }
        pending.events.push((at, event.clone()));
        let first = pending.events.len() == 1;
        drop(pending);
        // The writer sleeps only while there is nothing.
        if first {
            self.shared.changed.notify_all();
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_to(&self, file: &mut LogFile) {
        let mut events = Vec::new();
        loop {
            let closed = self.gather();
            let missed = {
                let mut pending = self.lock();
                mem::swap(&mut events, &mut pending.events);
                mem::take(&mut pending.missed)
            };
            // Workers tell of one instant in any order; what is gathered is put right.
            events.sort_by_key(|(at, _)| *at);
            file.append(&events, missed);
            events.clear();
            if closed {
                return;
            }
        }
    }

    /// Waits for an event, and then a while for more. `true` if the log was closed.
    fn gather(&self) -> bool {
        let idle = |pending: &mut Pending| pending.events.is_empty() && !pending.closed;
        let pending = self
            .changed
            .wait_while(self.lock(), idle)
            .unwrap_or_else(PoisonError::into_inner);
        let (pending, _) = self
            .changed
            .wait_timeout_while(pending, GATHER, |pending| !pending.closed)
            .unwrap_or_else(PoisonError::into_inner);
        pending.closed
    }
}

/// One runner's file.
#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    runner: RunnerId,
    told: u64,
    /// Events that could not be written, to be told of when writing works again.
    unwritten: u64,
}

impl LogFile {
    fn open(path: PathBuf, runner: RunnerId) -> io::Result<Self> {
        Ok(Self {
            file: create(&path)?,
            path,
            bytes: 0,
            runner,
            told: 0,
            unwritten: 0,
        })
    }

    /// Writes lines in one go, so that the last one is never half there for long.
    fn append(&mut self, events: &[(Timestamp, Event)], missed: u64) {
        let Some((last, _)) = events.last() else {
            return;
        };
        let mut text = String::new();
        for (at, event) in events {
            text.push_str(&event_json::event(*at, Some(self.teller()), event));
            text.push('\n');
        }
        let missed = missed + self.unwritten;
        if missed > 0 {
            text.push_str(&event_json::missed(*last, self.teller(), missed));
            text.push('\n');
        }
        self.unwritten = match self.write(text.as_bytes()) {
            Ok(()) => 0,
            // A full disk must not stop a runner; what is not kept is counted.
            Err(_) => missed + events.len() as u64,
        };
    }

    fn teller(&mut self) -> Teller {
        self.told += 1;
        Teller {
            runner: self.runner,
            number: self.told,
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.bytes > MOST_BYTES {
            let mut old = self.path.clone().into_os_string();
            old.push(OLD);
            fs::rename(&self.path, old)?;
            self.file = create(&self.path)?;
            self.bytes = 0;
        }
        match self.file.write_all(bytes) {
            Ok(()) => {
                self.bytes += bytes.len() as u64;
                Ok(())
            }
            Err(error) => {
                // Half a line would swallow the next one.
                self.file.set_len(self.bytes)?;
                Err(error)
            }
        }
    }
}

fn create(path: &Path) -> io::Result<File> {
    // Appending: after a cut the next line stands at the end and not beyond it.
    File::options()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
}

/// Removes the logs of dead runners until there is room for one more, oldest first.
fn prune(dir: &Path, alive: &[RunnerId]) -> io::Result<()> {
    let mut logs: Vec<(SystemTime, PathBuf)> = Vec::new();
    let mut living = 0;
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let Some(runner) = runner_of(&path) else {
            continue;
        };
        if alive.contains(&runner) {
            living += 1;
        } else if let Ok(written) = fs::metadata(&path).and_then(|known| known.modified()) {
            logs.push((written, path));
        }
    }
    logs.sort();
    let room = (MOST_RUNNERS - 1).saturating_sub(living);
    let surplus = logs.len().saturating_sub(room);
    for (_, path) in &logs[..surplus] {
        let mut old = path.clone().into_os_string();
        old.push(OLD);
        for path in [path.as_path(), Path::new(&old)] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                // Another runner may be faster.
                Ok(()) | Err(_) => {}
            }
        }
    }
    Ok(())
}

/// Returns whose log this is; `None` for what is no current log.
pub(super) fn runner_of(path: &Path) -> Option<RunnerId> {
    let name = path.file_name()?.to_str()?;
    name.strip_suffix(ENDING)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn lost(id: i64) -> Event {
        Event::ClaimLost {
            id: crate::model::StepId::new(
                crate::model::ShardId::new(0).unwrap(),
                crate::model::LocalId::new(id),
            ),
        }
    }

    fn lines(path: &Path) -> Vec<serde_json::Value> {
        let text = fs::read_to_string(path).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'));
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn all_that_was_told_is_kept_in_order_when_the_log_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("events");
        let runner = RunnerId::new(5);
        let log = EventLog::start(&dir, runner, &[]).unwrap();
        for number in 1..=1_000 {
            log.emit(Timestamp::from_millis(number), &lost(number));
        }
        let trace = Event::Refilled {
            shard: crate::model::ShardId::new(0).unwrap(),
            band: crate::model::Band::DEFAULT,
            selected: 1,
            discarded: 0,
        };
        log.emit(Timestamp::from_millis(7), &trace);
        log.close();
        let found = lines(&dir.join("00000005.ndjson"));
        assert_eq!(found.len(), 1_000);
        for (line, number) in found.iter().zip(1..) {
            assert_eq!(line["seq"], number);
            assert_eq!(line["id"], format!("a{number}"));
            assert_eq!(line["by"], "00000005");
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&dir), 0o700);
        assert_eq!(mode(&dir.join("00000005.ndjson")), 0o600);
    }

    #[test]
    fn a_file_that_is_full_gives_way_and_one_predecessor_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0000000a.ndjson");
        let mut file = LogFile::open(path.clone(), RunnerId::new(10)).unwrap();
        let batch: Vec<_> = (1..=5_000)
            .map(|number| (Timestamp::from_millis(number), lost(number)))
            .collect();
        for _ in 0..20 {
            file.append(&batch, 0);
        }
        let old = lines(&dir.path().join("0000000a.ndjson.old"));
        let new = lines(&path);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        let seq = |line: &serde_json::Value| line["seq"].as_u64().unwrap();
        assert_eq!(seq(old.last().unwrap()) + 1, seq(&new[0]));
        assert_eq!(seq(new.last().unwrap()), 100_000);
        assert!(fs::metadata(&path).unwrap().len() < MOST_BYTES + (1 << 20));
    }

    #[test]
    fn what_could_not_be_kept_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.ndjson");
        let mut file = LogFile::open(path.clone(), RunnerId::new(1)).unwrap();
        // A disk that is full.
        file.file = File::options().write(true).open("/dev/full").unwrap();
        file.append(&[(Timestamp::from_millis(1), lost(1))], 3);
        assert_eq!(file.unwritten, 4);
        file.file = create(&path).unwrap();
        file.append(&[(Timestamp::from_millis(2), lost(2))], 0);
        let found = lines(&path);
        assert_eq!(found[0]["id"], "a2");
        assert_eq!(found[1]["event"], "missed");
        assert_eq!(found[1]["events"], 4);
    }

    #[test]
    fn the_oldest_logs_of_the_dead_make_room() {
        let dir = tempfile::tempdir().unwrap();
        let path = |number: i64| {
            dir.path()
                .join(format!("{}{ENDING}", RunnerId::new(number)))
        };
        for number in 1..=20 {
            let file = create(&path(number)).unwrap();
            let written = SystemTime::UNIX_EPOCH + Duration::from_secs(number.unsigned_abs());
            file.set_modified(written).unwrap();
            fs::write(
                dir.path()
                    .join(format!("{}{ENDING}{OLD}", RunnerId::new(number))),
                "",
            )
            .unwrap();
        }
        prune(dir.path(), &[RunnerId::new(1), RunnerId::new(2)]).unwrap();
        let kept: Vec<i64> = (1..=20).filter(|number| path(*number).exists()).collect();
        let expected: Vec<i64> = [1, 2].into_iter().chain(8..=20).collect();
        assert_eq!(kept, expected);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2 * 15);
    }
}
