//! Builds the stages, starts them in order, and stops them in the right order.

pub mod drain;
mod foreman;
mod notice;
mod steward;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use self::foreman::Boss;
use self::steward::Steward;
use crate::ambient::Clock;
use crate::cache::{CacheView, CandidateCache};
use crate::completion::Completer;
use crate::crew::executor::{Executor, Force};
use crate::crew::{Crew, CrewView, Parts};
use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::event::{Event, Sink};
use crate::model::{RunnerId, ShardId, Span, StepState};
use crate::planner::{Pick, Planner};
use crate::presence::bell::Bell;
use crate::refiller::{Crowd, Pace, Progress, Refiller, ShardStatus, Shared, StatusBoard};
use crate::store::Store;

pub use foreman::Tally;
pub use notice::Notice;

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

/// A running engine.
pub struct Engine {
    with: With,
    planner: Arc<Planner>,
    cache: Arc<CandidateCache>,
    progress: Arc<Progress>,
    status: Arc<StatusBoard>,
    completer: Arc<Completer>,
    crew: Crew,
    boss: Arc<Boss>,
    notice: Arc<Notice>,
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
        let shards = with.store.shard_count();
        let planner = Arc::new(Planner::new(manner.pick, manner.seed));
        let cache = Arc::new(CandidateCache::new(manner.workers));
        let progress = Arc::new(Progress::new(shards, &with.clock));
        let status = Arc::new(StatusBoard::new(shards));
        let notice = Arc::new(Notice::default());
        let boss = Arc::new(Boss::new(
            Arc::clone(&planner),
            Arc::clone(&cache),
            Arc::clone(&progress),
            Arc::clone(&status),
            Arc::clone(&notice),
            &with,
        ));
        let completer = {
            let boss = Arc::clone(&boss);
            let quiet = Arc::clone(&notice);
            Completer::new(
                Arc::clone(&with.store) as Arc<_>,
                Arc::clone(&with.clock),
                Arc::clone(&with.sink),
                Box::new(move |id, state| boss.settled(id, state)),
                Box::new(move || quiet.tell()),
            )
        };
        boss.hand_to(&completer);
        let mut threads = Vec::new();
        let closing = Arc::new(Notice::default());
        let crowd = Arc::new(Crowd::default());
        start_steward(&with, manner, &progress, &crowd, &closing, &mut threads)?;
        let shared = Shared {
            supply: Arc::clone(&with.store) as Arc<_>,
            planner: Arc::clone(&planner),
            cache: Arc::clone(&cache),
            progress: Arc::clone(&progress),
            crowd,
            status: Arc::clone(&status),
            clock: Arc::clone(&with.clock),
            sink: Arc::clone(&with.sink),
        };
        let mut refillers: Vec<Refiller> = ShardId::first(shards)
            .map(|shard| Refiller::new(shard, shared.clone(), manner.pace))
            .collect();
        refillers.iter_mut().for_each(Refiller::introduce);
        for (number, mut refiller) in refillers.into_iter().enumerate() {
            threads.push(spawn(format!("refiller-{number}"), move || {
                refiller.serve();
            })?);
        }
        let parts = Parts {
            runner: with.runner,
            cache: Arc::clone(&cache),
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
        let crew = Crew::start(parts, manner.workers);
        Ok(Self {
            with,
            planner,
            cache,
            progress,
            status,
            completer,
            crew,
            boss,
            notice,
            closing,
            threads: Mutex::new(threads),
        })
    }

    /// Returns what is told of whenever a worker falls idle or an outcome is recorded.
    pub fn notice(&self) -> &Arc<Notice> {
        &self.notice
    }

    /// Returns the planner, to be looked at.
    pub fn planner(&self) -> &Planner {
        &self.planner
    }

    /// Returns what the cache holds.
    pub fn cache(&self) -> CacheView {
        self.cache.snapshot()
    }

    /// Returns what the crew does.
    pub fn crew(&self) -> CrewView {
        self.crew.view()
    }

    /// Returns what the refiller of each shard has done, in the order of the shards.
    pub fn shards(&self) -> Vec<ShardStatus> {
        self.status.view()
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
        self.progress.nudge_all();
    }

    /// Returns whether there is nothing due and nothing running in the whole store.
    ///
    /// # Errors
    ///
    /// A shard could not be read.
    pub fn is_drained(&self) -> Result<bool> {
        // Cheap and local first: this is asked whenever a worker falls idle.
        if !self.crew.is_idle() || !self.cache.is_empty() || self.completer.open() > 0 {
            return Ok(false);
        }
        for shard in ShardId::first(self.with.store.shard_count()) {
            let counts = self.with.store.counts(shard)?;
            let busy = [StepState::Ready, StepState::Running];
            if busy
                .iter()
                .any(|state| counts.states.get(state).is_some_and(|count| *count > 0))
            {
                return Ok(false);
            }
        }
        Ok(true)
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
        self.progress.close();
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
        self.progress.close();
        self.completer.flush(limit);
        let open = self.completer.open();
        self.completer.close();
        if let Some(neighbours) = &self.with.neighbours {
            neighbours.bell.close();
        }
        self.closing.tell();
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

/// Starts what listens to the bell and what looks after claims.
fn start_steward(
    with: &With,
    manner: Manner,
    progress: &Arc<Progress>,
    crowd: &Arc<Crowd>,
    closing: &Arc<Notice>,
    threads: &mut Vec<JoinHandle<()>>,
) -> Result<()> {
    let Some(neighbours) = &with.neighbours else {
        return Ok(());
    };
    let bell = Arc::clone(&neighbours.bell);
    let rung = Arc::clone(progress);
    threads.push(spawn("bell".to_owned(), move || {
        bell.listen(|shard| rung.nudge(shard));
    })?);
    let steward = Steward {
        claims: Arc::clone(&with.store) as Arc<_>,
        shards: with.store.shard_count(),
        runner: with.runner,
        store: neighbours.store.clone(),
        runners: neighbours.runners.clone(),
        lease: manner.lease,
        crowd: Arc::clone(crowd),
        clock: Arc::clone(&with.clock),
        sink: Arc::clone(&with.sink),
    };
    steward.count();
    steward.recover();
    let progress = Arc::clone(progress);
    let closing = Arc::clone(closing);
    let clock = Arc::clone(&with.clock);
    let third: Duration = Duration::from(manner.lease) / 3;
    let heartbeat = manner.pace.heartbeat;
    // Seen here and not in the thread: a run may be over before its threads have begun.
    let open = closing.seen();
    threads.push(spawn("steward".to_owned(), move || {
        let mut renewed = clock.monotonic();
        loop {
            closing.wait(open, heartbeat);
            if closing.seen() != open {
                return;
            }
            let due = clock.monotonic().saturating_sub(renewed) >= third;
            if due {
                renewed = clock.monotonic();
                steward.renew();
            }
            steward.count();
            // A lock that can be taken tells at once; a runner without one only by its leases.
            if due || steward.sees_dead() {
                steward
                    .recover()
                    .into_iter()
                    .for_each(|shard| progress.nudge(shard));
            }
        }
    })?);
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
