//! The reference backend: everything in memory, plain and short, so that it is seen to be right.
//!
//! It forgets all with the process and counts by walking, so it is for tests and simulations; other
//! backends are held against it.

mod contents;
mod index;
mod limits;
mod links;
mod look;
mod shard;
mod steer;
mod step;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::model::{
    Band, Candidate, Captured, Claim, FairnessKey, Found, LimitName, LocalId, LostRun, NewStep,
    Released, RunnerId, Settlement, ShardId, StepId, Stream, Timestamp,
};
use crate::stats::{Dispatch, Window};
use crate::tally::{ShardTally, Tally};

use super::placement::{Placement, Placer};
use super::{
    Action, AfterSettle, Arrival, Attempt, Claims, Cleaned, Filter, Intake, Lease, LimitView, Link,
    Output, Pause, Paused, Put, Read, Release, Retention, Settle, ShardCounts, Steer, Steered,
    StepView, Store, Supply, Want,
};
use contents::Contents;
use shard::Shard;

/// A store in memory. Threads may share it; one lock makes each call a whole.
#[derive(Debug)]
pub struct MemoryStore {
    placer: Placer,
    outputs: Option<PathBuf>,
    contents: Mutex<Contents>,
}

impl MemoryStore {
    /// Returns an empty store of so many shards, brought into 1..=[`ShardId::MAX_SHARDS`].
    pub fn new(shards: u8, placement: Placement) -> Self {
        let placer = Placer::new(placement, shards, 0);
        let contents = Mutex::new(Contents::new(placer.shards()));
        Self {
            placer,
            outputs: None,
            contents,
        }
    }

    /// Lets outputs that have files of their own be read; their paths are below `root`.
    #[must_use]
    pub fn with_outputs_below(mut self, root: impl Into<PathBuf>) -> Self {
        self.outputs = Some(root.into());
        self
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks or changes the contents for a shard that is there.
    fn with<T>(&self, shard: ShardId, act: impl FnOnce(&mut Contents) -> T) -> Result<T> {
        let mut contents = self.lock();
        let count = contents.shards.len();
        if shard.index() < count {
            return Ok(act(&mut contents));
        }
        let what = format!("there is no shard {shard}: the store has {count}, from 0");
        Err(Error::new(ErrorKind::NotFound, what))
    }

    /// Asks or changes one shard.
    fn on<T>(&self, shard: ShardId, act: impl FnOnce(&mut Shard) -> T) -> Result<T> {
        self.with(shard, |contents| act(&mut contents.shards[shard.index()]))
    }
}

impl Intake for MemoryStore {
    fn put(&self, steps: &[NewStep], now: Timestamp) -> Result<Vec<Put>> {
        self.lock().put(steps, &self.placer, now)
    }

    fn pour(
        &self,
        _: &BTreeSet<FairnessKey>,
        steps: &mut dyn Iterator<Item = Result<NewStep>>,
        now: Timestamp,
    ) -> Result<Vec<StepId>> {
        // All of them are in memory in the end.
        let steps = steps.collect::<Result<Vec<NewStep>>>()?;
        self.enqueue(&steps, now)
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

    fn keep(&self, dead: RunnerId, found: Found) -> Result<()> {
        self.on(found.id.shard, |shard| shard.keep(dead, found))
    }

    fn reclaim(&self, shard: ShardId, dead: RunnerId, now: Timestamp) -> Result<Vec<LostRun>> {
        self.on(shard, |shard| shard.reclaim(dead, now))
    }

    fn wishes(&self, shard: ShardId, runner: RunnerId) -> Result<Vec<(LocalId, u32)>> {
        self.on(shard, |shard| shard.wishes(runner))
    }
}

impl Release for MemoryStore {
    fn deliver(&self, from: ShardId, now: Timestamp) -> Result<Vec<Released>> {
        self.with(from, |contents| contents.deliver(from, now))
    }

    fn grant(&self, now: Timestamp) -> Result<Vec<Released>> {
        Ok(self.lock().grant(now))
    }

    fn mend(&self, now: Timestamp) -> Result<Vec<Released>> {
        Ok(self.lock().mend(now))
    }
}

impl Steer for MemoryStore {
    fn steer(&self, ids: &[StepId], action: &Action, now: Timestamp) -> Result<Vec<Steered>> {
        Ok(self.lock().steer(ids, action, now))
    }

    fn pause(&self, what: &Pause, now: Timestamp) -> Result<()> {
        let mut contents = self.lock();
        let shards = contents.shards.iter_mut();
        shards.for_each(|shard| shard.pause(what, now));
        Ok(())
    }

    fn resume(&self, what: &Pause) -> Result<bool> {
        let mut contents = self.lock();
        let shards = contents.shards.iter_mut();
        let resumed: Vec<bool> = shards.map(|shard| shard.resume(what)).collect();
        Ok(resumed.contains(&true))
    }

    fn set_limit(&self, name: &LimitName, places: Option<u32>) -> Result<Option<u32>> {
        let set = &mut self.lock().limits.set;
        Ok(match places {
            Some(places) => set.insert(name.clone(), places),
            None => set.remove(name),
        })
    }

    fn clean(&self, shard: ShardId, retention: &Retention) -> Result<Cleaned> {
        self.with(shard, |contents| contents.clean(shard, retention))
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
            .shards
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

    fn parents(&self, id: StepId) -> Result<Vec<Link>> {
        self.with(id.shard, |contents| contents.parents(id))
    }

    fn dependents(&self, id: StepId) -> Result<Vec<StepId>> {
        self.with(id.shard, |contents| contents.dependents(id))
    }

    fn pauses(&self) -> Result<Vec<Paused>> {
        Ok(self.lock().shards[0].pauses.clone())
    }

    fn limits(&self) -> Result<Vec<LimitView>> {
        Ok(self.lock().limits())
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
