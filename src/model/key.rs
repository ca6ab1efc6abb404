//! Whose step it is and how urgent: band, fairness key, weight.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Strict priority: lower is served first, and no worse band is served while a better one has due
/// work on any shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Band(u32);

impl Band {
    /// The band of a step that names none.
    pub const DEFAULT: Self = Self(100);
    /// The worst band there is.
    pub const WORST: Self = Self(i32::MAX as u32);

    /// Returns the band with this number, or `None` above [`Self::WORST`].
    pub const fn new(number: u32) -> Option<Self> {
        if number <= Self::WORST.0 {
            Some(Self(number))
        } else {
            None
        }
    }

    /// Returns the number; lower is more urgent.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl Default for Band {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl TryFrom<u32> for Band {
    type Error = ParseKeyError;

    fn try_from(number: u32) -> Result<Self, Self::Error> {
        Self::new(number).ok_or_else(|| ParseKeyError(format!("{number} is not a band")))
    }
}

impl From<Band> for u32 {
    fn from(band: Band) -> Self {
        band.get()
    }
}

impl fmt::Display for Band {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Why a text cannot be a band, a fairness key or a weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseKeyError(String);

impl ParseKeyError {
    /// Wraps what is to be said of the text.
    pub(super) const fn new(why: String) -> Self {
        Self(why)
    }
}

impl fmt::Display for ParseKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ParseKeyError {}

/// Whom a step is run for: a user, a tenant, a project. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FairnessKey(Arc<str>);

impl FairnessKey {
    /// The longest key, in bytes: a key stands in every row of `ready` and in every tally.
    pub const MAX_BYTES: usize = 200;

    /// Takes a key as the store holds it, unchecked.
    pub fn from_store(text: &str) -> Self {
        Self(Arc::from(text))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for FairnessKey {
    fn default() -> Self {
        Self(Arc::from("default"))
    }
}

impl FromStr for FairnessKey {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Err(ParseKeyError("a fairness key cannot be empty".to_owned()));
        }
        if text.len() > Self::MAX_BYTES {
            return Err(ParseKeyError(format!(
                "a fairness key has at most {} bytes, this one has {}",
                Self::MAX_BYTES,
                text.len()
            )));
        }
        if text.contains('\0') {
            return Err(ParseKeyError("a fairness key cannot hold a NUL".to_owned()));
        }
        Ok(Self(Arc::from(text)))
    }
}

impl fmt::Display for FairnessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for FairnessKey {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for FairnessKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// A key's share relative to the other keys of its band: a finite number above 0.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Weight(f64);

impl Weight {
    /// The weight of a step that names none.
    pub const ONE: Self = Self(1.0);

    /// Returns the weight, or `None` if it is not finite and above 0.
    pub fn new(value: f64) -> Option<Self> {
        (value.is_finite() && value > 0.0).then_some(Self(value))
    }

    /// Returns the weight; anything that is not one counts as 1, so that no key can be planned out
    /// of existence by a bad number.
    pub fn or_one(value: f64) -> Self {
        Self::new(value).unwrap_or(Self::ONE)
    }

    /// Returns the number.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self::ONE
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl FromStr for Weight {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<f64>().ok().and_then(Self::new).ok_or_else(|| {
            ParseKeyError(format!(
                "{text:?} is not a weight: it is a finite number above 0"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_finite_and_above_zero() {
        for text in ["0", "-1", "NaN", "inf", "-0", "", "1,5", "1_000", "１"] {
            assert!(text.parse::<Weight>().is_err(), "{text:?} was accepted");
        }
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(Weight::or_one(value), Weight::ONE);
        }
        for text in ["1", "0.5", "1e300", "5e-324"] {
            assert!(text.parse::<Weight>().is_ok(), "{text:?} was refused");
        }
    }

    #[test]
    fn a_key_is_some_short_text() {
        assert!("".parse::<FairnessKey>().is_err());
        assert!("a\0b".parse::<FairnessKey>().is_err());
        assert!("x".repeat(201).parse::<FairnessKey>().is_err());
        assert_eq!("Ω mega".parse::<FairnessKey>().unwrap().as_str(), "Ω mega");
    }
}
