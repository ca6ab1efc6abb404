use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fairq::ambient::{Clock, SystemClock};
use fairq::crew::executor::{Executor, Force, Outcome, Process, Ran, Seat};
use fairq::engine::{Engine, Manner, With};
use fairq::error::{Error, ErrorKind, Result};
use fairq::event::{Event, Sink};
use fairq::model::{
    Band, Candidate, Captured, Claim, Command, Due, Ending, Environment, FairnessKey, LocalId,
    LostRun, NewStep, Policy, RunnerId, Settlement, ShardId, Span, StepId, StepState, Stream,
    Timestamp, Weight,
};
use fairq::planner::Pick;
use fairq::refiller::Pace;
use fairq::stats::{Dispatch, Window};
use fairq::store::memory::MemoryStore;
use fairq::store::placement::Placement;
use fairq::store::{
    AfterSettle, Arrival, Attempt, Claims, Filter, Intake, Lease, Output, Read, Settle,
    ShardCounts, StepView, Store, Supply, Want,
};
use fairq::tally::{ShardTally, Tally};

/// No test waits longer for a fact.
const DEADLINE: Duration = Duration::from_secs(60);

/// Runs steps by noting them; a step whose line is `panic` panics, `hang` runs until it is ended.
#[derive(Default)]
struct Notes {
    ran: Mutex<Vec<StepId>>,
    hanging: Arc<(Mutex<usize>, std::sync::Condvar)>,
}

struct NotesExecutor(Arc<Notes>);

impl Executor for NotesExecutor {
    fn seat(&self, _: u32) -> Box<dyn Seat> {
        Box::new(NotesSeat(Arc::clone(&self.0)))
    }
}

struct NotesSeat(Arc<Notes>);

struct Hanging(Arc<(Mutex<usize>, std::sync::Condvar)>, AtomicBool);

impl Process for Hanging {
    fn end(&self, _: Force) -> bool {
        let _guard = self.0.0.lock().unwrap();
        self.1.store(true, Ordering::SeqCst);
        self.0.1.notify_all();
        true
    }
    fn pid(&self) -> u32 {
        1
    }
}

impl Seat for NotesSeat {
    fn run(&mut self, claim: &Claim, started: &mut dyn FnMut(Arc<dyn Process>)) -> Ran {
        self.0.ran.lock().unwrap().push(claim.id);
        let mut ending = Ending::Exited { code: 0 };
        match &claim.command {
            Command::Shell(line) if line == "panic" => {
                panic!("a step of the test panics")
            }
            Command::Shell(line) if line == "hang" => {
                let hanging =
                    Arc::new(Hanging(Arc::clone(&self.0.hanging), AtomicBool::new(false)));
                started(Arc::clone(&hanging) as Arc<dyn Process>);
                let mut count = hanging.0.0.lock().unwrap();
                *count += 1;
                hanging.0.1.notify_all();
                while !hanging.1.load(Ordering::SeqCst) {
                    count = hanging.0.1.wait(count).unwrap();
                }
                ending = Ending::Signalled { signal: 15 };
            }
            Command::Shell(_) | Command::Argv(_) => {}
        }
        Ran::Ended(Outcome {
            ending,
            started: Some(claim.claimed),
            ended: claim.claimed,
            stdout: Captured::Empty,
            stderr: Captured::Empty,
        })
    }
}

/// Keeps all events, and lets a test wait for one.
#[derive(Default)]
struct Heard {
    events: Mutex<Vec<Event>>,
    more: std::sync::Condvar,
}

impl Sink for Heard {
    fn emit(&self, _: Timestamp, event: &Event) {
        self.events.lock().unwrap().push(event.clone());
        self.more.notify_all();
    }
}

impl Heard {
    fn wait_for(&self, what: &str, fits: impl Fn(&Event) -> bool) {
        let events = self.events.lock().unwrap();
        let (events, late) = self
            .more
            .wait_timeout_while(events, DEADLINE, |events| !events.iter().any(&fits))
            .unwrap();
        let heard: Vec<String> = events.iter().map(ToString::to_string).collect();
        assert!(
            !late.timed_out(),
            "never heard: {what}; heard:\n{}",
            heard.join("\n")
        );
    }
}

/// An engine at work, and what it is made of.
struct Works {
    store: Arc<Frail>,
    notes: Arc<Notes>,
    heard: Arc<Heard>,
    clock: Arc<dyn Clock>,
    engine: Option<Engine>,
}

impl Works {
    fn new(shards: u8) -> Self {
        let store = MemoryStore::new(shards, Placement::Spread);
        Self {
            store: Arc::new(Frail {
                store,
                faults: Faults::default(),
            }),
            notes: Arc::default(),
            heard: Arc::default(),
            clock: Arc::new(SystemClock::new()),
            engine: None,
        }
    }

    fn put(&self, line: &str, count: usize) -> Vec<StepId> {
        self.put_at(line, count, Band::DEFAULT)
    }

    fn put_at(&self, line: &str, count: usize, band: Band) -> Vec<StepId> {
        let step = NewStep {
            command: Command::Shell(line.into()),
            cwd: "/".into(),
            env: Arc::new(Environment::default()),
            band,
            key: FairnessKey::default(),
            weight: Weight::ONE,
            name: None,
            tags: Vec::new(),
            due: Due::Now,
            policy: Policy::default(),
        };
        self.store
            .enqueue(&vec![step; count], self.clock.now())
            .unwrap()
    }

    fn start(&mut self, workers: usize) {
        let with = With {
            store: Arc::clone(&self.store) as Arc<_>,
            executor: Arc::new(NotesExecutor(Arc::clone(&self.notes))),
            runner: RunnerId::new(5),
            neighbours: None,
            clock: Arc::clone(&self.clock),
            sink: Arc::clone(&self.heard) as Arc<_>,
        };
        let manner = Manner {
            workers,
            pick: Pick::Stride,
            seed: 1,
            pace: Pace {
                heartbeat: Duration::from_millis(20),
                min_gap: Duration::ZERO,
            },
            lease: Span::from_millis(60_000),
        };
        self.engine = Some(Engine::start(with, manner).unwrap());
    }

    fn engine(&self) -> &Engine {
        self.engine.as_ref().unwrap()
    }

    fn wait_until_drained(&self) {
        let until = self.clock.monotonic() + DEADLINE;
        loop {
            let seen = self.engine().notice().seen();
            if self.engine().is_drained().unwrap() {
                return;
            }
            assert!(
                self.clock.monotonic() < until,
                "not drained: {:?}",
                self.engine().crew()
            );
            self.engine().notice().wait(seen, Duration::from_millis(50));
        }
    }

    fn stop(&self) {
        self.engine().drain();
        assert!(self.engine().wait(DEADLINE), "workers did not leave");
        assert_eq!(self.engine().finish(DEADLINE), 0, "outcomes were left open");
    }

    fn times_run(&self) -> BTreeMap<StepId, usize> {
        let mut times = BTreeMap::new();
        for id in self.notes.ran.lock().unwrap().iter() {
            *times.entry(*id).or_default() += 1;
        }
        times
    }

    fn state(&self, id: StepId) -> StepState {
        self.store.get(id).unwrap().unwrap().state
    }

    fn assert_each_ran_once_and_succeeded(&self, ids: &[StepId]) {
        let times = self.times_run();
        for id in ids {
            assert_eq!(times.get(id), Some(&1), "{id}");
            assert_eq!(self.state(*id), StepState::Succeeded, "{id}");
        }
    }
}

