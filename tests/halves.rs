//! What a process leaves that dies between two shards, and that the next one sets it right.
//!
//! A write on one shard is whole or not at all; one that needs two shards can be cut in half. Each
//! test makes such a half by hand, as the database would show it after a crash.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail the test that called them"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;

use fairq::ambient::{Clock, SystemClock};
use fairq::model::{
    Band, Candidate, Captured, Claim, Command, Dependency, Due, Ending, Environment, FairnessKey,
    Finished, LimitName, Need, NewStep, Parent, Policy, Recorded, RunnerId, Settled, Settlement,
    ShardId, StepId, StepState, Timestamp, Turn, Verdict, Weight,
};
use fairq::store::placement::Placement;
use fairq::store::sqlite::{Durability, Mode, NewStore, SqliteStore};
use fairq::store::{
    Claims as _, Intake as _, Lease, Pause, Read as _, Release as _, Settle as _, Steer as _,
    Supply as _,
};

const NOW: Timestamp = Timestamp::from_millis(1_000);

struct World {
    store: SqliteStore,
    root: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let store = open(root.path());
        Self { store, root }
    }

    /// Goes on as another process would, which knows only what is on disk.
    fn restart(self) -> Self {
        drop(self.store);
        let store = open(self.root.path());
        Self {
            store,
            root: self.root,
        }
    }

    fn sql(&self, shard: ShardId, sql: &str) -> usize {
        let connection = rusqlite::Connection::open(self.store.file(shard).unwrap()).unwrap();
        connection.execute(sql, []).unwrap()
    }

    fn number(&self, shard: ShardId, sql: &str) -> i64 {
        let connection = rusqlite::Connection::open(self.store.file(shard).unwrap()).unwrap();
        connection.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    fn state(&self, id: StepId) -> StepState {
        self.store.get(id).unwrap().unwrap().state
    }

    /// Returns a key whose steps live on another shard than those of `other`.
    fn key_elsewhere(&self, other: &FairnessKey) -> FairnessKey {
        (0..100)
            .map(|number| format!("k{number}").parse::<FairnessKey>().unwrap())
            .find(|key| self.store.place(key) != self.store.place(other))
            .unwrap()
    }

    fn claim(&self, id: StepId) -> Option<Claim> {
        let step = self.store.get(id).unwrap().unwrap();
        let candidate = Candidate {
            id,
            band: step.band,
            key: step.key,
            turn: Turn::default(),
        };
        let lease = Lease {
            runner: RunnerId::new(1),
            until: Timestamp::from_millis(i64::MAX),
        };
        let claims = self
            .store
            .claim(id.shard, &[candidate], lease, NOW)
            .unwrap();
        claims.into_iter().next().flatten()
    }

    fn succeed(&self, id: StepId) -> Recorded {
        let claim = self.claim(id).unwrap();
        let settlement = Settlement {
            finished: Finished {
                id,
                runner: claim.runner,
                fence: claim.fence,
                attempt: claim.attempt,
                ending: Ending::Exited { code: 0 },
                started: Some(NOW),
                ended: NOW,
                worker: 0,
                stdout: Captured::Empty,
                stderr: Captured::Empty,
            },
            verdict: Verdict::Succeeded,
        };
        let (told, answers) = channel();
        let after = Box::new(move |answer| drop(told.send(answer)));
        self.store.settle(id.shard, Arc::new([settlement]), after);
        match answers.recv().unwrap().unwrap().remove(0) {
            Settled::Recorded(recorded) => recorded,
            Settled::Fenced => panic!("the claim was ours"),
        }
    }
}

fn open(root: &Path) -> SqliteStore {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let new = NewStore {
        shards: 4,
        placement: Placement::Key,
    };
    SqliteStore::open_or_create(root, new, Mode::Visit, Durability::Normal, &clock).unwrap()
}

fn step(key: &FairnessKey) -> NewStep {
    NewStep {
        command: Command::Shell("true".into()),
        cwd: "/".into(),
        env: Arc::new(Environment::default()),
        band: Band::DEFAULT,
        key: key.clone(),
        weight: Weight::ONE,
        name: None,
        tags: Vec::new(),
        flow: None,
        due: Due::Now,
        after: Vec::new(),
        unique: None,
        policy: Policy::default(),
    }
}

fn after(key: &FairnessKey, parent: Parent) -> NewStep {
    NewStep {
        after: vec![Dependency {
            parent,
            need: Need::Success,
        }],
        ..step(key)
    }
}

fn limited(key: &FairnessKey) -> NewStep {
    let name: LimitName = "one".parse().unwrap();
    NewStep {
        policy: Policy {
            limits: BTreeMap::from([(name, 1)]),
            ..Policy::default()
        },
        ..step(key)
    }
}

/// Makes a parent and a child of it on two shards.
fn family(world: &World) -> (StepId, StepId) {
    let near: FairnessKey = "near".parse().unwrap();
    let far = world.key_elsewhere(&near);
    let ids = world
        .store
        .enqueue(&[step(&near), after(&far, Parent::InBatch(0))], NOW)
        .unwrap();
    assert_ne!(ids[0].shard, ids[1].shard);
    assert_eq!(world.state(ids[1]), StepState::Blocked);
    (ids[0], ids[1])
}

#[test]
fn a_child_that_was_not_told_yet_is_told_by_the_next_process() {
    let world = World::new();
    let (parent, child) = family(&world);
    let recorded = world.succeed(parent);
    assert!(recorded.tell && recorded.released.is_empty());
    assert_eq!(world.state(child), StepState::Blocked);
    let world = world.restart();
    let released = world.store.deliver(parent.shard, NOW).unwrap();
    assert_eq!(released.len(), 1);
    assert_eq!(released[0].id, child);
    assert_eq!(world.state(child), StepState::Ready);
}

#[test]
fn a_child_that_is_told_twice_takes_no_harm() {
    let world = World::new();
    let (parent, child) = family(&world);
    world.succeed(parent);
    let again = "INSERT INTO outbox(shard, child, parent, state) SELECT shard, child, parent, state FROM outbox";
    assert_eq!(world.sql(parent.shard, again), 1);
    assert_eq!(world.store.deliver(parent.shard, NOW).unwrap().len(), 1);
    world.succeed(child);
    // As if the process had died after it told and before it noted that.
    let sql = format!(
        "INSERT INTO outbox(shard, child, parent, state) VALUES ({}, {}, {}, 1)",
        child.shard.number(),
        child.local.get(),
        parent.local.get()
    );
    world.sql(parent.shard, &sql);
    assert!(world.store.deliver(parent.shard, NOW).unwrap().is_empty());
    assert_eq!(world.state(child), StepState::Succeeded);
    assert_eq!(world.number(parent.shard, "SELECT count(*) FROM outbox"), 0);
}

#[test]
fn a_child_whose_parent_does_not_know_it_is_found() {
    let world = World::new();
    let (parent, child) = family(&world);
    assert_eq!(world.sql(parent.shard, "DELETE FROM children"), 1);
    let world = world.restart();
    assert!(world.store.mend(NOW).unwrap().is_empty());
    assert_eq!(world.store.dependents(parent).unwrap(), [child]);
    world.succeed(parent);
    world.store.deliver(parent.shard, NOW).unwrap();
    assert_eq!(world.state(child), StepState::Ready);
}

#[test]
fn a_child_whose_parent_ended_without_knowing_it_is_released() {
    let world = World::new();
    let (parent, child) = family(&world);
    world.sql(parent.shard, "DELETE FROM children");
    assert!(!world.succeed(parent).tell);
    let released = world.store.mend(NOW).unwrap();
    assert_eq!(released.len(), 1);
    assert_eq!(world.state(child), StepState::Ready);
    assert!(world.store.mend(NOW).unwrap().is_empty());
}

#[test]
fn a_child_whose_parent_was_never_stored_does_not_wait_for_ever() {
    let world = World::new();
    let (parent, child) = family(&world);
    for table in ["children", "ready", "tally", "steps"] {
        world.sql(parent.shard, &format!("DELETE FROM {table}"));
    }
    world.store.mend(NOW).unwrap();
    let step = world.store.get(child).unwrap().unwrap();
    assert_eq!(step.state, StepState::Cancelled);
    assert!(
        matches!(step.ending, Some(Ending::Skipped { .. })),
        "{step:?}"
    );
}

#[test]
fn a_step_that_has_its_places_and_still_waits_is_made_due_once() {
    let world = World::new();
    let key: FairnessKey = "far".parse().unwrap();
    let ids = world
        .store
        .enqueue(&[limited(&key), limited(&key)], NOW)
        .unwrap();
    let home = ShardId::new(0).unwrap();
    let sql = format!(
        "INSERT INTO places(id, name, shard, step, n) VALUES (77, 'one', {}, {}, 1)",
        ids[0].shard.number(),
        ids[0].local.get()
    );
    world.sql(home, &sql);
    let world = world.restart();
    let released = world.store.grant(NOW).unwrap();
    assert_eq!(released.len(), 1);
    assert_eq!(world.state(ids[0]), StepState::Ready);
    assert_eq!(world.state(ids[1]), StepState::Limited);
    assert_eq!(world.number(home, "SELECT count(*) FROM places"), 1);
}

#[test]
fn places_of_a_step_that_is_over_are_taken_back() {
    let world = World::new();
    let key: FairnessKey = "far".parse().unwrap();
    let ids = world
        .store
        .enqueue(&[limited(&key), limited(&key)], NOW)
        .unwrap();
    world.store.grant(NOW).unwrap();
    // The runner dies after it has recorded the end and before it has given the place on.
    assert!(world.succeed(ids[0]).tell);
    let world = world.restart();
    assert_eq!(world.store.grant(NOW).unwrap()[0].id, ids[1]);
    assert_eq!(world.state(ids[1]), StepState::Ready);
}

#[test]
fn a_pause_that_is_on_some_shards_only_is_completed_by_the_same_command() {
    let world = World::new();
    let near: FairnessKey = "near".parse().unwrap();
    let far = world.key_elsewhere(&near);
    let ids = world
        .store
        .enqueue(&[step(&near), step(&far)], NOW)
        .unwrap();
    let all = Pause::default();
    world.store.pause(&all, NOW).unwrap();
    // As if the other shard had not been reached.
    world.sql(ids[1].shard, "DELETE FROM pauses");
    world.sql(ids[1].shard, "UPDATE tally SET paused = 0");
    assert!(world.store.tally(ids[1].shard).unwrap().band().is_some());
    assert_eq!(world.store.pauses().unwrap().len(), 1);
    world.store.pause(&all, NOW).unwrap();
    assert!(world.store.tally(ids[1].shard).unwrap().band().is_none());
    assert!(world.claim(ids[1]).is_none());
    assert!(world.store.resume(&all).unwrap());
    assert!(world.claim(ids[0]).is_some() && world.claim(ids[1]).is_some());
}

/// Whoever is told of an outcome may be the last who knows the store, and is told by its writer.
#[test]
fn a_store_may_be_closed_by_its_own_writer() {
    let root = tempfile::tempdir().unwrap();
    drop(open(root.path()));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let served = SqliteStore::open(root.path(), Mode::Serve, Durability::Normal, &clock);
    let store = Arc::new(served.unwrap().unwrap());
    let (alone, is_alone) = channel::<()>();
    let (closed, is_closed) = channel();
    let last = Arc::clone(&store);
    let after = Box::new(move |_| {
        is_alone.recv().unwrap();
        drop(last);
        closed.send(()).unwrap();
    });
    store.settle(ShardId::new(0).unwrap(), Arc::new([]), after);
    drop(store);
    alone.send(()).unwrap();
    is_closed
        .recv()
        .expect("the store was closed without a panic");
}
