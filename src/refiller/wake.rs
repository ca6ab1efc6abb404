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

impl State {
    /// Returns why a sleep until this instant is over now, or for how long it is not unless somebody
    /// rings.
    const fn look(&mut self, now: Duration, until: Duration) -> Result<Woken, Duration> {
        if self.closed {
            return Ok(Woken::Closed);
        }
        let still = self.not_before.saturating_sub(now);
        if !still.is_zero() {
            return Err(still);
        }
        if self.nudged {
            self.nudged = false;
            return Ok(Woken::Nudge);
        }
        let left = until.saturating_sub(now);
        if left.is_zero() {
            return Ok(Woken::Time);
        }
        Err(left)
    }
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
        let until = self.clock.monotonic() + most;
        let mut state = self.lock();
        loop {
            let pause = match state.look(self.clock.monotonic(), until) {
                Ok(woken) => return woken,
                Err(pause) => pause,
            };
            state = self
                .changed
                .wait_timeout(state, pause)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Does as [`Self::sleep`] until this instant of the monotonic clock, for whoever has no thread to
    /// let sleep: it waits for nothing.
    ///
    /// # Errors
    ///
    /// The sleep goes on, for so long if nobody rings.
    pub fn poll(&self, until: Duration) -> Result<Woken, Duration> {
        self.lock().look(self.clock.monotonic(), until)
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
