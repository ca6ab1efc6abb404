//! What decides and does nothing else: planning, and the cache. Everything here is arithmetic in
//! memory; what touches a store is measured by `examples/bench`.
//!
//! `cargo bench --bench pure` measures; `cargo test --bench pure` runs each once.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use fairq::cache::CandidateCache;
use fairq::model::{
    Band, Candidate, FairnessKey, LocalId, ShardId, StepId, Timestamp, Turn, Weight,
};
use fairq::planner::{Pick, Planner};
use fairq::tally::{ShardTally, Tally};

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn shard() -> ShardId {
    ShardId::new(0).expect("shards are numbered from 0")
}

/// One shard's report of so many keys, with weights from 1 to 4.
fn report(keys: u32) -> ShardTally {
    let keys = (0..keys).map(|number| Tally {
        key: format!("key-{number:05}").parse().expect("a key"),
        count: 1_000,
        since: NOW,
        weight: Weight::new(f64::from(number % 4 + 1)).expect("a weight"),
    });
    ShardTally::new(Band::DEFAULT, keys.collect())
}

/// A plan on a picture that has not changed, and one for which a shard reports something new first,
/// so that all reports are merged again.
fn plan(criterion: &mut Criterion) {
    let shard = shard();
    for pick in [Pick::Stride, Pick::Lottery] {
        let mut group = criterion.benchmark_group(format!("plan/{}", pick.word()));
        for keys in [10, 1_000, 10_000] {
            let planner = Planner::new(pick, 1);
            for shard in ShardId::first(4) {
                planner.tally(shard, report(keys), NOW);
            }
            for slots in [16, 256, 1_024] {
                let of = format!("{keys} keys x {slots} slots");
                group.bench_function(BenchmarkId::new("same", &of), |bencher| {
                    bencher.iter(|| planner.plan(shard, black_box(slots)));
                });
                let fresh = report(keys);
                group.bench_function(BenchmarkId::new("news", &of), |bencher| {
                    bencher.iter_batched(
                        || Arc::new(fresh.clone()),
                        |news| {
                            planner.tally(shard, news, NOW);
                            planner.plan(shard, black_box(slots))
                        },
                        BatchSize::SmallInput,
                    );
                });
            }
        }
    }
}

/// So many hints for the first shard, the first of them with this number.
fn hints(first: i64, count: i64) -> Vec<Candidate> {
    let key = FairnessKey::default();
    (first..first + count)
        .map(|number| Candidate {
            id: StepId::new(shard(), LocalId::new(number)),
            band: Band::DEFAULT,
            key: key.clone(),
            turn: Turn::ZERO,
        })
        .collect()
}

/// Filling a partition again, and taking one hint and saying that its claim is decided.
fn fill_and_take(criterion: &mut Criterion) {
    let shard = shard();
    let mut group = criterion.benchmark_group("cache");
    for workers in [2_i64, 64, 2_048] {
        let cache = CandidateCache::new(usize::try_from(workers).expect("a size"));
        let batch = hints(1, workers * 2);
        group.bench_function(BenchmarkId::new("refill", workers * 2), |bencher| {
            bencher.iter_batched(
                || batch.clone(),
                |batch| cache.refill(shard, batch, Band::DEFAULT),
                BatchSize::SmallInput,
            );
        });
        group.bench_function(BenchmarkId::new("pop", workers * 2), |bencher| {
            bencher.iter(|| {
                if cache.is_empty() {
                    cache.begin_cycle(shard);
                    cache.refill(shard, batch.clone(), Band::DEFAULT);
                }
                let taken = cache.pop().expect("it was just filled");
                cache.release(taken.candidate.id);
                taken
            });
        });
    }
    group.finish();
}

/// An offer while so many workers sleep: it wakes one, which takes it and sleeps again.
fn offer(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("offer");
    for waiters in [2_usize, 64, 2_048] {
        let cache = CandidateCache::new(waiters);
        let offered = hints(1, 1).remove(0);
        std::thread::scope(|scope| {
            for _ in 0..waiters {
                std::thread::Builder::new()
                    .stack_size(64 * 1_024)
                    .spawn_scoped(scope, || {
                        while let Some(taken) = cache.pop() {
                            cache.release(taken.candidate.id);
                        }
                    })
                    .expect("a thread");
            }
            while cache.parked() < waiters {
                std::thread::yield_now();
            }
            group.bench_function(BenchmarkId::new("waiters", waiters), |bencher| {
                bencher.iter(|| cache.offer(offered.clone()));
            });
            cache.close();
        });
    }
    group.finish();
}

criterion_group!(benches, plan, fill_and_take, offer);
criterion_main!(benches);
