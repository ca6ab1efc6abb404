//! The reference backend: everything in memory, plain and short, so that it is seen to be right.
//!
//! It forgets all with the process and counts by walking, so it is for tests and simulations; other
//! backends are held against it.

mod pending;
mod shard;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::model::{
    Band, Candidate, Captured, Claim, FairnessKey, LocalId, LostRun, NewStep, RunnerId, Settlement,
    ShardId, StepId, Stream, Timestamp,
};
use crate::stats::{Dispatch, Window};
use crate::tally::{ShardTally, Tally};

use super::placement::{Placement, Placer};
use super::{
    AfterSettle, Arrival, Attempt, Claims, Filter, Intake, Lease, LimitView, Link, Output, Paused,
    Put, Read, Settle, ShardCounts, StepView, Store, Supply, Want,
};
use shard::Shard;

/// A store in memory. Threads may share it; one lock makes each call a whole.
#[derive(Debug)]
pub struct MemoryStore {
    placer: Placer,
    outputs: Option<PathBuf>,
    shards: Mutex<Vec<Shard>>,
}

impl MemoryStore {
    /// Returns an empty store of so many shards, brought into 1..=[`ShardId::MAX_SHARDS`].
    pub fn new(shards: u8, placement: Placement) -> Self {
        let placer = Placer::new(placement, shards, 0);
        let shards = ShardId::first(placer.shards()).map(Shard::new).collect();
        Self {
            placer,
            outputs: None,
            shards: Mutex::new(shards),
        }
    }

    /// Lets outputs that have files of their own be read; their paths are below `root`.
    #[must_use]
    pub fn with_outputs_below(mut self, root: impl Into<PathBuf>) -> Self {
        self.outputs = Some(root.into());
        self
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Shard>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks or changes one shard.
    fn on<T>(&self, shard: ShardId, act: impl FnOnce(&mut Shard) -> T) -> Result<T> {
        let mut shards = self.lock();
        let count = shards.len();
        shards.get_mut(shard.index()).map(act).ok_or_else(|| {
            let what = format!("there is no shard {shard}: the store has {count}, from 0");
            Error::new(ErrorKind::NotFound, what)
        })
    }
}

impl Intake for MemoryStore {
    fn pour(
        &self,
        keys: &BTreeSet<FairnessKey>,
        steps: &mut dyn Iterator<Item = Result<NewStep>>,
        _: Timestamp,
    ) -> Result<Vec<StepId>> {
        pending::pour(keys, steps)
    }

    fn put(&self, steps: &[NewStep], now: Timestamp) -> Result<Vec<Put>> {
        let mut shards = self.lock();
        let ids = steps
            .iter()
            .map(|step| shards[self.placer.place(&step.key).index()].insert(step, now));
        Ok(ids.map(Put::New).collect())
    }

    fn place(&self, key: &FairnessKey) -> ShardId {
        self.placer.peek(key)
    }
}

impl Supply for MemoryStore {
    fn promote(&self, shard: ShardId, now: Timestamp) -> Result<Option<Timestamp>> {
        self.on(shard, |shard| shard.promote(now))
    }

    fn version(&self, shard: ShardId) -> Result<u64> {
        self.on(shard, |shard| shard.version())
    }

    fn tally(&self, shard: ShardId) -> Result<ShardTally> {
        self.on(shard, |shard| shard.tally())
    }

    fn fetch(&self, shard: ShardId, band: Band, wants: &[Want]) -> Result<Vec<Vec<LocalId>>> {
        self.on(shard, |shard| {
            wants.iter().map(|want| shard.fetch(band, want)).collect()
        })
    }
}

impl Claims for MemoryStore {
    fn claim(
        &self,
        shard: ShardId,
        candidates: &[Candidate],
        lease: Lease,
        now: Timestamp,
    ) -> Result<Vec<Option<Claim>>> {
        self.on(shard, |shard| {
            candidates
                .iter()
                .map(|candidate| shard.claim(candidate, lease, now))
                .collect()
        })
    }

    fn renew(&self, shard: ShardId, lease: Lease) -> Result<()> {
        self.on(shard, |shard| shard.renew(lease))
    }

    fn holders(&self, shard: ShardId) -> Result<Vec<Lease>> {
        self.on(shard, |shard| shard.holders())
    }

    fn reclaim(&self, shard: ShardId, dead: RunnerId, now: Timestamp) -> Result<Vec<LostRun>> {
        self.on(shard, |shard| shard.reclaim(dead, now))
    }

    fn wishes(&self, _: ShardId, _: RunnerId) -> Result<Vec<(LocalId, u32)>> {
        Ok(Vec::new())
    }
}

impl Settle for MemoryStore {
    /// Writes at once and calls `after` on the caller's own thread, holding no lock of the store.
    fn settle(&self, shard: ShardId, settlements: Arc<[Settlement]>, after: AfterSettle) {
        let answers = self.on(shard, |shard| {
            settlements.iter().map(|one| shard.settle(one)).collect()
        });
        after(answers);
    }
}

impl Read for MemoryStore {
    fn get(&self, id: StepId) -> Result<Option<StepView>> {
        self.on(id.shard, |shard| shard.view(id.local))
    }

    fn list(&self, filter: &Filter) -> Result<Vec<StepView>> {
        let mut steps: Vec<StepView> = self
            .lock()
            .iter()
            .flat_map(Shard::views)
            .filter(|step| filter.matches(step))
            .collect();
        steps.sort_by(|a, b| filter.order.compare(a, b));
        steps.truncate(filter.limit.unwrap_or(usize::MAX));
        Ok(steps)
    }

    fn find(&self, filter: &Filter) -> Result<Vec<StepId>> {
        let mut ids: Vec<StepId> = self
            .list(&Filter {
                limit: None,
                ..filter.clone()
            })?
            .into_iter()
            .map(|step| step.id)
            .collect();
        ids.sort_unstable();
        Ok(ids)
    }

    fn parents(&self, _: StepId) -> Result<Vec<Link>> {
        Ok(Vec::new())
    }

    fn dependents(&self, _: StepId) -> Result<Vec<StepId>> {
        Ok(Vec::new())
    }

    fn pauses(&self) -> Result<Vec<Paused>> {
        Ok(Vec::new())
    }

    fn limits(&self) -> Result<Vec<LimitView>> {
        Ok(Vec::new())
    }

    fn attempts(&self, id: StepId) -> Result<Vec<Attempt>> {
        self.on(id.shard, |shard| shard.attempts(id.local))
    }

    fn output(&self, id: StepId, fence: u32, stream: Stream) -> Result<Option<Output>> {
        match self.on(id.shard, |shard| shard.output(id.local, fence, stream))? {
            Captured::Empty => Ok(None),
            Captured::Inline(bytes) => Ok(Some(Output::Bytes(bytes))),
            Captured::File { path, .. } => {
                let root = self.outputs.clone().unwrap_or_default();
                let path = root.join(path);
                let file = std::fs::File::open(&path).or_fail(ErrorKind::Unavailable, || {
                    format!("cannot open {}, an output of step {id}", path.display())
                })?;
                Ok(Some(Output::File(file)))
            }
        }
    }

    fn tally_at(&self, shard: ShardId, band: Band) -> Result<Vec<Tally>> {
        self.on(shard, |shard| shard.tally_at(band))
    }

    fn ahead(&self, id: StepId, band: Band, key: &FairnessKey, most: u32) -> Result<u32> {
        self.on(id.shard, |shard| shard.ahead(band, key, id.local, most))
    }

    fn counts(&self, shard: ShardId) -> Result<ShardCounts> {
        self.on(shard, |shard| shard.counts())
    }

    fn dispatches(
        &self,
        shard: ShardId,
        window: Window,
        each: &mut dyn FnMut(Dispatch),
    ) -> Result<()> {
        let found = self.on(shard, |shard| shard.dispatches(window))?;
        found.into_iter().for_each(each);
        Ok(())
    }

    fn arrivals(
        &self,
        shard: ShardId,
        after: LocalId,
        since: Timestamp,
        limit: usize,
    ) -> Result<Vec<Arrival>> {
        self.on(shard, |shard| shard.arrivals(after, since, limit))
    }
}

impl Store for MemoryStore {
    fn shard_count(&self) -> u8 {
        self.placer.shards()
    }
}
