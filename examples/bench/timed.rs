//! Where a step's time goes: a store, an executor and a sink that tell how long each stage took.
//!
//! Nothing of this is in the program. Stages that are calls are timed as calls; those between two
//! calls of one thread are timed as what lies between them: from what was reported to the fetch is
//! the plan, from the fetch to the event is the refill, from one step to the next claim is the take,
//! sleep included.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairq::ambient::Clock;
use fairq::crew::executor::{Executor, Process, Ran, Seat};
use fairq::error::Result;
use fairq::event::{Event, Sink};
use fairq::model::{
    Band, Candidate, Claim, Found, LocalId, LostRun, Released, RunnerId, Settlement, ShardId,
    Timestamp,
};
use fairq::store::{AfterSettle, Claims, Known, Lease, Look, Release, Settle, Store, Supply, Want};
use fairq::tally::ShardTally;

/// One part of a step's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Look,
    Plan,
    Fetch,
    Refill,
    Take,
    Claim,
    Enter,
    Spawn,
    Wait,
    Report,
    Settle,
}

impl Stage {
    pub(crate) const ALL: [Self; 11] = [
        Self::Look,
        Self::Plan,
        Self::Fetch,
        Self::Refill,
        Self::Take,
        Self::Claim,
        Self::Enter,
        Self::Spawn,
        Self::Wait,
        Self::Report,
        Self::Settle,
    ];

    /// Returns its name and what it is.
    pub(crate) const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Look => ("look", "refiller: is there anything new, and what is due?"),
            Self::Plan => ("plan", "refiller: whose turn is it?"),
            Self::Fetch => ("fetch", "refiller: which steps are these?"),
            Self::Refill => ("refill", "refiller: hints into the cache"),
            Self::Take => (
                "take",
                "worker: sleep until there is a hint, permit, take it",
            ),
            Self::Claim => (
                "claim",
                "worker: until the commit, its own or that of the shard's thread",
            ),
            Self::Enter => ("enter", "worker: tell of the claim, enter the roster"),
            Self::Spawn => ("spawn", "worker: start the process"),
            Self::Wait => ("wait", "worker: until it has ended and its output is read"),
            Self::Report => ("report", "worker: tell of the end, judge it"),
            Self::Settle => (
                "settle",
                "nobody waits: from the verdict to the end of its commit",
            ),
        }
    }
}

/// How often each stage was passed, and how long that took in all.
#[derive(Debug)]
pub(crate) struct Stages {
    clock: Arc<dyn Clock>,
    sums: [(AtomicU64, AtomicU64); Stage::ALL.len()],
}

thread_local! {
    /// When this thread ended its last stage.
    static MARK: Cell<Option<Duration>> = const { Cell::new(None) };
}

impl Stages {
    pub(crate) fn new(clock: &Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            clock: Arc::clone(clock),
            sums: Default::default(),
        })
    }

    /// Returns how often a stage was passed, and how long it took in all.
    pub(crate) fn of(&self, stage: Stage) -> (u64, Duration) {
        let (count, nanos) = &self.sums[stage as usize];
        let nanos = Duration::from_nanos(nanos.load(Ordering::Relaxed));
        (count.load(Ordering::Relaxed), nanos)
    }

    fn add(&self, stage: Stage, took: Duration) {
        let (count, nanos) = &self.sums[stage as usize];
        count.fetch_add(1, Ordering::Relaxed);
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        nanos.fetch_add(took, Ordering::Relaxed);
    }

    /// Begins to time this thread: what it did before is nobody's.
    fn begin(&self) {
        MARK.set(Some(self.clock.monotonic()));
    }

    /// Ends a stage that began where the thread's last one ended.
    fn lap(&self, stage: Stage) {
        let now = self.clock.monotonic();
        if let Some(before) = MARK.replace(Some(now)) {
            self.add(stage, now.saturating_sub(before));
        }
    }
}

/// A sink that hears when a refill is done.
#[derive(Debug)]
pub(crate) struct TimedSink(pub(crate) Arc<Stages>);

impl Sink for TimedSink {
    fn emit(&self, _: Timestamp, event: &Event) {
        if matches!(event, Event::Refilled { .. }) {
            self.0.lap(Stage::Refill);
        }
    }
}

/// An executor whose steps are timed.
pub(crate) struct TimedExecutor {
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) stages: Arc<Stages>,
}

struct TimedSeat {
    seat: Box<dyn Seat>,
    stages: Arc<Stages>,
}

impl Executor for TimedExecutor {
    fn seat(&self, worker: u32) -> Box<dyn Seat> {
        Box::new(TimedSeat {
            seat: self.executor.seat(worker),
            stages: Arc::clone(&self.stages),
        })
    }
}

impl Seat for TimedSeat {
    fn run(&mut self, claim: &Claim, started: &mut dyn FnMut(Arc<dyn Process>)) -> Ran {
        let stages = &self.stages;
        stages.lap(Stage::Enter);
        let ran = self.seat.run(claim, &mut |process| {
            stages.lap(Stage::Spawn);
            started(process);
        });
        stages.lap(Stage::Wait);
        ran
    }
}

/// A store whose hot calls are timed; the others are passed on.
pub(crate) struct Timed {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) stages: Arc<Stages>,
}

impl Timed {
    fn time<T>(&self, stage: Stage, call: impl FnOnce(&dyn Store) -> T) -> T {
        let value = call(&*self.store);
        self.stages.lap(stage);
        value
    }
}

impl Supply for Timed {
    fn promote(&self, shard: ShardId, now: Timestamp) -> Result<Option<Timestamp>> {
        self.store.promote(shard, now)
    }

    fn version(&self, shard: ShardId) -> Result<u64> {
        self.store.version(shard)
    }

    fn tally(&self, shard: ShardId) -> Result<ShardTally> {
        self.store.tally(shard)
    }

    fn look(&self, shard: ShardId, known: Option<Known>, now: Timestamp) -> Result<Option<Look>> {
        self.stages.begin();
        self.time(Stage::Look, |store| store.look(shard, known, now))
    }

    fn fetch(&self, shard: ShardId, band: Band, wants: &[Want]) -> Result<Vec<Vec<LocalId>>> {
        self.stages.lap(Stage::Plan);
        self.time(Stage::Fetch, |store| store.fetch(shard, band, wants))
    }
}

impl Claims for Timed {
    fn claim(
        &self,
        shard: ShardId,
        candidates: &[Candidate],
        lease: Lease,
        now: Timestamp,
    ) -> Result<Vec<Option<Claim>>> {
        self.stages.lap(Stage::Take);
        self.time(Stage::Claim, |store| {
            store.claim(shard, candidates, lease, now)
        })
    }

    fn renew(&self, shard: ShardId, lease: Lease) -> Result<()> {
        self.store.renew(shard, lease)
    }

    fn holders(&self, shard: ShardId) -> Result<Vec<Lease>> {
        self.store.holders(shard)
    }

    fn reclaim(&self, shard: ShardId, dead: RunnerId, now: Timestamp) -> Result<Vec<LostRun>> {
        self.store.reclaim(shard, dead, now)
    }

    fn keep(&self, dead: RunnerId, found: Found) -> Result<()> {
        self.store.keep(dead, found)
    }

    fn wishes(&self, shard: ShardId, runner: RunnerId) -> Result<Vec<(LocalId, u32)>> {
        self.store.wishes(shard, runner)
    }
}

impl Settle for Timed {
    fn settle(&self, shard: ShardId, settlements: Arc<[Settlement]>, after: AfterSettle) {
        self.store.settle(shard, settlements, self.settled(after));
    }

    fn settle_later(&self, shard: ShardId, settlements: Arc<[Settlement]>, after: AfterSettle) {
        self.store
            .settle_later(shard, settlements, self.settled(after));
    }

    fn hurry(&self, shard: ShardId) {
        self.store.hurry(shard);
    }
}

impl Timed {
    fn settled(&self, after: AfterSettle) -> AfterSettle {
        self.stages.lap(Stage::Report);
        let stages = Arc::clone(&self.stages);
        let began = stages.clock.monotonic();
        Box::new(move |settled| {
            stages.add(Stage::Settle, stages.clock.monotonic() - began);
            after(settled);
        })
    }
}

impl Release for Timed {
    fn deliver(&self, from: ShardId, now: Timestamp) -> Result<Vec<Released>> {
        self.store.deliver(from, now)
    }

    fn grant(&self, now: Timestamp) -> Result<Vec<Released>> {
        self.store.grant(now)
    }

    fn mend(&self, now: Timestamp) -> Result<Vec<Released>> {
        self.store.mend(now)
    }
}

fairq::forward!(Intake, Read, Steer, Store for Timed);
