//! Random sequences of calls: the cache and the naive model give the same answers and look the same
//! after each.

use fairq::cache::{CacheView, CandidateCache, PartitionView};
use fairq::model::{Candidate, ShardId};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::kit::{self, Command, band, candidate, step};
use crate::naive::{Naive, SHARDS};

fn runner(seed: u64, cases: u32) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

fn some_band() -> impl Strategy<Value = u32> {
    prop_oneof![Just(1_u32), Just(5), Just(100)]
}

/// Few ids, so that one and the same is taken, released, offered and refilled again.
fn some_candidate(of: u8, turns: u8) -> impl Strategy<Value = Candidate> {
    (1..=12_i64, some_band(), 0..turns).prop_map(move |(id, at, turn)| candidate(of, id, at, turn))
}

fn command(shards: u8, turns: u8) -> impl Strategy<Value = Command> {
    let of = 0..shards;
    prop_oneof![
        6 => (of.clone(), some_band()).prop_flat_map(move |(of, at)| {
            vec(some_candidate(of, turns), 0..7)
                .prop_map(move |batch| Command::Refill(of, batch, band(at)))
        }),
        8 => of.clone().prop_flat_map(move |of| some_candidate(of, turns)).prop_map(Command::Offer),
        8 => Just(Command::Pop),
        4 => of.clone().prop_map(Command::TryPop),
        2 => Just(Command::Peek),
        2 => Just(Command::Wait),
        1 => Just(Command::Len),
        2 => (0..=5_usize).prop_map(Command::Resize),
        4 => (of.clone(), 1..=12_i64).prop_map(|(of, id)| Command::Release(step(of, id))),
        3 => of.clone().prop_map(Command::BeginCycle),
        1 => of.prop_map(Command::TakenOf),
        1 => prop_oneof![9 => Just(Command::Len), 1 => Just(Command::Close)],
    ]
}

/// The view with an entry for every shard, also for those that the cache has not heard of.
fn whole(mut view: CacheView) -> CacheView {
    let heard_of = view.partitions.len();
    let missing = ShardId::first(SHARDS).skip(heard_of);
    view.partitions.extend(missing.map(|shard| PartitionView {
        shard,
        floor: None,
        depth: 0,
        planned: 0,
        offered: 0,
        last_fill: 0,
        low_water: 1,
        head_turn: None,
        first: Vec::new(),
        taken: 0,
    }));
    view
}

fn agree(turns: u8, by_turn: bool, cases: u32) {
    let seed = kit::seed();
    let sequences = (1..=SHARDS, 0..=5_usize).prop_flat_map(move |(shards, workers)| {
        (Just(workers), vec(command(shards, turns), 1..=60))
    });
    let outcome = runner(seed, cases).run(&sequences, |(workers, commands)| {
        let cache = CandidateCache::new(workers);
        let mut naive = Naive::new(workers, by_turn);
        for (at, command) in commands.iter().enumerate() {
            let blocks = matches!(command, Command::Pop | Command::Wait);
            if blocks && naive.would_block() {
                continue;
            }
            let peeked = cache.peek_shard();
            let answer = kit::call(&cache, command);
            prop_assert_eq!(&answer, &naive.call(command), "answer of command {}", at);
            prop_assert_eq!(
                whole(cache.snapshot()),
                naive.view(),
                "after command {}",
                at
            );
            // I19: what was seen is what is taken.
            if let (Command::Pop, kit::Answer::Took(Some(taken))) = (command, answer) {
                prop_assert_eq!(Some(taken.candidate.id.shard), peeked);
            }
        }
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("FAIRQ_TEST_SEED={seed}: {failure}");
    }
}

#[test]
fn the_cache_agrees_with_the_naive_model() {
    agree(3, true, 10_000);
}

/// Where turns are equal the choice is by floor, depth and shard alone, to the letter.
#[test]
fn with_equal_turns_the_order_knows_no_turns() {
    agree(1, false, 3_000);
}
