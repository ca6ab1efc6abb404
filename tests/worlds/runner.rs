//! One runner: the engine's own stages, and where each of its hands and cycles stands.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use fairq::ambient::Clock;
use fairq::completion::Repeat;
use fairq::crew::executor::{Executor, Force, Process, Seat};
use fairq::crew::{Crew, Hint};
use fairq::engine::{Manner, Rounds, With, Works};
use fairq::error::Result;
use fairq::event::{Event, Sink};
use fairq::model::{Claim, Ending, RunnerId, ShardId, Timestamp};
use fairq::planner::Plan;
use fairq::refiller::{Found, Refiller};
use fairq::store::Store;
use fairq::tally::ShardTally;

use super::fate::Fate;
use super::frail::{Frail, Life};
use super::spec::Spec;

/// How far a shard's turn has come.
#[derive(Debug)]
pub(crate) enum Phase {
    Asleep,
    Look,
    Plan(Arc<ShardTally>),
    Fetch(Plan),
    Push(Plan, Found),
    Closed,
}

/// One shard's refiller.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) refiller: Refiller,
    pub(crate) phase: Phase,
    /// Until when it sleeps.
    pub(crate) until: Duration,
    /// When it will be looked whether it wakes.
    pub(crate) tick: Option<u64>,
    /// The number of the event at which the look of this turn began, and that of the plan.
    pub(crate) looked: u64,
    pub(crate) planned: u64,
    /// When what stands on the board was seen, and when it was put there.
    pub(crate) reported: (u64, u64),
    /// When that was planned which was last pushed.
    pub(crate) pushed: Option<u64>,
}

/// What a worker does.
#[derive(Debug)]
pub(crate) enum Worker {
    Idle,
    Coming,
    Holding(Hint),
    Asked(Hint, Box<Result<Option<Claim>>>),
    Working(Box<Work>),
}

/// A step that a worker runs.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) claim: Claim,
    pub(crate) started: Timestamp,
    pub(crate) process: Arc<Proc>,
    /// How hard it was asked to end, as far as that has been seen to.
    pub(crate) seen: u8,
    pub(crate) ending: Ending,
    /// The number of the event by which it ends.
    pub(crate) serial: u64,
}

/// A process that there is not.
#[derive(Debug, Default)]
pub(crate) struct Proc {
    pub(crate) over: AtomicBool,
    /// 0: not; 1: asked; 2: killed.
    pub(crate) told: AtomicU8,
}

impl Process for Proc {
    fn end(&self, force: Force) -> bool {
        if self.over.load(Ordering::Relaxed) {
            return false;
        }
        let how = match force {
            Force::Ask => 1,
            Force::Kill => 2,
        };
        self.told.fetch_max(how, Ordering::Relaxed);
        true
    }

    fn signal(&self, _: i32) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    fn trim(&self) {}

    fn pid(&self) -> u32 {
        0
    }
}

/// Nobody is ever seated: the crew has no threads.
struct Nobody;

impl Executor for Nobody {
    fn seat(&self, _: u32) -> Box<dyn Seat> {
        unreachable!("a crew without threads seats nobody")
    }
}

/// Writes what the engine tells into the book.
struct Scribe(Arc<Fate>);

impl Sink for Scribe {
    fn emit(&self, _: Timestamp, event: &Event) {
        if let Event::Ended {
            id, fence, ending, ..
        } = event
        {
            self.0.lock().book.ends(*id, *fence, ending);
        }
        self.0.note(format_args!("{event}"));
    }
}

pub(crate) struct Runner {
    pub(crate) id: RunnerId,
    pub(crate) works: Works,
    pub(crate) frail: Arc<Frail>,
    pub(crate) life: Arc<Life>,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) workers: Vec<Worker>,
    /// What the courier remembers, once it has begun.
    pub(crate) rounds: Option<Rounds>,
    /// When the courier goes next, and not before when.
    pub(crate) courier: Option<u64>,
    pub(crate) rested: u64,
    pub(crate) alarm: Option<u64>,
    pub(crate) again: Option<u64>,
    /// Outcomes wait to be written again.
    pub(crate) keeps: Arc<AtomicBool>,
    pub(crate) renewed: Duration,
    pub(crate) asleep: bool,
    /// Since when it leaves.
    pub(crate) leaving: Option<u64>,
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Runner {
    /// Builds a runner as the engine does; it has not looked at anything yet.
    pub(crate) fn new(
        spec: &Spec,
        number: u64,
        store: Arc<dyn Store>,
        fate: &Arc<Fate>,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let id = RunnerId::new(i64::try_from(number).expect("small") + 1);
        let life = Arc::<Life>::default();
        let frail = Arc::new(Frail {
            store,
            fate: Arc::clone(fate),
            runner: id,
            life: Arc::clone(&life),
            breaks: spec.sqlite,
        });
        let workers = 1 + super::spec::index(fate.below(spec.most_workers));
        let manner = Manner {
            keep: None,
            workers,
            pick: spec.pick,
            seed: fate.below(u64::MAX),
            pace: spec.pace,
            lease: spec.lease,
        };
        let with = With {
            store: Arc::clone(&frail) as Arc<_>,
            executor: Arc::new(Nobody),
            runner: id,
            neighbours: None,
            clock: Arc::clone(clock),
            sink: Arc::new(Scribe(Arc::clone(fate))),
        };
        let keeps = Arc::<AtomicBool>::default();
        let keep = Arc::clone(&keeps);
        let repeat: Repeat = Box::new(move |_| {
            keep.store(true, Ordering::Relaxed);
            true
        });
        let works = Works::new(with, manner, repeat, Crew::by_hand);
        let now = fate.micros();
        Self {
            id,
            rounds: None,
            works,
            frail,
            life,
            lanes: Vec::new(),
            workers: (0..workers).map(|_| Worker::Idle).collect(),
            courier: None,
            rested: now,
            alarm: None,
            again: None,
            keeps,
            renewed: Duration::from_micros(now),
            asleep: false,
            leaving: None,
        }
    }

    /// Lets its refillers look for the first time, at the event of this number.
    pub(crate) fn introduce(&mut self, event: u64, now: Duration) {
        let lane = |refiller: Refiller| Lane {
            until: now + refiller.pause(),
            refiller,
            phase: Phase::Asleep,
            tick: None,
            looked: event,
            planned: event,
            reported: (event, event),
            pushed: None,
        };
        self.lanes = self.works.refillers().into_iter().map(lane).collect();
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.workers
            .iter()
            .all(|worker| matches!(worker, Worker::Idle))
    }

    /// Returns how many candidates a shard's partition holds.
    pub(crate) fn depth(&self, shard: ShardId) -> usize {
        let view = self.works.cache().snapshot();
        let mut partitions = view.partitions.iter();
        partitions
            .find(|one| one.shard == shard)
            .map_or(0, |one| one.depth)
    }
}
