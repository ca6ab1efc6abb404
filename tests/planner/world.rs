//! Random boards, and short words for making things.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use fairq::ambient::Dice;
use fairq::model::{Band, FairnessKey, ShardId, Timestamp, Weight};
use fairq::planner::{Decision, Merged, Pick, Standing, dice};
use fairq::tally::{ShardTally, Tally, TallyBoard};

pub(crate) fn setting<T: FromStr>(name: &str, default: T) -> T {
    std::env::var(name).map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number"))
    })
}

/// Prints a world's seed if the test ends badly.
struct Telltale(u64);

impl Drop for Telltale {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!(
                "to see it again: FAIRQ_TEST_SEED={} FAIRQ_TEST_WORLDS=1",
                self.0
            );
        }
    }
}

/// Runs a property in `count` worlds, or as many as the environment asks for.
pub(crate) fn worlds(count: u64, mut property: impl FnMut(Dice)) {
    let first: u64 = setting("FAIRQ_TEST_SEED", 1);
    for seed in (first..).take(usize::try_from(setting("FAIRQ_TEST_WORLDS", count)).unwrap()) {
        let _telltale = Telltale(seed);
        property(Dice::seeded(seed));
    }
}

pub(crate) fn shard(number: u8) -> ShardId {
    ShardId::new(number).unwrap()
}

pub(crate) fn band(number: u32) -> Band {
    Band::new(number).unwrap()
}

pub(crate) fn key(name: impl Display) -> FairnessKey {
    name.to_string().parse().unwrap()
}

pub(crate) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

pub(crate) fn tally(name: impl Display, count: u32, since: i64, weight: f64) -> Tally {
    Tally {
        key: key(name),
        count,
        since: at(since),
        weight: Weight::or_one(weight),
    }
}

pub(crate) fn report(number: u32, tallies: Vec<Tally>) -> Arc<ShardTally> {
    Arc::new(ShardTally::new(band(number), tallies))
}

pub(crate) fn board(reports: &[(u8, Arc<ShardTally>)]) -> TallyBoard {
    let mut board = TallyBoard::default();
    for (number, report) in reports {
        board.report(shard(*number), Arc::clone(report), at(0));
    }
    board
}

pub(crate) fn one_of<T: Copy>(dice: &mut Dice, choices: &[T]) -> T {
    choices[usize::try_from(dice.below(choices.len() as u64)).unwrap()]
}

/// Weights of every sort; what is no weight counts as 1.
pub(crate) const WEIGHTS: [f64; 14] = [
    1.0,
    1.0,
    2.0,
    4.0,
    0.5,
    3.0,
    1e-300,
    1e300,
    5e-324,
    0.0,
    -1.0,
    f64::NAN,
    f64::INFINITY,
    1e-9,
];

pub(crate) fn random_report(dice: &mut Dice) -> Arc<ShardTally> {
    let best = one_of(dice, &[0, 5, 5, 5, 9]);
    let mut tallies = Vec::new();
    for name in 0..dice.below(9) {
        if dice.below(3) > 0 {
            let most = one_of(dice, &[1, 3, 3, 40, u64::from(u32::MAX)]);
            let count = u32::try_from(dice.below(most + 1)).unwrap();
            let since = i64::try_from(dice.below(4)).unwrap();
            tallies.push(tally(
                format!("k{name}"),
                count,
                since,
                one_of(dice, &WEIGHTS),
            ));
        }
    }
    report(best, tallies)
}

/// Up to six shards, some of which take no part or have nothing due.
pub(crate) fn random_board(dice: &mut Dice) -> TallyBoard {
    let mut board = TallyBoard::default();
    for shard in ShardId::first(6) {
        match dice.below(6) {
            0 => {}
            1 => board.report(shard, Arc::new(ShardTally::nothing()), at(0)),
            _ => board.report(shard, random_report(dice), at(0)),
        }
    }
    board
}

pub(crate) fn random_capacity(dice: &mut Dice) -> usize {
    usize::try_from(one_of(dice, &[0, 1, 2, 7, 64, 300])).unwrap()
}

/// Decides with fresh passes, or with the dice of `seed`.
pub(crate) fn decide(board: &TallyBoard, pick: Pick, capacity: usize, seed: u64) -> Decision {
    let merged = Arc::new(Merged::of(board));
    match pick {
        Pick::Stride => Decision::by_stride(merged, &Standing::default(), capacity),
        Pick::Lottery => Decision::by_lottery(merged, capacity, seed, dice(seed)),
    }
}

pub(crate) const PICKS: [Pick; 2] = [Pick::Stride, Pick::Lottery];

/// Runs a property on many random decisions of both picks.
pub(crate) fn decisions(mut property: impl FnMut(&TallyBoard, &Decision, usize)) {
    worlds(400, |mut dice| {
        let board = random_board(&mut dice);
        let capacity = random_capacity(&mut dice);
        for pick in PICKS {
            property(
                &board,
                &decide(&board, pick, capacity, dice.bits()),
                capacity,
            );
        }
    });
}

pub(crate) fn names(decision: &Decision) -> Vec<&str> {
    let keys = decision.merged.keys();
    let name = |at: usize| keys[at].key.as_str();
    decision.order.iter().map(|drawn| name(drawn.key)).collect()
}
