//! What a worker does between its waits, each thing by itself and none of them waiting: its thread does
//! them, and so does whoever drives a crew without threads.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::executor::{Outcome, Process};
use super::roster::End;
use super::{Crew, Shared, timer};
use crate::error::Result;
use crate::event::{Event, Why};
use crate::model::{Candidate, Captured, Claim, Ending, Finished, ShardId, StepId};
use crate::store::Lease;

/// A hint that a worker has taken.
///
/// Dropping it says that its claim is decided, however the deciding went: one that was never released
/// would be left out of every refill to come.
pub struct Hint {
    shared: Arc<Shared>,
    candidate: Candidate,
    asking: Option<Asking>,
}

/// That a step may have been granted to this runner before the roster knows it.
struct Asking(Arc<Shared>, StepId);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.roster.heard(self.1);
    }
}

impl std::fmt::Debug for Hint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Hint").field(&self.candidate).finish()
    }
}

impl Drop for Hint {
    fn drop(&mut self) {
        let id = self.candidate.id;
        self.shared.parts.cache.release(id);
        self.shared.parts.foreman.decided(id.shard);
    }
}

impl Hint {
    /// Takes the hint in front of a shard's partition; `None` if another was faster.
    pub(super) fn reach(shared: &Arc<Shared>, shard: ShardId) -> Option<Self> {
        let taken = shared.parts.cache.try_pop_from(shard)?;
        let id = taken.candidate.id;
        shared.roster.asks(id);
        let hint = Self {
            shared: Arc::clone(shared),
            candidate: taken.candidate,
            asking: Some(Asking(Arc::clone(shared), id)),
        };
        shared.hands().idle -= 1;
        shared.hire_if_busy();
        let foreman = &shared.parts.foreman;
        foreman.took(&hint.candidate, taken.needs_refill);
        Some(hint)
    }

    /// Returns what was taken.
    pub const fn candidate(&self) -> &Candidate {
        &self.candidate
    }

    /// Asks the store for the step.
    ///
    /// # Errors
    ///
    /// The shard could not be written.
    pub fn ask(&self) -> Result<Option<Claim>> {
        let parts = &self.shared.parts;
        let now = parts.clock.now();
        let lease = Lease {
            runner: parts.runner,
            until: now + parts.lease,
        };
        let one = std::slice::from_ref(&self.candidate);
        let decided = parts
            .claims
            .claim(self.candidate.id.shard, one, lease, now)?;
        Ok(decided.into_iter().next().flatten())
    }

    /// Takes note of what the store has answered. Returns the claim if the step is this worker's now.
    pub fn hear(mut self, worker: u32, decided: Result<Option<Claim>>) -> Option<Claim> {
        let shared = Arc::clone(&self.shared);
        let id = self.candidate.id;
        // Until the roster knows.
        let _asking = self.asking.take();
        drop(self);
        let parts = &shared.parts;
        let claim = match decided {
            Ok(Some(claim)) => claim,
            Ok(None) => {
                shared.counts.lost.fetch_add(1, Ordering::Relaxed);
                parts.sink.emit(parts.clock.now(), &Event::ClaimLost { id });
                return None;
            }
            Err(error) => {
                shared.counts.failed.fetch_add(1, Ordering::Relaxed);
                parts.foreman.cannot_claim(id, &error);
                return None;
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
        Some(claim)
    }
}

impl Shared {
    /// Returns how a worker's step ends that is not to be started, if it is not.
    pub(super) fn barred(&self, worker: u32) -> Option<Outcome> {
        let ending = match self.roster.end_of(worker)?.why {
            Why::Leaving => Ending::Interrupted,
            Why::Wished | Why::TimeOver => Ending::Cancelled,
        };
        Some(self.unstarted(ending))
    }

    pub(super) fn unstarted(&self, ending: Ending) -> Outcome {
        Outcome {
            ending,
            started: None,
            ended: self.parts.clock.now(),
            stdout: Captured::Empty,
            stderr: Captured::Empty,
        }
    }

    /// Takes note of the process of a worker's step.
    pub(super) fn started(self: &Arc<Self>, worker: u32, process: &Arc<dyn Process>) {
        let now = self.parts.clock.monotonic();
        let (done, sooner) = self.roster.started(worker, process, now);
        self.say(done.as_slice());
        if sooner {
            timer::tell(self);
        }
    }

    /// Reports a worker's step that is over.
    pub(super) fn over(&self, worker: u32, claim: &Claim, outcome: Outcome) {
        let parts = &self.parts;
        let ending = ending(&outcome, self.roster.over(worker));
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
        // Only now: there is always somebody who knows of a claim that is not recorded yet.
        self.roster.leave(worker);
    }

    /// Takes note that a worker is free again.
    pub(super) fn rest(&self) {
        self.hands().idle += 1;
        self.parts.foreman.idle();
    }
}

fn ending(outcome: &Outcome, end: Option<End>) -> Ending {
    match end.map(|end| (end.why, end.killed)) {
        // Whatever it made of the signal: it had its time.
        Some((Why::TimeOver, killed)) => Ending::TimedOut { killed },
        // A step that was told to end and still ended well has ended well.
        Some((Why::Leaving, _)) if outcome.ending != (Ending::Exited { code: 0 }) => {
            Ending::Interrupted
        }
        Some((Why::Leaving | Why::Wished, _)) | None => outcome.ending.clone(),
    }
}

/// For whoever drives a crew without threads: what a worker of this number does next.
impl Crew {
    /// Takes the hint in front of a shard's partition; `None` if there is none.
    pub fn reach(&self, shard: ShardId) -> Option<Hint> {
        Hint::reach(&self.shared, shard)
    }

    /// Returns how the step that a worker has claimed ends without being started, if it does.
    pub fn barred(&self, worker: u32) -> Option<Outcome> {
        self.shared.barred(worker)
    }

    /// Takes note of the process of a worker's step.
    pub fn started(&self, worker: u32, process: &Arc<dyn Process>) {
        self.shared.started(worker, process);
    }

    /// Reports a worker's step that is over.
    pub fn over(&self, worker: u32, claim: &Claim, outcome: Outcome) {
        self.shared.over(worker, claim, outcome);
    }

    /// Takes note that a worker holds neither a hint nor a step any more.
    pub fn rest(&self) {
        self.shared.rest();
    }

    /// Does what the time of running steps asks for, and returns when there will be more to do, on the
    /// monotonic clock.
    pub fn ring(&self) -> Option<std::time::Duration> {
        let done = self.shared.roster.ring(self.shared.parts.clock.monotonic());
        self.shared.say(&done);
        self.shared.roster.next_alarm()
    }
}
