//! All that a store in memory holds, behind its one lock.

use std::collections::BTreeMap;

use super::limits::Limits;
use super::shard::Shard;
use super::step::Step;
use crate::model::{ShardId, StepId, StepState};

/// The shards, and what holds for all of them together.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) shards: Vec<Shard>,
    /// Which step was last put in under which unique key.
    pub(super) uniques: BTreeMap<String, StepId>,
    pub(super) limits: Limits,
}

impl Contents {
    pub(super) fn new(shards: u8) -> Self {
        Self {
            shards: ShardId::first(shards).map(Shard::new).collect(),
            uniques: BTreeMap::new(),
            limits: Limits::default(),
        }
    }

    pub(super) fn step(&self, id: StepId) -> Option<&Step> {
        self.shards.get(id.shard.index())?.steps.get(&id.local)
    }

    /// Returns a step for changes of which its shard's index knows nothing.
    pub(super) fn step_mut(&mut self, id: StepId) -> Option<&mut Step> {
        let shard = self.shards.get_mut(id.shard.index())?;
        shard.touch();
        shard.steps.get_mut(&id.local)
    }

    pub(super) fn state(&self, id: StepId) -> Option<StepState> {
        self.step(id).map(Step::state)
    }
}
