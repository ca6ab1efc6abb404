//! Several runners on one store, and how they keep out of each other's way.
//!
//! All runners see the same due steps and would choose the same ones: with three of them more than
//! half of all claims were lost to a faster one. So each prefers the steps whose numbers fall to it
//! (scattered over the live runners). It is a preference and never a right: what is taken is
//! still decided by the claim, a runner that finds nothing of its own takes what there is, and a key's
//! oldest step is taken by whoever sees it wait for too long, so that a busy or stuck runner's steps
//! are late by that and not by its patience.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::model::{FairnessKey, LocalId};

/// By so many steps of a key runners may be apart before one takes the other for stuck. Each plans some
/// keys at a time, so they come forward unevenly; with none, the oldest steps of a key were often all
/// the others', and were tried for.
const SLACK: u32 = 16;

/// How many live runners there are, and which of them this one is.
#[derive(Debug)]
pub struct Crowd(AtomicU64);

impl Default for Crowd {
    fn default() -> Self {
        Self(AtomicU64::new(1))
    }
}

impl Crowd {
    /// Takes note of the live runners: this one is number `mine`, from 0, of `of`. Numbers that
    /// cannot be (none at all, or beyond the last) mean that it is alone.
    pub fn set(&self, mine: u32, of: u32) {
        let (mine, of) = if mine < of { (mine, of) } else { (0, 1) };
        self.0
            .store(u64::from(mine) << 32 | u64::from(of), Ordering::Relaxed);
    }

    fn get(&self) -> Split {
        let packed = self.0.load(Ordering::Relaxed);
        Split {
            mine: (packed >> 32).cast_signed(),
            of: (packed & 0xffff_ffff).cast_signed(),
        }
    }
}

/// A runner's part of a store's steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Split {
    mine: i64,
    of: i64,
}

impl Split {
    const fn is_mine(self, id: LocalId) -> bool {
        // The remainder of the number itself would give all steps of a key to one runner where keys take
        // turns in coming in.
        (scattered(id).cast_signed() & i64::MAX) % self.of == self.mine
    }
}

/// Returns a number that looks drawn and is the same in every process (the finisher of `SplitMix64`).
const fn scattered(id: LocalId) -> u64 {
    let mut mixed = id.get().cast_unsigned();
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Chooses among the fetched steps of one shard, and remembers which heads nobody takes.
#[derive(Debug, Default)]
pub(super) struct Chooser {
    /// For each key of the last plan its oldest step that is another runner's, and since when.
    heads: BTreeMap<FairnessKey, (LocalId, Duration)>,
}

impl Chooser {
    /// Returns how many of a key's steps must be fetched so that, most of the time, `count` of them are
    /// ours.
    pub(super) fn reach(crowd: &Crowd, count: u32) -> u32 {
        match u32::try_from(crowd.get().of) {
            Ok(of) if of > 1 => count.saturating_add(SLACK).saturating_mul(of),
            Ok(_) | Err(_) => count,
        }
    }

    /// Reduces each key's steps, oldest first, to those that this runner should try for. `now` is on the
    /// monotonic clock.
    ///
    /// Others' steps are taken only where there is none of its own, also while workers sleep: short
    /// steps let them sleep for a moment between any two, and every third claim was lost to that.
    pub(super) fn choose(
        &mut self,
        crowd: &Crowd,
        lists: &mut [(FairnessKey, Vec<LocalId>)],
        now: Duration,
        patience: Duration,
    ) {
        let split = crowd.get();
        if split.of <= 1 {
            self.heads.clear();
            return;
        }
        let mut heads = BTreeMap::new();
        let own: usize = lists
            .iter()
            .map(|(_, ids)| ids.iter().filter(|id| split.is_mine(**id)).count())
            .sum();
        for (key, ids) in lists {
            let head = ids.first().copied().filter(|id| !split.is_mine(*id));
            let mut stale = None;
            if let Some(head) = head {
                let since = match self.heads.get(key) {
                    Some((known, since)) if *known == head => *since,
                    _ => now,
                };
                if now.saturating_sub(since) >= patience {
                    stale = Some(head);
                }
                heads.insert(key.clone(), (head, since));
            }
            let (mine, others): (Vec<LocalId>, Vec<LocalId>) =
                ids.iter().partition(|id| split.is_mine(**id));
            *ids = stale.into_iter().chain(mine).collect();
            if own == 0 {
                ids.extend(others.into_iter().filter(|id| stale != Some(*id)));
            }
        }
        self.heads = heads;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(1);

    fn ids(numbers: &[i64]) -> Vec<LocalId> {
        numbers.iter().copied().map(LocalId::new).collect()
    }

    fn chosen(chooser: &mut Chooser, crowd: &Crowd, of: &[i64], at: u64) -> Vec<LocalId> {
        let mut lists = [(FairnessKey::default(), ids(of))];
        chooser.choose(crowd, &mut lists, Duration::from_millis(at), PATIENCE);
        let [(_, ids)] = lists;
        ids
    }

    #[test]
    fn a_runner_alone_takes_all_in_their_order() {
        let (mut chooser, crowd) = (Chooser::default(), Crowd::default());
        assert_eq!(chosen(&mut chooser, &crowd, &[1, 2, 3], 0), ids(&[1, 2, 3]));
        crowd.set(5, 3);
        assert_eq!(chosen(&mut chooser, &crowd, &[1, 2, 3], 0), ids(&[1, 2, 3]));
        assert_eq!(Chooser::reach(&crowd, 5), 5);
    }

    #[test]
    fn busy_runners_share_without_meeting() {
        let all: Vec<i64> = (1..=9).collect();
        let mut met = Vec::new();
        for mine in 0..3 {
            let crowd = Crowd::default();
            crowd.set(mine, 3);
            met.extend(chosen(&mut Chooser::default(), &crowd, &all, 0));
        }
        met.sort_unstable();
        assert_eq!(met, ids(&all));
    }

    /// Parts a key's steps into those of one runner of two, and the others'.
    fn parted(all: &[i64]) -> (Vec<LocalId>, Vec<LocalId>) {
        let split = Split { mine: 0, of: 2 };
        ids(all).into_iter().partition(|id| split.is_mine(*id))
    }

    #[test]
    fn a_runner_takes_others_steps_only_where_it_has_none() {
        let crowd = Crowd::default();
        crowd.set(0, 2);
        let of = |all: &[LocalId]| {
            let all: Vec<i64> = all.iter().map(|id| id.get()).collect();
            chosen(&mut Chooser::default(), &crowd, &all, 0)
        };
        let all: Vec<i64> = (1..=20).collect();
        let (mine, others) = parted(&all);
        assert!(mine.len() > 5 && others.len() > 5);
        assert_eq!(of(&ids(&all)), mine);
        // It would leave its cache empty, and nothing would turn it.
        assert_eq!(of(&others), others);
    }

    /// Where keys come in by turns, the steps of each are those of every third number, or every fourth.
    #[test]
    fn every_runner_has_a_part_of_every_key_however_they_come_in() {
        for turns in 1..=16 {
            for of in 2..=8 {
                let numbers = (0..of * 50).map(|nth| 3 + nth * turns);
                let mut parts = vec![0; usize::try_from(of).unwrap()];
                for id in numbers.map(LocalId::new) {
                    for (mine, part) in (0..).zip(&mut parts) {
                        *part += i32::from(Split { mine, of }.is_mine(id));
                    }
                }
                assert!(
                    parts.iter().all(|part| (25..=75).contains(part)),
                    "{turns} {of}: {parts:?}"
                );
            }
        }
    }

    /// Otherwise the oldest step of a key would wait as long as the runner that it falls to is stuck.
    #[test]
    fn a_head_that_nobody_takes_is_taken_by_whoever_sees_it() {
        let mut chooser = Chooser::default();
        let crowd = Crowd::default();
        crowd.set(0, 2);
        let all: Vec<i64> = (1..=20).collect();
        let (mine, others) = parted(&all);
        // From the first one on that is another's.
        let late: Vec<i64> = (others[0].get()..=20).collect();
        let (mine_late, _) = parted(&late);
        assert_eq!(chosen(&mut chooser, &crowd, &all, 0), mine);
        let at = |chooser: &mut Chooser, millis| chosen(chooser, &crowd, &late, millis);
        assert_eq!(at(&mut chooser, 0), mine_late);
        assert_eq!(at(&mut chooser, 999), mine_late);
        let with_head: Vec<LocalId> = others.iter().take(1).chain(&mine_late).copied().collect();
        assert_eq!(at(&mut chooser, 1000), with_head);
        // The next one has waited for as long only from now on.
        let next: Vec<i64> = (others[1].get()..=20).collect();
        let (mine_next, _) = parted(&next);
        assert_eq!(chosen(&mut chooser, &crowd, &next, 1500), mine_next);
    }
}
