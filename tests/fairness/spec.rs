//! What a world is made of, and how one is drawn from a seed.

use fairq::ambient::Dice;
use fairq::model::{Band, FairnessKey, ShardId, Weight};
use fairq::planner::Pick;
use fairq::store::placement::{Placement, Placer};

/// A key whose steps never run out, or do.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) key: FairnessKey,
    pub(crate) band: Band,
    pub(crate) weight: Weight,
    pub(crate) supply: Supply,
}

/// How a key's steps come.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Supply {
    /// So many at the start, and none after.
    Once(u64),
    /// As many as this, filled up again at half.
    Steady(u64),
    /// Up to so many at once, after a pause of so many microseconds on average without any; to
    /// be continued.
    Visits { most: u64, pause: u64 },
}

impl Source {
    /// Returns whether new steps come after the last one was taken.
    pub(crate) const fn comes_again(&self) -> bool {
        !matches!(self.supply, Supply::Once(_))
    }
}

/// One world.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) seed: u64,
    pub(crate) workers: usize,
    pub(crate) shards: u8,
    pub(crate) placement: Placement,
    pub(crate) pick: Pick,
    /// Whether takes turn all shards, or only the one whose partition runs low.
    pub(crate) progress: bool,
    pub(crate) sources: Vec<Source>,
    /// How many takes the world lasts.
    pub(crate) takes: u64,
    /// How long a step runs on average, in microseconds, and whether that varies a hundredfold.
    pub(crate) step: u64,
    pub(crate) uneven: bool,
    /// How long each part of a refiller's cycle takes at most, in microseconds.
    pub(crate) phase: u64,
    /// Whether the crew is there before any shard has turned.
    pub(crate) cold: bool,
    /// How many in a hundred of the steps that come are offered to the cache as well.
    pub(crate) offered: u64,
}

/// What kind of world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// All keys have steps throughout.
    Steady,
    /// Small keys come and go beside them.
    Churn,
    /// And so does work at better bands.
    Bands,
}

pub(crate) const WORKERS: [usize; 7] = [1, 2, 3, 8, 16, 32, 64];

pub(crate) fn pick<T: Copy>(dice: &mut Dice, from: &[T]) -> T {
    let count = u64::try_from(from.len()).unwrap();
    from[usize::try_from(dice.below(count)).unwrap()]
}

/// Returns a key that lives on this shard of so many.
pub(crate) fn key_on(name: &str, shard: ShardId, shards: u8) -> FairnessKey {
    let placer = Placer::new(Placement::Key, shards, 0);
    (0..)
        .map(|number| format!("{name}.{number}").parse().unwrap())
        .find(|key| placer.peek(key) == shard)
        .unwrap()
}

impl Spec {
    /// Returns the plainest world: these sources and nothing else.
    pub(crate) fn of(sources: Vec<Source>, workers: usize, shards: u8, takes: u64) -> Self {
        Self {
            seed: 1,
            workers,
            shards,
            placement: Placement::Key,
            pick: Pick::Stride,
            progress: true,
            sources,
            takes,
            step: 5_000,
            uneven: false,
            phase: 200,
            cold: false,
            offered: 0,
        }
    }

    /// Draws a world.
    pub(crate) fn drawn(kind: Kind, seed: u64) -> Self {
        let mut dice = Dice::seeded(seed);
        let workers = pick(&mut dice, &WORKERS);
        let shards = u8::try_from(1 + dice.below(8)).unwrap();
        let phase = 10 + dice.below(190);
        // A crew that empties the cache faster than shards turn takes what there is; so steps
        // last longer than a cycle, as processes do.
        let step = phase * 8 + dice.below(20_000);
        let few = dice.below(2) == 0;
        let count = if few {
            2 + dice.below(3)
        } else {
            2 + dice.below(15)
        };
        let steady = |dice: &mut Dice, number: u64| {
            let deep = u64::try_from(workers).unwrap() * 4;
            Source {
                supply: Supply::Steady(deep + dice.below(4 * deep)),
                ..source(dice, &format!("steady{number}"), shards, few)
            }
        };
        let mut sources: Vec<Source> = (0..count).map(|n| steady(&mut dice, n)).collect();
        if kind != Kind::Steady {
            let visitors = 1 + dice.below(12);
            // Together they come about as often as a worker is free, or far less often.
            let rate = step * visitors / u64::try_from(workers).unwrap();
            for number in 0..visitors {
                let supply = Supply::Visits {
                    most: 1 + dice.below(8),
                    pause: rate * (1 + dice.below(40)),
                };
                let plain = source(&mut dice, &format!("visitor{number}"), shards, false);
                sources.push(Source { supply, ..plain });
            }
        }
        if kind == Kind::Bands {
            for number in 0..1 + dice.below(3) {
                let supply = Supply::Visits {
                    most: 1 + dice.below(20),
                    pause: step * (5 + dice.below(40)),
                };
                let band = Band::new(pick(&mut dice, &[1, 10])).unwrap();
                let plain = source(&mut dice, &format!("urgent{number}"), shards, false);
                sources.push(Source {
                    supply,
                    band,
                    ..plain
                });
            }
        }
        Self {
            seed,
            placement: pick(
                &mut dice,
                &[Placement::Key, Placement::Key, Placement::Spread],
            ),
            step,
            uneven: dice.below(2) == 0,
            phase,
            offered: pick(&mut dice, &[0, 0, 20, 100]),
            cold: dice.below(4) == 0,
            ..Self::of(sources, workers, shards, 2_400)
        }
    }
}

fn source(dice: &mut Dice, name: &str, shards: u8, crowded: bool) -> Source {
    // Crowded: nearly all keys on the first shard, so that another has one alone.
    let spread = if crowded && dice.below(4) > 0 {
        1
    } else {
        u64::from(shards)
    };
    let shard = ShardId::new(u8::try_from(dice.below(spread)).unwrap()).unwrap();
    Source {
        key: key_on(name, shard, shards),
        band: Band::DEFAULT,
        weight: Weight::new(0.1 * 100_f64.powf(dice.unit())).unwrap(),
        supply: Supply::Once(0),
    }
}
