//! Which shards must turn because of what the crew took.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::Wake;
use crate::ambient::Clock;
use crate::model::ShardId;

/// One shard's part.
#[derive(Debug)]
struct Lane {
    wake: Arc<Wake>,
    /// How many steps had been taken when it last planned.
    planned_at: AtomicU64,
    /// Whether it has due work at the band that is served.
    serves: AtomicBool,
}

/// All shards' bells, and who is to be rung when a step was taken.
///
/// Besides its own low water, every shard with work at the band plans again once half the cache's
/// capacity has been taken since its last plan, whether or not its partition holds anything:
/// otherwise a shard that won no slot would never be asked again. Where the shards are more than the
/// capacity, once half of them could have had one step taken: with one worker all of them would turn
/// at every step otherwise. (Once each could have had one is too seldom: with eight shards a key was
/// seen to wait for more than three times its gap.)
#[derive(Debug)]
pub struct Progress {
    lanes: Vec<Lane>,
    taken: AtomicU64,
}

impl Progress {
    /// Returns the bells of the shards `0..shards`.
    pub fn new(shards: u8, clock: &Arc<dyn Clock>) -> Self {
        let lane = |_| Lane {
            wake: Arc::new(Wake::new(Arc::clone(clock))),
            planned_at: AtomicU64::new(0),
            serves: AtomicBool::new(false),
        };
        Self {
            lanes: (0..shards).map(lane).collect(),
            taken: AtomicU64::new(0),
        }
    }

    /// Returns a shard's bell.
    ///
    /// # Panics
    ///
    /// If there is no such shard: shards are counted once, when the store is opened.
    pub fn wake(&self, shard: ShardId) -> Arc<Wake> {
        Arc::clone(&self.lanes[shard.index()].wake)
    }

    /// Takes note that a step was taken, with the capacity of the cache, and rings for those shards
    /// that have not planned for too long. `low` names the shard whose partition is at its low water.
    pub fn took(&self, capacity: usize, low: Option<ShardId>) {
        let taken = self.taken.fetch_add(1, Ordering::Relaxed) + 1;
        let enough = (capacity / 2).max(self.lanes.len() / 2).max(1) as u64;
        for (number, lane) in self.lanes.iter().enumerate() {
            let behind = taken.saturating_sub(lane.planned_at.load(Ordering::Relaxed)) >= enough;
            let is_low = low.is_some_and(|low| low.index() == number);
            if is_low || (behind && lane.serves.load(Ordering::Relaxed)) {
                lane.wake.nudge();
            }
        }
    }

    /// Takes note that a claim on a shard was decided, won or lost, with whether the cache is empty.
    ///
    /// Until then the shard's reports showed the step as due. If that was all that is left to take,
    /// nothing but this turns the shard, and slots that it cannot fill would be planned for it.
    pub fn decided(&self, shard: ShardId, is_empty: bool) {
        if is_empty {
            self.nudge(shard);
        }
    }

    /// Takes note that a shard has planned, and whether it has due work at the band that is served.
    pub(super) fn planned(&self, shard: ShardId, serves: bool) {
        let lane = &self.lanes[shard.index()];
        lane.planned_at
            .store(self.taken.load(Ordering::Relaxed), Ordering::Relaxed);
        lane.serves.store(serves, Ordering::Relaxed);
    }

    /// Rings one shard's bell; a number without a shard is ignored.
    pub fn nudge(&self, shard: ShardId) {
        if let Some(lane) = self.lanes.get(shard.index()) {
            lane.wake.nudge();
        }
    }

    /// Rings all bells.
    pub fn nudge_all(&self) {
        self.lanes.iter().for_each(|lane| lane.wake.nudge());
    }

    /// Rings all bells but one.
    pub(super) fn nudge_others(&self, but: ShardId) {
        for (number, lane) in self.lanes.iter().enumerate() {
            if number != but.index() {
                lane.wake.nudge();
            }
        }
    }

    /// Forbids a shard to turn for a while.
    pub fn suspend(&self, shard: ShardId, pause: std::time::Duration) {
        if let Some(lane) = self.lanes.get(shard.index()) {
            lane.wake.suspend(pause);
        }
    }

    /// Ends all turning.
    pub fn close(&self) {
        self.lanes.iter().for_each(|lane| lane.wake.close());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ambient::SystemClock;
    use crate::refiller::wake::Woken;
    use std::time::Duration;

    fn rung(progress: &Progress, shard: ShardId) -> bool {
        progress.wake(shard).sleep(Duration::ZERO) == Woken::Nudge
    }

    /// A shard that won no slot has no partition that could run low: only progress asks it again.
    #[test]
    fn a_shard_that_won_nothing_is_asked_again_after_half_the_capacity() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let progress = Progress::new(3, &clock);
        let [a, b, c] = [0, 1, 2].map(|n| ShardId::new(n).unwrap());
        assert!(
            [a, b, c]
                .map(|shard| rung(&progress, shard))
                .into_iter()
                .all(|first| first)
        );
        progress.planned(a, true);
        progress.planned(b, true);
        progress.planned(c, false);
        for _ in 0..3 {
            progress.took(8, None);
        }
        assert!(!rung(&progress, a) && !rung(&progress, b));
        progress.took(8, Some(c));
        assert!(rung(&progress, a) && rung(&progress, b) && rung(&progress, c));
        progress.planned(a, true);
        progress.took(8, None);
        assert!(!rung(&progress, a) && rung(&progress, b) && !rung(&progress, c));
    }

    #[test]
    fn one_worker_turns_two_shards_a_step_and_not_all() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let progress = Progress::new(4, &clock);
        let shards: Vec<ShardId> = ShardId::first(4).collect();
        let turn = || {
            let rung = shards.iter().filter(|shard| rung(&progress, **shard));
            rung.map(|shard| progress.planned(*shard, true)).count()
        };
        assert_eq!(turn(), 4);
        let mut turns = 0;
        for _ in 0..100 {
            progress.took(2, None);
            turns += turn();
        }
        assert_eq!(turns, 200);
    }
}
