//! Who a process is. The kernel uses a process's number again; it does not use a number together
//! with a start time and a boot again.

use std::fs;

use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use crate::error::{Context as _, Error, ErrorKind, Result};

/// The kernel's clock ticks in a second, as `/proc` counts them. It is 100 on every architecture
/// that Linux and Rust's standard library share, whatever the kernel's own tick is.
const TICKS_PER_SECOND: u64 = 100;

/// One process of this boot, for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessIdentity {
    /// Its number.
    pub pid: u32,
    /// When it was started, in clock ticks since the machine was.
    pub start_ticks: u64,
}

impl ProcessIdentity {
    /// Returns who has this number now; `None` if nobody has.
    pub fn of(pid: u32) -> Option<Self> {
        ProcessStat::of(pid).map(|stat| stat.identity)
    }

    /// Returns whether this process still exists. A zombie does.
    pub fn exists(self) -> bool {
        Self::of(self.pid) == Some(self)
    }
}

/// Who a child is, as its parent knows it without having to look: its number, and two readings of
/// the clock between which it was started.
///
/// That costs two reads of memory where the kernel's own record costs three system calls, and it
/// is as certain: whoever else had the number between the two readings has lost it to our child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Birth {
    /// Its number, which is also that of its group.
    pub pid: u32,
    /// The last moment at which it did not exist yet, in clock ticks since the machine started.
    pub after: u64,
    /// A moment at which it did exist, in the same ticks.
    pub before: u64,
}

impl Birth {
    /// Returns whether this process is that child.
    pub const fn is(&self, process: ProcessIdentity) -> bool {
        self.pid == process.pid
            && self.after <= process.start_ticks
            && process.start_ticks <= self.before
    }
}

/// What `/proc/PID/stat` says of a process, as far as we ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessStat {
    /// Who it is.
    pub(super) identity: ProcessIdentity,
    /// Its parent's number.
    pub(super) parent: u32,
    /// Its process group.
    pub(super) group: u32,
    /// Its session.
    pub(super) session: u32,
    /// Whether it has ended and only waits to be reaped.
    pub(super) zombie: bool,
}

impl ProcessStat {
    fn of(pid: u32) -> Option<Self> {
        Self::parse(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Reads the line. The name in it may hold anything, brackets and line feeds too, so that the
    /// fields are counted from its last closing bracket.
    fn parse(pid: u32, line: &[u8]) -> Option<Self> {
        let name_ends = line.iter().rposition(|byte| *byte == b')')?;
        let mut fields = std::str::from_utf8(&line[name_ends + 1..])
            .ok()?
            .split_ascii_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let session = fields.next()?.parse().ok()?;
        let start_ticks = fields.nth(15)?.parse().ok()?;
        Some(Self {
            identity: ProcessIdentity { pid, start_ticks },
            parent,
            group,
            session,
            zombie: matches!(state, "Z" | "X" | "x"),
        })
    }
}

/// Returns every process of the machine that can be seen.
pub(super) fn all_processes() -> Vec<ProcessStat> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(ProcessStat::of)
        .collect()
}

/// Returns the processes of a group that are not zombies. Looks at every process of the machine.
pub(super) fn living_members(group: u32) -> Vec<ProcessStat> {
    let mut members = all_processes();
    members.retain(|process| process.group == group && !process.zombie);
    members
}

/// Returns the time since the machine started, as the kernel stamps it on a new process: in clock
/// ticks, rounded down.
///
/// It is no measure of time for us, only a part of a process's identity, and it goes on while the
/// machine sleeps; therefore it does not come from the crate's clock.
pub(super) fn ticks_now() -> u64 {
    let since_boot = clock_gettime(ClockId::CLOCK_BOOTTIME)
        .expect("every Linux that this crate builds for has this clock");
    let seconds = u64::try_from(since_boot.tv_sec()).unwrap_or(0);
    let nanos = u64::try_from(since_boot.tv_nsec()).unwrap_or(0);
    seconds * TICKS_PER_SECOND + nanos / (1_000_000_000 / TICKS_PER_SECOND)
}

/// Returns the number as the system's own type. Numbers come from the kernel, so they fit.
pub(super) const fn as_pid(pid: u32) -> Pid {
    Pid::from_raw(pid.cast_signed())
}

/// Which start of the machine it is: process numbers and start times of another mean nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootId(u128);

impl BootId {
    /// Returns that of the running kernel.
    ///
    /// # Errors
    ///
    /// General: `/proc` is not mounted or does not say.
    pub fn current() -> Result<Self> {
        const PATH: &str = "/proc/sys/kernel/random/boot_id";
        let text = fs::read_to_string(PATH)
            .or_fail(ErrorKind::General, || format!("cannot read {PATH}"))?;
        let digits: String = text.trim().chars().filter(|sign| *sign != '-').collect();
        u128::from_str_radix(&digits, 16).map(Self).map_err(|bad| {
            Error::new(ErrorKind::General, format!("{PATH} is not a number")).caused_by(&bad)
        })
    }

    /// Takes what [`Self::get`] gave.
    pub const fn new(number: u128) -> Self {
        Self(number)
    }

    /// Returns the number.
    pub const fn get(self) -> u128 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let line =
            b"77 (a) R 1 2 3\n\xff(b)) S 1 70 60 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4242 9 9";
        assert_eq!(
            ProcessStat::parse(77, line),
            Some(ProcessStat {
                identity: ProcessIdentity {
                    pid: 77,
                    start_ticks: 4242
                },
                parent: 1,
                group: 70,
                session: 60,
                zombie: false,
            })
        );
        assert_eq!(ProcessStat::parse(77, b"77 (a"), None);
        assert_eq!(ProcessStat::parse(77, b"77 (a) S 1 2"), None);
    }

    #[test]
    fn the_clock_is_the_one_that_the_kernel_stamps_on_processes() {
        let ourselves = ProcessIdentity::of(std::process::id()).unwrap();
        assert!(ourselves.exists());
        assert!(ourselves.start_ticks <= ticks_now());
        // A thread that is started now has a stamp of its own, in the same ticks.
        let after = ticks_now();
        let stamp = std::thread::spawn(|| {
            let line = fs::read("/proc/thread-self/stat").unwrap();
            ProcessStat::parse(1, &line).unwrap().identity.start_ticks
        });
        let stamp = stamp.join().unwrap();
        assert!(after <= stamp && stamp <= ticks_now(), "{after} {stamp}");
    }

    #[test]
    fn a_boot_has_one_name() {
        let boot = BootId::current().unwrap();
        assert_eq!(BootId::current().unwrap(), boot);
        assert_eq!(BootId::new(boot.get()), boot);
        assert_ne!(boot.get(), 0);
    }

    #[test]
    fn a_process_that_has_the_number_but_not_the_time_is_another() {
        let birth = Birth {
            pid: 5,
            after: 10,
            before: 12,
        };
        let born = |pid, start_ticks| birth.is(ProcessIdentity { pid, start_ticks });
        assert!(born(5, 10) && born(5, 12));
        assert!(!born(5, 9) && !born(5, 13) && !born(6, 11));
    }
}
