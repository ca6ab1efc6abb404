//! An engine in this process, on a store and with an executor of our choice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairq::ambient::Clock;
use fairq::cache::Counters;
use fairq::crew::executor::{Executor, Force, Outcome, Process, Ran, Seat};
use fairq::engine::{Engine, Manner, Neighbours, With};
use fairq::event::Sink;
use fairq::model::{Captured, Claim, Ending, RunnerId, Span};
use fairq::planner::Pick;
use fairq::refiller::Pace;
use fairq::store::Store;

use super::kit::Any;
use super::proc;

/// How long the end of an engine may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is told of each step that is run.
type Tell = Arc<dyn Fn() + Send + Sync>;

/// Runs steps by doing nothing.
pub(crate) struct Nothing {
    clock: Arc<dyn Clock>,
    tell: Tell,
}

impl Nothing {
    pub(crate) fn telling(
        clock: &Arc<dyn Clock>,
        tell: impl Fn() + Send + Sync + 'static,
    ) -> Arc<dyn Executor> {
        Arc::new(Self {
            clock: Arc::clone(clock),
            tell: Arc::new(tell),
        })
    }
}

impl Executor for Nothing {
    fn seat(&self, _: u32) -> Box<dyn Seat> {
        Box::new(NothingSeat(Arc::clone(&self.clock), Arc::clone(&self.tell)))
    }
}

struct NothingSeat(Arc<dyn Clock>, Tell);

impl Seat for NothingSeat {
    fn run(&mut self, _: &Claim, started: &mut dyn FnMut(Arc<dyn Process>)) -> Ran {
        started(Arc::new(Gone));
        (self.1)();
        let now = self.0.now();
        Ran::Ended(Outcome {
            ending: Ending::Exited { code: 0 },
            started: Some(now),
            ended: now,
            stdout: Captured::Empty,
            stderr: Captured::Empty,
        })
    }
}

/// A process that has ended already.
struct Gone;

impl Process for Gone {
    fn end(&self, _: Force) -> bool {
        false
    }

    fn signal(&self, _: i32) -> bool {
        false
    }

    fn trim(&self) {}

    fn pid(&self) -> u32 {
        0
    }
}

/// What an engine is to do.
pub(crate) struct Job {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) workers: usize,
    pub(crate) runner: RunnerId,
    pub(crate) neighbours: Option<Neighbours>,
}

/// What it came to.
#[derive(Debug)]
pub(crate) struct Done {
    /// How many steps ended.
    pub(crate) steps: u64,
    /// From the first to the last of them, start of the engine included.
    pub(crate) took: Duration,
    pub(crate) cache: Counters,
    pub(crate) won: u64,
    pub(crate) lost: u64,
    /// What each kind of thread has spent on a processor.
    pub(crate) spent: BTreeMap<String, Duration>,
}

impl Job {
    /// Starts an engine.
    pub(crate) fn start(self, clock: &Arc<dyn Clock>) -> Any<Engine> {
        let with = With {
            store: self.store,
            executor: self.executor,
            runner: self.runner,
            neighbours: self.neighbours,
            clock: Arc::clone(clock),
            sink: self.sink,
        };
        let manner = Manner {
            workers: self.workers,
            pick: Pick::Stride,
            seed: 1,
            pace: Pace {
                heartbeat: Duration::from_secs(1),
                min_gap: Duration::ZERO,
            },
            lease: Span::from_millis(60_000),
            keep: None,
        };
        Ok(Engine::start(with, manner)?)
    }

    /// Runs until nothing is left to do.
    pub(crate) fn drain(self, clock: &Arc<dyn Clock>) -> Any<Done> {
        self.until(clock, Engine::is_drained)
    }

    /// Runs until so many steps were run, as `count` says.
    pub(crate) fn upto(self, clock: &Arc<dyn Clock>, count: &AtomicU64, enough: u64) -> Any<Done> {
        let done = self.until(clock, |_| Ok(count.load(Ordering::Relaxed) >= enough))?;
        Ok(done)
    }

    fn until(
        self,
        clock: &Arc<dyn Clock>,
        is_over: impl Fn(&Engine) -> fairq::error::Result<bool>,
    ) -> Any<Done> {
        let store = Arc::clone(&self.store);
        let before = proc::spent(std::process::id())?;
        let began = clock.monotonic();
        let engine = self.start(clock)?;
        loop {
            let seen = engine.notice().seen();
            if is_over(&engine)? {
                break;
            }
            engine.notice().wait(seen, Duration::from_millis(100));
        }
        let took = clock.monotonic() - began;
        let after = proc::spent(std::process::id())?;
        let mut done = stop(&engine)?;
        drop(engine);
        wait_until_alone(&store);
        done.took = took;
        done.spent = proc::between(&before, &after);
        Ok(done)
    }
}

/// Waits until nobody else has the store: whoever wrote the last outcome may be about to let it go. It
/// is to be closed by us, for a writer cannot wait for its own end.
pub(crate) fn wait_until_alone<S: ?Sized>(store: &Arc<S>) {
    while Arc::strong_count(store) > 1 {
        std::thread::yield_now();
    }
}

/// Stops an engine and returns what it has done.
pub(crate) fn stop(engine: &Engine) -> Any<Done> {
    engine.drain();
    if !engine.wait(PATIENCE) || engine.finish(PATIENCE) > 0 {
        return Err("the engine did not come to its end".into());
    }
    let (tally, crew) = (engine.tally(), engine.crew());
    if tally.failed + tally.retried > 0 {
        return Err("a step did not succeed".into());
    }
    Ok(Done {
        steps: tally.succeeded,
        took: Duration::ZERO,
        cache: engine.cache().counters,
        won: crew.claims_won,
        lost: crew.claims_lost,
        spent: BTreeMap::new(),
    })
}
