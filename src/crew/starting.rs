//! When no process is half started.
//!
//! Between its creation and the moment at which it becomes its program, a new process has a copy
//! of every descriptor of ours, those too that other workers opened for their own steps. Who must
//! know whether somebody *else* holds a descriptor waits until all such copies are gone. The lock
//! is global because what it guards is: the one table of descriptors that a process has.

use std::sync::{PoisonError, RwLock};

static STARTING: RwLock<()> = RwLock::new(());

/// Does something that starts a process and returns when that is its program, or never will be.
/// Any number of threads at once.
pub(super) fn start_with<T>(start: impl FnOnce() -> T) -> T {
    let _shared = STARTING.read().unwrap_or_else(PoisonError::into_inner);
    start()
}

/// Blocks until every start that had begun is over: a millisecond or so.
pub(super) fn await_starts() {
    drop(STARTING.write().unwrap_or_else(PoisonError::into_inner));
}
