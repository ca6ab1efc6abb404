//! What the store promises of unique keys.

use fairq::model::{Need, NewStep, Scope, StepId, StepState, Unique};
use fairq::store::{Action, Filter, Put};

use super::{Open, START, World, after, failure, step, success, waiting};

const SCOPES: [Scope; 3] = [Scope::Queued, Scope::Active, Scope::Kept];

fn unique(of: &str, key: &str, scope: Scope) -> NewStep {
    NewStep {
        unique: Some(Unique {
            key: key.to_owned(),
            scope,
        }),
        ..step(of)
    }
}

/// Brings a due step to a state.
type Bring = fn(&World, StepId);

fn put(world: &World, step: NewStep) -> Put {
    world.store.put(&[step], START).unwrap()[0]
}

pub(crate) fn a_scope_says_which_steps_count(open: Open) {
    let world = World::new(open, 1);
    let brings: [(StepState, Bring); 6] = [
        (StepState::Ready, |_, _| ()),
        (StepState::Held, |world, id| {
            world.steer(id, &Action::Hold, after(1));
        }),
        (StepState::Running, |world, id| drop(world.take(id))),
        (StepState::Succeeded, |world, id| {
            drop(world.run(id, success));
        }),
        (StepState::Failed, |world, id| drop(world.run(id, failure))),
        (StepState::Cancelled, |world, id| {
            world.steer(id, &Action::Cancel, after(1));
        }),
    ];
    for (state, bring) in brings {
        for scope in SCOPES {
            let key = format!("{state} {scope:?}");
            // The scope of the first one is of no account.
            let first = put(&world, unique("a", &key, Scope::Kept)).id();
            bring(&world, first);
            assert_eq!(world.state(first), state);
            let second = put(&world, unique("a", &key, scope));
            if scope.covers(state) {
                assert_eq!(second, Put::Met(first), "{key}");
            } else {
                assert!(matches!(second, Put::New(id) if id != first), "{key}");
            }
            assert_eq!(world.state(first), state);
        }
    }
}

pub(crate) fn the_latest_step_stands_for_its_key(open: Open) {
    let world = World::new(open, 1);
    let first = put(&world, unique("a", "k", Scope::Queued)).id();
    world.take(first);
    let second = put(&world, unique("a", "k", Scope::Queued)).id();
    assert_ne!(second, first);
    let third = put(&world, unique("a", "k", Scope::Kept));
    assert_eq!(third, Put::Met(second));
    let other = put(&world, unique("a", "K", Scope::Kept));
    assert!(matches!(other, Put::New(_)));
}

pub(crate) fn a_unique_key_is_one_over_all_shards(open: Open) {
    let world = World::new(open, 3);
    let keys: Vec<String> = world.shards().map(|shard| world.key_on(shard)).collect();
    for number in 0..10 {
        let key = format!("u{number}");
        let first = put(&world, unique(&keys[number % 3], &key, Scope::Active));
        for of in &keys {
            let again = put(&world, unique(of, &key, Scope::Active));
            assert_eq!(again, Put::Met(first.id()));
        }
    }
    let all = world.store.find(&Filter::default()).unwrap();
    assert_eq!(all.len(), 10);
}

pub(crate) fn the_second_of_a_batch_is_needless(open: Open) {
    let world = World::new(open, 1);
    let steps = [
        unique("a", "k", Scope::Queued),
        step("a"),
        unique("a", "k", Scope::Active),
        waiting(step("b"), &[2], Need::Success),
        waiting(unique("a", "k", Scope::Active), &[3], Need::Success),
    ];
    let puts = world.store.put(&steps, START).unwrap();
    let ids: Vec<StepId> = puts.iter().map(|put| put.id()).collect();
    let met = Put::Met(ids[0]);
    assert_eq!(puts[..2], [Put::New(ids[0]), Put::New(ids[1])]);
    assert_eq!((puts[2], puts[4]), (met, met));
    assert_eq!(world.store.parents(ids[3]).unwrap()[0].parent, ids[0]);
    assert_eq!(world.store.find(&Filter::default()).unwrap().len(), 3);
    world.run(ids[0], success);
    assert_eq!(world.state(ids[3]), StepState::Ready);
    // A stored one is a parent like another, ended or not.
    let kept = [
        unique("a", "k", Scope::Kept),
        waiting(step("b"), &[0], Need::Success),
    ];
    let puts = world.store.put(&kept, START).unwrap();
    assert_eq!(puts[0], met);
    assert_eq!(world.state(puts[1].id()), StepState::Ready);
    let ids = world.put(&kept);
    assert_eq!(ids[0], met.id());
}

pub(crate) fn a_circle_through_a_needless_step_is_one(open: Open) {
    let world = World::new(open, 1);
    let steps = [
        waiting(unique("a", "k", Scope::Active), &[1], Need::End),
        waiting(step("a"), &[2], Need::End),
        unique("a", "k", Scope::Active),
    ];
    let error = world.store.put(&steps, START).unwrap_err();
    assert!(error.to_string().ends_with(" 1 → 2 → 1"), "{error}");
    assert!(world.store.find(&Filter::default()).unwrap().is_empty());
    // Nothing stands for a key that was refused.
    assert!(matches!(
        put(&world, unique("a", "k", Scope::Kept)),
        Put::New(_)
    ));
}
