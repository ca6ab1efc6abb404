//! How long things took, kept in little room.

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

/// How often durations of which length were seen, in buckets each a quarter longer than the last: a
/// quantile is known to a quarter, whatever the number of durations.
///
/// The unit is whatever its owner notes. As JSON it is its count, its middle and its 99th percentile.
#[derive(Clone, Debug)]
pub struct Durations {
    buckets: [u64; Self::BUCKETS],
    count: u64,
}

impl Default for Durations {
    fn default() -> Self {
        Self {
            buckets: [0; Self::BUCKETS],
            count: 0,
        }
    }
}

impl Durations {
    const BUCKETS: usize = 128;

    /// Takes note of one.
    pub fn note(&mut self, length: u64) {
        let at = Self::UPPER.partition_point(|upper| *upper < length);
        self.buckets[at.min(Self::BUCKETS - 1)] += 1;
        self.count += 1;
    }

    /// Returns the length below which this part of all lay; `None` if none was seen.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank among counted events; rounding moves it by one at most"
    )]
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let rank = ((self.count as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        self.buckets.iter().enumerate().find_map(|(at, count)| {
            seen += count;
            (*count > 0 && seen >= rank).then_some(Self::UPPER[at])
        })
    }

    /// The longest duration of each bucket: exact to 4, then a quarter longer each.
    const UPPER: [u64; Self::BUCKETS] = {
        let mut upper = [0; Self::BUCKETS];
        let mut at = 1;
        while at < Self::BUCKETS {
            let last: u64 = upper[at - 1];
            upper[at] = last + if last < 4 { 1 } else { last / 4 };
            at += 1;
        }
        upper
    };
}

impl Serialize for Durations {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut told = serializer.serialize_struct("Durations", 3)?;
        told.serialize_field("count", &self.count)?;
        told.serialize_field("p50", &self.quantile(0.5))?;
        told.serialize_field("p99", &self.quantile(0.99))?;
        told.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_known_to_a_quarter() {
        let mut seen = Durations::default();
        assert_eq!(seen.quantile(0.5), None);
        (0..=1000).for_each(|length| seen.note(length));
        for (part, exact) in [(0.0, 0), (0.5, 500), (0.99, 990), (1.0, 1000)] {
            let told = seen.quantile(part).unwrap();
            assert!(
                told >= exact && told <= exact + exact / 4 + 1,
                "{part}: {told} for {exact}"
            );
        }
        seen.note(u64::MAX);
        assert!(seen.quantile(1.0).unwrap() > 1_000_000_000);
    }
}
