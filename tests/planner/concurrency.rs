//! The planner under many threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use fairq::planner::{Pick, Planner};
use fairq::tally::ShardTally;

use crate::world::{PICKS, at, band, report, shard, tally};

/// Invariant 38. The draw stands still until every other call has come back; were the lock held,
/// this would never end.
#[test]
fn nobody_waits_for_a_draw() {
    let planner = Planner::new(Pick::Lottery, 1);
    planner.tally(shard(0), report(1, vec![tally("a", 9, 0, 1.0)]), at(0));
    let (drawing, drawn) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let plan = thread::scope(|scope| {
        let slow = scope.spawn(|| {
            planner.plan_with(shard(0), 1, |_| {
                move || {
                    drawing.send(()).unwrap();
                    released.recv().unwrap();
                    0.5
                }
            })
        });
        drawn.recv().unwrap();
        assert_eq!(planner.last_band(), Some((band(1), 1)));
        planner.tally(shard(1), report(0, vec![tally("b", 1, 0, 1.0)]), at(0));
        planner.clear(shard(0));
        assert_eq!(planner.plan(shard(1), 1).slots.len(), 1);
        planner.reset();
        release.send(()).unwrap();
        slow.join().unwrap()
    });
    // It is the plan of the moment at which it began (39), and nothing of it outlives the reset.
    assert_eq!((plan.band, plan.slots.len()), (Some(band(1)), 1));
    assert_eq!(planner.last_band(), None);
    assert_eq!(planner.plan(shard(0), 1).band, None);
}

/// Invariant 39: two shards tell the same generation one after the other, so at any moment they are
/// equal or the first is one ahead; every plan must show such a moment.
#[test]
fn every_plan_is_that_of_one_moment() {
    for pick in PICKS {
        let planner = Planner::new(pick, 1);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for generation in 1..=3_000 {
                    for number in [0, 1] {
                        let keys = vec![tally(format!("shard{number}"), generation, 0, 1.0)];
                        planner.tally(shard(number), report(1, keys), at(0));
                    }
                }
                done.store(true, Ordering::SeqCst);
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut seen = 0;
                    while !done.load(Ordering::SeqCst) {
                        let plan = planner.plan(shard(0), 2);
                        plan.slots
                            .iter()
                            .for_each(|slot| planner.took(band(1), &slot.key, slot.turn));
                        let decision = planner.decide(2);
                        let count =
                            |at: usize| decision.merged.keys().get(at).map_or(0, |k| k.count);
                        let (first, second) = (count(0), count(1));
                        assert!(
                            first == second || first == second + 1,
                            "{first} and {second}"
                        );
                        assert!(first >= seen, "time went back from {seen} to {first}");
                        seen = first;
                    }
                });
            }
        });
        assert_eq!(planner.decide(0).merged.keys()[1].count, 3_000);
    }
}

/// Takes from many threads add up: no step is lost, none counted twice.
#[test]
fn takes_from_many_threads_add_up() {
    let planner = Planner::new(Pick::Stride, 1);
    let keys = (0..8).map(|n| tally(n, 100, 0, 1.0)).collect();
    planner.tally(shard(0), report(1, keys), at(0));
    let plan = planner.plan(shard(0), 800);
    thread::scope(|scope| {
        for worker in 0..4 {
            let (planner, slots) = (&planner, plan.slots.iter().skip(worker).step_by(4));
            scope.spawn(move || slots.for_each(|slot| planner.took(band(1), &slot.key, slot.turn)));
        }
    });
    assert!(planner.unserved(&plan).is_empty());
    let last = plan.slots.last().unwrap().turn;
    assert!(
        planner
            .standing(band(1))
            .passes()
            .all(|(_, pass)| pass == last)
    );
    planner.tally(shard(0), ShardTally::nothing(), at(0));
    assert_eq!(planner.standing(band(1)).passes().count(), 0);
}
