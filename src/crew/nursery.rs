//! Whose children are whose, where a runner is process 1.
//!
//! In a container a runner may be the first process of its namespace. Then every process whose parent
//! has died becomes its child, and stays as a zombie until it is reaped. Which zombies are those of
//! steps, whose endings somebody waits for, is known here: all others may be reaped.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use nix::sys::wait::{WaitPidFlag, waitpid};

use super::process::{all_processes, as_pid};

/// Held shared while a process is started, so that no child is unknown while it is held alone.
static STARTING: RwLock<()> = RwLock::new(());
/// The processes that were started here and have not been reaped.
static OURS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

fn ours() -> MutexGuard<'static, BTreeSet<u32>> {
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a process that is reaped by whoever waits for it, and by nobody else.
pub(super) fn bear(start: impl FnOnce() -> io::Result<u32>) -> io::Result<u32> {
    let known = STARTING.read().unwrap_or_else(PoisonError::into_inner);
    let born = start();
    if let Ok(pid) = &born {
        ours().insert(*pid);
    }
    drop(known);
    born
}

/// Notes that such a process has been reaped.
pub(super) fn forget(pid: u32) {
    ours().remove(&pid);
}

/// Reaps what ended and was left to this process, if it is process 1. Returns how many there were.
/// Looks at every process of the machine.
pub fn reap_adopted() -> usize {
    let ourselves = std::process::id();
    if ourselves != 1 {
        return 0;
    }
    let alone = STARTING.write().unwrap_or_else(PoisonError::into_inner);
    let known = ours();
    let reaped = all_processes()
        .into_iter()
        .filter(|process| process.zombie && process.parent == ourselves)
        .map(|process| process.identity.pid)
        .filter(|pid| !known.contains(pid))
        .filter(|pid| waitpid(as_pid(*pid), Some(WaitPidFlag::WNOHANG)).is_ok())
        .count();
    drop(known);
    drop(alone);
    reaped
}
