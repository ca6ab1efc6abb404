//! Who keeps how much when the cache holds more than it may.

/// Returns how many candidates each partition keeps of its `depths`, `room` in all.
///
/// Each keeps its proportional share, rounded down; what rounding leaves over goes one by one to the
/// largest remainders, and among equal ones to the lower shard. Nobody keeps more than it has. If
/// there is room for all, all keep everything.
pub(super) fn shares(depths: &[usize], room: usize) -> Vec<usize> {
    let total: usize = depths.iter().sum();
    if total <= room {
        return depths.to_vec();
    }
    let mut kept: Vec<usize> = depths.iter().map(|depth| depth * room / total).collect();
    let left_over = room - kept.iter().sum::<usize>();
    let mut by_remainder: Vec<usize> = (0..depths.len()).collect();
    // A stable sort: equal remainders stay in the order of the shards.
    by_remainder.sort_by_key(|&at| std::cmp::Reverse(depths[at] * room % total));
    for &at in by_remainder.iter().take(left_over) {
        kept[at] += 1;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rounding_leaves_over_goes_to_the_largest_remainders_then_the_lower_shards() {
        assert_eq!(shares(&[1, 1, 1], 2), [1, 1, 0]);
        assert_eq!(shares(&[5, 3, 2], 4), [2, 1, 1]);
        assert_eq!(shares(&[0, 7, 0], 3), [0, 3, 0]);
        assert_eq!(shares(&[2, 2], 4), [2, 2]);
        assert_eq!(shares(&[2, 2], 9), [2, 2]);
        assert_eq!(shares(&[], 1), [0_usize; 0]);
    }

    #[test]
    fn i26_every_share_is_within_one_of_its_proportion() {
        for a in 0..9_usize {
            for b in 0..9 {
                for c in 0..9 {
                    for room in 1..12 {
                        let depths = [a, b, c];
                        let total = a + b + c;
                        let kept = shares(&depths, room);
                        assert_eq!(kept.iter().sum::<usize>(), total.min(room));
                        for (depth, kept) in depths.into_iter().zip(kept) {
                            assert!(kept <= depth);
                            if total > room {
                                assert!((kept * total).abs_diff(depth * room) < total);
                            }
                        }
                    }
                }
            }
        }
    }
}
