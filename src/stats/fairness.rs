//! Who got how many turns, beside what was promised.
//!
//! A slot is one claim in a band. At each slot the keys with waiting steps share it by their
//! weights: a key of weight `w` among active keys of total weight `W` is promised `w/W` of it.
//! Summing that key by key costs O(N·K). Instead one running sum `S` of `1/W` over the slots is
//! kept a band, and a key adds `w·(S₂ − S₁)` whenever its weight changes or it stops waiting; the
//! sum of `1/W²` gives the variance of a lottery likewise. All of it costs O(N log N).

use std::collections::{BTreeMap, BTreeSet};

use super::{Dispatch, Waiting};
use crate::model::{Band, FairnessKey, Span, Timestamp};

/// What one key got in one band while it had work there.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyShare {
    /// The band.
    pub band: Band,
    /// The key.
    pub key: FairnessKey,
    /// How many slots of the band passed while the key had waiting steps, its own included.
    pub slots: u64,
    /// How many of them it got.
    pub taken: u64,
    /// How many its weight promised it.
    pub promised: f64,
    /// The variance of the number that it would get if each slot were drawn by lot.
    pub variance: f64,
    /// The most slots of others that passed between two of its own while it had work.
    pub longest_slots: u64,
    /// The longest time that passed between two of its own while it had work.
    pub longest: Span,
}

impl KeyShare {
    /// The part of all cases that the interval of [`Self::chance`] holds is 95 %.
    const TWO_SIDED: f64 = 1.96;

    /// Returns the part of the slots that it got, from 0 to 1.
    pub fn observed_share(&self) -> f64 {
        self.of_slots(count(self.taken))
    }

    /// Returns the part of the slots that it was promised, from 0 to 1.
    pub fn promised_share(&self) -> f64 {
        self.of_slots(self.promised)
    }

    /// Returns how many slots it got beyond what was promised; negative for less.
    pub fn surplus(&self) -> f64 {
        count(self.taken) - self.promised
    }

    /// Returns how many slots more or less than promised chance alone gives in 19 of 20 cases if
    /// each slot is drawn by lot.
    pub fn chance(&self) -> f64 {
        Self::TWO_SIDED * self.variance.max(0.0).sqrt()
    }

    /// Returns a number of slots as a part of all that passed, from 0 to 1.
    pub fn of_slots(&self, slots: f64) -> f64 {
        slots / count(self.slots).max(1.0)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
const fn count(number: u64) -> f64 {
    number as f64
}

/// Returns what each key got in each band, by band and key.
///
/// `dispatches` are those of the window in the order of [`super::in_order`]; `waiting` is what is
/// due at its end. Keys that only waited are among them. Waiting before `from` is not counted.
pub fn fairness(
    dispatches: &[Dispatch],
    waiting: &[Waiting],
    from: Timestamp,
    until: Timestamp,
) -> Vec<KeyShare> {
    let mut bands: BTreeMap<Band, Lane<'_>> = BTreeMap::new();
    for one in dispatches {
        let since = one.since.max(from).min(one.claimed);
        let lane = bands.entry(one.band).or_default();
        lane.steps.push(Step {
            key: &one.key,
            weight: one.weight.get(),
            due: one.since,
            since,
            claimed: Some(one.claimed),
        });
    }
    for one in waiting.iter().filter(|one| one.since <= until) {
        let lane = bands.entry(one.band).or_default();
        lane.steps.push(Step {
            key: &one.key,
            weight: one.weight.get(),
            due: one.since,
            since: one.since.max(from),
            claimed: None,
        });
    }
    bands
        .into_iter()
        .flat_map(|(band, lane)| lane.judge(band, until))
        .collect()
}

/// A step that waited in a band.
struct Step<'d> {
    key: &'d FairnessKey,
    weight: f64,
    /// What its age counts from.
    due: Timestamp,
    /// From when on it is looked at.
    since: Timestamp,
    /// `None` if it still waits.
    claimed: Option<Timestamp>,
}

#[derive(Default)]
struct Lane<'d> {
    steps: Vec<Step<'d>>,
}

/// What passed in a band up to some slot.
#[derive(Clone, Copy, Default)]
struct Passed {
    slots: u64,
    /// The sum of 1/W.
    inverse: f64,
    /// The sum of 1/W².
    inverse_squared: f64,
}

/// One key while the slots go by.
struct Account {
    /// Its waiting steps, oldest first, with their places among the steps.
    waits: BTreeSet<(Timestamp, usize)>,
    /// The weight that counts now; 0 while nothing waits.
    weight: f64,
    /// What had passed when the weight last changed.
    entered: Passed,
    /// The slots and the instant at which its present wait began.
    wait_began: (u64, Timestamp),
    share: KeyShare,
}

impl Lane<'_> {
    fn judge(self, band: Band, until: Timestamp) -> Vec<KeyShare> {
        let keys: Vec<&FairnessKey> = {
            let sorted: BTreeSet<_> = self.steps.iter().map(|step| step.key).collect();
            sorted.into_iter().collect()
        };
        let key_of: BTreeMap<_, _> = keys.iter().zip(0..).map(|(key, at)| (*key, at)).collect();
        let owners: Vec<usize> = self.steps.iter().map(|step| key_of[step.key]).collect();
        let mut accounts: Vec<Account> = keys.iter().map(|key| Account::new(band, key)).collect();
        let mut weights = Weights::new(keys.len());
        let mut passed = Passed::default();
        let mut arrivals: Vec<usize> = (0..self.steps.len()).collect();
        arrivals.sort_by_key(|at| self.steps[*at].since);
        let mut arrivals = arrivals.into_iter().peekable();
        // Claims come in order. Who became due by the instant of a claim waits at it, the one that
        // is claimed included.
        let claims = self.steps.iter().enumerate();
        let claims = claims.filter_map(|(at, step)| step.claimed.map(|claimed| (at, claimed)));
        for (at, claimed) in claims {
            while let Some(came) = arrivals.next_if(|at| self.steps[*at].since <= claimed) {
                let account = &mut accounts[owners[came]];
                account.arrive(&self.steps, came, passed);
                weights.set(owners[came], account.weight);
            }
            let total = weights.total();
            let slot = passed.slots;
            passed.slots += 1;
            passed.inverse += 1.0 / total;
            passed.inverse_squared += 1.0 / (total * total);
            let account = &mut accounts[owners[at]];
            account.take(&self.steps, at, slot, claimed, passed);
            weights.set(owners[at], account.weight);
        }
        for came in arrivals {
            accounts[owners[came]].arrive(&self.steps, came, passed);
        }
        accounts
            .into_iter()
            .map(|account| account.close(passed, until))
            .collect()
    }
}

impl Account {
    fn new(band: Band, key: &FairnessKey) -> Self {
        Self {
            waits: BTreeSet::new(),
            weight: 0.0,
            entered: Passed::default(),
            wait_began: (0, Timestamp::default()),
            share: KeyShare {
                band,
                key: key.clone(),
                slots: 0,
                taken: 0,
                promised: 0.0,
                variance: 0.0,
                longest_slots: 0,
                longest: Span::default(),
            },
        }
    }

    fn arrive(&mut self, steps: &[Step<'_>], at: usize, passed: Passed) {
        if self.waits.is_empty() {
            self.wait_began = (passed.slots, steps[at].since);
        }
        self.waits.insert((steps[at].due, at));
        self.reweigh(steps, passed);
    }

    /// Gets the slot of this number.
    fn take(
        &mut self,
        steps: &[Step<'_>],
        at: usize,
        slot: u64,
        claimed: Timestamp,
        passed: Passed,
    ) {
        self.share.taken += 1;
        self.waited(slot, claimed);
        self.wait_began = (passed.slots, claimed);
        self.waits.remove(&(steps[at].due, at));
        self.reweigh(steps, passed);
    }

    fn waited(&mut self, slot: u64, now: Timestamp) {
        let (slots, began) = self.wait_began;
        self.share.longest_slots = self.share.longest_slots.max(slot - slots);
        self.share.longest = self.share.longest.max(now.since(began));
    }

    /// Books what was promised so far, and goes on with the weight of the oldest step.
    fn reweigh(&mut self, steps: &[Step<'_>], passed: Passed) {
        self.book(passed);
        self.weight = self
            .waits
            .first()
            .map_or(0.0, |(_, oldest)| steps[*oldest].weight);
    }

    fn book(&mut self, passed: Passed) {
        if self.weight > 0.0 {
            let promised = self.weight * (passed.inverse - self.entered.inverse);
            let squared = passed.inverse_squared - self.entered.inverse_squared;
            self.share.promised += promised;
            self.share.variance += promised - self.weight * self.weight * squared;
            self.share.slots += passed.slots - self.entered.slots;
        }
        self.entered = passed;
    }

    fn close(mut self, passed: Passed, until: Timestamp) -> KeyShare {
        self.book(passed);
        if !self.waits.is_empty() {
            self.waited(passed.slots, until);
        }
        self.share
    }
}

/// The keys' weights and their sum, as a tree of sums: nothing is ever subtracted, so that a tiny
/// weight does not drown in what a huge one leaves behind.
struct Weights {
    leaves: usize,
    sums: Vec<f64>,
}

impl Weights {
    fn new(keys: usize) -> Self {
        let leaves = keys.next_power_of_two();
        Self {
            leaves,
            sums: vec![0.0; 2 * leaves],
        }
    }

    fn set(&mut self, key: usize, weight: f64) {
        let mut node = self.leaves + key;
        self.sums[node] = weight;
        while node > 1 {
            node /= 2;
            self.sums[node] = self.sums[2 * node] + self.sums[2 * node + 1];
        }
    }

    fn total(&self) -> f64 {
        self.sums[1]
    }
}

#[cfg(test)]
#[path = "fairness_tests.rs"]
mod tests;
