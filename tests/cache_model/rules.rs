//! Each promise by the smallest example that would catch its breach.

use fairq::cache::{CandidateCache, Offered, Waited};

use crate::kit::{band, batch, candidate, drain, fill, offer, shard, step};

fn needs(cache: &CandidateCache, takes: usize) -> Vec<bool> {
    (0..takes)
        .map(|_| cache.pop().unwrap().needs_refill)
        .collect()
}

#[test]
fn i02_capacity_is_twice_the_workers_and_at_least_one() {
    let cache = CandidateCache::new(0);
    assert_eq!(cache.capacity(), 1);
    for (workers, capacity) in [(1, 2), (7, 14), (0, 1), (usize::MAX, usize::MAX)] {
        cache.resize(workers);
        assert_eq!(cache.capacity(), capacity);
    }
}

#[test]
fn i04_i14_a_refill_stamps_its_floor_and_leaves_other_partitions_alone() {
    let cache = CandidateCache::new(4);
    fill(&cache, 1, [7], 3);
    fill(&cache, 0, [1, 2], 5);
    assert_eq!(cache.snapshot().partitions[1].first, [step(1, 7)]);
    assert_eq!(
        cache.try_pop_from(shard(0)).unwrap().candidate.band,
        band(5)
    );
}

/// A floor read off the candidate in front would rise and fall as the better offer passes through.
#[test]
fn i05_the_floor_stands_still_between_refills() {
    let cache = CandidateCache::new(8);
    fill(&cache, 0, [1], 5);
    assert_eq!(offer(&cache, 0, 2, 1), Offered::Admitted);
    assert_eq!(offer(&cache, 0, 3, 5), Offered::Admitted);
    for _ in 0..3 {
        assert_eq!(cache.snapshot().partitions[0].floor, Some(band(5)));
        cache.pop();
    }
    assert_eq!(cache.snapshot().partitions[0].floor, None);
}

#[test]
fn i06_i12_a_partition_is_first_in_first_out_and_offers_never_overtake() {
    let cache = CandidateCache::new(8);
    fill(&cache, 0, [5, 3, 9], 5);
    offer(&cache, 0, 2, 5);
    offer(&cache, 0, 1, 1);
    assert_eq!(drain(&cache), ["a5", "a3", "a9", "a2", "a1"]);
}

/// The bound is a sum: a busy shard must not silence an idle one.
#[test]
fn i08_an_empty_partition_admits_at_any_band_whatever_the_bound() {
    let cache = CandidateCache::new(1);
    fill(&cache, 0, 1..=5, 1);
    assert_eq!(offer(&cache, 1, 1, 900), Offered::Admitted);
    assert_eq!(cache.len(), 6);
}

#[test]
fn i09_i13_a_worse_band_is_declined_and_changes_nothing() {
    let cache = CandidateCache::new(8);
    fill(&cache, 0, [1], 5);
    let before = cache.snapshot().partitions;
    assert_eq!(offer(&cache, 0, 2, 6), Offered::WorseBand);
    assert_eq!(cache.snapshot().partitions, before);
    assert_eq!(cache.snapshot().counters.offers_worse_band, 1);
}

#[test]
fn i10_i11_offers_fill_the_room_that_there_is() {
    let cache = CandidateCache::new(1);
    fill(&cache, 0, [1], 5);
    assert_eq!(offer(&cache, 0, 2, 5), Offered::Admitted);
    assert_eq!(offer(&cache, 0, 3, 1), Offered::Full);
    cache.pop();
    assert_eq!(offer(&cache, 0, 3, 1), Offered::Admitted);
    assert_eq!(drain(&cache), ["a2", "a3"]);
}

#[test]
fn i15_what_was_offered_is_not_the_refillers_waste() {
    let cache = CandidateCache::new(8);
    fill(&cache, 0, [1, 2, 3], 5);
    offer(&cache, 0, 4, 5);
    cache.pop();
    assert_eq!(cache.refill(shard(0), batch(0, [5]), band(5)), 2);
    assert_eq!(cache.refill(shard(0), Vec::new(), band(5)), 1);
    assert_eq!(cache.refill(shard(0), Vec::new(), band(5)), 0);
}

/// Kept, the dead hints would each cost a lost claim.
#[test]
fn i16_an_empty_refill_empties_the_partition_and_opens_it_for_any_offer() {
    let cache = CandidateCache::new(8);
    fill(&cache, 0, [1, 2], 1);
    fill(&cache, 0, [], 1);
    assert!(cache.is_empty());
    assert_eq!(cache.peek_shard(), None);
    assert_eq!(offer(&cache, 0, 3, 900), Offered::Admitted);
}

#[test]
fn i18_a_refill_is_not_cut_to_the_capacity() {
    let cache = CandidateCache::new(1);
    fill(&cache, 0, 1..=9, 1);
    assert_eq!(cache.len(), 9);
}

#[test]
fn i20_a_take_asks_for_a_refill_at_half_of_the_last_one() {
    let cache = CandidateCache::new(8);
    fill(&cache, 0, 1..=8, 1);
    assert_eq!(needs(&cache, 5), [false, false, false, true, true]);
    for (count, expected) in [
        (1, vec![true]),
        (2, vec![true, true]),
        (3, vec![false, true]),
    ] {
        let cache = CandidateCache::new(8);
        fill(&cache, 0, 1..=count, 1);
        assert_eq!(
            needs(&cache, expected.len()),
            expected,
            "after a fill of {count}"
        );
    }
}

#[test]
fn i21_a_try_stays_with_its_shard() {
    let cache = CandidateCache::new(8);
    fill(&cache, 1, [1], 1);
    assert_eq!(cache.try_pop_from(shard(0)), None);
    assert_eq!(cache.try_pop_from(shard(25)), None);
    assert_eq!(cache.len(), 1);
    assert_eq!(cache.snapshot().counters.failed_try_pops, 2);
}

#[test]
fn i22_looking_and_waiting_take_nothing() {
    let cache = CandidateCache::new(8);
    fill(&cache, 1, [1], 1);
    assert_eq!(cache.peek_shard(), Some(shard(1)));
    assert_eq!(cache.wait_for_work(), Waited::Work(shard(1)));
    assert_eq!(cache.len(), 1);
}

#[test]
fn i23_i24_the_better_floor_goes_first_then_the_deeper_then_the_lower_shard() {
    let cache = CandidateCache::new(8);
    fill(&cache, 0, 1..=3, 5);
    fill(&cache, 1, [1], 1);
    fill(&cache, 2, 1..=2, 5);
    fill(&cache, 3, 1..=3, 5);
    assert_eq!(
        drain(&cache),
        ["b1", "a1", "d1", "a2", "c1", "d2", "a3", "c2", "d3"]
    );
}

/// By depth alone a key on a shallow shard would wait for as long as deeper ones are refilled.
#[test]
fn among_equal_floors_the_earliest_turn_goes_before_the_deepest() {
    let cache = CandidateCache::new(8);
    let turns = [(1, 1), (2, 3)].map(|(id, turn)| candidate(0, id, 1, turn));
    cache.refill(shard(0), turns.to_vec(), band(1));
    cache.refill(shard(1), vec![candidate(1, 1, 1, 2)], band(1));
    // A better floor outranks any turn.
    cache.refill(shard(2), vec![candidate(2, 1, 1, 9)], band(0));
    assert_eq!(drain(&cache), ["c1", "a1", "b1", "a2"]);
}

#[test]
fn i25_shrinking_cuts_tails_and_keeps_heads() {
    let cache = CandidateCache::new(8);
    fill(&cache, 0, 1..=6, 1);
    fill(&cache, 1, 1..=2, 1);
    cache.resize(2);
    assert_eq!(drain(&cache), ["a1", "a2", "a3", "b1"]);
    assert_eq!(cache.snapshot().counters.trimmed, 4);
}

/// Counted too high, the offered ones would turn the next refill's waste negative.
#[test]
fn i03_shrinking_takes_the_offered_ones_first_and_counts_them() {
    let cache = CandidateCache::new(4);
    fill(&cache, 0, 1..=4, 1);
    for id in 5..=8 {
        offer(&cache, 0, id, 1);
    }
    cache.resize(1);
    let view = cache.snapshot().partitions[0].clone();
    assert_eq!((view.planned, view.offered), (2, 0));
    drain(&cache);
    offer(&cache, 0, 9, 1);
    assert_eq!(cache.refill(shard(0), Vec::new(), band(1)), 0);
}

#[test]
fn i27_growing_changes_only_the_capacity() {
    let cache = CandidateCache::new(1);
    fill(&cache, 0, 1..=5, 1);
    let before = cache.snapshot();
    cache.resize(9);
    let after = cache.snapshot();
    assert_eq!(after.capacity, 18);
    assert_eq!(after.partitions, before.partitions);
    assert_eq!(after.counters, before.counters);
}

#[test]
fn i28_i29_a_closed_cache_hands_out_nothing() {
    let cache = CandidateCache::new(2);
    fill(&cache, 0, 1..=3, 1);
    cache.close();
    cache.close();
    assert_eq!(cache.pop(), None);
    assert_eq!(cache.try_pop_from(shard(0)), None);
    assert_eq!(cache.peek_shard(), None);
    assert_eq!(cache.wait_for_work(), Waited::Closed);
    assert_eq!(offer(&cache, 1, 1, 1), Offered::Closed);
    assert_eq!(cache.refill(shard(0), batch(0, [9]), band(1)), 0);
    cache.resize(0);
    assert_eq!((cache.capacity(), cache.len()), (4, 3));
    // Closed wins over asked to leave: the caller must learn that it is over for all.
    cache.retire(1);
    assert_eq!(cache.wait_for_work(), Waited::Closed);
}

#[test]
fn a_taken_step_is_not_put_back_before_a_read_can_know_its_claim() {
    let cache = CandidateCache::new(4);
    let refilled = |ids: [i64; 2]| {
        fill(&cache, 0, ids, 1);
        cache.snapshot().partitions[0].first.clone()
    };
    assert_eq!(refilled([1, 2]), [step(0, 1), step(0, 2)]);
    cache.pop();
    cache.begin_cycle(shard(0));
    assert_eq!(refilled([1, 2]), [step(0, 2)], "its claim is undecided");
    cache.release(step(0, 1));
    assert_eq!(
        refilled([1, 2]),
        [step(0, 2)],
        "the read may be older than the claim"
    );
    assert_eq!(cache.taken_of(shard(0)), 1);
    cache.begin_cycle(shard(1));
    assert_eq!(
        refilled([1, 2]),
        [step(0, 2)],
        "another shard's cycle says nothing"
    );
    cache.begin_cycle(shard(0));
    assert_eq!(refilled([1, 2]), [step(0, 1), step(0, 2)]);
    let counters = cache.snapshot().counters;
    assert_eq!((counters.duplicates, counters.discarded), (3, 0));
    assert_eq!(counters.kept, 4);
}

#[test]
fn a_declined_offer_too_ends_the_taking() {
    let cache = CandidateCache::new(4);
    fill(&cache, 0, [1, 2], 1);
    cache.pop();
    assert_eq!(offer(&cache, 0, 1, 9), Offered::WorseBand);
    fill(&cache, 0, [1], 9);
    assert_eq!(drain(&cache), ["a1"]);
}

#[test]
fn the_next_to_wait_leave_when_none_sleeps() {
    let cache = CandidateCache::new(4);
    fill(&cache, 0, [1], 1);
    cache.retire(3);
    assert_eq!(cache.recall(1), 1);
    assert_eq!(cache.wait_for_work(), Waited::Retire);
    assert_eq!(cache.wait_for_work(), Waited::Retire);
    assert_eq!(cache.wait_for_work(), Waited::Work(shard(0)));
    assert_eq!(cache.recall(1), 0);
}
