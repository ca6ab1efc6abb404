//! One shard's cycle: look, report, plan, fetch, push. Over and over, on its own clock.
//!
//! Three outcomes are kept apart, and nothing else happens:
//!
//! * it could not look: the shard is cleared from planning, its candidates are **left alone**;
//! * it looked and could not fetch: the report stands, nothing is pushed;
//! * it looked and there is nothing for it to do: its candidates are replaced by nothing.
//!
//! A cycle never fails towards its caller: the next cycle is the retry. No shard waits for another.

mod crowd;
mod progress;
mod status;
mod wake;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::ambient::Clock;
use crate::cache::CandidateCache;
use crate::error::{Error, ErrorKind};
use crate::event::{Decided, Event, Sink};
use crate::model::{Band, Candidate, FairnessKey, LocalId, ShardId, StepId, Timestamp};
use crate::planner::{Plan, Planner};
use crate::store::{Known, Supply, Want};
use crate::tally::ShardTally;

use self::crowd::Chooser;
use self::status::Watch;

pub use crowd::Crowd;
pub use progress::Progress;
pub use status::{ShardStatus, StatusBoard};
pub use wake::{Wake, Woken};

/// How fast a refiller turns.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// It turns at least so often, whether anybody rings or not: the bell is the speed, this is the
    /// guarantee.
    pub heartbeat: Duration,
    /// From the end of a turn to the next, at least.
    pub min_gap: Duration,
}

/// What all refillers of a process share.
#[derive(Clone)]
pub struct Shared {
    /// What the shards are asked.
    pub supply: Arc<dyn Supply>,
    /// The one planner.
    pub planner: Arc<Planner>,
    /// The one cache.
    pub cache: Arc<CandidateCache>,
    /// Who must turn when.
    pub progress: Arc<Progress>,
    /// Who else takes steps from this store.
    pub crowd: Arc<Crowd>,
    /// What they have done, for people.
    pub status: Arc<StatusBoard>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Where events go.
    pub sink: Arc<dyn Sink>,
    /// Told when the time of steps has come: some may wait for something else now. Must not block.
    pub promoted: Arc<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// What one turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The shard could not be read.
    Blind,
    /// It was read, but the planned steps could not be fetched.
    Unfetched,
    /// This shard has nothing to run now.
    Nothing,
    /// So many candidates were pushed.
    Pushed(usize),
}

/// The steps that were found for a plan: each key's oldest first.
#[derive(Debug, Default)]
pub struct Found(BTreeMap<FairnessKey, std::vec::IntoIter<LocalId>>);

/// Drives one shard.
#[derive(Debug)]
pub struct Refiller {
    shard: ShardId,
    with: Shared,
    wake: Arc<Wake>,
    pace: Pace,
    /// The last report and what is known with it.
    seen: Option<(Known, Arc<ShardTally>)>,
    /// Whether a look saw something new since the others were last told.
    fresh: bool,
    next_due: Option<Timestamp>,
    /// How many turns in a row could not look.
    blind: u32,
    chooser: Chooser,
}

impl Refiller {
    /// Returns the refiller of one shard; it does nothing before it is told to.
    pub fn new(shard: ShardId, with: Shared, pace: Pace) -> Self {
        let wake = with.progress.wake(shard);
        Self {
            shard,
            with,
            wake,
            pace,
            seen: None,
            fresh: false,
            next_due: None,
            blind: 0,
            chooser: Chooser::default(),
        }
    }

    /// Turns until the bell is closed.
    pub fn serve(&mut self) {
        loop {
            match self.wake.sleep(self.pause()) {
                Woken::Closed => return,
                Woken::Nudge | Woken::Time => {}
            }
            self.cycle();
            self.rest();
        }
    }

    /// Keeps still for a moment after a turn, whoever rings.
    pub fn rest(&self) {
        if !self.pace.min_gap.is_zero() {
            self.wake.suspend(self.pace.min_gap);
        }
    }

    /// Returns how long it may sleep if nobody rings.
    pub fn pause(&self) -> Duration {
        let until_due = self
            .next_due
            .map(|due| due.since(self.with.clock.now()).into());
        until_due.map_or(self.pace.heartbeat, |due: Duration| {
            due.min(self.pace.heartbeat)
        })
    }

    /// Makes one turn: look, plan, fetch, push. Time may pass between the four, and anything happen.
    pub fn cycle(&mut self) -> Outcome {
        let mut watch = Watch::start(Arc::clone(&self.with.clock));
        let outcome = self.turn(&mut watch);
        self.with.status.turned(self.shard, outcome, watch.phases());
        outcome
    }

    fn turn(&mut self, watch: &mut Watch) -> Outcome {
        let Some(report) = self.look() else {
            return Outcome::Blind;
        };
        watch.tallied();
        let plan = self.plan(report);
        watch.planned();
        let Some(found) = self.fetch(&plan) else {
            return Outcome::Unfetched;
        };
        watch.fetched();
        let outcome = self.push(&plan, found);
        watch.pushed();
        outcome
    }

    /// Looks and reports for the first time, before anybody plans. A runner's first plans would
    /// otherwise be made on the shards that happened to be faster, and a worse band be served, or a
    /// key get more than its part, because of it.
    pub fn introduce(&mut self) {
        let Some(report) = self.look() else {
            let phases = [None; 4];
            self.with.status.turned(self.shard, Outcome::Blind, &phases);
            return;
        };
        self.with.status.saw(self.shard);
        self.with
            .planner
            .tally(self.shard, report, self.with.clock.now());
    }

    /// Reads what is due. `None` if that failed; then the shard is out of planning.
    pub fn look(&mut self) -> Option<Arc<ShardTally>> {
        // Before the look: what was decided until here, the look will show.
        self.with.cache.begin_cycle(self.shard);
        match self.read() {
            Ok(report) => {
                if self.blind > 0 {
                    self.blind = 0;
                    self.emit(&Event::ShardReturned { shard: self.shard });
                }
                Some(report)
            }
            Err(error) => {
                self.withdraw(&error);
                None
            }
        }
    }

    /// Reports what was seen, and plans.
    pub fn plan(&self, report: Arc<ShardTally>) -> Plan {
        let planner = &self.with.planner;
        let before = planner.global_band();
        let own = report.band();
        self.with.status.saw(self.shard);
        planner.tally(self.shard, report, self.with.clock.now());
        let plan = planner.plan(self.shard, self.with.cache.capacity());
        // A shard with nothing due at the global band is not turned by progress: its bell will ring.
        self.with
            .progress
            .planned(self.shard, own.is_some() && own == plan.band);
        self.spread_band(before);
        plan
    }

    /// Promotes and reads, unless nothing can have changed since the last time.
    fn read(&mut self) -> Result<Arc<ShardTally>, Error> {
        let now = self.with.clock.now();
        let known = self.seen.as_ref().map(|(known, _)| *known);
        let look = self.with.supply.look(self.shard, known, now)?;
        let look = match (look, &self.seen) {
            (Some(look), _) => look,
            (None, Some((_, report))) => return Ok(Arc::clone(report)),
            (None, None) => {
                let what = "a shard that was never looked at has nothing new";
                return Err(Error::new(ErrorKind::Internal, what));
            }
        };
        self.fresh = true;
        if self.next_due.is_some_and(|due| due <= now) {
            (self.with.promoted)();
        }
        self.next_due = look.known.next;
        let report = Arc::new(look.tally);
        self.seen = Some((look.known, Arc::clone(&report)));
        Ok(report)
    }

    /// Takes the shard out of planning because it could not look.
    fn withdraw(&mut self, error: &Error) {
        let before = self.with.planner.global_band();
        self.with.planner.clear(self.shard);
        self.with.status.withdrew(self.shard, error);
        self.with.progress.planned(self.shard, false);
        self.spread_band(before);
        self.seen = None;
        self.blind = self.blind.saturating_add(1);
        if self.blind == 1 {
            self.emit(&Event::ShardWithdrawn {
                shard: self.shard,
                error: error.to_string(),
            });
        }
        // Rings must not make it hammer at what is broken.
        self.wake.suspend(self.pace.heartbeat);
    }

    /// Tells the other shards if the band that all serve is another one now: theirs must be emptied,
    /// or may be filled again.
    fn spread_band(&self, before: Option<Band>) {
        if self.with.planner.global_band() != before {
            self.with.progress.nudge_others(self.shard);
        }
    }

    /// Puts the steps that were found for a plan in the place of the shard's candidates; nothing, if
    /// nothing was planned.
    pub fn push(&mut self, plan: &Plan, found: Found) -> Outcome {
        let had = !self.with.cache.is_empty();
        let outcome = self.fill(plan, found);
        if self.with.cache.is_empty() && (had || self.fresh) {
            // The slots went to shards that may be unable to fill them, for what they reported has
            // been taken or claimed since. No take will turn anyone: there is nothing to take. It
            // ends when a round of turns finds nothing new and takes nothing away.
            self.fresh = false;
            self.with.progress.nudge_others(self.shard);
        }
        outcome
    }

    fn fill(&self, plan: &Plan, mut found: Found) -> Outcome {
        let cache = &self.with.cache;
        let Some(band) = plan.band.filter(|_| !plan.slots.is_empty()) else {
            cache.refill(self.shard, Vec::new(), plan.band.unwrap_or(Band::WORST));
            return Outcome::Nothing;
        };
        let mut batch = Vec::with_capacity(plan.slots.len());
        // In the order of the slots, so that the batch keeps the interleave; a key that has become
        // shorter since just gives fewer. Slots whose turn was taken from the window before, while
        // this one was being made, are served already.
        for slot in self.with.planner.unserved(plan) {
            let Some(local) = found.0.get_mut(&slot.key).and_then(Iterator::next) else {
                continue;
            };
            batch.push(Candidate {
                id: StepId::new(self.shard, local),
                band,
                key: slot.key,
                turn: slot.turn,
            });
        }
        let decided = Decided {
            shard: self.shard,
            band,
            seed: plan.seed,
            capacity: self.with.cache.capacity(),
            slots: &batch,
        };
        self.with.sink.decided(self.with.clock.now(), &decided);
        let selected = batch.len();
        let discarded = cache.refill(self.shard, batch, band);
        self.emit(&Event::Refilled {
            shard: self.shard,
            band,
            selected,
            discarded,
        });
        Outcome::Pushed(selected)
    }

    /// Reads the ids of the planned keys, less those that workers hold but have not claimed yet.
    /// `None` if that failed.
    pub fn fetch(&mut self, plan: &Plan) -> Option<Found> {
        let Some(band) = plan.band.filter(|_| !plan.slots.is_empty()) else {
            return Some(Found::default());
        };
        let taken: BTreeSet<LocalId> = self.with.cache.taken_ids(self.shard).into_iter().collect();
        let extra = u32::try_from(taken.len()).unwrap_or(u32::MAX);
        let cap = u32::try_from(plan.per_key_cap).unwrap_or(u32::MAX);
        let count = Chooser::reach(&self.with.crowd, cap.saturating_add(extra));
        let wants: Vec<Want> = plan
            .keys
            .iter()
            .map(|key| Want {
                key: key.clone(),
                count,
            })
            .collect();
        let lists = self.with.supply.fetch(self.shard, band, &wants).ok()?;
        let mut free: Vec<(FairnessKey, Vec<LocalId>)> = wants
            .into_iter()
            .zip(lists)
            .map(|(want, mut ids)| {
                ids.retain(|id| !taken.contains(id));
                (want.key, ids)
            })
            .collect();
        self.chooser.choose(
            &self.with.crowd,
            &mut free,
            self.with.clock.monotonic(),
            self.pace.heartbeat,
        );
        Some(Found(
            free.into_iter()
                .map(|(key, ids)| (key, ids.into_iter()))
                .collect(),
        ))
    }

    fn emit(&self, event: &Event) {
        self.with.sink.emit(self.with.clock.now(), event);
    }
}
