//! Virtual time of stride scheduling.

use std::fmt;

use serde::Serialize;

use super::Weight;

/// A point in a band's virtual time: a fixed-point number with 64 fractional bits.
///
/// Taking a step of weight `w` moves its key by `1/w`. Integers, not floats: sums of strides are
/// exact whatever their order, so equal shares stay equal after billions of steps, and a huge
/// weight's tiny stride never vanishes beside a large pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Turn(u128);

impl Turn {
    /// The beginning of a band's virtual time.
    pub const ZERO: Self = Self(0);
    /// The weights between which a stride tells weights apart; those outside count as the nearest.
    pub const WEIGHT_RANGE: (f64, f64) = (1e-9, 1e9);

    const ONE: f64 = 18_446_744_073_709_551_616.0; // 2^64

    /// Returns `1/w`: how far one step moves a key of this weight.
    pub fn stride(weight: Weight) -> Self {
        Self::pace(weight.get().min(Self::WEIGHT_RANGE.1))
    }

    /// Returns `1/total`: how far one step moves the clock of keys whose weights add up to `total`.
    ///
    /// A total below the least weight counts as that.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the bound keeps the quotient between 0 and 1.9e28, far below 2^128"
    )]
    pub fn pace(total: f64) -> Self {
        Self((Self::ONE / total.max(Self::WEIGHT_RANGE.0)) as u128)
    }

    /// Returns the later point, `other` further on. Stops at the end of time instead of wrapping.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the earlier point, `other` back. Stops at zero.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns the point that is so many steps of weight 1 further on; the same if that is not above 0.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast stops at both ends"
    )]
    pub fn later_by(self, steps: f64) -> Self {
        self.plus(Self((Self::ONE * steps) as u128))
    }

    /// Returns the point as a number of steps of weight 1, for people and JSON.
    #[expect(clippy::cast_precision_loss, reason = "for display only")]
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / Self::ONE
    }
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.as_f64())
    }
}

impl Serialize for Turn {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_weight_four_moves_a_quarter_a_step() {
        let quarter = Turn::stride(Weight::new(4.0).unwrap());
        let one = Turn::stride(Weight::ONE);
        assert_eq!(quarter.plus(quarter).plus(quarter).plus(quarter), one);
    }

    #[test]
    fn weights_beyond_the_range_still_move() {
        for weight in [f64::MIN_POSITIVE, 5e-324, 1e300, f64::MAX] {
            let stride = Turn::stride(Weight::new(weight).unwrap());
            assert!(stride > Turn::ZERO);
            assert!(Turn::ZERO.plus(stride) > Turn::ZERO);
        }
    }
}
