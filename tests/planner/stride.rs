//! What stride scheduling promises, through plans and takes alone.

use std::sync::Arc;

use fairq::model::{Turn, Weight};
use fairq::planner::{Pick, Plan, Planner};
use fairq::tally::{ShardTally, Tally};

use crate::world::{at, band, key, one_of, report, shard, tally, worlds};

/// Serves the first slot of a new plan and returns its key's name.
fn serve(planner: &Planner) -> String {
    let plan = planner.plan(shard(0), 8);
    let slot = &plan.slots[0];
    planner.took(plan.band.unwrap(), &slot.key, slot.turn);
    slot.key.to_string()
}

/// Reports keys with one due step each or more, all on shard 0.
fn tell(planner: &Planner, number: u32, keys: Vec<Tally>) {
    planner.tally(shard(0), report(number, keys), at(0));
}

/// After any prefix, a key is at most one step behind its share: the bound of weighted fair queueing
/// beside an ideal server. How far another is ahead follows, as the sum is 0.
#[test]
fn steady_keys_keep_to_their_shares_after_any_prefix() {
    worlds(60, |mut dice| {
        let keys = 2 + dice.below(5);
        let weights: Vec<f64> = (0..keys)
            .map(|_| one_of(&mut dice, &[1.0, 1.0, 2.0, 3.0, 0.5]))
            .collect();
        let planner = Planner::new(Pick::Stride, 0);
        let tallies = weights.iter().enumerate();
        tell(
            &planner,
            100,
            tallies.map(|(n, w)| tally(n, 1_000, 0, *w)).collect(),
        );
        let total: f64 = weights.iter().sum();
        let mut had = vec![0_u32; weights.len()];
        for taken in 1..=600 {
            had[serve(&planner).parse::<usize>().unwrap()] += 1;
            for (had, weight) in had.iter().zip(&weights) {
                let promised = f64::from(taken) * weight / total;
                assert!(
                    promised - f64::from(*had) < 1.001,
                    "{had} for {promised} of {weights:?}"
                );
            }
        }
    });
}

/// A plan of many slots is the same as many plans of one.
#[test]
fn a_long_plan_is_what_short_plans_would_have_been() {
    worlds(100, |mut dice| {
        let planner = Planner::new(Pick::Stride, 0);
        let weight = |dice: &mut _| one_of(dice, &[1.0, 2.0, 5.0, 0.3]);
        tell(
            &planner,
            7,
            (0..6)
                .map(|n| tally(n, 100, 0, weight(&mut dice)))
                .collect(),
        );
        let long = planner.plan(shard(0), 50);
        let long: Vec<String> = long.slots.iter().map(|slot| slot.key.to_string()).collect();
        let short: Vec<String> = (0..50).map(|_| serve(&planner)).collect();
        assert_eq!(long, short);
    });
}

/// Urgent work that comes and goes makes no waiting key start afresh.
#[test]
fn a_better_band_that_comes_and_goes_changes_no_shares() {
    let planner = Planner::new(Pick::Stride, 0);
    let (mut a, mut b) = (0, 0);
    for _ in 0..400 {
        tell(&planner, 10, vec![tally("urgent", 1, 0, 1.0)]);
        assert_eq!(serve(&planner), "urgent");
        tell(
            &planner,
            100,
            vec![tally("a", 50, 0, 3.0), tally("b", 50, 0, 1.0)],
        );
        match serve(&planner).as_str() {
            "a" => a += 1,
            _ => b += 1,
        }
        assert!(i32::abs(a - 3 * b) <= 4, "{a} to {b}");
    }
}

/// Keys that come new for a step each, in any number, in whatever order and weight, must not
/// outrun one that waits, although each of them starts level.
#[test]
fn a_stream_of_new_keys_starves_nobody() {
    for (newcomers, weight, waiting) in [
        (1_u32, 1.0, 1.0),
        (1, 4.0, 1.0),
        (3, 1.0, 0.1),
        (2, 1.0, 5.0),
    ] {
        let planner = Planner::new(Pick::Stride, 0);
        // The waiting key's name is the last, so that it loses every tie.
        let mut served = 0;
        let mut next = 0;
        let mut live: Vec<u32> = Vec::new();
        let rounds = 2_000;
        for _ in 0..rounds {
            while live.len() < newcomers as usize {
                live.push(next);
                next += 1;
            }
            let new = live.iter().map(|n| tally(format!("{n:06}"), 1, 0, weight));
            tell(
                &planner,
                100,
                new.chain([tally("waiting", 9, 0, waiting)]).collect(),
            );
            let name = serve(&planner);
            if name == "waiting" {
                served += 1;
            }
            live.retain(|n| format!("{n:06}") != name);
        }
        let share = waiting / f64::from(newcomers).mul_add(weight, waiting);
        let had = f64::from(served) / f64::from(rounds);
        assert!(had > 0.45 * share, "{had} of a share of {share}");
        let remembered = planner.standing(band(100)).passes().count();
        assert!(remembered < 100, "{remembered} passes are kept");
    }
}

/// A key that waited longest for nothing has no claim on more than its share from now on.
#[test]
fn an_idle_key_gathers_no_claims() {
    let planner = Planner::new(Pick::Stride, 0);
    let both = || vec![tally("a", 9, 0, 1.0), tally("b", 9, 0, 1.0)];
    tell(&planner, 100, both());
    serve(&planner);
    for _ in 0..100 {
        tell(&planner, 100, vec![tally("a", 9, 0, 1.0)]);
        serve(&planner);
    }
    tell(&planner, 100, both());
    let served: Vec<String> = (0..10).map(|_| serve(&planner)).collect();
    let b = served.iter().filter(|name| *name == "b").count();
    assert!((4..=6).contains(&b), "{served:?}");
}

/// And one that ran ahead does not shed its debt by leaving for a moment.
#[test]
fn leaving_for_a_moment_gains_nothing() {
    let planner = Planner::new(Pick::Stride, 0);
    let waiting = || (0..4).map(|n| tally(format!("w{n}"), 90, 0, 1.0));
    let mut hopper = 0;
    for _ in 0..500 {
        tell(
            &planner,
            100,
            waiting().chain([tally("a", 1, 0, 1.0)]).collect(),
        );
        let hopped = serve(&planner) == "a";
        hopper += u32::from(hopped);
        if hopped {
            tell(&planner, 100, waiting().collect());
        }
    }
    assert!((98..=102).contains(&hopper), "{hopper} of 500 for a fifth");
}

/// A chain of offered steps whose key no tally ever shows gets its share, not more.
#[test]
fn a_chain_of_offers_gets_a_share_like_any_key() {
    let planner = Planner::new(Pick::Stride, 0);
    let (band, chain) = (band(100), key("chain"));
    tell(&planner, 100, vec![tally("steady", 9, 0, 1.0)]);
    let mut offered = planner.next_turn(band, &chain, Weight::ONE);
    let mut had = 0;
    for _ in 0..1_000 {
        tell(&planner, 100, vec![tally("steady", 9, 0, 1.0)]);
        let plan = planner.plan(shard(0), 1);
        if offered < plan.slots[0].turn {
            planner.took(band, &chain, offered);
            offered = planner.next_turn(band, &chain, Weight::ONE);
            had += 1;
        } else {
            planner.took(band, &plan.slots[0].key, plan.slots[0].turn);
        }
    }
    assert!((450..=550).contains(&had), "{had} of 1000 for a half");
}

fn turns(plan: &Plan) -> Vec<Turn> {
    plan.slots.iter().map(|slot| slot.turn).collect()
}

/// What workers take from the old window while the new one is fetched is not served twice.
#[test]
fn slots_that_were_taken_meanwhile_are_not_filled_again() {
    let planner = Planner::new(Pick::Stride, 0);
    tell(
        &planner,
        3,
        vec![tally("a", 9, 0, 1.0), tally("b", 9, 0, 2.0)],
    );
    let (old, new) = (planner.plan(shard(0), 6), planner.plan(shard(0), 6));
    assert_eq!(planner.unserved(&new), new.slots);
    for (done, slot) in old.slots.iter().enumerate() {
        planner.took(band(3), &slot.key, slot.turn);
        let left: Vec<Turn> = planner
            .unserved(&new)
            .iter()
            .map(|slot| slot.turn)
            .collect();
        assert_eq!(left, turns(&new)[done + 1..]);
    }
    // Drawn slots have no turns to tell them apart by: all are kept.
    let planner = Planner::new(Pick::Lottery, 0);
    tell(&planner, 3, vec![tally("a", 9, 0, 1.0)]);
    let plan = planner.plan(shard(0), 6);
    assert_eq!(
        (plan.slots.len(), &planner.unserved(&plan)),
        (6, &plan.slots)
    );
}

/// An offer's turn is the one that the key's next planned slot has.
#[test]
fn an_offer_stands_where_the_keys_next_slot_would() {
    let planner = Planner::new(Pick::Stride, 0);
    let weight = Weight::new(3.0).unwrap();
    tell(
        &planner,
        3,
        vec![tally("a", 90, 0, 3.0), tally("b", 90, 0, 1.0)],
    );
    for _ in 0..50 {
        serve(&planner);
        let plan = planner.plan(shard(0), 20);
        let next = plan.slots.iter().find(|slot| slot.key == key("a")).unwrap();
        assert_eq!(planner.next_turn(band(3), &key("a"), weight), next.turn);
    }
}

/// Early, late, doubled: each is one step that the key has had.
#[test]
fn each_take_costs_one_stride_whatever_its_turn() {
    let planner = Planner::new(Pick::Stride, 0);
    let (half, one) = (Weight::new(2.0).unwrap(), Weight::ONE);
    tell(
        &planner,
        3,
        vec![tally("a", 9, 0, 2.0), tally("b", 9, 0, 1.0)],
    );
    let mut slots = planner.plan(shard(0), 8).slots;
    slots.retain(|slot| slot.key == key("a"));
    let mut pass = Turn::ZERO;
    for slot in [4, 4, 0, 2].map(|at| &slots[at]) {
        planner.took(band(3), &slot.key, slot.turn);
        pass = pass.plus(Turn::stride(half));
        let next = planner.next_turn(band(3), &key("a"), half);
        assert_eq!(next, pass.plus(Turn::stride(half)));
    }
    // Four steps of three that are due a unit of time.
    assert!((planner.standing(band(3)).clock().as_f64() - 4.0 / 3.0).abs() < 1e-9);
    assert_eq!(
        planner.next_turn(band(3), &key("b"), one),
        Turn::stride(one)
    );
}

/// Neither where nobody waits, nor of a key whom the clock has passed.
#[test]
fn a_take_of_what_is_forgotten_changes_nothing() {
    let planner = Planner::new(Pick::Stride, 0);
    let late = Turn::stride(Weight::new(0.01).unwrap());
    planner.took(band(3), &key("nobody"), late);
    assert_eq!(planner.standing(band(3)).passes().count(), 0);
    tell(&planner, 3, vec![tally("a", 9, 0, 1.0)]);
    serve(&planner);
    let before = planner.standing(band(3));
    planner.took(band(3), &key("unknown"), Turn::ZERO);
    planner.took(band(3), &key("unknown"), before.clock());
    assert_eq!(planner.standing(band(3)), before);
}

/// A light key's step stands far ahead. That it is offered must not send the clock after it: who
/// comes next would wait until the others have followed.
#[test]
fn an_offer_of_a_light_key_keeps_no_newcomer_waiting() {
    let planner = Planner::new(Pick::Stride, 0);
    let light = Weight::new(0.001).unwrap();
    let steady = || (0..3).map(|n| tally(n, 90, 0, 1.0));
    tell(&planner, 3, steady().collect());
    let turn = planner.next_turn(band(3), &key("light"), light);
    planner.took(band(3), &key("light"), turn);
    tell(&planner, 3, steady().collect());
    tell(
        &planner,
        3,
        steady().chain([tally("new", 90, 0, 1.0)]).collect(),
    );
    let served: Vec<String> = (0..8).map(|_| serve(&planner)).collect();
    let new = served.iter().filter(|name| *name == "new").count();
    assert!((1..=3).contains(&new), "{served:?}");
}

/// Steps of a key that stands on several shards are taken in any order of turns. As many slots of
/// the new plan are dropped as steps were taken, whichever they were.
#[test]
fn takes_out_of_turn_drop_as_many_slots_as_were_taken() {
    worlds(100, |mut dice| {
        let planner = Planner::new(Pick::Stride, 0);
        let keys = || {
            (0..3)
                .map(|n| tally(n, 30, 0, f64::from(n + 1)))
                .collect::<Vec<_>>()
        };
        for number in 0..2 {
            // The shards tell other weights: those of the last count, for its steps are older.
            let keys = keys().into_iter().map(|tally| Tally {
                weight: Weight::new(tally.weight.get() + 9.0 * f64::from(number)).unwrap(),
                since: at(-i64::from(number)),
                ..tally
            });
            planner.tally(shard(number), report(3, keys.collect()), at(0));
        }
        let mut old: Vec<_> = (0..2)
            .flat_map(|number| planner.plan(shard(number), 24).slots)
            .collect();
        let all = planner.decide(24);
        let mut taken = [0_usize; 3];
        for _ in 0..12 {
            let at = usize::try_from(dice.below(old.len() as u64)).unwrap();
            let slot = old.swap_remove(at);
            planner.took(band(3), &slot.key, slot.turn);
            taken[slot.key.to_string().parse::<usize>().unwrap()] += 1;
        }
        let left: Vec<_> = (0..2)
            .flat_map(|number| planner.unserved(&all.plan(shard(number))))
            .collect();
        for (number, taken) in taken.iter().enumerate() {
            let is_its = |slot: &&fairq::planner::Slot| slot.key == key(number);
            let had = all.order.iter().filter(|drawn| drawn.key == number).count();
            assert_eq!(left.iter().filter(is_its).count(), had - taken);
        }
    });
}

/// Takes that arrive in the wrong order come to the same.
#[test]
fn workers_may_report_their_takes_in_any_order() {
    let (one, other) = (Planner::new(Pick::Stride, 0), Planner::new(Pick::Stride, 0));
    for planner in [&one, &other] {
        tell(
            planner,
            3,
            vec![tally("a", 9, 0, 1.0), tally("b", 9, 0, 1.0)],
        );
    }
    let plan = one.plan(shard(0), 8);
    plan.slots
        .iter()
        .for_each(|slot| one.took(band(3), &slot.key, slot.turn));
    plan.slots
        .iter()
        .rev()
        .for_each(|slot| other.took(band(3), &slot.key, slot.turn));
    let passes = |planner: &Planner| -> Vec<Turn> {
        planner
            .standing(band(3))
            .passes()
            .map(|(_, pass)| pass)
            .collect()
    };
    assert_eq!(passes(&one), passes(&other));
}

/// Neither bands nor keys that are done with leave anything behind.
#[test]
fn what_is_gone_is_forgotten() {
    let planner = Planner::new(Pick::Stride, 0);
    for number in 1..500 {
        let keys = (0..3).map(|n| tally(format!("{number}-{n}"), 1, 0, f64::from(n + 1)));
        tell(&planner, number, keys.collect());
        (0..2).for_each(|_| drop(serve(&planner)));
    }
    planner.tally(shard(0), Arc::new(ShardTally::nothing()), at(0));
    for number in 1..500 {
        assert_eq!(planner.standing(band(number)).passes().count(), 0);
    }
    // A band that comes back goes on at least where it was, so that no late take outruns it.
    let clock = planner.standing(band(1)).clock();
    assert!(clock > Turn::ZERO);
    tell(&planner, 1, vec![tally("a", 1, 0, 1.0)]);
    assert_eq!(planner.standing(band(1)).clock(), clock);
}
