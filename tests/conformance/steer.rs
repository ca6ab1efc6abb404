//! What the store promises of what people do to steps.

use std::collections::BTreeMap;

use fairq::model::{
    Claim, Due, Ending, LocalId, Need, NewStep, OnLost, Policy, Settlement, StepId, StepState,
    Verdict,
};
use fairq::store::{Action, Edit, Filter, Steered};

use super::{
    ONLY, Open, START, World, after, failure, following, give_back, lost_step, over, recorded,
    runner, step, success, waiting,
};

pub(crate) const NOW: i64 = 20_000;

pub(crate) const fn done(from: StepState, to: StepState) -> Steered {
    Steered::Done { from, to }
}

/// Puts a step in and brings it to a state.
pub(crate) fn in_state(world: &World, state: StepState) -> StepId {
    let asked = match state {
        StepState::Delayed => NewStep {
            due: Due::At(after(90_000)),
            ..step("a")
        },
        StepState::Held => NewStep {
            due: Due::Held,
            ..step("a")
        },
        StepState::Blocked => {
            let parent = world.put_one(step("parent"));
            following(step("a"), parent, Need::Success)
        }
        StepState::Limited => NewStep {
            policy: Policy {
                limits: BTreeMap::from([("gpu".parse().unwrap(), 1)]),
                ..Policy::default()
            },
            ..step("a")
        },
        StepState::Running
        | StepState::Ready
        | StepState::Succeeded
        | StepState::Failed
        | StepState::Cancelled => step("a"),
    };
    let id = world.put_one(asked);
    match state {
        StepState::Running => drop(world.take(id)),
        StepState::Succeeded => drop(world.run(id, success)),
        StepState::Failed => drop(world.run(id, failure)),
        StepState::Cancelled => _ = world.steer(id, &Action::Cancel, after(1)),
        StepState::Delayed
        | StepState::Held
        | StepState::Blocked
        | StepState::Limited
        | StepState::Ready => {}
    }
    assert_eq!(world.state(id), state);
    id
}

pub(crate) fn each_action_is_for_some_states_only(open: Open) {
    let world = World::new(open, 1);
    let rename = Edit {
        name: Some(Some("new".to_owned())),
        ..Edit::default()
    };
    let actions = [
        Action::Cancel,
        Action::Hold,
        Action::Release,
        Action::Retry,
        Action::from(rename),
    ];
    for from in StepState::ALL {
        let may = |states: &[StepState], to| states.contains(&from).then_some(done(from, to));
        let early = [
            StepState::Ready,
            StepState::Delayed,
            StepState::Blocked,
            StepState::Limited,
        ];
        let waits = [&early[..], &[StepState::Held]].concat();
        let asked = Steered::Asked { runner: runner(1) };
        let runs = (from == StepState::Running).then_some(asked);
        let expected = [
            may(&waits, StepState::Cancelled).or(runs),
            may(&early, StepState::Held),
            may(&[StepState::Held], StepState::Ready),
            may(&[StepState::Failed, StepState::Cancelled], StepState::Ready),
            may(&waits, from),
        ];
        for (action, expected) in actions.iter().zip(expected) {
            let id = in_state(&world, from);
            let before = format!("{:?}", world.view(id));
            let steered = world.steer(id, action, after(NOW));
            let refused = Steered::Refused { state: from };
            assert_eq!(steered, expected.unwrap_or(refused), "{action:?} {from}");
            if let Steered::Done { to, .. } = steered {
                assert_eq!(world.state(id), to);
            } else if steered == refused {
                assert_eq!(format!("{:?}", world.view(id)), before);
            }
        }
    }
}

pub(crate) fn each_step_gets_its_own_answer(open: Open) {
    let world = World::new(open, 2);
    let steps: Vec<NewStep> = (0..8).map(|number| step(&number.to_string())).collect();
    let ids = world.put(&steps);
    let unknown = StepId::new(ONLY, LocalId::new(99));
    let nowhere = StepId::new(fairq::model::ShardId::new(9).unwrap(), LocalId::new(1));
    world.take(ids[2]);
    world.run(ids[5], success);
    let asked = [ids[5], ids[7], unknown, ids[0], nowhere, ids[2]];
    let steered = world.store.steer(&asked, &Action::Cancel, after(NOW));
    let cancelled = done(StepState::Ready, StepState::Cancelled);
    let expected = [
        Steered::Refused {
            state: StepState::Succeeded,
        },
        cancelled,
        Steered::Missing,
        cancelled,
        Steered::Missing,
        Steered::Asked { runner: runner(1) },
    ];
    assert_eq!(steered.unwrap(), expected);
    let none = world.store.steer(&[], &Action::Cancel, after(NOW));
    assert_eq!(none.unwrap(), []);
    let ready = Filter {
        states: vec![StepState::Ready],
        ..Filter::default()
    };
    assert_eq!(world.store.find(&ready).unwrap().len(), 4);
}

pub(crate) fn what_is_cancelled_before_it_runs_never_runs(open: Open) {
    let world = World::new(open, 1);
    let id = world.put_one(step("a"));
    let candidate = world.candidate(id);
    world.steer(id, &Action::Cancel, after(NOW));
    let view = world.view(id);
    assert_eq!((view.state, view.at), (StepState::Cancelled, after(NOW)));
    assert_eq!((view.ending, view.started), (Some(Ending::Cancelled), None));
    assert_eq!((view.attempt, view.fence), (0, 0));
    assert_eq!(world.store.attempts(id).unwrap(), []);
    assert_eq!(world.due("a"), []);
    let lease = super::lease(1);
    let claims = world.store.claim(ONLY, &[candidate], lease, after(NOW));
    assert!(claims.unwrap()[0].is_none());
    // One that has run before keeps what is known of that.
    let id = world.put_one(step("a"));
    let retry = Verdict::Retry { at: after(9_000) };
    world.settle(over(&world.take(id), Ending::Exited { code: 1 }, retry));
    world.steer(id, &Action::Cancel, after(NOW));
    let view = world.view(id);
    assert_eq!((view.ending, view.started), (Some(Ending::Cancelled), None));
    assert_eq!((view.attempt, view.fence), (1, 1));
    assert_eq!(world.store.attempts(id).unwrap().len(), 1);
}

pub(crate) fn a_runner_sees_whose_end_was_asked_for(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&vec![step("a"); 4]);
    for (id, by) in ids.iter().zip([1, 1, 2, 1]) {
        world.claim(*id, by, after(10)).unwrap();
    }
    let wishes = |by| {
        let mut wishes = world.store.wishes(ONLY, runner(by)).unwrap();
        wishes.sort();
        wishes
    };
    assert_eq!(wishes(1), []);
    assert!(!world.view(ids[1]).cancelling);
    let version = world.store.version(ONLY).unwrap();
    for wished in [1, 1, 2, 3] {
        let runner = world.view(ids[wished]).runner.unwrap();
        let steered = world.steer(ids[wished], &Action::Cancel, after(NOW));
        assert_eq!(steered, Steered::Asked { runner });
    }
    assert_ne!(world.store.version(ONLY).unwrap(), version);
    assert_eq!(wishes(1), [(ids[1].local, 1), (ids[3].local, 1)]);
    assert_eq!(wishes(2), [(ids[2].local, 1)]);
    assert_eq!(wishes(3), []);
    let view = world.view(ids[1]);
    assert_eq!((view.state, view.cancelling), (StepState::Running, true));
    assert!(!world.view(ids[0]).cancelling);
    world.store.reclaim(ONLY, runner(1), after(NOW)).unwrap();
    assert_eq!(wishes(1), []);
}

pub(crate) fn a_wish_to_end_beats_every_verdict(open: Open) {
    let world = World::new(open, 1);
    let retry = |claim: &Claim| {
        let at = after(50_000);
        over(claim, Ending::Exited { code: 9 }, Verdict::Retry { at })
    };
    let verdicts: [fn(&Claim) -> Settlement; 4] = [success, failure, give_back, retry];
    for verdict in verdicts {
        let ids = world.put(&[
            step("a"),
            waiting(step("b"), &[0], Need::End),
            waiting(step("b"), &[0], Need::Success),
        ]);
        let claim = world.take(ids[0]);
        world.steer(ids[0], &Action::Cancel, after(1_005));
        let settlement = verdict(&claim);
        let ending = settlement.finished.ending.clone();
        let news = world.record(settlement);
        let released = vec![world.released(ids[1])];
        assert_eq!(
            (news.state, news.released),
            (StepState::Cancelled, released)
        );
        let view = world.view(ids[0]);
        assert_eq!(
            (view.state, view.ending),
            (StepState::Cancelled, Some(ending))
        );
        assert!(!view.cancelling && view.started.is_some());
        assert_eq!(view.attempt, 1);
        assert_eq!(world.store.attempts(ids[0]).unwrap().len(), 1);
        assert_eq!(world.state(ids[1]), StepState::Ready);
        assert_eq!(world.state(ids[2]), StepState::Cancelled);
    }
    for on_lost in [OnLost::Retry, OnLost::Fail, OnLost::Hold] {
        let id = world.put_one(lost_step(on_lost));
        world.take(id);
        world.steer(id, &Action::Cancel, after(1_005));
        let lost = world.store.reclaim(ONLY, runner(1), after(NOW)).unwrap();
        assert_eq!(lost[0].state, StepState::Cancelled);
        let view = world.view(id);
        assert_eq!((view.state, view.at), (StepState::Cancelled, after(NOW)));
        assert_eq!(view.ending, Some(Ending::Lost));
    }
}

pub(crate) fn a_wish_ends_with_the_try_that_it_was_for(open: Open) {
    let world = World::new(open, 1);
    let id = world.put_one(step("a"));
    let claim = world.take(id);
    world.steer(id, &Action::Cancel, after(1_005));
    world.settle(success(&claim));
    let steered = world.steer(id, &Action::Retry, after(NOW));
    assert_eq!(steered, done(StepState::Cancelled, StepState::Ready));
    let again = world.claim(id, 1, after(NOW + 1)).unwrap();
    assert_eq!(world.store.wishes(ONLY, runner(1)).unwrap(), []);
    assert!(!world.view(id).cancelling);
    assert_eq!(
        world.settle(success(&again)),
        recorded(StepState::Succeeded)
    );
}

pub(crate) fn what_is_held_keeps_its_time(open: Open) {
    let world = World::new(open, 1);
    let timed = NewStep {
        due: Due::At(after(9_000)),
        ..step("a")
    };
    let ids = world.put(&[timed.clone(), timed, step("a")]);
    let retry = Verdict::Retry { at: after(9_000) };
    world.settle(over(&world.take(ids[2]), Ending::Exited { code: 1 }, retry));
    for id in &ids {
        let steered = world.steer(*id, &Action::Hold, after(2_000));
        assert_eq!(steered, done(StepState::Delayed, StepState::Held));
        assert_eq!(world.view(*id).at, START);
    }
    assert_eq!(world.store.promote(ONLY, after(9_500)).unwrap(), None);
    assert_eq!(world.due("a"), []);
    for id in [ids[0], ids[2]] {
        let steered = world.steer(id, &Action::Release, after(8_999));
        assert_eq!(steered, done(StepState::Held, StepState::Delayed));
        assert_eq!(world.view(id).at, after(9_000));
    }
    assert_eq!(world.view(ids[2]).attempt, 1);
    let steered = world.steer(ids[1], &Action::Release, after(9_500));
    assert_eq!(steered, done(StepState::Held, StepState::Ready));
    assert_eq!(world.view(ids[1]).at, after(9_500));
}

pub(crate) fn a_due_step_that_is_held_is_nowhere_to_be_seen(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&[step("a"), step("a")]);
    world.steer(ids[0], &Action::Hold, after(1));
    assert_eq!(world.due("a"), [ids[1].local]);
    assert_eq!(world.store.tally(ONLY).unwrap().keys()[0].count, 1);
    assert!(world.claim(ids[0], 1, after(2)).is_none());
    world.steer(ids[0], &Action::Release, after(3));
    assert_eq!(world.due("a"), [ids[0].local, ids[1].local]);
    assert_eq!(world.view(ids[0]).at, after(3));
}

pub(crate) fn a_step_that_is_tried_again_counts_its_tries_anew(open: Open) {
    let world = World::new(open, 1);
    let id = world.put_one(step("a"));
    let retry = Verdict::Retry { at: after(2_000) };
    world.settle(over(&world.take(id), Ending::Exited { code: 1 }, retry));
    world.store.promote(ONLY, after(2_000)).unwrap();
    let second = world.claim(id, 1, after(2_001)).unwrap();
    world.settle(failure(&second));
    assert_eq!(world.view(id).attempt, 2);
    let steered = world.steer(id, &Action::Retry, after(NOW));
    assert_eq!(steered, done(StepState::Failed, StepState::Ready));
    let view = world.view(id);
    assert_eq!((view.at, view.attempt, view.fence), (after(NOW), 0, 2));
    assert_eq!((view.ending, view.started), (None, None));
    let fences = || -> Vec<u32> {
        let tries = world.store.attempts(id).unwrap();
        tries.into_iter().map(|one| one.fence).collect()
    };
    assert_eq!(fences(), [1, 2]);
    let third = world.claim(id, 1, after(NOW + 1)).unwrap();
    assert_eq!((third.attempt, third.fence), (1, 3));
    world.settle(success(&third));
    assert_eq!(fences(), [1, 2, 3]);
    let counts = world.store.counts(ONLY).unwrap();
    let failed = counts.states.get(&StepState::Failed).copied();
    assert_eq!(failed.unwrap_or(0), 0);
    assert_eq!(counts.states[&StepState::Succeeded], 1);
}

pub(crate) fn who_is_tried_again_waits_for_its_parents_as_they_stand_now(open: Open) {
    let world = World::new(open, 1);
    let chain = || {
        let ids = world.put(&[
            step("a"),
            waiting(step("a"), &[0], Need::Success),
            waiting(step("a"), &[1], Need::Success),
        ]);
        world.run(ids[0], failure);
        assert_eq!(world.state(ids[2]), StepState::Cancelled);
        ids
    };
    let ids = chain();
    let refused = Steered::Refused {
        state: StepState::Cancelled,
    };
    for id in &ids[1..] {
        assert_eq!(world.steer(*id, &Action::Retry, after(NOW)), refused);
    }
    world.steer(ids[0], &Action::Retry, after(NOW));
    assert_eq!(world.state(ids[1]), StepState::Cancelled);
    let blocked = done(StepState::Cancelled, StepState::Blocked);
    assert_eq!(world.steer(ids[1], &Action::Retry, after(NOW)), blocked);
    let claim = world.claim(ids[0], 1, after(NOW + 1)).unwrap();
    world.settle(success(&claim));
    assert_eq!(world.state(ids[1]), StepState::Ready);
    // Named together they go together, in whatever order.
    let ids = chain();
    let backwards: Vec<StepId> = ids.iter().rev().copied().collect();
    let steered = world.store.steer(&backwards, &Action::Retry, after(NOW));
    let ready = done(StepState::Failed, StepState::Ready);
    assert_eq!(steered.unwrap(), [blocked, blocked, ready]);
    // One whose needs are met by now is due.
    world.steer(ids[1], &Action::Cancel, after(NOW + 1));
    let claim = world.claim(ids[0], 1, after(NOW + 2)).unwrap();
    world.settle(success(&claim));
    let steered = world.steer(ids[1], &Action::Retry, after(NOW + 3));
    assert_eq!(steered, done(StepState::Cancelled, StepState::Ready));
}

pub(crate) fn an_end_that_is_taken_back_is_not_told(open: Open) {
    let world = World::new(open, 2);
    let mut keys = world.shards().map(|shard| world.key_on(shard));
    let (here, there) = (keys.next().unwrap(), keys.next().unwrap());
    let ids = world.put(&[step(&here), waiting(step(&there), &[0], Need::Success)]);
    world.run(ids[0], failure);
    world.steer(ids[0], &Action::Retry, after(NOW));
    let told = world.store.deliver(ids[0].shard, after(NOW + 1)).unwrap();
    assert_eq!(told, []);
    assert_eq!(world.store.mend(after(NOW + 1)).unwrap(), []);
    assert_eq!(world.state(ids[1]), StepState::Blocked);
    let claim = world.claim(ids[0], 1, after(NOW + 2)).unwrap();
    world.settle(success(&claim));
    let told = world.store.deliver(ids[0].shard, after(NOW + 3)).unwrap();
    assert_eq!(told, [world.released(ids[1])]);
}
