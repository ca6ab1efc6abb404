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

/// One key's pass: where it is, its weight, who holds it.
type Pass = (Turn, Weight, BTreeSet<ShardId>);

/// The rules again, each in the plainest way, without a thought for speed.
#[derive(Default)]
struct Model {
    reports: BTreeMap<ShardId, (Arc<ShardTally>, Timestamp)>,
    lanes: BTreeMap<Band, (Turn, BTreeMap<FairnessKey, Pass>)>,
    epoch: Turn,
    last: Option<(Band, usize)>,
}

impl Model {
    fn tally(&mut self, shard: ShardId, told: &Arc<ShardTally>, now: Timestamp) {
        self.reports.insert(shard, (Arc::clone(told), now));
        for (number, (clock, passes)) in &mut self.lanes {
            let held = passes
                .values()
                .any(|(_, _, holders)| holders.contains(&shard));
            if held && told.band().is_none_or(|best| *number < best) {
                for (_, _, holders) in passes.values_mut() {
                    holders.remove(&shard);
                }
                Self::settle(clock, passes);
            }
        }
        if let Some(best) = told.band() {
            let epoch = self.epoch;
            let (clock, passes) = self
                .lanes
                .entry(best)
                .or_insert_with(|| (epoch, BTreeMap::new()));
            for (key, (_, _, holders)) in passes.iter_mut() {
                if told.get(key).is_none() {
                    holders.remove(&shard);
                }
            }
            for tally in told.keys() {
                let new = || (*clock, tally.weight, BTreeSet::new());
                let (pass, weight, holders) = passes.entry(tally.key.clone()).or_insert_with(new);
                if holders.is_empty() {
                    *pass = (*pass).max(*clock);
                }
                *weight = tally.weight;
                holders.insert(shard);
            }
            Self::settle(clock, passes);
        }
        for (clock, passes) in self.lanes.values() {
            if passes.is_empty() {
                self.epoch = self.epoch.max(*clock);
            }
        }
        self.lanes.retain(|_, (_, passes)| !passes.is_empty());
    }

    fn settle(clock: &mut Turn, passes: &mut BTreeMap<FairnessKey, Pass>) {
        if passes.values().all(|(_, _, holders)| holders.is_empty()) {
            *clock = passes
                .values()
                .fold(*clock, |clock, (pass, _, _)| clock.max(*pass));
        }
        passes.retain(|_, (pass, _, holders)| !holders.is_empty() || *pass > *clock);
    }

    fn took(&mut self, number: Band, key: &FairnessKey, turn: Turn) {
        let Some((clock, passes)) = self.lanes.get_mut(&number) else {
            return;
        };
        let (low, high) = Turn::WEIGHT_RANGE;
        let active = passes
            .values()
            .filter(|(_, _, holders)| !holders.is_empty());
        let total: f64 = active
            .map(|(_, weight, _)| weight.get().clamp(low, high))
            .sum();
        let known = passes.get(key).cloned();
        let (pass, weight, holders) = known.unwrap_or((*clock, Weight::ONE, BTreeSet::new()));
        let start = if holders.is_empty() {
            pass.max(*clock)
        } else {
            pass
        };
        if turn > start {
            let own = if holders.is_empty() {
                weight.get()
            } else {
                0.0
            };
            passes.insert(key.clone(), (turn, weight, holders));
            *clock = clock.plus(Turn::pace(total + own)).max(start);
        }
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
        let empty = (self.epoch, BTreeMap::new());
        let (clock, passes) = best
            .and_then(|best| self.lanes.get(&best))
            .unwrap_or(&empty);
        let merged = fairq::planner::Merged::of(&board);
        let mut keys: Vec<(Turn, Turn, u64, FairnessKey)> = merged
            .keys()
            .iter()
            .map(|k| {
                let pass = passes.get(&k.key).map_or(*clock, |(pass, _, _)| *pass);
                (pass, Turn::stride(k.weight), k.count, k.key.clone())
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
                    model.reports.remove(&who);
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
            for (number, (clock, passes)) in &model.lanes {
                let standing = planner.standing(*number);
                assert_eq!(standing.clock(), *clock);
                assert!(standing.passes().map(|(key, _)| key).eq(passes.keys()));
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
