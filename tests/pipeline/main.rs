//! The whole engine on a store in memory, with an executor that starts no process.
//!
//! What is tested here is how the stages work together, also when the store does not: the three ways
//! in which a cycle can fail, claims that cannot be written, outcomes that cannot be recorded; and
//! what may happen to a step between its claim and its end.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail the test that called them, and one executor panics on purpose"
)]

mod frail;
mod life;
mod works;

use std::sync::atomic::Ordering;
use std::time::Duration;

use fairq::crew::executor::Force;
use fairq::event::Event;
use fairq::model::{Band, Ending, StepId, StepState};
use fairq::store::Read as _;

use crate::works::{DEADLINE, Works};

#[test]
fn every_step_runs_once_on_any_crew() {
    for (shards, workers) in [(1, 1), (4, 8), (3, 32)] {
        let mut works = Works::new(shards);
        let ids = works.put("true", 2_000);
        works.start(workers);
        works.wait_until_drained();
        works.stop();
        works.assert_each_ran_once_and_succeeded(&ids);
        assert_eq!(
            works.engine().crew().claims_lost,
            0,
            "our own hints were stale"
        );
    }
}

/// A shard that cannot be looked at takes no part; the others go on, and it comes back by itself.
#[test]
fn a_shard_that_cannot_be_read_withdraws_and_returns() {
    let mut works = Works::new(2);
    works.store.faults.tally.store(true, Ordering::SeqCst);
    let ids = works.put("true", 100);
    works.start(4);
    works.heard.wait_for(
        "the withdrawal",
        |event| matches!(event, Event::ShardWithdrawn { shard, .. } if shard.number() == 0),
    );
    let told = works.engine().shards();
    let error = told[0].error.as_deref().unwrap_or_default();
    assert!(error.contains("a fault of the test"), "{error}");
    assert_eq!((told[1].error.as_deref(), told[1].blind), (None, 0));
    let others: Vec<StepId> = ids
        .iter()
        .copied()
        .filter(|id| id.shard.number() == 1)
        .collect();
    for id in &others {
        let id = *id;
        works.heard.wait_for(
            "a step of the good shard",
            move |event| matches!(event, Event::Settled { id: ended, .. } if *ended == id),
        );
    }
    assert!(
        ids.iter()
            .all(|id| id.shard.number() == 1 || works.state(*id) == StepState::Ready)
    );
    works.store.faults.tally.store(false, Ordering::SeqCst);
    works.wait_until_drained();
    let told = works.engine().shards();
    assert!(told[0].error.is_none() && told[0].blind > 0);
    works.stop();
    works.assert_each_ran_once_and_succeeded(&ids);
}

#[test]
fn a_fetch_that_fails_is_made_again_by_the_next_cycle() {
    let mut works = Works::new(1);
    works.store.faults.fetch.store(true, Ordering::SeqCst);
    let ids = works.put("true", 10);
    works.start(2);
    let until = works.clock.monotonic() + DEADLINE;
    while works.store.faults.failed.load(Ordering::SeqCst) < 3 {
        assert!(works.clock.monotonic() < until);
        let notice = works.engine().notice();
        notice.wait(notice.seen(), Duration::from_millis(5));
    }
    assert!(works.times_run().is_empty());
    // The third failure may be of a turn that is not over yet.
    assert!(works.engine().shards()[0].unfetched >= 2);
    works.store.faults.fetch.store(false, Ordering::SeqCst);
    works.wait_until_drained();
    works.stop();
    works.assert_each_ran_once_and_succeeded(&ids);
}

/// A shard that can be read and not written would be planned, fetched and refused without end.
#[test]
fn a_shard_that_cannot_be_written_rests_instead_of_spinning() {
    let mut works = Works::new(1);
    works.store.faults.claim.store(true, Ordering::SeqCst);
    let ids = works.put("true", 50);
    works.start(4);
    works.heard.wait_for("the withdrawal", |event| {
        matches!(event, Event::ShardWithdrawn { .. })
    });
    // At most what the cache held when the first claim failed, and one more filling of it.
    let refused = works.store.faults.failed.load(Ordering::SeqCst);
    assert!(
        refused <= 16,
        "{refused} claims were tried on a shard that rests"
    );
    works.store.faults.claim.store(false, Ordering::SeqCst);
    works.wait_until_drained();
    works.stop();
    works.assert_each_ran_once_and_succeeded(&ids);
}

/// Its runner lives, so nobody else would ever take it back.
#[test]
fn a_step_that_was_granted_unheard_is_put_back_by_its_runner_and_run() {
    let mut works = Works::new(1);
    works
        .store
        .faults
        .claim_unheard
        .store(true, Ordering::SeqCst);
    let ids = works.put("true", 3);
    works.start(1);
    works.heard.wait_for("the withdrawal", |event| {
        matches!(event, Event::ShardWithdrawn { .. })
    });
    works
        .store
        .faults
        .claim_unheard
        .store(false, Ordering::SeqCst);
    works.wait_until_drained();
    works.stop();
    let endings: Vec<Vec<Ending>> = ids.iter().map(|id| works.endings(*id)).collect();
    let good = Ending::Exited { code: 0 };
    assert!(endings.iter().all(|all| all.last() == Some(&good)));
    assert!(
        endings
            .iter()
            .flatten()
            .any(|one| *one == Ending::Interrupted)
    );
    for id in ids {
        let step = works.store.get(id).unwrap().unwrap();
        assert_eq!((step.state, step.attempt), (StepState::Succeeded, 1));
    }
}

/// What waits for the worker's next claim is not kept back by a step that is none of that shard.
#[test]
fn an_outcome_is_recorded_while_its_worker_runs_a_step_of_another_shard() {
    let mut works = Works::without_heartbeat(2);
    let first = works.put_at("true", 1, Band::new(1).unwrap())[0];
    let next = works.put("hang", 1)[0];
    assert_ne!(first.shard, next.shard);
    works.start(1);
    works.heard.wait_for(
        "the first outcome",
        |event| matches!(event, Event::Settled { id, .. } if *id == first),
    );
    works.notes.hanging.wait_for(|count| *count == 1);
    works.engine().drain();
    works.engine().end_steps(Force::Ask);
    works.stop();
}

/// The write is repeated, the work is not.
#[test]
fn an_outcome_that_cannot_be_recorded_is_kept_and_written_again() {
    let mut works = Works::new(1);
    works.store.faults.settle.store(true, Ordering::SeqCst);
    let ids = works.put("true", 5);
    works.start(2);
    works.heard.wait_for("a delayed settlement", |event| {
        matches!(event, Event::SettleDelayed { .. })
    });
    works.store.faults.settle.store(false, Ordering::SeqCst);
    works.wait_until_drained();
    works.stop();
    works.assert_each_ran_once_and_succeeded(&ids);
}

#[test]
fn a_panic_in_one_step_costs_that_step_and_no_worker() {
    let mut works = Works::new(1);
    let bad = works.put("panic", 3);
    let good = works.put("true", 20);
    works.start(1);
    works.wait_until_drained();
    works.stop();
    works.assert_each_ran_once_and_succeeded(&good);
    for id in bad {
        assert_eq!(works.state(id), StepState::Failed);
        let attempts = works.store.attempts(id).unwrap();
        assert!(
            matches!(attempts[0].ending, Ending::Unstarted { .. }),
            "{attempts:?}"
        );
    }
}

/// A step does not pay for our shutdown: it goes back as it was, its try not counted.
#[test]
fn ended_steps_are_put_back_uncounted() {
    let mut works = Works::new(1);
    let ids = works.put("hang", 2);
    works.start(2);
    works.notes.hanging.wait_for(|count| *count == 2);
    works.engine().drain();
    assert!(!works.engine().wait(Duration::ZERO));
    works.engine().end_steps(Force::Ask);
    works.stop();
    for id in ids {
        let step = works.store.get(id).unwrap().unwrap();
        assert_eq!(
            (step.state, step.attempt, step.fence),
            (StepState::Ready, 0, 1)
        );
    }
}

#[test]
fn the_crew_grows_and_shrinks_while_it_works() {
    let mut works = Works::new(2);
    let ids = works.put("true", 3_000);
    works.start(1);
    for workers in [6, 2, 0, 4] {
        works.engine().resize(workers);
        assert_eq!(works.engine().crew().workers, workers);
    }
    works.wait_until_drained();
    assert!(works.engine().crew().resident <= 4);
    works.stop();
    works.assert_each_ran_once_and_succeeded(&ids);
}

/// A runner's first plans are made on all shards, not on those that happened to be faster: the only
/// urgent step is on the last of many, and is the first to run.
#[test]
fn the_first_step_of_a_run_is_one_of_the_best_band() {
    for _ in 0..20 {
        let mut works = Works::new(8);
        let mut ids = works.put("true", 7);
        ids.extend(works.put_at("true", 1, Band::new(0).unwrap()));
        works.start(1);
        works.wait_until_drained();
        works.stop();
        let first = works.notes.ran.lock().unwrap()[0];
        assert_eq!(works.store.get(first).unwrap().unwrap().band.get(), 0);
        works.assert_each_ran_once_and_succeeded(&ids);
    }
}
