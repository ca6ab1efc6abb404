//! Chance that can be repeated, for each actor its own.

/// A stream of numbers (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    /// Returns the seed of this run: `FAIRQ_TEST_SEED`, or one of its own.
    pub(crate) fn seed() -> u64 {
        std::env::var("FAIRQ_TEST_SEED").map_or_else(
            |_| u64::from(std::process::id()),
            |text| text.parse().unwrap(),
        )
    }

    /// Returns the stream of one actor.
    pub(crate) fn of(seed: u64, actor: u64) -> Self {
        let mut mixed = Self(seed ^ actor.wrapping_mul(0x2545_f491_4f6c_dd1d));
        mixed.next();
        mixed
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns whether something of which there is one in `of` happens.
    pub(crate) fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    /// Returns one of these.
    pub(crate) fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        let at = self.below(among.len() as u64);
        among[usize::try_from(at).unwrap()]
    }
}
