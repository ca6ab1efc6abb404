//! A step between its claim and its end: time-outs, wishes, tries; and what its end sets free.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use fairq::crew::executor::Force;
use fairq::event::{Event, Why};
use fairq::model::{Backoff, Band, Ending, NewStep, Policy, Span, StepId, StepState};
use fairq::store::Read as _;

use crate::works::Works;

fn policy(timeout: Option<u64>, grace: u64) -> Policy {
    Policy {
        timeout: timeout.map(Span::from_millis),
        grace: Span::from_millis(grace),
        ..Policy::default()
    }
}

fn retrying(retries: u32) -> Policy {
    let short = Span::from_millis(1);
    Policy {
        retries,
        backoff: Backoff {
            base: short,
            factor: 1.0,
            cap: short,
        },
        ..Policy::default()
    }
}

#[test]
fn a_step_whose_time_is_over_is_asked_to_end_and_killed_if_it_does_not() {
    let mut works = Works::without_heartbeat(1);
    let willing = works.put_with("hang", policy(Some(20), 3_600_000));
    let polite = works.put_with("polite", policy(Some(20), 3_600_000));
    let deaf = works.put_with("deaf", policy(Some(20), 20));
    works.start(3);
    works.wait_until_drained();
    works.stop();
    let timed_out = |killed| vec![Ending::TimedOut { killed }];
    assert_eq!(works.endings(willing), timed_out(false));
    assert_eq!(works.endings(polite), timed_out(false));
    assert_eq!(works.endings(deaf), timed_out(true));
    for id in [willing, polite, deaf] {
        assert_eq!(works.state(id), StepState::Failed);
    }
}

/// Its alarm goes with it, or it would go off for whatever its worker runs then.
#[test]
fn a_step_that_ends_in_time_is_left_alone_and_so_is_the_next_of_its_worker() {
    let mut works = Works::without_heartbeat(1);
    let ids: Vec<StepId> = (0..200)
        .map(|_| works.put_with("true", policy(Some(30), 0)))
        .collect();
    let next = works.put_with("hang", policy(None, 0));
    let alarm = works.put_with("hang", policy(Some(60), 3_600_000));
    works.start(2);
    // This one's alarm is the last of all.
    works.wait_until_settled(alarm);
    assert_eq!(works.endings(alarm), [Ending::TimedOut { killed: false }]);
    assert_eq!(works.state(next), StepState::Running);
    let asked = |event: &Event| matches!(event, Event::Asked { .. } | Event::Killed { .. });
    assert_eq!(works.heard.count(asked), 1);
    works.engine().drain();
    works.engine().end_steps(Force::Ask);
    works.stop();
    works.assert_each_ran_once_and_succeeded(&ids);
}

#[test]
fn each_step_that_is_told_to_end_has_its_own_grace() {
    let mut works = Works::without_heartbeat(1);
    let soon = works.put_with("deaf", policy(None, 10));
    let late = works.put_with("deaf", policy(None, 3_600_000));
    works.start(2);
    works.notes.hanging.wait_for(|count| *count == 2);
    works.engine().drain();
    assert_eq!(works.engine().end_steps(Force::Ask), 2);
    works.notes.hanging.wait_for(|count| *count == 1);
    works.wait_until_settled(soon);
    assert_eq!(works.state(late), StepState::Running);
    assert_eq!(works.engine().end_steps(Force::Kill), 1);
    works.stop();
    for id in [soon, late] {
        assert_eq!(works.endings(id), [Ending::Interrupted]);
        let step = works.store.get(id).unwrap().unwrap();
        assert_eq!((step.state, step.attempt), (StepState::Ready, 0));
    }
}

#[test]
fn a_claim_whose_end_is_wished_is_ended_and_no_other() {
    let mut works = Works::new(1);
    let ids = works.put("hang", 3);
    works.start(3);
    works.notes.hanging.wait_for(|count| *count == 3);
    // A fence of a former claim is not meant any more.
    works.wish(ids[0], 1);
    works.wish(ids[1], 7);
    works.wait_until_settled(ids[0]);
    assert_eq!(works.endings(ids[0]), [Ending::Signalled { signal: 15 }]);
    let asked = |event: &Event| {
        matches!(
            event,
            Event::Asked {
                why: Why::Wished,
                ..
            }
        )
    };
    // Told of after the signal, which may have done its work by then.
    works.heard.wait_for("the asking", asked);
    assert_eq!(works.heard.count(asked), 1);
    for id in &ids[1..] {
        assert_eq!(works.state(*id), StepState::Running);
    }
    works.engine().drain();
    assert_eq!(works.engine().end_steps(Force::Ask), 2);
    works.stop();
}

#[test]
fn a_wished_end_has_its_grace_and_then_comes_by_force() {
    let mut works = Works::new(1);
    let id = works.put_with("deaf", policy(None, 20));
    works.start(1);
    works.notes.hanging.wait_for(|count| *count == 1);
    works.wish(id, 1);
    works.wait_until_settled(id);
    works.stop();
    assert_eq!(works.endings(id), [Ending::Signalled { signal: 9 }]);
}

/// It was claimed, and could not be started yet: nobody may see it run after its end was wished.
#[test]
fn a_step_that_has_no_process_yet_is_not_started_at_all() {
    let mut works = Works::new(1);
    works.notes.short.change(|short| *short = true);
    let id = works.put("short of", 1)[0];
    works.start(1);
    works.notes.refused.wait_for(|count| *count > 0);
    works.wish(id, 1);
    works.wait_until_settled(id);
    works.notes.short.change(|short| *short = false);
    works.wait_until_drained();
    works.stop();
    assert_eq!(works.times_run().get(&id), None);
    assert_eq!(works.endings(id), [Ending::Cancelled]);
}

/// Wishes come at every moment of a step's life: whatever it is, the step ends, and nothing else does.
#[test]
fn no_wish_is_lost_between_a_claim_and_its_end() {
    let rounds = 1_000;
    let mut works = Works::with_heartbeat(2, Duration::from_millis(1));
    works.start(4);
    let (store, barrier) = (Arc::clone(&works.store), Arc::new(Barrier::new(2)));
    let (send, next) = std::sync::mpsc::channel::<StepId>();
    let wisher = {
        let barrier = Arc::clone(&barrier);
        std::thread::spawn(move || {
            for id in next {
                barrier.wait();
                store.news.wishes.lock().unwrap().insert((id, 1));
            }
        })
    };
    for round in 0..rounds {
        // The second one must not be touched.
        let line = ["hang", "polite", "true"][round % 3];
        let id = works.put(line, 1)[0];
        send.send(id).unwrap();
        works.engine().resize(4);
        barrier.wait();
        works.wait_until_settled(id);
        works.store.news.wishes.lock().unwrap().clear();
    }
    drop(send);
    wisher.join().unwrap();
    works.wait_until_drained();
    works.stop();
}

#[test]
fn a_signal_reaches_the_claims_that_it_is_for() {
    let mut works = Works::without_heartbeat(1);
    let ids = works.put("hang", 3);
    works.start(3);
    works.notes.hanging.wait_for(|count| *count == 3);
    let claims = [(ids[0], 1), (ids[1], 2), ("z9".parse().unwrap(), 1)];
    assert_eq!(works.engine().signal(&claims, 10).len(), 1);
    works.wait_until_settled(ids[0]);
    assert_eq!(works.endings(ids[0]), [Ending::Signalled { signal: 10 }]);
    assert_eq!(works.engine().signal(&claims, 10).len(), 0);
    works.engine().drain();
    works.engine().end_steps(Force::Ask);
    works.stop();
}

#[test]
fn a_step_that_fails_is_tried_as_often_as_was_asked_for() {
    // Nothing but its own end tells anybody when the next try is due.
    let mut works = Works::without_heartbeat(2);
    let id = works.put_with("fail 3", retrying(2));
    let once = works.put_with("fail 3", Policy::default());
    let timed_out = works.put_with(
        "hang",
        Policy {
            timeout: Some(Span::from_millis(5)),
            ..retrying(1)
        },
    );
    works.start(2);
    works.wait_until_drained();
    works.stop();
    assert_eq!(works.endings(id), vec![Ending::Exited { code: 3 }; 3]);
    assert_eq!(works.endings(once), [Ending::Exited { code: 3 }]);
    assert_eq!(
        works.endings(timed_out),
        vec![Ending::TimedOut { killed: false }; 2]
    );
    for id in [id, once, timed_out] {
        assert_eq!(works.state(id), StepState::Failed);
    }
    assert_eq!(works.engine().tally().retried, 3);
    assert_eq!(works.engine().tally().failed, 3);
}

/// Whoever drains waits for tries to come, and for nothing that is merely later.
#[test]
fn a_drained_store_has_no_tries_left_but_may_have_later_steps() {
    let mut works = Works::new(1);
    let slow = Policy {
        backoff: Backoff {
            base: Span::from_millis(400),
            factor: 1.0,
            cap: Span::from_millis(400),
        },
        ..retrying(1)
    };
    let tried = works.put_with("fail 1", slow);
    let later = works.put_all(&[NewStep {
        due: fairq::model::Due::At(works.clock.now() + Span::from_millis(3_600_000)),
        ..Works::step("true")
    }])[0];
    works.start(1);
    works.wait_until_drained();
    works.stop();
    assert_eq!(works.endings(tried).len(), 2);
    assert_eq!(works.state(later), StepState::Delayed);
}

/// What an end sets free goes straight to the crew. A cycle that looked just before may throw it out
/// again, and then the next one finds it: so the fetch works, and not every one comes by its offer.
#[test]
fn a_successor_is_offered_to_the_crew() {
    let mut works = Works::without_heartbeat(1);
    let chain = 200;
    *works.store.news.successors.lock().unwrap() = vec![Works::step("true"); chain];
    works.put("hang", 1);
    works.start(2);
    works.notes.hanging.wait_for(|count| *count == 1);
    let first = works.notes.ran.lock().unwrap()[0];
    assert_eq!(works.engine().signal(&[(first, 1)], 15), [first]);
    let until = works.clock.monotonic() + crate::works::DEADLINE;
    while works.times_run().len() <= chain {
        assert!(
            works.clock.monotonic() < until,
            "{:?}",
            works.engine().cache()
        );
        let notice = works.engine().notice();
        notice.wait(notice.seen(), Duration::from_millis(5));
    }
    works.wait_until_drained();
    assert!(works.engine().cache().counters.offers_admitted > 0);
    works.stop();
    assert!(works.times_run().values().all(|times| *times == 1));
}

/// A step of a worse band would run before better ones that wait on other shards.
#[test]
fn what_is_of_a_worse_band_is_not_offered() {
    let mut works = Works::without_heartbeat(1);
    let worse = NewStep {
        band: Band::WORST,
        ..Works::step("true")
    };
    *works.store.news.successors.lock().unwrap() = vec![worse];
    works.put("true", 20);
    works.start(1);
    works.wait_until_drained();
    works.stop();
    let counters = works.engine().cache().counters;
    assert_eq!(
        (counters.offers_admitted, counters.offers_worse_band),
        (0, 0)
    );
    let ran = works.notes.ran.lock().unwrap().clone();
    let last = works.store.get(ran[20]).unwrap().unwrap();
    assert_eq!((ran.len(), last.band), (21, Band::WORST));
}

/// What was delivered or granted starts at once too, on whatever shard it is.
#[test]
fn what_others_were_told_starts_without_a_heartbeat() {
    let mut works = Works::without_heartbeat(3);
    works.start(2);
    works.wait_until_drained();
    works.store.news.tell.store(true, Ordering::SeqCst);
    works
        .store
        .news
        .delivered
        .lock()
        .unwrap()
        .extend(vec![Works::step("true"); 3]);
    works
        .store
        .news
        .granted
        .lock()
        .unwrap()
        .extend(vec![Works::step("true"); 3]);
    let first = works.put("true", 1)[0];
    // Nobody rings here: this turns the refillers once.
    works.engine().resize(2);
    works.wait_until_settled(first);
    let until = works.clock.monotonic() + crate::works::DEADLINE;
    while works.times_run().len() < 7 {
        assert!(works.clock.monotonic() < until, "{:?}", works.times_run());
        let notice = works.engine().notice();
        notice.wait(notice.seen(), Duration::from_millis(5));
    }
    works.wait_until_drained();
    works.stop();
}

/// A delivery that fails is made again by the next heartbeat, though nothing has changed since.
#[test]
fn a_delivery_that_failed_is_made_again() {
    let mut works = Works::new(1);
    works.store.faults.deliver.store(true, Ordering::SeqCst);
    works.start(1);
    let until = works.clock.monotonic() + crate::works::DEADLINE;
    while works.store.faults.failed.load(Ordering::SeqCst) < 3 {
        assert!(works.clock.monotonic() < until);
        let notice = works.engine().notice();
        notice.wait(notice.seen(), Duration::from_millis(5));
    }
    works
        .store
        .news
        .delivered
        .lock()
        .unwrap()
        .push(Works::step("true"));
    works.store.faults.deliver.store(false, Ordering::SeqCst);
    while works.times_run().is_empty() {
        assert!(works.clock.monotonic() < until);
        let notice = works.engine().notice();
        notice.wait(notice.seen(), Duration::from_millis(5));
    }
    works.wait_until_drained();
    works.stop();
}

/// An idle store is looked at and left alone.
#[test]
fn nothing_is_granted_while_nothing_changes() {
    let mut works = Works::new(2);
    works.start(1);
    works.wait_until_drained();
    let turns = || {
        works
            .engine()
            .shards()
            .iter()
            .map(|shard| shard.cycles)
            .sum::<u64>()
    };
    let settle = |more: u64| {
        let (from, until) = (turns(), works.clock.monotonic() + crate::works::DEADLINE);
        while turns() < from + more {
            assert!(works.clock.monotonic() < until);
            let notice = works.engine().notice();
            notice.wait(notice.seen(), Duration::from_millis(5));
        }
    };
    // The first heartbeat sees everything for the first time.
    settle(10);
    let before = works.grants();
    settle(20);
    assert_eq!(works.grants(), before);
    works.stop();
}
