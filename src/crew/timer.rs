//! The one thread that rings the roster's alarms.
//!
//! It is there only while there is an alarm to wait for, and wakes at the earliest one: a step that
//! has neither a time-out nor a limit on its output costs nothing here.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::Shared;

#[derive(Debug, Default)]
struct State {
    /// The thread, if it has been started and has not decided to end.
    thread: Option<JoinHandle<()>>,
    /// Whether the earliest alarm may be another one than when it last looked.
    told: bool,
}

/// Wakes when an alarm is due.
#[derive(Debug, Default)]
pub(super) struct Timer {
    state: Mutex<State>,
    changed: Condvar,
}

impl Timer {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sees to it that the earliest alarm is waited for. To be called after an alarm was set that may be
/// it, and without the roster's lock.
pub(super) fn tell(shared: &Arc<Shared>) {
    if shared.hands().by_hand {
        return;
    }
    let mut state = shared.timer.lock();
    state.told = true;
    if state.thread.is_none() {
        let serving = Arc::clone(shared);
        // Without a thread the next that tells tries again; the engine's heartbeat does, too.
        state.thread = std::thread::Builder::new()
            .name("timer".to_owned())
            .spawn(move || serve(&serving))
            .ok();
    }
    drop(state);
    shared.timer.changed.notify_all();
}

/// Waits until the thread has ended. To be called when there will be no more alarms.
pub(super) fn join(shared: &Arc<Shared>) {
    let mut state = shared.timer.lock();
    state.told = true;
    let thread = state.thread.take();
    drop(state);
    shared.timer.changed.notify_all();
    if let Some(thread) = thread {
        // One that panicked has been heard of.
        drop(thread.join());
    }
}

fn serve(shared: &Arc<Shared>) {
    loop {
        let done = shared.roster.ring(shared.parts.clock.monotonic());
        shared.say(&done);
        let mut state = shared.timer.lock();
        if std::mem::take(&mut state.told) {
            continue;
        }
        // Under the lock: whoever sets an alarm after this look finds no thread and starts another.
        let Some(at) = shared.roster.next_alarm() else {
            state.thread = None;
            return;
        };
        let left = at.saturating_sub(shared.parts.clock.monotonic());
        let woken = shared
            .timer
            .changed
            .wait_timeout_while(state, left, |state| !state.told);
        drop(woken);
    }
}
