//! Seeds for random tests: fresh ones, or the one that a failure has printed.

use fairq::ambient::Dice;

/// Says which seed to replay when a world does not hold.
struct Seed(u64);

#[expect(clippy::print_stderr, reason = "it is for the reader of a failed test")]
impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("replay with FAIRQ_TEST_SEED={}", self.0);
        }
    }
}

/// Runs a test with the dice of so many seeds, or of the one that the environment names.
pub(crate) fn each_seed(count: u64, test: impl Fn(Dice)) {
    let given = std::env::var("FAIRQ_TEST_SEED").ok();
    let given: Option<u64> = given.map(|seed| seed.parse().unwrap());
    let first = given.unwrap_or_else(|| Dice::fresh().bits());
    let count = if given.is_some() { 1 } else { count };
    for seed in (0..count).map(|number| first.wrapping_add(number)) {
        let replay = Seed(seed);
        test(Dice::seeded(seed));
        drop(replay);
    }
}
