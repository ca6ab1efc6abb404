//! Which shard a new step goes to.
//!
//! A store's ids and the order within a key hang on this choice, so it must come out the same in
//! every version and on every machine: the golden test below pins it.

use std::hash::Hasher as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

use crate::model::{FairnessKey, ShardId};

/// How a store spreads its steps over its shards; chosen once, when it is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// All steps of a key go to one shard, so that first in, first out holds exactly within a key.
    #[default]
    Key,
    /// Steps go to the shards in turn: for one hot key on a large machine.
    Spread,
}

/// Chooses shards for one store, in one process.
///
/// Threads may share it: under [`Placement::Spread`] they take turns from one counter.
#[derive(Debug)]
pub struct Placer {
    placement: Placement,
    shards: u8,
    turn: AtomicUsize,
}

impl Placer {
    /// Returns a placer for the shards `0..shards`; the count is brought into
    /// 1..=[`ShardId::MAX_SHARDS`].
    ///
    /// Under [`Placement::Spread`] the first step goes to shard `start` modulo the count. Processes
    /// that store one step each should start differently, or all steps meet on one shard.
    pub fn new(placement: Placement, shards: u8, start: usize) -> Self {
        Self {
            placement,
            shards: shards.clamp(1, ShardId::MAX_SHARDS),
            turn: AtomicUsize::new(start),
        }
    }

    /// Returns how many shards there are.
    pub const fn shards(&self) -> u8 {
        self.shards
    }

    /// Returns where the next step of this key would go, if no other came first.
    pub fn peek(&self, key: &FairnessKey) -> ShardId {
        self.choose(key, || self.turn.load(Ordering::Relaxed))
    }

    /// Chooses where a step of this key goes.
    pub fn place(&self, key: &FairnessKey) -> ShardId {
        self.choose(key, || self.turn.fetch_add(1, Ordering::Relaxed))
    }

    fn choose(&self, key: &FairnessKey, turn: impl FnOnce() -> usize) -> ShardId {
        let mut shards = ShardId::first(self.shards);
        match self.placement {
            Placement::Key => highest(key, shards),
            Placement::Spread => shards.nth(turn() % usize::from(self.shards)),
        }
        .expect("a placer has at least one shard")
    }
}

/// Returns the shard whose score with this key is the highest; of equals the lowest number.
///
/// Rendezvous hashing needs no table, and a store that is made again with one shard more moves only
/// the keys that the new shard wins.
fn highest(key: &FairnessKey, shards: impl DoubleEndedIterator<Item = ShardId>) -> Option<ShardId> {
    // Of equal scores `max_by_key` takes the last, which is the lowest number in reverse.
    shards.rev().max_by_key(|shard| score(key, *shard))
}

fn score(key: &FairnessKey, shard: ShardId) -> u64 {
    // The hash keys are part of the format of every store. They need not be secret: who chooses the
    // fairness keys already decides what runs.
    let mut hasher = SipHasher13::new_with_keys(0, 0);
    hasher.write(key.as_str().as_bytes());
    hasher.write(&[shard.number()]);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> FairnessKey {
        text.parse().unwrap()
    }

    fn shards_of(placement: Placement, count: u8, keys: &[&str]) -> String {
        let placer = Placer::new(placement, count, 0);
        keys.iter()
            .map(|text| placer.place(&key(text)).letter())
            .collect()
    }

    const KEYS: [&str; 12] = [
        "default", "a", "b", "c", "alice", "bob", "carol", "ci", "nightly", "Ω mega", "x y", "0",
    ];

    /// The scores were computed by another implementation of SipHash-1-3.
    #[test]
    fn a_key_goes_where_it_has_always_gone() {
        let shard = |number| ShardId::new(number).unwrap();
        assert_eq!(score(&key("default"), shard(0)), 0xde04_aa9e_dcce_6f8d);
        assert_eq!(score(&key("Ω mega"), shard(25)), 0x75af_cb79_db17_568c);
        assert_eq!(shards_of(Placement::Key, 1, &KEYS), "aaaaaaaaaaaa");
        assert_eq!(shards_of(Placement::Key, 4, &KEYS), "acbbbdbbaadb");
        assert_eq!(shards_of(Placement::Key, 26, &KEYS), "kebjqywzgwsm");
    }

    #[test]
    fn another_shard_takes_keys_only_for_itself() {
        for count in 1..ShardId::MAX_SHARDS {
            let (before, after) = (
                Placer::new(Placement::Key, count, 0),
                Placer::new(Placement::Key, count + 1, 0),
            );
            for number in 0..200 {
                let key = key(&number.to_string());
                let (old, new) = (before.place(&key), after.place(&key));
                assert!(new == old || new.number() == count, "{key} moved to {new}");
            }
        }
    }

    #[test]
    fn every_shard_gets_its_part_of_many_keys() {
        let placer = Placer::new(Placement::Key, 4, 0);
        let mut parts = [0_u32; 4];
        for number in 0..4_000 {
            parts[placer.place(&key(&format!("user{number}"))).index()] += 1;
        }
        assert!(
            parts.iter().all(|part| (900..1_100).contains(part)),
            "{parts:?}"
        );
    }

    #[test]
    fn spread_steps_take_the_shards_in_turn_whatever_their_keys() {
        let placer = Placer::new(Placement::Spread, 3, 2);
        let taken: String = ["a", "a", "b", "a"]
            .map(|text| {
                let peeked = placer.peek(&key(text));
                assert_eq!(placer.place(&key(text)), peeked);
                peeked.letter()
            })
            .iter()
            .collect();
        assert_eq!(taken, "cabc");
    }

    #[test]
    fn there_is_always_a_shard() {
        assert_eq!(Placer::new(Placement::Key, 0, 0).shards(), 1);
        assert_eq!(Placer::new(Placement::Key, 255, 0).shards(), 26);
    }
}
