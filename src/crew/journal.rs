//! What a runner leaves in writing about its children, for whoever has to clean up after it.
//!
//! One file a runner, a record of fixed size for each worker, written in place: before a process
//! is started, after it was, and when the worker is done with it. What a step has left behind and
//! was asked to end outlives that, and mostly the record of the outcome is still on its way then:
//! it has a record of its own, until it is gone. Nothing is forced to disk, because after a power
//! cut there are no children. A reader trusts nothing in it: every record has a checksum over
//! itself and its place.
//!
//! All numbers are little-endian. The header: 8 bytes of name and version, the runner's pid (4), 4
//! unused, its start (8), the boot (16), 16 unused, checksum (8). A record: state (1), shard (1), 2
//! unused, fence (4), local id (8), pid (4), a member's pid (4), both ends of its birth (8 and 8),
//! 16 unused, checksum (8). Workers have the odd places, what was left behind the even ones; of it
//! the pid is that of the group, and the birth that of the member. Nothing but zeros is a place
//! where nothing is.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::hash::Hasher as _;
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use siphasher::sip::SipHasher13;

use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::model::{LocalId, ShardId, StepId};

use super::process::{Birth, BootId, ProcessIdentity};

const MAGIC: [u8; 8] = *b"fairqjr2";
const RECORD: usize = 64;
const CHECKSUM: usize = 56;
/// No journal is larger; it has a record for each worker.
const MOST_BYTES: u64 = 16 << 20;

const ABOUT_TO_START: u8 = 1;
const RUNNING: u8 = 2;
const LEFT: u8 = 3;

/// Where the header is.
const HEADER: u64 = 0;

type Record = [u8; RECORD];

/// A runner's own journal. Any number of threads may write, each to its own worker's record; a
/// write is one system call.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// The numbers of the notes about what was left behind.
    notes: Mutex<BTreeSet<u32>>,
}

/// That something which a step left behind may still be there: the journal says so until this is
/// dropped.
#[derive(Debug)]
pub struct Note {
    journal: Arc<Journal>,
    number: u32,
}

/// What a step left in its process group, and was still being ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Which step.
    pub id: StepId,
    /// The group, whose leader has been reaped.
    pub group: u32,
    /// One who was in it.
    pub member: ProcessIdentity,
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
    /// What steps had left behind. What cannot be read is missing.
    pub left: Vec<Left>,
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
            notes: Mutex::default(),
        };
        journal.write(HEADER, encode_header(boot, ourselves))?;
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

    /// Notes what a step has left behind. To be called before the worker's own record is cleared.
    ///
    /// # Errors
    ///
    /// Unavailable: the file cannot be written.
    pub fn note(self: &Arc<Self>, left: Left) -> Result<Note> {
        let number = {
            let mut notes = self.notes();
            let free = (0..).zip(&*notes).find(|(at, taken)| at != *taken);
            let number = free.map_or_else(|| notes.last().map_or(0, |last| last + 1), |(at, _)| at);
            notes.insert(number);
            number
        };
        // Dropped at once if it cannot be written, which gives the number back.
        let note = Note {
            journal: Arc::clone(self),
            number,
        };
        self.write(place_of_note(number), encode_left(number, left))?;
        Ok(note)
    }

    fn put(&self, worker: u32, state: SlotState) -> Result<()> {
        self.write(place_of_worker(worker), encode(worker, state))
    }

    fn notes(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, place: u64, record: Record) -> Result<()> {
        self.file
            .write_all_at(&record, place * RECORD as u64)
            .or_fail(ErrorKind::Unavailable, || {
                format!("cannot write to the journal {}", self.path.display())
            })
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        // If it stays, it names a group that is gone: nobody is ended for it.
        let place = place_of_note(self.number);
        self.journal.write(place, [0; RECORD]).ok();
        self.journal.notes().remove(&self.number);
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
        let mut slots = Vec::new();
        let mut left = Vec::new();
        for (number, pair) in (0..).zip(records.collect::<Vec<_>>().chunks(2)) {
            slots.extend(pair.first().map(|record| decode(number, record)));
            left.extend(pair.get(1).and_then(|record| decode_left(number, record)));
        }
        Self {
            runner,
            slots,
            left,
        }
    }
}

fn place_of_worker(worker: u32) -> u64 {
    2 * u64::from(worker) + 1
}

fn place_of_note(number: u32) -> u64 {
    2 * u64::from(number) + 2
}

/// Returns the sum of a record at its place.
fn checksum(place: u64, record: &Record) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write_u64(place);
    hasher.write(&record[..CHECKSUM]);
    hasher.finish()
}

fn seal(place: u64, mut record: Record) -> Record {
    let sum = checksum(place, &record);
    record[CHECKSUM..].copy_from_slice(&sum.to_le_bytes());
    record
}

fn is_whole(place: u64, record: &Record) -> bool {
    record[CHECKSUM..] == checksum(place, record).to_le_bytes()
}

fn encode_header(boot: BootId, runner: ProcessIdentity) -> Record {
    let mut record = [0; RECORD];
    record[..8].copy_from_slice(&MAGIC);
    record[8..12].copy_from_slice(&runner.pid.to_le_bytes());
    record[16..24].copy_from_slice(&runner.start_ticks.to_le_bytes());
    record[24..40].copy_from_slice(&boot.get().to_le_bytes());
    seal(HEADER, record)
}

fn decode_header(record: &Record) -> Option<(BootId, ProcessIdentity)> {
    if !is_whole(HEADER, record) || record[..8] != MAGIC {
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
    record[4..8].copy_from_slice(&fence.to_le_bytes());
    put_id(&mut record, id);
    seal(place_of_worker(worker), record)
}

fn decode(worker: u32, record: &Record) -> SlotState {
    if *record == [0; RECORD] {
        return SlotState::Idle;
    }
    let Some(id) = get_id(record).filter(|_| is_whole(place_of_worker(worker), record)) else {
        return SlotState::Damaged;
    };
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

fn encode_left(number: u32, left: Left) -> Record {
    let mut record = [0; RECORD];
    record[0] = LEFT;
    put_id(&mut record, left.id);
    record[16..20].copy_from_slice(&left.group.to_le_bytes());
    record[20..24].copy_from_slice(&left.member.pid.to_le_bytes());
    record[24..32].copy_from_slice(&left.member.start_ticks.to_le_bytes());
    seal(place_of_note(number), record)
}

fn decode_left(number: u32, record: &Record) -> Option<Left> {
    if record[0] != LEFT || !is_whole(place_of_note(number), record) {
        return None;
    }
    Some(Left {
        id: get_id(record)?,
        group: u32::from_le_bytes(field(record, 16)),
        member: ProcessIdentity {
            pid: u32::from_le_bytes(field(record, 20)),
            start_ticks: u64::from_le_bytes(field(record, 24)),
        },
    })
}

fn put_id(record: &mut Record, id: StepId) {
    record[1] = id.shard.number();
    record[8..16].copy_from_slice(&id.local.get().to_le_bytes());
}

fn get_id(record: &Record) -> Option<StepId> {
    let local = LocalId::new(i64::from_le_bytes(field(record, 8)));
    ShardId::new(record[1]).map(|shard| StepId::new(shard, local))
}

fn field<const N: usize>(record: &Record, from: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&record[from..from + N]);
    bytes
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
