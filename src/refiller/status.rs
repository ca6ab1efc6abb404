//! What the refillers of a process have done: kept for people, no decision depends on it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;

use super::Outcome;
use crate::ambient::Clock;
use crate::error::Error;
use crate::model::{Durations, ShardId};

/// How long the phases of turns took, in microseconds. A turn that ended early has fewer.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Phases {
    /// Promoting and reading what is due.
    pub tally: Durations,
    /// Reporting it and planning.
    pub plan: Durations,
    /// Fetching ids.
    pub fetch: Durations,
    /// Assembling and pushing.
    pub push: Durations,
}

/// What one shard's refiller has done since the start.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ShardStatus {
    /// How many turns it made.
    pub cycles: u64,
    /// How many of them could not read the shard.
    pub blind: u64,
    /// How many read it and could not fetch the planned steps.
    pub unfetched: u64,
    /// How many found nothing for this shard to run.
    pub nothing: u64,
    /// How many pushed candidates.
    pub pushed: u64,
    /// Why it is out of planning, if it is.
    pub error: Option<String>,
    /// How long its phases took, in microseconds.
    pub phases: Phases,
}

/// What all refillers have done. Any thread may write and look at any time.
#[derive(Debug)]
pub struct StatusBoard(Vec<Mutex<ShardStatus>>);

impl StatusBoard {
    /// Returns the board of the shards `0..shards`, none of which has turned yet.
    pub fn new(shards: u8) -> Self {
        Self((0..shards).map(|_| Mutex::default()).collect())
    }

    /// Returns what each shard's refiller has done, in the order of the shards.
    pub fn view(&self) -> Vec<ShardStatus> {
        self.0.iter().map(|shard| lock(shard).clone()).collect()
    }

    /// Takes note that a shard is out of planning, and why.
    pub fn withdrew(&self, shard: ShardId, error: &Error) {
        lock(&self.0[shard.index()]).error = Some(error.to_string());
    }

    /// Takes note that a shard was read, and so takes part in planning.
    pub(super) fn saw(&self, shard: ShardId) {
        lock(&self.0[shard.index()]).error = None;
    }

    /// Takes note of a turn.
    pub(super) fn turned(&self, shard: ShardId, outcome: Outcome, took: &[Option<Duration>; 4]) {
        let mut status = lock(&self.0[shard.index()]);
        status.cycles += 1;
        match outcome {
            Outcome::Blind => status.blind += 1,
            Outcome::Unfetched => status.unfetched += 1,
            Outcome::Nothing => status.nothing += 1,
            Outcome::Pushed(_) => status.pushed += 1,
        }
        let phases = &mut status.phases;
        let kept = [
            &mut phases.tally,
            &mut phases.plan,
            &mut phases.fetch,
            &mut phases.push,
        ];
        for (kept, took) in kept.into_iter().zip(took) {
            if let Some(took) = took {
                kept.note(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
            }
        }
    }
}

fn lock(shard: &Mutex<ShardStatus>) -> MutexGuard<'_, ShardStatus> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Times the phases of one turn.
#[derive(Debug)]
pub(super) struct Watch {
    clock: Arc<dyn Clock>,
    last: Duration,
    phases: [Option<Duration>; 4],
}

impl Watch {
    pub(super) fn start(clock: Arc<dyn Clock>) -> Self {
        let last = clock.monotonic();
        Self {
            clock,
            last,
            phases: [None; 4],
        }
    }

    /// Ends the phase that reads what is due.
    pub(super) fn tallied(&mut self) {
        self.lap(0);
    }

    /// Ends the phase that plans.
    pub(super) fn planned(&mut self) {
        self.lap(1);
    }

    /// Ends the phase that fetches.
    pub(super) fn fetched(&mut self) {
        self.lap(2);
    }

    /// Ends the phase that pushes.
    pub(super) fn pushed(&mut self) {
        self.lap(3);
    }

    /// Returns how long each phase took that was ended.
    pub(super) const fn phases(&self) -> &[Option<Duration>; 4] {
        &self.phases
    }

    fn lap(&mut self, phase: usize) {
        let now = self.clock.monotonic();
        self.phases[phase] = Some(now.saturating_sub(self.last));
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ambient::ManualClock;
    use crate::error::ErrorKind;
    use crate::model::Timestamp;

    #[test]
    fn a_shard_tells_how_its_turns_went_and_why_it_is_out() {
        let board = StatusBoard::new(2);
        let shard = ShardId::new(1).unwrap();
        let clock = Arc::new(ManualClock::new(Timestamp::default()));
        let mut watch = Watch::start(Arc::clone(&clock) as Arc<_>);
        clock.advance(Duration::from_micros(3));
        watch.tallied();
        clock.advance(Duration::from_micros(2));
        watch.planned();
        board.turned(shard, Outcome::Nothing, watch.phases());
        board.turned(shard, Outcome::Blind, &[None; 4]);
        board.withdrew(shard, &Error::new(ErrorKind::Unavailable, "gone"));
        let [other, status] = &board.view()[..] else {
            unreachable!("there are two shards")
        };
        assert_eq!((other.cycles, &other.error), (0, &None));
        assert_eq!((status.cycles, status.nothing, status.blind), (2, 1, 1));
        assert_eq!(status.error.as_deref(), Some("gone"));
        let of = |phase: &Durations| phase.quantile(0.5);
        let phases = &status.phases;
        assert_eq!((of(&phases.tally), of(&phases.plan)), (Some(3), Some(2)));
        assert_eq!((of(&phases.fetch), of(&phases.push)), (None, None));
        board.saw(shard);
        assert_eq!(board.view()[1].error, None);
    }
}
