//! One worker's loop.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::executor::{Outcome, Ran, Seat};
use super::roster::End;
use super::{Shared, timer};
use crate::cache::{Taken, Waited};
use crate::event::{Event, Why};
use crate::model::{Captured, Claim, Ending, Finished, StepId};
use crate::store::Lease;

/// Between the tries to start a step for which there were not enough processes, descriptors or
/// memory: the first, and the most.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Works until told to leave.
pub(super) fn work(shared: &Arc<Shared>, worker: u32) {
    let leave = Leave(shared);
    let mut seat = shared.parts.executor.seat(worker);
    while let Waited::Work(shard) = shared.parts.cache.wait_for_work() {
        // The permit comes before the take: a hint taken by a worker that then waits is a hint that
        // no free worker can run.
        let Some(permit) = shared.gate.acquire() else {
            break;
        };
        let Some(taken) = shared.parts.cache.try_pop_from(shard) else {
            continue;
        };
        shared.hands().idle -= 1;
        shared.hire_if_busy();
        let stays = handle(shared, worker, &mut seat, &taken);
        drop(permit);
        shared.hands().idle += 1;
        if !stays {
            break;
        }
        shared.parts.foreman.idle();
    }
    drop(leave);
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

/// Says that a taken hint's claim is decided, however the deciding went: one that was never released
/// would be left out of every refill to come.
struct Release<'s>(&'s Shared, StepId);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.parts.cache.release(self.1);
        self.0.parts.foreman.decided(self.1.shard);
    }
}

/// Claims a taken hint, and runs the step if it is ours. Returns whether the worker stays: one that
/// waits in vain for processes gives way to those that have some.
fn handle(shared: &Arc<Shared>, worker: u32, seat: &mut Box<dyn Seat>, taken: &Taken) -> bool {
    let parts = &shared.parts;
    let candidate = &taken.candidate;
    let release = Release(shared, candidate.id);
    parts.foreman.took(candidate, taken.needs_refill);
    let now = parts.clock.now();
    let lease = Lease {
        runner: parts.runner,
        until: now + parts.lease,
    };
    let decided = parts.claims.claim(
        candidate.id.shard,
        std::slice::from_ref(candidate),
        lease,
        now,
    );
    drop(release);
    let claim = match decided.map(|claims| claims.into_iter().next().flatten()) {
        Ok(Some(claim)) => claim,
        Ok(None) => {
            shared.counts.lost.fetch_add(1, Ordering::Relaxed);
            parts.sink.emit(now, &Event::ClaimLost { id: candidate.id });
            return true;
        }
        Err(error) => {
            shared.counts.failed.fetch_add(1, Ordering::Relaxed);
            parts.foreman.cannot_claim(candidate.id.shard, &error);
            return true;
        }
    };
    shared.counts.won.fetch_add(1, Ordering::Relaxed);
    let event = Event::Claimed {
        id: claim.id,
        band: claim.band,
        key: claim.key.clone(),
        fence: claim.fence,
        attempt: claim.attempt,
        waited: claim.claimed.since(claim.since),
    };
    parts.sink.emit(claim.claimed, &event);
    parts.foreman.claimed(&claim);
    shared.roster.enter(worker, &claim);
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
        unstarted(shared, Ending::Unstarted { reason })
    });
    let end = shared.roster.leave(worker);
    report(shared, worker, &claim, outcome, end);
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
        match shared.roster.end_of(worker).map(|end| end.why) {
            Some(Why::Leaving) => return unstarted(shared, Ending::Interrupted),
            Some(Why::Wished | Why::TimeOver) => return unstarted(shared, Ending::Cancelled),
            None => {}
        }
        let ran = seat.run(claim, &mut |process| {
            let now = parts.clock.monotonic();
            let (done, sooner) = shared.roster.started(worker, &process, now);
            shared.say(done.as_slice());
            if sooner {
                timer::tell(shared);
            }
        });
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
            return unstarted(shared, Ending::Interrupted);
        }
        // Nothing tells when processes or memory come back; whoever leaves the crew or ends steps
        // wakes us early.
        let hands = shared.hands();
        drop(shared.left.wait_timeout(hands, pause));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn unstarted(shared: &Shared, ending: Ending) -> Outcome {
    Outcome {
        ending,
        started: None,
        ended: shared.parts.clock.now(),
        stdout: Captured::Empty,
        stderr: Captured::Empty,
    }
}

fn report(shared: &Shared, worker: u32, claim: &Claim, outcome: Outcome, end: Option<End>) {
    let ending = match end.map(|end| (end.why, end.killed)) {
        // Whatever it made of the signal: it had its time.
        Some((Why::TimeOver, killed)) => Ending::TimedOut { killed },
        // A step that was told to end and still ended well has ended well.
        Some((Why::Leaving, _)) if outcome.ending != (Ending::Exited { code: 0 }) => {
            Ending::Interrupted
        }
        Some((Why::Leaving | Why::Wished, _)) | None => outcome.ending,
    };
    let parts = &shared.parts;
    let event = Event::Ended {
        id: claim.id,
        key: claim.key.clone(),
        fence: claim.fence,
        ending: ending.clone(),
        ran: outcome
            .ended
            .since(outcome.started.unwrap_or(outcome.ended)),
    };
    parts.sink.emit(parts.clock.now(), &event);
    let finished = Finished {
        id: claim.id,
        runner: claim.runner,
        fence: claim.fence,
        attempt: claim.attempt,
        ending,
        started: outcome.started,
        ended: outcome.ended,
        worker,
        stdout: outcome.stdout,
        stderr: outcome.stderr,
    };
    parts.foreman.finished(finished, &claim.policy);
}
