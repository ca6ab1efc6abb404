//! Putting steps in that wait for others, and telling those of other shards what ended.

use std::collections::BTreeMap;

use super::contents::Contents;
use super::shard::{News, Shard};
use super::step::{Edge, Over};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{
    LocalId, Need, NewStep, Parent, Released, ShardId, StepId, StepState, Timestamp, Unique,
};
use crate::store::batch::parents_first;
use crate::store::placement::Placer;
use crate::store::{Link, Put};

impl Contents {
    /// Puts steps in, the parents of a batch before those who wait for them.
    pub(super) fn put(
        &mut self,
        steps: &[NewStep],
        placer: &Placer,
        now: Timestamp,
    ) -> Result<Vec<Put>> {
        let order = parents_first(steps)?;
        self.refuse_missing_parents(steps)?;
        // All get their numbers first, in the order in which they came.
        let mut of_batch: BTreeMap<&str, StepId> = BTreeMap::new();
        let mut puts = Vec::new();
        for step in steps {
            let unique = step.unique.as_ref();
            let met = unique.and_then(|unique| {
                let own = of_batch.get(unique.key.as_str()).copied();
                own.or_else(|| self.stands_for(unique))
            });
            let put = match met {
                Some(id) => Put::Met(id),
                None => Put::New(self.insert(step, placer, now)),
            };
            if let Some(unique) = unique {
                of_batch.insert(&unique.key, put.id());
            }
            puts.push(put);
        }
        for place in order {
            let Put::New(id) = puts[place] else { continue };
            for dependency in &steps[place].after {
                let parent = match dependency.parent {
                    Parent::Step(parent) => parent,
                    Parent::InBatch(parent) => puts[parent].id(),
                };
                self.link(id, parent, dependency.need);
            }
            self.let_in(id, now);
        }
        Ok(puts)
    }

    fn refuse_missing_parents(&self, steps: &[NewStep]) -> Result<()> {
        let all = steps.iter().flat_map(|step| &step.after);
        let missing = all.filter_map(|dependency| match dependency.parent {
            Parent::Step(id) if self.state(id).is_none() => Some(id),
            Parent::Step(_) | Parent::InBatch(_) => None,
        });
        missing.into_iter().next().map_or(Ok(()), |id| {
            let what = format!("there is no step {id} to wait for");
            Err(Error::new(ErrorKind::NotFound, what))
        })
    }

    /// Returns the step that makes another one of the unique key needless.
    fn stands_for(&self, unique: &Unique) -> Option<StepId> {
        let id = *self.uniques.get(&unique.key)?;
        self.state(id)
            .filter(|state| unique.scope.covers(*state))
            .map(|_| id)
    }

    /// Stores a step, held until it is let in.
    pub(super) fn insert(&mut self, step: &NewStep, placer: &Placer, now: Timestamp) -> StepId {
        let id = self.shards[placer.place(&step.key).index()].insert(step, now);
        if let Some(unique) = &step.unique {
            self.uniques.insert(unique.key.clone(), id);
        }
        id
    }

    /// Lets a step wait for another one.
    fn link(&mut self, child: StepId, parent: StepId, need: Need) {
        let edge = Edge::judge(need, self.state(parent));
        if let Some(step) = self.step_mut(child) {
            step.edges.insert((parent, need), edge);
        }
        if let Some(step) = self.step_mut(parent) {
            step.children.insert(child);
        }
    }

    /// Moves a new step to where it belongs.
    pub(super) fn let_in(&mut self, id: StepId, now: Timestamp) {
        let Some(step) = self.step(id) else { return };
        let mut news = News::default();
        match step.ruled_out(|parent| self.state(parent)) {
            Some(ending) => {
                let over = Over::unstarted(StepState::Cancelled, ending, now);
                self.shards[id.shard.index()].end(id.local, over, &mut news);
            }
            None => {
                let stand = step.at_first(now);
                self.shards[id.shard.index()].stand(id.local, stand, &mut news);
            }
        }
    }

    /// Hands out the letters of a shard, and those that are written because of them.
    pub(super) fn deliver(&mut self, from: ShardId, now: Timestamp) -> Vec<Released> {
        let mut news = News::default();
        let mut senders = vec![from];
        while let Some(from) = senders.pop() {
            for letter in std::mem::take(&mut self.shards[from.index()].outbox) {
                let (child, state) = (letter.child, Some(letter.state));
                let to = &mut self.shards[child.shard.index()];
                to.hear_of(child.local, letter.parent, state, now, &mut news);
                senders.push(child.shard);
            }
        }
        news.released
    }

    /// Looks at every parent that a step still waits for.
    pub(super) fn mend(&mut self, now: Timestamp) -> Vec<Released> {
        let open: Vec<(StepId, StepId)> = self.shards.iter().flat_map(open_edges).collect();
        let mut news = News::default();
        for (child, parent) in open {
            let state = self.state(parent);
            if state.is_none_or(StepState::is_final) {
                let shard = &mut self.shards[child.shard.index()];
                shard.hear_of(child.local, parent, state, now, &mut news);
            }
        }
        let mut released = news.released;
        let shards: Vec<ShardId> = self.shards.iter().map(|shard| shard.id).collect();
        for shard in shards {
            released.extend(self.deliver(shard, now));
        }
        released
    }

    /// Forgets how a step ended, for it is tried again, and judges anew what it waits for. Returns
    /// whether it may run, now or later; if not, nothing is changed.
    pub(super) fn rejoin(&mut self, id: StepId) -> bool {
        let Some(step) = self.step(id) else {
            return false;
        };
        let judge = |((parent, need), edge): (&(StepId, Need), &Edge)| {
            // Of a parent that was forgotten it still holds what was known then.
            let edge = match self.state(*parent) {
                None if *edge == Edge::Met => Edge::Met,
                state => Edge::judge(*need, state),
            };
            ((*parent, *need), edge)
        };
        let edges: BTreeMap<(StepId, Need), Edge> = step.edges.iter().map(judge).collect();
        if edges.values().any(|edge| *edge == Edge::Never) {
            return false;
        }
        if let Some(step) = self.step_mut(id) {
            step.edges = edges;
        }
        let outbox = &mut self.shards[id.shard.index()].outbox;
        outbox.retain(|letter| letter.parent != id);
        true
    }

    pub(super) fn parents(&self, id: StepId) -> Vec<Link> {
        let edges = self.step(id).map(|step| &step.edges);
        edges
            .into_iter()
            .flatten()
            .map(|((parent, need), edge)| Link {
                parent: *parent,
                need: *need,
                met: *edge == Edge::Met,
                state: self.state(*parent),
            })
            .collect()
    }

    pub(super) fn dependents(&self, id: StepId) -> Vec<StepId> {
        let waits = |child: &StepId| {
            self.step(*child).is_some_and(|step| {
                let mut edges = step.edges.iter();
                step.waits() && edges.any(|((of, _), edge)| *of == id && *edge == Edge::Open)
            })
        };
        let children = self.step(id).map(|step| &step.children);
        children
            .into_iter()
            .flatten()
            .copied()
            .filter(waits)
            .collect()
    }
}

/// Returns which steps of a shard wait for which others.
fn open_edges(shard: &Shard) -> Vec<(StepId, StepId)> {
    let waiting = shard.steps.iter().filter(|(_, step)| step.waits());
    let of = |local: &LocalId| StepId::new(shard.id, *local);
    waiting
        .flat_map(|(local, step)| {
            let open = step.edges.iter().filter(|(_, edge)| **edge == Edge::Open);
            open.map(move |((parent, _), _)| (of(local), *parent))
        })
        .collect()
}
