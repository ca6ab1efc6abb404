//! Builds the stages, starts them in order, and stops them in the right order.

mod courier;
pub mod drain;
mod foreman;
mod keeper;
mod notice;
mod steward;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use self::courier::{Courier, Errands};
use self::foreman::Boss;
use crate::ambient::{Clock, Dice, SharedDice};
use crate::cache::{CacheView, CandidateCache};
use crate::completion::Completer;
use crate::crew::executor::{Executor, Force};
use crate::crew::{Crew, CrewView, Parts};
use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::event::{Event, Sink};
use crate::model::{RunnerId, ShardId, Span, StepId, StepState};
use crate::planner::{Pick, Planner};
use crate::presence::bell::Bell;
use crate::refiller::{Crowd, Pace, Progress, Refiller, ShardStatus, Shared, StatusBoard};
use crate::store::Store;

pub use foreman::Tally;
pub use notice::Notice;
pub use steward::take_back;

/// How a runner works.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// How many steps run at once.
    pub workers: usize,
    /// How slots are picked.
    pub pick: Pick,
    /// The seed of the lottery.
    pub seed: u64,
    /// How fast refillers turn.
    pub pace: Pace,
    /// How long a claim stands where this runner's lock cannot be asked.
    pub lease: Span,
    /// How long steps are kept that are over; `None` for ever.
    pub keep: Option<Span>,
}

/// Where a runner meets others: absent in tests that have the store to themselves.
#[derive(Clone, Debug)]
pub struct Neighbours {
    /// The store's directory, as steps are told it.
    pub store: PathBuf,
    /// Where runners have their folders.
    pub runners: PathBuf,
    /// This runner's bell.
    pub bell: Arc<Bell>,
}

/// What an engine is built from.
#[derive(Clone)]
pub struct With {
    /// Where steps rest.
    pub store: Arc<dyn Store>,
    /// What runs them.
    pub executor: Arc<dyn Executor>,
    /// Who this runner is.
    pub runner: RunnerId,
    /// Its neighbours.
    pub neighbours: Option<Neighbours>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Where events go.
    pub sink: Arc<dyn Sink>,
}

impl std::fmt::Debug for With {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("With")
            .field("runner", &self.runner)
            .finish_non_exhaustive()
    }
}

/// How many steps of a store keep a runner that drains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Census {
    /// They may start, run, or are to be tried again.
    busy: u64,
    /// They wait for others, or for places of limits.
    waiting: u64,
}

/// What the parts of an engine share.
#[derive(Clone)]
struct Stages {
    planner: Arc<Planner>,
    cache: Arc<CandidateCache>,
    progress: Arc<Progress>,
    status: Arc<StatusBoard>,
    notice: Arc<Notice>,
    errands: Arc<Errands>,
}

impl Stages {
    fn new(with: &With, manner: Manner) -> Self {
        let shards = with.store.shard_count();
        Self {
            planner: Arc::new(Planner::new(manner.pick, manner.seed)),
            cache: Arc::new(CandidateCache::new(manner.workers)),
            progress: Arc::new(Progress::new(shards, &with.clock)),
            status: Arc::new(StatusBoard::new(shards)),
            notice: Arc::default(),
            errands: Arc::default(),
        }
    }

    /// Takes note that somebody else has written to a shard.
    fn ring(&self, shard: ShardId) {
        self.progress.nudge(shard);
        self.errands.rang(shard);
    }
}

/// A running engine.
pub struct Engine {
    with: With,
    stages: Stages,
    completer: Arc<Completer>,
    crew: Arc<Crew>,
    courier: Arc<Courier>,
    boss: Arc<Boss>,
    /// Closes the steward's sleep.
    closing: Arc<Notice>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("with", &self.with)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Builds all stages and starts them: recovery first, then supply, then the crew.
    ///
    /// # Errors
    ///
    /// `Unavailable` if a thread cannot be started.
    pub fn start(with: With, manner: Manner) -> Result<Self> {
        let stages = Stages::new(&with, manner);
        let boss = Arc::new(Boss::new(stages.clone(), &with));
        let completer = start_completer(&with, manner, &stages, &boss);
        let mut threads = Vec::new();
        let closing = Arc::new(Notice::default());
        let crowd = Arc::new(Crowd::default());
        steward::start(&with, manner, &stages, &crowd, &closing, &mut threads)?;
        start_refillers(&with, manner, &stages, &crowd, &mut threads)?;
        keeper::start(&with, manner, &closing, &mut threads)?;
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
        with.sink.emit(
            with.clock.now(),
            &Event::RunnerStarted {
                runner: with.runner,
                workers: manner.workers,
            },
        );
        let crew = Arc::new(Crew::start(parts, manner.workers));
        let courier = Arc::new(Courier {
            store: Arc::clone(&with.store),
            runner: with.runner,
            crew: Arc::clone(&crew),
            boss: Arc::clone(&boss),
            clock: Arc::clone(&with.clock),
        });
        let (serving, errands) = (Arc::clone(&courier), Arc::clone(&stages.errands));
        threads.push(spawn("courier".to_owned(), move || {
            serving.serve(&errands, manner.pace);
        })?);
        Ok(Self {
            with,
            stages,
            completer,
            crew,
            courier,
            boss,
            closing,
            threads: Mutex::new(threads),
        })
    }

    /// Returns what is told of whenever a worker falls idle or an outcome is recorded.
    pub fn notice(&self) -> &Arc<Notice> {
        &self.stages.notice
    }

    /// Returns the planner, to be looked at.
    pub fn planner(&self) -> &Planner {
        &self.stages.planner
    }

    /// Returns what the cache holds.
    pub fn cache(&self) -> CacheView {
        self.stages.cache.snapshot()
    }

    /// Returns what the crew does.
    pub fn crew(&self) -> CrewView {
        self.crew.view()
    }

    /// Returns what the refiller of each shard has done, in the order of the shards.
    pub fn shards(&self) -> Vec<ShardStatus> {
        self.stages.status.view()
    }

    /// Returns how many steps run.
    pub fn running(&self) -> usize {
        self.crew.running()
    }

    /// Returns what this runner has done so far.
    pub fn tally(&self) -> Tally {
        self.boss.tally()
    }

    /// Returns how many steps are due in the whole store; a shard that cannot be read counts none.
    pub fn due(&self) -> u64 {
        ShardId::first(self.with.store.shard_count())
            .filter_map(|shard| self.with.store.counts(shard).ok())
            .filter_map(|counts| counts.states.get(&StepState::Ready).copied())
            .sum()
    }

    /// Changes how many steps run at once.
    pub fn resize(&self, workers: usize) {
        self.crew.resize(workers);
        self.stages.progress.nudge_all();
    }

    /// Sends a signal, by its number, to the process groups of claims that run here. Returns the
    /// steps that got it.
    pub fn signal(&self, claims: &[(StepId, u32)], number: i32) -> Vec<StepId> {
        self.crew.signal(claims, number)
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

    /// Takes no new work from now on; what runs goes on.
    pub fn drain(&self) {
        self.with.sink.emit(
            self.with.clock.now(),
            &Event::Draining {
                running: self.crew.running(),
            },
        );
        self.crew.drain();
        self.stages.progress.close();
    }

    /// Ends what runs, to be put back. Only after [`Self::drain`].
    pub fn end_steps(&self, force: Force) -> usize {
        self.crew.end_steps(force)
    }

    /// Waits until no step runs any more, at most for `limit`; `true` if none does.
    pub fn wait(&self, limit: Duration) -> bool {
        self.crew.wait(limit)
    }

    /// Stops everything that is left once no step runs, in the right order: what is not yet recorded
    /// first, for it needs the shards' writers. Returns how many outcomes could not be recorded in
    /// time; their steps come back as those of a dead runner.
    pub fn finish(&self, limit: Duration) -> usize {
        self.stages.progress.close();
        self.completer.flush(limit);
        let open = self.completer.open();
        self.completer.close();
        if let Some(neighbours) = &self.with.neighbours {
            neighbours.bell.close();
        }
        self.closing.tell();
        // After the last outcome: others may wait to be told of it.
        self.stages.errands.close();
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // One that panicked has been heard of; there is nothing left to wait for.
            drop(thread.join());
        }
        self.with.sink.emit(
            self.with.clock.now(),
            &Event::RunnerStopped {
                runner: self.with.runner,
            },
        );
        open
    }
}

fn start_completer(
    with: &With,
    manner: Manner,
    stages: &Stages,
    boss: &Arc<Boss>,
) -> Arc<Completer> {
    let (told, quiet) = (Arc::clone(boss), Arc::clone(&stages.notice));
    let completer = Completer::new(
        Arc::clone(&with.store) as Arc<_>,
        Arc::clone(&with.clock),
        Arc::clone(&with.sink),
        // Other numbers than the planner's: nothing shall depend on both.
        SharedDice::new(Dice::seeded(!manner.seed)),
        Box::new(move |id, recorded| told.settled(id, &recorded)),
        Box::new(move || quiet.tell()),
    );
    boss.hand_to(&completer);
    completer
}

fn start_refillers(
    with: &With,
    manner: Manner,
    stages: &Stages,
    crowd: &Arc<Crowd>,
    threads: &mut Vec<JoinHandle<()>>,
) -> Result<()> {
    let errands = Arc::clone(&stages.errands);
    let shared = Shared {
        supply: Arc::clone(&with.store) as Arc<_>,
        planner: Arc::clone(&stages.planner),
        cache: Arc::clone(&stages.cache),
        progress: Arc::clone(&stages.progress),
        crowd: Arc::clone(crowd),
        status: Arc::clone(&stages.status),
        clock: Arc::clone(&with.clock),
        sink: Arc::clone(&with.sink),
        promoted: Arc::new(move || errands.promoted()),
    };
    let mut refillers: Vec<Refiller> = ShardId::first(with.store.shard_count())
        .map(|shard| Refiller::new(shard, shared.clone(), manner.pace))
        .collect();
    refillers.iter_mut().for_each(Refiller::introduce);
    for (number, mut refiller) in refillers.into_iter().enumerate() {
        threads.push(spawn(format!("refiller-{number}"), move || {
            refiller.serve();
        })?);
    }
    Ok(())
}

fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    std::thread::Builder::new()
        .name(name)
        .spawn(body)
        .or_fail(ErrorKind::Unavailable, || {
            "cannot start a thread".to_owned()
        })
}
