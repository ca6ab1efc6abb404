//! Time and chance as things that one is given.
//!
//! The only place that reads a clock or draws a number. Everything else takes a [`Clock`] or a
//! [`Dice`], so that tests and simulations own both.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::model::Timestamp;

/// Where the time comes from.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Returns the wall clock's time: for instants that are stored or shown. It may jump.
    fn now(&self) -> Timestamp;

    /// Returns time since some fixed moment: for durations. It never goes back.
    fn monotonic(&self) -> Duration;
}

/// The machine's own clocks.
#[derive(Debug)]
pub struct SystemClock {
    origin: std::time::Instant,
}

impl SystemClock {
    /// Returns a clock whose monotonic time starts now.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the monotonic clock"
    )]
    pub fn new() -> Self {
        Self {
            origin: std::time::Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the wall clock"
    )]
    fn now(&self) -> Timestamp {
        let millis = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
        };
        Timestamp::from_millis(millis)
    }

    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }
}

/// A clock that stands still until it is moved.
#[derive(Debug)]
pub struct ManualClock {
    wall_millis: AtomicI64,
    monotonic_micros: AtomicU64,
}

impl ManualClock {
    /// Returns a clock that shows `start`.
    pub const fn new(start: Timestamp) -> Self {
        Self {
            wall_millis: AtomicI64::new(start.millis()),
            monotonic_micros: AtomicU64::new(0),
        }
    }

    /// Moves both clocks on.
    pub fn advance(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        let after = self.monotonic_micros.fetch_add(micros, Ordering::SeqCst) + micros;
        let whole = i64::try_from(after / 1000 - (after - micros) / 1000).unwrap_or(i64::MAX);
        self.wall_millis.fetch_add(whole, Ordering::SeqCst);
    }

    /// Sets the wall clock alone, as an administrator or NTP would.
    pub fn set_wall(&self, now: Timestamp) {
        self.wall_millis.store(now.millis(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.wall_millis.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.monotonic_micros.load(Ordering::SeqCst))
    }
}

/// A seeded source of numbers: the same seed gives the same numbers on every machine.
///
/// `SplitMix64` (Steele, Lea and Flood 2014): ten lines with a published test vector, enough for
/// lotteries and jitter, and small enough that a seed printed today replays in ten years. It is not
/// for secrets.
#[derive(Clone, Debug)]
pub struct Dice {
    state: u64,
}

impl Dice {
    /// Returns the dice of this seed.
    pub const fn seeded(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns dice of a seed that differs from run to run.
    pub fn fresh() -> Self {
        use std::hash::{BuildHasher as _, RandomState};
        // The standard library's hash keys are the operating system's randomness.
        Self::seeded(RandomState::new().hash_one(std::process::id()))
    }

    /// Returns the next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns the next number in [0, 1).
    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact in an f64")]
    pub const fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns the next number in `0..bound`; 0 for a bound of 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        // Multiply and shift: the bias is below bound / 2^64.
        ((self.bits() as u128 * bound as u128) >> 64) as u64
    }
}

/// Dice that threads share.
#[derive(Debug)]
pub struct SharedDice(Mutex<Dice>);

impl SharedDice {
    /// Puts dice where threads can reach them.
    pub const fn new(dice: Dice) -> Self {
        Self(Mutex::new(dice))
    }

    /// Returns the next 64 bits.
    pub fn bits(&self) -> u64 {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .bits()
    }

    /// Returns the next number in [0, 1).
    pub fn unit(&self) -> f64 {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .unit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dice_are_the_published_ones() {
        let mut dice = Dice::seeded(1_234_567);
        assert_eq!(dice.bits(), 6_457_827_717_110_365_317);
        assert_eq!(dice.bits(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn numbers_stay_in_their_range() {
        let mut dice = Dice::seeded(7);
        for _ in 0..10_000 {
            assert!((0.0..1.0).contains(&dice.unit()));
            assert!(dice.below(3) < 3);
        }
        assert_eq!(dice.below(0), 0);
    }

    #[test]
    fn a_manual_clock_moves_only_when_moved() {
        let clock = ManualClock::new(Timestamp::from_millis(100));
        clock.advance(Duration::from_micros(1_500));
        clock.advance(Duration::from_micros(500));
        assert_eq!(clock.now(), Timestamp::from_millis(102));
        clock.set_wall(Timestamp::from_millis(1));
        assert_eq!(clock.now(), Timestamp::from_millis(1));
        assert_eq!(clock.monotonic(), Duration::from_millis(2));
    }
}
