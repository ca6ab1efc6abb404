//! Whose turn it is: from what all shards last reported to one shard's ordered slots.
//!
//! Two rules hold over all shards, though each shard serves only its own steps. *Strict bands*: no
//! worse band is served while a better one has due work anywhere. *Weighted fairness*: the keys of
//! the band share the slots by weight, however deep their backlogs are. So every shard reports what
//! it sees and plans on the merged picture, at its own pace; no shard waits for another.
//!
//! The planner holds keys and counts, never steps. It does no I/O, reads no clock and draws no
//! number that it was not given. Planning is in four steps, each a pure function: merge the reports,
//! pick an order of slots (`stride` or `lottery`), slice it by shard, cut out one shard's plan.

pub mod lottery;
pub mod slice;
pub mod stride;

mod lane;
mod merge;
mod plan;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use lane::Standing;
pub use merge::{Holder, Merged, MergedKey};
pub use plan::{Decision, Drawn, Made, Plan, Slot};

use crate::ambient::Dice;
use crate::model::{Band, FairnessKey, ShardId, Span, Timestamp, Turn, Weight};
use crate::tally::{ShardTally, TallyBoard};

/// How slots are given to keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pick {
    /// By virtual time: fair over any stretch of steps, without luck.
    #[default]
    Stride,
    /// By an independent weighted draw for each slot: fair in the long run.
    Lottery,
}

impl Pick {
    /// Returns the word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Stride => "stride",
            Self::Lottery => "lottery",
        }
    }
}

/// The latest reports of all shards and what each key has had; one serves all shards of a process.
///
/// Every method may be called from any thread at any time and blocks for moments only: picking and
/// slicing work on a snapshot, outside the lock.
///
/// A shard's part is declared, never inferred. In each cycle it calls [`Self::tally`] with what it
/// saw, also when that was nothing, or [`Self::clear`] if it could not look; then it may call
/// [`Self::plan`]. Nothing expires by itself.
#[derive(Debug)]
pub struct Planner {
    pick: Pick,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    board: TallyBoard,
    lanes: lane::Lanes,
    /// Rises with every change of the board.
    version: u64,
    /// The board of a version, merged: shards that plan on the same board merge it once.
    merged: Option<(u64, Arc<Merged>)>,
    /// How many plans were begun.
    begun: u64,
    /// The number of the latest plan that got so far, and its band and count of keys.
    last: (u64, Option<(Band, usize)>),
    /// The number of the latest plan that was made, and all that it was cut from.
    made: (u64, Option<Arc<Made>>),
    /// Gives each plan its seed.
    seeds: Dice,
}

/// All that a plan depends on, at one moment.
struct Snapshot {
    number: u64,
    seed: u64,
    version: u64,
    merged: Option<Arc<Merged>>,
    board: TallyBoard,
    standing: Standing,
}

impl Planner {
    /// Returns a planner that knows of no shard.
    ///
    /// The n-th plan of a lottery draws with a seed that follows from `seed` and n, and says which.
    pub fn new(pick: Pick, seed: u64) -> Self {
        Self {
            pick,
            state: Mutex::new(State {
                board: TallyBoard::default(),
                lanes: lane::Lanes::default(),
                version: 0,
                merged: None,
                begun: 0,
                last: (0, None),
                made: (0, None),
                seeds: Dice::seeded(seed),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces a shard's report by what it saw at `now`.
    ///
    /// A report that is the very one it replaces (the same pointer) costs nothing but the new time.
    pub fn tally(&self, shard: ShardId, report: impl Into<Arc<ShardTally>>, now: Timestamp) {
        let report = report.into();
        let mut state = self.lock();
        let old = state.board.get(shard).cloned();
        if !old.as_ref().is_some_and(|old| Arc::ptr_eq(old, &report)) {
            state.version += 1;
            if self.pick == Pick::Stride {
                state.lanes.report(shard, &report);
            }
        }
        state.board.report(shard, report, now);
        drop(state);
        // It may be the last pointer to thousands of keys: those are freed outside the lock.
        drop(old);
    }

    /// Takes a shard that could not look out of planning until it reports again.
    ///
    /// What its keys have had and what they lack stays known, and does not grow meanwhile: nobody can
    /// serve them.
    pub fn clear(&self, shard: ShardId) {
        let mut state = self.lock();
        state.version += 1;
        state.lanes.clear(shard);
        state.board.clear(shard);
    }

    /// Forgets everything: all shards, all passes.
    pub fn reset(&self) {
        let mut state = self.lock();
        state.version += 1;
        state.board.reset();
        state.lanes = lane::Lanes::default();
        state.last = (state.begun, None);
        state.made = (state.begun, None);
    }

    /// Returns what a shard is to fill, of at most `capacity` slots over all shards.
    ///
    /// It moves no pass: only what is taken counts ([`Self::took`]). From now on takes are charged by
    /// the weights that it gives out slots by.
    pub fn plan(&self, shard: ShardId, capacity: usize) -> Plan {
        self.plan_with(shard, capacity, dice)
    }

    /// Plans with numbers in [0, 1) of the caller's choice; `numbers` is given the plan's seed.
    pub fn plan_with<N: FnMut() -> f64>(
        &self,
        shard: ShardId,
        capacity: usize,
        numbers: impl FnOnce(u64) -> N,
    ) -> Plan {
        let snapshot = self.snapshot();
        let merged = snapshot.merge();
        self.remember(&snapshot, &merged);
        let decision = self.decide_on(&snapshot, merged, capacity, numbers);
        let plan = decision.plan(shard);
        self.keep(snapshot, decision, capacity);
        plan
    }

    /// Returns what plans would now be cut from, for all shards at once. It is not recorded as a
    /// plan and, in a lottery, draws with the seed that the next plan would have.
    pub fn decide(&self, capacity: usize) -> Decision {
        let snapshot = self.lock().snapshot();
        let merged = snapshot.merge();
        self.decide_on(&snapshot, merged, capacity, dice)
    }

    fn snapshot(&self) -> Snapshot {
        let mut state = self.lock();
        let snapshot = state.snapshot();
        state.begun = snapshot.number;
        state.seeds.bits();
        snapshot
    }

    fn remember(&self, snapshot: &Snapshot, merged: &Arc<Merged>) {
        let mut state = self.lock();
        if state.last.0 < snapshot.number {
            let found = merged.band().map(|band| (band, merged.keys().len()));
            state.last = (snapshot.number, found);
        }
        let newest = state.merged.as_ref().map(|(version, _)| *version);
        let old = (newest < Some(snapshot.version)).then(|| {
            state.lanes.weigh(merged);
            state.merged.replace((snapshot.version, Arc::clone(merged)))
        });
        drop(state);
        drop(old);
    }

    /// Keeps what the latest plan was cut from.
    fn keep(&self, snapshot: Snapshot, decision: Decision, capacity: usize) {
        let made = Arc::new(Made {
            decision,
            board: snapshot.board,
            standing: snapshot.standing,
            capacity,
        });
        let mut state = self.lock();
        let old = (state.made.0 < snapshot.number)
            .then(|| std::mem::replace(&mut state.made, (snapshot.number, Some(made))));
        drop(state);
        drop(old);
    }

    fn decide_on<N: FnMut() -> f64>(
        &self,
        snapshot: &Snapshot,
        merged: Arc<Merged>,
        capacity: usize,
        numbers: impl FnOnce(u64) -> N,
    ) -> Decision {
        match self.pick {
            Pick::Stride => Decision::by_stride(merged, &snapshot.standing, capacity),
            Pick::Lottery => {
                Decision::by_lottery(merged, capacity, snapshot.seed, numbers(snapshot.seed))
            }
        }
    }

    /// Returns band and number of distinct keys of the latest plan by any shard; `None` if that
    /// plan found nothing due anywhere, or there was none.
    pub fn last_band(&self) -> Option<(Band, usize)> {
        self.lock().last.1
    }

    /// Returns the decision that the latest plan of any shard was cut from; `None` before the first.
    /// For people: nothing is decided by it.
    pub fn last_made(&self) -> Option<Arc<Made>> {
        self.lock().made.1.clone()
    }

    /// Returns how slots are given to keys.
    pub const fn pick(&self) -> Pick {
        self.pick
    }

    /// Returns how long ago the stalest shard reported; zero if none takes part. For people: no
    /// decision depends on it.
    pub fn tally_age(&self, now: Timestamp) -> Span {
        self.lock().board.age(now)
    }

    /// Returns the best band with due work on any shard that takes part.
    pub fn global_band(&self) -> Option<Band> {
        self.lock().board.global_band()
    }

    /// Returns the latest reports.
    pub fn board(&self) -> TallyBoard {
        self.lock().board.clone()
    }

    /// Returns a band's clock and passes; always empty for a lottery.
    pub fn standing(&self, band: Band) -> Standing {
        self.lock().lanes.standing(band)
    }

    /// Records that a step with this turn, planned or offered, was taken.
    ///
    /// It costs the key one stride, whatever the turn. At a band where nobody waits, or in a lottery,
    /// nothing happens.
    pub fn took(&self, band: Band, key: &FairnessKey, turn: Turn) {
        if self.pick == Pick::Stride {
            self.lock().lanes.took(band, key, turn);
        }
    }

    /// Returns the turn of a step that is offered without a plan: the key's next.
    pub fn next_turn(&self, band: Band, key: &FairnessKey, weight: Weight) -> Turn {
        match self.pick {
            Pick::Stride => {
                let start = self.lock().lanes.start(band, key);
                start.plus(Turn::stride(weight))
            }
            Pick::Lottery => Turn::ZERO,
        }
    }

    /// Returns the plan's slots without as many of each key, the first, as were taken since.
    ///
    /// While a shard fetches for its new plan, workers go on with the window of the old one. To be
    /// called just before the new one replaces it; otherwise a key would be given those slots twice.
    /// In a lottery it is all slots.
    pub fn unserved(&self, plan: &Plan) -> Vec<Slot> {
        let (Pick::Stride, Some(band)) = (self.pick, plan.band) else {
            return plan.slots.clone();
        };
        let state = self.lock();
        let taken: Vec<Option<Turn>> = plan
            .keys
            .iter()
            .map(|key| state.lanes.taken(band, key))
            .collect();
        drop(state);
        plan.slots
            .iter()
            .filter(|slot| {
                let at = plan.keys.iter().position(|key| *key == slot.key);
                at.and_then(|at| taken[at]) < Some(slot.turn)
            })
            .cloned()
            .collect()
    }
}

impl State {
    fn snapshot(&self) -> Snapshot {
        let current = |(version, merged): &(u64, Arc<Merged>)| {
            (*version == self.version).then(|| Arc::clone(merged))
        };
        Snapshot {
            number: self.begun + 1,
            seed: self.seeds.clone().bits(),
            version: self.version,
            merged: self.merged.as_ref().and_then(current),
            board: self.board.clone(),
            standing: self
                .board
                .global_band()
                .map(|band| self.lanes.standing(band))
                .unwrap_or_default(),
        }
    }
}

impl Snapshot {
    fn merge(&self) -> Arc<Merged> {
        self.merged
            .clone()
            .unwrap_or_else(|| Arc::new(Merged::of(&self.board)))
    }
}

/// Returns the numbers in [0, 1) that a plan with this seed draws.
pub fn dice(seed: u64) -> impl FnMut() -> f64 {
    let mut dice = Dice::seeded(seed);
    move || dice.unit()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plans overtake each other between their snapshot and their record.
    #[test]
    fn a_slow_plan_overwrites_nothing_that_came_after_it() {
        let planner = Planner::new(Pick::Stride, 0);
        let slow = planner.snapshot();
        let tally = crate::tally::Tally {
            key: FairnessKey::default(),
            count: 1,
            since: Timestamp::default(),
            weight: Weight::ONE,
        };
        let shard = ShardId::first(1).next().expect("there is a first shard");
        let report = ShardTally::new(Band::DEFAULT, vec![tally]);
        planner.tally(shard, report, Timestamp::default());
        planner.plan(shard, 1);
        planner.remember(&slow, &slow.merge());
        assert_eq!(planner.last_band(), Some((Band::DEFAULT, 1)));
        assert_eq!(planner.plan(shard, 1).slots.len(), 1);
        let keep = |slow: Snapshot| {
            planner.keep(slow, Decision::default(), 0);
        };
        keep(slow);
        let made = planner.last_made().unwrap();
        assert_eq!((made.decision.order.len(), made.capacity), (1, 1));

        let slow = planner.snapshot();
        planner.reset();
        planner.remember(&slow, &slow.merge());
        keep(slow);
        assert!(planner.last_made().is_none());
        assert_eq!(planner.last_band(), None);
        assert_eq!(planner.plan(shard, 1).band, None);
    }
}
