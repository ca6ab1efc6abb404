//! Which shard fills which slot.

use std::cmp::Reverse;

use super::merge::{Holder, Merged};
use super::plan::Drawn;
use crate::model::ShardId;

/// Returns for each slot of an order the shard that fills it.
///
/// Of each key the first slot goes to the shard with its oldest step, whatever the proportions: a
/// lone old step beside thousands of fresh ones elsewhere would be rounded down to nothing in each
/// and every plan. The other slots are shared out in proportion to what the shards hold, by the
/// largest remainder, and stand in the order of the shards. Everyone who computes this from the
/// same order and picture gets the same answer, so the shards' parts never overlap.
///
/// A slot has no owner only if the order has more slots of a key than its holders have steps.
pub fn owners(merged: &Merged, order: &[Drawn]) -> Vec<Option<ShardId>> {
    let mut times = vec![0_usize; merged.keys().len()];
    for slot in order {
        times[slot.key] += 1;
    }
    // The owners of one key's slots stand side by side; each key's next one is where `next` says.
    let mut line = Vec::with_capacity(order.len());
    let mut next = vec![0; times.len()];
    for (at, key) in merged.keys().iter().enumerate() {
        next[at] = line.len();
        let end = line.len() + times[at];
        if times[at] > 0 {
            line.push(Some(key.oldest));
            share_out(merged.holders(key), key.oldest, times[at] - 1, &mut line);
            line.resize(end, None);
        }
    }
    order
        .iter()
        .map(|slot| {
            let at = next[slot.key];
            next[slot.key] += 1;
            line[at]
        })
        .collect()
}

/// Appends the owners of a key's further slots, `wanted` of them or as many as are held.
fn share_out(holders: &[Holder], oldest: ShardId, wanted: usize, line: &mut Vec<Option<ShardId>>) {
    if wanted == 0 {
        return;
    }
    let held = |holder: &Holder| u64::from(holder.count) - u64::from(holder.shard == oldest);
    let sum: u64 = holders.iter().map(held).sum();
    let rest = u64::try_from(wanted).map_or(sum, |wanted| wanted.min(sum));
    if sum == 0 {
        return;
    }
    let ideal = |holder| u128::from(rest) * u128::from(held(holder));
    let mut shares: Vec<u128> = holders
        .iter()
        .map(|holder| ideal(holder) / u128::from(sum))
        .collect();
    let mut by_remainder: Vec<usize> = (0..holders.len()).collect();
    by_remainder.sort_by_key(|at| Reverse(ideal(&holders[*at]) % u128::from(sum)));
    // What is missing is less than the number of remainders above 0, so nobody gets more than it
    // has.
    let mut missing = u128::from(rest) - shares.iter().sum::<u128>();
    for at in by_remainder {
        if missing == 0 {
            break;
        }
        shares[at] += 1;
        missing -= 1;
    }
    for (holder, share) in holders.iter().zip(shares) {
        line.extend((0..share).map(|_| Some(holder.shard)));
    }
}
