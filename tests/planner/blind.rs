//! What the keys of a shard that cannot be asked keep, and what they do not gain.

use fairq::ambient::Dice;
use fairq::model::{Turn, Weight};
use fairq::planner::{Pick, Planner};
use fairq::tally::ShardTally;

use crate::world::{at, band, key, one_of, report, shard, tally, worlds};

/// Four keys on two shards, and what they have had.
struct World {
    planner: Planner,
    weights: Vec<f64>,
    had: [u32; 4],
}

impl World {
    fn drawn(dice: &mut Dice) -> Self {
        let weight = |_| one_of(dice, &[1.0, 2.0, 3.0, 0.5]);
        let world = Self {
            planner: Planner::new(Pick::Stride, 0),
            weights: (0..4).map(weight).collect(),
            had: [0; 4],
        };
        (0..2).for_each(|number| world.tell(number));
        world
    }

    fn tell(&self, number: u8) {
        let mine = (0..4).filter(|at| at % 2 == usize::from(number));
        let tallies = mine.map(|at| tally(at, 1_000, 0, self.weights[at]));
        self.planner
            .tally(shard(number), report(100, tallies.collect()), at(0));
    }

    /// Notes a take. Nobody is more than a step behind its share, as if all were seen throughout.
    fn took(&mut self, number: usize, turn: Turn) {
        self.planner.took(band(100), &key(number), turn);
        self.had[number] += 1;
        let taken: u32 = self.had.iter().sum();
        let total: f64 = self.weights.iter().sum();
        for (had, weight) in self.had.iter().zip(&self.weights) {
            let promised = f64::from(taken) * weight / total;
            let behind = promised - f64::from(*had);
            assert!(behind < 1.001, "{had} for {promised} of {:?}", self.weights);
        }
    }
}

/// A shard that fails in every other turn starves none of its keys.
#[test]
fn shards_that_flicker_keep_their_keys_in_their_places() {
    worlds(60, |mut dice| {
        let mut world = World::drawn(&mut dice);
        for _ in 0..400 {
            for number in 0..2 {
                if dice.below(2) == 0 {
                    world.planner.clear(shard(number));
                    world.tell(number);
                }
            }
            let decision = world.planner.decide(1);
            let first = &decision.order[0];
            let name = &decision.merged.keys()[first.key].key;
            world.took(name.to_string().parse().unwrap(), first.turn);
        }
    });
}

/// Reads may fail while claims work: then workers go on with what the shard's window holds.
#[test]
fn blind_keys_that_are_served_on_time_lose_nothing() {
    worlds(60, |mut dice| {
        let mut world = World::drawn(&mut dice);
        for _ in 0..400 {
            let number = u8::try_from(dice.below(2)).unwrap();
            match dice.below(6) {
                0 => world.planner.clear(shard(number)),
                1 => world.tell(number),
                _ => {}
            }
            let turn = |number: usize| {
                let weight = Weight::new(world.weights[number]).unwrap();
                world.planner.next_turn(band(100), &key(number), weight)
            };
            let next = (0..4).min_by_key(|number| turn(*number)).unwrap();
            let turn = turn(next);
            world.took(next, turn);
        }
    });
}

/// While it is blind a key gets no more claims, and it keeps those that it had.
#[test]
fn a_blind_key_is_owed_what_it_was_owed_when_it_went_blind() {
    let planner = Planner::new(Pick::Stride, 0);
    let tell = |number, name: &str, weight| {
        let told = report(100, vec![tally(name, 90, 0, weight)]);
        planner.tally(shard(number), told, at(0));
    };
    let take = |name: &str| {
        let turn = planner.next_turn(band(100), &key(name), Weight::ONE);
        planner.took(band(100), &key(name), turn);
    };
    let behind = || {
        let pass = |name: &str| {
            let standing = planner.standing(band(100));
            let found = standing.passes().find(|(of, _)| **of == key(name));
            found.map(|(_, pass)| pass.as_f64()).unwrap()
        };
        pass("seen") - pass("blind")
    };
    tell(0, "blind", 0.5);
    tell(1, "seen", 1.0);
    (0..3).for_each(|_| take("seen"));
    assert!((behind() - 3.0).abs() < 1e-9);
    planner.clear(shard(0));
    (0..50).for_each(|_| take("seen"));
    tell(0, "blind", 0.5);
    assert!((behind() - 3.0).abs() < 1e-9, "{}", behind());
    // What it gets from the window that is left is charged for; at least one stride it may lack.
    planner.clear(shard(0));
    (0..2).for_each(|_| take("blind"));
    assert!((behind() + 1.0).abs() < 1e-9, "{}", behind());
    (0..50).for_each(|_| take("seen"));
    tell(0, "blind", 0.5);
    assert!((behind() - 2.0).abs() < 1e-9, "{}", behind());
    // A shard that turns out to hold nothing leaves nothing behind.
    planner.clear(shard(0));
    planner.tally(shard(0), ShardTally::nothing(), at(0));
    assert_eq!(planner.standing(band(100)).passes().count(), 1);
}
