//! One worker's loop.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Shared;
use super::executor::{Outcome, Ran, Seat};
use super::hand::Hint;
use crate::cache::Waited;
use crate::event::Event;
use crate::model::{Claim, Ending, ShardId};

/// Between the tries to start a step for which there were not enough processes, descriptors or
/// memory: the first, and the most.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Works until told to leave.
pub(super) fn work(shared: &Arc<Shared>, worker: u32) {
    let leave = Leave(shared);
    let mut seat = shared.parts.executor.seat(worker);
    let mut owed = Owed::nothing(shared);
    loop {
        let cache = &shared.parts.cache;
        let waited = cache.look_for_work().unwrap_or_else(|| {
            owed.pay();
            cache.wait_for_work()
        });
        let Waited::Work(shard) = waited else {
            break;
        };
        // The permit comes before the take: a hint taken by a worker that then waits is a hint that
        // no free worker can run.
        let permit = shared.gate.try_acquire().or_else(|| {
            owed.pay();
            shared.gate.acquire()
        });
        let Some(permit) = permit else {
            break;
        };
        let Some(hint) = Hint::reach(shared, shard) else {
            continue;
        };
        // A claim on the same shard takes the outcome along. Another one may have to wait for its file.
        if owed.shard != Some(shard) {
            owed.pay();
        }
        let stays = handle(shared, worker, &mut seat, hint);
        owed.shard = Some(shard);
        drop(permit);
        shared.rest();
        if !stays {
            break;
        }
    }
    drop(leave);
}

/// The outcome of a worker's last step, as long as it may wait for the worker's next claim.
struct Owed<'s> {
    shared: &'s Shared,
    shard: Option<ShardId>,
}

impl<'s> Owed<'s> {
    const fn nothing(shared: &'s Shared) -> Self {
        Self {
            shared,
            shard: None,
        }
    }

    /// Lets nothing wait any longer.
    fn pay(&mut self) {
        if let Some(shard) = self.shard.take() {
            self.shared.parts.foreman.hurry(shard);
        }
    }
}

impl Drop for Owed<'_> {
    fn drop(&mut self) {
        self.pay();
    }
}

/// Signs a worker off, however it leaves.
struct Leave<'s>(&'s Shared);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        let mut hands = self.0.hands();
        hands.resident -= 1;
        hands.idle = hands.idle.saturating_sub(1);
        drop(hands);
        self.0.left.notify_all();
        self.0.parts.foreman.idle();
    }
}

/// Claims a taken hint, and runs the step if it is ours. Returns whether the worker stays: one that
/// waits in vain for processes gives way to those that have some.
fn handle(shared: &Arc<Shared>, worker: u32, seat: &mut Box<dyn Seat>, hint: Hint) -> bool {
    let decided = hint.ask();
    let Some(claim) = hint.hear(worker, decided) else {
        return true;
    };
    let parts = &shared.parts;
    let mut stays = true;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        run(shared, worker, seat.as_mut(), &claim, &mut stays)
    }));
    let outcome = outcome.unwrap_or_else(|_| {
        shared.counts.panics.fetch_add(1, Ordering::Relaxed);
        parts
            .sink
            .emit(parts.clock.now(), &Event::WorkerPanicked { id: claim.id });
        // Whatever state the seat is in, the next step gets a fresh one.
        *seat = parts.executor.seat(worker);
        let reason = "fairq failed while it handled this step; this is a bug of fairq".to_owned();
        shared.unstarted(Ending::Unstarted { reason })
    });
    shared.over(worker, &claim, outcome);
    stays
}

/// Runs a step; one that cannot be started for the moment is tried again, or put back if another
/// one is being tried already: this worker does not stay then. One that was to be ended before it had
/// a process is not started.
fn run(
    shared: &Arc<Shared>,
    worker: u32,
    seat: &mut dyn Seat,
    claim: &Claim,
    stays: &mut bool,
) -> Outcome {
    let parts = &shared.parts;
    let mut short = None;
    let mut pause = FIRST_PAUSE;
    loop {
        if let Some(outcome) = shared.barred(worker) {
            return outcome;
        }
        let ran = seat.run(claim, &mut |process| shared.started(worker, &process));
        let reason = match ran {
            Ran::Ended(outcome) => return outcome,
            Ran::NotNow(reason) => reason,
        };
        if pause == FIRST_PAUSE {
            let event = Event::StartDelayed {
                id: claim.id,
                reason,
            };
            parts.sink.emit(parts.clock.now(), &event);
        }
        if short.is_none() {
            short = shared.wait_for_what_is_short();
        }
        if short.is_none() {
            *stays = false;
            return shared.unstarted(Ending::Interrupted);
        }
        // Nothing tells when processes or memory come back; whoever leaves the crew or ends steps
        // wakes us early.
        let hands = shared.hands();
        drop(shared.left.wait_timeout(hands, pause));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
