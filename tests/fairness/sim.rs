//! A crew, its refillers and the steps that come, in virtual time, on one thread.
//!
//! Planner, cache, refillers and store are the real ones. The four phases of a refiller's cycle are
//! events of their own: between them workers take, claim and end steps, steps come, and other shards
//! go through their cycles, whatever the seed lets be next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fairq::ambient::{Clock, Dice, ManualClock};
use fairq::cache::CandidateCache;
use fairq::event::NoSink;
use fairq::model::{
    Band, Candidate, Command, Due, Environment, NewStep, Policy, RunnerId, ShardId, StepId,
    Timestamp,
};
use fairq::planner::{Plan, Planner};
use fairq::refiller::{Found, Pace, Progress, Refiller, Shared, StatusBoard, Woken};
use fairq::store::memory::MemoryStore;
use fairq::store::{Claims as _, Intake as _, Lease};
use fairq::tally::ShardTally;

use super::ledger::Ledger;
use super::spec::{Source, Spec, Supply};

/// Something that will happen.
#[derive(Debug)]
enum Next {
    /// A shard's refiller goes on with its cycle.
    Cycle(ShardId),
    /// A shard's bell rings: there is new work.
    Ring(ShardId),
    /// A shard's bell rings for nothing, as it does now and then, or by its heartbeat.
    Beat(ShardId),
    /// A worker looks for work.
    Look,
    /// A worker reaches for the shard that it was told.
    Reach(ShardId),
    /// A worker claims what it took.
    Claim(Candidate),
    /// A source has new steps.
    Come(usize),
}

impl Next {
    const fn may_turn(&self) -> bool {
        matches!(self, Self::Claim(_) | Self::Ring(_))
    }
}

/// How far a shard's cycle has come.
#[derive(Debug)]
enum Phase {
    Asleep,
    Look,
    Plan(Arc<ShardTally>),
    Fetch(Plan),
    Push(Plan, Found),
}

/// One shard's refiller.
#[derive(Debug)]
struct Lane {
    refiller: Refiller,
    phase: Phase,
    /// The band that was best when the cycle began.
    begun: Option<Band>,
}

/// When, and to keep the order of what is at once: the number of its scheduling.
type At = (u64, u64);

/// A running world.
struct Sim<'s> {
    spec: &'s Spec,
    clock: Arc<ManualClock>,
    store: Arc<MemoryStore>,
    planner: Arc<Planner>,
    cache: Arc<CandidateCache>,
    progress: Arc<Progress>,
    lanes: Vec<Lane>,
    dice: Dice,
    now: u64,
    events: BTreeMap<At, Next>,
    scheduled: u64,
    /// How many workers sleep.
    parked: usize,
    /// How many claims and rings are to come: each may still turn a shard.
    coming: usize,
    ledger: Ledger,
}

/// Runs a world to its end and returns its books.
pub(crate) fn run(spec: &Spec) -> Ledger {
    let mut sim = Sim::new(spec);
    sim.start();
    while sim.ledger.worst.taken < spec.takes && sim.step() {}
    sim.ledger
}

impl<'s> Sim<'s> {
    fn new(spec: &'s Spec) -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_000_000)));
        let shared: Arc<dyn Clock> = Arc::<ManualClock>::clone(&clock);
        let store = Arc::new(MemoryStore::new(spec.shards, spec.placement));
        let planner = Arc::new(Planner::new(spec.pick, spec.seed));
        let cache = Arc::new(CandidateCache::new(spec.workers));
        let progress = Arc::new(Progress::new(spec.shards, &shared));
        let with = Shared {
            crowd: Arc::default(),
            status: Arc::new(StatusBoard::new(spec.shards)),
            supply: Arc::<MemoryStore>::clone(&store),
            planner: Arc::clone(&planner),
            cache: Arc::clone(&cache),
            progress: Arc::clone(&progress),
            clock: shared,
            sink: Arc::new(NoSink),
            promoted: Arc::new(|| ()),
        };
        let pace = Pace {
            heartbeat: Duration::from_secs(1),
            min_gap: Duration::ZERO,
        };
        let lane = |shard| Lane {
            refiller: Refiller::new(shard, with.clone(), pace),
            phase: Phase::Asleep,
            begun: None,
        };
        Self {
            ledger: Ledger::new(spec.shards, cache.capacity()),
            lanes: ShardId::first(spec.shards).map(lane).collect(),
            spec,
            clock,
            store,
            planner,
            cache,
            progress,
            dice: Dice::seeded(spec.seed ^ 0xfa17),
            now: 0,
            events: BTreeMap::new(),
            scheduled: 0,
            parked: 0,
            coming: 0,
        }
    }

    fn start(&mut self) {
        for (number, source) in self.spec.sources.iter().enumerate() {
            match source.supply {
                Supply::Once(_) | Supply::Steady(_) => self.come(number),
                Supply::Visits { pause, .. } => self.within(2 * pause, Next::Come(number)),
            }
        }
        let first = if self.spec.cold {
            0
        } else {
            20 * self.spec.phase
        };
        for _ in 0..self.spec.workers {
            let delay = first + self.dice.below(100);
            self.after(delay, Next::Look);
        }
        for shard in ShardId::first(self.spec.shards) {
            self.within(1_000_000, Next::Beat(shard));
        }
        self.stir();
    }

    /// Schedules something at a random time of the next so many microseconds.
    fn within(&mut self, most: u64, next: Next) {
        let delay = self.dice.below(most);
        self.after(delay, next);
    }

    fn after(&mut self, delay: u64, next: Next) {
        self.scheduled += 1;
        self.coming += usize::from(next.may_turn());
        self.events.insert((self.now + delay, self.scheduled), next);
    }

    /// Lets the next thing happen. Returns whether there can be more.
    fn step(&mut self) -> bool {
        let Some(((at, _), next)) = self.events.pop_first() else {
            return false;
        };
        self.clock.advance(Duration::from_micros(at - self.now));
        self.now = at;
        self.coming -= usize::from(next.may_turn());
        match next {
            Next::Cycle(shard) => self.cycle(shard),
            Next::Ring(shard) => self.progress.nudge(shard),
            Next::Beat(shard) => {
                self.progress.nudge(shard);
                self.within(1_000_000, Next::Beat(shard));
            }
            Next::Look => self.look(),
            Next::Reach(shard) => self.reach(shard),
            Next::Claim(candidate) => self.claim(candidate),
            Next::Come(number) => self.come(number),
        }
        self.stir();
        self.ledger.has_due() || self.spec.sources.iter().any(Source::comes_again)
    }

    /// Wakes whom the last event concerns.
    fn stir(&mut self) {
        for shard in ShardId::first(self.spec.shards) {
            let asleep = matches!(self.lanes[shard.index()].phase, Phase::Asleep);
            if asleep && self.progress.wake(shard).sleep(Duration::ZERO) == Woken::Nudge {
                self.lanes[shard.index()].phase = Phase::Look;
                self.within(self.spec.phase, Next::Cycle(shard));
            }
        }
        let wakes = self.cache.len().min(self.parked);
        self.parked -= wakes;
        for _ in 0..wakes {
            self.within(50, Next::Look);
        }
        let is_still = self.coming == 0
            && self.cache.is_empty()
            && self
                .lanes
                .iter()
                .all(|lane| matches!(lane.phase, Phase::Asleep));
        if is_still && self.parked > 0 && self.ledger.has_due() {
            self.ledger.worst.stalls += 1;
        }
    }

    /// Goes one phase on.
    fn cycle(&mut self, shard: ShardId) {
        let lane = &mut self.lanes[shard.index()];
        lane.phase = match std::mem::replace(&mut lane.phase, Phase::Asleep) {
            Phase::Asleep => unreachable!("a cycle that goes on has begun"),
            Phase::Look => {
                lane.begun = self.ledger.urgent();
                Phase::Plan(lane.refiller.look().unwrap())
            }
            Phase::Plan(report) => Phase::Fetch(lane.refiller.plan(report)),
            Phase::Fetch(plan) => {
                let found = lane.refiller.fetch(&plan).unwrap();
                Phase::Push(plan, found)
            }
            Phase::Push(plan, found) => {
                lane.refiller.push(&plan, found);
                self.ledger.cycled(shard, lane.begun);
                return;
            }
        };
        self.within(self.spec.phase, Next::Cycle(shard));
    }

    fn look(&mut self) {
        if let Some(shard) = self.cache.peek_shard() {
            self.within(10, Next::Reach(shard));
        } else {
            self.parked += 1;
            self.ledger.worst.dry += 1;
        }
    }

    fn reach(&mut self, shard: ShardId) {
        let Some(taken) = self.cache.try_pop_from(shard) else {
            self.after(0, Next::Look);
            return;
        };
        let candidate = taken.candidate;
        // As the engine's foreman does.
        self.planner
            .took(candidate.band, &candidate.key, candidate.turn);
        let low = taken.needs_refill.then_some(shard);
        if self.spec.progress {
            self.progress.took(self.cache.capacity(), low);
        } else if let Some(low) = low {
            self.progress.nudge(low);
        }
        if self
            .ledger
            .took(candidate.id, candidate.band, &candidate.key)
        {
            self.fill_up(&candidate);
        }
        self.within(2 * self.spec.phase, Next::Claim(candidate));
    }

    fn claim(&mut self, candidate: Candidate) {
        let (id, now) = (candidate.id, self.clock.now());
        let lease = Lease {
            runner: RunnerId::new(1),
            until: now,
        };
        let claims = self
            .store
            .claim(id.shard, &[candidate], lease, now)
            .unwrap();
        self.cache.release(id);
        self.progress.decided(id.shard, self.cache.is_empty());
        let mean = self.spec.step;
        if claims[0].is_none() {
            self.after(0, Next::Look);
        } else if !self.spec.uneven {
            self.after(mean / 2, Next::Look);
        } else if self.dice.below(10) > 0 {
            self.within(mean / 5, Next::Look);
        } else {
            self.within(mean * 18, Next::Look);
        }
    }

    /// Lets more steps of the key of a taken step come, if its source says so.
    fn fill_up(&mut self, candidate: &Candidate) {
        let (band, key) = (candidate.band, &candidate.key);
        let due = self.ledger.due(band, key);
        let mut sources = self.spec.sources.iter();
        let number = sources.position(|source| source.band == band && source.key == *key);
        match number.map(|number| (number, self.spec.sources[number].supply)) {
            Some((number, Supply::Steady(most))) if due <= most / 2 => self.come(number),
            Some((number, Supply::Visits { pause, .. })) if due == 0 => {
                self.within(2 * pause, Next::Come(number));
            }
            _ => {}
        }
    }

    /// Lets a source's steps come.
    fn come(&mut self, number: usize) {
        let source = &self.spec.sources[number];
        let count = match source.supply {
            Supply::Once(count) => count,
            Supply::Steady(most) => most - self.ledger.due(source.band, &source.key),
            Supply::Visits { most, .. } => 1 + self.dice.below(most),
        };
        self.ledger
            .arrived(source.band, &source.key, source.weight, count);
        let steps = vec![new_step(source); usize::try_from(count).unwrap()];
        let ids = self.store.enqueue(&steps, self.clock.now()).unwrap();
        let mut rung: Vec<ShardId> = ids.iter().map(|id| id.shard).collect();
        rung.sort_unstable();
        rung.dedup();
        for shard in rung {
            self.within(4 * self.spec.phase, Next::Ring(shard));
        }
        if self.dice.below(100) < self.spec.offered {
            self.offer(source, ids[0]);
        }
    }

    /// Offers a step to the cache, as the successor of another.
    fn offer(&self, source: &Source, id: StepId) {
        // The cache knows of no band but those of its candidates, and an empty partition admits any.
        let best = self.planner.global_band();
        if best.is_some_and(|best| best < source.band) {
            return;
        }
        let turn = self
            .planner
            .next_turn(source.band, &source.key, source.weight);
        self.cache.offer(Candidate {
            id,
            band: source.band,
            key: source.key.clone(),
            turn,
        });
    }
}

fn new_step(source: &Source) -> NewStep {
    NewStep {
        command: Command::Shell("true".into()),
        cwd: "/".into(),
        env: Arc::new(Environment::default()),
        band: source.band,
        key: source.key.clone(),
        weight: source.weight,
        name: None,
        tags: Vec::new(),
        flow: None,
        due: Due::Now,
        after: Vec::new(),
        unique: None,
        policy: Policy::default(),
    }
}
