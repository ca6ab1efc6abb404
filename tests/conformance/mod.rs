//! The promises, and the small world in which each is asked for.

pub(crate) mod claims;
pub(crate) mod clean;
pub(crate) mod edit;
pub(crate) mod expire;
mod history;
pub(crate) mod intake;
pub(crate) mod life;
pub(crate) mod limits;
pub(crate) mod links;
pub(crate) mod pauses;
mod promises;
pub(crate) mod races;
pub(crate) mod random;
pub(crate) mod read;
mod seeds;
pub(crate) mod settle;
pub(crate) mod steer;
pub(crate) mod supply;
pub(crate) mod turns;
pub(crate) mod unique;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use fairq::error::Result;
use fairq::model::{
    Band, Candidate, Captured, Claim, Command, Dependency, Due, Ending, Environment, FairnessKey,
    Finished, LocalId, Need, NewStep, OnLost, Parent, Policy, Recorded, Released, RunnerId,
    Settled, Settlement, ShardId, StepId, StepState, Timestamp, Turn, Verdict, Weight,
};
use fairq::store::placement::Placement;
use fairq::store::{Action, Lease, Steered, StepView, Store, Want};

pub(crate) use promises::every_promise;

/// Makes an empty store of so many shards in an empty directory, below which large outputs lie.
pub(crate) type Open = fn(&Path, u8, Placement) -> Box<dyn Store>;

/// An empty store and the directory that it lives in.
pub(crate) struct World {
    pub(crate) store: Box<dyn Store>,
    pub(crate) root: tempfile::TempDir,
}

/// The instant at which the tests begin.
pub(crate) const START: Timestamp = at(1_000_000);
/// Where all steps of a store with one shard are.
pub(crate) const ONLY: ShardId = ShardId::new(0).unwrap();

pub(crate) const fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// Returns the instant so long after the start.
pub(crate) const fn after(millis: i64) -> Timestamp {
    at(START.millis() + millis)
}

pub(crate) const fn band(number: u32) -> Band {
    Band::new(number).unwrap()
}

pub(crate) const fn runner(number: i64) -> RunnerId {
    RunnerId::new(number)
}

/// Returns a runner's lease of the length that the tests take as long.
pub(crate) const fn lease(number: i64) -> Lease {
    Lease {
        runner: runner(number),
        until: at(90_000_000),
    }
}

pub(crate) fn key(text: &str) -> FairnessKey {
    text.parse().unwrap()
}

/// Returns a plain step of this key, due at once.
pub(crate) fn step(of: &str) -> NewStep {
    NewStep {
        command: Command::Shell("true".into()),
        cwd: "/".into(),
        env: Arc::new(Environment::default()),
        band: Band::DEFAULT,
        key: key(of),
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

/// Returns the step, waiting for others of its batch.
pub(crate) fn waiting(step: NewStep, parents: &[usize], need: Need) -> NewStep {
    let of = |parent: &usize| Dependency {
        parent: Parent::InBatch(*parent),
        need,
    };
    NewStep {
        after: parents.iter().map(of).collect(),
        ..step
    }
}

/// Returns the step, waiting for one that is stored.
pub(crate) fn following(step: NewStep, parent: StepId, need: Need) -> NewStep {
    let parent = Parent::Step(parent);
    NewStep {
        after: vec![Dependency { parent, need }],
        ..step
    }
}

/// Returns a step that is treated like this when its runner dies.
pub(crate) fn lost_step(on_lost: OnLost) -> NewStep {
    NewStep {
        policy: Policy {
            on_lost,
            ..Policy::default()
        },
        ..step("a")
    }
}

/// Returns what a crew would report of a claim: some time after it, from worker 7, no output.
pub(crate) fn over(claim: &Claim, ending: Ending, verdict: Verdict) -> Settlement {
    Settlement {
        finished: Finished {
            id: claim.id,
            runner: claim.runner,
            fence: claim.fence,
            attempt: claim.attempt,
            ending,
            started: Some(at(claim.claimed.millis() + 1)),
            ended: at(claim.claimed.millis() + 10),
            worker: 7,
            stdout: Captured::Empty,
            stderr: Captured::Empty,
        },
        verdict,
    }
}

pub(crate) fn success(claim: &Claim) -> Settlement {
    over(claim, Ending::Exited { code: 0 }, Verdict::Succeeded)
}

pub(crate) fn failure(claim: &Claim) -> Settlement {
    over(claim, Ending::Exited { code: 1 }, Verdict::Failed)
}

pub(crate) fn give_back(claim: &Claim) -> Settlement {
    over(claim, Ending::Interrupted, Verdict::GiveBack)
}

/// Returns what is answered to a verdict of which nothing else follows.
pub(crate) const fn recorded(state: StepState) -> Settled {
    Settled::Recorded(Recorded {
        state,
        released: Vec::new(),
        tell: false,
    })
}

impl World {
    pub(crate) fn new(open: Open, shards: u8) -> Self {
        Self::placed(open, shards, Placement::Key)
    }

    pub(crate) fn placed(open: Open, shards: u8, placement: Placement) -> Self {
        let root = tempfile::tempdir().unwrap();
        let store = open(root.path(), shards, placement);
        assert_eq!(store.shard_count(), shards);
        Self { store, root }
    }

    pub(crate) fn shards(&self) -> impl Iterator<Item = ShardId> + use<> {
        ShardId::first(self.store.shard_count())
    }

    /// Enqueues steps at the start.
    pub(crate) fn put(&self, steps: &[NewStep]) -> Vec<StepId> {
        self.store.enqueue(steps, START).unwrap()
    }

    /// Enqueues one step at the start.
    pub(crate) fn put_one(&self, step: NewStep) -> StepId {
        self.put(&[step])[0]
    }

    pub(crate) fn view(&self, id: StepId) -> StepView {
        self.store.get(id).unwrap().unwrap()
    }

    pub(crate) fn state(&self, id: StepId) -> StepState {
        self.view(id).state
    }

    /// Returns all due steps of a key in the only shard at the default band.
    pub(crate) fn due(&self, of: &str) -> Vec<LocalId> {
        self.due_at(ONLY, Band::DEFAULT, &key(of))
    }

    pub(crate) fn due_at(&self, shard: ShardId, band: Band, key: &FairnessKey) -> Vec<LocalId> {
        let want = Want {
            key: key.clone(),
            count: u32::MAX,
        };
        let mut found = self.store.fetch(shard, band, &[want]).unwrap();
        assert_eq!(found.len(), 1);
        found.remove(0)
    }

    pub(crate) fn candidate(&self, id: StepId) -> Candidate {
        let view = self.view(id);
        Candidate {
            id,
            band: view.band,
            key: view.key,
            turn: Turn::ZERO,
        }
    }

    /// Tries to claim one step for a runner at an instant.
    pub(crate) fn claim(&self, id: StepId, by: i64, now: Timestamp) -> Option<Claim> {
        let claims = self
            .store
            .claim(id.shard, &[self.candidate(id)], lease(by), now);
        let mut claims = claims.unwrap();
        assert_eq!(claims.len(), 1);
        claims.remove(0)
    }

    /// Claims a due step for runner 1, a second after the start.
    pub(crate) fn take(&self, id: StepId) -> Claim {
        self.claim(id, 1, at(START.millis() + 1_000)).unwrap()
    }

    /// Settles a try that the store still knows, and returns what was recorded.
    pub(crate) fn record(&self, settlement: Settlement) -> Recorded {
        let recorded = match self.settle(settlement) {
            Settled::Recorded(recorded) => Some(recorded),
            Settled::Fenced => None,
        };
        recorded.unwrap()
    }

    /// Claims a due step and settles it like that.
    pub(crate) fn run(&self, id: StepId, settlement: fn(&Claim) -> Settlement) -> Recorded {
        self.record(settlement(&self.take(id)))
    }

    pub(crate) fn steer(&self, id: StepId, action: &Action, now: Timestamp) -> Steered {
        let steered = self.store.steer(&[id], action, now).unwrap();
        assert_eq!(steered.len(), 1);
        steered[0]
    }

    /// Gives places of limits out, and returns which steps became due.
    pub(crate) fn grant(&self, now: Timestamp) -> Vec<StepId> {
        let released = self.store.grant(now).unwrap();
        released.into_iter().map(|released| released.id).collect()
    }

    /// Returns a key whose steps go to that shard.
    pub(crate) fn key_on(&self, shard: ShardId) -> String {
        let mut keys = (0..10_000).map(|number| format!("k{number}"));
        keys.find(|text| self.store.place(&key(text)) == shard)
            .unwrap()
    }

    /// Returns what is told of a step that became due.
    pub(crate) fn released(&self, id: StepId) -> Released {
        let view = self.view(id);
        Released {
            id,
            band: view.band,
            key: view.key,
            weight: view.weight,
        }
    }

    /// Hands settlements in and waits for the answer.
    pub(crate) fn try_settle(
        &self,
        shard: ShardId,
        settlements: impl Into<Arc<[Settlement]>>,
    ) -> Result<Vec<Settled>> {
        let (answer, answered) = channel();
        let after = move |settled| answer.send(settled).unwrap();
        self.store
            .settle(shard, settlements.into(), Box::new(after));
        // The limit only turns a backend that never answers into a failure.
        answered.recv_timeout(Duration::from_secs(60)).unwrap()
    }

    /// Settles one try and returns what it came to.
    pub(crate) fn settle(&self, settlement: Settlement) -> Settled {
        let mut settled = self
            .try_settle(settlement.finished.id.shard, [settlement])
            .unwrap();
        assert_eq!(settled.len(), 1);
        settled.remove(0)
    }
}
