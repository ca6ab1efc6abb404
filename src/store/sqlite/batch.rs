//! Putting steps in together that may wait for each other, or that others of their kind make
//! needless.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher as _;

use rusqlite::OptionalExtension as _;
use siphasher::sip::SipHasher13;

use super::SqliteStore;
use super::intake::{Fill, Fills, Open, carried, commit};
use super::links::{self, End};
use super::read;
use super::row;
use super::stand::Waiting;
use crate::error::{Error, ErrorKind, Result};
use crate::model::{
    Dependency, Ending, Need, NewStep, Parent, ShardId, StepId, StepState, Timestamp, Unique,
};
use crate::store::Put;
use crate::store::batch::parents_first;

/// Puts a batch in: all or nothing.
pub(super) fn put(store: &SqliteStore, steps: &[NewStep], now: Timestamp) -> Result<Vec<Put>> {
    let order = parents_first(steps)?;
    let places: Vec<ShardId> = steps
        .iter()
        .map(|step| store.placer.place(&step.key))
        .collect();
    let mut reach = reach(store, steps, &places)?;
    loop {
        let open = Open::all(store, &reach)?;
        let mut batch = Batch {
            store,
            steps,
            places: &places,
            fills: open.begin()?,
            put: Vec::with_capacity(steps.len()),
            unique: BTreeMap::new(),
            now,
        };
        match batch.number()? {
            None => {
                for at in &order {
                    batch.place(*at)?;
                }
                let put = std::mem::take(&mut batch.put);
                commit(batch.fills)?;
                return Ok(put);
            }
            // Somebody else's step of a unique key is on a shard that we have not locked.
            Some(also) => {
                reach.insert(also);
            }
        }
    }
}

/// Returns every shard where the batch reads or writes.
fn reach(store: &SqliteStore, steps: &[NewStep], places: &[ShardId]) -> Result<BTreeSet<ShardId>> {
    let mut reach: BTreeSet<ShardId> = places.iter().copied().collect();
    for step in steps {
        for dependency in &step.after {
            if let Parent::Step(parent) = dependency.parent {
                if parent.shard.index() >= store.shards.len() {
                    return Err(no_parent(parent));
                }
                reach.insert(parent.shard);
            }
        }
        if let Some(unique) = &step.unique {
            reach.insert(home(store, unique));
        }
    }
    Ok(reach)
}

/// Returns the shard that knows which step stands for a unique key.
fn home(store: &SqliteStore, unique: &Unique) -> ShardId {
    let mut hasher = SipHasher13::new();
    hasher.write(unique.key.as_bytes());
    let at = hasher.finish() % store.shards.len().max(1) as u64;
    let at = usize::try_from(at).unwrap_or(0);
    store.shards[at].id()
}

fn no_parent(parent: StepId) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!("there is no step {parent} to wait for"),
    )
    .hint("nothing was stored")
}

struct Batch<'b> {
    store: &'b SqliteStore,
    steps: &'b [NewStep],
    places: &'b [ShardId],
    fills: Fills<'b>,
    put: Vec<Put>,
    /// The steps of this batch that stand for a unique key.
    unique: BTreeMap<&'b str, StepId>,
    now: Timestamp,
}

/// Which step makes one of its unique key needless.
enum Met {
    Nobody,
    Step(StepId),
    /// That cannot be said before this shard is locked.
    Elsewhere(ShardId),
}

impl<'b> Batch<'b> {
    /// Gives every step its number and stores it, or finds the one that makes it needless. Returns a
    /// shard that has to be locked too, if there is one.
    fn number(&mut self) -> Result<Option<ShardId>> {
        let (steps, now) = (self.steps, self.now);
        for (step, shard) in steps.iter().zip(self.places) {
            if let Some(unique) = &step.unique {
                match self.met(unique)? {
                    Met::Nobody => {}
                    Met::Step(id) => {
                        self.unique.insert(&unique.key, id);
                        self.put.push(Put::Met(id));
                        continue;
                    }
                    Met::Elsewhere(shard) => return Ok(Some(shard)),
                }
            }
            let fill = self.fill(*shard)?;
            let local = fill.number();
            fill.insert_as(local, step, now)?;
            let id = StepId::new(*shard, local);
            self.put.push(Put::New(id));
            if let Some(unique) = &step.unique {
                self.take_key(unique, id)?;
            }
        }
        Ok(None)
    }

    fn fill(&mut self, shard: ShardId) -> Result<&mut Fill<'b>> {
        self.fills.get_mut(&shard).ok_or_else(|| {
            let what = format!("shard {shard} was not opened for this batch");
            Error::new(ErrorKind::Internal, what)
        })
    }

    fn met(&mut self, unique: &'b Unique) -> Result<Met> {
        if let Some(id) = self.unique.get(unique.key.as_str()) {
            return Ok(Met::Step(*id));
        }
        let home = home(self.store, unique);
        let known = self.fill(home)?.on(|tx| {
            tx.prepare("SELECT shard, step FROM uniques WHERE key = ?1")?
                .query_row([&unique.key], |row| {
                    Ok(StepId::new(row::shard(row, 0)?, row::local(row, 1)?))
                })
                .optional()
        })?;
        let Some(known) = known else {
            return Ok(Met::Nobody);
        };
        if !self.fills.contains_key(&known.shard) {
            return Ok(Met::Elsewhere(known.shard));
        }
        let state = self.state(known)?;
        let covers = state.is_some_and(|state| unique.scope.covers(state));
        Ok(if covers {
            Met::Step(known)
        } else {
            Met::Nobody
        })
    }

    fn take_key(&mut self, unique: &'b Unique, id: StepId) -> Result<()> {
        self.unique.insert(&unique.key, id);
        let home = home(self.store, unique);
        self.fill(home)?.on(|tx| {
            tx.prepare("INSERT OR REPLACE INTO uniques(key, shard, step) VALUES (?1, ?2, ?3)")?
                .execute((&unique.key, id.shard.number(), id.local.get()))
                .map(drop)
        })
    }

    /// Returns where a step stands now.
    fn state(&mut self, id: StepId) -> Result<Option<StepState>> {
        self.fill(id.shard)?
            .on(|tx| read::state_of(tx.connection(), id.local))
    }

    /// Puts a step that was stored where it belongs, after its parents.
    fn place(&mut self, at: usize) -> Result<()> {
        let (step, now) = (&self.steps[at], self.now);
        let Put::New(id) = self.put[at] else {
            return Ok(());
        };
        let mut missing = 0;
        let mut never = None;
        let needs: BTreeSet<(StepId, Need)> = step
            .after
            .iter()
            .map(|dependency| (self.parent(dependency), dependency.need))
            .collect();
        for (parent, need) in needs {
            let state = self.state(parent)?.ok_or_else(|| no_parent(parent))?;
            let edge = match (state.is_final(), need.is_met_by(state)) {
                (_, true) => 1,
                (true, false) => {
                    never = never.or(Some((parent, state)));
                    2
                }
                (false, false) => {
                    missing += 1;
                    self.fill(parent.shard)?
                        .on(|tx| links::add_child(tx, parent.local, id))?;
                    0
                }
            };
            self.fill(id.shard)?
                .on(|tx| links::add_edge(tx, id.local, parent, need, edge))?;
        }
        let fill = self.fill(id.shard)?;
        match never {
            None => fill.stand(step, id.local, missing, now),
            Some((parent, state)) => fill.on(|tx| {
                let waiting = Waiting {
                    state: StepState::Blocked,
                    carried: carried(step, id.local, now),
                };
                let reason = Ending::skipped(parent, Some(state));
                links::record_end(tx, &waiting, End::cancelled(&reason), now)
            }),
        }
    }

    fn parent(&self, dependency: &Dependency) -> StepId {
        match dependency.parent {
            Parent::Step(id) => id,
            Parent::InBatch(at) => self.put[at].id(),
        }
    }
}
