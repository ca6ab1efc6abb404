//! Every interleaving of small crews at the cache and the gate.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release --test cache_loom`
//!
//! A lost wake shows as a deadlock, which loom reports. Loom's sleepers wake only when woken, so
//! these models say nothing about spurious wakes; the loops that wait re-check for their sake.
//! Preemptions are bounded to three a run, or to `LOOM_MAX_PREEMPTIONS`.

#![cfg(loom)]

use fairq::cache::{CandidateCache, Offered, Waited};
use fairq::crew::permit::{Gate, GateView};
use fairq::model::{Band, Candidate, FairnessKey, LocalId, ShardId, StepId, Turn};
use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

const BAND: Band = Band::DEFAULT;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(model);
}

fn shard(number: u8) -> ShardId {
    ShardId::new(number).unwrap()
}

fn candidate(of: u8, number: i64) -> Candidate {
    Candidate {
        id: StepId::new(shard(of), LocalId::new(number)),
        band: BAND,
        key: FairnessKey::default(),
        turn: Turn::ZERO,
    }
}

fn batch(of: u8, count: i64) -> Vec<Candidate> {
    (1..=count).map(|number| candidate(of, number)).collect()
}

/// A crew's cache and gate.
struct House {
    cache: CandidateCache,
    gate: Gate,
}

fn house(permits: usize) -> Arc<House> {
    Arc::new(House {
        cache: CandidateCache::new(2),
        gate: Gate::new(permits),
    })
}

impl House {
    fn close(&self) {
        self.cache.close();
        self.gate.close();
    }
}

/// Takes until told to end. Returns how many it got, and how it ended.
fn worker(house: &Arc<House>) -> JoinHandle<(usize, Waited)> {
    let house = Arc::clone(house);
    thread::spawn(move || {
        let mut got = 0;
        loop {
            match house.cache.wait_for_work() {
                Waited::Work(shard) => {
                    got += usize::from(house.cache.try_pop_from(shard).is_some())
                }
                end @ (Waited::Retire | Waited::Closed) => return (got, end),
            }
        }
    })
}

/// Takes one, as often as it must go round for it. Returns false if the house closed first.
fn take_one(house: &House) -> bool {
    while let Waited::Work(shard) = house.cache.wait_for_work() {
        if house.cache.try_pop_from(shard).is_some() {
            return true;
        }
    }
    false
}

fn taker(house: &Arc<House>) -> JoinHandle<bool> {
    let house = Arc::clone(house);
    thread::spawn(move || take_one(&house))
}

/// Takes one holding a permit, as the crew does. Returns false if the house closed first.
fn permitted_taker(house: &Arc<House>) -> JoinHandle<bool> {
    let house = Arc::clone(house);
    thread::spawn(move || {
        while let Waited::Work(shard) = house.cache.wait_for_work() {
            let Some(_permit) = house.gate.acquire() else {
                return false;
            };
            if house.cache.try_pop_from(shard).is_some() {
                return true;
            }
        }
        false
    })
}

#[test]
fn l1_one_candidate_goes_to_one_of_two_workers_and_the_close_ends_both() {
    check(|| {
        let house = house(1);
        let workers = [worker(&house), worker(&house)];
        house.cache.refill(shard(0), batch(0, 1), BAND);
        let main_got = usize::from(house.cache.try_pop_from(shard(0)).is_some());
        house.close();
        let mut got = main_got;
        for worker in workers {
            let (taken, end) = worker.join().unwrap();
            assert_eq!(end, Waited::Closed);
            got += taken;
        }
        assert_eq!(got, 1);
    });
}

/// I30: nobody closes, so a worker that was not woken sleeps for ever.
#[test]
fn l2_two_candidates_reach_two_takers_in_one_refill() {
    check(|| {
        let house = house(1);
        let takers = [taker(&house), taker(&house)];
        house.cache.refill(shard(0), batch(0, 2), BAND);
        for taker in takers {
            assert!(taker.join().unwrap());
        }
        assert!(house.cache.is_empty());
    });
}

#[test]
fn l2_two_candidates_reach_two_takers_in_two_refills_of_two_shards() {
    check(|| {
        let house = house(1);
        let takers = [taker(&house), taker(&house)];
        let other = {
            let house = Arc::clone(&house);
            thread::spawn(move || house.cache.refill(shard(1), batch(1, 1), BAND))
        };
        house.cache.refill(shard(0), batch(0, 1), BAND);
        other.join().unwrap();
        for taker in takers {
            assert!(taker.join().unwrap());
        }
    });
}

#[test]
fn l3_an_offer_reaches_the_one_who_is_about_to_sleep() {
    check(|| {
        let house = house(1);
        let waiting = taker(&house);
        let popping = {
            let house = Arc::clone(&house);
            thread::spawn(move || house.cache.pop().is_some())
        };
        assert_eq!(house.cache.offer(candidate(0, 1)), Offered::Admitted);
        assert_eq!(house.cache.offer(candidate(1, 1)), Offered::Admitted);
        assert!(waiting.join().unwrap());
        assert!(popping.join().unwrap());
    });
}

#[test]
fn l4_a_close_that_meets_sleepers_and_refills_strands_nobody() {
    check(|| {
        let house = house(1);
        let workers = [worker(&house), worker(&house)];
        let refilling = {
            let house = Arc::clone(&house);
            thread::spawn(move || house.cache.refill(shard(0), batch(0, 1), BAND))
        };
        house.close();
        let mut got = 0;
        for worker in workers {
            let (taken, end) = worker.join().unwrap();
            assert_eq!(end, Waited::Closed);
            got += taken;
        }
        refilling.join().unwrap();
        assert!(got <= 1);
        assert_eq!(house.cache.try_pop_from(shard(0)), None);
    });
}

#[test]
fn l5_after_an_empty_refill_nothing_of_the_old_batch_is_taken() {
    check(|| {
        let house = house(1);
        house.cache.refill(shard(0), batch(0, 2), BAND);
        let taking = {
            let house = Arc::clone(&house);
            thread::spawn(move || {
                let taken = || usize::from(house.cache.try_pop_from(shard(0)).is_some());
                taken() + taken()
            })
        };
        let discarded = house.cache.refill(shard(0), Vec::new(), BAND);
        assert_eq!(house.cache.try_pop_from(shard(0)), None);
        assert_eq!(taking.join().unwrap() + discarded, 2);
    });
}

#[test]
fn l6_a_resize_that_meets_takes_and_offers_loses_no_count() {
    check(|| {
        let house = house(1);
        house.cache.refill(shard(0), batch(0, 2), BAND);
        let offered = house.cache.offer(candidate(0, 3));
        assert_eq!(offered, Offered::Admitted);
        let taking = {
            let house = Arc::clone(&house);
            thread::spawn(move || {
                let taken = house.cache.try_pop_from(shard(0));
                taken.map(|taken| taken.candidate.id)
            })
        };
        let offering = {
            let house = Arc::clone(&house);
            thread::spawn(move || house.cache.offer(candidate(0, 4)))
        };
        house.cache.resize(0);
        let mut taken: Vec<StepId> = taking.join().unwrap().into_iter().collect();
        offering.join().unwrap();
        let view = house.cache.snapshot();
        let partition = &view.partitions[0];
        assert_eq!(partition.planned + partition.offered, partition.depth);
        assert_eq!(
            view.counters.pops + view.counters.trimmed + partition.depth as u64,
            view.counters.selected + view.counters.offers_admitted
        );
        while let Some(next) = house.cache.try_pop_from(shard(0)) {
            taken.push(next.candidate.id);
        }
        assert!(taken.is_sorted_by(|a, b| a < b), "one was handed out twice");
    });
}

#[test]
fn l7_with_one_permit_both_workers_get_theirs_and_the_permit_comes_back() {
    check(|| {
        let house = house(1);
        let takers = [permitted_taker(&house), permitted_taker(&house)];
        house.cache.refill(shard(0), batch(0, 2), BAND);
        for taker in takers {
            assert!(taker.join().unwrap());
        }
        let expected = GateView {
            size: 1,
            held: 0,
            waiting: 0,
            closed: false,
        };
        assert_eq!(house.gate.view(), expected);
    });
}

/// The permit is held by nobody who sleeps, so the drain ends wherever a worker stands.
#[test]
fn l8_a_drain_that_meets_a_starting_worker_ends_both() {
    check(|| {
        let house = house(1);
        house.cache.refill(shard(0), batch(0, 1), BAND);
        let resident = permitted_taker(&house);
        let draining = {
            let house = Arc::clone(&house);
            thread::spawn(move || house.close())
        };
        let late = permitted_taker(&house);
        let got = [resident, late].map(|taker| usize::from(taker.join().unwrap()));
        draining.join().unwrap();
        assert!(got.iter().sum::<usize>() <= 1);
        assert_eq!(house.gate.view().held, 0);
    });
}

/// The leaver may be the one who was woken for the candidate; then another must be.
#[test]
fn a_leaver_takes_no_wake_with_it() {
    check(|| {
        let house = house(1);
        let leaving = worker(&house);
        let popping = {
            let house = Arc::clone(&house);
            thread::spawn(move || house.cache.pop().is_some())
        };
        house.cache.refill(shard(0), batch(0, 1), BAND);
        house.cache.retire(1);
        let (got, end) = leaving.join().unwrap();
        assert_eq!(end, Waited::Retire);
        if got == 1 {
            house.cache.refill(shard(1), batch(1, 1), BAND);
        }
        assert!(popping.join().unwrap());
    });
}

/// A take, the claim and a cycle: whatever the order, the step does not come back before a read that
/// began after its claim.
#[test]
fn a_step_is_not_put_back_by_a_read_that_is_older_than_its_claim() {
    check(|| {
        let house = house(1);
        // Due until claimed; the refiller's read copies it.
        let due = Arc::new(loom::sync::Mutex::new(true));
        house.cache.refill(shard(0), batch(0, 1), BAND);
        let claiming = {
            let (house, due) = (Arc::clone(&house), Arc::clone(&due));
            thread::spawn(move || {
                if let Some(taken) = house.cache.try_pop_from(shard(0)) {
                    *due.lock().unwrap() = false;
                    house.cache.release(taken.candidate.id);
                }
            })
        };
        house.cache.begin_cycle(shard(0));
        let read = *due.lock().unwrap();
        house
            .cache
            .refill(shard(0), batch(0, i64::from(read)), BAND);
        claiming.join().unwrap();
        let claimed = !*due.lock().unwrap();
        assert!(!(claimed && !house.cache.is_empty()));
    });
}

#[test]
fn a_gate_that_grows_serves_those_who_wait() {
    check(|| {
        let gate = Arc::new(Gate::new(0));
        let waiting = [(); 2].map(|()| {
            let gate = Arc::clone(&gate);
            thread::spawn(move || gate.acquire().is_some())
        });
        gate.resize(1);
        for one in waiting {
            assert!(one.join().unwrap());
        }
        assert_eq!(gate.view().free(), 1);
    });
}

/// A permit may be on its way to a sleeper when the gate closes; it must not be lost with him.
#[test]
fn a_close_that_meets_a_handed_permit_keeps_the_count() {
    check(|| {
        let gate = Arc::new(Gate::new(1));
        let held = gate.acquire();
        let waiting = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || gate.acquire().is_some())
        };
        let closing = {
            let gate = Arc::clone(&gate);
            thread::spawn(move || gate.close())
        };
        drop(held);
        waiting.join().unwrap();
        closing.join().unwrap();
        assert_eq!(gate.view().held, 0);
        assert!(gate.try_acquire().is_none());
    });
}
