//! What the store promises when several do contrary things to the same steps at once.

use std::sync::atomic::{AtomicU32, Ordering};

use fairq::model::StepState;
use fairq::store::{Action, Steered};

use super::limits::{one, set};
use super::{Open, World, after, at, failure, runner, step};

/// How often each race is run.
const ROUNDS: i64 = 1_000;

pub(crate) fn a_retry_and_a_cancel_at_once_have_an_order(open: Open) {
    let world = World::new(open, 1);
    let id = world.put_one(step("a"));
    world.steer(id, &Action::Cancel, after(0));
    for round in 1..=ROUNDS {
        let (retried, cancelled) = std::thread::scope(|scope| {
            let retried = scope.spawn(|| world.steer(id, &Action::Retry, after(round)));
            let cancelled = world.steer(id, &Action::Cancel, after(round));
            (retried.join().unwrap(), cancelled)
        });
        let (from, to) = (StepState::Cancelled, StepState::Ready);
        assert_eq!(retried, Steered::Done { from, to });
        // Whoever came second decides; nobody is told what is not so.
        let state = match cancelled {
            Steered::Refused { state } => {
                assert_eq!(state, StepState::Cancelled);
                StepState::Ready
            }
            other @ (Steered::Done { .. } | Steered::Asked { .. } | Steered::Missing) => {
                let (from, to) = (StepState::Ready, StepState::Cancelled);
                assert_eq!(other, Steered::Done { from, to });
                StepState::Cancelled
            }
        };
        assert_eq!(world.state(id), state);
        let counts = world.store.counts(id.shard).unwrap();
        assert_eq!(counts.states.values().sum::<u64>(), 1, "{counts:?}");
        if state == StepState::Ready {
            world.steer(id, &Action::Cancel, after(round));
        }
    }
}

pub(crate) fn a_limit_holds_while_runners_die_and_come_back(open: Open) {
    const PLACES: u32 = 2;
    const RUNNERS: i64 = 3;
    let world = World::new(open, 2);
    set(&world, "x", PLACES);
    let keys: Vec<String> = world.shards().map(|shard| world.key_on(shard)).collect();
    // Of several bands: due steps are to give way, and are claimed while they do.
    let steps: Vec<_> = (0..6)
        .map(|number| one(&keys[number % 2], [5, 3, 1][number % 3]))
        .collect();
    let ids = world.put(&steps);
    let (running, claims) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for by in 0..RUNNERS {
            let (world, ids, running, claims) = (&world, &ids, &running, &claims);
            scope.spawn(move || {
                for round in 0..ROUNDS / RUNNERS {
                    let now = at(2_000_000 + round);
                    world.store.grant(now).unwrap();
                    for id in ids {
                        let state = world.state(*id);
                        if state.is_final() {
                            world.steer(*id, &Action::Retry, now);
                        }
                        let Some(claim) = world.claim(*id, by, now) else {
                            continue;
                        };
                        claims.fetch_add(1, Ordering::SeqCst);
                        let now_running = running.fetch_add(1, Ordering::SeqCst) + 1;
                        assert!(now_running <= PLACES, "{now_running} run at once");
                        std::thread::yield_now();
                        running.fetch_sub(1, Ordering::SeqCst);
                        if (round + by) % 3 == 0 {
                            world.store.reclaim(id.shard, runner(by), now).unwrap();
                        } else {
                            world.settle(failure(&claim));
                        }
                    }
                }
            });
        }
    });
    let claims = claims.load(Ordering::SeqCst);
    assert!(claims > 100, "only {claims} claims: nothing was raced for");
}
