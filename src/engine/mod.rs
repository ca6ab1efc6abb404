//! Builds the stages, starts them in order, and stops them in the right order.

mod courier;
pub mod drain;
mod foreman;
mod keeper;
mod notice;
mod steward;
mod works;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use self::courier::Errands;
use crate::ambient::Clock;
use crate::cache::{CacheView, CandidateCache};
use crate::completion::in_a_thread;
use crate::crew::executor::{Executor, Force};
use crate::crew::{Crew, CrewView};
use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::event::{Event, Sink};
use crate::model::{RunnerId, ShardId, Span, StepId, StepState};
use crate::planner::{Pick, Planner};
use crate::presence::bell::Bell;
use crate::refiller::{Pace, Progress, ShardStatus, StatusBoard};
use crate::store::Store;

pub use courier::Rounds;
pub use foreman::Tally;
pub use notice::Notice;
pub use steward::take_back;
pub use works::Works;

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
    works: Works,
    /// Closes the steward's sleep.
    closing: Arc<Notice>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("works", &self.works)
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
        let works = Works::new(with, manner, in_a_thread(), Crew::new);
        let mut threads = Vec::new();
        let closing = Arc::new(Notice::default());
        steward::start(&works, &closing, &mut threads)?;
        for (number, mut refiller) in works.refillers().into_iter().enumerate() {
            threads.push(spawn(format!("refiller-{number}"), move || {
                refiller.serve();
            })?);
        }
        keeper::start(&works.with, manner, &closing, &mut threads)?;
        let with = &works.with;
        with.sink.emit(
            with.clock.now(),
            &Event::RunnerStarted {
                runner: with.runner,
                workers: manner.workers,
            },
        );
        works.crew.start();
        let (serving, errands) = (
            Arc::clone(&works.courier),
            Arc::clone(&works.stages.errands),
        );
        threads.push(spawn("courier".to_owned(), move || {
            serving.serve(&errands, manner.pace);
        })?);
        Ok(Self {
            works,
            closing,
            threads: Mutex::new(threads),
        })
    }

    /// Returns what is told of whenever a worker falls idle or an outcome is recorded.
    pub fn notice(&self) -> &Arc<Notice> {
        &self.works.stages.notice
    }

    /// Returns the planner, to be looked at.
    pub fn planner(&self) -> &Planner {
        &self.works.stages.planner
    }

    /// Returns what the cache holds.
    pub fn cache(&self) -> CacheView {
        self.works.stages.cache.snapshot()
    }

    /// Returns what the crew does.
    pub fn crew(&self) -> CrewView {
        self.works.crew.view()
    }

    /// Returns what the refiller of each shard has done, in the order of the shards.
    pub fn shards(&self) -> Vec<ShardStatus> {
        self.works.stages.status.view()
    }

    /// Returns how many steps run.
    pub fn running(&self) -> usize {
        self.works.crew.running()
    }

    /// Returns what this runner has done so far.
    pub fn tally(&self) -> Tally {
        self.works.boss.tally()
    }

    /// Returns how many steps are due in the whole store; a shard that cannot be read counts none.
    pub fn due(&self) -> u64 {
        ShardId::first(self.works.with.store.shard_count())
            .filter_map(|shard| self.works.with.store.counts(shard).ok())
            .filter_map(|counts| counts.states.get(&StepState::Ready).copied())
            .sum()
    }

    /// Changes how many steps run at once.
    pub fn resize(&self, workers: usize) {
        self.works.crew.resize(workers);
        self.works.stages.progress.nudge_all();
    }

    /// Sends a signal, by its number, to the process groups of claims that run here. Returns the
    /// steps that got it.
    pub fn signal(&self, claims: &[(StepId, u32)], number: i32) -> Vec<StepId> {
        self.works.crew.signal(claims, number)
    }

    /// Returns whether nothing more happens by itself, see [`Works::is_drained`].
    ///
    /// # Errors
    ///
    /// A shard could not be read.
    pub fn is_drained(&self) -> Result<bool> {
        self.works.is_drained()
    }

    /// Takes no new work from now on; what runs goes on.
    pub fn drain(&self) {
        self.works.with.sink.emit(
            self.works.with.clock.now(),
            &Event::Draining {
                running: self.works.crew.running(),
            },
        );
        self.works.crew.drain();
        self.works.stages.progress.close();
    }

    /// Ends what runs, to be put back. Only after [`Self::drain`].
    pub fn end_steps(&self, force: Force) -> usize {
        self.works.crew.end_steps(force)
    }

    /// Waits until no step runs any more, at most for `limit`; `true` if none does.
    pub fn wait(&self, limit: Duration) -> bool {
        self.works.crew.wait(limit)
    }

    /// Stops everything that is left once no step runs, in the right order: what is not yet recorded
    /// first, for it needs the shards' writers. Returns how many outcomes could not be recorded in
    /// time; their steps come back as those of a dead runner.
    pub fn finish(&self, limit: Duration) -> usize {
        self.works.stages.progress.close();
        self.works.completer.flush(limit);
        let open = self.works.completer.open();
        self.works.completer.close();
        if let Some(neighbours) = &self.works.with.neighbours {
            neighbours.bell.close();
        }
        self.closing.tell();
        // After the last outcome: others may wait to be told of it.
        self.works.stages.errands.close();
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // One that panicked has been heard of; there is nothing left to wait for.
            drop(thread.join());
        }
        self.works.with.sink.emit(
            self.works.with.clock.now(),
            &Event::RunnerStopped {
                runner: self.works.with.runner,
            },
        );
        open
    }
}

fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    std::thread::Builder::new()
        .name(name)
        .spawn(body)
        .or_fail(ErrorKind::Unavailable, || {
            "cannot start a thread".to_owned()
        })
}
