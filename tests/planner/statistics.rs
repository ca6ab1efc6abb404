//! What the lottery promises in the long run. The tolerances are five sigma: with any seed a right
//! build fails once in a million runs, and a wrong one nearly always.

use std::sync::Arc;

use fairq::ambient::Dice;
use fairq::planner::{Merged, lottery};
use fairq::tally::TallyBoard;

use crate::world::{board, report, setting, shard, tally};

/// Returns the orders of many plans, as indices of keys that were named in ascending order.
fn draw(board: &TallyBoard, capacity: usize, plans: usize, salt: u64) -> Vec<Vec<usize>> {
    let merged = Merged::of(board);
    let seed: u64 = setting("FAIRQ_TEST_SEED", 1);
    println!("FAIRQ_TEST_SEED={seed}");
    let mut dice = Dice::seeded(seed ^ (salt << 40));
    (0..plans)
        .map(|_| lottery::order(&merged, capacity, || dice.unit()))
        .map(|order| order.iter().map(|drawn| drawn.key).collect())
        .collect()
}

fn keys(keys: &[(u32, f64)]) -> TallyBoard {
    let tallies = keys.iter().enumerate();
    let tallies = tallies.map(|(n, (count, weight))| tally(format!("{n:03}"), *count, 0, *weight));
    board(&[(0, report(1, tallies.collect()))])
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn share(of: usize, plans: &[Vec<usize>]) -> f64 {
    let all: usize = plans.iter().map(Vec::len).sum();
    let hits = plans.iter().flatten().filter(|key| **key == of).count();
    hits as f64 / all as f64
}

#[track_caller]
fn near(value: f64, expected: f64, tolerance: f64) {
    assert!(
        (value - expected).abs() <= tolerance,
        "{value}, not {expected} ± {tolerance}"
    );
}

#[test]
fn shares_follow_the_weights() {
    let plans = draw(
        &keys(&[(u32::MAX, 4.0), (u32::MAX, 1.0), (u32::MAX, 4.0)]),
        12,
        7_500,
        1,
    );
    near(share(0, &plans), 4.0 / 9.0, 0.0083);
    near(share(1, &plans), 1.0 / 9.0, 0.0052);
    near(share(2, &plans), 4.0 / 9.0, 0.0083);
    let chi: f64 = [(0, 4.0 / 9.0), (1, 1.0 / 9.0), (2, 4.0 / 9.0)]
        .iter()
        .map(|(key, p)| (share(*key, &plans) - p).powi(2) * 90_000.0 / p)
        .sum();
    assert!(chi < 27.6, "chi² is {chi}");
}

#[test]
fn shares_do_not_follow_the_backlog() {
    let plans = draw(&keys(&[(1_000, 1.0), (1_000_000, 1.0)]), 1_000, 100, 2);
    near(share(0, &plans), 0.5, 0.0079);
}

#[test]
fn shares_are_the_same_at_every_position() {
    let plans = draw(&keys(&[(1_000, 1.0), (1_000_000, 1.0)]), 20, 20_000, 3);
    for position in [0, 10, 19] {
        let at: Vec<Vec<usize>> = plans.iter().map(|plan| vec![plan[position]]).collect();
        near(share(0, &at), 0.5, 0.0177);
    }
}

#[test]
fn neighbours_are_independent() {
    let weights = [1.0, 2.0, 3.0, 4.0];
    let plans = draw(
        &keys(&weights.map(|weight| (u32::MAX, weight))),
        2,
        90_000,
        4,
    );
    let mut table = [[0.0_f64; 4]; 4];
    plans.iter().for_each(|plan| table[plan[0]][plan[1]] += 1.0);
    let mut chi = 0.0;
    for (row, one) in table.iter().zip(weights) {
        for (found, other) in row.iter().zip(weights) {
            let expected = 90_000.0 * one * other / 100.0;
            chi += (found - expected).powi(2) / expected;
        }
    }
    // 15 degrees of freedom, as the shares are known; beyond this once in a million.
    assert!(chi < 56.5, "chi² is {chi}");
}

#[test]
fn equal_weights_are_equal_however_small_or_large() {
    for weight in [1e-300, 1e-12, 1e-6, 1.0, 1e6, 1e12, 1e17, 1e300, f64::MAX] {
        let plans = draw(
            &keys(&[(u32::MAX, weight), (u32::MAX, weight)]),
            100,
            200,
            5,
        );
        near(share(0, &plans), 0.5, 0.0177);
    }
}

#[test]
fn a_thousandth_is_a_thousandth() {
    let plans = draw(
        &keys(&[(u32::MAX, 1_000.0), (u32::MAX, 1.0)]),
        1_000,
        1_000,
        6,
    );
    near(share(1, &plans) * 1_000_000.0, 999.0, 158.0);
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "indices below 80")]
fn a_heavy_key_is_through_earlier() {
    let plans = draw(&keys(&[(40, 4.0), (40, 1.0)]), 80, 20, 7);
    let mean = |plan: &[usize], of: usize| {
        let at = plan.iter().enumerate().filter(|(_, key)| **key == of);
        at.map(|(at, _)| at as f64).sum::<f64>() / 40.0
    };
    let gaps = plans.iter().map(|plan| mean(plan, 1) - mean(plan, 0));
    near(gaps.sum::<f64>() / 20.0, 29.7, 4.7);
}

/// Shards that roll their own dice get the capacity only on average; one order is exact.
#[test]
#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn independent_rolls_fill_the_capacity_on_average() {
    for shards in [2_u8, 8] {
        let reports: Vec<_> = (0..shards)
            .map(|n| (n, report(1, vec![tally(n, u32::MAX, 0, 1.0)])))
            .collect();
        let merged = Arc::new(Merged::of(&board(&reports)));
        let seed: u64 = setting("FAIRQ_TEST_SEED", 1);
        println!("FAIRQ_TEST_SEED={seed}");
        let mut dice = Dice::seeded(seed ^ 8 << 40);
        let mut union = |_| -> usize {
            let own = |n| {
                let seed = dice.bits();
                let numbers = fairq::planner::dice(seed);
                fairq::planner::Decision::by_lottery(Arc::clone(&merged), 64, seed, numbers)
                    .plan(shard(n))
                    .slots
                    .len()
            };
            (0..shards).map(own).sum()
        };
        let mean = (0..4_000).map(&mut union).sum::<usize>() as f64 / 4_000.0;
        let sigma = (64.0 * (1.0 - 1.0 / f64::from(shards))).sqrt();
        near(mean, 64.0, 5.0 * sigma / 4_000_f64.sqrt());
    }
}

/// Invariant 42: of ten equal keys none waits beyond 250 slots (0.9^250 · 10 keys · 10^5 slots is
/// below one in 100,000).
#[test]
fn no_key_waits_long() {
    let plans = draw(&keys(&[(u32::MAX, 1.0); 10]), 1_000, 100, 9);
    let mut last = [0_usize; 10];
    for (now, key) in plans.iter().flatten().enumerate() {
        assert!(
            now - last[*key] < 250,
            "key {key} waited {}",
            now - last[*key]
        );
        last[*key] = now;
    }
}
