//! A place to wait for "something has changed".

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Counts changes; whoever waits gives the count that it has seen and misses none.
#[derive(Debug, Default)]
pub struct Notice {
    changes: Mutex<u64>,
    changed: Condvar,
}

impl Notice {
    /// Says that something has changed.
    pub fn tell(&self) {
        *self.changes.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }

    /// Returns the count of changes so far. Look after this, wait with it.
    pub fn seen(&self) -> u64 {
        *self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the count is another than `seen`, at most for `limit`.
    pub fn wait(&self, seen: u64, limit: Duration) {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        drop(
            self.changed
                .wait_timeout_while(changes, limit, |changes| *changes == seen),
        );
    }
}
