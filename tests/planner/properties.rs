//! Merge, order and slice, one promise a test.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairq::model::{FairnessKey, ShardId, Turn};
use fairq::planner::{Drawn, Merged, Pick, Planner, lottery, slice};
use fairq::tally::{ShardTally, Tally, TallyBoard};

use crate::world::{
    PICKS, at, band, board, decide, decisions, names, one_of, random_board, random_capacity,
    random_report, report, shard, tally, worlds,
};

/// All tallies at the board's best band, in the order of the shards.
fn at_the_band(board: &TallyBoard) -> Vec<(ShardId, Tally)> {
    let best = board.reports().filter_map(|(_, r)| r.band()).min();
    board
        .reports()
        .filter(|(_, report)| report.band() == best)
        .flat_map(|(shard, report)| report.keys().iter().map(move |t| (shard, t.clone())))
        .collect()
}

fn counts<T: Ord>(items: impl IntoIterator<Item = T>) -> BTreeMap<T, u64> {
    let mut counts = BTreeMap::new();
    for item in items {
        *counts.entry(item).or_default() += 1;
    }
    counts
}

/// Invariant 1.
#[test]
fn nothing_due_anywhere_is_no_band_and_no_slot() {
    for pick in PICKS {
        let planner = Planner::new(pick, 1);
        for capacity in [0, 1, usize::MAX] {
            assert_eq!(planner.plan(shard(0), capacity).band, None);
        }
        planner.tally(shard(0), ShardTally::nothing(), at(0));
        // A key without due steps sets no band, however good.
        planner.tally(shard(1), report(0, vec![tally("a", 0, 0, 1.0)]), at(0));
        for number in [0, 1, 2] {
            let plan = planner.plan(shard(number), usize::MAX);
            assert_eq!((plan.band, plan.slots.len()), (None, 0));
        }
    }
}

/// Invariants 2, 3, 6 and 7.
#[test]
fn the_picture_is_what_the_shards_at_the_best_band_told() {
    worlds(1_000, |mut dice| {
        let board = random_board(&mut dice);
        let merged = Merged::of(&board);
        assert_eq!(
            merged.band(),
            board.reports().filter_map(|(_, r)| r.band()).min()
        );
        let told = at_the_band(&board);
        let keys: BTreeSet<&FairnessKey> = told.iter().map(|(_, tally)| &tally.key).collect();
        assert!(merged.keys().iter().map(|entry| &entry.key).eq(keys));
        for entry in merged.keys() {
            let of_key = || told.iter().filter(|(_, tally)| tally.key == entry.key);
            let (oldest, tally) = of_key()
                .min_by_key(|(shard, tally)| (tally.since, *shard))
                .unwrap();
            assert_eq!(
                entry.count,
                of_key().map(|(_, t)| u64::from(t.count)).sum::<u64>()
            );
            assert_eq!((entry.oldest, entry.since), (*oldest, tally.since));
            assert_eq!(entry.weight, tally.weight);
            let holders = merged.holders(entry).iter().map(|h| (h.shard, h.count));
            assert!(holders.eq(of_key().map(|(shard, tally)| (*shard, tally.count))));
        }
    });
}

/// Invariants 4, 25 and 37: also a shard that gets nothing is told the band.
#[test]
fn who_holds_nothing_at_the_band_gets_nothing() {
    decisions(|board, decision, _| {
        let told: BTreeSet<ShardId> = at_the_band(board).iter().map(|(shard, _)| *shard).collect();
        for shard in ShardId::first(8) {
            let plan = decision.plan(shard);
            assert_eq!(plan.band, decision.merged.band());
            assert!(told.contains(&shard) || plan.slots.is_empty());
        }
        if told.len() == 1 {
            let plan = decision.plan(*told.first().unwrap());
            assert_eq!(plan.slots.len(), decision.order.len());
        }
    });
}

/// Invariant 5.
#[test]
fn worse_bands_change_nothing() {
    worlds(400, |mut dice| {
        let with = random_board(&mut dice);
        let Some(best) = with.global_band() else {
            return;
        };
        let mut without = with.clone();
        for shard in ShardId::first(6) {
            if with.get(shard).is_some_and(|r| r.band() != Some(best)) {
                without.clear(shard);
            }
        }
        for pick in PICKS {
            let (with, without) = (decide(&with, pick, 50, 3), decide(&without, pick, 50, 3));
            assert_eq!((with.order, with.owners), (without.order, without.owners));
        }
    });
}

/// Invariant 8.
#[test]
fn younger_steps_elsewhere_never_change_a_weight() {
    worlds(400, |mut dice| {
        let mut board = random_board(&mut dice);
        let before = Merged::of(&board);
        let (Some(best), None) = (before.band(), board.get(shard(5))) else {
            return;
        };
        let keys = before.keys().iter().map(|entry| Tally {
            key: entry.key.clone(),
            count: 1_000,
            since: at(entry.since.millis() + i64::try_from(dice.below(3)).unwrap()),
            ..tally("any", 0, 0, 1e9)
        });
        board.report(
            shard(5),
            Arc::new(ShardTally::new(best, keys.collect())),
            at(0),
        );
        let after = Merged::of(&board);
        let weights = |m: &Merged| m.keys().iter().map(|k| k.weight).collect::<Vec<_>>();
        assert_eq!(weights(&before), weights(&after));
    });
}

/// Invariants 9, 17 and 28.
#[test]
fn the_same_board_gives_the_same_plan_in_whatever_order_it_was_told() {
    worlds(200, |mut dice| {
        let board = random_board(&mut dice);
        let mut told: Vec<_> = board.reports().map(|(s, r)| (s, Arc::clone(r))).collect();
        for pick in PICKS {
            let (one, other) = (Planner::new(pick, 7), Planner::new(pick, 7));
            told.iter()
                .for_each(|(s, r)| one.tally(*s, Arc::clone(r), at(0)));
            for at in (1..told.len()).rev() {
                told.swap(at, usize::try_from(dice.below(at as u64 + 1)).unwrap());
            }
            told.iter()
                .for_each(|(s, r)| other.tally(*s, Arc::clone(r), at(0)));
            for shard in ShardId::first(6) {
                assert_eq!(one.plan(shard, 40), other.plan(shard, 40));
            }
        }
    });
}

/// Invariants 10, 11, 12 and, as every sort of weight takes part, 16.
#[test]
fn an_order_fills_the_capacity_and_never_more_than_is_due() {
    decisions(|_, decision, capacity| {
        let due: u64 = decision.merged.keys().iter().map(|key| key.count).sum();
        assert_eq!(decision.order.len() as u64, due.min(capacity as u64));
        let times = counts(decision.order.iter().map(|drawn| drawn.key));
        for (at, key) in decision.merged.keys().iter().enumerate() {
            let times = times.get(&at).copied().unwrap_or(0);
            assert!(times <= key.count);
            assert!(times == key.count || due > capacity as u64);
        }
    });
}

/// Invariant 13.
#[test]
fn counts_beyond_the_capacity_change_no_order() {
    worlds(400, |mut dice| {
        let told = random_board(&mut dice);
        let capacity = random_capacity(&mut dice).max(1);
        let mut cut = TallyBoard::default();
        for (shard, report) in told.reports() {
            let Some(best) = report.band() else { continue };
            let keys = report.keys().iter().map(|tally| Tally {
                count: tally.count.min(u32::try_from(capacity).unwrap()),
                ..tally.clone()
            });
            cut.report(
                shard,
                Arc::new(ShardTally::new(best, keys.collect())),
                at(0),
            );
        }
        for pick in PICKS {
            let (all, cut) = (
                decide(&told, pick, capacity, 5),
                decide(&cut, pick, capacity, 5),
            );
            assert_eq!(all.order, cut.order);
        }
    });
}

/// Invariant 14. Powers of two, so that no rounding stands between the two orders.
#[test]
fn only_the_ratio_of_weights_counts() {
    worlds(400, |mut dice| {
        let weights: Vec<f64> = (0..5)
            .map(|_| one_of(&mut dice, &[1.0, 2.0, 4.0, 8.0]))
            .collect();
        let scale = one_of(&mut dice, &[0.125, 2.0, 1_048_576.0]);
        let make = |scale: f64| {
            let keys = weights.iter().enumerate();
            let keys = keys.map(|(n, w)| tally(n, 9, 0, w * scale)).collect();
            board(&[(0, report(1, keys))])
        };
        for pick in PICKS {
            let (one, other) = (
                decide(&make(1.0), pick, 30, 9),
                decide(&make(scale), pick, 30, 9),
            );
            assert_eq!(names(&one), names(&other));
        }
    });
}

/// Invariants 15 and 16.
#[test]
fn a_lone_key_gets_everything_whatever_its_weight() {
    for weight in [
        0.0,
        -1.0,
        f64::NAN,
        f64::INFINITY,
        -f64::INFINITY,
        5e-324,
        1e-300,
        1e300,
    ] {
        let board = board(&[(0, report(1, vec![tally("a", 10, 0, weight)]))]);
        for pick in PICKS {
            assert_eq!(names(&decide(&board, pick, 7, 1)), ["a"; 7]);
        }
    }
}

/// Invariant 16: when the huge one is gone, what is left of the sum is the tiny one.
#[test]
fn a_tiny_weight_beside_a_huge_one_is_drawn_in_the_end() {
    let keys = vec![
        tally("huge", 3, 0, 1e300),
        tally("tiny", 3, 0, 1e-300),
        tally("z", 1, 0, 5e-324),
    ];
    let board = board(&[(0, report(1, keys))]);
    for pick in PICKS {
        let decision = decide(&board, pick, 10, 4);
        assert_eq!(names(&decision)[..3], ["huge"; 3]);
        assert_eq!(decision.order.len(), 7);
    }
}

/// A number that rounding brings up to the whole still finds a key that is left.
#[test]
fn the_last_number_draws_the_last_key_that_is_left() {
    let keys = (0..3).map(|n| tally(n, 2, 0, 0.1)).collect();
    let merged = Merged::of(&board(&[(0, report(1, keys))]));
    let order = lottery::order(&merged, 9, || 1.0);
    assert!(order.iter().map(|drawn| drawn.key).eq([2, 2, 1, 1, 0, 0]));
}

/// Checks a slice of any order, also of one that no pick would give.
fn check_slice(merged: &Merged, order: &[Drawn]) {
    let owners = slice::owners(merged, order);
    assert_eq!(owners.len(), order.len());
    for (at, key) in merged.keys().iter().enumerate() {
        let mine: Vec<Option<ShardId>> = (order.iter().zip(&owners))
            .filter(|(drawn, _)| drawn.key == at)
            .map(|(_, owner)| *owner)
            .collect();
        let Some(first) = mine.first() else { continue };
        // 21 and 26: the oldest holder first, at any proportions.
        assert_eq!(*first, Some(key.oldest));
        // 18 and 19: everything has one owner as long as there are steps.
        let owned = mine.iter().flatten().count() as u64;
        assert_eq!(owned, (mine.len() as u64).min(key.count));
        // The others stand in the order of the shards, those without an owner last.
        let others: Vec<_> = mine[1..]
            .iter()
            .map(|owner| (owner.is_none(), *owner))
            .collect();
        assert!(others.is_sorted());
        let times = counts(mine[1..].iter().flatten().copied());
        let rest = u128::from(owned - 1);
        let held =
            |h: &fairq::planner::Holder| u128::from(h.count) - u128::from(h.shard == key.oldest);
        let sum = u128::from(key.count - 1);
        let mut parts = Vec::new();
        for holder in merged.holders(key) {
            let got = u128::from(times.get(&holder.shard).copied().unwrap_or(0));
            // 22: never more than it has.
            assert!(got <= held(holder));
            // 23: the ideal, rounded up or down.
            let ideal = rest * held(holder);
            let Some(whole) = ideal.checked_div(sum) else {
                continue;
            };
            let remainder = ideal % sum;
            assert!(got == whole || (got == whole + 1 && remainder > 0));
            parts.push((remainder, std::cmp::Reverse(holder.shard), got > whole));
        }
        // 24: of two, the one with the greater remainder, then the lower shard, is rounded up.
        parts.sort();
        assert!(parts.iter().map(|(_, _, up)| *up).is_sorted());
        // 25: nobody else owns any.
        let holders: BTreeSet<ShardId> = merged.holders(key).iter().map(|h| h.shard).collect();
        assert!(times.keys().all(|shard| holders.contains(shard)));
    }
}

/// Invariants 18, 19, 21 to 26 and 28, for arbitrary orders and for real ones.
#[test]
fn a_slice_shares_each_key_out_exactly() {
    worlds(1_000, |mut dice| {
        let merged = Merged::of(&random_board(&mut dice));
        let keys = merged.keys().len() as u64;
        if keys > 0 {
            let slots = dice.below(200);
            let drawn = |_| Drawn {
                key: usize::try_from(dice.below(keys)).unwrap(),
                turn: Turn::ZERO,
            };
            check_slice(&merged, &(0..slots).map(drawn).collect::<Vec<_>>());
        }
    });
    decisions(|_, decision, _| {
        check_slice(&decision.merged, &decision.order);
        assert_eq!(
            decision.owners,
            slice::owners(&decision.merged, &decision.order)
        );
        assert!(decision.owners.iter().all(Option::is_some));
    });
}

/// Invariant 26, the case that it is there for.
#[test]
fn a_lone_old_step_is_served_beside_a_million_fresh_ones() {
    let old = report(1, vec![tally("a", 1, 0, 1.0)]);
    let fresh = report(1, vec![tally("a", 1_000_000, 9, 1.0)]);
    for pick in PICKS {
        let decision = decide(
            &board(&[(0, Arc::clone(&fresh)), (3, Arc::clone(&old))]),
            pick,
            4,
            1,
        );
        assert_eq!(decision.owners[0], Some(shard(3)));
        assert_eq!(decision.plan(shard(3)).slots.len(), 1);
        assert_eq!(decision.plan(shard(0)).slots.len(), 3);
    }
}

/// Invariants 20, 27 and 41.
#[test]
fn the_shards_plans_put_together_are_the_order() {
    decisions(|board, decision, capacity| {
        let mut rests: BTreeMap<ShardId, _> = ShardId::first(6)
            .map(|shard| (shard, decision.plan(shard).slots.into_iter()))
            .collect();
        for (drawn, owner) in decision.order.iter().zip(&decision.owners) {
            let slot = rests.get_mut(&owner.unwrap()).unwrap().next().unwrap();
            assert_eq!(slot.key, decision.merged.keys()[drawn.key].key);
            assert_eq!(slot.turn, drawn.turn);
        }
        assert!(rests.values().all(|rest| rest.len() == 0));
        for shard in ShardId::first(6) {
            let plan = decision.plan(shard);
            let times = counts(plan.slots.iter().map(|slot| &slot.key));
            assert_eq!(
                plan.per_key_cap as u64,
                times.values().copied().max().unwrap_or(0)
            );
            let mut seen = BTreeSet::new();
            let first = plan.slots.iter().map(|slot| &slot.key);
            assert!(first.filter(|key| seen.insert(*key)).eq(&plan.keys));
            let due = board
                .get(shard)
                .map_or(0, |r| r.keys().iter().map(|t| u64::from(t.count)).sum());
            assert!(plan.slots.len() <= capacity && plan.slots.len() as u64 <= due);
        }
    });
}

/// Invariant 40: tally what is there, plan, take what is planned; and again.
#[test]
fn every_backlog_drains_band_by_band_and_oldest_first() {
    worlds(60, |mut dice| {
        for pick in PICKS {
            let planner = Planner::new(pick, dice.bits());
            let mut stock: BTreeMap<ShardId, Vec<Arc<ShardTally>>> = BTreeMap::new();
            for shard in ShardId::first(4) {
                let few = |r: &ShardTally| r.keys().iter().all(|t| t.count <= 40);
                let reports = (0..3).map(|_| random_report(&mut dice)).filter(|r| few(r));
                let mut reports: Vec<_> = reports.filter(|r| r.band().is_some()).collect();
                reports.sort_by_key(|report| std::cmp::Reverse(report.band()));
                stock.insert(shard, reports);
            }
            let due = |stock: &BTreeMap<ShardId, Vec<Arc<ShardTally>>>| -> u64 {
                let all = stock.values().flatten().flat_map(|r| r.keys());
                all.map(|tally| u64::from(tally.count)).sum()
            };
            while due(&stock) > 0 {
                let before = due(&stock);
                for (shard, reports) in &stock {
                    let best = reports.last().cloned();
                    planner.tally(
                        *shard,
                        best.unwrap_or_else(|| Arc::new(ShardTally::nothing())),
                        at(0),
                    );
                }
                for (shard, reports) in &mut stock {
                    let plan = planner.plan(*shard, 8);
                    let Some(own) = reports.pop() else { continue };
                    assert!(plan.slots.is_empty() || plan.band == own.band());
                    let times = counts(plan.slots.iter().map(|slot| &slot.key));
                    let left = own.keys().iter().map(|tally| {
                        let served = times.get(&tally.key).copied().unwrap_or(0);
                        Tally {
                            count: tally.count - u32::try_from(served).unwrap(),
                            ..tally.clone()
                        }
                    });
                    let left = ShardTally::new(own.band().unwrap(), left.collect());
                    if left.band().is_some() {
                        reports.push(Arc::new(left));
                    }
                    for slot in plan.slots {
                        planner.took(plan.band.unwrap(), &slot.key, slot.turn);
                    }
                }
                assert!(due(&stock) < before, "a round served nothing");
            }
        }
    });
}

/// A lottery's plan tells the seed from which it can be drawn again.
#[test]
fn a_drawn_plan_is_replayed_from_its_seed() {
    worlds(200, |mut dice| {
        let planner = Planner::new(Pick::Lottery, dice.bits());
        let board = random_board(&mut dice);
        board
            .reports()
            .for_each(|(s, r)| planner.tally(s, Arc::clone(r), at(0)));
        let plans: Vec<_> = (0..3).map(|_| planner.plan(shard(1), 30)).collect();
        assert!(plans[0].seed != plans[1].seed && plans[1].seed != plans[2].seed);
        for plan in plans {
            let again = decide(&planner.board(), Pick::Lottery, 30, plan.seed.unwrap());
            assert_eq!(again.plan(shard(1)), plan);
        }
        // Looking does not use up a seed.
        let seen = planner.decide(30).plan(shard(1));
        assert_eq!(seen, planner.plan(shard(1), 30));
    });
}

/// Invariant 36: looking at the last plan, from wherever it came.
#[test]
fn the_last_band_is_the_latest_plans_whoever_asked() {
    let planner = Planner::new(Pick::Stride, 0);
    planner.tally(
        shard(0),
        report(4, vec![tally("a", 1, 0, 1.0), tally("b", 1, 0, 1.0)]),
        at(0),
    );
    assert_eq!(planner.last_band(), None);
    planner.plan(shard(9), 0);
    assert_eq!(planner.last_band(), Some((band(4), 2)));
    planner.clear(shard(0));
    assert_eq!(planner.last_band(), Some((band(4), 2)));
    planner.decide(5);
    assert_eq!(planner.last_band(), Some((band(4), 2)));
    planner.plan(shard(0), 5);
    assert_eq!(planner.last_band(), None);
}
