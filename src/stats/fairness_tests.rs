use proptest::prelude::*;

use super::*;
use crate::model::{ShardId, StepId, Weight};
use crate::stats::{Outcome, in_order};

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn key(number: usize) -> FairnessKey {
    format!("k{number}").parse().unwrap()
}

fn took(id: i64, of: usize, weight: f64, since: i64, claimed: i64) -> Dispatch {
    Dispatch {
        id: StepId::new(ShardId::new(0).unwrap(), crate::model::LocalId::new(id)),
        band: Band::DEFAULT,
        key: key(of),
        weight: Weight::new(weight).unwrap(),
        since: at(since),
        claimed: at(claimed),
        started: None,
        ended: None,
        outcome: Outcome::Running,
    }
}

fn waits(of: usize, weight: f64, since: i64) -> Waiting {
    Waiting {
        band: Band::DEFAULT,
        key: key(of),
        weight: Weight::new(weight).unwrap(),
        since: at(since),
    }
}

#[test]
fn a_key_is_promised_its_weights_part_of_the_slots_while_it_had_work() {
    // k0 waits all along with weight 1; k1, weight 3, comes at 25 and still waits at the end.
    let mut all = vec![
        took(1, 0, 1.0, 0, 10),
        took(2, 0, 1.0, 0, 20),
        took(3, 1, 3.0, 25, 30),
        took(4, 1, 3.0, 25, 40),
        took(5, 1, 3.0, 25, 50),
        took(6, 0, 1.0, 0, 60),
    ];
    in_order(&mut all);
    let found = fairness(&all, &[waits(0, 1.0, 0), waits(1, 3.0, 25)], at(0), at(100));
    let [first, second] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!((first.slots, first.taken), (6, 3));
    assert!((first.promised - 3.0).abs() < 1e-9, "{first:?}");
    assert_eq!(
        (first.longest_slots, first.longest),
        (3, Span::from_millis(40))
    );
    assert_eq!((second.slots, second.taken), (4, 3));
    assert!((second.promised - 3.0).abs() < 1e-9, "{second:?}");
    assert!((second.variance - 4.0 * 0.75 * 0.25).abs() < 1e-9);
    // It has waited since its last slot, and still does.
    assert_eq!(
        (second.longest_slots, second.longest),
        (1, Span::from_millis(50))
    );
}

#[test]
fn the_weight_is_that_of_the_oldest_waiting_step() {
    let mut all = vec![
        took(1, 0, 1.0, 0, 10),
        took(2, 0, 9.0, 1, 30),
        took(3, 1, 1.0, 0, 20),
        took(4, 1, 1.0, 0, 40),
    ];
    in_order(&mut all);
    let found = fairness(&all, &[], at(0), at(50));
    // 1/2 at the first slot, then 9/10 at the two in which the heavier one was the oldest.
    assert!((found[0].promised - 2.3).abs() < 1e-9, "{found:?}");
    assert!((found[1].promised - (0.5 + 0.1 + 0.1 + 1.0)).abs() < 1e-9);
}

#[test]
fn what_waited_before_the_window_counts_from_its_beginning() {
    let all = [took(1, 0, 1.0, 0, 1_000)];
    let found = fairness(&all, &[], at(900), at(1_100));
    assert_eq!(found[0].longest, Span::from_millis(100));
}

/// The same numbers, slot by slot and key by key.
struct Naive<'a> {
    all: &'a [Dispatch],
    waiting: &'a [Waiting],
    from: Timestamp,
    until: Timestamp,
}

impl Naive<'_> {
    fn shares(&self) -> Vec<KeyShare> {
        let taken = self.all.iter().map(|one| (one.band, one.key.clone()));
        let still = self.waiting.iter().map(|one| (one.band, one.key.clone()));
        let keys: BTreeSet<(Band, FairnessKey)> = taken.chain(still).collect();
        keys.iter()
            .map(|(band, key)| self.share(*band, key, &keys))
            .collect()
    }

    /// Returns since when the key's steps that are not claimed before this slot are due, with their
    /// weights.
    fn due(&self, band: Band, key: &FairnessKey, slot: usize) -> Vec<(Timestamp, f64)> {
        let later = self.all[slot..]
            .iter()
            .filter(|one| one.band == band && one.key == *key)
            .map(|one| (one.since, one.weight.get()));
        let still = self
            .waiting
            .iter()
            .filter(|one| one.band == band && one.key == *key)
            .map(|one| (one.since, one.weight.get()));
        later.chain(still).collect()
    }

    /// Returns the key's weight at a slot; `None` if it has nothing waiting then.
    fn weight(&self, band: Band, key: &FairnessKey, slot: usize) -> Option<f64> {
        let now = self.all[slot].claimed;
        let due = self.due(band, key, slot).into_iter();
        due.filter(|(since, _)| *since <= now)
            .min_by_key(|(since, _)| *since)
            .map(|(_, weight)| weight)
    }

    fn share(
        &self,
        band: Band,
        key: &FairnessKey,
        keys: &BTreeSet<(Band, FairnessKey)>,
    ) -> KeyShare {
        let mut share = Account::new(band, key).share;
        let began = |slot: usize| {
            let due = self.due(band, key, slot).into_iter();
            due.map(|(since, _)| since.max(self.from)).min()
        };
        let (mut passed, mut waits_since) = (0, None);
        for (slot, one) in self.all.iter().enumerate() {
            if one.band != band {
                continue;
            }
            let Some(own) = self.weight(band, key, slot) else {
                continue;
            };
            let others = keys.iter().filter(|(other, _)| *other == band);
            let total: f64 = others
                .filter_map(|(_, other)| self.weight(band, other, slot))
                .sum();
            let part = own / total;
            share.slots += 1;
            share.promised += part;
            share.variance += part * (1.0 - part);
            let start = waits_since.or_else(|| began(slot)).unwrap();
            waits_since = Some(start);
            if one.key == *key {
                share.taken += 1;
                share.longest = share.longest.max(one.claimed.since(start));
                passed = 0;
                let mut left = self.due(band, key, slot + 1).into_iter();
                let goes_on = left.any(|(since, _)| since <= one.claimed);
                waits_since = goes_on.then_some(one.claimed);
            } else {
                passed += 1;
                share.longest_slots = share.longest_slots.max(passed);
            }
        }
        let left = began(self.all.len()).filter(|since| *since <= self.until);
        if let Some(since) = left {
            let start = waits_since.unwrap_or(since);
            share.longest = share.longest.max(self.until.since(start));
        }
        share
    }
}

/// Steps of a few keys and two bands: since, wait, key, weight, band.
fn steps() -> impl Strategy<Value = Vec<(i64, i64, usize, u32, u32)>> {
    prop::collection::vec(
        (0..60_i64, 0..40_i64, 0..5_usize, 1..9_u32, 1..3_u32),
        0..60,
    )
}

proptest! {
    #[test]
    fn the_sums_are_those_of_a_slot_by_slot_account(
        taken in steps(),
        left in prop::collection::vec((0..100_i64, 0..6_usize, 1..9_u32, 1..3_u32), 0..4),
        from in 0..20_i64,
    ) {
        let mut all: Vec<Dispatch> = taken
            .iter()
            .zip(1..)
            .map(|((since, wait, of, weight, band), id)| Dispatch {
                band: Band::new(*band).unwrap(),
                ..took(id, *of, f64::from(*weight), *since, from.max(since + wait))
            })
            .collect();
        in_order(&mut all);
        // The weight is one's who is older; where several are equally old either may be meant.
        let mut seen = BTreeSet::new();
        all.retain(|one| seen.insert((one.band, one.key.clone(), one.since)));
        let left: Vec<Waiting> = left
            .iter()
            .map(|(since, of, weight, band)| Waiting {
                band: Band::new(*band).unwrap(),
                ..waits(*of, f64::from(*weight), *since)
            })
            .filter(|one| seen.insert((one.band, one.key.clone(), one.since)))
            .collect();
        let fast = fairness(&all, &left, at(from), at(100));
        let slow = Naive {
            all: &all,
            waiting: &left,
            from: at(from),
            until: at(100),
        }
        .shares();
        prop_assert_eq!(fast.len(), slow.len());
        for (fast, slow) in fast.iter().zip(&slow) {
            prop_assert!((fast.promised - slow.promised).abs() < 1e-9, "{:?}\n{:?}", fast, slow);
            prop_assert!((fast.variance - slow.variance).abs() < 1e-9, "{:?}\n{:?}", fast, slow);
            let whole = |share: &KeyShare| (
                share.band, share.key.clone(), share.slots, share.taken, share.longest_slots, share.longest,
            );
            prop_assert_eq!(whole(fast), whole(slow));
        }
    }

    #[test]
    fn what_is_promised_is_what_there_is(taken in steps()) {
        let mut all: Vec<Dispatch> = taken
            .iter()
            .zip(1..)
            .map(|((since, wait, of, weight, _), id)| {
                took(id, *of, f64::from(*weight), *since, since + wait)
            })
            .collect();
        in_order(&mut all);
        let found = fairness(&all, &[], at(0), at(200));
        let promised: f64 = found.iter().map(|share| share.promised).sum();
        let taken: u64 = found.iter().map(|share| share.taken).sum();
        prop_assert_eq!(taken, all.len() as u64);
        prop_assert!((promised - count(taken)).abs() < 1e-6);
    }
}
