//! What the crew reports, passed on to those who supply and those who record.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use serde::Serialize;

use super::{Stages, With};
use crate::ambient::Clock;
use crate::cache::Offered;
use crate::completion::Completer;
use crate::crew::Foreman;
use crate::error::Error;
use crate::event::{Event, Sink};
use crate::model::{
    Band, Candidate, Claim, Durations, FairnessKey, Finished, Policy, Recorded, Released, ShardId,
    StepId, StepState,
};

/// A shard whose claims fail rests so long: the first time, and at most.
const FIRST_REST: Duration = Duration::from_millis(500);
const LONGEST_REST: Duration = Duration::from_secs(15);

/// What a runner has done so far.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tally {
    /// How many steps ended well.
    pub succeeded: u64,
    /// How many failed for good.
    pub failed: u64,
    /// How many are to be tried again.
    pub retried: u64,
    /// How many were put back.
    pub put_back: u64,
    /// How many steps were taken for each band and key.
    #[serde(skip)]
    pub claimed: BTreeMap<(Band, FairnessKey), u64>,
    /// How long steps had been due when they were claimed, in milliseconds.
    #[serde(skip)]
    pub waited: Durations,
    /// How long steps ran, in milliseconds.
    #[serde(skip)]
    pub ran: Durations,
}

/// How a shard rests whose claims fail.
#[derive(Clone, Copy, Debug)]
struct Rest {
    /// How long.
    pause: Duration,
    /// Until when, on the monotonic clock.
    until: Duration,
}

/// The engine's foreman.
pub(super) struct Boss {
    stages: Stages,
    clock: Arc<dyn Clock>,
    sink: Arc<dyn Sink>,
    completer: OnceLock<Weak<Completer>>,
    tally: Mutex<Tally>,
    /// The shards whose claims fail.
    rests: Mutex<BTreeMap<ShardId, Rest>>,
}

impl Boss {
    pub(super) fn new(stages: Stages, with: &With) -> Self {
        Self {
            stages,
            clock: Arc::clone(&with.clock),
            sink: Arc::clone(&with.sink),
            completer: OnceLock::new(),
            tally: Mutex::default(),
            rests: Mutex::default(),
        }
    }

    /// Says to whom tries are handed that are over.
    pub(super) fn hand_to(&self, completer: &Arc<Completer>) {
        // Set once, by the engine that makes both.
        drop(self.completer.set(Arc::downgrade(completer)));
    }

    /// Takes note of an outcome that is recorded, and passes on what follows from it.
    pub(super) fn settled(&self, id: StepId, recorded: &Recorded) {
        let state = recorded.state;
        // Before anything else: what became due may be all that there is to do.
        self.offer(&recorded.released);
        if recorded.tell {
            self.stages.errands.ended(id.shard);
        }
        {
            let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
            match state {
                StepState::Succeeded => tally.succeeded += 1,
                StepState::Failed | StepState::Cancelled => tally.failed += 1,
                StepState::Delayed => tally.retried += 1,
                StepState::Ready
                | StepState::Running
                | StepState::Blocked
                | StepState::Limited
                | StepState::Held => tally.put_back += 1,
            }
        }
        // One that was put back is due; of one that comes later, the refiller has to learn when.
        if matches!(state, StepState::Ready | StepState::Delayed) {
            self.stages.progress.nudge(id.shard);
        }
        self.stages.notice.tell();
    }

    /// Offers steps that have just become due to the crew, which need not wait for a refill then, and
    /// turns their shards.
    pub(super) fn offer(&self, released: &[Released]) {
        let mut shards = BTreeSet::new();
        let mut full = BTreeSet::new();
        for step in released {
            let Released {
                id,
                band,
                key,
                weight,
            } = step;
            let is_worse = || {
                self.stages
                    .planner
                    .global_band()
                    .is_some_and(|best| best < *band)
            };
            if !full.contains(&id.shard) && !is_worse() {
                let offered = self.stages.cache.offer(Candidate {
                    id: *id,
                    band: *band,
                    key: key.clone(),
                    turn: self.stages.planner.next_turn(*band, key, *weight),
                });
                // A refill finds the others.
                if offered == Offered::Full {
                    full.insert(id.shard);
                }
            }
            shards.insert(id.shard);
        }
        for shard in shards {
            self.stages.progress.nudge(shard);
        }
    }

    pub(super) fn tally(&self) -> Tally {
        self.tally
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Foreman for Boss {
    fn took(&self, candidate: &Candidate, low: bool) {
        self.stages
            .planner
            .took(candidate.band, &candidate.key, candidate.turn);
        self.stages.progress.took(
            self.stages.cache.capacity(),
            low.then_some(candidate.id.shard),
        );
    }

    fn decided(&self, shard: ShardId) {
        self.stages
            .progress
            .decided(shard, self.stages.cache.is_empty());
    }

    fn claimed(&self, claim: &Claim) {
        {
            let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
            *tally
                .claimed
                .entry((claim.band, claim.key.clone()))
                .or_default() += 1;
            tally.waited.note(claim.claimed.since(claim.since).millis());
        }
        let mut rests = self.rests.lock().unwrap_or_else(PoisonError::into_inner);
        if !rests.is_empty() && rests.remove(&claim.id.shard).is_some() {
            drop(rests);
            let event = Event::ShardReturned {
                shard: claim.id.shard,
            };
            self.sink.emit(self.clock.now(), &event);
        }
    }

    fn cannot_claim(&self, id: StepId, error: &Error) {
        let shard = id.shard;
        self.stages.errands.doubt(id);
        // A shard that can be read and not written would be planned, fetched and refused for ever.
        self.stages.planner.clear(shard);
        self.stages.status.withdrew(shard, error);
        let now = self.clock.monotonic();
        let known = {
            let mut rests = self.rests.lock().unwrap_or_else(PoisonError::into_inner);
            let known = rests.get(&shard).copied();
            // Workers that were on their way when the first one failed fail with it: that is one
            // failure, not several.
            if known.is_some_and(|rest| now < rest.until) {
                return;
            }
            let pause = known.map_or(FIRST_REST, |rest| (rest.pause * 2).min(LONGEST_REST));
            rests.insert(
                shard,
                Rest {
                    pause,
                    until: now + pause,
                },
            );
            self.stages.progress.suspend(shard, pause);
            known
        };
        if known.is_none() {
            let event = Event::ShardWithdrawn {
                shard,
                error: error.to_string(),
            };
            self.sink.emit(self.clock.now(), &event);
        }
        self.stages.progress.nudge_all();
    }

    fn finished(&self, finished: Finished, policy: &Policy) {
        if let Some(started) = finished.started {
            let ran = finished.ended.since(started).millis();
            self.tally
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .ran
                .note(ran);
        }
        if let Some(completer) = self.completer.get().and_then(Weak::upgrade) {
            completer.accept_later(finished, policy);
        }
    }

    fn hurry(&self, shard: ShardId) {
        if let Some(completer) = self.completer.get().and_then(Weak::upgrade) {
            completer.hurry(shard);
        }
    }

    fn idle(&self) {
        self.stages.notice.tell();
    }
}
