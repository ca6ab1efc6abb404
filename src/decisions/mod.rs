//! What runners decided lately: whose turn it was and which steps got it.
//!
//! Each runner keeps one log in the store, as lines of JSON, and one predecessor of it; both are
//! bounded. It is kept for people who ask why a step ran when it did, and nothing depends on it: it
//! is written late, a crash loses its end, and what is too much is left out and counted.

mod log;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::model::{Band, FairnessKey, RunnerId, ShardId, StepId, Timestamp};

pub use log::DecisionLog;

/// The form of a record.
const SCHEMA: u32 = 1;
/// Of so many runners logs are kept.
const MOST_RUNNERS: usize = 16;
/// No log is larger: one that has grown too large gives way after what was written last, whose slots
/// may have long keys.
const MOST_READ: u64 = 16 << 20;
/// What a log's name ends with, and its predecessor's.
const ENDINGS: [&str; 2] = [".ndjson", ".ndjson.old"];

/// One place in what a refill pushed: the key, its turn in virtual time (0 for a lottery), the step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slot(pub FairnessKey, pub f64, pub StepId);

/// One refill of one shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The form, for readers to come.
    pub schema: u32,
    /// When it was pushed, in milliseconds since 1970: no step of it was taken by it before.
    pub at: Timestamp,
    /// Which push of this shard by this runner it was, from 1. Those that pushed the same as the one
    /// before them are not recorded.
    pub cycle: u64,
    /// The shard.
    pub shard: ShardId,
    /// The band of all slots.
    pub band: Band,
    /// `stride` or `lottery`.
    pub pick: Pick,
    /// The lottery's seed.
    pub seed: Option<u64>,
    /// How many slots all shards had together.
    pub capacity: usize,
    /// The steps in the order in which they were to be taken.
    pub slots: Vec<Slot>,
    /// How many pushes before this one, of any shard, were too much to be recorded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

/// How the slots of a record were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pick {
    /// By virtual time.
    Stride,
    /// By lot.
    Lottery,
}

/// What a runner's log tells of some steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// The time of the oldest record that is left; `None` if there is none at all.
    pub from: Option<Timestamp>,
    /// The records that name any of the steps, oldest first.
    pub records: Vec<Record>,
}

impl Record {
    /// Returns the place of a step among the slots, from 0.
    pub fn place(&self, id: StepId) -> Option<usize> {
        self.slots.iter().position(|slot| slot.2 == id)
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn path(dir: &Path, runner: RunnerId, ending: &str) -> PathBuf {
    dir.join(format!("{runner}{ending}"))
}

/// Reads what a runner's log tells of these steps. It reads both files, a few milliseconds' work,
/// but parses only lines that name a step.
///
/// # Errors
///
/// `Unavailable` if a file is there and cannot be read.
pub fn read(dir: &Path, runner: RunnerId, ids: &[StepId]) -> Result<Known> {
    let named: Vec<String> = ids.iter().map(|id| format!("\"{id}\"")).collect();
    let mut known = Known::default();
    // Each once: if the log is turned over just now, both names may give the same file.
    let mut found = BTreeMap::new();
    for ending in ENDINGS {
        let text = text_of(&path(dir, runner, ending))?;
        for line in text.lines() {
            if let Some(first) = parse(line) {
                known.from = Some(known.from.map_or(first.at, |at| at.min(first.at)));
                break;
            }
        }
        let lines = text
            .lines()
            .filter(|line| named.iter().any(|name| line.contains(name)));
        for record in lines.filter_map(parse) {
            if ids.iter().any(|id| record.place(*id).is_some()) {
                found.insert((record.at, record.shard, record.cycle), record);
            }
        }
    }
    known.records = found.into_values().collect();
    Ok(known)
}

/// Reads a line; a crash may have left half of one, and a newer fairq another form.
fn parse(line: &str) -> Option<Record> {
    serde_json::from_str(line)
        .ok()
        .filter(|record: &Record| record.schema == SCHEMA)
}

fn text_of(path: &Path) -> Result<String> {
    let failed = || format!("cannot read the log of decisions {}", path.display());
    let mut bytes = Vec::new();
    match File::open(path) {
        Ok(file) => {
            file.take(MOST_READ)
                .read_to_end(&mut bytes)
                .or_fail(ErrorKind::Unavailable, failed)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(Error::new(ErrorKind::Unavailable, failed()).caused_by(&error)),
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Removes the logs that were written to longest ago, until so many runners' are left that one more
/// may come.
fn make_room(dir: &Path) -> io::Result<()> {
    let mut written: BTreeMap<RunnerId, SystemTime> = BTreeMap::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let runner = ENDINGS
            .iter()
            .find_map(|ending| name.to_str()?.strip_suffix(ending)?.parse().ok());
        let (Some(runner), Ok(when)) = (runner, entry.metadata().and_then(|it| it.modified()))
        else {
            continue;
        };
        let latest = written.entry(runner).or_insert(when);
        *latest = when.max(*latest);
    }
    let mut oldest: Vec<_> = written.into_iter().map(|(id, when)| (when, id)).collect();
    oldest.sort_unstable();
    let surplus = (oldest.len() + 1).saturating_sub(MOST_RUNNERS);
    for (_, runner) in oldest.into_iter().take(surplus) {
        for ending in ENDINGS {
            match fs::remove_file(path(dir, runner, ending)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
