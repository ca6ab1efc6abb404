//! What the store promises of steps that are not to be started any more.

use std::collections::BTreeMap;

use fairq::model::{Due, Ending, Need, NewStep, Policy, StepId, StepState};
use fairq::store::{Action, Steered};

use super::{ONLY, Open, World, after, failure, give_back, step, waiting};

/// Returns the step, not to be started from that instant on.
pub(crate) fn expiring(step: NewStep, millis: i64) -> NewStep {
    NewStep {
        policy: Policy {
            expire: Some(after(millis)),
            ..step.policy
        },
        ..step
    }
}

/// One step in each state in which it may wait, and what they wait for.
fn waiting_steps(millis: i64) -> Vec<NewStep> {
    let due = |due| NewStep { due, ..step("a") };
    let limited = NewStep {
        policy: Policy {
            limits: BTreeMap::from([("x".parse().unwrap(), 1)]),
            ..Policy::default()
        },
        ..step("a")
    };
    let mut steps = vec![
        step("a"),
        due(Due::At(after(900_000))),
        due(Due::Held),
        waiting(step("a"), &[5], Need::Success),
        limited,
    ];
    steps = steps
        .into_iter()
        .map(|step| expiring(step, millis))
        .collect();
    steps.push(step("parent"));
    steps
}

pub(crate) fn what_has_not_started_by_then_fails(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&waiting_steps(5_000));
    let states = || -> Vec<StepState> { ids.iter().map(|id| world.state(*id)).collect() };
    let before = states();
    assert_eq!(before.len(), 6);
    let next = world.store.promote(ONLY, after(4_999)).unwrap();
    assert_eq!(next, Some(after(5_000)));
    assert_eq!(states(), before);
    let next = world.store.promote(ONLY, after(5_200)).unwrap();
    assert_eq!(next, None, "the delayed one is over, too");
    for id in &ids[..5] {
        let view = world.view(*id);
        assert_eq!((view.state, view.at), (StepState::Failed, after(5_200)));
        assert_eq!((view.ending, view.started), (Some(Ending::Expired), None));
        assert_eq!((view.attempt, view.fence, view.runner), (0, 0, None));
        assert_eq!(world.store.attempts(*id).unwrap(), []);
    }
    assert_eq!(world.state(ids[5]), StepState::Ready);
    assert_eq!(world.due("a"), []);
    let counts = world.store.counts(ONLY).unwrap();
    assert_eq!(counts.states[&StepState::Failed], 5);
    assert_eq!(counts.next_due, None);
}

pub(crate) fn what_is_late_is_not_claimed(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&[expiring(step("a"), 5_000), expiring(step("a"), 5_000)]);
    assert!(world.claim(ids[0], 1, after(4_999)).is_some());
    assert!(world.claim(ids[1], 1, after(5_000)).is_none());
    assert_eq!(world.state(ids[1]), StepState::Ready);
}

pub(crate) fn what_has_started_once_does_not_expire(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&[expiring(step("a"), 5_000), expiring(step("a"), 5_000)]);
    let running = world.take(ids[0]);
    world.run(ids[1], give_back);
    assert_eq!(world.store.promote(ONLY, after(6_000)).unwrap(), None);
    assert_eq!(world.state(ids[0]), StepState::Running);
    assert_eq!(world.state(ids[1]), StepState::Ready);
    assert!(world.claim(ids[1], 1, after(6_001)).is_some());
    world.settle(give_back(&running));
    world.store.promote(ONLY, after(7_000)).unwrap();
    assert_eq!(world.state(ids[0]), StepState::Ready);
}

pub(crate) fn the_dependents_of_what_expires_follow(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&[
        expiring(step("a"), 5_000),
        waiting(step("b"), &[0], Need::Success),
        waiting(step("b"), &[0], Need::Failure),
    ]);
    world.store.promote(ONLY, after(5_000)).unwrap();
    assert_eq!(world.state(ids[1]), StepState::Cancelled);
    let view = world.view(ids[2]);
    assert_eq!((view.state, view.at), (StepState::Ready, after(5_000)));
}

pub(crate) fn what_expired_can_be_tried_again(open: Open) {
    let world = World::new(open, 1);
    let ids: [StepId; 2] = [
        world.put_one(expiring(step("a"), 5_000)),
        world.put_one(expiring(step("a"), 9_000)),
    ];
    world.store.promote(ONLY, after(5_000)).unwrap();
    world.run(ids[1], failure);
    for id in ids {
        let ready = Steered::Done {
            from: StepState::Failed,
            to: StepState::Ready,
        };
        assert_eq!(world.steer(id, &Action::Retry, after(6_000)), ready);
    }
    assert_eq!(world.view(ids[0]).policy.expire, None);
    assert_eq!(world.view(ids[1]).policy.expire, Some(after(9_000)));
    assert_eq!(world.store.promote(ONLY, after(6_001)).unwrap(), None);
    assert!(world.claim(ids[0], 1, after(6_002)).is_some());
}

pub(crate) fn an_edited_deadline_counts(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&[expiring(step("a"), 5_000), step("a")]);
    let change = |expire| {
        Action::from(fairq::store::Edit {
            policy: Some(Policy {
                expire,
                ..Policy::default()
            }),
            ..fairq::store::Edit::default()
        })
    };
    world.steer(ids[0], &change(None), after(1));
    world.steer(ids[1], &change(Some(after(7_000))), after(1));
    let next = world.store.promote(ONLY, after(6_000)).unwrap();
    assert_eq!(next, Some(after(7_000)));
    assert_eq!(world.state(ids[0]), StepState::Ready);
    world.store.promote(ONLY, after(7_000)).unwrap();
    assert_eq!(world.state(ids[1]), StepState::Failed);
    assert_eq!(world.due("a"), [ids[0].local]);
}
