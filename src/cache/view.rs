//! What the cache shows of itself.

use serde::Serialize;

use crate::model::{Band, ShardId, StepId, Turn};

/// The cache at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CacheView {
    /// The bound on the sum of all partitions.
    pub capacity: usize,
    /// How many candidates there are.
    pub total: usize,
    /// Whether the cache is closed.
    pub closed: bool,
    /// How many callers sleep until there is work.
    pub parked: usize,
    /// How many workers were asked to leave and have not yet come by.
    pub retiring: usize,
    /// Every shard that the cache has heard of, in order.
    pub partitions: Vec<PartitionView>,
    /// What has happened since the start.
    pub counters: Counters,
}

/// One shard's part of the cache.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartitionView {
    /// The shard.
    pub shard: ShardId,
    /// The band that it serves; `None` while it is empty.
    pub floor: Option<Band>,
    /// How many candidates it holds.
    pub depth: usize,
    /// How many of them a refill put there; they stand in front.
    pub planned: usize,
    /// How many of them were offered; they stand behind.
    pub offered: usize,
    /// How many the last refill put there.
    pub last_fill: usize,
    /// The depth at and under which a take asks for a refill.
    pub low_water: usize,
    /// The turn of the candidate in front.
    pub head_turn: Option<Turn>,
    /// The first few ids, in the order in which they will be taken.
    pub first: Vec<StepId>,
    /// How many taken ids a refill would leave out.
    pub taken: usize,
}

/// What has happened to a cache since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Refills while open.
    pub refills: u64,
    /// Candidates that refills put in.
    pub selected: u64,
    /// Candidates that one refill selected and a later one threw away: the refillers' waste.
    pub discarded: u64,
    /// Candidates that one refill selected and a later one selected again.
    pub kept: u64,
    /// Candidates that refills left out because a worker had taken them.
    pub duplicates: u64,
    /// Candidates that a smaller bound cut off.
    pub trimmed: u64,
    /// Offers that were admitted.
    pub offers_admitted: u64,
    /// Offers declined because the partition serves a better band.
    pub offers_worse_band: u64,
    /// Offers declined because the cache is full.
    pub offers_full: u64,
    /// Offers declined because the cache is closed.
    pub offers_closed: u64,
    /// Candidates that were taken.
    pub pops: u64,
    /// Tries to take from a partition that gave nothing.
    pub failed_try_pops: u64,
    /// Takes that asked for a refill.
    pub refill_signals: u64,
    /// Sleepers that were woken, whatever for.
    pub wakes: u64,
}
