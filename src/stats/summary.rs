//! How many tries, how fast, how long they waited and ran.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Dispatch, Outcome};
use crate::model::{Band, FairnessKey, Span, Timestamp};

/// How many tries came to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Still running.
    pub running: u64,
    /// Ended well.
    pub succeeded: u64,
    /// Ended badly.
    pub failed: u64,
    /// Stopped by a runner and put back.
    pub interrupted: u64,
    /// Lost with their runners.
    pub lost: u64,
}

impl Counts {
    fn add(&mut self, outcome: Outcome) {
        *match outcome {
            Outcome::Running => &mut self.running,
            Outcome::Succeeded => &mut self.succeeded,
            Outcome::Failed => &mut self.failed,
            Outcome::Interrupted => &mut self.interrupted,
            Outcome::Lost => &mut self.lost,
        } += 1;
    }

    /// Returns how many steps they brought to an end.
    pub const fn done(self) -> u64 {
        self.succeeded + self.failed
    }
}

/// Four points of a distribution of times, in milliseconds: each is a time that occurred, below or
/// at which so many of all lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    /// Half of all.
    pub p50: Span,
    /// Nine of ten.
    pub p90: Span,
    /// 99 of 100.
    pub p99: Span,
    /// All.
    pub max: Span,
}

impl Quantiles {
    /// Sorts the times and returns their quantiles; `None` if there are none.
    pub fn of(times: &mut [Span]) -> Option<Self> {
        times.sort_unstable();
        let max = *times.last()?;
        let rank = |hundredths: usize| times[(times.len() * hundredths).div_ceil(100) - 1];
        Some(Self {
            p50: rank(50),
            p90: rank(90),
            p99: rank(99),
            max,
        })
    }
}

/// The tries of one band, or of one of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The band.
    pub band: Band,
    /// The key; `None` for all of the band.
    pub key: Option<FairnessKey>,
    /// What they came to.
    pub counts: Counts,
    /// How long the steps had waited when they were claimed.
    pub waited: Option<Quantiles>,
    /// How long processes ran.
    pub ran: Option<Quantiles>,
}

/// The 60 seconds in which most steps ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busiest {
    /// When they began.
    pub from: Timestamp,
    /// How many ended.
    pub steps: u64,
}

/// What a window's tries amount to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// All of them.
    pub counts: Counts,
    /// From the first claim to the last end.
    pub busy: Option<(Timestamp, Timestamp)>,
    /// The minute with most ends.
    pub busiest: Option<Busiest>,
    /// Each band, followed by its keys.
    pub groups: Vec<Group>,
}

#[derive(Default)]
struct Gathered {
    counts: Counts,
    waited: Vec<Span>,
    ran: Vec<Span>,
}

impl Gathered {
    fn add(&mut self, one: &Dispatch) {
        self.counts.add(one.outcome);
        self.waited.push(one.claimed.since(one.since));
        if let (Some(started), Some(ended)) = (one.started, one.ended) {
            self.ran.push(ended.since(started));
        }
    }

    fn group(mut self, band: Band, key: Option<&FairnessKey>) -> Group {
        Group {
            band,
            key: key.cloned(),
            counts: self.counts,
            waited: Quantiles::of(&mut self.waited),
            ran: Quantiles::of(&mut self.ran),
        }
    }
}

impl Summary {
    /// Sums up tries that are in the order of [`super::in_order`].
    pub fn of(dispatches: &[Dispatch]) -> Self {
        let mut counts = Counts::default();
        // `None` sorts before every key: a band stands before its keys.
        let mut groups: BTreeMap<(Band, Option<&FairnessKey>), Gathered> = BTreeMap::new();
        for one in dispatches {
            counts.add(one.outcome);
            groups.entry((one.band, None)).or_default().add(one);
            groups
                .entry((one.band, Some(&one.key)))
                .or_default()
                .add(one);
        }
        let mut ends: Vec<Timestamp> = dispatches
            .iter()
            .filter(|one| matches!(one.outcome, Outcome::Succeeded | Outcome::Failed))
            .filter_map(|one| one.ended)
            .collect();
        ends.sort_unstable();
        let first = dispatches.first().map(|one| one.claimed);
        Self {
            counts,
            busy: first.zip(ends.last().copied()),
            busiest: busiest(&ends),
            groups: groups
                .into_iter()
                .map(|((band, key), gathered)| gathered.group(band, key))
                .collect(),
        }
    }
}

/// Finds the minute with most of these instants, which are sorted; the first of several.
fn busiest(ends: &[Timestamp]) -> Option<Busiest> {
    const MINUTE: Span = Span::from_millis(60_000);
    let mut best: Option<Busiest> = None;
    let mut next = 0;
    for (at, from) in ends.iter().enumerate() {
        while ends.get(next).is_some_and(|end| *end < *from + MINUTE) {
            next += 1;
        }
        let steps = (next - at) as u64;
        if best.is_none_or(|best| steps > best.steps) {
            best = Some(Busiest { from: *from, steps });
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Weight;

    fn spans(millis: impl IntoIterator<Item = u64>) -> Vec<Span> {
        millis.into_iter().map(Span::from_millis).collect()
    }

    #[test]
    fn a_quantile_is_a_time_that_occurred() {
        let of = |times: &[u64]| {
            Quantiles::of(&mut spans(times.iter().copied()))
                .map(|all| [all.p50, all.p90, all.p99, all.max].map(Span::millis))
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[7]), Some([7, 7, 7, 7]));
        assert_eq!(of(&[9, 1]), Some([1, 9, 9, 9]));
        let hundred: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(of(&hundred), Some([50, 90, 99, 100]));
        let thousand: Vec<u64> = (1..=1_000).collect();
        assert_eq!(of(&thousand), Some([500, 900, 990, 1_000]));
    }

    #[test]
    fn the_busiest_minute_may_begin_at_any_instant() {
        let ends = |millis: &[i64]| -> Vec<Timestamp> {
            millis.iter().copied().map(Timestamp::from_millis).collect()
        };
        assert_eq!(busiest(&[]), None);
        let found = busiest(&ends(&[0, 50_000, 61_000, 109_999, 110_000])).unwrap();
        assert_eq!((found.from.millis(), found.steps), (50_000, 3));
        let apart = busiest(&ends(&[0, 60_000, 120_000])).unwrap();
        assert_eq!((apart.from.millis(), apart.steps), (0, 1));
    }

    #[test]
    fn a_band_stands_before_its_keys_and_counts_them_all() {
        let one = |band: u32, key: &str, wait: i64, outcome| Dispatch {
            id: "a1".parse().unwrap(),
            band: Band::new(band).unwrap(),
            key: key.parse().unwrap(),
            weight: Weight::ONE,
            since: Timestamp::from_millis(0),
            claimed: Timestamp::from_millis(wait),
            started: (outcome != Outcome::Running).then(|| Timestamp::from_millis(wait + 1)),
            ended: (outcome != Outcome::Running).then(|| Timestamp::from_millis(wait + 5)),
            outcome,
        };
        let all = [
            one(5, "b", 10, Outcome::Succeeded),
            one(5, "a", 20, Outcome::Failed),
            one(9, "a", 30, Outcome::Running),
            one(5, "b", 40, Outcome::Interrupted),
            one(5, "b", 50, Outcome::Lost),
        ];
        let summary = Summary::of(&all);
        let groups: Vec<_> = summary
            .groups
            .iter()
            .map(|group| {
                let key = group.key.as_ref().map_or("", FairnessKey::as_str);
                let p50 = group.waited.unwrap().p50.millis();
                (group.band.get(), key, group.counts.done(), p50)
            })
            .collect();
        let expected = [
            (5, "", 2, 20),
            (5, "a", 1, 20),
            (5, "b", 1, 40),
            (9, "", 0, 30),
            (9, "a", 0, 30),
        ];
        assert_eq!(groups, expected);
        assert_eq!(summary.groups[0].ran.unwrap().max.millis(), 4);
        assert_eq!(summary.groups[3].ran, None);
        let counted = Counts {
            running: 1,
            succeeded: 1,
            failed: 1,
            interrupted: 1,
            lost: 1,
        };
        assert_eq!(summary.counts, counted);
        assert_eq!(summary.busiest.unwrap().steps, 2);
    }
}
