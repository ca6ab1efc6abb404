//! Which shard, which step, which runner.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The number of a shard, from 0; written as a letter inside a step id (`a` is shard 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct ShardId(u8);

impl ShardId {
    /// The most shards a store may have: one letter each.
    pub const MAX_SHARDS: u8 = 26;

    /// Returns the shard with this number, or `None` where there is no letter for it.
    pub const fn new(number: u8) -> Option<Self> {
        if number < Self::MAX_SHARDS {
            Some(Self(number))
        } else {
            None
        }
    }

    /// Returns the shards `0..count` in order; more than [`Self::MAX_SHARDS`] are cut off.
    pub fn first(count: u8) -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator + Clone {
        (0..count.min(Self::MAX_SHARDS)).map(Self)
    }

    /// Returns the number, from 0.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Returns the number as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the letter that stands for this shard in a step id.
    pub const fn letter(self) -> char {
        (b'a' + self.0) as char
    }
}

impl TryFrom<u8> for ShardId {
    type Error = String;

    fn try_from(number: u8) -> Result<Self, Self::Error> {
        Self::new(number).ok_or_else(|| format!("{number} is not the number of a shard"))
    }
}

impl From<ShardId> for u8 {
    fn from(shard: ShardId) -> Self {
        shard.number()
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A step's number within its shard, from 1, never used twice; its order is the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LocalId(i64);

impl LocalId {
    /// Wraps a number that the store handed out.
    pub const fn new(number: i64) -> Self {
        Self(number)
    }

    /// Returns the number.
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for LocalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What a user types to name a step: a letter for the shard and a number in it, `a17`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepId {
    /// The shard that holds the step.
    pub shard: ShardId,
    /// The step's number there.
    pub local: LocalId,
}

impl StepId {
    /// Puts the two parts together.
    pub const fn new(shard: ShardId, local: LocalId) -> Self {
        Self { shard, local }
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.shard.letter(), self.local)
    }
}

impl Serialize for StepId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for StepId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Why a text is not a step id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseIdError(String);

impl fmt::Display for ParseIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a step id: it is a letter and a number, such as a17",
            self.0
        )
    }
}

impl std::error::Error for ParseIdError {}

impl FromStr for StepId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseIdError(text.to_owned());
        let (&letter, digits) = text.as_bytes().split_first().ok_or_else(wrong)?;
        let shard = letter
            .checked_sub(b'a')
            .and_then(ShardId::new)
            .ok_or_else(wrong)?;
        // `i64::from_str` would also take a sign and leading zeros: two spellings of one id.
        let plain = digits
            .first()
            .is_some_and(|first| (b'1'..=b'9').contains(first))
            && digits.iter().all(u8::is_ascii_digit);
        if !plain {
            return Err(wrong());
        }
        let local = text[1..].parse::<i64>().or(Err(wrong()))?;
        Ok(Self::new(shard, LocalId::new(local)))
    }
}

/// One `fairq run` process, for as long as it lives: a random number, written in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunnerId(i64);

impl RunnerId {
    /// Wraps a number; the sign bit is cleared so that it survives SQLite and prints shortly.
    pub const fn new(number: i64) -> Self {
        Self(number & i64::MAX)
    }

    /// Returns the number, never negative.
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for RunnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl FromStr for RunnerId {
    type Err = ParseRunnerError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // One spelling only: a runner's folder and logs are found again by their names.
        i64::from_str_radix(text, 16)
            .ok()
            .map(Self::new)
            .filter(|runner| runner.to_string() == text)
            .ok_or_else(|| ParseRunnerError(text.to_owned()))
    }
}

/// Why a text is not a runner's id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseRunnerError(String);

impl fmt::Display for ParseRunnerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a runner's id", self.0)
    }
}

impl std::error::Error for ParseRunnerError {}

impl Serialize for RunnerId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_as_it_was_written() {
        for text in ["a1", "b17", "z9223372036854775807"] {
            assert_eq!(text.parse::<StepId>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn two_spellings_of_one_id_do_not_exist() {
        for text in [
            "", "a", "17", "A1", "a0", "a01", "a+1", "a-1", "a1 ", "aa1", "ä1", "a１",
        ] {
            assert!(text.parse::<StepId>().is_err(), "{text:?} was accepted");
        }
        assert!("a9223372036854775808".parse::<StepId>().is_err());
    }

    #[test]
    fn a_runner_reads_back_as_it_was_written() {
        let runner = RunnerId::new(-1);
        assert!(runner.get() > 0);
        assert_eq!(runner.to_string().parse::<RunnerId>().unwrap(), runner);
    }
}
