//! What each shard says is due, and the board of latest reports.
//!
//! A shard's part in planning is declared, never inferred: it reports what it saw (also when it saw
//! nothing), or it is cleared because it could not look. Silence means that the last report still
//! holds; there is no time-out. Reports are replaced whole and never changed, so a plan works on a
//! snapshot of pointers without holding any lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{Band, FairnessKey, ShardId, Span, Timestamp, Weight};

/// One key's aggregate on one shard, at the shard's best due band.
///
/// It stands for many steps: a report's size grows with the keys, never with the backlog.
#[derive(Clone, Debug, PartialEq)]
pub struct Tally {
    /// The key.
    pub key: FairnessKey,
    /// How many due steps it has there; may be cut at the planning capacity.
    pub count: u32,
    /// Since when its oldest due step has been due.
    pub since: Timestamp,
    /// The weight of that oldest step, so that no key raises its share by queueing newer, heavier
    /// work.
    pub weight: Weight,
}

/// One shard's report: its best due band and what each key has there.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardTally {
    /// The best band with due work; `None` if nothing is due.
    band: Option<Band>,
    /// One entry a key, in the order of the keys' bytes, none with a count of 0.
    keys: Vec<Tally>,
}

impl ShardTally {
    /// Returns the report of a shard that looked and saw nothing.
    pub const fn nothing() -> Self {
        Self {
            band: None,
            keys: Vec::new(),
        }
    }

    /// Returns the report of a shard whose best due band is `band`.
    ///
    /// Entries with a count of 0 are left out: they would set a band that nobody can serve. Entries
    /// are put into the order of their keys; two of one key become one (counts added, age and
    /// weight from the older).
    pub fn new(band: Band, mut keys: Vec<Tally>) -> Self {
        keys.retain(|tally| tally.count > 0);
        if !keys.is_sorted_by(|a, b| a.key < b.key) {
            keys.sort_by(|a, b| a.key.cmp(&b.key).then(a.since.cmp(&b.since)));
            keys.dedup_by(|later, kept| {
                let same = later.key == kept.key;
                if same {
                    kept.count = kept.count.saturating_add(later.count);
                }
                same
            });
        }
        if keys.is_empty() {
            Self::nothing()
        } else {
            Self {
                band: Some(band),
                keys,
            }
        }
    }

    /// Returns the best band with due work.
    pub const fn band(&self) -> Option<Band> {
        self.band
    }

    /// Returns one entry a key, in the order of the keys' bytes.
    pub fn keys(&self) -> &[Tally] {
        &self.keys
    }

    /// Returns the entry of a key.
    pub fn get(&self, key: &FairnessKey) -> Option<&Tally> {
        self.keys
            .binary_search_by(|tally| tally.key.cmp(key))
            .ok()
            .map(|at| &self.keys[at])
    }
}

/// The latest report of each shard that takes part.
///
/// Cloning copies pointers; the clone is a snapshot.
#[derive(Clone, Debug, Default)]
pub struct TallyBoard {
    reports: BTreeMap<ShardId, (Arc<ShardTally>, Timestamp)>,
}

impl TallyBoard {
    /// Replaces a shard's report.
    pub fn report(&mut self, shard: ShardId, tally: Arc<ShardTally>, now: Timestamp) {
        self.reports.insert(shard, (tally, now));
    }

    /// Takes a shard out until it reports again.
    pub fn clear(&mut self, shard: ShardId) {
        self.reports.remove(&shard);
    }

    /// Takes all shards out.
    pub fn reset(&mut self) {
        self.reports.clear();
    }

    /// Returns the reports in the order of the shards.
    pub fn reports(&self) -> impl Iterator<Item = (ShardId, &Arc<ShardTally>)> {
        self.reports
            .iter()
            .map(|(shard, (tally, _))| (*shard, tally))
    }

    /// Returns a shard's report.
    pub fn get(&self, shard: ShardId) -> Option<&Arc<ShardTally>> {
        self.reports.get(&shard).map(|(tally, _)| tally)
    }

    /// Returns how long ago the stalest shard reported; zero if none takes part.
    pub fn age(&self, now: Timestamp) -> Span {
        self.reports
            .values()
            .map(|(_, at)| now.since(*at))
            .max()
            .unwrap_or_default()
    }

    /// Returns how long ago a shard reported.
    pub fn age_of(&self, shard: ShardId, now: Timestamp) -> Option<Span> {
        self.reports.get(&shard).map(|(_, at)| now.since(*at))
    }

    /// Returns the least band over the shards with due work.
    pub fn global_band(&self) -> Option<Band> {
        self.reports
            .values()
            .filter_map(|(tally, _)| tally.band())
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(key: &str, count: u32, since: i64) -> Tally {
        Tally {
            key: key.parse().unwrap(),
            count,
            since: Timestamp::from_millis(since),
            weight: Weight::ONE,
        }
    }

    /// A shard that set the band with keys that have nothing due would idle all others for ever.
    #[test]
    fn a_key_with_nothing_due_sets_no_band() {
        let empty = ShardTally::new(Band::DEFAULT, vec![tally("a", 0, 1)]);
        assert_eq!(empty, ShardTally::nothing());
    }

    #[test]
    fn a_key_that_was_told_twice_counts_once_with_its_older_age() {
        let merged = ShardTally::new(
            Band::DEFAULT,
            vec![tally("b", 1, 9), tally("a", 2, 5), tally("b", 3, 4)],
        );
        assert_eq!(merged.keys(), [tally("a", 2, 5), tally("b", 4, 4)]);
        assert_eq!(merged.get(&"b".parse().unwrap()), Some(&tally("b", 4, 4)));
        assert_eq!(merged.get(&"c".parse().unwrap()), None);
    }
}
