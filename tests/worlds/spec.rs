//! A world, drawn from its seed.

use std::time::Duration;

use fairq::ambient::Dice;
use fairq::model::{Band, FairnessKey, LimitName, Span, Weight};
use fairq::planner::Pick;
use fairq::refiller::Pace;
use fairq::store::placement::Placement;

use super::chance::Rates;

/// What a world is like.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) seed: u64,
    pub(crate) sqlite: bool,
    pub(crate) shards: u8,
    pub(crate) placement: Placement,
    pub(crate) runners: u64,
    pub(crate) most_workers: u64,
    pub(crate) pick: Pick,
    pub(crate) pace: Pace,
    pub(crate) lease: Span,
    /// How many of a hundred runners have no lock that others can ask.
    pub(crate) lockless: u64,
    pub(crate) keys: Vec<(FairnessKey, Weight)>,
    pub(crate) bands: Vec<Band>,
    pub(crate) limits: Vec<LimitName>,
    /// The longest phase of a cycle, in microseconds.
    pub(crate) phase: u64,
    /// The longest run of a step, in microseconds.
    pub(crate) run: u64,
    /// How many steps come, and over how many microseconds.
    pub(crate) steps: u64,
    pub(crate) coming: u64,
    /// How many of a thousand events of people are steering, not enqueueing.
    pub(crate) steering: u64,
    pub(crate) rates: Rates,
}

impl Spec {
    pub(crate) fn draw(seed: u64, sqlite: bool) -> Self {
        let mut dice = Dice::seeded(seed ^ 0x0057_0eed);
        let dice = &mut dice;
        let shards = 1 + small(dice, 6);
        let keys = 1 + dice.below(5);
        let weigh = |dice: &mut Dice| [1.0, 1.0, 0.5, 3.0, 10.0][index(dice.below(5))];
        let keys = (0..keys)
            .map(|number| {
                let key = format!("k{number}").parse().expect("it is a key");
                (key, Weight::or_one(weigh(dice)))
            })
            .collect();
        let bands = 1 + dice.below(4);
        let bands = (0..bands)
            .map(|number| {
                Band::new(u32::try_from(number * 10).expect("small")).expect("it is a band")
            })
            .collect();
        let limits = (0..dice.below(4))
            .map(|number| format!("l{number}").parse().expect("it is a limit"))
            .collect();
        let most = if sqlite { 30 } else { 60 };
        Self {
            seed,
            sqlite,
            shards,
            // In SQLite each process starts its turns elsewhere, which no seed decides.
            placement: if sqlite || dice.below(2) == 0 {
                Placement::Key
            } else {
                Placement::Spread
            },
            runners: 1 + dice.below(4),
            most_workers: 1 + dice.below(5),
            pick: if dice.below(3) == 0 {
                Pick::Lottery
            } else {
                Pick::Stride
            },
            pace: Pace {
                heartbeat: Duration::from_millis(300 + dice.below(900)),
                min_gap: Duration::from_millis(1 + dice.below(10)),
            },
            lease: Span::from_millis(1_500 + dice.below(3_000)),
            lockless: [0, 0, 50, 100][index(dice.below(4))],
            keys,
            bands,
            limits,
            phase: [200, 2_000, 20_000][index(dice.below(3))],
            run: [2_000, 50_000, 900_000][index(dice.below(3))],
            steps: 5 + dice.below(most),
            coming: 1 + dice.below(8_000_000),
            steering: [0, 150, 500][index(dice.below(3))],
            rates: Rates::draw(dice),
        }
    }
}

pub(crate) fn index(number: u64) -> usize {
    usize::try_from(number).expect("a drawn number is small")
}

fn small(dice: &mut Dice, below: u64) -> u8 {
    u8::try_from(dice.below(below)).expect("a drawn number is small")
}
