//! The whole engine on a store in memory, with an executor that starts no process.
//!
//! What is tested here is how the stages work together, also when the store does not: the three ways
//! in which a cycle can fail, claims that cannot be written, outcomes that cannot be recorded.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail the test that called them, and one executor panics on purpose"
)]

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

/// Which calls fail now.
#[derive(Debug, Default)]
struct Faults {
    tally: AtomicBool,
    fetch: AtomicBool,
    claim: AtomicBool,
    settle: AtomicBool,
    failed: AtomicUsize,
}

impl Faults {
    fn strike(&self, fault: &AtomicBool) -> Result<()> {
        if fault.load(Ordering::SeqCst) {
            self.failed.fetch_add(1, Ordering::SeqCst);
            return Err(Error::new(ErrorKind::Unavailable, "a fault of the test"));
        }
        Ok(())
    }
}

/// A store in memory whose shard 0 fails on demand.
struct Frail {
    store: MemoryStore,
    faults: Faults,
}

impl Frail {
    fn strike(&self, shard: ShardId, fault: &AtomicBool) -> Result<()> {
        if shard.number() == 0 {
            self.faults.strike(fault)
        } else {
            Ok(())
        }
    }
}

impl Intake for Frail {
    fn enqueue(&self, steps: &[NewStep], now: Timestamp) -> Result<Vec<StepId>> {
        self.store.enqueue(steps, now)
    }
    fn place(&self, key: &FairnessKey) -> ShardId {
        self.store.place(key)
    }
}

impl Supply for Frail {
    fn promote(&self, shard: ShardId, now: Timestamp) -> Result<Option<Timestamp>> {
        self.store.promote(shard, now)
    }
    fn version(&self, shard: ShardId) -> Result<u64> {
        self.strike(shard, &self.faults.tally)?;
        self.store.version(shard)
    }
    fn tally(&self, shard: ShardId) -> Result<ShardTally> {
        self.store.tally(shard)
    }
    fn fetch(&self, shard: ShardId, band: Band, wants: &[Want]) -> Result<Vec<Vec<LocalId>>> {
        self.strike(shard, &self.faults.fetch)?;
        self.store.fetch(shard, band, wants)
    }
}

impl Claims for Frail {
    fn claim(
        &self,
        shard: ShardId,
        candidates: &[Candidate],
        lease: Lease,
        now: Timestamp,
    ) -> Result<Vec<Option<Claim>>> {
        self.strike(shard, &self.faults.claim)?;
        self.store.claim(shard, candidates, lease, now)
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
}

impl Settle for Frail {
    fn settle(&self, shard: ShardId, settlements: Arc<[Settlement]>, after: AfterSettle) {
        match self.strike(shard, &self.faults.settle) {
            Ok(()) => self.store.settle(shard, settlements, after),
            Err(error) => after(Err(error)),
        }
    }
}

impl Read for Frail {
    fn get(&self, id: StepId) -> Result<Option<StepView>> {
        self.store.get(id)
    }
    fn list(&self, filter: &Filter) -> Result<Vec<StepView>> {
        self.store.list(filter)
    }
    fn attempts(&self, id: StepId) -> Result<Vec<Attempt>> {
        self.store.attempts(id)
    }
    fn output(&self, id: StepId, fence: u32, stream: Stream) -> Result<Option<Output>> {
        self.store.output(id, fence, stream)
    }
    fn tally_at(&self, shard: ShardId, band: Band) -> Result<Vec<Tally>> {
        self.store.tally_at(shard, band)
    }
    fn ahead(&self, id: StepId, band: Band, key: &FairnessKey, most: u32) -> Result<u32> {
        self.store.ahead(id, band, key, most)
    }
    fn counts(&self, shard: ShardId) -> Result<ShardCounts> {
        self.store.counts(shard)
    }
    fn dispatches(
        &self,
        shard: ShardId,
        window: Window,
        each: &mut dyn FnMut(Dispatch),
    ) -> Result<()> {
        self.store.dispatches(shard, window, each)
    }
    fn arrivals(
        &self,
        shard: ShardId,
        after: LocalId,
        since: Timestamp,
        limit: usize,
    ) -> Result<Vec<Arrival>> {
        self.store.arrivals(shard, after, since, limit)
    }
}

impl Store for Frail {
    fn shard_count(&self) -> u8 {
        self.store.shard_count()
    }
}

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

#[test]
fn every_step_runs_once_on_any_crew() {
    for (shards, workers) in [(1, 1), (4, 8), (3, 32)] {
        let mut works = Works::new(shards);
        let ids = works.put("true", 2_000);
        works.start(workers);
        works.wait_until_drained();
        works.stop();
        works.assert_each_ran_once_and_succeeded(&ids);
        assert_eq!(
            works.engine().crew().claims_lost,
            0,
            "our own hints were stale"
        );
    }
}

/// A shard that cannot be looked at takes no part; the others go on, and it comes back by itself.
#[test]
fn a_shard_that_cannot_be_read_withdraws_and_returns() {
    let mut works = Works::new(2);
    works.store.faults.tally.store(true, Ordering::SeqCst);
    let ids = works.put("true", 100);
    works.start(4);
    works.heard.wait_for(
        "the withdrawal",
        |event| matches!(event, Event::ShardWithdrawn { shard, .. } if shard.number() == 0),
    );
    let told = works.engine().shards();
    let error = told[0].error.as_deref().unwrap_or_default();
    assert!(error.contains("a fault of the test"), "{error}");
    assert_eq!((told[1].error.as_deref(), told[1].blind), (None, 0));
    let others: Vec<StepId> = ids
        .iter()
        .copied()
        .filter(|id| id.shard.number() == 1)
        .collect();
    for id in &others {
        let id = *id;
        works.heard.wait_for(
            "a step of the good shard",
            move |event| matches!(event, Event::Settled { id: ended, .. } if *ended == id),
        );
    }
    assert!(
        ids.iter()
            .all(|id| id.shard.number() == 1 || works.state(*id) == StepState::Ready)
    );
    works.store.faults.tally.store(false, Ordering::SeqCst);
    works.wait_until_drained();
    let told = works.engine().shards();
    assert!(told[0].error.is_none() && told[0].blind > 0);
    works.stop();
    works.assert_each_ran_once_and_succeeded(&ids);
}

#[test]
fn a_fetch_that_fails_is_made_again_by_the_next_cycle() {
    let mut works = Works::new(1);
    works.store.faults.fetch.store(true, Ordering::SeqCst);
    let ids = works.put("true", 10);
    works.start(2);
    let until = works.clock.monotonic() + DEADLINE;
    while works.store.faults.failed.load(Ordering::SeqCst) < 3 {
        assert!(works.clock.monotonic() < until);
        let notice = works.engine().notice();
        notice.wait(notice.seen(), Duration::from_millis(5));
    }
    assert!(works.times_run().is_empty());
    // The third failure may be of a turn that is not over yet.
    assert!(works.engine().shards()[0].unfetched >= 2);
    works.store.faults.fetch.store(false, Ordering::SeqCst);
    works.wait_until_drained();
    works.stop();
    works.assert_each_ran_once_and_succeeded(&ids);
}

/// A shard that can be read and not written would be planned, fetched and refused without end.
#[test]
fn a_shard_that_cannot_be_written_rests_instead_of_spinning() {
    let mut works = Works::new(1);
    works.store.faults.claim.store(true, Ordering::SeqCst);
    let ids = works.put("true", 50);
    works.start(4);
    works.heard.wait_for("the withdrawal", |event| {
        matches!(event, Event::ShardWithdrawn { .. })
    });
    // At most what the cache held when the first claim failed, and one more filling of it.
    let refused = works.store.faults.failed.load(Ordering::SeqCst);
    assert!(
        refused <= 16,
        "{refused} claims were tried on a shard that rests"
    );
    works.store.faults.claim.store(false, Ordering::SeqCst);
    works.wait_until_drained();
    works.stop();
    works.assert_each_ran_once_and_succeeded(&ids);
}

/// The write is repeated, the work is not.
#[test]
fn an_outcome_that_cannot_be_recorded_is_kept_and_written_again() {
    let mut works = Works::new(1);
    works.store.faults.settle.store(true, Ordering::SeqCst);
    let ids = works.put("true", 5);
    works.start(2);
    works.heard.wait_for("a delayed settlement", |event| {
        matches!(event, Event::SettleDelayed { .. })
    });
    works.store.faults.settle.store(false, Ordering::SeqCst);
    works.wait_until_drained();
    works.stop();
    works.assert_each_ran_once_and_succeeded(&ids);
}

#[test]
fn a_panic_in_one_step_costs_that_step_and_no_worker() {
    let mut works = Works::new(1);
    let bad = works.put("panic", 3);
    let good = works.put("true", 20);
    works.start(1);
    works.wait_until_drained();
    works.stop();
    works.assert_each_ran_once_and_succeeded(&good);
    for id in bad {
        assert_eq!(works.state(id), StepState::Failed);
        let attempts = works.store.attempts(id).unwrap();
        assert!(
            matches!(attempts[0].ending, Ending::Unstarted { .. }),
            "{attempts:?}"
        );
    }
}

/// A step does not pay for our shutdown: it goes back as it was, its try not counted.
#[test]
fn ended_steps_are_put_back_uncounted() {
    let mut works = Works::new(1);
    let ids = works.put("hang", 2);
    works.start(2);
    {
        let (count, more) = &*works.notes.hanging;
        let hanging = count.lock().unwrap();
        let (_hanging, late) = more
            .wait_timeout_while(hanging, DEADLINE, |hanging| *hanging < 2)
            .unwrap();
        assert!(!late.timed_out());
    }
    works.engine().drain();
    assert!(!works.engine().wait(Duration::ZERO));
    works.engine().end_steps(Force::Term);
    works.stop();
    for id in ids {
        let step = works.store.get(id).unwrap().unwrap();
        assert_eq!(
            (step.state, step.attempt, step.fence),
            (StepState::Ready, 0, 1)
        );
    }
}

#[test]
fn the_crew_grows_and_shrinks_while_it_works() {
    let mut works = Works::new(2);
    let ids = works.put("true", 3_000);
    works.start(1);
    for workers in [6, 2, 0, 4] {
        works.engine().resize(workers);
        assert_eq!(works.engine().crew().workers, workers);
    }
    works.wait_until_drained();
    assert!(works.engine().crew().resident <= 4);
    works.stop();
    works.assert_each_ran_once_and_succeeded(&ids);
}

/// A runner's first plans are made on all shards, not on those that happened to be faster: the only
/// urgent step is on the last of many, and is the first to run.
#[test]
fn the_first_step_of_a_run_is_one_of_the_best_band() {
    for _ in 0..20 {
        let mut works = Works::new(8);
        let mut ids = works.put("true", 7);
        ids.extend(works.put_at("true", 1, Band::new(0).unwrap()));
        works.start(1);
        works.wait_until_drained();
        works.stop();
        let first = works.notes.ran.lock().unwrap()[0];
        assert_eq!(works.store.get(first).unwrap().unwrap().band.get(), 0);
        works.assert_each_ran_once_and_succeeded(&ids);
    }
}
