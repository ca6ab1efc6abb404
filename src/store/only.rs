//! A store as a runner sees it that serves only some bands and keys.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{
    AfterSettle, Claims, Filter, Lease, Release, Settle, ShardCounts, Store, Supply, Want,
};
use crate::error::Result;
use crate::model::{
    Band, Candidate, Claim, FairnessKey, Found, LocalId, LostRun, Released, RunnerId, Settled,
    Settlement, ShardId, StepState, Timestamp,
};
use crate::tally::{ShardTally, Tally};

/// A store of which only steps of some bands and keys are told as due. Whatever else one asks it, and
/// all that is done to it, goes to the store itself.
///
/// What is hidden does not hold up what is not: the best band is the best one that is served. A look
/// costs O(bands + keys) more than that of the store.
pub struct Only {
    store: Arc<dyn Store>,
    chosen: Arc<Chosen>,
}

/// What is served.
#[derive(Debug)]
struct Chosen {
    /// Empty for all.
    bands: BTreeSet<Band>,
    /// Empty for all.
    keys: BTreeSet<FairnessKey>,
}

impl Chosen {
    fn serves(&self, band: Band, key: &FairnessKey) -> bool {
        (self.bands.is_empty() || self.bands.contains(&band))
            && (self.keys.is_empty() || self.keys.contains(key))
    }

    fn leave(&self, released: &mut Vec<Released>) {
        released.retain(|step| self.serves(step.band, &step.key));
    }
}

impl std::fmt::Debug for Only {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Only")
            .field("chosen", &self.chosen)
            .finish_non_exhaustive()
    }
}

impl Only {
    /// Shows of a store only steps of these bands and of these keys; an empty set stands for all.
    pub fn new(store: Arc<dyn Store>, bands: BTreeSet<Band>, keys: BTreeSet<FairnessKey>) -> Self {
        Self {
            store,
            chosen: Arc::new(Chosen { bands, keys }),
        }
    }

    /// Returns what is due and may start at each band that is served, best first.
    fn due(&self, shard: ShardId) -> Result<impl Iterator<Item = Result<(Band, Vec<Tally>)>>> {
        let pauses = self.store.pauses()?;
        let mut bands: Vec<Band> = self.store.counts(shard)?.ready.into_keys().collect();
        bands.retain(|band| self.chosen.bands.is_empty() || self.chosen.bands.contains(band));
        Ok(bands.into_iter().map(move |band| {
            let mut keys = self.store.tally_at(shard, band)?;
            keys.retain(|tally| {
                let paused = pauses.iter().any(|it| it.what.covers(band, &tally.key));
                self.chosen.serves(band, &tally.key) && !paused
            });
            Ok((band, keys))
        }))
    }

    /// Returns the filter for what is served of a shard in a state.
    fn filter(&self, shard: ShardId, state: StepState) -> Filter {
        Filter {
            ids: vec![(shard, 0, i64::MAX)],
            states: vec![state],
            keys: self.chosen.keys.iter().cloned().collect(),
            bands: self.chosen.bands.iter().copied().collect(),
            ..Filter::default()
        }
    }

    fn served(&self, mut released: Vec<Released>) -> Vec<Released> {
        self.chosen.leave(&mut released);
        released
    }
}

impl Supply for Only {
    fn promote(&self, shard: ShardId, now: Timestamp) -> Result<Option<Timestamp>> {
        self.store.promote(shard, now)
    }

    fn version(&self, shard: ShardId) -> Result<u64> {
        self.store.version(shard)
    }

    fn tally(&self, shard: ShardId) -> Result<ShardTally> {
        for due in self.due(shard)? {
            let (band, keys) = due?;
            if !keys.is_empty() {
                return Ok(ShardTally::new(band, keys));
            }
        }
        Ok(ShardTally::nothing())
    }

    fn fetch(&self, shard: ShardId, band: Band, wants: &[Want]) -> Result<Vec<Vec<LocalId>>> {
        self.store.fetch(shard, band, wants)
    }
}

impl Release for Only {
    fn deliver(&self, from: ShardId, now: Timestamp) -> Result<Vec<Released>> {
        Ok(self.served(self.store.deliver(from, now)?))
    }

    fn grant(&self, now: Timestamp) -> Result<Vec<Released>> {
        Ok(self.served(self.store.grant(now)?))
    }

    fn mend(&self, now: Timestamp) -> Result<Vec<Released>> {
        Ok(self.served(self.store.mend(now)?))
    }
}

impl Settle for Only {
    fn settle(&self, shard: ShardId, settlements: Arc<[Settlement]>, after: AfterSettle) {
        self.store.settle(shard, settlements, self.chosen(after));
    }

    fn settle_later(&self, shard: ShardId, settlements: Arc<[Settlement]>, after: AfterSettle) {
        self.store
            .settle_later(shard, settlements, self.chosen(after));
    }

    fn hurry(&self, shard: ShardId) {
        self.store.hurry(shard);
    }
}

impl Only {
    /// Keeps quiet about what became due and is not ours to run.
    fn chosen(&self, after: AfterSettle) -> AfterSettle {
        let chosen = Arc::clone(&self.chosen);
        Box::new(move |settled: Result<Vec<Settled>>| {
            after(settled.map(|mut settled| {
                for one in &mut settled {
                    if let Settled::Recorded(recorded) = one {
                        chosen.leave(&mut recorded.released);
                    }
                }
                settled
            }));
        })
    }
}

crate::forward!(Read for Only, but counts {
    /// Counts what is served: of what is due, only what may start.
    fn counts(&self, shard: ShardId) -> Result<ShardCounts> {
        let all = self.store.counts(shard)?;
        let mut counts = ShardCounts {
            next_due: all.next_due,
            ..ShardCounts::default()
        };
        let mut ready = 0;
        for due in self.due(shard)? {
            let (band, keys) = due?;
            let count = keys.iter().map(|tally| u64::from(tally.count)).sum();
            if count > 0 {
                counts.ready.insert(band, count);
                ready += count;
            }
        }
        counts.states.insert(StepState::Ready, ready);
        for (state, count) in all.states {
            // Ended ones may be many, and nobody who serves asks for them.
            if state != StepState::Ready && !state.is_final() && count > 0 {
                let served = self.store.find(&self.filter(shard, state))?.len() as u64;
                counts.states.insert(state, served);
            }
        }
        if all.retrying > 0 {
            let delayed = self.store.list(&self.filter(shard, StepState::Delayed))?;
            let retrying = delayed.iter().filter(|step| step.attempt > 0);
            counts.retrying = retrying.count() as u64;
        }
        Ok(counts)
    }
});

impl Claims for Only {
    fn claim(
        &self,
        shard: ShardId,
        candidates: &[Candidate],
        lease: Lease,
        now: Timestamp,
    ) -> Result<Vec<Option<Claim>>> {
        self.store.claim(shard, candidates, lease, now)
    }

    fn renew(&self, shard: ShardId, lease: Lease) -> Result<()> {
        self.store.renew(shard, lease)
    }

    fn holders(&self, shard: ShardId) -> Result<Vec<Lease>> {
        self.store.holders(shard)
    }

    fn keep(&self, dead: RunnerId, found: Found) -> Result<()> {
        self.store.keep(dead, found)
    }

    fn reclaim(&self, shard: ShardId, dead: RunnerId, now: Timestamp) -> Result<Vec<LostRun>> {
        self.store.reclaim(shard, dead, now)
    }

    fn wishes(&self, shard: ShardId, runner: RunnerId) -> Result<Vec<(LocalId, u32)>> {
        self.store.wishes(shard, runner)
    }
}

crate::forward!(Intake, Steer, Store for Only);
