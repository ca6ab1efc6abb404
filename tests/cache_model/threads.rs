//! Promises about callers that sleep, and about callers that meet. No test here waits for time to
//! pass: each waits until the cache says that so many sleep.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use fairq::ambient::Dice;
use fairq::cache::{CandidateCache, Waited};

use crate::kit::{self, Answer, Closing, Command, band, batch, candidate, fill, offer, shard};
use crate::naive::Naive;

fn until_parked(cache: &CandidateCache, count: usize) {
    while cache.snapshot().parked != count {
        thread::yield_now();
    }
}

fn wakes(cache: &CandidateCache) -> u64 {
    cache.snapshot().counters.wakes
}

/// A worker's loop; what it gets goes to `log` under its number.
fn work(cache: &CandidateCache, number: usize, log: &Mutex<Vec<(usize, String)>>) -> Waited {
    loop {
        match cache.wait_for_work() {
            Waited::Work(shard) => {
                if let Some(taken) = cache.try_pop_from(shard) {
                    let name = taken.candidate.id.to_string();
                    log.lock().unwrap().push((number, name));
                }
            }
            end @ (Waited::Retire | Waited::Closed) => return end,
        }
    }
}

/// Retirement is reached only by waking: a crew that wakes the last to sleep would never shrink.
#[test]
fn i33_sleepers_are_woken_in_the_order_in_which_they_lay_down() {
    const CREW: usize = 5;
    let cache = CandidateCache::new(CREW);
    let log = Mutex::default();
    thread::scope(|scope| {
        let _closing = Closing(&cache);
        for number in 0..CREW {
            let (cache, log) = (&cache, &log);
            scope.spawn(move || work(cache, number, log));
            until_parked(cache, number + 1);
        }
        for round in 0..20 {
            fill(&cache, 0, 1 + round..2 + round, 1);
            while log.lock().unwrap().len() <= usize::try_from(round).unwrap() {
                thread::yield_now();
            }
            until_parked(&cache, CREW);
        }
        cache.close();
    });
    let served: Vec<usize> = log.into_inner().unwrap().iter().map(|one| one.0).collect();
    let in_turn: Vec<usize> = (0..20).map(|round| round % CREW).collect();
    assert_eq!(served, in_turn);
}

#[test]
fn i30_i31_a_refill_wakes_one_for_each_candidate_and_all_are_taken() {
    let cache = CandidateCache::new(8);
    let log = Mutex::default();
    thread::scope(|scope| {
        let _closing = Closing(&cache);
        for number in 0..6 {
            let (cache, log) = (&cache, &log);
            scope.spawn(move || work(cache, number, log));
        }
        until_parked(&cache, 6);
        for (count, woken) in [(3, 3), (0, 0), (1, 1), (9, 6)] {
            let before = wakes(&cache);
            fill(&cache, 0, 1..=count, 1);
            // Counted under the lock that also called them, so no sleeper can have gone again.
            assert_eq!(wakes(&cache) - before, woken, "a refill of {count}");
            while !cache.is_empty() {
                thread::yield_now();
            }
            until_parked(&cache, 6);
            for id in 1..=count {
                cache.release(kit::step(0, id));
            }
            cache.begin_cycle(shard(0));
        }
        let before = wakes(&cache);
        offer(&cache, 1, 1, 5);
        assert_eq!(wakes(&cache) - before, 1);
        cache.close();
    });
}

#[test]
fn i32_nobody_sleeps_beside_work() {
    let cache = CandidateCache::new(8);
    fill(&cache, 0, [1], 1);
    assert_eq!(cache.wait_for_work(), Waited::Work(shard(0)));
    assert!(cache.pop().is_some());
    assert_eq!(cache.snapshot().parked, 0);
}

#[test]
fn i28_i35_a_close_wakes_every_kind_of_sleeper() {
    let cache = CandidateCache::new(8);
    thread::scope(|scope| {
        let _closing = Closing(&cache);
        let popper = scope.spawn(|| cache.pop());
        let waiter = scope.spawn(|| cache.wait_for_work());
        until_parked(&cache, 2);
        cache.close();
        assert_eq!(popper.join().unwrap(), None);
        assert_eq!(waiter.join().unwrap(), Waited::Closed);
    });
}

#[test]
fn those_that_slept_longest_leave_and_takers_sleep_on() {
    let cache = CandidateCache::new(8);
    thread::scope(|scope| {
        let _closing = Closing(&cache);
        let taker = scope.spawn(|| cache.pop());
        until_parked(&cache, 1);
        let first = scope.spawn(|| cache.wait_for_work());
        until_parked(&cache, 2);
        let second = scope.spawn(|| cache.wait_for_work());
        until_parked(&cache, 3);
        cache.retire(1);
        assert_eq!(first.join().unwrap(), Waited::Retire);
        let view = cache.snapshot();
        assert_eq!((view.parked, view.retiring), (2, 0));
        fill(&cache, 0, [1], 1);
        assert!(taker.join().unwrap().is_some());
        cache.close();
        assert_eq!(second.join().unwrap(), Waited::Closed);
    });
}

#[test]
fn i07_i34_each_candidate_is_taken_once() {
    let cache = CandidateCache::new(8);
    fill(&cache, 0, 1..=2_000, 1);
    let start = Barrier::new(4);
    let mut taken: Vec<i64> = thread::scope(|scope| {
        let takers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    std::iter::from_fn(|| cache.try_pop_from(shard(0)))
                        .map(|taken| taken.candidate.id.local.get())
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        let all = takers.into_iter().map(|taker| taker.join().unwrap());
        all.flatten().collect()
    });
    taken.sort_unstable();
    assert_eq!(taken, (1..=2_000).collect::<Vec<_>>());
}

/// A call, what it returned, and the moments between which it took effect.
#[derive(Clone, Debug)]
struct Call {
    command: Command,
    answer: Answer,
    began: u64,
    ended: u64,
}

/// Returns whether some order of the calls that respects their moments explains all answers.
fn explained(rest: &[&[Call]], naive: &Naive) -> bool {
    let heads = || rest.iter().filter_map(|calls| calls.first());
    let Some(first_end) = heads().map(|call| call.ended).min() else {
        return true;
    };
    (0..rest.len()).any(|thread| {
        let Some((call, later)) = rest[thread].split_first() else {
            return false;
        };
        let mut after = naive.clone();
        call.began <= first_end && after.call(&call.command) == call.answer && {
            let mut rest = rest.to_vec();
            rest[thread] = later;
            explained(&rest, &after)
        }
    })
}

fn some_command(dice: &mut Dice, id: i64) -> Command {
    let of = if dice.below(3) == 0 { 1 } else { 0 };
    match dice.below(5) {
        0 => {
            let count = i64::try_from(dice.below(3)).unwrap();
            Command::Refill(of, batch(of, id..id + count), band(1))
        }
        1 => Command::Offer(candidate(of, id, 1, 0)),
        2 => Command::Len,
        _ => Command::TryPop(of),
    }
}

#[test]
fn i36_calls_that_meet_have_some_order() {
    let seed = kit::seed();
    let mut dice = Dice::seeded(seed);
    for history in 0..400 {
        let cache = CandidateCache::new(2);
        let (start, moment) = (Barrier::new(3), AtomicU64::new(0));
        let now = || moment.fetch_add(1, Ordering::SeqCst);
        let plans: Vec<Vec<Command>> = (0..3)
            .map(|thread| {
                let ids = (0..4).map(|call| 1 + 100 * thread + 10 * call);
                ids.map(|id| some_command(&mut dice, id)).collect()
            })
            .collect();
        let run = |plan: Vec<Command>| {
            start.wait();
            let calls = plan.into_iter().map(|command| {
                let began = now();
                let answer = kit::call(&cache, &command);
                Call {
                    command,
                    answer,
                    began,
                    ended: now(),
                }
            });
            calls.collect()
        };
        let calls: Vec<Vec<Call>> = thread::scope(|scope| {
            let threads: Vec<_> = plans
                .into_iter()
                .map(|plan| scope.spawn(|| run(plan)))
                .collect();
            let all = threads.into_iter().map(|thread| thread.join().unwrap());
            all.collect()
        });
        let rest: Vec<&[Call]> = calls.iter().map(Vec::as_slice).collect();
        assert!(
            explained(&rest, &Naive::new(2, true)),
            "FAIRQ_TEST_SEED={seed}, history {history}: {calls:#?}"
        );
    }
}
