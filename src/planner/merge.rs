//! All shards' reports as one picture of the best band.

use std::ops::Range;

use crate::model::{Band, FairnessKey, ShardId, Timestamp, Weight};
use crate::tally::{Tally, TallyBoard};

/// What one shard holds of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The shard.
    pub shard: ShardId,
    /// How many due steps of the key it reported; at least 1.
    pub count: u32,
}

/// One key at the global band, over all shards.
#[derive(Clone, Debug, PartialEq)]
pub struct MergedKey {
    /// The key.
    pub key: FairnessKey,
    /// How many due steps all holders reported together.
    pub count: u64,
    /// Since when its oldest step has been due.
    pub since: Timestamp,
    /// The weight of that oldest step.
    pub weight: Weight,
    /// The shard with that oldest step; the lower one if two are equally old.
    pub oldest: ShardId,
    holders: Range<usize>,
}

/// The global band and its keys.
///
/// Shards whose best band is a worse one contribute nothing: there is no spill.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Merged {
    band: Option<Band>,
    keys: Vec<MergedKey>,
    holders: Vec<Holder>,
}

impl Merged {
    /// Merges the reports of a board.
    ///
    /// The reports are sorted by key, so this walks them side by side: for K keys on S shards it
    /// compares at most 2·K·S keys and sorts nothing.
    pub fn of(board: &TallyBoard) -> Self {
        let Some(band) = board.global_band() else {
            return Self::default();
        };
        let mut rests: Vec<(ShardId, &[Tally])> = board
            .reports()
            .filter(|(_, report)| report.band() == Some(band))
            .map(|(shard, report)| (shard, report.keys()))
            .collect();
        let most = rests.iter().map(|(_, rest)| rest.len()).sum();
        let mut merged = Self {
            band: Some(band),
            keys: Vec::with_capacity(most),
            holders: Vec::with_capacity(most),
        };
        while let Some(least) = rests
            .iter()
            .filter_map(|(_, rest)| rest.first())
            .map(|tally| &tally.key)
            .min()
        {
            merged.push(least, &mut rests);
        }
        merged
    }

    /// Takes one key from all rests that begin with it.
    fn push(&mut self, key: &FairnessKey, rests: &mut [(ShardId, &[Tally])]) {
        let first = self.holders.len();
        let mut entry: Option<MergedKey> = None;
        for (shard, rest) in rests {
            let Some((tally, others)) = rest.split_first().filter(|(head, _)| head.key == *key)
            else {
                continue;
            };
            *rest = others;
            self.holders.push(Holder {
                shard: *shard,
                count: tally.count,
            });
            let entry = entry.get_or_insert_with(|| MergedKey {
                key: tally.key.clone(),
                count: 0,
                since: tally.since,
                weight: tally.weight,
                oldest: *shard,
                holders: first..first,
            });
            entry.count += u64::from(tally.count);
            // Strictly older, in the order of the shards: of equals the lower shard decides.
            if tally.since < entry.since {
                entry.since = tally.since;
                entry.weight = tally.weight;
                entry.oldest = *shard;
            }
        }
        self.keys.extend(entry.map(|entry| MergedKey {
            holders: first..self.holders.len(),
            ..entry
        }));
    }

    /// Returns the least band with due work on any shard; `None` if nothing is due anywhere.
    pub const fn band(&self) -> Option<Band> {
        self.band
    }

    /// Returns the keys at the band, in the order of their bytes.
    pub fn keys(&self) -> &[MergedKey] {
        &self.keys
    }

    /// Returns who holds a key of this picture, in the order of the shards.
    pub fn holders(&self, key: &MergedKey) -> &[Holder] {
        &self.holders[key.holders.clone()]
    }

    /// Returns how many slots a plan can have: `capacity`, or all that is due if that is less.
    pub(super) fn slots(&self, capacity: usize) -> usize {
        let due = self
            .keys
            .iter()
            .fold(0_u64, |sum, key| sum.saturating_add(key.count));
        usize::try_from(due).map_or(capacity, |due| due.min(capacity))
    }
}
