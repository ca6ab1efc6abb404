//! The pick by luck: an independent weighted draw for each slot.

use super::merge::Merged;
use super::plan::Drawn;
use crate::model::{Turn, Weight};

/// Returns up to `capacity` slots, each drawn among the keys that have steps left, by weight.
///
/// `numbers` gives numbers in [0, 1), one a slot. All turns are equal. It costs O(K + C·log K) for
/// K keys and C slots.
pub fn order(merged: &Merged, capacity: usize, mut numbers: impl FnMut() -> f64) -> Vec<Drawn> {
    let mut left: Vec<u64> = merged.keys().iter().map(|key| key.count).collect();
    let mut tree = SumTree::new(merged.keys().iter().map(|key| key.weight));
    (0..merged.slots(capacity))
        .map(|_| {
            let key = tree.find(numbers());
            left[key] -= 1;
            if left[key] == 0 {
                tree.remove(key);
            }
            Drawn {
                key,
                turn: Turn::ZERO,
            }
        })
        .collect()
}

/// Weights as the leaves of a binary tree whose inner nodes are the sums of their children.
///
/// A sum is always computed from its two children and never by taking a weight away, so that what
/// a huge weight leaves behind when it goes is exactly what the small ones add up to.
struct SumTree {
    /// The root is 1, the children of n are 2n and 2n + 1, the leaves are the second half.
    sums: Vec<f64>,
    leaves: usize,
}

impl SumTree {
    /// Room for 2^64 of the greatest weights in one sum.
    const SCALE: f64 = 1.0 / 18_446_744_073_709_551_616.0;

    fn new(weights: impl ExactSizeIterator<Item = Weight>) -> Self {
        let leaves = weights.len().next_power_of_two();
        let mut sums = vec![0.0; 2 * leaves];
        for (leaf, weight) in sums[leaves..].iter_mut().zip(weights) {
            // The least weights must not vanish in the scaling: no key may become undrawable.
            *leaf = (weight.get() * Self::SCALE).max(f64::MIN_POSITIVE);
        }
        let mut tree = Self { sums, leaves };
        for node in (1..leaves).rev() {
            tree.add_up(node);
        }
        tree
    }

    fn add_up(&mut self, node: usize) {
        self.sums[node] = self.sums[2 * node] + self.sums[2 * node + 1];
    }

    /// Returns the leaf at this part of the whole; never one that is gone while another is left.
    fn find(&self, part: f64) -> usize {
        let mut target = part * self.sums[1];
        let mut node = 1;
        while node < self.leaves {
            let (left, right) = (self.sums[2 * node], self.sums[2 * node + 1]);
            // Rounding may leave a target just beyond what there is: then the last that is left.
            node *= 2;
            if target >= left && right > 0.0 {
                target -= left;
                node += 1;
            }
        }
        node - self.leaves
    }

    fn remove(&mut self, leaf: usize) {
        let mut node = self.leaves + leaf;
        self.sums[node] = 0.0;
        while node > 1 {
            node /= 2;
            self.add_up(node);
        }
    }
}
