//! The pick without luck: the least turn next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::lane::Standing;
use super::merge::Merged;
use super::plan::Drawn;
use crate::model::Turn;

/// Returns up to `capacity` slots: each goes to the key whose next step ends first in virtual time.
///
/// Equal turns go by the order of the keys' bytes. Nothing is taken by this: it moves a copy of
/// the passes. It costs O(K + C·log K) for K keys and C slots.
pub fn order(merged: &Merged, standing: &Standing, capacity: usize) -> Vec<Drawn> {
    let slots = merged.slots(capacity);
    let strides: Vec<Turn> = merged
        .keys()
        .iter()
        .map(|key| Turn::stride(key.weight))
        .collect();
    let mut left: Vec<u64> = merged.keys().iter().map(|key| key.count).collect();
    let mut heap: BinaryHeap<_> = starts(merged, standing)
        .zip(&strides)
        .enumerate()
        .map(|(at, (start, stride))| Reverse((start.plus(*stride), at)))
        .collect();
    let mut order = Vec::with_capacity(slots);
    while order.len() < slots {
        let Some(mut top) = heap.peek_mut() else {
            break;
        };
        let Reverse((turn, key)) = *top;
        order.push(Drawn { key, turn });
        left[key] -= 1;
        if left[key] == 0 {
            PeekMut::pop(top);
        } else {
            *top = Reverse((turn.plus(strides[key]), key));
        }
    }
    order
}

/// Returns where each merged key starts; a key without a pass starts at the clock.
fn starts(merged: &Merged, standing: &Standing) -> impl Iterator<Item = Turn> {
    // Both are sorted by key: one walk side by side. Equality is asked first, as it is the rule and
    // costs nothing where both have the key from the same report.
    let mut passes = standing.passes().peekable();
    merged.keys().iter().map(move |entry| {
        loop {
            if let Some((_, pass)) = passes.next_if(|(key, _)| **key == entry.key) {
                return pass;
            }
            if passes.next_if(|(key, _)| **key < entry.key).is_none() {
                return standing.clock();
            }
        }
    })
}
