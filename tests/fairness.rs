//! Strict bands and weighted fairness, held by the real planner, cache, refillers and store together.
//!
//! Worlds are drawn from seeds and run in virtual time: `FAIRQ_TEST_SEED` names the first seed,
//! `FAIRQ_TEST_WORLDS` says how many worlds of a kind. What keys get is measured against the fluid
//! ideal, see `fairness/ledger.rs`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests fail the test that called them, and tell what they measured"
)]

#[path = "fairness/ledger.rs"]
mod ledger;
#[path = "fairness/sim.rs"]
mod sim;
#[path = "fairness/spec.rs"]
mod spec;

use fairq::model::{Band, FairnessKey, ShardId, Timestamp, Weight};
use fairq::planner::{Pick, Planner};
use fairq::store::placement::Placement;
use fairq::tally::{ShardTally, Tally};

use ledger::Worst;
use spec::{Kind, Source, Spec, Supply, key_on};

fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

/// Runs worlds of a kind, holds each against the bounds, and prints the worst of all.
fn hold(kind: Kind, deviation: impl Fn(&Spec) -> f64) {
    let first = number_from("FAIRQ_TEST_SEED", 1);
    let mut all = Worst::default();
    for seed in first..first + number_from("FAIRQ_TEST_WORLDS", 40) {
        let spec = Spec::drawn(kind, seed);
        let worst = sim::run(&spec).worst;
        let what = format!(
            "{kind:?} world of FAIRQ_TEST_SEED={seed}: {} workers, {} shards, {:?}, {worst:?}",
            spec.workers, spec.shards, spec.placement
        );
        assert_eq!(worst.taken, spec.takes, "work was left lying: {what}");
        assert_eq!(worst.lost, 0, "a step was taken twice: {what}");
        assert_eq!(worst.stalls, 0, "workers slept beside due work: {what}");
        assert!(worst.deviation <= deviation(&spec), "unfair: {what}");
        assert!(worst.wait <= 3.0, "a key waited too long: {what}");
        assert!(worst.late_cycles <= 2, "a worse band was served: {what}");
        all.merge(&worst);
    }
    println!("{kind:?}: {all:?}");
}

#[expect(clippy::cast_precision_loss, reason = "a number of workers")]
fn workers(spec: &Spec) -> f64 {
    spec.workers as f64
}

/// What a crew takes that finds the cache empty, from the first shard to fill it: a step each. It is
/// paid back, but slowly by a key of small weight.
fn rush(spec: &Spec) -> f64 {
    if spec.cold { workers(spec) } else { 0.0 }
}

#[test]
fn keys_with_steps_throughout_get_what_their_weights_promise() {
    hold(Kind::Steady, |spec| {
        let windows = match spec.placement {
            Placement::Key => workers(spec) / 16.0,
            // Every shard's window holds steps of every key, planned at another time.
            Placement::Spread => workers(spec) / 8.0,
        };
        5.0 + windows + rush(spec)
    });
}

#[test]
fn keys_that_come_and_go_neither_gain_nor_lose_by_it() {
    hold(Kind::Churn, |spec| {
        let windows = match spec.placement {
            Placement::Key => 0.0,
            Placement::Spread => workers(spec) / 2.0,
        };
        12.0 + windows + rush(spec)
    });
}

#[test]
fn no_worse_band_is_served_while_a_better_one_waits() {
    // Whenever a better band is done, idle workers rush for the first shard that fills the cache.
    hold(Kind::Bands, |spec| 12.0 + workers(spec));
}

fn source(key: FairnessKey, weight: f64, supply: Supply) -> Source {
    Source {
        key,
        band: Band::DEFAULT,
        weight: Weight::new(weight).unwrap(),
        supply,
    }
}

fn shard(number: u8) -> ShardId {
    ShardId::new(number).unwrap()
}

/// The furthest that a key's takes are from its share of all, over all prefixes after the start.
fn strays(spec: &Spec, key: &FairnessKey, share: f64, after: usize) -> f64 {
    let order = sim::run(spec).order;
    let (mut had, mut furthest) = (0.0, 0.0_f64);
    let mut due = 0.0;
    for (at, taken) in order.iter().enumerate() {
        had += f64::from(u8::from(taken == key));
        due += share;
        if at >= after {
            furthest = furthest.max((had - due).abs());
        }
    }
    furthest
}

#[test]
fn a_key_alone_on_its_shard_gets_its_quarter() {
    for workers in spec::WORKERS {
        let light = key_on("light", shard(1), 2);
        let steady = Supply::Steady(4 * u64::try_from(workers).unwrap() + 40);
        let sources = vec![
            source(light.clone(), 1.0, steady),
            source(key_on("heavy", shard(0), 2), 3.0, steady),
        ];
        let spec = Spec::of(sources, workers, 2, 2_000);
        let furthest = strays(&spec, &light, 0.25, 0);
        assert!(furthest <= 4.0, "{workers} workers: {furthest}");
    }
}

#[test]
fn a_small_key_takes_turns_with_a_huge_one() {
    for other in [0, 1] {
        for workers in [1, 8, 32] {
            let small = key_on("small", shard(other), 2);
            let sources = vec![
                source(small.clone(), 1.0, Supply::Once(10)),
                source(key_on("huge", shard(0), 2), 1.0, Supply::Once(100_000)),
            ];
            let order = sim::run(&Spec::of(sources, workers, 2, 40)).order;
            let places: Vec<usize> = (0..order.len()).filter(|at| order[*at] == small).collect();
            let what = format!("{workers} workers, on shard {other}: {places:?}");
            assert_eq!(places.len(), 10, "{what}");
            // Its n-th step is the 2n-th of all, give or take two, and give or take those workers
            // that were told of a shard at once and reach for it together.
            let most = 3 + workers / 8;
            let fits = |(nth, at): (usize, &usize)| (2 * nth).abs_diff(*at) <= most;
            assert!(places.iter().enumerate().all(fits), "{what}");
        }
    }
}

#[test]
fn a_shard_that_cannot_be_read_holds_nobody_back_and_is_owed_nothing() {
    let planner = Planner::new(Pick::Stride, 1);
    let keys: [FairnessKey; 3] = ["blind", "new", "served"].map(|key| key.parse().unwrap());
    let report = |keys: &[&FairnessKey]| {
        let tally = |key: &&FairnessKey| Tally {
            key: FairnessKey::clone(key),
            count: 9,
            since: Timestamp::from_millis(0),
            weight: Weight::ONE,
        };
        ShardTally::new(Band::DEFAULT, keys.iter().map(tally).collect())
    };
    let [blind, new, served] = &keys;
    let now = Timestamp::from_millis(0);
    planner.tally(shard(0), report(&[blind]), now);
    planner.tally(shard(1), report(&[served]), now);
    planner.clear(shard(0));
    for _ in 0..100 {
        let turn = planner.next_turn(Band::DEFAULT, served, Weight::ONE);
        planner.took(Band::DEFAULT, served, turn);
    }
    planner.tally(shard(1), report(&[new, served]), now);
    planner.tally(shard(0), report(&[blind]), now);
    let [blind, new, served] =
        keys.map(|key| planner.next_turn(Band::DEFAULT, &key, Weight::ONE).as_f64());
    assert!((blind - served).abs() <= 1.0, "{blind} {served}");
    assert!((new - served).abs() <= 1.0, "{new} {served}");
}

/// Without turns a shallow partition is passed over; the bounds above would be worth nothing if they
/// held then too.
#[test]
fn the_bounds_are_kept_by_turns_and_not_by_luck() {
    let worst = |pick, progress| {
        let mut all = Worst::default();
        for seed in 1..=10 {
            let drawn = Spec::drawn(Kind::Steady, seed);
            all.merge(
                &sim::run(&Spec {
                    pick,
                    progress,
                    ..drawn
                })
                .worst,
            );
        }
        println!("{pick:?}, progress {progress}: {all:?}");
        all
    };
    let stride = worst(Pick::Stride, true);
    for (pick, progress) in [(Pick::Lottery, true), (Pick::Lottery, false)] {
        let other = worst(pick, progress);
        assert!(other.deviation > 4.0 * stride.deviation);
        assert!(other.wait > 4.0 * stride.wait);
    }
}
