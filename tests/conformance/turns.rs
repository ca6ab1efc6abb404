//! What the store promises of whose turn it is where many wait for places of a limit.

use std::collections::BTreeMap;

use fairq::model::{Due, NewStep, StepState, Weight};

use super::limits::{limit, limited, one, run_at, set};
use super::{ONLY, Open, World, after, band, step, success};

pub(crate) fn the_best_band_is_served_first(open: Open) {
    let world = World::new(open, 1);
    set(&world, "x", 2);
    let ids = world.put(&[one("a", 9), one("b", 9), one("c", 3), one("d", 5)]);
    assert_eq!(world.grant(after(1)), [ids[2], ids[3]]);
    // A better band that needs another limit stands in nobody's way.
    world.put(&[limited(
        NewStep {
            band: band(0),
            ..step("e")
        },
        &[("y", 1)],
    )]);
    run_at(&world, ids[2], 2, success);
    assert_eq!(world.grant(after(20)).len(), 2);
}

pub(crate) fn a_due_step_gives_way_to_a_better_band(open: Open) {
    let world = World::new(open, 1);
    set(&world, "x", 2);
    let ids = world.put(&[one("a", 9), one("a", 7), one("a", 9)]);
    assert_eq!(world.grant(after(1)), [ids[1], ids[0]]);
    let candidate = world.candidate(ids[0]);
    // The same band and worse ones wait.
    let rest = world.put(&[one("b", 9), one("b", 10)]);
    assert_eq!(world.grant(after(2)), []);
    let better = world.put_one(one("b", 8));
    assert_eq!(world.grant(after(3)), [better]);
    let view = world.view(ids[0]);
    assert_eq!((view.state, view.at), (StepState::Limited, after(3)));
    assert_eq!(world.state(ids[1]), StepState::Ready);
    let lease = super::lease(1);
    let claims = world.store.claim(ONLY, &[candidate], lease, after(4));
    assert!(claims.unwrap()[0].is_none());
    assert_eq!(limit(&world, "x").taken(), 2);
    // What runs does not give way; of what may, the worst band does, and the youngest of it.
    let claim = world.claim(better, 1, after(5)).unwrap();
    let best = world.put(&[one("c", 1), one("c", 1)]);
    assert_eq!(world.grant(after(6)), [best[0]]);
    assert_eq!(world.state(ids[1]), StepState::Limited);
    assert_eq!(world.state(best[1]), StepState::Limited);
    world.settle(success(&claim));
    assert_eq!(world.grant(after(30)), [best[1]]);
    for id in best {
        run_at(&world, id, 31, success);
    }
    // Who gave way is served again before worse bands.
    let then = world.grant(after(60));
    assert_eq!((then.len(), then[0]), (2, ids[1]));
    assert_eq!(world.view(then[1]).band, band(9));
    assert_eq!(world.state(rest[1]), StepState::Limited);
}

pub(crate) fn of_equal_bands_the_youngest_gives_way(open: Open) {
    let world = World::new(open, 1);
    set(&world, "x", 3);
    let ids = world.put(&vec![one("a", 9); 3]);
    assert_eq!(world.grant(after(1)), ids);
    let two = NewStep {
        band: band(1),
        ..step("b")
    };
    let better = world.put_one(limited(two, &[("x", 2)]));
    assert_eq!(world.grant(after(2)), [better]);
    let states: Vec<StepState> = ids.iter().map(|id| world.state(*id)).collect();
    let limited = StepState::Limited;
    assert_eq!(states, [StepState::Ready, limited, limited]);
}

pub(crate) fn nobody_gives_way_in_vain(open: Open) {
    let world = World::new(open, 1);
    set(&world, "x", 2);
    let ids = world.put(&[one("a", 9), one("a", 9)]);
    assert_eq!(world.grant(after(1)).len(), 2);
    world.claim(ids[0], 1, after(2)).unwrap();
    let urgent = |limits: &[(&str, u32)]| {
        let step = NewStep {
            band: band(1),
            ..step("b")
        };
        limited(step, limits)
    };
    // Two places there are, but one of them is taken by what runs; and of z there is none.
    set(&world, "z", 1);
    let of_z = world.put_one(urgent(&[("z", 1)]));
    assert_eq!(world.grant(after(3)), [of_z]);
    world.put(&[urgent(&[("x", 1), ("z", 1)]), urgent(&[("x", 2)])]);
    assert_eq!(world.grant(after(4)), []);
    assert_eq!(world.state(ids[1]), StepState::Ready);
}

pub(crate) fn within_a_key_the_oldest_is_first(open: Open) {
    let world = World::new(open, 1);
    let timed = NewStep {
        due: Due::At(after(50)),
        ..one("a", 5)
    };
    let ids = world.put(&[timed, one("a", 5), one("a", 5)]);
    set(&world, "x", 0);
    assert_eq!(world.grant(after(1)), []);
    world.store.promote(ONLY, after(60)).unwrap();
    let view = world.view(ids[0]);
    assert_eq!((view.state, view.at), (StepState::Limited, after(50)));
    set(&world, "x", 2);
    assert_eq!(world.grant(after(61)), ids[..2]);
}

/// Serves one place so many times to steps of some keys, each with its weight, and counts.
fn served(world: &World, turns: i64, from: i64) -> BTreeMap<String, i64> {
    let mut served = BTreeMap::new();
    for turn in from..from + turns {
        let granted = world.grant(after(turn * 100));
        assert_eq!(granted.len(), 1, "one place serves one step");
        let of = world.view(granted[0]).key.to_string();
        *served.entry(of).or_default() += 1;
        run_at(world, granted[0], turn * 100, success);
    }
    served
}

pub(crate) fn keys_are_served_by_their_weights(open: Open) {
    let world = World::new(open, 1);
    let weighing = |of: &str, weight: f64| NewStep {
        weight: Weight::new(weight).unwrap(),
        ..one(of, 5)
    };
    world.put(&vec![weighing("a", 1.0); 60]);
    world.put(&vec![weighing("b", 3.0); 60]);
    let served = served(&world, 40, 1);
    assert!((29..=31).contains(&served["b"]), "{served:?}");
}

pub(crate) fn nobody_saves_turns_up_by_being_away(open: Open) {
    let world = World::new(open, 1);
    world.put(&vec![one("a", 5); 60]);
    world.put(&vec![one("c", 5); 60]);
    served(&world, 40, 1);
    world.put(&vec![one("b", 5); 40]);
    let then = served(&world, 30, 100);
    assert!(
        then.values().all(|count| (9..=11).contains(count)),
        "{then:?}"
    );
}

pub(crate) fn who_asks_for_one_at_a_time_gets_its_turns(open: Open) {
    let world = World::new(open, 1);
    world.put(&vec![one("a", 5); 40]);
    let mut modest = 0;
    let mut waits = world.put_one(one("b", 5));
    for turn in 1..=20 {
        let granted = world.grant(after(turn * 100));
        run_at(&world, granted[0], turn * 100, success);
        if granted[0] == waits {
            modest += 1;
            waits = world.put_one(one("b", 5));
        }
    }
    assert!((9..=11).contains(&modest), "{modest} of 20");
}
