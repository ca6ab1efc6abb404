//! What the store promises of steps that wait for others.

use fairq::error::ErrorKind;
use fairq::model::{
    Claim, Dependency, Due, Ending, LocalId, Need, NewStep, OnLost, Parent, Settlement, ShardId,
    StepId, StepState, Verdict,
};
use fairq::store::{Action, Filter, Link, Steered};

use super::{
    ONLY, Open, START, World, after, at, failure, following, give_back, lost_step, over, recorded,
    runner, step, success, waiting,
};

const NEEDS: [Need; 3] = [Need::Success, Need::End, Need::Failure];

fn skipped(reason: String) -> Option<Ending> {
    Some(Ending::Skipped { reason })
}

pub(crate) fn a_step_waits_until_its_parent_has_succeeded(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&[step("a"), waiting(step("a"), &[0], Need::Success)]);
    assert_eq!(world.state(ids[1]), StepState::Blocked);
    assert_eq!(world.due("a"), [ids[0].local]);
    assert!(world.claim(ids[1], 1, START).is_none());
    let claim = world.take(ids[0]);
    assert_eq!(world.state(ids[1]), StepState::Blocked);
    let news = world.record(success(&claim));
    assert_eq!(news.state, StepState::Succeeded);
    assert_eq!(news.released, [world.released(ids[1])]);
    assert!(!news.tell, "nobody else waits");
    assert_eq!(world.due("a"), [ids[1].local]);
    let view = world.view(ids[1]);
    assert_eq!(view.state, StepState::Ready);
    assert_eq!(view.at, at(claim.claimed.millis() + 10));
}

/// Brings a due step to one of its ends.
fn end(world: &World, id: StepId, state: StepState) {
    match state {
        StepState::Succeeded => drop(world.run(id, success)),
        StepState::Failed => drop(world.run(id, failure)),
        StepState::Running
        | StepState::Ready
        | StepState::Delayed
        | StepState::Blocked
        | StepState::Limited
        | StepState::Held
        | StepState::Cancelled => {
            let (from, to) = (StepState::Ready, StepState::Cancelled);
            let steered = world.steer(id, &Action::Cancel, after(9));
            assert_eq!(steered, Steered::Done { from, to });
        }
    }
    assert_eq!(world.state(id), state);
}

pub(crate) fn each_end_meets_its_needs_and_rules_out_the_others(open: Open) {
    let world = World::new(open, 1);
    for (state, word, met) in [
        (StepState::Succeeded, "succeeded", [true, true, false]),
        (StepState::Failed, "failed", [false, true, true]),
        (StepState::Cancelled, "was cancelled", [false, true, false]),
    ] {
        let mut steps = vec![step("a")];
        steps.extend(NEEDS.map(|need| waiting(step("b"), &[0], need)));
        let ids = world.put(&steps);
        end(&world, ids[0], state);
        // Who comes after the end finds it.
        let late = world.put(&NEEDS.map(|need| following(step("b"), ids[0], need)));
        for dependents in [&ids[1..], &late] {
            for ((id, met), need) in dependents.iter().zip(met).zip(NEEDS) {
                let view = world.view(*id);
                let link = Link {
                    parent: ids[0],
                    need,
                    met,
                    state: Some(state),
                };
                assert_eq!(world.store.parents(*id).unwrap(), [link]);
                if met {
                    assert_eq!((view.state, view.ending), (StepState::Ready, None));
                } else {
                    assert_eq!(view.state, StepState::Cancelled, "{state} {need:?}");
                    assert_eq!(view.ending, skipped(format!("{} {word}", ids[0])));
                    assert_eq!((view.started, view.fence), (None, 0));
                    assert_eq!(world.store.attempts(*id).unwrap(), []);
                }
            }
        }
    }
}

pub(crate) fn what_an_end_rules_out_ends_what_waits_for_it_in_turn(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&[
        step("a"),
        waiting(step("a"), &[0], Need::Success),
        waiting(step("a"), &[1], Need::Success),
        waiting(step("a"), &[1], Need::End),
        waiting(step("a"), &[1], Need::Failure),
        waiting(step("a"), &[0, 1, 2], Need::End),
    ]);
    let news = world.run(ids[0], failure);
    let mut due: Vec<StepId> = news.released.iter().map(|released| released.id).collect();
    due.sort();
    assert_eq!(due, [ids[3], ids[5]]);
    let endings: Vec<_> = ids.iter().map(|id| world.view(*id).ending).collect();
    assert_eq!(endings[1], skipped(format!("{} failed", ids[0])));
    assert_eq!(endings[2], skipped(format!("{} was cancelled", ids[1])));
    assert_eq!(endings[4], skipped(format!("{} was cancelled", ids[1])));
    let ended = world.view(ids[0]).at;
    for skipped in [1, 2, 4] {
        let view = world.view(ids[skipped]);
        assert_eq!((view.state, view.at), (StepState::Cancelled, ended));
    }
    assert_eq!(world.state(ids[3]), StepState::Ready);
    assert_eq!(world.state(ids[5]), StepState::Ready);
}

pub(crate) fn a_step_waits_for_all_its_parents(open: Open) {
    let world = World::new(open, 1);
    let both = || waiting(step("c"), &[0, 1], Need::Success);
    let ids = world.put(&[step("a"), step("b"), both()]);
    assert_eq!(world.run(ids[1], success).released, []);
    assert_eq!(world.state(ids[2]), StepState::Blocked);
    assert_eq!(world.run(ids[0], success).released.len(), 1);
    assert_eq!(world.state(ids[2]), StepState::Ready);
    // The first that fails decides; nothing that the other one does changes that.
    let ids = world.put(&[step("a"), step("b"), both()]);
    world.run(ids[1], failure);
    assert_eq!(world.state(ids[2]), StepState::Cancelled);
    assert_eq!(world.run(ids[0], success).released, []);
    let view = world.view(ids[2]);
    assert_eq!(view.state, StepState::Cancelled);
    assert_eq!(view.ending, skipped(format!("{} failed", ids[1])));
}

pub(crate) fn two_needs_of_one_parent_are_two(open: Open) {
    let world = World::new(open, 1);
    let dependency = |need| Dependency {
        parent: Parent::InBatch(0),
        need,
    };
    let twice = |needs: [Need; 2]| NewStep {
        after: needs.map(dependency).to_vec(),
        ..step("b")
    };
    let ids = world.put(&[
        step("a"),
        twice([Need::Success, Need::Success]),
        twice([Need::Success, Need::End]),
        twice([Need::Failure, Need::End]),
    ]);
    assert_eq!(world.store.parents(ids[1]).unwrap().len(), 1);
    assert_eq!(world.store.parents(ids[2]).unwrap().len(), 2);
    world.run(ids[0], success);
    assert_eq!(world.state(ids[1]), StepState::Ready);
    assert_eq!(world.state(ids[2]), StepState::Ready);
    assert_eq!(world.state(ids[3]), StepState::Cancelled);
}

/// Returns a world of two shards, and a step of each.
fn two_shards(open: Open) -> (World, [NewStep; 2], [ShardId; 2]) {
    let world = World::new(open, 2);
    let mut shards = world.shards();
    let shards = [shards.next().unwrap(), shards.next().unwrap()];
    let steps = shards.map(|shard| step(&world.key_on(shard)));
    (world, steps, shards)
}

pub(crate) fn nothing_on_another_shard_changes_before_it_is_told(open: Open) {
    let (world, [here, there], [from, to]) = two_shards(open);
    for (settlement, state) in [
        (success as fn(&Claim) -> Settlement, StepState::Ready),
        (failure, StepState::Cancelled),
    ] {
        let child = waiting(there.clone(), &[0], Need::Success);
        let ids = world.put(&[here.clone(), child]);
        assert_eq!((ids[0].shard, ids[1].shard), (from, to));
        assert_eq!(world.state(ids[1]), StepState::Blocked);
        let news = world.run(ids[0], settlement);
        assert_eq!((news.released, news.tell), (vec![], true));
        assert_eq!(world.state(ids[1]), StepState::Blocked);
        let told = world.store.deliver(to, after(5_000)).unwrap();
        assert_eq!(told, [], "the wrong shard told it");
        assert_eq!(world.state(ids[1]), StepState::Blocked);
        let told = world.store.deliver(from, after(6_000)).unwrap();
        let view = world.view(ids[1]);
        assert_eq!((view.state, view.at), (state, after(6_000)));
        if state == StepState::Ready {
            assert_eq!(told, [world.released(ids[1])]);
        } else {
            assert_eq!(told, []);
            assert_eq!(view.ending, skipped(format!("{} failed", ids[0])));
        }
        assert_eq!(world.store.deliver(from, after(7_000)).unwrap(), []);
        assert_eq!(world.view(ids[1]).at, after(6_000));
    }
}

pub(crate) fn what_follows_on_other_shards_is_told_in_one_go(open: Open) {
    let (world, [here, there], [from, _]) = two_shards(open);
    let ids = world.put(&[
        here.clone(),
        waiting(there.clone(), &[0], Need::Success),
        waiting(here.clone(), &[1], Need::Success),
        waiting(there, &[2], Need::Success),
        waiting(here, &[3], Need::End),
    ]);
    world.run(ids[0], failure);
    let told = world.store.deliver(from, after(5_000)).unwrap();
    assert_eq!(told, [world.released(ids[4])]);
    let states: Vec<StepState> = ids[1..].iter().map(|id| world.state(*id)).collect();
    let cancelled = StepState::Cancelled;
    assert_eq!(states, [cancelled, cancelled, cancelled, StepState::Ready]);
}

pub(crate) fn a_parent_may_stand_behind_its_dependents(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&[
        waiting(step("a"), &[1], Need::Success),
        waiting(step("a"), &[2], Need::Success),
        step("a"),
    ]);
    assert!(ids.is_sorted(), "numbers follow the batch");
    for (first, then) in [(2, 1), (1, 0)] {
        assert_eq!(world.due("a"), [ids[first].local]);
        let news = world.run(ids[first], success);
        assert_eq!(news.released, [world.released(ids[then])]);
    }
}

pub(crate) fn what_can_never_run_is_over_as_soon_as_it_is_put_in(open: Open) {
    let world = World::new(open, 1);
    let failed = world.put_one(step("a"));
    world.run(failed, failure);
    let ids = world.put(&[
        waiting(step("a"), &[1], Need::Success),
        following(step("a"), failed, Need::Success),
        waiting(step("a"), &[0], Need::End),
    ]);
    assert_eq!(world.state(ids[0]), StepState::Cancelled);
    assert_eq!(
        world.view(ids[1]).ending,
        skipped(format!("{failed} failed"))
    );
    assert_eq!(world.view(ids[1]).at, START);
    assert_eq!(world.state(ids[2]), StepState::Ready);
}

pub(crate) fn a_circle_is_refused_and_named(open: Open) {
    let world = World::new(open, 2);
    let to = |parents: &[usize]| waiting(step("a"), parents, Need::End);
    for (steps, named) in [
        (vec![to(&[0])], "1 → 1"),
        (vec![to(&[1]), to(&[0])], "1 → 2 → 1"),
        (vec![to(&[2]), to(&[0]), to(&[1])], "1 → 3 → 2 → 1"),
        (vec![to(&[1]), to(&[2]), to(&[1])], "2 → 3 → 2"),
        (
            vec![to(&[]), to(&[0, 2]), to(&[3]), to(&[1])],
            "2 → 3 → 4 → 2",
        ),
    ] {
        let error = world.store.put(&steps, START).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.to_string().ends_with(&format!(" {named}")), "{error}");
    }
    assert!(world.store.list(&Filter::default()).unwrap().is_empty());
    // Two ways to one step are no circle.
    world.put(&[to(&[1, 2]), to(&[3]), to(&[3]), to(&[])]);
}

pub(crate) fn a_parent_that_is_not_there_is_refused(open: Open) {
    let world = World::new(open, 2);
    let nowhere = StepId::new(ShardId::new(9).unwrap(), LocalId::new(1));
    for unknown in [StepId::new(ONLY, LocalId::new(7)), nowhere] {
        let steps = [step("a"), following(step("a"), unknown, Need::End)];
        let error = world.store.put(&steps, START).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains(&unknown.to_string()), "{error}");
    }
    let beyond = [step("a"), waiting(step("a"), &[2], Need::End)];
    let error = world.store.put(&beyond, START).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(world.store.list(&Filter::default()).unwrap().is_empty());
}

pub(crate) fn parents_and_dependents_are_told(open: Open) {
    let (world, [here, there], [from, _]) = two_shards(open);
    let ids = world.put(&[
        here.clone(),
        there.clone(),
        waiting(there.clone(), &[1, 0], Need::Success),
        waiting(here.clone(), &[0], Need::End),
        waiting(there, &[0], Need::Success),
    ]);
    let parents = |of: usize| {
        let links = world.store.parents(ids[of]).unwrap().into_iter();
        let links: Vec<_> = links.map(|it| (it.parent, it.met, it.state)).collect();
        links
    };
    let dependents = |of: usize| world.store.dependents(ids[of]).unwrap();
    let sorted = |mut ids: Vec<StepId>| {
        ids.sort();
        ids
    };
    let ready = Some(StepState::Ready);
    let (first, second) = ((ids[0], false, ready), (ids[1], false, ready));
    assert_eq!(parents(2), [first, second]);
    assert_eq!(parents(0), []);
    assert_eq!(dependents(0), sorted(vec![ids[2], ids[3], ids[4]]));
    assert_eq!(dependents(1), [ids[2]]);
    assert_eq!(dependents(3), []);
    // What was cancelled does not wait any more.
    world.steer(ids[4], &Action::Cancel, after(1));
    assert_eq!(dependents(0), sorted(vec![ids[2], ids[3]]));
    // Neither does what has what it waited for.
    world.run(ids[0], success);
    world.store.deliver(from, after(2)).unwrap();
    assert_eq!(dependents(0), []);
    let over = (ids[0], true, Some(StepState::Succeeded));
    assert_eq!(parents(2), [over, second]);
    assert_eq!(parents(3), [over]);
    let unknown = StepId::new(ONLY, LocalId::new(99));
    assert_eq!(world.store.parents(unknown).unwrap(), []);
    assert_eq!(world.store.dependents(unknown).unwrap(), []);
}

pub(crate) fn a_held_step_follows_its_parents(open: Open) {
    let world = World::new(open, 1);
    let held = |parent| NewStep {
        due: Due::Held,
        ..waiting(step("b"), &[parent], Need::Success)
    };
    let ids = world.put(&[step("a"), held(0), held(0), step("a"), held(3)]);
    assert_eq!(world.state(ids[1]), StepState::Held);
    assert_eq!(world.store.dependents(ids[3]).unwrap(), [ids[4]]);
    // Released too early it waits for its parent.
    let release = |index: usize, to| {
        let from = StepState::Held;
        let steered = world.steer(ids[index], &Action::Release, after(3_000));
        assert_eq!(steered, Steered::Done { from, to });
    };
    release(1, StepState::Blocked);
    assert_eq!(world.run(ids[0], success).released.len(), 1);
    assert_eq!(world.state(ids[1]), StepState::Ready);
    assert_eq!(world.state(ids[2]), StepState::Held);
    release(2, StepState::Ready);
    assert_eq!(world.view(ids[2]).at, after(3_000));
    world.run(ids[3], failure);
    assert_eq!(world.state(ids[4]), StepState::Cancelled);
}

pub(crate) fn a_blocked_step_keeps_its_time(open: Open) {
    let world = World::new(open, 1);
    let timed = |millis| NewStep {
        due: Due::At(after(millis)),
        ..waiting(step("b"), &[0], Need::Success)
    };
    let ids = world.put(&[step("a"), timed(9_000), timed(500)]);
    assert_eq!(world.state(ids[1]), StepState::Blocked);
    // Its time alone does not free it.
    world.store.promote(ONLY, after(900)).unwrap();
    assert_eq!(world.state(ids[2]), StepState::Blocked);
    // The parent ends at 1010.
    let news = world.run(ids[0], success);
    assert_eq!(news.released, [world.released(ids[2])]);
    let view = world.view(ids[1]);
    assert_eq!((view.state, view.at), (StepState::Delayed, after(9_000)));
    assert_eq!(world.view(ids[2]).at, after(1_010));
    world.store.promote(ONLY, after(9_000)).unwrap();
    assert_eq!(world.state(ids[1]), StepState::Ready);
}

pub(crate) fn a_parent_that_is_tried_again_frees_nobody(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&[step("a"), waiting(step("b"), &[0], Need::End)]);
    let retry = Verdict::Retry { at: after(5_000) };
    let claim = world.take(ids[0]);
    let settled = world.settle(over(&claim, Ending::Exited { code: 3 }, retry));
    assert_eq!(settled, recorded(StepState::Delayed));
    let view = world.view(ids[0]);
    assert_eq!((view.state, view.at), (StepState::Delayed, after(5_000)));
    assert_eq!((view.attempt, view.fence), (1, 1));
    assert_eq!(world.store.attempts(ids[0]).unwrap().len(), 1);
    assert_eq!(world.state(ids[1]), StepState::Blocked);
    world.store.promote(ONLY, after(5_000)).unwrap();
    let claim = world.claim(ids[0], 1, after(5_001)).unwrap();
    assert_eq!((claim.attempt, claim.fence), (2, 2));
    world.settle(give_back(&claim));
    assert_eq!(world.view(ids[0]).attempt, 1);
    assert_eq!(world.state(ids[1]), StepState::Blocked);
    world.run(ids[0], success);
    assert_eq!(world.state(ids[1]), StepState::Ready);
}

pub(crate) fn a_lost_parent_counts_as_its_policy_says(open: Open) {
    let world = World::new(open, 1);
    for (on_lost, state) in [
        (OnLost::Retry, StepState::Blocked),
        (OnLost::Hold, StepState::Blocked),
        (OnLost::Fail, StepState::Cancelled),
    ] {
        let ids = world.put(&[
            lost_step(on_lost),
            waiting(step("b"), &[0], Need::Success),
            waiting(step("b"), &[0], Need::Failure),
        ]);
        world.take(ids[0]);
        world.store.reclaim(ONLY, runner(1), after(2_000)).unwrap();
        assert_eq!(world.state(ids[1]), state);
        let ready = state == StepState::Cancelled;
        let view = world.view(ids[2]);
        assert_eq!(view.state == StepState::Ready, ready, "{on_lost:?}");
        assert!(!ready || view.at == after(2_000));
    }
}

pub(crate) fn mending_sets_right_what_was_never_told(open: Open) {
    let (world, [here, there], [from, _]) = two_shards(open);
    let ids = world.put(&[
        here.clone(),
        waiting(there.clone(), &[0], Need::Success),
        here,
        waiting(there, &[2], Need::Success),
    ]);
    assert_eq!(world.store.mend(after(1)).unwrap(), []);
    world.run(ids[0], success);
    let mended = world.store.mend(after(2_000)).unwrap();
    assert_eq!(mended, [world.released(ids[1])]);
    assert_eq!(world.state(ids[1]), StepState::Ready);
    assert_eq!(world.state(ids[3]), StepState::Blocked);
    assert_eq!(world.store.mend(after(3_000)).unwrap(), []);
    // Told once more, nothing happens.
    world.store.deliver(from, after(4_000)).unwrap();
    assert_eq!(world.view(ids[1]).at, after(2_000));
}

pub(crate) fn a_long_chain_falls_in_one_go(open: Open) {
    const LONG: usize = 3_000;
    let world = World::new(open, 1);
    let mut steps = vec![step("a")];
    steps.extend((1..LONG).map(|place| waiting(step("a"), &[place - 1], Need::Success)));
    let ids = world.put(&steps);
    world.run(ids[0], failure);
    assert_eq!(world.state(ids[LONG - 1]), StepState::Cancelled);
    let counts = world.store.counts(ONLY).unwrap();
    let cancelled = counts.states[&StepState::Cancelled];
    assert_eq!(cancelled, LONG as u64 - 1);
}
