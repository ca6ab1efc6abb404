//! An engine at work on a frail store, with an executor that starts no process.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use fairq::ambient::{Clock, SystemClock};
use fairq::crew::executor::{Executor, Force, Outcome, Process, Ran, Seat};
use fairq::engine::{Engine, Manner, With};
use fairq::event::{Event, Sink};
use fairq::model::{
    Band, Captured, Claim, Command, Due, Ending, Environment, FairnessKey, NewStep, Policy,
    RunnerId, Span, StepId, StepState, Timestamp, Weight,
};
use fairq::planner::Pick;
use fairq::refiller::Pace;
use fairq::store::memory::MemoryStore;
use fairq::store::placement::Placement;
use fairq::store::{Intake as _, Read as _};

use crate::frail::Frail;

/// No test waits longer for a fact.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Longer than any test: what waits for such a heartbeat waits for ever.
pub(crate) const NEVER: Duration = Duration::from_secs(3_600);

/// Runs steps by noting them, as their line says:
///
/// * `panic` panics;
/// * `hang` runs until it is asked to end, and dies of that;
/// * `polite` does, too, and returns 0;
/// * `deaf` runs until it is killed;
/// * `short of` cannot be started while [`Notes::short`] says so;
/// * `fail N` returns N; everything else returns 0.
#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) ran: Mutex<Vec<StepId>>,
    /// How many run that wait for something.
    pub(crate) hanging: Watched<usize>,
    pub(crate) short: Watched<bool>,
    /// How often a step could not be started.
    pub(crate) refused: Watched<usize>,
}

/// A value that can be waited for.
#[derive(Debug, Default)]
pub(crate) struct Watched<T>(Mutex<T>, Condvar);

impl<T> Watched<T> {
    pub(crate) fn change(&self, with: impl FnOnce(&mut T)) {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
        self.1.notify_all();
    }

    pub(crate) fn wait_for(&self, is_so: impl Fn(&T) -> bool) {
        let value = self.0.lock().unwrap();
        let (value, late) = self
            .1
            .wait_timeout_while(value, DEADLINE, |value| !is_so(value))
            .unwrap();
        drop(value);
        assert!(!late.timed_out(), "what was waited for did not come");
    }
}

impl<T: Copy> Watched<T> {
    pub(crate) fn get(&self) -> T {
        *self.0.lock().unwrap()
    }
}

pub(crate) struct NotesExecutor(pub(crate) Arc<Notes>);

impl Executor for NotesExecutor {
    fn seat(&self, _: u32) -> Box<dyn Seat> {
        Box::new(NotesSeat(Arc::clone(&self.0)))
    }
}

struct NotesSeat(Arc<Notes>);

/// What was sent to a process, and whether it is there to take it.
#[derive(Default)]
struct Mail {
    over: bool,
    asked: usize,
    killed: usize,
    signals: Vec<i32>,
}

#[derive(Default)]
struct Fake(Watched<Mail>);

impl Fake {
    fn send(&self, with: impl FnOnce(&mut Mail)) -> bool {
        let mut there = false;
        self.0.change(|mail| {
            there = !mail.over;
            if there {
                with(mail);
            }
        });
        there
    }
}

impl Process for Fake {
    fn end(&self, force: Force) -> bool {
        self.send(|mail| match force {
            Force::Ask => mail.asked += 1,
            Force::Kill => mail.killed += 1,
        })
    }
    fn signal(&self, number: i32) -> bool {
        self.send(|mail| mail.signals.push(number))
    }
    fn trim(&self) {}
    fn pid(&self) -> u32 {
        1
    }
}

impl NotesSeat {
    /// Runs until something comes that ends it.
    fn hang(
        &self,
        started: &mut dyn FnMut(Arc<dyn Process>),
        ends: impl Fn(&Mail) -> bool,
    ) -> Ending {
        let fake = Arc::new(Fake::default());
        started(Arc::clone(&fake) as Arc<dyn Process>);
        self.0.hanging.change(|count| *count += 1);
        fake.0.wait_for(ends);
        let mut ending = Ending::Signalled { signal: 15 };
        fake.0.change(|mail| {
            mail.over = true;
            if mail.killed > 0 {
                ending = Ending::Signalled { signal: 9 };
            } else if let Some(signal) = mail.signals.first() {
                ending = Ending::Signalled { signal: *signal };
            }
        });
        self.0.hanging.change(|count| *count -= 1);
        ending
    }
}

impl Seat for NotesSeat {
    fn run(&mut self, claim: &Claim, started: &mut dyn FnMut(Arc<dyn Process>)) -> Ran {
        let Command::Shell(line) = &claim.command else {
            unreachable!("steps of this test are shell lines")
        };
        let line = line.to_str().unwrap();
        if line == "short of" && self.0.short.get() {
            self.0.refused.change(|count| *count += 1);
            return Ran::NotNow("short of something".to_owned());
        }
        self.0.ran.lock().unwrap().push(claim.id);
        if line == "true" {
            // Known to the crew, and over before anybody could do anything to it.
            let fake = Fake::default();
            fake.0.change(|mail| mail.over = true);
            started(Arc::new(fake));
        }
        let ending = match line {
            "panic" => panic!("a step of the test panics"),
            "hang" => self.hang(started, |mail| {
                mail.asked + mail.killed + mail.signals.len() > 0
            }),
            "deaf" => self.hang(started, |mail| mail.killed > 0),
            "polite" => {
                self.hang(started, |mail| mail.asked > 0);
                Ending::Exited { code: 0 }
            }
            line => Ending::Exited {
                code: line
                    .strip_prefix("fail ")
                    .map_or(0, |code| code.parse().unwrap()),
            },
        };
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
pub(crate) struct Heard {
    events: Mutex<Vec<Event>>,
    more: Condvar,
}

impl Sink for Heard {
    fn emit(&self, _: Timestamp, event: &Event) {
        self.events.lock().unwrap().push(event.clone());
        self.more.notify_all();
    }
}

impl Heard {
    pub(crate) fn wait_for(&self, what: &str, fits: impl Fn(&Event) -> bool) {
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

    pub(crate) fn count(&self, fits: impl Fn(&Event) -> bool) -> usize {
        let events = self.events.lock().unwrap();
        events.iter().filter(|event| fits(event)).count()
    }
}

/// An engine at work, and what it is made of.
pub(crate) struct Works {
    pub(crate) store: Arc<Frail>,
    pub(crate) notes: Arc<Notes>,
    pub(crate) heard: Arc<Heard>,
    pub(crate) clock: Arc<dyn Clock>,
    heartbeat: Duration,
    engine: Option<Engine>,
}

impl Works {
    pub(crate) fn new(shards: u8) -> Self {
        Self {
            store: Arc::new(Frail::new(MemoryStore::new(shards, Placement::Spread))),
            notes: Arc::default(),
            heard: Arc::default(),
            clock: Arc::new(SystemClock::new()),
            heartbeat: Duration::from_millis(20),
            engine: None,
        }
    }

    /// Returns one in which nothing happens by itself.
    pub(crate) fn without_heartbeat(shards: u8) -> Self {
        Self::with_heartbeat(shards, NEVER)
    }

    pub(crate) fn with_heartbeat(shards: u8, heartbeat: Duration) -> Self {
        Self {
            heartbeat,
            ..Self::new(shards)
        }
    }

    pub(crate) fn step(line: &str) -> NewStep {
        NewStep {
            command: Command::Shell(line.into()),
            cwd: "/".into(),
            env: Arc::new(Environment::default()),
            band: Band::DEFAULT,
            key: FairnessKey::default(),
            weight: Weight::ONE,
            name: None,
            tags: Vec::new(),
            flow: None,
            due: Due::Now,
            after: Vec::new(),
            unique: None,
            policy: Policy::default(),
        }
    }

    pub(crate) fn put(&self, line: &str, count: usize) -> Vec<StepId> {
        self.put_all(&vec![Self::step(line); count])
    }

    pub(crate) fn put_with(&self, line: &str, policy: Policy) -> StepId {
        let step = NewStep {
            policy,
            ..Self::step(line)
        };
        self.put_all(&[step])[0]
    }

    pub(crate) fn put_at(&self, line: &str, count: usize, band: Band) -> Vec<StepId> {
        let step = NewStep {
            band,
            ..Self::step(line)
        };
        self.put_all(&vec![step; count])
    }

    pub(crate) fn put_all(&self, steps: &[NewStep]) -> Vec<StepId> {
        self.store.enqueue(steps, self.clock.now()).unwrap()
    }

    pub(crate) fn start(&mut self, workers: usize) {
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
                heartbeat: self.heartbeat,
                min_gap: Duration::ZERO,
            },
            lease: Span::from_millis(60_000),
            keep: None,
        };
        self.engine = Some(Engine::start(with, manner).unwrap());
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.engine.as_ref().unwrap()
    }

    pub(crate) fn wait_until_drained(&self) {
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

    pub(crate) fn wait_until_settled(&self, id: StepId) {
        self.heard.wait_for(
            "an outcome",
            |event| matches!(event, Event::Settled { id: ended, .. } if *ended == id),
        );
    }

    pub(crate) fn stop(&self) {
        self.engine().drain();
        assert!(self.engine().wait(DEADLINE), "workers did not leave");
        assert_eq!(self.engine().finish(DEADLINE), 0, "outcomes were left open");
    }

    pub(crate) fn times_run(&self) -> BTreeMap<StepId, usize> {
        let mut times = BTreeMap::new();
        for id in self.notes.ran.lock().unwrap().iter() {
            *times.entry(*id).or_default() += 1;
        }
        times
    }

    pub(crate) fn state(&self, id: StepId) -> StepState {
        self.store.get(id).unwrap().unwrap().state
    }

    /// Returns how the tries of a step ended, first to last.
    pub(crate) fn endings(&self, id: StepId) -> Vec<Ending> {
        let attempts = self.store.attempts(id).unwrap();
        attempts.into_iter().map(|attempt| attempt.ending).collect()
    }

    /// Wishes that a claim ends.
    pub(crate) fn wish(&self, id: StepId, fence: u32) {
        self.store.news.wishes.lock().unwrap().insert((id, fence));
    }

    pub(crate) fn grants(&self) -> usize {
        self.store.news.grants.load(Ordering::SeqCst)
    }

    pub(crate) fn assert_each_ran_once_and_succeeded(&self, ids: &[StepId]) {
        let times = self.times_run();
        for id in ids {
            assert_eq!(times.get(id), Some(&1), "{id}");
            assert_eq!(self.state(*id), StepState::Succeeded, "{id}");
        }
    }
}
