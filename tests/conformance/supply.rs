//! What [`fairq::store::Supply`] promises.

use std::sync::Arc;

use fairq::model::Stream;
use fairq::model::{Band, Due, FairnessKey, LocalId, NewStep, ShardId, StepId, StepState, Weight};
use fairq::store::{Look, Want};
use fairq::tally::{ShardTally, Tally};

use super::{ONLY, Open, START, World, at, band, give_back, key, lease, runner, step, success};

fn later(millis: i64) -> NewStep {
    NewStep {
        due: Due::At(at(START.millis() + millis)),
        ..step("a")
    }
}

fn locals(ids: &[StepId]) -> Vec<LocalId> {
    ids.iter().map(|id| id.local).collect()
}

pub(crate) fn what_is_not_due_is_nowhere_to_be_seen(open: Open) {
    let world = World::new(open, 1);
    let held = NewStep {
        due: Due::Held,
        ..step("a")
    };
    let ids = world.put(&[later(1), held]);
    world.store.promote(ONLY, START).unwrap();
    assert_eq!(world.store.tally(ONLY).unwrap(), ShardTally::nothing());
    assert_eq!(world.due("a"), []);
    assert_eq!(world.state(ids[0]), StepState::Delayed);
    assert_eq!(world.state(ids[1]), StepState::Held);
}

pub(crate) fn what_is_due_already_need_not_wait_for_a_promotion(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&[later(-5), later(0)]);
    assert_eq!(world.due("a"), locals(&ids));
    // They could not have run before they came.
    assert!(ids.iter().all(|id| world.view(*id).at == START));
}

pub(crate) fn promotion_makes_due_exactly_what_is_due(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&[later(30), later(10), later(20), later(10)]);
    let promote = |millis| world.store.promote(ONLY, at(START.millis() + millis));
    assert_eq!(promote(9).unwrap(), Some(at(START.millis() + 10)));
    assert_eq!(world.due("a"), []);
    assert_eq!(promote(10).unwrap(), Some(at(START.millis() + 20)));
    assert_eq!(world.due("a"), locals(&[ids[1], ids[3]]));
    assert_eq!(promote(500).unwrap(), None);
    assert_eq!(world.due("a"), locals(&ids));
    // It became due when it was due, not when somebody looked.
    assert_eq!(world.view(ids[2]).at, at(START.millis() + 20));
    assert_eq!(promote(500).unwrap(), None);
}

pub(crate) fn the_tally_knows_only_the_best_band(open: Open) {
    let world = World::new(open, 1);
    let of = |number: u32, of: &str| NewStep {
        band: band(number),
        ..step(of)
    };
    let ids = world.put(&[of(7, "a"), of(3, "b"), of(3, "a"), of(7, "c"), of(3, "b")]);
    let counts = || {
        let tally = world.store.tally(ONLY).unwrap();
        let keys = tally.keys().iter();
        let keys: Vec<(String, u32)> = keys.map(|of| (of.key.to_string(), of.count)).collect();
        (tally.band().map(Band::get), keys)
    };
    let pair = |of: &str, count| (of.to_owned(), count);
    assert_eq!(counts(), (Some(3), vec![pair("a", 1), pair("b", 2)]));
    world.take(ids[2]);
    world.take(ids[1]);
    assert_eq!(counts(), (Some(3), vec![pair("b", 1)]));
    world.take(ids[4]);
    assert_eq!(counts(), (Some(7), vec![pair("a", 1), pair("c", 1)]));
}

pub(crate) fn the_tally_takes_age_and_weight_from_the_head(open: Open) {
    let world = World::new(open, 1);
    let weighing = |weight: f64, due| NewStep {
        weight: Weight::new(weight).unwrap(),
        due,
        ..step("a")
    };
    let ids = world.put(&[
        weighing(2.0, Due::At(at(START.millis() + 50))),
        weighing(3.0, Due::Now),
        weighing(4.0, Due::Now),
    ]);
    let head = |count, since, weight| Tally {
        key: key("a"),
        count,
        since,
        weight: Weight::new(weight).unwrap(),
    };
    let told = || world.store.tally(ONLY).unwrap().keys().to_vec();
    assert_eq!(told(), [head(2, START, 3.0)]);
    // An older number that falls due later takes its place at the head.
    let later = at(START.millis() + 60);
    world.store.promote(ONLY, later).unwrap();
    assert_eq!(told(), [head(3, at(START.millis() + 50), 2.0)]);
    let claim = world.take(ids[0]);
    assert_eq!(told(), [head(2, START, 3.0)]);
    world.take(ids[1]);
    assert_eq!(told(), [head(1, START, 4.0)]);
    world.settle(give_back(&claim));
    assert_eq!(told(), [head(2, at(START.millis() + 50), 2.0)]);
}

pub(crate) fn a_shard_without_due_steps_reports_nothing(open: Open) {
    let world = World::new(open, 2);
    let id = world.put_one(step("a"));
    for shard in world.shards() {
        let tally = world.store.tally(shard).unwrap();
        assert_eq!(tally.band().is_some(), shard == id.shard);
    }
    world.take(id);
    assert_eq!(world.store.tally(id.shard).unwrap(), ShardTally::nothing());
}

pub(crate) fn a_fetch_returns_the_oldest_of_each_key_in_the_order_of_the_wants(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&[step("b"), step("a"), step("b"), step("b"), step("a")]);
    let want = |of: &str, count| Want {
        key: key(of),
        count,
    };
    let wants = [
        want("b", 2),
        want("nobody", 9),
        want("a", 9),
        want("b", 0),
        want("ab", 1),
    ];
    let found = world.store.fetch(ONLY, Band::DEFAULT, &wants).unwrap();
    let expected = [
        locals(&[ids[0], ids[2]]),
        vec![],
        locals(&[ids[1], ids[4]]),
        vec![],
        vec![],
    ];
    assert_eq!(found, expected);
    let none = world.store.fetch(ONLY, Band::DEFAULT, &[]).unwrap();
    assert!(none.is_empty());
}

pub(crate) fn a_fetch_knows_only_the_band_that_it_is_asked_for(open: Open) {
    let world = World::new(open, 1);
    let urgent = NewStep {
        band: band(0),
        ..step("a")
    };
    let ids = world.put(&[step("a"), urgent]);
    let due = |number| world.due_at(ONLY, band(number), &key("a"));
    assert_eq!(due(0), locals(&ids[1..]));
    assert_eq!(due(1), []);
    assert_eq!(due(100), locals(&ids[..1]));
}

pub(crate) fn the_version_tells_every_change(open: Open) {
    let world = World::new(open, 1);
    let mut last = world.store.version(ONLY).unwrap();
    let mut changed = |what: &str| {
        let now = world.store.version(ONLY).unwrap();
        assert_ne!(now, last, "{what} went unnoticed");
        assert_eq!(world.store.version(ONLY).unwrap(), now, "it never rests");
        last = now;
    };
    let ids = world.put(&[step("a"), later(10)]);
    changed("an enqueue");
    world.store.promote(ONLY, at(START.millis() + 10)).unwrap();
    changed("a promotion");
    let claim = world.take(ids[0]);
    changed("a claim");
    world.settle(give_back(&claim));
    changed("a step given back");
    let claim = world.take(ids[0]);
    changed("another claim");
    world.settle(success(&claim));
    changed("a settlement");
    world.take(ids[1]);
    changed("the last claim");
    world.store.reclaim(ONLY, runner(1), START).unwrap();
    changed("a reclaim");
}

pub(crate) fn a_look_is_new_when_the_shard_is_or_the_time_has_come(open: Open) {
    let world = World::new(open, 1);
    let look = |known, now| world.store.look(ONLY, known, now).unwrap();
    let due = |look: &Option<Look>| look.as_ref().map(|look| look.tally.keys()[0].count);
    world.put(&[step("a"), later(10)]);
    let first = look(None, START).unwrap();
    assert_eq!(first.tally, world.store.tally(ONLY).unwrap());
    let time = at(START.millis() + 10);
    assert_eq!(first.known.next, Some(time));
    assert_eq!(look(Some(first.known), START), None);
    world.put(&[step("a")]);
    let second = look(Some(first.known), START);
    assert_eq!(due(&second), Some(2));
    let known = second.unwrap().known;
    assert_eq!(look(Some(known), at(time.millis() - 1)), None);
    let third = look(Some(known), time);
    assert_eq!(due(&third), Some(3));
    // Its version is from before the promotion: it may be new once more, and then no longer.
    let known = third.unwrap().known;
    assert_eq!(known.next, None);
    let last = look(Some(known), time).map_or(known, |look| look.known);
    assert_eq!(look(Some(last), at(i64::MAX)), None);
}

pub(crate) fn an_unknown_shard_is_an_error(open: Open) {
    let world = World::new(open, 2);
    let store = &world.store;
    let shard = ShardId::new(2).unwrap();
    let id = StepId::new(shard, LocalId::new(1));
    assert!(store.promote(shard, START).is_err());
    assert!(store.version(shard).is_err());
    assert!(store.look(shard, None, START).is_err());
    assert!(store.tally(shard).is_err());
    assert!(store.fetch(shard, Band::DEFAULT, &[]).is_err());
    assert!(store.claim(shard, &[], lease(1), START).is_err());
    assert!(store.holders(shard).is_err());
    assert!(store.reclaim(shard, runner(1), START).is_err());
    assert!(world.try_settle(shard, Arc::from([])).is_err());
    assert!(store.get(id).is_err());
    assert!(store.attempts(id).is_err());
    assert!(store.output(id, 1, Stream::Stdout).is_err());
    assert!(store.counts(shard).is_err());
    assert_ne!(store.place(&FairnessKey::default()), shard);
}
