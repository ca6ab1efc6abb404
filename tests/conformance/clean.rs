//! What the store promises of forgetting what is over.

use std::path::PathBuf;

use fairq::model::{
    Captured, LocalId, Need, NewStep, Scope, ShardId, StepId, StepState, Stream, Timestamp, Unique,
};
use fairq::store::{Action, Filter, Put, Retention, Steered};

use super::{ONLY, Open, START, World, after, failure, following, step, success, waiting};

const FINAL: [StepState; 3] = [
    StepState::Succeeded,
    StepState::Failed,
    StepState::Cancelled,
];

fn before(ended_before: Timestamp) -> Retention {
    Retention {
        ended_before,
        states: FINAL.to_vec(),
        only: None,
        most: Retention::PORTION,
        tidy: true,
    }
}

/// Cleans until nothing is left, and returns how many steps and which files that were.
fn clean(world: &World, shard: ShardId, retention: &Retention) -> (u64, Vec<PathBuf>) {
    let (mut steps, mut files) = (0, Vec::new());
    loop {
        let cleaned = world.store.clean(shard, retention).unwrap();
        steps += cleaned.steps;
        files.extend(cleaned.files);
        if cleaned.done {
            files.sort();
            return (steps, files);
        }
        assert!(cleaned.steps > 0, "it would never end");
    }
}

fn kept(world: &World) -> Vec<StepId> {
    world.store.find(&Filter::default()).unwrap()
}

pub(crate) fn no_more_is_forgotten_in_one_go_than_was_said(open: Open) {
    let world = World::new(open, 1);
    for id in world.put(&vec![step("a"); 7]) {
        let claim = world.claim(id, 1, after(100)).unwrap();
        world.settle(success(&claim));
    }
    let few = Retention {
        most: 3,
        tidy: false,
        ..before(after(99_999))
    };
    let mut portions = Vec::new();
    loop {
        let cleaned = world.store.clean(ONLY, &few).unwrap();
        portions.push(cleaned.steps);
        if cleaned.done {
            break;
        }
    }
    assert_eq!(portions.iter().sum::<u64>(), 7);
    assert!(portions.iter().all(|steps| *steps <= 3), "{portions:?}");
    assert_eq!(kept(&world), []);
}

pub(crate) fn what_is_over_and_old_is_forgotten(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&vec![step("a"); 6]);
    for (index, claimed) in [(0, 100), (1, 200), (2, 300)] {
        let claim = world.claim(ids[index], 1, after(claimed)).unwrap();
        world.settle(success(&claim));
    }
    world.claim(ids[3], 1, after(100)).unwrap();
    world.steer(ids[4], &Action::Hold, after(100));
    // They ended ten later, and what ended at the instant itself is not before it.
    assert_eq!(clean(&world, ONLY, &before(after(110))).0, 0);
    assert_eq!(clean(&world, ONLY, &before(after(211))).0, 2);
    assert_eq!(kept(&world), ids[2..]);
    for id in &ids[..2] {
        assert!(world.store.get(*id).unwrap().is_none());
        assert_eq!(world.store.attempts(*id).unwrap(), []);
    }
    assert_eq!(clean(&world, ONLY, &before(after(99_999))).0, 1);
    assert_eq!(kept(&world), ids[3..]);
    let counts = world.store.counts(ONLY).unwrap();
    let succeeded = counts.states.get(&StepState::Succeeded).copied();
    assert_eq!(succeeded.unwrap_or(0), 0);
}

pub(crate) fn only_what_is_asked_for_is_forgotten(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&vec![step("a"); 4]);
    world.run(ids[0], success);
    world.run(ids[1], failure);
    world.steer(ids[2], &Action::Cancel, after(1));
    world.run(ids[3], failure);
    let mut retention = before(after(99_999));
    retention.states = vec![];
    assert_eq!(clean(&world, ONLY, &retention).0, 0);
    retention.states = vec![StepState::Failed];
    retention.only = Some(vec![ids[0], ids[3]]);
    assert_eq!(clean(&world, ONLY, &retention).0, 1);
    assert_eq!(kept(&world), ids[..3]);
    retention.only = Some(vec![]);
    assert_eq!(clean(&world, ONLY, &retention).0, 0);
    retention.only = None;
    retention.states = vec![StepState::Cancelled, StepState::Succeeded];
    assert_eq!(clean(&world, ONLY, &retention).0, 2);
    assert_eq!(kept(&world), [ids[1]]);
}

pub(crate) fn all_that_is_old_is_forgotten_in_portions(open: Open) {
    const MANY: usize = 2_500;
    let world = World::new(open, 1);
    let ids = world.put(&vec![step("a"); MANY]);
    let steered = world.store.steer(&ids[1..], &Action::Cancel, after(1));
    assert_eq!(steered.unwrap().len(), MANY - 1);
    let retention = before(after(2));
    let first = world.store.clean(ONLY, &retention).unwrap();
    // The oldest go first.
    let left = kept(&world);
    assert_eq!(left[0], ids[0]);
    assert_eq!(left[1..], ids[1 + usize::try_from(first.steps).unwrap()..]);
    let rest = clean(&world, ONLY, &retention).0;
    assert_eq!(first.steps + rest, MANY as u64 - 1);
    assert_eq!(kept(&world), [ids[0]]);
}

pub(crate) fn a_clean_touches_one_shard(open: Open) {
    let world = World::new(open, 2);
    let keys: Vec<String> = world.shards().map(|shard| world.key_on(shard)).collect();
    let steps: Vec<NewStep> = keys.iter().map(|of| step(of)).collect();
    let ids = world.put(&steps);
    for id in &ids {
        world.run(*id, success);
    }
    let retention = Retention {
        only: Some(ids.clone()),
        ..before(after(99_999))
    };
    assert_eq!(clean(&world, ids[0].shard, &retention).0, 1);
    assert_eq!(kept(&world), [ids[1]]);
    let nowhere = ShardId::new(9).unwrap();
    assert!(world.store.clean(nowhere, &retention).is_err());
}

pub(crate) fn a_forgotten_number_is_not_used_again(open: Open) {
    let world = World::new(open, 1);
    let id = world.put_one(step("a"));
    world.run(id, success);
    clean(&world, ONLY, &before(after(99_999)));
    let next = world.put_one(step("a"));
    assert_eq!(next.local, LocalId::new(id.local.get() + 1));
    assert_eq!(world.view(next).created, START);
}

pub(crate) fn the_files_of_what_is_forgotten_are_told(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&vec![step("a"); 2]);
    let file = |name: &str| Captured::File {
        path: name.into(),
        size: 9,
    };
    let mut first = super::give_back(&world.take(ids[0]));
    first.finished.stdout = file("output/first");
    world.settle(first);
    let mut second = failure(&world.take(ids[0]));
    second.finished.stdout = Captured::Inline(b"short".to_vec());
    second.finished.stderr = file("output/second");
    world.settle(second);
    let mut other = success(&world.take(ids[1]));
    other.finished.stdout = file("output/other");
    world.settle(other);
    let retention = Retention {
        states: vec![StepState::Failed],
        ..before(after(99_999))
    };
    let (_, files) = clean(&world, ONLY, &retention);
    assert_eq!(files, ["output/first", "output/second"].map(PathBuf::from));
    let gone = world.store.output(ids[0], 2, Stream::Stdout).unwrap();
    assert!(gone.is_none());
}

pub(crate) fn what_somebody_waits_for_stays(open: Open) {
    let world = World::new(open, 2);
    let keys: Vec<String> = world.shards().map(|shard| world.key_on(shard)).collect();
    let ids = world.put(&[
        step(&keys[0]),
        step(&keys[0]),
        waiting(step(&keys[0]), &[0, 1], Need::End),
        waiting(step(&keys[1]), &[1], Need::End),
    ]);
    world.run(ids[0], success);
    let old = before(after(99_999));
    let from = ids[0].shard;
    assert_eq!(clean(&world, from, &old).0, 0);
    world.run(ids[1], success);
    world.store.deliver(from, after(2_000)).unwrap();
    // Nobody waits any more, but a step that has waited may be asked for what.
    assert_eq!(world.state(ids[3]), StepState::Ready);
    assert_eq!(clean(&world, from, &old).0, 0);
    run_later(&world, ids[2]);
    assert_eq!(
        clean(&world, from, &old).0,
        1 + 1,
        "the first, and the third"
    );
    run_later(&world, ids[3]);
    assert_eq!(clean(&world, from, &old).0, 1);
    assert_eq!(kept(&world), [ids[3]]);
    let links = world.store.parents(ids[3]).unwrap();
    assert_eq!((links[0].met, links[0].state), (true, None));
}

fn run_later(world: &World, id: StepId) {
    let claim = world.claim(id, 1, after(3_000)).unwrap();
    world.settle(success(&claim));
}

pub(crate) fn a_forgotten_dependent_is_no_dependent(open: Open) {
    let world = World::new(open, 1);
    let ids = world.put(&[
        step("a"),
        waiting(step("b"), &[0], Need::Success),
        waiting(step("b"), &[0], Need::Success),
    ]);
    world.steer(ids[1], &Action::Cancel, after(1));
    assert_eq!(clean(&world, ONLY, &before(after(2))).0, 1);
    assert_eq!(world.store.dependents(ids[0]).unwrap(), [ids[2]]);
    assert_eq!(world.run(ids[0], success).released.len(), 1);
    assert_eq!(world.state(ids[2]), StepState::Ready);
}

pub(crate) fn what_was_known_of_a_forgotten_parent_holds(open: Open) {
    let world = World::new(open, 1);
    let parent = world.put_one(step("a"));
    world.run(parent, failure);
    let ids = world.put(&[
        following(step("b"), parent, Need::Failure),
        following(step("b"), parent, Need::Success),
    ]);
    world.steer(ids[0], &Action::Cancel, after(2_000));
    let only = Retention {
        only: Some(vec![parent]),
        ..before(after(99_999))
    };
    assert_eq!(clean(&world, ONLY, &only).0, 1);
    let retry = |id| world.steer(id, &Action::Retry, after(3_000));
    let (from, to) = (StepState::Cancelled, StepState::Ready);
    assert_eq!(retry(ids[0]), Steered::Done { from, to });
    assert_eq!(retry(ids[1]), Steered::Refused { state: from });
}

pub(crate) fn the_unique_key_of_what_is_forgotten_is_free(open: Open) {
    let world = World::new(open, 1);
    let unique = || NewStep {
        unique: Some(Unique {
            key: "k".to_owned(),
            scope: Scope::Kept,
        }),
        ..step("a")
    };
    let put = || world.store.put(&[unique()], START).unwrap()[0];
    let first = put();
    world.run(first.id(), success);
    assert_eq!(put(), Put::Met(first.id()));
    clean(&world, ONLY, &before(after(99_999)));
    assert!(matches!(put(), Put::New(id) if id != first.id()));
}
