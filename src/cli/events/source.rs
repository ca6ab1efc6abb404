//! Where events come from: one source a runner's log and one a shard, merged by time.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::cli::event_json::{self, Known};
use crate::cli::eventlog::{OLD, runner_of};
use crate::error::{Context as _, ErrorKind, Result};
use crate::model::{LocalId, ShardId, Timestamp};
use crate::store::sqlite::{SqliteStore, events_dir};
use crate::store::{Read as _, Store as _};

/// How much is read of a source at a time.
const BYTES: usize = 64 * 1024;
const ARRIVALS: usize = 500;
/// No line is longer.
const MOST_LINE: usize = 1 << 20;

/// One event.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) known: Known,
    /// The JSON object, without a newline.
    pub(super) line: String,
}

/// All sources of a store.
pub(super) struct Sources<'s> {
    store: &'s SqliteStore,
    dir: PathBuf,
    since: Timestamp,
    /// The runners whose logs are among the feeds.
    runners: BTreeSet<PathBuf>,
    feeds: Vec<Feed>,
}

struct Feed {
    from: Origin,
    ahead: VecDeque<Item>,
    /// There was nothing more in this round.
    dry: bool,
}

enum Origin {
    Shard { shard: ShardId, last: LocalId },
    Log(Log),
}

impl<'s> Sources<'s> {
    /// Returns the sources of events at or after `since`.
    pub(super) fn new(store: &'s SqliteStore, since: Timestamp) -> Self {
        let shards = ShardId::first(store.shard_count());
        Self {
            store,
            dir: events_dir(store.root()),
            since,
            runners: BTreeSet::new(),
            feeds: shards
                .map(|shard| {
                    Feed::new(Origin::Shard {
                        shard,
                        last: LocalId::new(0),
                    })
                })
                .collect(),
        }
    }

    /// Begins a round: looks for runners that are new, and lets every source be asked again.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the logs' directory cannot be read; that there is none means that no runner
    /// has told anything.
    pub(super) fn look(&mut self) -> Result<()> {
        let failed = || format!("cannot read {}", self.dir.display());
        for feed in &mut self.feeds {
            feed.dry = false;
        }
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.or_fail(ErrorKind::Unavailable, failed)?,
        };
        for entry in entries {
            let path = entry.or_fail(ErrorKind::Unavailable, failed)?.path();
            if runner_of(&path).is_some() && self.runners.insert(path.clone()) {
                self.feeds.push(Feed::new(Origin::Log(Log::new(path))));
            }
        }
        Ok(())
    }

    /// Returns the earliest event that is known; `None` ends the round.
    ///
    /// # Errors
    ///
    /// `Unavailable` if a source cannot be read.
    pub(super) fn next(&mut self) -> Result<Option<Item>> {
        for feed in &mut self.feeds {
            while feed.ahead.is_empty() && !feed.dry {
                feed.fill(self.store, self.since)?;
            }
        }
        let earliest = self
            .feeds
            .iter_mut()
            .filter(|feed| !feed.ahead.is_empty())
            .min_by_key(|feed| feed.ahead.front().map(|item| item.known.at));
        Ok(earliest.and_then(|feed| feed.ahead.pop_front()))
    }
}

impl Feed {
    const fn new(from: Origin) -> Self {
        Self {
            from,
            ahead: VecDeque::new(),
            dry: false,
        }
    }

    /// Reads on.
    fn fill(&mut self, store: &SqliteStore, since: Timestamp) -> Result<()> {
        match &mut self.from {
            Origin::Shard { shard, last } => {
                let arrivals = store.arrivals(*shard, *last, since, ARRIVALS)?;
                self.dry = arrivals.is_empty();
                for arrival in arrivals {
                    *last = arrival.id.local;
                    self.ahead.push_back(Item {
                        line: event_json::enqueued(&arrival),
                        known: Known {
                            at: arrival.created,
                            id: Some(arrival.id),
                            key: Some(arrival.key),
                        },
                    });
                }
            }
            Origin::Log(log) => {
                let more = log.read().or_fail(ErrorKind::Unavailable, || {
                    format!("cannot read {}", log.path.display())
                })?;
                self.dry = !more;
                for line in log.lines() {
                    let known = Known::of(&line).filter(|known| known.at >= since);
                    if let (Some(known), Ok(line)) = (known, String::from_utf8(line)) {
                        self.ahead.push_back(Item { known, line });
                    }
                }
            }
        }
        Ok(())
    }
}

/// One runner's log, which may give way to a new file while it is read.
struct Log {
    path: PathBuf,
    /// What is read now, and the number of its file.
    open: Option<(File, u64)>,
    /// What has been read and not been handed out; its last line may be incomplete.
    text: Vec<u8>,
}

impl Log {
    const fn new(path: PathBuf) -> Self {
        Self {
            path,
            open: None,
            text: Vec::new(),
        }
    }

    /// Reads a part of what is new. `false` if there is nothing.
    fn read(&mut self) -> io::Result<bool> {
        loop {
            if self.open.is_none() {
                self.open = match open(&self.predecessor())? {
                    Some(old) => Some(old),
                    None => open(&self.path)?,
                };
            }
            let Some((file, number)) = &self.open else {
                return Ok(false);
            };
            // Looked at before reading: nothing is written any more to a file that has given way, so
            // its end is an end.
            let current = fs::metadata(&self.path).ok().map(|known| known.ino());
            let gave_way = current.is_some_and(|current| current != *number);
            let mut part = vec![0; BYTES];
            let count = (&*file).read(&mut part)?;
            if count > 0 {
                self.text.extend_from_slice(&part[..count]);
                self.let_go();
                return Ok(true);
            }
            if !gave_way {
                return Ok(false);
            }
            // Either ours is the predecessor now, or more than one file has come since.
            let later = open(&self.predecessor())?.filter(|(_, old)| *old != *number);
            let next = match later {
                Some(later) => Some(later),
                None => open(&self.path)?,
            };
            let Some(next) = next else {
                return Ok(false);
            };
            self.text.clear();
            self.open = Some(next);
        }
    }

    fn predecessor(&self) -> PathBuf {
        let mut old = self.path.clone().into_os_string();
        old.push(OLD);
        PathBuf::from(old)
    }

    /// Forgets a line that is longer than any that a runner writes: it is damage, and may have no end.
    /// What stands for it makes the rest of it no text.
    fn let_go(&mut self) {
        let newline = self.text.iter().rposition(|byte| *byte == b'\n');
        let start = newline.map_or(0, |at| at + 1);
        if self.text.len() - start > MOST_LINE {
            self.text.truncate(start);
            self.text.push(0xff);
        }
    }

    /// Takes out the lines that are complete.
    fn lines(&mut self) -> Vec<Vec<u8>> {
        let end = self.text.iter().rposition(|byte| *byte == b'\n');
        let whole: Vec<u8> = self.text.drain(..end.map_or(0, |end| end + 1)).collect();
        whole
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(<[u8]>::to_vec)
            .collect()
    }
}

/// Opens a file; `None` if it is not there.
fn open(path: &Path) -> io::Result<Option<(File, u64)>> {
    match File::open(path) {
        Ok(file) => {
            let number = file.metadata()?.ino();
            Ok(Some((file, number)))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(path: &Path, text: &str) {
        use std::io::Write as _;
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(path)
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// Reads all there is.
    fn all(log: &mut Log) -> Vec<String> {
        let mut found = Vec::new();
        while log.read().unwrap() {
            found.extend(
                log.lines()
                    .into_iter()
                    .map(|line| String::from_utf8(line).unwrap()),
            );
        }
        found
    }

    #[test]
    fn a_log_is_read_once_whatever_gives_way_to_what() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.ndjson");
        let old = dir.path().join("1.ndjson.old");
        let mut log = Log::new(path.clone());
        assert_eq!(all(&mut log), [""; 0]);
        append(&old, "1\n2\n");
        append(&path, "3\n");
        assert_eq!(all(&mut log), ["1", "2", "3"]);
        assert_eq!(all(&mut log), [""; 0]);
        append(&path, "4\n");
        fs::rename(&path, &old).unwrap();
        // In between there is no file of that name.
        assert_eq!(all(&mut log), ["4"]);
        append(&path, "5\n");
        assert_eq!(all(&mut log), ["5"]);
        for text in ["6\n", "7\n"] {
            append(&path, text);
            fs::rename(&path, &old).unwrap();
        }
        append(&path, "8\n");
        assert_eq!(all(&mut log), ["6", "7", "8"]);
    }

    /// A log that is written over by something without newlines does not fill the memory, and what
    /// comes after it is read.
    #[test]
    fn a_line_without_an_end_is_let_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.ndjson");
        let mut log = Log::new(path.clone());
        append(&path, "one\n");
        append(&path, &"x".repeat(5 * MOST_LINE));
        append(&path, "\ntwo\n");
        let (mut found, mut most) = (Vec::new(), 0);
        while log.read().unwrap() {
            most = most.max(log.text.len());
            found.extend(log.lines());
        }
        assert!(most <= MOST_LINE + BYTES, "{most}");
        assert_eq!(found.first().unwrap(), b"one");
        assert_eq!(found.last().unwrap(), b"two");
        assert!(
            found.iter().all(|line| line.len() <= MOST_LINE),
            "no part is too long"
        );
    }

    #[test]
    fn whatever_is_in_a_log_an_event_is_a_line_of_json() {
        let at = r#""at":"2027-01-15T08:00:00.000Z""#;
        let good = format!(r#"{{"schema":1,{at},"by":"00000abc","seq":7,"id":"b5","key":"k"}}"#);
        let tabs = format!("{{\t{at}\r,\"id\":\"a1\"}}");
        let samples: [&[u8]; 5] = [
            good.as_bytes(),
            tabs.as_bytes(),
            br#"{"at":"2027-01-15T08:00:00Z","id":"\u001b[2J","key":"\ud83d\ude00"}"#,
            br#"{"at":"9999-12-31T23:59:59-25:00"}"#,
            br#"{"at":null}"#,
        ];
        crate::fuzz::mutants("an event", 4_000, &samples, &[at.as_bytes()], |bytes| {
            let mut log = Log::new(PathBuf::new());
            log.text = bytes.to_vec();
            log.text.push(b'\n');
            let mut accepted = false;
            for line in log.lines() {
                if Known::of(&line).is_some() {
                    accepted = true;
                    assert!(!line.iter().any(u8::is_ascii_control), "{line:?}");
                    assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&line).is_ok());
                }
            }
            assert!(log.text.is_empty());
            accepted
        });
    }

    #[test]
    fn a_line_is_handed_out_when_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.ndjson");
        let mut log = Log::new(path.clone());
        append(&path, "one\ntw");
        assert_eq!(all(&mut log), ["one"]);
        append(&path, "o");
        assert_eq!(all(&mut log), [""; 0]);
        append(&path, "\nthree\n");
        assert_eq!(all(&mut log), ["two", "three"]);
    }
}
