//! What the store promises of pauses.

use fairq::model::{Band, NewStep, StepState};
use fairq::store::{Pause, Paused};
use fairq::tally::ShardTally;

use super::{ONLY, Open, World, after, band, key, step, success};

fn pause(number: Option<u32>, of: Option<&str>) -> Pause {
    Pause {
        band: number.map(band),
        key: of.map(key),
    }
}

/// Four due steps: each of two keys at each of two bands.
const FOUR: [(u32, &str); 4] = [(1, "a"), (1, "b"), (2, "a"), (2, "b")];

fn four() -> [NewStep; 4] {
    FOUR.map(|(number, of)| NewStep {
        band: band(number),
        ..step(of)
    })
}

pub(crate) fn what_is_paused_does_not_start(open: Open) {
    for (what, stopped) in [
        (pause(None, None), vec![0, 1, 2, 3]),
        (pause(Some(1), None), vec![0, 1]),
        (pause(None, Some("a")), vec![0, 2]),
        (pause(Some(2), Some("b")), vec![3]),
        (pause(Some(9), Some("b")), vec![]),
    ] {
        let world = World::new(open, 1);
        let mut ids = world.put(&four()[..2]);
        world.store.pause(&what, after(1)).unwrap();
        // Who comes later is covered, too.
        ids.extend(world.put(&four()[2..]));
        let goes: Vec<usize> = (0..4).filter(|index| !stopped.contains(index)).collect();
        let tally = world.store.tally(ONLY).unwrap();
        let told: Vec<(Option<Band>, _)> = tally
            .keys()
            .iter()
            .map(|it| (tally.band(), it.key.clone()))
            .collect();
        let best = goes.first().map(|index| FOUR[*index].0);
        let expected: Vec<_> = goes
            .iter()
            .map(|index| FOUR[*index])
            .filter(|(number, _)| Some(*number) == best)
            .map(|(number, of)| (Some(band(number)), key(of)))
            .collect();
        assert_eq!(told, expected, "{what:?}");
        for (index, (id, (number, of))) in ids.iter().zip(FOUR).enumerate() {
            let stops = stopped.contains(&index);
            let due = world.due_at(ONLY, band(number), &key(of));
            assert_eq!(due.is_empty(), stops, "{what:?} {id}");
            let claim = world.claim(*id, 1, after(2));
            assert_eq!(claim.is_none(), stops, "{what:?} {id}");
            assert_eq!(world.state(*id) == StepState::Ready, stops);
        }
        let counts = world.store.counts(ONLY).unwrap();
        assert_eq!(counts.paused, stopped.len() as u64);
        assert_eq!(counts.ready.values().sum::<u64>(), stopped.len() as u64);
    }
}

pub(crate) fn what_is_resumed_goes_on_as_it_was(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&four());
    let before = world.store.tally(ONLY).unwrap();
    for what in [
        pause(None, None),
        pause(Some(1), None),
        pause(None, Some("a")),
        pause(Some(1), Some("b")),
    ] {
        assert!(!world.store.resume(&what).unwrap());
        world.store.pause(&what, after(1)).unwrap();
        assert_ne!(world.store.tally(ONLY).unwrap(), before);
        assert!(world.store.resume(&what).unwrap());
        assert!(!world.store.resume(&what).unwrap());
        assert_eq!(world.store.tally(ONLY).unwrap(), before);
        assert_eq!(world.store.counts(ONLY).unwrap().paused, 0);
    }
    assert_eq!(world.store.pauses().unwrap(), []);
    assert!(world.claim(ids[0], 1, after(2)).is_some());
}

pub(crate) fn a_pause_stands_though_another_one_is_taken_back(open: Open) {
    let world = World::new(open, 1);
    world.put(&four());
    let (all, of_band, of_key) = (
        pause(None, None),
        pause(Some(1), None),
        pause(None, Some("a")),
    );
    for (what, millis) in [(&of_key, 1), (&all, 2), (&of_band, 3), (&of_key, 4)] {
        world.store.pause(what, after(millis)).unwrap();
    }
    let paused = |what: &Pause, millis| Paused {
        what: what.clone(),
        since: after(millis),
    };
    // Paused again, it is paused since it was first.
    let expected = [paused(&of_key, 1), paused(&all, 2), paused(&of_band, 3)];
    assert_eq!(world.store.pauses().unwrap(), expected);
    let counted = || world.store.counts(ONLY).unwrap().paused;
    assert_eq!(counted(), 4);
    assert!(world.store.resume(&all).unwrap());
    assert_eq!(counted(), 3);
    assert!(world.store.resume(&of_key).unwrap());
    assert_eq!(counted(), 2);
    assert_eq!(world.store.tally(ONLY).unwrap().band(), Some(band(2)));
    assert!(world.store.resume(&of_band).unwrap());
    assert_eq!(counted(), 0);
}

pub(crate) fn a_band_can_be_tallied_though_it_is_paused(open: Open) {
    let world = World::new(open, 1);
    world.put(&four());
    let at_band = || world.store.tally_at(ONLY, band(1)).unwrap();
    let before = at_band();
    assert_eq!(before.len(), 2);
    world.store.pause(&pause(None, None), after(1)).unwrap();
    assert_eq!(at_band(), before);
    assert_eq!(world.store.tally(ONLY).unwrap(), ShardTally::nothing());
}

pub(crate) fn what_runs_goes_on_through_a_pause(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&[step("a"), step("a"), step("a")]);
    let claim = world.take(ids[0]);
    let back = world.take(ids[1]);
    world
        .store
        .pause(&pause(None, Some("a")), after(1))
        .unwrap();
    assert_eq!(
        world.settle(success(&claim)),
        super::recorded(StepState::Succeeded)
    );
    // What comes back while it lasts is paused, too.
    world.settle(super::give_back(&back));
    assert_eq!(world.due("a"), []);
    assert_eq!(world.store.tally(ONLY).unwrap(), ShardTally::nothing());
    assert_eq!(world.store.counts(ONLY).unwrap().paused, 2);
    world.store.resume(&pause(None, Some("a"))).unwrap();
    assert_eq!(world.due("a"), [ids[1].local, ids[2].local]);
    assert_eq!(world.store.tally(ONLY).unwrap().keys()[0].count, 2);
}

pub(crate) fn a_pause_is_one_on_every_shard(open: Open) {
    let world = World::new(open, 3);
    let keys: Vec<String> = world.shards().map(|shard| world.key_on(shard)).collect();
    let steps: Vec<NewStep> = keys.iter().map(|of| step(of)).collect();
    world.put(&steps);
    let versions = || -> Vec<u64> {
        let shards = world.shards();
        shards
            .map(|shard| world.store.version(shard).unwrap())
            .collect()
    };
    let tallies = || {
        let shards = world.shards();
        let due = shards.filter(|shard| world.store.tally(*shard).unwrap().band().is_some());
        due.count()
    };
    let changed = |before: &[u64]| versions().iter().zip(before).all(|(a, b)| a != b);
    let before = versions();
    world.store.pause(&pause(None, None), after(1)).unwrap();
    assert!(changed(&before), "a shard did not notice the pause");
    assert_eq!(tallies(), 0);
    let before = versions();
    world.store.resume(&pause(None, None)).unwrap();
    assert!(changed(&before), "a shard did not notice that it is over");
    assert_eq!(tallies(), 3);
}
