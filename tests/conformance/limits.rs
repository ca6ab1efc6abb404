//! What the store promises of named limits: who has places, and who waits.

use std::collections::BTreeMap;

use fairq::model::{
    Claim, Ending, LimitName, Need, NewStep, Policy, Settlement, StepId, StepState, Verdict,
};
use fairq::store::{Action, Edit, LimitView, Pause, Steered};

use super::{
    ONLY, Open, World, after, at, band, failure, give_back, key, over, recorded, runner, step,
    success, waiting,
};

pub(crate) fn name(text: &str) -> LimitName {
    text.parse().unwrap()
}

/// Returns the step, with so many places of each of these limits.
pub(crate) fn limited(step: NewStep, limits: &[(&str, u32)]) -> NewStep {
    let limits = limits.iter().map(|(of, count)| (name(of), *count));
    NewStep {
        policy: Policy {
            limits: limits.collect(),
            ..step.policy
        },
        ..step
    }
}

/// Returns a step of this key at this band that takes one place of `x`.
pub(crate) fn one(of: &str, number: u32) -> NewStep {
    let step = NewStep {
        band: band(number),
        ..step(of)
    };
    limited(step, &[("x", 1)])
}

pub(crate) fn set(world: &World, of: &str, places: u32) {
    world.store.set_limit(&name(of), Some(places)).unwrap();
}

pub(crate) fn limit(world: &World, of: &str) -> LimitView {
    let limits = world.store.limits().unwrap();
    let mut limits = limits.into_iter().filter(|limit| limit.name == name(of));
    limits.next().unwrap()
}

/// Claims a granted step at an instant and settles it.
pub(crate) fn run_at(world: &World, id: StepId, millis: i64, settlement: fn(&Claim) -> Settlement) {
    let claim = world.claim(id, 1, after(millis)).unwrap();
    world.settle(settlement(&claim));
}

pub(crate) fn a_step_with_limits_waits_for_its_places(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&[one("a", 5), one("a", 5), step("b")]);
    for id in &ids[..2] {
        let view = world.view(*id);
        assert_eq!((view.state, view.at), (StepState::Limited, super::START));
        assert_eq!((view.limit, view.since), (Some(name("x")), None));
    }
    assert_eq!(world.state(ids[2]), StepState::Ready);
    assert_eq!(world.due_at(ONLY, band(5), &key("a")), []);
    assert!(world.claim(ids[0], 1, after(1)).is_none());
}

pub(crate) fn a_step_is_due_once_it_has_its_places(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&[one("a", 5), one("a", 5)]);
    let version = world.store.version(ONLY).unwrap();
    let released = world.store.grant(after(7)).unwrap();
    assert_eq!(released, [world.released(ids[0])]);
    assert_ne!(world.store.version(ONLY).unwrap(), version);
    let view = world.view(ids[0]);
    assert_eq!((view.state, view.at), (StepState::Ready, after(7)));
    assert_eq!(view.limit, None);
    assert_eq!(world.due_at(ONLY, band(5), &key("a")), [ids[0].local]);
    let expected = LimitView {
        name: name("x"),
        places: 1,
        is_set: false,
        holders: BTreeMap::from([(ids[0], 1)]),
        waiting: 1,
    };
    assert_eq!(limit(&world, "x"), expected);
    assert_eq!(world.grant(after(8)), []);
    let claim = world.claim(ids[0], 1, after(9)).unwrap();
    assert_eq!((claim.since, claim.attempt), (after(7), 1));
    assert_eq!(world.grant(after(9)), []);
    assert_eq!(world.store.limits().unwrap(), [expected]);
    world.settle(success(&claim));
    assert_eq!(world.state(ids[1]), StepState::Limited);
    assert_eq!(world.grant(after(30)), [ids[1]]);
    run_at(&world, ids[1], 31, success);
    assert_eq!(world.grant(after(60)), []);
    assert_eq!(world.store.limits().unwrap(), []);
}

pub(crate) fn a_limit_has_as_many_places_as_it_was_set_to(open: Open) {
    let world = World::new(open, 2);
    let of = name("x");
    let mut ids = world.put(&vec![one("a", 5); 6]);
    assert_eq!(world.store.set_limit(&of, Some(0)).unwrap(), None);
    assert_eq!(world.grant(after(1)), []);
    assert_eq!(world.store.set_limit(&of, Some(3)).unwrap(), Some(0));
    assert_eq!(world.grant(after(2)), ids[..3]);
    // What runs or is due is left alone when the limit is lowered.
    let claim = world.claim(ids[0], 1, after(3)).unwrap();
    assert_eq!(world.store.set_limit(&of, Some(1)).unwrap(), Some(3));
    assert_eq!(world.grant(after(4)), []);
    let view = limit(&world, "x");
    assert_eq!((view.places, view.is_set, view.taken()), (1, true, 3));
    assert_eq!(view.waiting, 3);
    world.settle(success(&claim));
    assert_eq!(world.grant(after(30)), []);
    run_at(&world, ids[1], 31, success);
    assert_eq!(world.grant(after(50)), []);
    run_at(&world, ids[2], 51, success);
    assert_eq!(world.grant(after(70)), [ids[3]]);
    // One that is forgotten has one place, like one that was never set.
    assert_eq!(world.store.set_limit(&of, Some(9)).unwrap(), Some(1));
    assert_eq!(world.store.set_limit(&of, None).unwrap(), Some(9));
    assert_eq!(world.store.set_limit(&of, None).unwrap(), None);
    assert_eq!(world.grant(after(71)), []);
    assert!(!limit(&world, "x").is_set);
    // Another one is another one, and one that nobody uses is told, too.
    set(&world, "y", 7);
    let names: Vec<_> = world.store.limits().unwrap();
    let names: Vec<_> = names
        .iter()
        .map(|it| (it.name.clone(), it.places))
        .collect();
    assert_eq!(names, [(name("x"), 1), (name("y"), 7)]);
    ids.extend(world.put(&[limited(step("a"), &[("y", 7)])]));
    assert_eq!(world.grant(after(72)), [ids[6]]);
}

pub(crate) fn places_are_free_when_a_step_neither_runs_nor_is_due(open: Open) {
    let world = World::new(open, 1);
    let retry: fn(&Claim) -> Settlement = |claim| {
        let at = after(900_000);
        over(claim, Ending::Exited { code: 1 }, Verdict::Retry { at })
    };
    let mut now = 1_000;
    for (settlement, frees) in [
        (success as fn(&Claim) -> Settlement, true),
        (failure, true),
        (retry, true),
        (give_back, false),
    ] {
        let ids = world.put(&[one("a", 5), one("a", 5)]);
        assert_eq!(world.grant(after(now)), [ids[0]]);
        run_at(&world, ids[0], now, settlement);
        assert_eq!(world.grant(after(now + 100)).is_empty(), !frees);
        if !frees {
            // What goes back as it was has its place still.
            assert_eq!(world.state(ids[0]), StepState::Ready);
            assert_eq!(world.view(ids[0]).at, after(now));
            run_at(&world, ids[0], now + 200, success);
            assert_eq!(world.grant(after(now + 300)), [ids[1]]);
        }
        run_at(&world, ids[1], now + 400, success);
        now += 1_000;
    }
    for action in [Action::Cancel, Action::Hold] {
        let ids = world.put(&[one("a", 5), one("a", 5)]);
        assert_eq!(world.grant(after(now)), [ids[0]]);
        world.steer(ids[0], &action, after(now));
        assert_eq!(world.grant(after(now)), [ids[1]]);
        assert_eq!(limit(&world, "x").taken(), 1);
        // Who is released waits anew.
        if world.steer(ids[0], &Action::Release, after(now))
            == (Steered::Done {
                from: StepState::Held,
                to: StepState::Limited,
            })
        {
            assert_eq!(world.grant(after(now)), []);
            run_at(&world, ids[1], now, success);
            assert_eq!(world.grant(after(now)), [ids[0]]);
            run_at(&world, ids[0], now, success);
        } else {
            assert_eq!(world.state(ids[0]), StepState::Cancelled);
            run_at(&world, ids[1], now, success);
        }
        now += 1_000;
    }
}

pub(crate) fn a_step_that_left_and_came_back_waits_for_its_places_again(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&[one("a", 5), one("a", 9)]);
    assert_eq!(world.grant(after(1)), [ids[0]]);
    // Nobody gave places out while it was away, so they are still noted under its name.
    world.steer(ids[0], &Action::Hold, after(2));
    let limited = Steered::Done {
        from: StepState::Held,
        to: StepState::Limited,
    };
    assert_eq!(world.steer(ids[0], &Action::Release, after(3)), limited);
    assert_eq!(limit(&world, "x").taken(), 0);
    assert_eq!(world.grant(after(4)), [ids[0]]);
    let claim = world.claim(ids[0], 1, after(5)).unwrap();
    world.settle(failure(&claim));
    let again = Steered::Done {
        from: StepState::Failed,
        to: StepState::Limited,
    };
    assert_eq!(world.steer(ids[0], &Action::Retry, after(20)), again);
    assert_eq!(world.grant(after(21)), [ids[0]]);
    assert_eq!(limit(&world, "x").taken(), 1);
}

pub(crate) fn all_places_are_given_at_once_or_none(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&[
        limited(step("a"), &[("y", 1)]),
        limited(step("a"), &[("x", 1), ("y", 1)]),
        limited(step("a"), &[("x", 1)]),
    ]);
    // The second waits for y, and takes no place of x meanwhile.
    assert_eq!(world.grant(after(1)), [ids[0], ids[2]]);
    assert_eq!(world.view(ids[1]).limit, Some(name("y")));
    assert_eq!(limit(&world, "y").waiting, 1);
    run_at(&world, ids[0], 2, success);
    assert_eq!(world.grant(after(20)), []);
    assert_eq!(world.view(ids[1]).limit, Some(name("x")));
    assert_eq!(
        (limit(&world, "x").waiting, limit(&world, "x").taken()),
        (1, 1)
    );
    run_at(&world, ids[2], 21, success);
    assert_eq!(world.grant(after(40)), [ids[1]]);
    let holders = BTreeMap::from([(ids[1], 1)]);
    assert_eq!(limit(&world, "x").holders, holders);
    assert_eq!(limit(&world, "y").holders, holders);
}

pub(crate) fn who_needs_many_places_is_not_passed_by(open: Open) {
    let world = World::new(open, 1);
    set(&world, "x", 3);
    let of = |count| limited(step("a"), &[("x", count)]);
    let ids = world.put(&[of(1), of(1), of(3), of(1), of(4)]);
    // The third waits for all of them, so the fourth gets none.
    assert_eq!(world.grant(after(1)), ids[..2]);
    run_at(&world, ids[0], 2, success);
    assert_eq!(world.grant(after(20)), []);
    run_at(&world, ids[1], 21, success);
    assert_eq!(world.grant(after(40)), [ids[2]]);
    assert_eq!(limit(&world, "x").taken(), 3);
    run_at(&world, ids[2], 41, success);
    assert_eq!(world.grant(after(60)), [ids[3]]);
    run_at(&world, ids[3], 61, success);
    // The last needs more than there are: it hinders nobody, and goes when there are enough.
    let last = world.put_one(of(2));
    assert_eq!(world.grant(after(80)), [last]);
    run_at(&world, last, 81, success);
    assert_eq!(world.grant(after(100)), []);
    set(&world, "x", 4);
    assert_eq!(world.grant(after(101)), [ids[4]]);
}

pub(crate) fn a_limit_holds_for_all_shards_together(open: Open) {
    let world = World::new(open, 3);
    let keys: Vec<String> = world.shards().map(|shard| world.key_on(shard)).collect();
    let steps: Vec<NewStep> = keys.iter().map(|of| one(of, 5)).collect();
    let ids = world.put(&steps);
    set(&world, "x", 2);
    let first = world.grant(after(1));
    assert_eq!(first.len(), 2);
    assert_eq!(limit(&world, "x").taken(), 2);
    assert_eq!(limit(&world, "x").waiting, 1);
    run_at(&world, first[0], 2, success);
    let second = world.grant(after(20));
    let third = ids.iter().find(|id| !first.contains(id)).unwrap();
    assert_eq!(second, [*third]);
}

pub(crate) fn what_is_paused_takes_no_places(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&[one("a", 1), one("b", 5), one("a", 1)]);
    let pause = Pause {
        band: None,
        key: Some(key("a")),
    };
    world.store.pause(&pause, after(1)).unwrap();
    assert_eq!(world.grant(after(2)), [ids[1]]);
    world.store.resume(&pause).unwrap();
    assert_eq!(world.grant(after(3)), [ids[0]]);
    // Due already when it is paused, it gives way, though its band is the better one.
    world.store.pause(&pause, after(4)).unwrap();
    assert_eq!(world.grant(after(5)), [ids[1]]);
    assert_eq!(world.state(ids[0]), StepState::Limited);
    world.store.resume(&pause).unwrap();
    world.claim(ids[1], 1, after(6)).unwrap();
    assert_eq!(world.grant(after(7)), []);
}

pub(crate) fn what_is_late_takes_no_places(open: Open) {
    let world = World::new(open, 1);
    let late = super::expire::expiring(one("a", 1), 5_000);
    let ids = world.put(&[late, one("a", 5)]);
    assert_eq!(world.grant(after(5_000)), [ids[1]]);
    assert_eq!(world.state(ids[0]), StepState::Limited);
}

pub(crate) fn a_freed_step_with_limits_still_waits_for_its_places(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&[step("a"), waiting(one("b", 5), &[0], Need::Success)]);
    let news = world.record(success(&world.take(ids[0])));
    assert_eq!(news.released, []);
    assert!(news.tell, "somebody waits for a place");
    assert_eq!(world.state(ids[1]), StepState::Limited);
    assert_eq!(world.grant(after(2_000)), [ids[1]]);
}

pub(crate) fn a_step_with_limits_has_others_told_when_it_ends(open: Open) {
    let world = World::new(open, 1);
    let at_last = at(9_000_000);
    for verdict in [
        Verdict::Succeeded,
        Verdict::Failed,
        Verdict::Retry { at: at_last },
    ] {
        let id = world.put_one(one("a", 5));
        assert_eq!(world.grant(after(1)), [id]);
        let claim = world.take(id);
        let news = world.record(over(&claim, Ending::Exited { code: 1 }, verdict));
        assert!(news.tell, "{verdict:?}");
        let plain = world.take(world.put_one(step("a")));
        let settled = world.settle(over(&plain, Ending::Exited { code: 1 }, verdict));
        let state = match verdict {
            Verdict::Succeeded => StepState::Succeeded,
            Verdict::Failed => StepState::Failed,
            Verdict::Retry { .. } | Verdict::GiveBack => StepState::Delayed,
        };
        assert_eq!(settled, recorded(state));
    }
}

pub(crate) fn a_dead_runners_places_are_free(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&[super::lost_step(fairq::model::OnLost::Hold), one("a", 100)]);
    world.steer(
        ids[0],
        &Action::from(Edit {
            policy: Some(Policy {
                limits: BTreeMap::from([(name("x"), 1)]),
                ..super::lost_step(fairq::model::OnLost::Hold).policy
            }),
            ..Edit::default()
        }),
        after(1),
    );
    assert_eq!(world.grant(after(2)), [ids[0]]);
    world.claim(ids[0], 1, after(3)).unwrap();
    world.store.reclaim(ONLY, runner(1), after(4)).unwrap();
    assert_eq!(world.state(ids[0]), StepState::Held);
    assert_eq!(world.grant(after(5)), [ids[1]]);
}

pub(crate) fn edited_limits_are_waited_for_anew(open: Open) {
    let world = World::new(open, 1);
    let change = |limits: &[(&str, u32)]| {
        Action::from(Edit {
            policy: Some(limited(step("a"), limits).policy),
            ..Edit::default()
        })
    };
    let done = |from, to| Steered::Done { from, to };
    let (ready, limited) = (StepState::Ready, StepState::Limited);
    let ids = world.put(&[one("a", 5), one("a", 5), step("a")]);
    assert_eq!(world.grant(after(1)), [ids[0]]);
    // The same limits: nothing changes.
    let same = world.steer(ids[0], &change(&[("x", 1)]), after(2));
    assert_eq!(same, done(ready, ready));
    assert_eq!(world.view(ids[0]).at, after(1));
    let other = world.steer(ids[0], &change(&[("y", 1)]), after(3));
    assert_eq!(other, done(ready, limited));
    assert_eq!(world.view(ids[0]).limit, Some(name("y")));
    let mut granted = world.grant(after(4));
    granted.sort();
    assert_eq!(granted, ids[..2]);
    // Without limits it is due, and its place is free.
    let none = world.steer(ids[1], &change(&[]), after(5));
    assert_eq!(none, done(ready, ready));
    let first = world.steer(ids[2], &change(&[("x", 1)]), after(6));
    assert_eq!(first, done(ready, limited));
    assert_eq!(world.grant(after(7)), [ids[2]]);
    assert_eq!(limit(&world, "x").holders, BTreeMap::from([(ids[2], 1)]));
    let waits = world.put_one(one("a", 5));
    let freed = world.steer(waits, &change(&[]), after(8));
    assert_eq!(freed, done(limited, ready));
}
