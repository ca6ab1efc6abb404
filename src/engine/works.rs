//! All stages of a runner, without the threads that drive them.
//!
//! [`Engine`](super::Engine) drives them by threads; a simulation does it by hand, in whatever order
//! its seed says. Nothing here waits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::courier::{Courier, Rounds};
use super::foreman::Boss;
use super::{Manner, Stages, With, steward};
use crate::ambient::{Dice, SharedDice};
use crate::cache::CandidateCache;
use crate::completion::{Calls, Completer, Repeat};
use crate::crew::{Crew, Parts};
use crate::error::Result;
use crate::model::{LostRun, RunnerId, ShardId, StepState};
use crate::planner::Planner;
use crate::presence::Standing;
use crate::refiller::{Crowd, Progress, Refiller, Shared};
use crate::store::Lease;

/// How many steps of a store keep a runner that drains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Census {
    /// They may start, run, or are to be tried again.
    busy: u64,
    /// They wait for others, or for places of limits.
    waiting: u64,
}

/// The stages of one runner.
pub struct Works {
    pub(super) with: With,
    pub(super) manner: Manner,
    pub(super) stages: Stages,
    pub(super) boss: Arc<Boss>,
    pub(super) completer: Arc<Completer>,
    pub(super) crew: Arc<Crew>,
    pub(super) courier: Arc<Courier>,
    pub(super) crowd: Arc<Crowd>,
}

impl std::fmt::Debug for Works {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Works")
            .field("with", &self.with)
            .finish_non_exhaustive()
    }
}

impl Works {
    /// Builds them. `crew` makes the crew: one with threads or one without.
    pub fn new(
        with: With,
        manner: Manner,
        repeat: Repeat,
        crew: impl FnOnce(Parts, usize) -> Crew,
    ) -> Self {
        let stages = Stages::new(&with, manner);
        let boss = Arc::new(Boss::new(stages.clone(), &with));
        let (told, quiet) = (Arc::clone(&boss), Arc::clone(&stages.notice));
        let completer = Completer::new(
            Arc::clone(&with.store) as Arc<_>,
            Arc::clone(&with.clock),
            Arc::clone(&with.sink),
            // Other numbers than the planner's: nothing shall depend on both.
            SharedDice::new(Dice::seeded(!manner.seed)),
            Calls {
                on_settled: Box::new(move |id, recorded| told.settled(id, &recorded)),
                on_quiet: Box::new(move || quiet.tell()),
                repeat,
            },
        );
        boss.hand_to(&completer);
        let parts = Parts {
            runner: with.runner,
            cache: Arc::clone(&stages.cache),
            claims: Arc::clone(&with.store) as Arc<_>,
            executor: Arc::clone(&with.executor),
            foreman: Arc::clone(&boss) as Arc<_>,
            lease: manner.lease,
            clock: Arc::clone(&with.clock),
            sink: Arc::clone(&with.sink),
        };
        let crew = Arc::new(crew(parts, manner.workers));
        let courier = Arc::new(Courier {
            store: Arc::clone(&with.store),
            runner: with.runner,
            crew: Arc::clone(&crew),
            boss: Arc::clone(&boss),
            completer: Arc::clone(&completer),
            clock: Arc::clone(&with.clock),
        });
        Self {
            with,
            manner,
            stages,
            boss,
            completer,
            crew,
            courier,
            crowd: Arc::default(),
        }
    }

    /// Returns the refiller of each shard, in the order of the shards. All have looked once, before
    /// anybody plans.
    pub fn refillers(&self) -> Vec<Refiller> {
        let errands = Arc::clone(&self.stages.errands);
        let shared = Shared {
            supply: Arc::clone(&self.with.store) as Arc<_>,
            planner: Arc::clone(&self.stages.planner),
            cache: Arc::clone(&self.stages.cache),
            progress: Arc::clone(&self.stages.progress),
            crowd: Arc::clone(&self.crowd),
            status: Arc::clone(&self.stages.status),
            clock: Arc::clone(&self.with.clock),
            sink: Arc::clone(&self.with.sink),
            promoted: Arc::new(move || errands.promoted()),
        };
        let mut refillers: Vec<Refiller> = ShardId::first(self.with.store.shard_count())
            .map(|shard| Refiller::new(shard, shared.clone(), self.manner.pace))
            .collect();
        refillers.iter_mut().for_each(Refiller::introduce);
        refillers
    }

    /// Does what the courier does first: what a crash has left undone.
    pub fn begin_rounds(&self) -> Rounds {
        self.courier.begin()
    }

    /// Returns whether the courier has something to do, and how long it may sleep if nobody calls it.
    pub fn is_called(&self, rounds: &Rounds) -> (bool, Duration) {
        let left = self.courier.left(rounds, self.manner.pace);
        (left.is_zero() || self.stages.errands.is_wanted(), left)
    }

    /// Lets the courier do what is wanted until now.
    pub fn go_round(&self, rounds: &mut Rounds) {
        let wanted = self.stages.errands.take();
        self.courier.turn(wanted, rounds, self.manner.pace);
    }

    /// Lets the claims of this runner stand for another lease.
    pub fn renew(&self) {
        let lease = Lease {
            runner: self.with.runner,
            until: self.with.clock.now() + self.manner.lease,
        };
        steward::renew(
            self.with.store.as_ref(),
            self.with.store.shard_count(),
            lease,
        );
    }

    /// Takes back what dead runners hold on a shard, and what those hold whose leases are over and of
    /// whom nobody can ask whether they live; turns the shard if there was any.
    ///
    /// # Errors
    ///
    /// The shard could not be read or written.
    pub fn take_back_on(
        &self,
        shard: ShardId,
        dead: &BTreeSet<RunnerId>,
        standing: &dyn Fn(RunnerId) -> Result<Standing>,
    ) -> Result<Vec<LostRun>> {
        let who = steward::Who {
            me: self.with.runner,
            dead,
            standing,
        };
        let now = self.with.clock.now();
        let lost = steward::take_back_on(self.with.store.as_ref(), shard, &who, now)?;
        if !lost.is_empty() {
            self.ring(shard);
        }
        Ok(lost)
    }

    /// Takes note that somebody else has written to a shard.
    pub fn ring(&self, shard: ShardId) {
        self.stages.ring(shard);
    }

    /// Returns the crew.
    pub const fn crew(&self) -> &Arc<Crew> {
        &self.crew
    }

    /// Returns the cache.
    pub fn cache(&self) -> &CandidateCache {
        &self.stages.cache
    }

    /// Returns the planner.
    pub fn planner(&self) -> &Planner {
        &self.stages.planner
    }

    /// Returns the bells of the refillers.
    pub fn progress(&self) -> &Progress {
        &self.stages.progress
    }

    /// Returns who writes outcomes.
    pub const fn completer(&self) -> &Arc<Completer> {
        &self.completer
    }

    /// Returns who the runners are and which of them this one is.
    pub fn crowd(&self) -> &Crowd {
        &self.crowd
    }

    /// Returns whether in the whole store nothing is due, runs or is to be tried again, and nothing
    /// that waits will be due because of something that has happened. What is paused, held or only
    /// delayed does not count, and neither does what waits for that.
    ///
    /// # Errors
    ///
    /// A shard could not be read.
    pub fn is_drained(&self) -> Result<bool> {
        // Cheap and local first: this is asked whenever a worker falls idle.
        if !self.crew.is_idle() || !self.stages.cache.is_empty() || self.completer.open() > 0 {
            return Ok(false);
        }
        let mut census = self.census()?;
        while census.busy == 0 && census.waiting > 0 {
            // Nothing goes on of which the rest could hear later: either it hears now, or never.
            self.courier.sweep()?;
            let before = std::mem::replace(&mut census, self.census()?);
            if census == before {
                break;
            }
        }
        Ok(census.busy == 0)
    }

    fn census(&self) -> Result<Census> {
        let mut census = Census::default();
        for shard in ShardId::first(self.with.store.shard_count()) {
            let counts = self.with.store.counts(shard)?;
            let of = |state| counts.states.get(&state).copied().unwrap_or(0);
            let may_start = of(StepState::Ready).saturating_sub(counts.paused);
            census.busy += may_start + of(StepState::Running) + counts.retrying;
            census.waiting += of(StepState::Blocked) + of(StepState::Limited);
        }
        Ok(census)
    }
}
