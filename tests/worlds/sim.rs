//! The world: what happens next, to whom, and when; one thread, one virtual clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fairq::ambient::{Clock, ManualClock};
use fairq::model::{RunnerId, ShardId, Timestamp};
use fairq::store::Store;

use super::book::Known;
use super::chance::Fault;
use super::fate::Fate;
use super::frail::{Frail, Life};
use super::home::Home;
use super::runner::{Phase, Runner, Worker};
use super::spec::Spec;
use super::watch::Watch;

/// What the wall clock shows when a world begins.
pub(crate) const START: Timestamp = Timestamp::from_millis(1_000_000_000);

/// Something that will happen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    /// A refiller goes on with its turn.
    Phase(usize, ShardId),
    /// It is looked whether a refiller wakes.
    Tick(usize, ShardId),
    /// A worker looks for work.
    Look(usize, usize),
    /// It reaches for the shard that it was told.
    Reach(usize, usize, ShardId),
    /// It asks the store for what it took.
    Ask(usize, usize),
    /// It hears the answer.
    Hear(usize, usize),
    /// The process of the step that it runs ends.
    End(usize, usize, u64),
    /// The time of a running step, or its grace, is over.
    Alarm(usize),
    /// The courier makes a round.
    Courier(usize),
    /// Claims are looked after.
    Steward(usize),
    /// Outcomes are written again.
    Again(usize),
    /// A runner hears that somebody wrote.
    Ring(usize, ShardId),
    /// A runner that stood still goes on.
    Wake(usize),
    /// People do something.
    People,
    /// A late outcome is written.
    Land,
    /// Something goes wrong with the machine.
    Trouble,
    /// A shard answers again.
    Back(ShardId),
    /// A shard is as fast as before.
    Fast(ShardId),
    /// A new runner comes.
    Birth,
    /// Nothing goes wrong any more.
    Calm,
}

impl Next {
    /// Returns the runner to which it happens.
    const fn whose(self) -> Option<usize> {
        match self {
            Self::Phase(of, _)
            | Self::Tick(of, _)
            | Self::Look(of, _)
            | Self::Reach(of, ..)
            | Self::Ask(of, _)
            | Self::Hear(of, _)
            | Self::End(of, ..)
            | Self::Alarm(of)
            | Self::Courier(of)
            | Self::Steward(of)
            | Self::Again(of)
            | Self::Ring(of, _) => Some(of),
            Self::Wake(_)
            | Self::People
            | Self::Land
            | Self::Trouble
            | Self::Back(_)
            | Self::Fast(_)
            | Self::Birth
            | Self::Calm => None,
        }
    }
}

/// A running world.
#[derive(Debug)]
pub(crate) struct Sim<'s> {
    pub(crate) spec: &'s Spec,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) fate: Arc<Fate>,
    pub(crate) home: Home,
    /// A runner that is gone is `None`; its number is not used again.
    pub(crate) runners: Vec<Option<Runner>>,
    events: BTreeMap<(u64, u64), Next>,
    pub(crate) serial: u64,
    /// What was to happen to runners that stand still.
    backlog: Vec<Next>,
    pub(crate) put_in: u64,
    pub(crate) watch: Watch,
}

impl<'s> Sim<'s> {
    pub(crate) fn new(spec: &'s Spec, rates: super::chance::Rates, loud: bool) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let fate = Arc::new(Fate::new(spec, rates, Arc::clone(&clock), loud));
        let shared: Arc<dyn Clock> = Arc::<ManualClock>::clone(&clock);
        Self {
            home: Home::new(spec, &shared),
            watch: Watch::new(spec),
            spec,
            clock,
            fate,
            runners: Vec::new(),
            events: BTreeMap::new(),
            serial: 0,
            backlog: Vec::new(),
            put_in: 0,
        }
    }

    pub(crate) fn shards(&self) -> impl Iterator<Item = ShardId> + use<> {
        ShardId::first(self.spec.shards)
    }

    pub(crate) fn now(&self) -> u64 {
        self.fate.micros()
    }

    pub(crate) fn live(&self) -> impl Iterator<Item = &Runner> {
        self.runners.iter().flatten()
    }

    pub(crate) fn after(&mut self, delay: u64, next: Next) {
        self.serial += 1;
        self.events.insert((self.now() + delay, self.serial), next);
    }

    /// Schedules something at a random time of the next so many microseconds.
    pub(crate) fn within(&mut self, most: u64, next: Next) {
        let delay = self.fate.below(most);
        self.after(delay, next);
    }

    /// Lets faults and people have their time.
    pub(crate) fn live_through(&mut self) {
        for _ in 0..self.spec.runners {
            self.within(1_000_000, Next::Birth);
        }
        self.within(100_000, Next::People);
        self.within(500_000, Next::Trouble);
        self.after(self.spec.coming + 2_000_000, Next::Calm);
        while !self.fate.lock().calm {
            assert!(self.step(), "a world does not end before it is calm");
        }
    }

    /// Lets the next thing happen. Returns whether there was any.
    pub(crate) fn step(&mut self) -> bool {
        let Some(((at, _), next)) = self.events.pop_first() else {
            return false;
        };
        self.serial += 1;
        let now = self.now();
        self.clock.advance(Duration::from_micros(at - now));
        if let Some(of) = next.whose() {
            match &self.runners[of] {
                None => return true,
                Some(runner) if runner.asleep => {
                    self.backlog.push(next);
                    return true;
                }
                Some(_) => {}
            }
        }
        self.happen(next);
        self.bury();
        for of in 0..self.runners.len() {
            self.stir(of);
        }
        self.bury();
        self.observe();
        true
    }

    fn happen(&mut self, next: Next) {
        match next {
            Next::Phase(of, shard) => self.phase(of, shard),
            Next::Tick(of, shard) => {
                if let Some(runner) = &mut self.runners[of] {
                    runner.lanes[shard.index()].tick = None;
                }
            }
            Next::Look(of, worker) => self.look(of, worker),
            Next::Reach(of, worker, shard) => self.reach(of, worker, shard),
            Next::Ask(of, worker) => self.ask(of, worker),
            Next::Hear(of, worker) => self.hear(of, worker),
            Next::End(of, worker, serial) => self.end(of, worker, serial),
            Next::Alarm(of) => {
                if let Some(runner) = &mut self.runners[of] {
                    runner.alarm = None;
                }
            }
            Next::Courier(of) => self.courier(of),
            Next::Steward(of) => self.steward(of),
            Next::Again(of) => self.again(of),
            Next::Ring(of, shard) => {
                if let Some(runner) = &self.runners[of] {
                    runner.works.ring(shard);
                }
            }
            Next::Wake(of) => self.wake(of),
            Next::People => self.people(),
            Next::Land => self.land(),
            Next::Trouble => self.trouble(),
            Next::Back(shard) => self.back(shard),
            Next::Fast(shard) => {
                self.fate.lock().slow.remove(&shard);
            }
            Next::Birth => self.birth(),
            Next::Calm => self.calm(),
        }
    }

    /// Lets a runner be born: it looks after the claims of the dead first, as the engine does.
    pub(crate) fn birth(&mut self) {
        let number = self.runners.len() as u64;
        if self.live().count() as u64 >= self.spec.runners {
            return;
        }
        let shared: Arc<dyn Clock> = Arc::<ManualClock>::clone(&self.clock);
        let store = self.home.of_a_runner(&shared);
        let mut runner = Runner::new(self.spec, number, store, &self.fate, &shared);
        let has_lock = self.fate.below(100) >= self.spec.lockless;
        let known = Known {
            alive: true,
            has_lock,
            buried: false,
            left: false,
        };
        self.fate.note(format_args!(
            "{} is born with {} workers{}",
            runner.id,
            runner.workers.len(),
            if has_lock { "" } else { ", no lock" }
        ));
        self.fate.lock().book.runners.insert(runner.id, known);
        self.maybe_die_inside(&runner.life);
        self.recover(&mut runner);
        runner.introduce(self.serial, self.clock.monotonic());
        runner.rounds = Some(runner.works.begin_rounds());
        self.runners.push(Some(runner));
        let of = self.runners.len() - 1;
        self.within(self.heartbeat(), Next::Steward(of));
    }

    pub(crate) fn heartbeat(&self) -> u64 {
        u64::try_from(self.spec.pace.heartbeat.as_micros()).expect("short")
    }

    pub(crate) fn maybe_die_inside(&self, life: &Life) {
        if self.fate.lock().calm {
            return;
        }
        let rate = self.fate.lock().rates.of(Fault::CrashInside);
        if self.fate.happens(rate) {
            life.ends_after(1 + self.fate.below(4));
        }
    }

    /// Lets those go who have died.
    fn bury(&mut self) {
        for of in 0..self.runners.len() {
            let is_over = self.runners[of]
                .as_ref()
                .is_some_and(|runner| runner.life.is_over());
            if is_over {
                self.lose(of, false);
            }
        }
    }

    /// A runner is gone: dead, or it has left.
    pub(crate) fn lose(&mut self, of: usize, left: bool) {
        let Some(runner) = self.runners[of].take() else {
            return;
        };
        runner.life.end();
        let mut inner = self.fate.lock();
        inner.book.gone(runner.id, left);
        let late = std::mem::take(&mut inner.late);
        let (his, others): (Vec<_>, Vec<_>) =
            late.into_iter().partition(|late| late.runner == runner.id);
        inner.late = others;
        drop(inner);
        drop(his);
        drop(runner);
        if !self.fate.lock().calm {
            self.within(3_000_000, Next::Birth);
        }
    }

    pub(crate) fn wake(&mut self, of: usize) {
        let Some(runner) = self.runners[of].as_mut().filter(|runner| runner.asleep) else {
            return;
        };
        runner.asleep = false;
        self.fate.note(format_args!("{} wakes", runner.id));
        let (his, others) = std::mem::take(&mut self.backlog)
            .into_iter()
            .partition(|next| next.whose() == Some(of));
        self.backlog = others;
        let his: Vec<Next> = his;
        for next in his {
            self.within(5_000, next);
        }
    }

    /// Returns the store as people's processes see it.
    pub(crate) fn visitor(&self) -> Frail {
        Frail {
            store: Arc::clone(&self.home.raw),
            fate: Arc::clone(&self.fate),
            runner: RunnerId::new(0),
            life: Arc::default(),
            breaks: self.spec.sqlite,
        }
    }

    pub(crate) fn raw(&self) -> &dyn Store {
        self.home.raw.as_ref()
    }

    /// Wakes whom the last event concerns.
    fn stir(&mut self, of: usize) {
        let now = self.now();
        let Some(runner) = self.runners[of].as_mut().filter(|one| !one.asleep) else {
            return;
        };
        let mut later: Vec<(u64, Next)> = Vec::new();
        let phase = self.spec.phase;
        for lane in 0..runner.lanes.len() {
            let shard = ShardId::new(u8::try_from(lane).expect("small")).expect("a shard");
            let lane = &mut runner.lanes[lane];
            if !matches!(lane.phase, Phase::Asleep) {
                continue;
            }
            match runner.works.progress().wake(shard).poll(lane.until) {
                Ok(fairq::refiller::Woken::Closed) => lane.phase = Phase::Closed,
                Ok(_) => {
                    lane.phase = Phase::Look;
                    later.push((self.fate.below(phase), Next::Phase(of, shard)));
                }
                Err(wait) => {
                    let wait = micros(wait);
                    if lane.tick.is_none_or(|tick| tick > now + wait) {
                        lane.tick = Some(now + wait);
                        later.push((wait, Next::Tick(of, shard)));
                    }
                }
            }
        }
        let mut coming = runner
            .workers
            .iter()
            .filter(|one| matches!(one, Worker::Coming))
            .count();
        let there = if runner.leaving.is_some() {
            0
        } else {
            runner.works.cache().len()
        };
        for worker in 0..runner.workers.len() {
            if coming < there && matches!(runner.workers[worker], Worker::Idle) {
                runner.workers[worker] = Worker::Coming;
                coming += 1;
                later.push((self.fate.below(50), Next::Look(of, worker)));
            }
        }
        if let Some(rounds) = &runner.rounds {
            let (called, left) = runner.works.is_called(rounds);
            let rest = (runner.rested + micros(self.spec.pace.min_gap)).saturating_sub(now);
            let wait = if called { rest } else { micros(left).max(rest) };
            if runner.courier.is_none_or(|at| at > now + wait) {
                runner.courier = Some(now + wait);
                later.push((wait, Next::Courier(of)));
            }
        }
        if let Some(at) = runner.works.crew().ring().map(micros)
            && runner.alarm.is_none_or(|alarm| alarm > at)
        {
            runner.alarm = Some(at);
            later.push((at.saturating_sub(now), Next::Alarm(of)));
        }
        if runner.keeps.swap(false, Ordering::Relaxed) && runner.again.is_none() {
            runner.again = Some(now);
            later.push((0, Next::Again(of)));
        }
        for (delay, next) in later {
            self.after(delay, next);
        }
        self.ask_processes(of);
        self.let_go(of);
    }
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).expect("a world is short")
}
