//! Running the commands: workers that take hints, claim them, run them and report how they ended.
//!
//! Always in this order: wait for work holding nothing, take a permit, take a hint without blocking,
//! claim, run, report. A worker that took its hint before its permit would hold back a hint that a
//! free one could run; one that took its permit before it waited would hold back the permit.

pub mod capture;
pub mod child;
pub mod executor;
mod hand;
pub mod journal;
pub mod launch;
pub mod leftovers;
mod limit;
pub mod nursery;
pub mod orphans;
pub mod permit;
pub mod process;
mod program;
mod refusal;
mod roster;
pub mod shell;
mod timer;
mod worker;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;

use self::executor::{Executor, Force};
use self::permit::Gate;
use self::roster::{Deed, Done, Roster};
use self::timer::Timer;
use crate::ambient::Clock;
use crate::cache::CandidateCache;
use crate::event::{Event, Sink};
use crate::model::{Candidate, Claim, Finished, LocalId, Policy, RunnerId, ShardId, Span, StepId};
use crate::store::Claims;

pub use hand::Hint;
pub use roster::RunningStep;

/// What the crew tells those who supply it and those who record.
pub trait Foreman: Send + Sync {
    /// A hint was taken; `low` if its shard's partition is at its low water.
    fn took(&self, candidate: &Candidate, low: bool);

    /// A claim on this shard was decided, won or lost, and its hint is released.
    fn decided(&self, shard: ShardId);

    /// A claim was granted.
    fn claimed(&self, claim: &Claim);

    /// It is not known whether a step was granted. Its shard could not be written: whatever is claimed
    /// there now will fail too.
    fn cannot_claim(&self, id: StepId, error: &crate::error::Error);

    /// A try is over, of a step that is treated by this policy. Its outcome may wait for the worker's
    /// next claim.
    fn finished(&self, finished: Finished, policy: &Policy);

    /// There may be no next claim on this shard: no outcome shall wait for it.
    fn hurry(&self, shard: ShardId);

    /// A worker has nothing to do any more, or has left.
    fn idle(&self);
}

/// What a crew works with.
#[derive(Clone)]
pub struct Parts {
    /// Who it works for.
    pub runner: RunnerId,
    /// Where hints come from.
    pub cache: Arc<CandidateCache>,
    /// Who grants steps.
    pub claims: Arc<dyn Claims>,
    /// What runs them.
    pub executor: Arc<dyn Executor>,
    /// Who is told.
    pub foreman: Arc<dyn Foreman>,
    /// How long a claim stands where the runner's lock cannot be asked.
    pub lease: Span,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Where events go.
    pub sink: Arc<dyn Sink>,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts")
            .field("runner", &self.runner)
            .finish_non_exhaustive()
    }
}

/// Who is there.
#[derive(Debug, Default)]
struct Hands {
    /// How many there shall be at most.
    target: usize,
    /// How many there are.
    resident: usize,
    /// How many hold no hint: asleep, at the gate, or not yet running.
    idle: usize,
    /// The number of the next one.
    next: u32,
    /// Nobody is hired any more.
    draining: bool,
    /// How many wait for what a step needs to be started: processes, descriptors, memory.
    short: usize,
    /// Until when nobody is hired, on the monotonic clock: something was short lately.
    short_until: Duration,
    /// Nobody is ever hired: whoever made the crew does its work.
    by_hand: bool,
    threads: Vec<JoinHandle<()>>,
}

/// How long nobody is hired after a step could not be started: each thread takes of what was short.
const SHORT: Duration = Duration::from_secs(2);

/// How often what happened.
#[derive(Debug, Default)]
struct Counts {
    won: AtomicU64,
    lost: AtomicU64,
    failed: AtomicU64,
    panics: AtomicU64,
}

/// What a crew is doing.
#[derive(Clone, Debug, Serialize)]
pub struct CrewView {
    /// How many steps may run at once.
    pub workers: usize,
    /// How many threads there are.
    pub resident: usize,
    /// How many of them have nothing to do.
    pub idle: usize,
    /// Whether it takes no new work any more.
    pub draining: bool,
    /// How many claims were granted.
    pub claims_won: u64,
    /// How many hints somebody else had claimed first.
    pub claims_lost: u64,
    /// How many claims could not be decided.
    pub claims_failed: u64,
    /// How many steps run.
    pub running: Vec<RunningStep>,
}

struct Shared {
    parts: Parts,
    gate: Gate,
    roster: Roster,
    timer: Timer,
    hands: Mutex<Hands>,
    left: Condvar,
    counts: Counts,
}

/// The workers of one runner.
pub struct Crew {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Crew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Crew")
            .field("runner", &self.shared.parts.runner)
            .finish_non_exhaustive()
    }
}

impl Crew {
    /// Returns a crew that nobody is of yet, up to `workers`.
    pub fn new(parts: Parts, workers: usize) -> Self {
        let hands = Hands {
            target: workers,
            ..Hands::default()
        };
        Self::with(parts, hands)
    }

    /// Returns a crew without threads: its `workers` take, claim and report as its maker lets them.
    pub fn by_hand(parts: Parts, workers: usize) -> Self {
        let hands = Hands {
            target: workers,
            resident: workers,
            idle: workers,
            by_hand: true,
            ..Hands::default()
        };
        Self::with(parts, hands)
    }

    fn with(parts: Parts, hands: Hands) -> Self {
        Self {
            shared: Arc::new(Shared {
                parts,
                gate: Gate::new(hands.target),
                roster: Roster::default(),
                timer: Timer::default(),
                hands: Mutex::new(hands),
                left: Condvar::new(),
                counts: Counts::default(),
            }),
        }
    }

    /// Hires the first; more are hired as there is work.
    pub fn start(&self) {
        self.shared.hire();
    }

    /// Changes how many steps run at once, the cache with it. Running steps go on.
    pub fn resize(&self, workers: usize) {
        let mut hands = self.shared.hands();
        let surplus = hands.resident.saturating_sub(workers);
        let asked_before = hands.resident.saturating_sub(hands.target);
        hands.target = workers;
        drop(hands);
        self.shared.gate.resize(workers);
        self.shared.parts.cache.resize(workers);
        if surplus > asked_before {
            self.shared.parts.cache.retire(surplus - asked_before);
        } else {
            self.shared.parts.cache.recall(asked_before - surplus);
        }
        self.shared.hire_if_busy();
    }

    /// Takes no new work from now on; running steps go on.
    pub fn drain(&self) {
        self.shared.hands().draining = true;
        self.shared.parts.cache.close();
        self.shared.gate.close();
    }

    /// Ends all running steps, to be put back; what was asked to end is killed after its own grace.
    /// Only after [`Self::drain`]. Returns how many were signalled.
    pub fn end_steps(&self, force: Force) -> usize {
        let now = self.shared.parts.clock.monotonic();
        let done = self.shared.roster.end_all(force, now);
        self.shared.did(&done);
        done.len()
    }

    /// Ends those claims of a shard whose end somebody wishes; all of them must be named, each time.
    /// A step of theirs that has no process yet is not started. Returns how many were asked to end,
    /// each once.
    pub fn wish(&self, shard: ShardId, wishes: Vec<(LocalId, u32)>) -> usize {
        let now = self.shared.parts.clock.monotonic();
        let done = self.shared.roster.wish(shard, wishes, now);
        self.shared.did(&done);
        done.len()
    }

    /// Sends a signal, by its number, to the process groups of these claims. Returns the
    /// steps that got it.
    pub fn signal(&self, claims: &[(StepId, u32)], number: i32) -> Vec<StepId> {
        self.shared.roster.signal(claims, number)
    }

    /// Returns whether a worker runs a step under this claim, or may hear any moment that it shall.
    pub fn knows(&self, id: StepId, fence: u32) -> bool {
        self.shared.roster.knows(id, fence)
    }

    /// Returns the shards of the steps that run.
    pub fn shards(&self) -> BTreeSet<ShardId> {
        self.shared.roster.shards()
    }

    /// Waits until all workers have left, at most for `limit`; `true` if they have.
    pub fn wait(&self, limit: Duration) -> bool {
        let clock = &self.shared.parts.clock;
        let until = clock.monotonic() + limit;
        let mut hands = self.shared.hands();
        while hands.resident > 0 {
            let left = until.saturating_sub(clock.monotonic());
            if left.is_zero() {
                return false;
            }
            hands = self
                .shared
                .left
                .wait_timeout(hands, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        let threads = std::mem::take(&mut hands.threads);
        drop(hands);
        timer::join(&self.shared);
        for thread in threads {
            // A worker catches the panics of its steps; one of its own has been printed already.
            drop(thread.join());
        }
        true
    }

    /// Returns how many steps run.
    pub fn running(&self) -> usize {
        self.shared.roster.len()
    }

    /// Returns whether nobody holds a hint or a step.
    pub fn is_idle(&self) -> bool {
        let hands = self.shared.hands();
        hands.idle >= hands.resident
    }

    /// Returns what it is doing.
    pub fn view(&self) -> CrewView {
        let running = self.shared.roster.view();
        let counts = &self.shared.counts;
        let hands = self.shared.hands();
        CrewView {
            workers: hands.target,
            resident: hands.resident,
            idle: hands.idle,
            draining: hands.draining,
            claims_won: counts.won.load(Ordering::Relaxed),
            claims_lost: counts.lost.load(Ordering::Relaxed),
            claims_failed: counts.failed.load(Ordering::Relaxed),
            running,
        }
    }
}

/// A worker waits for what is short.
struct Short<'s>(&'s Shared);

impl Drop for Short<'_> {
    fn drop(&mut self) {
        self.0.hands().short -= 1;
    }
}

impl Shared {
    fn hands(&self) -> MutexGuard<'_, Hands> {
        self.hands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what was done to running steps, and sees to what follows from it.
    fn did(self: &Arc<Self>, done: &[Done]) {
        self.say(done);
        // One that has no process yet may wait for what it needs.
        self.left.notify_all();
        if self.roster.next_alarm().is_some() {
            timer::tell(self);
        }
    }

    fn say(&self, done: &[Done]) {
        for (id, fence, deed) in done.iter().copied() {
            let event = match deed {
                Deed::Asked(why) => Event::Asked { id, fence, why },
                Deed::Killed => Event::Killed { id, fence },
            };
            self.parts.sink.emit(self.parts.clock.now(), &event);
        }
    }

    /// Hires one more if nobody is idle: one always waits, so that work never does. Called after
    /// each take; a chain of takes grows the crew one by one.
    fn hire_if_busy(self: &Arc<Self>) {
        let busy = {
            let hands = self.hands();
            hands.idle == 0
                && hands.resident < hands.target
                && !hands.draining
                && hands.short_until <= self.parts.clock.monotonic()
        };
        if busy {
            self.hire();
        }
    }

    /// Lets a worker wait for what its step could not be started for the want of, as long as it keeps
    /// the answer. One is enough: the others give way, for the threads that wait take the very
    /// processes and memory for which they wait, and might do so for ever.
    fn wait_for_what_is_short(&self) -> Option<Short<'_>> {
        let mut hands = self.hands();
        hands.short_until = self.parts.clock.monotonic() + SHORT;
        // Those who were told to leave already are counted on.
        if hands.short > 0 && hands.resident <= hands.target {
            return None;
        }
        hands.short += 1;
        Some(Short(self))
    }

    fn hire(self: &Arc<Self>) {
        let mut hands = self.hands();
        // Decided and registered under one lock: a thread that starts while the crew is being
        // waited for would be missed.
        if hands.draining || hands.by_hand || hands.resident >= hands.target.max(1) {
            return;
        }
        let worker = hands.next;
        let shared = Arc::clone(self);
        let hired = std::thread::Builder::new()
            .name(format!("worker-{worker}"))
            .spawn(move || worker::work(&shared, worker));
        // Without a thread the others go on; the next take tries again.
        if let Ok(thread) = hired {
            hands.next += 1;
            hands.resident += 1;
            hands.idle += 1;
            hands.threads.retain(|thread| !thread.is_finished());
            hands.threads.push(thread);
        }
    }
}
