//! Lets steps go that wait for others: what one shard has to tell another, places of limits, and
//! wishes that running steps end.
//!
//! Many ask for it (an outcome that was recorded, a doorbell, the time of a delayed step); one thread
//! does it, each thing once however often it was asked for. It also looks by itself now and then, but
//! only at what has changed: an idle store costs it one small read a shard and heartbeat.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::foreman::Boss;
use crate::ambient::Clock;
use crate::completion::Completer;
use crate::crew::Crew;
use crate::error::Result;
use crate::model::{Captured, Ending, Finished, RunnerId, ShardId, StepId};
use crate::refiller::Pace;
use crate::store::Store;

/// What there is to do.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// Which shards may have something to tell others.
    deliver: BTreeSet<ShardId>,
    /// On which shards somebody may wish that a step ends.
    look: BTreeSet<ShardId>,
    /// Whether places of limits may have become free, or steps may wait for some.
    grant: bool,
    /// Of which steps it is not known whether they were granted to this runner.
    doubts: BTreeSet<StepId>,
}

impl Wanted {
    fn is_empty(&self) -> bool {
        self.deliver.is_empty() && self.look.is_empty() && !self.grant && self.doubts.is_empty()
    }
}

#[derive(Debug, Default)]
struct State {
    wanted: Wanted,
    closed: bool,
}

/// Takes errands from any thread, and never blocks.
#[derive(Debug, Default)]
pub(super) struct Errands {
    state: Mutex<State>,
    changed: Condvar,
}

impl Errands {
    /// Takes note that something ended on a shard which others have yet to be told.
    pub(super) fn ended(&self, shard: ShardId) {
        self.want(|wanted| {
            wanted.deliver.insert(shard);
            wanted.grant = true;
        });
    }

    /// Takes note that another process has written to a shard.
    pub(super) fn rang(&self, shard: ShardId) {
        self.want(|wanted| {
            wanted.look.insert(shard);
            wanted.deliver.insert(shard);
            wanted.grant = true;
        });
    }

    /// Takes note that the time of delayed steps has come.
    pub(super) fn promoted(&self) {
        self.want(|wanted| wanted.grant = true);
    }

    /// Takes note that a step may have been granted to this runner, unheard.
    pub(super) fn doubt(&self, id: StepId) {
        self.want(|wanted| {
            wanted.doubts.insert(id);
        });
    }

    /// Lets the courier go, once it has done what is wanted until now.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn want(&self, add: impl FnOnce(&mut Wanted)) {
        add(&mut self.lock().wanted);
        self.changed.notify_all();
    }

    /// Returns whether anything is wanted.
    pub(super) fn is_wanted(&self) -> bool {
        !self.lock().wanted.is_empty()
    }

    /// Takes what is wanted without waiting for it.
    pub(super) fn take(&self) -> Wanted {
        std::mem::take(&mut self.lock().wanted)
    }

    /// Waits for an errand, at most for `most`; `None` if there will be no more.
    fn next(&self, most: Duration) -> Option<Wanted> {
        let idle = |state: &mut State| state.wanted.is_empty() && !state.closed;
        let mut state = self
            .changed
            .wait_timeout_while(self.lock(), most, idle)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
        let wanted = std::mem::take(&mut state.wanted);
        (!wanted.is_empty() || !state.closed).then_some(wanted)
    }

    /// Waits for `pause`, whatever is wanted meanwhile; not at all if there will be no more.
    fn rest(&self, pause: Duration) {
        let state = self.lock();
        drop(
            self.changed
                .wait_timeout_while(state, pause, |state| !state.closed),
        );
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a courier remembers from round to round.
#[derive(Debug)]
pub struct Rounds {
    /// The versions of the shards when they were last looked at.
    seen: BTreeMap<ShardId, u64>,
    /// When it last looked by itself, on the monotonic clock.
    looked: Duration,
    /// Of which steps it is not known whether they were granted to this runner.
    doubts: BTreeSet<StepId>,
}

/// Runs the errands of one runner.
pub(super) struct Courier {
    pub(super) store: Arc<dyn Store>,
    pub(super) runner: RunnerId,
    pub(super) crew: Arc<Crew>,
    pub(super) boss: Arc<Boss>,
    pub(super) completer: Arc<Completer>,
    pub(super) clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Courier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Courier")
            .field("runner", &self.runner)
            .finish_non_exhaustive()
    }
}

impl Courier {
    /// Runs errands until there will be no more; whatever a crash has left undone first. What a shard
    /// that fails has to tell is told when it can be read again.
    pub(super) fn serve(&self, errands: &Errands, pace: Pace) {
        let mut rounds = self.begin();
        loop {
            let Some(wanted) = errands.next(self.left(&rounds, pace)) else {
                return;
            };
            self.turn(wanted, &mut rounds, pace);
            errands.rest(pace.min_gap);
        }
    }

    /// Does what a crash has left undone.
    pub(super) fn begin(&self) -> Rounds {
        self.boss
            .offer(&self.store.mend(self.clock.now()).unwrap_or_default());
        drop(self.sweep());
        Rounds {
            seen: BTreeMap::new(),
            looked: self.clock.monotonic(),
            doubts: BTreeSet::new(),
        }
    }

    /// Returns how long it is until the courier looks by itself.
    pub(super) fn left(&self, rounds: &Rounds, pace: Pace) -> Duration {
        let since = self.clock.monotonic().saturating_sub(rounds.looked);
        pace.heartbeat.saturating_sub(since)
    }

    /// Does what is wanted, and looks at what has changed if it is time.
    pub(super) fn turn(&self, mut wanted: Wanted, rounds: &mut Rounds, pace: Pace) {
        rounds.doubts.append(&mut wanted.doubts);
        if self.left(rounds, pace).is_zero() {
            rounds.looked = self.clock.monotonic();
            self.look_round(&mut wanted, &mut rounds.seen);
            rounds.doubts.retain(|id| !self.disown(*id));
        }
        for shard in &wanted.look {
            self.look(*shard);
        }
        for shard in self.round(&wanted) {
            // To be looked at again, whether or not it changes.
            rounds.seen.remove(&shard);
        }
    }

    /// Tells all that shards have to tell each other, and grants all places that are free. Returns
    /// once that is done.
    ///
    /// # Errors
    ///
    /// A shard could not be read or written.
    pub(super) fn sweep(&self) -> Result<()> {
        for shard in self.shards() {
            self.boss
                .offer(&self.store.deliver(shard, self.clock.now())?);
        }
        self.boss.offer(&self.store.grant(self.clock.now())?);
        Ok(())
    }

    /// Adds what has changed since it was last looked at.
    fn look_round(&self, wanted: &mut Wanted, seen: &mut BTreeMap<ShardId, u64>) {
        wanted.look.extend(self.crew.shards());
        for shard in self.shards() {
            // One that cannot be read tells nothing now.
            let Ok(version) = self.store.version(shard) else {
                continue;
            };
            if seen.insert(shard, version) != Some(version) {
                wanted.deliver.insert(shard);
                wanted.grant = true;
            }
        }
    }

    /// Puts a step back that was granted to this runner without its hearing of it: nobody would ever
    /// run it, for its runner lives. Returns whether that is settled.
    fn disown(&self, id: StepId) -> bool {
        let Ok(step) = self.store.get(id) else {
            return false;
        };
        let Some(step) = step.filter(|step| step.runner == Some(self.runner)) else {
            return true;
        };
        // In the order in which a claim passes from one to the next: so it is missed by none.
        if self.crew.knows(id, step.fence) || self.completer.knows(id, step.fence) {
            return false;
        }
        let never_ran = Finished {
            id,
            runner: self.runner,
            fence: step.fence,
            attempt: step.attempt,
            ending: Ending::Interrupted,
            started: None,
            ended: self.clock.now(),
            worker: 0,
            stdout: Captured::Empty,
            stderr: Captured::Empty,
        };
        self.completer.accept(never_ran, &step.policy);
        true
    }

    /// Ends those of our running steps on a shard whose end somebody wishes.
    fn look(&self, shard: ShardId) {
        if let Ok(wishes) = self.store.wishes(shard, self.runner) {
            self.crew.wish(shard, wishes);
        }
    }

    /// Delivers and grants. Returns the shards that failed.
    fn round(&self, wanted: &Wanted) -> Vec<ShardId> {
        let mut failed = Vec::new();
        for shard in &wanted.deliver {
            match self.store.deliver(*shard, self.clock.now()) {
                Ok(released) => self.boss.offer(&released),
                Err(_) => failed.push(*shard),
            }
        }
        if wanted.grant {
            match self.store.grant(self.clock.now()) {
                Ok(released) => self.boss.offer(&released),
                Err(_) => failed.extend(self.shards()),
            }
        }
        failed
    }

    fn shards(&self) -> impl Iterator<Item = ShardId> + use<> {
        ShardId::first(self.store.shard_count())
    }
}
