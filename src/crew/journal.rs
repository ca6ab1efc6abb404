//! What a runner leaves in writing about its children, for whoever has to clean up after it.
//!
//! One file a runner, a record of fixed size for each worker, written in place: before a process
//! is started, after it was, and when its step has been settled. It is not forced to disk, because
//! after a power cut there are no children. A reader trusts nothing in it: every record has a
//! checksum over itself and its place.
//!
//! All numbers are little-endian. The header: 8 bytes of name and version, the runner's pid (4), 4
//! unused, its start (8), the boot (16), 16 unused, checksum (8). A record: state (1), shard (1), 2
//! unused, fence (4), local id (8), pid (4), 4 unused, both ends of its birth (8 and 8), 16
//! unused, checksum (8). Nothing but zeros is an idle worker.

use std::fs::{File, OpenOptions};
use std::hash::Hasher as _;
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use siphasher::sip::SipHasher13;

use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::model::{LocalId, ShardId, StepId};

use super::process::{Birth, BootId, ProcessIdentity};

const MAGIC: [u8; 8] = *b"fairqjr1";
const RECORD: usize = 64;
const CHECKSUM: usize = 56;
/// No journal is larger; it has a record for each worker.
const MOST_BYTES: u64 = 16 << 20;

const ABOUT_TO_START: u8 = 1;
const RUNNING: u8 = 2;

type Record = [u8; RECORD];

/// A runner's own journal. Any number of threads may write, each to its own worker's record; a
/// write is one system call.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
}

/// What a worker was at when its record was last written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// Nothing.
    Idle,
    /// It was about to start a step; whether there is a process is not known.
    AboutToStart {
        /// Which step.
        id: StepId,
        /// Under which claim.
        fence: u32,
    },
    /// It ran a step.
    Running {
        /// Which step.
        id: StepId,
        /// Under which claim.
        fence: u32,
        /// As which process.
        birth: Birth,
    },
    /// The record is no record: torn, cut off or overwritten.
    Damaged,
}

/// What somebody else's journal says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Testament {
    /// Who wrote it, and at which start of the machine; `None` if that cannot be read. Process
    /// numbers mean nothing unless it was this one.
    pub runner: Option<(BootId, ProcessIdentity)>,
    /// By worker, from 0. Workers that never started anything may be missing at the end.
    pub slots: Vec<SlotState>,
}

impl Journal {
    /// Makes this process's journal, readable by the owner alone.
    ///
    /// # Errors
    ///
    /// Unavailable: there is such a file, or it cannot be made. General: `/proc` is missing.
    pub fn create(path: &Path) -> Result<Self> {
        let boot = BootId::current()?;
        let ourselves = ProcessIdentity::of(std::process::id())
            .ok_or_else(|| Error::new(ErrorKind::General, "cannot read our own entry in /proc"))?;
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .or_fail(ErrorKind::Unavailable, || {
                format!("cannot make the journal {}", path.display())
            })?;
        let journal = Self {
            path: path.to_owned(),
            file,
        };
        journal.write(0, encode_header(boot, ourselves))?;
        Ok(journal)
    }

    /// Notes that a worker will start a process for this step now.
    ///
    /// # Errors
    ///
    /// Unavailable: the file cannot be written.
    pub fn about_to_start(&self, worker: u32, id: StepId, fence: u32) -> Result<()> {
        self.put(worker, SlotState::AboutToStart { id, fence })
    }

    /// Notes that the process is there.
    ///
    /// # Errors
    ///
    /// Unavailable: the file cannot be written.
    pub fn running(&self, worker: u32, id: StepId, fence: u32, birth: Birth) -> Result<()> {
        self.put(worker, SlotState::Running { id, fence, birth })
    }

    /// Notes that the worker has nothing to be cleaned up after.
    ///
    /// # Errors
    ///
    /// Unavailable: the file cannot be written.
    pub fn clear(&self, worker: u32) -> Result<()> {
        self.put(worker, SlotState::Idle)
    }

    fn put(&self, worker: u32, state: SlotState) -> Result<()> {
        self.write(u64::from(worker) + 1, encode(worker, state))
    }

    fn write(&self, place: u64, record: Record) -> Result<()> {
        self.file
            .write_all_at(&record, place * RECORD as u64)
            .or_fail(ErrorKind::Unavailable, || {
                format!("cannot write to the journal {}", self.path.display())
            })
    }
}

impl Testament {
    /// Reads a journal, as far as it can be read. Damage is part of the answer.
    ///
    /// # Errors
    ///
    /// Unavailable: there is no such file, or it may not be read.
    pub fn read(path: &Path) -> Result<Self> {
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(MOST_BYTES).read_to_end(&mut bytes))
            .or_fail(ErrorKind::Unavailable, || {
                format!("cannot read the journal {}", path.display())
            })?;
        Ok(Self::parse(&bytes))
    }

    fn parse(bytes: &[u8]) -> Self {
        let mut records = bytes.chunks(RECORD).map(|chunk| {
            let mut record = [0; RECORD];
            record[..chunk.len()].copy_from_slice(chunk);
            record
        });
        let runner = records.next().and_then(|header| decode_header(&header));
        let slots = (0..).zip(records);
        Self {
            runner,
            slots: slots
                .map(|(worker, record)| decode(worker, &record))
                .collect(),
        }
    }
}

/// Returns the sum of a record at its place; the header's place is that of no worker.
fn checksum(place: Option<u32>, record: &Record) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write_u64(place.map_or(0, |worker| u64::from(worker) + 1));
    hasher.write(&record[..CHECKSUM]);
    hasher.finish()
}

fn seal(place: Option<u32>, mut record: Record) -> Record {
    let sum = checksum(place, &record);
    record[CHECKSUM..].copy_from_slice(&sum.to_le_bytes());
    record
}

fn is_whole(place: Option<u32>, record: &Record) -> bool {
    record[CHECKSUM..] == checksum(place, record).to_le_bytes()
}

fn encode_header(boot: BootId, runner: ProcessIdentity) -> Record {
    let mut record = [0; RECORD];
    record[..8].copy_from_slice(&MAGIC);
    record[8..12].copy_from_slice(&runner.pid.to_le_bytes());
    record[16..24].copy_from_slice(&runner.start_ticks.to_le_bytes());
    record[24..40].copy_from_slice(&boot.get().to_le_bytes());
    seal(None, record)
}

fn decode_header(record: &Record) -> Option<(BootId, ProcessIdentity)> {
    if !is_whole(None, record) || record[..8] != MAGIC {
        return None;
    }
    let runner = ProcessIdentity {
        pid: u32::from_le_bytes(field(record, 8)),
        start_ticks: u64::from_le_bytes(field(record, 16)),
    };
    Some((BootId::new(u128::from_le_bytes(field(record, 24))), runner))
}

fn encode(worker: u32, state: SlotState) -> Record {
    let mut record = [0; RECORD];
    let (kind, id, fence) = match state {
        SlotState::AboutToStart { id, fence } => (ABOUT_TO_START, id, fence),
        SlotState::Running { id, fence, birth } => {
            record[16..20].copy_from_slice(&birth.pid.to_le_bytes());
            record[24..32].copy_from_slice(&birth.after.to_le_bytes());
            record[32..40].copy_from_slice(&birth.before.to_le_bytes());
            (RUNNING, id, fence)
        }
        SlotState::Idle | SlotState::Damaged => return record,
    };
    record[0] = kind;
    record[1] = id.shard.number();
    record[4..8].copy_from_slice(&fence.to_le_bytes());
    record[8..16].copy_from_slice(&id.local.get().to_le_bytes());
    seal(Some(worker), record)
}

fn decode(worker: u32, record: &Record) -> SlotState {
    if *record == [0; RECORD] {
        return SlotState::Idle;
    }
    let Some(shard) = ShardId::new(record[1]).filter(|_| is_whole(Some(worker), record)) else {
        return SlotState::Damaged;
    };
    let id = StepId::new(shard, LocalId::new(i64::from_le_bytes(field(record, 8))));
    let fence = u32::from_le_bytes(field(record, 4));
    match record[0] {
        ABOUT_TO_START => SlotState::AboutToStart { id, fence },
        RUNNING => SlotState::Running {
            id,
            fence,
            birth: Birth {
                pid: u32::from_le_bytes(field(record, 16)),
                after: u64::from_le_bytes(field(record, 24)),
                before: u64::from_le_bytes(field(record, 32)),
            },
        },
        _ => SlotState::Damaged,
    }
}

fn field<const N: usize>(record: &Record, from: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&record[from..from + N]);
    bytes
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::fuzz;

    const BIRTH: Birth = Birth {
        pid: 4711,
        after: 99,
        before: 101,
    };

    fn id(text: &str) -> StepId {
        text.parse().unwrap()
    }

    fn written() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let journal = Journal::create(&path).unwrap();
        journal.about_to_start(3, id("b7"), 2).unwrap();
        journal.about_to_start(0, id("a1"), 9).unwrap();
        journal.running(0, id("a1"), 9, BIRTH).unwrap();
        journal.running(1, id("a2"), 1, BIRTH).unwrap();
        journal.clear(1).unwrap();
        (dir, path)
    }

    const RUNS: fn() -> SlotState = || SlotState::Running {
        id: id("a1"),
        fence: 9,
        birth: BIRTH,
    };

    #[test]
    fn a_journal_tells_who_wrote_it_and_what_each_worker_was_at() {
        let (_dir, path) = written();
        let testament = Testament::read(&path).unwrap();
        let ourselves = ProcessIdentity::of(std::process::id()).unwrap();
        let boot = BootId::current().unwrap();
        assert_eq!(testament.runner, Some((boot, ourselves)));
        let starts = SlotState::AboutToStart {
            id: id("b7"),
            fence: 2,
        };
        assert_eq!(
            testament.slots,
            [RUNS(), SlotState::Idle, SlotState::Idle, starts]
        );
    }

    /// What is believed of a journal that somebody has written over is what was written, where it was.
    #[test]
    fn whatever_becomes_of_a_journal_only_what_was_written_is_believed() {
        let (_dir, path) = written();
        let bytes = fs::read(&path).unwrap();
        let whole = Testament::parse(&bytes);
        let records: Vec<&[u8]> = bytes.chunks(RECORD).chain([bytes.as_slice()]).collect();
        let make = |dice: &mut crate::ambient::Dice| {
            let mut bytes = bytes.clone();
            for _ in 0..dice.below(3) {
                fuzz::change(dice, &mut bytes, &records, &records);
            }
            bytes
        };
        fuzz::each("a journal", 4_000, make, |bytes| {
            let found = Testament::parse(bytes);
            let right = bytes.len().div_ceil(RECORD).saturating_sub(1);
            assert_eq!(found.slots.len(), right);
            assert!(found.runner.is_none() || found.runner == whole.runner);
            for (worker, slot) in found.slots.iter().enumerate() {
                let known = matches!(slot, SlotState::Idle | SlotState::Damaged);
                assert!(
                    known || whole.slots.get(worker) == Some(slot),
                    "{worker}: {slot:?}"
                );
            }
            found == whole
        });
    }

    #[test]
    fn a_journal_that_is_there_is_not_written_over() {
        let (_dir, path) = written();
        assert!(Journal::create(&path).is_err());
        assert_eq!(Testament::read(&path).unwrap().slots[0], RUNS());
    }

    #[test]
    fn no_single_wrong_byte_is_believed() {
        let (_dir, path) = written();
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            let testament = Testament::parse(&bytes);
            match at / RECORD {
                0 => assert_eq!(testament.runner, None, "byte {at}"),
                record => assert_eq!(testament.slots[record - 1], SlotState::Damaged, "byte {at}"),
            }
        }
    }

    #[test]
    fn a_journal_that_was_cut_off_gives_what_is_whole() {
        let (_dir, path) = written();
        let whole = fs::read(&path).unwrap();
        let all = Testament::parse(&whole);
        for length in 0..whole.len() {
            let cut = Testament::parse(&whole[..length]);
            assert_eq!(cut.runner.is_some(), length >= RECORD, "{length} bytes");
            for (worker, state) in cut.slots.iter().enumerate() {
                let is_whole = length >= (worker + 2) * RECORD;
                let may_be = *state == all.slots[worker] || *state == SlotState::Damaged;
                assert!(
                    may_be && (!is_whole || *state == all.slots[worker]),
                    "{length} bytes"
                );
            }
        }
    }

    #[test]
    fn a_record_in_the_wrong_place_is_not_believed() {
        let (_dir, path) = written();
        let mut bytes = fs::read(&path).unwrap();
        let first = bytes[RECORD..2 * RECORD].to_vec();
        bytes[2 * RECORD..3 * RECORD].copy_from_slice(&first);
        assert_eq!(Testament::parse(&bytes).slots[1], SlotState::Damaged);
    }
}
