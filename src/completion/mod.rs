//! What became of each step: from an ending to a recorded outcome.
//!
//! The crew hands over tries that are over and goes on with the next step; the verdict is written by
//! the shard's writer, grouped with whatever else waits there. A settlement that cannot be written is
//! kept and written again, growing slowly apart: the write is repeated, the work never.

pub mod verdict;

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::ambient::{Clock, SharedDice};
use crate::error::Result;
use crate::event::{Event, Sink};
use crate::model::{Finished, Policy, Recorded, Settled, Settlement, ShardId, StepId};
use crate::store::{AfterSettle, Settle};

/// Between the tries to write a settlement: the first, and the most.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Told of every outcome that is recorded, by the writer's thread: it must not block.
pub type OnSettled = Box<dyn Fn(StepId, Recorded) + Send + Sync>;

/// Told when no outcome is open any more, by the writer's thread: it must not block.
pub type OnQuiet = Box<dyn Fn() + Send + Sync>;

/// Sees to it that [`Completer::write_again`] is called until it returns `None`; `false` if it cannot.
pub type Repeat = Box<dyn Fn(Arc<Completer>) -> bool + Send + Sync>;

/// What a completer calls.
pub struct Calls {
    /// For each outcome that is recorded.
    pub on_settled: OnSettled,
    /// When none is open any more.
    pub on_quiet: OnQuiet,
    /// When something has to be written again, see [`in_a_thread`].
    pub repeat: Repeat,
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calls").finish_non_exhaustive()
    }
}

/// A settlement that waits to be written again.
#[derive(Debug)]
struct Kept {
    shard: ShardId,
    settlements: Arc<[Settlement]>,
    pause: Duration,
    /// On the monotonic clock.
    again_at: Duration,
}

#[derive(Debug, Default)]
struct State {
    /// Handed over and not yet recorded, those that are kept included.
    open: BTreeSet<(StepId, u32)>,
    kept: VecDeque<Kept>,
    /// Whether somebody sees to it that they are written again.
    writing_again: bool,
    closed: bool,
}

/// Writes outcomes. Shared by all workers.
pub struct Completer {
    settle: Arc<dyn Settle>,
    clock: Arc<dyn Clock>,
    sink: Arc<dyn Sink>,
    dice: SharedDice,
    calls: Calls,
    state: Mutex<State>,
    changed: Condvar,
    me: Weak<Self>,
}

impl std::fmt::Debug for Completer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Completer")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Completer {
    /// Returns a completer with nothing to do. The dice say how long a step waits that is tried again.
    pub fn new(
        settle: Arc<dyn Settle>,
        clock: Arc<dyn Clock>,
        sink: Arc<dyn Sink>,
        dice: SharedDice,
        calls: Calls,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            settle,
            clock,
            sink,
            dice,
            calls,
            state: Mutex::default(),
            changed: Condvar::new(),
            me: Weak::clone(me),
        })
    }

    /// Takes over a try that is over, of a step that is treated by this policy. Returns at once.
    pub fn accept(&self, finished: Finished, policy: &Policy) {
        let (shard, settlements) = self.judge(finished, policy);
        self.write(shard, settlements, FIRST_PAUSE);
    }

    /// As [`Self::accept`], by one who claims on the same shard at once or calls [`Self::hurry`]: the
    /// outcome may wait until then.
    pub fn accept_later(&self, finished: Finished, policy: &Policy) {
        let (shard, settlements) = self.judge(finished, policy);
        let told = Arc::clone(&settlements);
        if let Some(after) = self.after(shard, told, FIRST_PAUSE) {
            self.settle.settle_later(shard, settlements, after);
        }
    }

    fn judge(&self, finished: Finished, policy: &Policy) -> (ShardId, Arc<[Settlement]>) {
        let chance = if policy.retries > 0 {
            self.dice.unit()
        } else {
            0.0
        };
        let Finished {
            ending, attempt, ..
        } = &finished;
        let verdict = verdict::verdict(ending, policy, *attempt, self.clock.now(), chance);
        let shard = finished.id.shard;
        self.lock().open.insert((finished.id, finished.fence));
        (shard, Arc::new([Settlement { finished, verdict }]))
    }

    /// Has the outcomes written now that wait for the next write to this shard.
    pub fn hurry(&self, shard: ShardId) {
        self.settle.hurry(shard);
    }

    /// Returns how many outcomes are not recorded yet.
    pub fn open(&self) -> usize {
        self.lock().open.len()
    }

    /// Returns whether the outcome of this claim is handed over and not recorded yet.
    pub fn knows(&self, id: StepId, fence: u32) -> bool {
        self.lock().open.contains(&(id, fence))
    }

    /// Waits until every outcome is recorded, or `limit` is over; `true` if none is open any more.
    pub fn flush(&self, limit: Duration) -> bool {
        let until = self.clock.monotonic() + limit;
        let mut state = self.lock();
        while !state.open.is_empty() {
            let left = until.saturating_sub(self.clock.monotonic());
            if left.is_zero() {
                return false;
            }
            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        true
    }

    /// Ends the thread that writes again, if there is one. What it keeps is given up: its steps come
    /// back as those of a dead runner.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn write(&self, shard: ShardId, settlements: Arc<[Settlement]>, pause: Duration) {
        let told = Arc::clone(&settlements);
        if let Some(after) = self.after(shard, told, pause) {
            self.settle.settle(shard, settlements, after);
        }
    }

    /// Returns what is done once they are written, or could not be. `None` if nobody is left to do it.
    fn after(
        &self,
        shard: ShardId,
        settlements: Arc<[Settlement]>,
        pause: Duration,
    ) -> Option<AfterSettle> {
        let me = self.me.upgrade()?;
        Some(Box::new(move |outcome| {
            me.written(shard, settlements, pause, outcome);
        }))
    }

    fn written(
        self: &Arc<Self>,
        shard: ShardId,
        settlements: Arc<[Settlement]>,
        pause: Duration,
        outcome: Result<Vec<Settled>>,
    ) {
        match outcome {
            Ok(settled) => {
                for (settlement, settled) in settlements.iter().zip(settled) {
                    self.tell(settlement, settled);
                }
                // Only now: whoever is told sooner, and asks, still finds them open.
                let open = {
                    let mut state = self.lock();
                    for Settlement { finished, .. } in settlements.iter() {
                        state.open.remove(&(finished.id, finished.fence));
                    }
                    state.open.len()
                };
                // Those who wait, wait for the last one.
                if open == 0 {
                    self.changed.notify_all();
                    (self.calls.on_quiet)();
                }
            }
            Err(error) => {
                self.sink.emit(
                    self.clock.now(),
                    &Event::SettleDelayed {
                        shard,
                        outcomes: settlements.len(),
                        error: error.to_string(),
                    },
                );
                self.keep(Kept {
                    shard,
                    settlements,
                    pause: (pause * 2).min(LONGEST_PAUSE),
                    again_at: self.clock.monotonic() + pause,
                });
            }
        }
    }

    fn tell(&self, settlement: &Settlement, settled: Settled) {
        let id = settlement.finished.id;
        let event = match settled {
            Settled::Fenced => Event::Fenced { id },
            Settled::Recorded(recorded) => {
                let state = recorded.state;
                (self.calls.on_settled)(id, recorded);
                Event::Settled { id, state }
            }
        };
        self.sink.emit(self.clock.now(), &event);
    }

    fn keep(self: &Arc<Self>, kept: Kept) {
        let mut state = self.lock();
        state.kept.push_back(kept);
        if !state.writing_again {
            // If nobody does, it stays kept, and the next that fails asks again.
            state.writing_again = (self.calls.repeat)(Arc::clone(self));
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Writes those kept settlements again whose time has come, and returns when the next one's does,
    /// on the monotonic clock; `None` if none is left, or all are given up. Waits for nothing.
    pub fn write_again(&self) -> Option<Duration> {
        self.write_due(self.lock()).1
    }

    /// Writes kept settlements again when their time has come, until none is left.
    fn serve(&self) {
        let mut state = self.lock();
        loop {
            let (held, next) = self.write_due(state);
            let Some(at) = next else { return };
            state = self
                .changed
                .wait_timeout(held, at.saturating_sub(self.clock.monotonic()))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Does what [`Self::write_again`] says. The lock is held when it returns: what is kept from then
    /// on tells whoever waits.
    fn write_due<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
    ) -> (MutexGuard<'s, State>, Option<Duration>) {
        loop {
            let next = state
                .kept
                .iter()
                .enumerate()
                .min_by_key(|(_, kept)| kept.again_at)
                .map(|(at, kept)| (at, kept.again_at));
            let Some((at, again_at)) = next.filter(|_| !state.closed) else {
                state.writing_again = false;
                return (state, None);
            };
            if again_at > self.clock.monotonic() {
                return (state, Some(again_at));
            }
            if let Some(kept) = state.kept.remove(at) {
                drop(state);
                self.write(kept.shard, kept.settlements, kept.pause);
                state = self.lock();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes again in a thread of its own, which is there only while there is something to write.
pub fn in_a_thread() -> Repeat {
    Box::new(|completer| {
        std::thread::Builder::new()
            .name("settle-again".to_owned())
            .spawn(move || completer.serve())
            .is_ok()
    })
}
