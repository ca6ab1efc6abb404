//! What comes out of planning: the decision for all shards, and one shard's part of it.

use std::sync::Arc;

use super::lane::Standing;
use super::merge::Merged;
use super::{lottery, slice, stride};
use crate::model::{Band, FairnessKey, ShardId, Turn};
use crate::tally::TallyBoard;

/// One place in the order of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// Which of the merged keys, by its place among them.
    pub key: usize,
    /// Its turn; equal for all where turns are not used.
    pub turn: Turn,
}

/// One place in a plan, to be filled with one step of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The key.
    pub key: FairnessKey,
    /// Its turn in the band's virtual time.
    pub turn: Turn,
}

/// One shard's answer for one cycle.
///
/// No slots means: hold no candidates. It does not say why; for that, compare the band with the
/// shard's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The best band with due work on any shard; `None` if nothing is due anywhere. All slots are
    /// of this band.
    pub band: Option<Band>,
    /// What to fill, in order; a key that stands here three times means three of its steps.
    pub slots: Vec<Slot>,
    /// The slots' distinct keys in the order of their first appearance.
    pub keys: Vec<FairnessKey>,
    /// The most slots of one key.
    pub per_key_cap: usize,
    /// The seed that the slots were drawn with, for replaying them; `None` if no luck was needed.
    pub seed: Option<u64>,
}

/// The order of slots over all shards and who fills each: everything that a plan is cut from.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// What all shards hold at the global band.
    pub merged: Arc<Merged>,
    /// The slots, at most the capacity.
    pub order: Vec<Drawn>,
    /// For each slot the shard that fills it.
    pub owners: Vec<Option<ShardId>>,
    /// The seed that the slots were drawn with, if they were drawn.
    pub seed: Option<u64>,
}

/// A decision and what it was made from, kept to be looked at.
#[derive(Clone, Debug, Default)]
pub struct Made {
    /// What was decided.
    pub decision: Decision,
    /// The reports that it was decided on.
    pub board: TallyBoard,
    /// The band's clock and passes that it was decided on; empty for a lottery.
    pub standing: Standing,
    /// The most slots that it could have.
    pub capacity: usize,
}

impl Decision {
    /// Decides by the least turn. The same picture, standing and capacity give the same decision.
    pub fn by_stride(merged: Arc<Merged>, standing: &Standing, capacity: usize) -> Self {
        let order = stride::order(&merged, standing, capacity);
        Self::of(merged, order, None)
    }

    /// Decides by lot, with numbers in [0, 1) that come from `seed`. The same picture, numbers and
    /// capacity give the same decision.
    pub fn by_lottery(
        merged: Arc<Merged>,
        capacity: usize,
        seed: u64,
        numbers: impl FnMut() -> f64,
    ) -> Self {
        let order = lottery::order(&merged, capacity, numbers);
        Self::of(merged, order, Some(seed))
    }

    fn of(merged: Arc<Merged>, order: Vec<Drawn>, seed: Option<u64>) -> Self {
        let owners = slice::owners(&merged, &order);
        Self {
            merged,
            order,
            owners,
            seed,
        }
    }

    /// Returns what one shard is to fill: its slots, in the decision's order.
    pub fn plan(&self, shard: ShardId) -> Plan {
        let mut plan = Plan {
            band: self.merged.band(),
            seed: self.seed,
            ..Plan::default()
        };
        let mut times = vec![0_usize; self.merged.keys().len()];
        for (drawn, owner) in self.order.iter().zip(&self.owners) {
            if *owner != Some(shard) {
                continue;
            }
            let key = &self.merged.keys()[drawn.key].key;
            let times = &mut times[drawn.key];
            if *times == 0 {
                plan.keys.push(key.clone());
            }
            *times += 1;
            plan.per_key_cap = plan.per_key_cap.max(*times);
            plan.slots.push(Slot {
                key: key.clone(),
                turn: drawn.turn,
            });
        }
        plan
    }
}
