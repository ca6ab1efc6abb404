//! One shard's candidates, and which shard is next.
//!
//! No lock and no clock here: every rule of the cache that is not about waiting.

use std::cmp::Reverse;
use std::collections::VecDeque;

use super::taken::TakenIds;
use super::view::PartitionView;
use super::{Offered, Taken};
use crate::model::{Band, Candidate, LocalId, ShardId, Turn};

/// How many ids a view names.
const FIRST: usize = 8;

/// One shard's candidates. Those of the last refill stand in front, offered ones behind them.
#[derive(Debug)]
pub(super) struct Partition {
    queue: VecDeque<Candidate>,
    /// How many at the end of the queue were offered.
    offered: usize,
    last_fill: usize,
    /// The band of the window: set by a refill or by an offer that finds nothing here, and by
    /// nothing else. Read off the candidate in front it would leap up and down as better offers
    /// pass through, and with it the choice of partition and the admission of offers.
    band: Band,
    pub(super) taken: TakenIds,
}

/// What a refill did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refilled {
    pub(super) selected: usize,
    /// Those of earlier refills that are gone, and were not taken.
    pub(super) discarded: usize,
    /// Those of earlier refills that were selected again.
    pub(super) kept: usize,
    pub(super) duplicates: usize,
}

impl Partition {
    pub(super) fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            offered: 0,
            last_fill: 0,
            band: Band::WORST,
            taken: TakenIds::default(),
        }
    }

    pub(super) fn depth(&self) -> usize {
        self.queue.len()
    }

    fn floor(&self) -> Option<Band> {
        (!self.queue.is_empty()).then_some(self.band)
    }

    fn planned(&self) -> usize {
        self.queue.len() - self.offered
    }

    fn low_water(&self) -> usize {
        (self.last_fill / 2).max(1)
    }

    /// Puts the batch in the place of everything that is here, except what workers have taken.
    pub(super) fn refill(&mut self, batch: Vec<Candidate>, floor: Band) -> Refilled {
        let given = batch.len();
        let earlier: Vec<LocalId> = ids(&self.queue).take(self.planned()).collect();
        self.queue.clear();
        let taken = &self.taken;
        self.queue.extend(
            batch
                .into_iter()
                .filter(|candidate| !taken.contains(candidate.id.local))
                .map(|candidate| Candidate {
                    band: floor,
                    ..candidate
                }),
        );
        self.offered = 0;
        self.last_fill = self.queue.len();
        self.band = floor;
        let mut now: Vec<LocalId> = ids(&self.queue).collect();
        now.sort_unstable();
        let again = |id: &&LocalId| now.binary_search(id).is_ok();
        let kept = earlier.iter().filter(again).count();
        Refilled {
            selected: self.last_fill,
            discarded: earlier.len() - kept,
            kept,
            duplicates: given - self.last_fill,
        }
    }

    /// Admits a candidate or not; `room` says whether the whole cache is under its bound.
    pub(super) fn offer(&mut self, candidate: Candidate, room: bool) -> Offered {
        self.taken.forget(candidate.id.local);
        if self.queue.is_empty() {
            // Whatever the bound says: it is a sum, and a busy shard must not silence an idle one.
            self.band = candidate.band;
        } else if candidate.band > self.band {
            return Offered::WorseBand;
        } else if !room {
            return Offered::Full;
        }
        self.queue.push_back(candidate);
        self.offered += 1;
        Offered::Admitted
    }

    /// Takes the candidate in front.
    pub(super) fn take(&mut self) -> Option<Taken> {
        let candidate = self.queue.pop_front()?;
        self.offered = self.offered.min(self.queue.len());
        self.taken.take(candidate.id.local);
        Some(Taken {
            candidate,
            needs_refill: self.queue.len() <= self.low_water(),
        })
    }

    /// Cuts the end off so that at most `keep` stay. Returns how many went.
    pub(super) fn cut(&mut self, keep: usize) -> usize {
        let cut = self.queue.len().saturating_sub(keep);
        self.queue.truncate(keep);
        self.offered = self.offered.saturating_sub(cut);
        cut
    }

    pub(super) fn view(&self, shard: ShardId) -> PartitionView {
        PartitionView {
            shard,
            floor: self.floor(),
            depth: self.depth(),
            planned: self.planned(),
            offered: self.offered,
            last_fill: self.last_fill,
            low_water: self.low_water(),
            head_turn: self.queue.front().map(|candidate| candidate.turn),
            first: self.queue.iter().take(FIRST).map(|one| one.id).collect(),
            taken: self.taken.len(),
        }
    }

    /// Returns what this partition is chosen by, the least first: best band, earliest turn in front,
    /// most candidates. `None` if there is nothing to choose.
    fn rank(&self) -> Option<(Band, Turn, Reverse<usize>)> {
        let head = self.queue.front()?;
        Some((self.band, head.turn, Reverse(self.queue.len())))
    }
}

fn ids(queue: &VecDeque<Candidate>) -> impl Iterator<Item = LocalId> {
    queue.iter().map(|candidate| candidate.id.local)
}

/// Returns the index of the partition that is next; the lower one of equals. `None` if all are
/// empty.
pub(super) fn best(partitions: &[Partition]) -> Option<usize> {
    let ranked = partitions.iter().enumerate();
    ranked
        .filter_map(|(at, partition)| Some((partition.rank()?, at)))
        .min()
        .map(|(_, at)| at)
}
