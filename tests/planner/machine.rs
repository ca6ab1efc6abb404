//! The planner beside a plain model of it, under random calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairq::ambient::Dice;
use fairq::model::{Band, FairnessKey, ShardId, Span, Timestamp, Turn, Weight};
use fairq::planner::{Pick, Planner};
use fairq::tally::{ShardTally, TallyBoard};

use crate::world::{
    PICKS, at, band, board, decide, key, one_of, random_report, report, shard, tally, worlds,
};

/// One key's pass.
#[derive(Clone)]
struct Pass {
    at: Turn,
    weight: Weight,
    holders: BTreeSet<ShardId>,
    /// Holders that cannot be asked.
    blind: BTreeSet<ShardId>,
    /// How much it may be behind the clock, if all its holders are blind.
    lag: Option<Turn>,
}

impl Pass {
    fn new(at: Turn, weight: Weight) -> Self {
        let (holders, blind) = Default::default();
        Self {
            at,
            weight,
            holders,
            blind,
            lag: None,
        }
    }

    fn is_blind(&self) -> bool {
        self.holders.is_empty() && !self.blind.is_empty()
    }

    fn share(&self) -> f64 {
        let (low, high) = Turn::WEIGHT_RANGE;
        self.weight.get().clamp(low, high)
    }

    fn start(&self, clock: Turn) -> Turn {
        match self.lag {
            Some(lag) => self.at.max(clock.minus(lag)),
            None if self.holders.is_empty() => self.at.max(clock),
            None => self.at,
        }
    }
}

/// One band's clock, mean, sum of weights, and passes.
#[derive(Clone, Default)]
struct Lane {
    clock: Turn,
    mean: Turn,
    total: f64,
    passes: BTreeMap<FairnessKey, Pass>,
}

impl Lane {
    /// What every change of the holders brings with it.
    fn settle(&mut self) {
        let clock = self.clock;
        let over = |pass: &Pass| pass.holders.is_empty() && pass.blind.is_empty();
        self.passes.retain(|_, pass| !over(pass) || pass.at > clock);
        self.level();
    }

    fn level(&mut self) {
        let clock = self.clock;
        let counted: Vec<&Pass> = self
            .passes
            .values()
            .filter(|pass| !pass.is_blind())
            .collect();
        self.total = counted.iter().map(|pass| pass.share()).sum();
        let least = counted.iter().map(|pass| pass.start(clock)).min();
        if counted.iter().any(|pass| !pass.holders.is_empty()) {
            let least = least.unwrap();
            let sum: f64 = counted
                .iter()
                .map(|pass| pass.share() * pass.start(clock).minus(least).as_f64())
                .sum();
            self.mean = least.later_by(sum / self.total);
            self.clock = clock.max(self.mean);
        }
        self.limit();
    }

    fn limit(&mut self) {
        for pass in self.passes.values_mut() {
            let now = self.clock.minus(pass.at).max(Turn::stride(pass.weight));
            let lag = pass.lag.map_or(now, |lag| lag.min(now));
            pass.lag = pass.is_blind().then_some(lag);
        }
    }

    /// The busy time is over when nobody waits: all debts are forgiven.
    fn forgive(&mut self) {
        let waits = |pass: &Pass| !pass.holders.is_empty() || !pass.blind.is_empty();
        if !self.passes.values().any(waits) {
            let passes = self.passes.values().map(|pass| pass.at);
            self.clock = passes.fold(self.clock, Turn::max);
        }
    }
}

/// The rules again, each in the plainest way, without a thought for speed.
#[derive(Default)]
struct Model {
    reports: BTreeMap<ShardId, (Arc<ShardTally>, Timestamp)>,
    lanes: BTreeMap<Band, Lane>,
    epoch: Turn,
    last: Option<(Band, usize)>,
}

impl Model {
    fn tally(&mut self, shard: ShardId, told: &Arc<ShardTally>, now: Timestamp) {
        self.reports.insert(shard, (Arc::clone(told), now));
        for (number, lane) in &mut self.lanes {
            if told.band().is_none_or(|best| *number < best) {
                let mut held = false;
                for pass in lane.passes.values_mut() {
                    held |= pass.holders.remove(&shard) | pass.blind.remove(&shard);
                }
                if held {
                    lane.forgive();
                    lane.settle();
                }
            }
        }
        if let Some(best) = told.band() {
            let epoch = self.epoch;
            let lane = self.lanes.entry(best).or_insert_with(|| Lane {
                clock: epoch,
                mean: epoch,
                ..Lane::default()
            });
            let clock = lane.clock;
            for (key, pass) in &mut lane.passes {
                pass.blind.remove(&shard);
                if told.get(key).is_none() {
                    pass.holders.remove(&shard);
                }
            }
            for tally in told.keys() {
                let new = || Pass::new(clock, tally.weight);
                let pass = lane.passes.entry(tally.key.clone()).or_insert_with(new);
                pass.at = pass.start(clock);
                pass.lag = None;
                pass.holders.insert(shard);
                if pass.holders.len() == 1 {
                    pass.weight = tally.weight;
                }
            }
            lane.settle();
        }
        for lane in self.lanes.values() {
            if lane.passes.is_empty() {
                self.epoch = self.epoch.max(lane.clock);
            }
        }
        self.lanes.retain(|_, lane| !lane.passes.is_empty());
    }

    fn clear(&mut self, shard: ShardId) {
        self.reports.remove(&shard);
        for lane in self.lanes.values_mut() {
            let mut held = false;
            for pass in lane.passes.values_mut() {
                held |= pass.blind.contains(&shard);
                if pass.holders.remove(&shard) {
                    pass.blind.insert(shard);
                    held = true;
                }
            }
            if held {
                lane.settle();
            }
        }
    }

    /// A plan on a picture that none was made on before decides by which weights takes are charged.
    fn plan(&mut self, merged: &fairq::planner::Merged) {
        let lane = merged.band().and_then(|best| self.lanes.get_mut(&best));
        if let Some(lane) = lane {
            let old: Vec<Weight> = lane.passes.values().map(|pass| pass.weight).collect();
            for entry in merged.keys() {
                lane.passes.get_mut(&entry.key).unwrap().weight = entry.weight;
            }
            if !lane.passes.values().map(|pass| pass.weight).eq(old) {
                lane.level();
            }
        }
    }

    fn took(&mut self, number: Band, key: &FairnessKey, turn: Turn) {
        let Some(lane) = self.lanes.get_mut(&number) else {
            return;
        };
        if let Some(pass) = lane.passes.get_mut(key) {
            pass.at = pass.start(lane.clock).plus(Turn::stride(pass.weight));
            if pass.is_blind() {
                lane.limit();
                return;
            }
        } else if turn > lane.clock {
            let ahead = turn.minus(lane.clock).as_f64();
            let pass = Pass::new(turn, Weight::new(1.0 / ahead.max(1.0)).unwrap());
            lane.total += pass.share();
            lane.passes.insert(key.clone(), pass);
        } else {
            return;
        }
        lane.mean = lane.mean.plus(Turn::pace(lane.total));
        lane.clock = lane.clock.max(lane.mean);
    }

    /// Slot by slot, looking at every key each time.
    fn order(&self, capacity: usize) -> (Option<Band>, Vec<(FairnessKey, Turn)>) {
        let mut board = TallyBoard::default();
        for (shard, (told, now)) in &self.reports {
            board.report(*shard, Arc::clone(told), *now);
        }
        let best = self
            .reports
            .values()
            .filter_map(|(told, _)| told.band())
            .min();
        let empty = Lane {
            clock: self.epoch,
            ..Lane::default()
        };
        let found = best.and_then(|best| self.lanes.get(&best));
        let lane = found.unwrap_or(&empty);
        let merged = fairq::planner::Merged::of(&board);
        let mut keys: Vec<(Turn, Turn, u64, FairnessKey)> = merged
            .keys()
            .iter()
            .map(|k| {
                let pass = lane.passes.get(&k.key);
                let start = pass.map_or(lane.clock, |pass| pass.start(lane.clock));
                (start, Turn::stride(k.weight), k.count, k.key.clone())
            })
            .collect();
        let mut order = Vec::new();
        while order.len() < capacity {
            let left = keys.iter_mut().filter(|(_, _, count, _)| *count > 0);
            let next = left.min_by(|a, b| (a.0.plus(a.1), &a.3).cmp(&(b.0.plus(b.1), &b.3)));
            let Some((pass, stride, count, key)) = next else {
                break;
            };
            *pass = pass.plus(*stride);
            *count -= 1;
            order.push((key.clone(), *pass));
        }
        (best, order)
    }
}

fn random_turn(dice: &mut Dice, planner: &Planner, number: Band) -> (FairnessKey, Turn) {
    let name = key(format!("k{}", dice.below(11)));
    let weight = Weight::or_one(one_of(dice, &[1.0, 2.0, 0.25, 1e-9]));
    let turn = planner.next_turn(number, &name, weight);
    (name, turn)
}

/// Invariants 29, 30, 34 to 37, and the passes of stride, against the model.
#[test]
fn the_planner_does_what_the_model_does() {
    worlds(150, |mut dice| {
        let planner = Planner::new(Pick::Stride, 0);
        let mut model = Model::default();
        for round in 0..120 {
            let now = at(round * 10);
            let who = shard(u8::try_from(dice.below(4)).unwrap());
            match dice.below(12) {
                0 => {
                    planner.clear(who);
                    model.clear(who);
                }
                1 if dice.below(8) == 0 => {
                    planner.reset();
                    model = Model::default();
                }
                1 | 2 => {
                    let nothing = Arc::new(ShardTally::nothing());
                    model.tally(who, &nothing, now);
                    planner.tally(who, nothing, now);
                }
                3..=5 => {
                    let told = random_report(&mut dice);
                    model.tally(who, &told, now);
                    planner.tally(who, told, now);
                }
                6 => {
                    let number = band(one_of(&mut dice, &[0, 5, 9, 70]));
                    let (name, turn) = random_turn(&mut dice, &planner, number);
                    planner.took(number, &name, turn);
                    model.took(number, &name, turn);
                }
                _ => {
                    let plan = planner.plan(who, 6);
                    let merged = planner.decide(0).merged;
                    model.plan(&merged);
                    model.last = plan.band.map(|band| (band, merged.keys().len()));
                    for slot in plan
                        .slots
                        .iter()
                        .take(usize::try_from(dice.below(4)).unwrap())
                    {
                        planner.took(plan.band.unwrap(), &slot.key, slot.turn);
                        model.took(plan.band.unwrap(), &slot.key, slot.turn);
                    }
                }
            }
            let decision = planner.decide(9);
            let keys = decision.merged.keys();
            let order = decision
                .order
                .iter()
                .map(|d| (keys[d.key].key.clone(), d.turn));
            assert_eq!((decision.merged.band(), order.collect()), model.order(9));
            assert_eq!(planner.last_band(), model.last);
            let ages = model.reports.values().map(|(_, told)| now.since(*told));
            assert_eq!(planner.tally_age(now), ages.max().unwrap_or_default());
            for (number, lane) in &model.lanes {
                let standing = planner.standing(*number);
                assert_eq!(standing.clock(), lane.clock);
                let passes = lane.passes.iter();
                let starts = passes.map(|(key, pass)| (key, pass.start(lane.clock)));
                assert!(standing.passes().eq(starts));
            }
        }
    });
}

/// Invariants 29 and 30, word for word.
#[test]
fn only_the_last_report_counts_and_clear_is_as_if_there_was_none() {
    worlds(200, |mut dice| {
        let (early, late) = (random_report(&mut dice), random_report(&mut dice));
        let other = random_report(&mut dice);
        for pick in PICKS {
            let planner = Planner::new(pick, 3);
            planner.tally(shard(1), Arc::clone(&other), at(0));
            planner.tally(shard(0), Arc::clone(&early), at(0));
            planner.tally(shard(0), Arc::clone(&late), at(0));
            let both = board(&[(0, Arc::clone(&late)), (1, Arc::clone(&other))]);
            assert_eq!(*planner.decide(9).merged, *decide(&both, pick, 9, 0).merged);
            for _ in 0..2 {
                planner.clear(shard(0));
                planner.clear(shard(7));
                let one = board(&[(1, Arc::clone(&other))]);
                assert_eq!(*planner.decide(9).merged, *decide(&one, pick, 9, 0).merged);
            }
        }
    });
}

/// Invariants 31 and 33: neither years nor a hundred rounds of silence drop a shard.
#[test]
fn a_silent_shard_keeps_its_band() {
    for pick in PICKS {
        let planner = Planner::new(pick, 1);
        planner.tally(shard(0), report(1, vec![tally("a", 1, 0, 1.0)]), at(0));
        for round in 1..100_i64 {
            let now = at(round * 365 * 86_400_000);
            planner.tally(shard(1), report(2, vec![tally("b", 9, 0, 1.0)]), now);
            let plan = planner.plan(shard(1), 4);
            assert_eq!((plan.band, plan.slots.len()), (Some(band(1)), 0));
            assert_eq!(planner.plan(shard(0), 4).slots.len(), 1);
        }
    }
}

/// Invariant 32.
#[test]
fn a_cleared_shard_frees_its_peers_at_once_and_comes_back_at_once() {
    for pick in PICKS {
        let planner = Planner::new(pick, 1);
        let best = report(1, vec![tally("a", 1, 0, 1.0)]);
        planner.tally(shard(1), report(2, vec![tally("b", 9, 0, 1.0)]), at(0));
        for _ in 0..3 {
            planner.tally(shard(0), Arc::clone(&best), at(0));
            assert!(planner.plan(shard(1), 4).slots.is_empty());
            planner.clear(shard(0));
            assert_eq!(planner.plan(shard(1), 4).slots.len(), 4);
        }
    }
}

/// Invariant 34.
#[test]
fn reset_is_a_new_beginning() {
    for pick in PICKS {
        let planner = Planner::new(pick, 1);
        planner.tally(shard(0), report(1, vec![tally("a", 1, 0, 1.0)]), at(0));
        let slot = planner.plan(shard(0), 4).slots.remove(0);
        planner.took(band(1), &slot.key, slot.turn);
        planner.reset();
        assert_eq!(planner.last_band(), None);
        assert_eq!(planner.tally_age(at(9)), Span::default());
        assert_eq!(planner.plan(shard(0), 4).band, None);
        assert_eq!(
            planner.standing(band(1)),
            Planner::new(pick, 1).standing(band(1))
        );
    }
}

/// Invariant 35.
#[test]
fn the_age_is_that_of_the_stalest_shard_that_takes_part() {
    let planner = Planner::new(Pick::Stride, 1);
    let same = report(1, vec![tally("a", 1, 0, 1.0)]);
    planner.tally(shard(0), Arc::clone(&same), at(10));
    planner.tally(shard(1), ShardTally::nothing(), at(30));
    assert_eq!(planner.tally_age(at(50)), Span::from_millis(40));
    // The very same report again is a new look.
    planner.tally(shard(0), same, at(45));
    assert_eq!(planner.tally_age(at(50)), Span::from_millis(20));
    planner.clear(shard(1));
    assert_eq!(planner.tally_age(at(50)), Span::from_millis(5));
    planner.clear(shard(0));
    assert_eq!(planner.tally_age(at(50)), Span::default());
}
