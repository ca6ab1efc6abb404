//! How often somebody looks who waits for something that nobody tells of.

use std::sync::Arc;
use std::time::Duration;

use crate::ambient::Clock;
use crate::engine::Notice;

/// Between two looks, at least.
const SHORTEST: Duration = Duration::from_millis(5);
/// Between two looks, at most: hundreds may wait on one machine that has better things to do.
const LONGEST: Duration = Duration::from_millis(250);
/// The part of the time already waited by which one may be late.
const LATENESS: u32 = 16;

/// Sleeps between looks: the longer nothing has come, the longer. So what comes soon is seen at once,
/// what comes late is seen late by no more than a sixteenth, and a crowd that waits costs nothing.
pub(super) struct Pace {
    clock: Arc<dyn Clock>,
    since: Duration,
    nobody: Notice,
}

impl Pace {
    /// Begins to wait now.
    pub(super) fn new(clock: &Arc<dyn Clock>) -> Self {
        Self {
            since: clock.monotonic(),
            clock: Arc::clone(clock),
            nobody: Notice::default(),
        }
    }

    /// Begins anew, because something has come.
    pub(super) fn reset(&mut self) {
        self.since = self.clock.monotonic();
    }

    /// Sleeps until the next look, at most for `limit`.
    pub(super) fn sleep(&self, limit: Option<Duration>) {
        let pause = pause(self.clock.monotonic().saturating_sub(self.since));
        let pause = limit.map_or(pause, |limit| limit.min(pause));
        self.nobody.wait(self.nobody.seen(), pause);
    }
}

fn pause(waited: Duration) -> Duration {
    (waited / LATENESS).clamp(SHORTEST, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_long_looks_seldom_and_is_never_late_by_much() {
        let mut waited = Duration::ZERO;
        let mut looks = 0;
        while waited < Duration::from_secs(60) {
            let next = pause(waited);
            assert!(next <= SHORTEST.max(waited / LATENESS).min(LONGEST));
            waited += next;
            looks += 1;
        }
        assert!(looks < 350, "{looks} looks in a minute");
    }
}
