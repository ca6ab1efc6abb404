//! The virtual time of the bands: who has had how much.
//!
//! Each band has its own time, counted in [`Turn`]s: one unit is a step of a key of weight 1. Each
//! key has a *pass*, and the band has a *clock*.
//!
//! - A take costs its key one stride, `1/w` for weight `w`, whatever turn the step had.
//! - The weight is the one that the latest plan gave the key slots by, so that slots and charges agree.
//! - The slot with the least pass plus stride is next; that sum is its turn (see `stride`). Passes
//!   that keep abreast are shares in proportion to the weights.
//! - The *mean* is that of the passes by weight: where all would stand had they kept abreast. A take
//!   moves it by `1/Σw`. The clock is the greatest that the mean has been.
//! - A newcomer starts at the clock, owing nothing and owed nothing.
//! - A key that has nothing due keeps a pass ahead of the clock, so that leaving sheds no debt, and
//!   counts in the mean. Once the clock has passed it, it is forgotten: being idle earns nothing.
//! - A key is *blind* if only shards that cannot be asked hold it. It is left out of the mean, or it
//!   would hold back the clock, and all newcomers, for as long as the shard fails. It may stand
//!   behind the clock by one stride, or by what it lacked when it went blind if that is more. So the
//!   keys of a shard that fails every other turn keep their places, and a window that is left is
//!   served at its rate, but a long failure leaves no claim to a rush.
//! - When nobody waits, all debts are forgiven: the clock moves up to the greatest pass.
//!
//! # Invariants
//!
//! A clock never goes back, and neither does a pass. The passes of one band are at most as many as
//! the keys that wait there and those ahead of its clock. A key that is held by a shard that can be
//! asked moves by takes alone. So, while its weight is the same, a plan's slots whose turns its pass
//! has reached since are as many as its steps that were taken meanwhile.
//!
//! # Where this comes from
//!
//! It is weighted fair queueing with steps for packets (Demers, Keshav and Shenker 1989), in the
//! form of stride scheduling (Waldspurger 1995, from whom passes, strides and the pace of the clock
//! are) and start-time fair queueing (Goyal, Vin and Cheng 1996, from whom the newcomer's
//! `max(pass, clock)` and the end of a busy time are). It departs from them where one server that
//! decides and serves in order has become several windows that were filled at different times:
//!
//! - Takes come out of turn, so a pass counts takes; it does not follow the turn of what was taken.
//! - By the start of what is in service, as in start-time fair queueing, the clock would leap with
//!   whoever is served out of turn. By its pace alone, as in stride scheduling, it would lose touch
//!   with the passes when keys come and go. So it is the mean, as in EEVDF (Stoica and Abdel-Wahab
//!   1995), but one that never goes back.
//! - Waldspurger's clients take what they lack with them when they leave, and bring it back. Here
//!   only blind keys do: they have not left, they just cannot be seen.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::merge::{Merged, MergedKey};
use crate::model::{Band, FairnessKey, ShardId, Turn, Weight};
use crate::tally::{ShardTally, Tally};

/// One band's clock and passes as they stood at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    clock: Turn,
    keys: Arc<Vec<FairnessKey>>,
    passes: Vec<Turn>,
}

impl Standing {
    /// Returns the band's clock: where a newcomer starts.
    pub const fn clock(&self) -> Turn {
        self.clock
    }

    /// Returns the passes that are remembered, in the order of the keys' bytes.
    pub fn passes(&self) -> impl Iterator<Item = (&FairnessKey, Turn)> {
        self.keys.iter().zip(self.passes.iter().copied())
    }
}

/// One key's pass, and what is needed to keep it.
#[derive(Clone, Copy, Debug)]
struct Pass {
    /// Where the key started, and one stride for each step that it has had since.
    at: Turn,
    /// The weight that a shard told which holds the key alone, or else that of the latest plan.
    weight: Weight,
    /// The shards that hold the key as far as is known: bit s for shard s.
    shards: u32,
    /// The shards that held it when they were last asked, and cannot be asked now. None is in both.
    blind: u32,
    /// How far it may be behind the clock: a stride, or what it was at least since it went blind;
    /// `None` unless it is blind.
    lag: Option<Turn>,
}

impl Pass {
    /// Returns the pass of a key that starts here, held by these shards.
    const fn starting_at(at: Turn, weight: Weight, shards: u32) -> Self {
        Self {
            at,
            weight,
            shards,
            blind: 0,
            lag: None,
        }
    }

    /// Returns whether a shard that can be asked holds the key.
    const fn is_active(self) -> bool {
        self.shards != 0
    }

    /// Returns whether only shards that cannot be asked hold the key.
    const fn is_blind(self) -> bool {
        self.shards == 0 && self.blind != 0
    }

    /// Returns whether the key may have due steps.
    const fn is_held(self) -> bool {
        self.shards | self.blind != 0
    }

    /// Returns the weight as far as strides tell weights apart.
    fn share(self) -> f64 {
        let (low, high) = Turn::WEIGHT_RANGE;
        self.weight.get().clamp(low, high)
    }

    /// Returns where the key's next step starts.
    ///
    /// A key that waits may stand behind the clock, for then it is owed something. So may a blind
    /// one, but not ever further. One that has nothing due gathers no claims.
    fn start(self, clock: Turn) -> Turn {
        match self.lag {
            Some(lag) => self.at.max(clock.minus(lag)),
            None if self.is_active() => self.at,
            None => self.at.max(clock),
        }
    }

    /// Bounds what a blind key is owed by what it is owed now, and not below one stride: that much
    /// a key lacks before each of its steps that is served on time, as from the window that is left.
    fn limit(&mut self, clock: Turn) {
        let lag = clock.minus(self.at).max(Turn::stride(self.weight));
        self.lag = self
            .is_blind()
            .then(|| self.lag.map_or(lag, |least| least.min(lag)));
    }
}

/// One band: its clock, and the passes of the keys that are active or were lately.
#[derive(Debug)]
struct Lane {
    clock: Turn,
    /// The mean of the passes that are not blind, by weight: where all would stand if all had kept
    /// abreast. The clock follows it and never goes back.
    mean: Turn,
    /// The weights of these keys together. Summed afresh with each report: a tiny weight must not
    /// drown in what a huge one leaves behind.
    total: f64,
    /// In the order of their bytes. Shared with the snapshots, so that one costs no strings.
    keys: Arc<Vec<FairnessKey>>,
    /// One a key.
    passes: Vec<Pass>,
}

impl Lane {
    fn starting_at(clock: Turn) -> Self {
        Self {
            clock,
            mean: clock,
            total: 0.0,
            keys: Arc::default(),
            passes: Vec::new(),
        }
    }

    fn pass(&self, key: &FairnessKey) -> Option<Pass> {
        self.keys.binary_search(key).ok().map(|at| self.passes[at])
    }

    fn is_held_by(&self, shard: ShardId) -> bool {
        let bit = bit(shard);
        let holds = |pass: &Pass| (pass.shards | pass.blind) & bit != 0;
        self.passes.iter().any(holds)
    }

    /// Replaces what a shard holds here.
    fn report(&mut self, shard: ShardId, tallies: &[Tally]) {
        let bit = bit(shard);
        let mut rest = tallies.iter().peekable();
        let mut fresh = Vec::new();
        for (key, pass) in self.keys.iter().zip(&mut self.passes) {
            let mut told = rest.next_if(|tally| tally.key == *key);
            while told.is_none()
                && let Some(tally) = rest.next_if(|tally| tally.key < *key)
            {
                fresh.push(tally);
                told = rest.next_if(|tally| tally.key == *key);
            }
            pass.blind &= !bit;
            if let Some(tally) = told {
                pass.at = pass.start(self.clock);
                pass.lag = None;
                pass.shards |= bit;
                if pass.shards == bit {
                    pass.weight = tally.weight;
                }
            } else {
                pass.shards &= !bit;
            }
        }
        fresh.extend(rest);
        self.settle(&fresh, bit);
    }

    /// Takes over the weights of a plan.
    fn weigh(&mut self, planned: &[MergedKey]) {
        let mut rest = planned.iter().peekable();
        let mut is_new = false;
        for (key, pass) in self.keys.iter().zip(&mut self.passes) {
            while rest.next_if(|entry| entry.key < *key).is_some() {}
            if let Some(entry) = rest.next_if(|entry| entry.key == *key) {
                is_new |= entry.weight != pass.weight;
                pass.weight = entry.weight;
            }
        }
        if is_new {
            self.level();
        }
    }

    /// Takes note that a shard cannot be asked.
    fn blind(&mut self, shard: ShardId) {
        let bit = bit(shard);
        for pass in &mut self.passes {
            pass.blind |= pass.shards & bit;
            pass.shards &= !bit;
        }
        self.settle(&[], bit);
    }

    /// Takes newcomers in, forgets whom the clock has passed, and finds the mean.
    fn settle(&mut self, fresh: &[&Tally], bit: u32) {
        if fresh.is_empty() && !self.passes.iter().any(|pass| pass.is_held()) {
            // The band's busy time is over. Nobody waits, so nobody is owed anything, and whoever
            // comes next starts level with the one that had most.
            self.clock = self.passes.iter().fold(self.clock, |c, p| c.max(p.at));
        }
        let clock = self.clock;
        let kept = |pass: &Pass| pass.is_held() || pass.at > clock;
        if !fresh.is_empty() || !self.passes.iter().all(kept) {
            let old = self.keys.iter().cloned().zip(self.passes.iter().copied());
            let new = fresh.iter().map(|tally| {
                let pass = Pass::starting_at(clock, tally.weight, bit);
                (tally.key.clone(), pass)
            });
            let mut all: Vec<_> = old.filter(|(_, pass)| kept(pass)).chain(new).collect();
            // Two sorted runs: the standard library's stable sort merges them in one pass.
            all.sort_by(|(a, _), (b, _)| a.cmp(b));
            let (keys, passes) = all.into_iter().unzip();
            self.keys = Arc::new(keys);
            self.passes = passes;
        }
        self.level();
    }

    /// Sums the weights, finds the mean, and bounds what blind keys are owed.
    ///
    /// A key that is ahead of the clock counts also when it has nothing due: what it had in advance,
    /// the others have not had yet. While no shard can be asked there is nobody to go by, and the
    /// clock stands.
    fn level(&mut self) {
        let clock = self.clock;
        let counted = self.passes.iter().filter(|pass| !pass.is_blind());
        let starts = counted.map(|pass| (pass.share(), pass.start(clock)));
        self.total = starts.clone().map(|(share, _)| share).sum();
        if self.passes.iter().any(|pass| pass.is_active())
            && let Some(least) = starts.clone().map(|(_, start)| start).min()
        {
            let sum: f64 = starts
                .map(|(share, start)| share * start.minus(least).as_f64())
                .sum();
            self.mean = least.later_by(sum / self.total);
            self.clock = self.clock.max(self.mean);
        }
        // After the clock has moved on without them: that alone takes nothing from what they lack.
        for pass in &mut self.passes {
            pass.limit(self.clock);
        }
    }

    /// Records that a key has had a step, with this turn.
    ///
    /// It is charged for one step, whatever the turn: a key whose steps stand in several partitions
    /// or were offered may be served out of turn, and steps with one turn may be two.
    fn took(&mut self, key: &FairnessKey, turn: Turn) {
        match self.keys.binary_search(key) {
            Ok(at) => {
                let pass = &mut self.passes[at];
                pass.at = pass.start(self.clock).plus(Turn::stride(pass.weight));
                pass.limit(self.clock);
                if pass.is_blind() {
                    return;
                }
            }
            Err(at) => {
                if turn <= self.clock {
                    return;
                }
                // Offered before any shard told of it: remembered, or a chain of such steps would
                // start level again with each of them.
                let pass = Pass::starting_at(turn, weight_of(turn.minus(self.clock)), 0);
                Arc::make_mut(&mut self.keys).insert(at, key.clone());
                self.passes.insert(at, pass);
                self.total += pass.share();
            }
        }
        // The clock goes by what all keys together have had. By the start of what is taken it would
        // leap with whoever is served out of turn, as by a crew that finds only that; all who come
        // later would wait until the others have followed.
        self.mean = self.mean.plus(Turn::pace(self.total));
        self.clock = self.clock.max(self.mean);
    }

    fn standing(&self) -> Standing {
        Standing {
            clock: self.clock,
            keys: Arc::clone(&self.keys),
            passes: self.passes.iter().map(|p| p.start(self.clock)).collect(),
        }
    }
}

/// The lanes of all bands with keys that wait, or that had more than their share of late.
///
/// Its size grows with those keys, never with the keys, bands or steps that ever were.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: BTreeMap<Band, Lane>,
    /// The latest clock of a lane that was given up. New lanes start there, so that a step taken
    /// late, with a turn of its band's former life, puts its key ahead of nobody.
    epoch: Turn,
}

impl Lanes {
    /// Takes in a report.
    ///
    /// It says what the shard holds at its best band, and that it holds nothing at better ones. Of
    /// worse bands it says nothing: what was known there stays, or a key that waits behind a better
    /// band that comes and goes would start afresh each time.
    pub(super) fn report(&mut self, shard: ShardId, report: &ShardTally) {
        let best = report.band();
        for (band, lane) in &mut self.lanes {
            if best.is_some_and(|best| *band >= best) {
                break;
            }
            if lane.is_held_by(shard) {
                lane.report(shard, &[]);
            }
        }
        if let Some(best) = best {
            self.lanes
                .entry(best)
                .or_insert_with(|| Lane::starting_at(self.epoch))
                .report(shard, report.keys());
        }
        self.close();
    }

    /// Takes note that a shard cannot be asked: its keys are blind until it reports again.
    pub(super) fn clear(&mut self, shard: ShardId) {
        for lane in self.lanes.values_mut() {
            if lane.is_held_by(shard) {
                lane.blind(shard);
            }
        }
    }

    /// Takes over the weights by which a plan gives out slots, so that takes are charged by the same.
    ///
    /// Shards may tell several weights of one key: that of their own oldest step each. Which one
    /// counts, only the merged picture knows.
    pub(super) fn weigh(&mut self, merged: &Merged) {
        let lane = merged.band().and_then(|band| self.lanes.get_mut(&band));
        if let Some(lane) = lane {
            lane.weigh(merged.keys());
        }
    }

    /// Gives up the lanes without keys.
    fn close(&mut self) {
        let epoch = &mut self.epoch;
        self.lanes.retain(|_, lane| {
            let live = !lane.keys.is_empty();
            if !live {
                *epoch = (*epoch).max(lane.clock);
            }
            live
        });
    }

    /// Records that a key has had the step at `turn`. Without effect at a band where nobody waits.
    pub(super) fn took(&mut self, band: Band, key: &FairnessKey, turn: Turn) {
        if let Some(lane) = self.lanes.get_mut(&band) {
            lane.took(key, turn);
        }
    }

    /// Returns where the key's next step starts.
    pub(super) fn start(&self, band: Band, key: &FairnessKey) -> Turn {
        self.lanes.get(&band).map_or(self.epoch, |lane| {
            lane.pass(key)
                .map_or(lane.clock, |pass| pass.start(lane.clock))
        })
    }

    /// Returns the key's pass, if it is remembered: turns up to there were charged for.
    pub(super) fn taken(&self, band: Band, key: &FairnessKey) -> Option<Turn> {
        let pass = self.lanes.get(&band)?.pass(key)?;
        Some(pass.at)
    }

    /// Returns a band's clock and passes.
    pub(super) fn standing(&self, band: Band) -> Standing {
        self.lanes.get(&band).map_or_else(
            || Standing {
                clock: self.epoch,
                ..Standing::default()
            },
            Lane::standing,
        )
    }
}

/// Returns the weight of a key of which only this stride is known, that of a step taken in advance.
///
/// At most 1, for much of the stride may be behind the clock already; the less is left of it, the
/// less would the next step cost.
fn weight_of(stride: Turn) -> Weight {
    Weight::or_one(1.0 / stride.as_f64().max(1.0))
}

const fn bit(shard: ShardId) -> u32 {
    1 << shard.number()
}
