//! What the crew reports, passed on to those who supply and those who record.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use serde::Serialize;

use super::With;
use super::notice::Notice;
use crate::ambient::Clock;
use crate::cache::CandidateCache;
use crate::completion::Completer;
use crate::crew::Foreman;
use crate::error::Error;
use crate::event::{Event, Sink};
use crate::model::{Band, Candidate, Claim, FairnessKey, Finished, ShardId, StepId, StepState};
use crate::planner::Planner;
use crate::refiller::Progress;

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

/// How often durations of which length were seen, in buckets each a quarter longer than the last: a
/// quantile is known to a quarter, whatever the number of steps.
#[derive(Clone, Debug)]
pub struct Durations {
    buckets: [u64; Self::BUCKETS],
    count: u64,
}

impl Default for Durations {
    fn default() -> Self {
        Self {
            buckets: [0; Self::BUCKETS],
            count: 0,
        }
    }
}

impl Durations {
    const BUCKETS: usize = 128;

    /// Takes note of one, in milliseconds.
    pub fn note(&mut self, millis: u64) {
        let at = Self::UPPER.partition_point(|upper| *upper < millis);
        self.buckets[at.min(Self::BUCKETS - 1)] += 1;
        self.count += 1;
    }

    /// Returns the length below which this part of all lay, in milliseconds; `None` if none was seen.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank among counted events; rounding moves it by one at most"
    )]
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let rank = ((self.count as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        self.buckets.iter().enumerate().find_map(|(at, count)| {
            seen += count;
            (*count > 0 && seen >= rank).then_some(Self::UPPER[at])
        })
    }

    /// The longest duration of each bucket: exact to 4 ms, then a quarter longer each.
    const UPPER: [u64; Self::BUCKETS] = {
        let mut upper = [0; Self::BUCKETS];
        let mut at = 1;
        while at < Self::BUCKETS {
            let last: u64 = upper[at - 1];
            upper[at] = last + if last < 4 { 1 } else { last / 4 };
            at += 1;
        }
        upper
    };
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
    planner: Arc<Planner>,
    cache: Arc<CandidateCache>,
    progress: Arc<Progress>,
    notice: Arc<Notice>,
    clock: Arc<dyn Clock>,
    sink: Arc<dyn Sink>,
    completer: OnceLock<Weak<Completer>>,
    tally: Mutex<Tally>,
    /// The shards whose claims fail.
    rests: Mutex<BTreeMap<ShardId, Rest>>,
}

impl Boss {
    pub(super) fn new(
        planner: Arc<Planner>,
        cache: Arc<CandidateCache>,
        progress: Arc<Progress>,
        notice: Arc<Notice>,
        with: &With,
    ) -> Self {
        Self {
            planner,
            cache,
            progress,
            notice,
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

    /// Takes note of an outcome that is recorded.
    pub(super) fn settled(&self, id: StepId, state: StepState) {
        {
            let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
            match state {
                StepState::Succeeded => tally.succeeded += 1,
                StepState::Failed | StepState::Cancelled => tally.failed += 1,
                StepState::Ready | StepState::Running | StepState::Delayed | StepState::Held => {
                    tally.put_back += 1;
                }
            }
        }
        if state == StepState::Ready {
            self.progress.nudge(id.shard);
        }
        self.notice.tell();
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
        self.planner
            .took(candidate.band, &candidate.key, candidate.turn);
        self.progress
            .took(self.cache.capacity(), low.then_some(candidate.id.shard));
    }

    fn decided(&self, shard: ShardId) {
        self.progress.decided(shard, self.cache.is_empty());
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

    fn cannot_claim(&self, shard: ShardId, error: &Error) {
        // A shard that can be read and not written would be planned, fetched and refused for ever.
        self.planner.clear(shard);
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
            self.progress.suspend(shard, pause);
            known
        };
        if known.is_none() {
            let event = Event::ShardWithdrawn {
                shard,
                error: error.to_string(),
            };
            self.sink.emit(self.clock.now(), &event);
        }
        self.progress.nudge_all();
    }

    fn finished(&self, finished: Finished) {
        if let Some(started) = finished.started {
            let ran = finished.ended.since(started).millis();
            self.tally
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .ran
                .note(ran);
        }
        if let Some(completer) = self.completer.get().and_then(Weak::upgrade) {
            completer.accept(finished);
        }
    }

    fn idle(&self) {
        self.notice.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_known_to_a_quarter() {
        let mut seen = Durations::default();
        assert_eq!(seen.quantile(0.5), None);
        (0..=1000).for_each(|millis| seen.note(millis));
        for (part, exact) in [(0.0, 0), (0.5, 500), (0.99, 990), (1.0, 1000)] {
            let told = seen.quantile(part).unwrap();
            assert!(
                told >= exact && told <= exact + exact / 4 + 1,
                "{part}: {told} for {exact}"
            );
        }
        seen.note(u64::MAX);
        assert!(seen.quantile(1.0).unwrap() > 1_000_000_000);
    }
}
