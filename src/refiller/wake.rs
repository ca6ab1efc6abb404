//! What makes a refiller turn: nudges, the next due time, the heartbeat; and what keeps it still.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::ambient::Clock;

#[derive(Debug, Default)]
struct State {
    nudged: bool,
    closed: bool,
    /// On the monotonic clock: no turn before.
    not_before: Duration,
}

/// One shard's bell: anyone may ring it, its refiller sleeps by it.
///
/// Rings are not counted: any number of them before a turn make one turn, and one that comes during
/// a turn makes another.
#[derive(Debug)]
pub struct Wake {
    state: Mutex<State>,
    changed: Condvar,
    clock: Arc<dyn Clock>,
}

/// Why a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Somebody rang.
    Nudge,
    /// The time was up.
    Time,
    /// There will be no more turns.
    Closed,
}

impl Wake {
    /// Returns a bell that has been rung once, so that the first turn comes at once.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let state = State {
            nudged: true,
            ..State::default()
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            clock,
        }
    }

    /// Asks for a turn.
    pub fn nudge(&self) {
        let mut state = self.lock();
        if !state.nudged {
            state.nudged = true;
            self.changed.notify_all();
        }
    }

    /// Forbids turns for a while, whoever rings.
    pub fn suspend(&self, pause: Duration) {
        self.lock().not_before = self.clock.monotonic() + pause;
    }

    /// Ends the sleep and all later ones.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Sleeps until somebody rings, at most for `most`, and at least as long as turns are forbidden.
    pub fn sleep(&self, most: Duration) -> Woken {
        let began = self.clock.monotonic();
        let mut state = self.lock();
        loop {
            if state.closed {
                return Woken::Closed;
            }
            let now = self.clock.monotonic();
            let still = state.not_before.saturating_sub(now);
            let left = (began + most).saturating_sub(now);
            if still.is_zero() {
                if state.nudged {
                    state.nudged = false;
                    return Woken::Nudge;
                }
                if left.is_zero() {
                    return Woken::Time;
                }
            }
            let pause = if still.is_zero() { left } else { still };
            state = self
                .changed
                .wait_timeout(state, pause)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ambient::SystemClock;

    #[test]
    fn rings_before_a_turn_make_one_turn() {
        let wake = Wake::new(Arc::new(SystemClock::new()));
        wake.nudge();
        wake.nudge();
        assert_eq!(wake.sleep(Duration::ZERO), Woken::Nudge);
        assert_eq!(wake.sleep(Duration::ZERO), Woken::Time);
        wake.nudge();
        wake.close();
        assert_eq!(wake.sleep(Duration::ZERO), Woken::Closed);
    }

    #[test]
    fn nobody_turns_a_suspended_shard() {
        let wake = Wake::new(Arc::new(SystemClock::new()));
        wake.suspend(Duration::from_millis(20));
        let began = wake.clock.monotonic();
        assert_eq!(wake.sleep(Duration::from_secs(60)), Woken::Nudge);
        assert!(wake.clock.monotonic() - began >= Duration::from_millis(20));
    }
}
