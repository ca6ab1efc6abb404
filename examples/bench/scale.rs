//! A store larger than any disk here: planner, refillers and cache are the real ones, what is due is
//! only counted. It shows what planning costs and how fair it is with 16 shards, each with steps of
//! 10,000 keys, 10^8 in all; a store's own costs are what `store` measures.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fairq::cache::CandidateCache;
use fairq::error::Result;
use fairq::event::NoSink;
use fairq::model::{Band, Candidate, FairnessKey, LocalId, ShardId, Timestamp, Weight};
use fairq::planner::{Pick, Planner};
use fairq::refiller::{Pace, Progress, Refiller, Shared, StatusBoard, Woken};
use fairq::store::{Supply, Want};
use fairq::tally::{ShardTally, Tally};

use super::kit::{Any, Kit, median, millis};
use super::report::Report;

/// How many steps run at once: a machine with 64 processors.
const WORKERS: usize = 64;
/// Of so many keys one has a weight of four.
const HEAVY: usize = 10;
/// After so many takes an urgent step comes.
const URGENT: usize = 997;

pub(crate) fn measure(kit: &Kit, report: &mut Report) -> Any<()> {
    let (shards, keys) = kit.of((4, 50), (16, 10_000));
    let each = kit.of(5, 625);
    let takes = kit.of(200, 20_000);
    let seen = Fleet::new(kit, shards, keys, each)?.run(kit, takes)?;
    let of = format!("{shards} shards x {keys} keys x {each} steps, {WORKERS} workers");
    let plans = seen.turns.len() as f64 / takes as f64;
    report.tell(
        format!("one turn of a shard, {of}"),
        median(&seen.turns),
        "ms",
    );
    // Many turns find nothing new and are cheap; what a step pays for is the mean.
    let all: f64 = seen.turns.iter().sum();
    let mean = all / seen.turns.len().max(1) as f64;
    report.tell(format!("one turn of a shard on average, {of}"), mean, "ms");
    report.tell(format!("turns a step, {of}"), plans, "");
    let most = format!("the most that a key of {keys} had over or under its part of {takes}");
    report.tell(format!("{most}, {of}"), seen.off, "steps");
    let late = format!("the most others begun after an urgent step came, {of}");
    report.tell(late, seen.late as f64, "steps");
    Ok(())
}

/// What is due of one key on one shard: so many, from this number on.
struct Line {
    next: i64,
    all: u32,
    left: u32,
    weight: Weight,
}

#[derive(Default)]
struct Pile {
    version: u64,
    lines: BTreeMap<(Band, FairnessKey), Line>,
    /// The numbers of the next line.
    numbers: i64,
}

impl Pile {
    fn put(&mut self, band: Band, key: FairnessKey, weight: Weight, count: u32) {
        let line = Line {
            next: self.numbers,
            all: count,
            left: count,
            weight,
        };
        self.numbers += i64::from(count);
        self.version += 1;
        self.lines.insert((band, key), line);
    }

    /// Takes the oldest step of a key out.
    fn claim(&mut self, candidate: &Candidate) -> bool {
        let place = (candidate.band, candidate.key.clone());
        let Some(line) = self.lines.get_mut(&place) else {
            return false;
        };
        if line.next != candidate.id.local.get() {
            return false;
        }
        line.next += 1;
        line.left -= 1;
        if line.left == 0 {
            self.lines.remove(&place);
        }
        self.version += 1;
        true
    }
}

/// Steps that are counted and not kept.
struct Counted(Vec<Mutex<Pile>>);

impl Counted {
    fn pile(&self, shard: ShardId) -> MutexGuard<'_, Pile> {
        self.0[shard.index()]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Supply for Counted {
    fn promote(&self, _: ShardId, _: Timestamp) -> Result<Option<Timestamp>> {
        Ok(None)
    }

    fn version(&self, shard: ShardId) -> Result<u64> {
        Ok(self.pile(shard).version)
    }

    fn tally(&self, shard: ShardId) -> Result<ShardTally> {
        let shards = i64::try_from(self.0.len()).unwrap_or(1);
        let pile = self.pile(shard);
        let Some(best) = pile.lines.keys().next().map(|(band, _)| *band) else {
            return Ok(ShardTally::nothing());
        };
        let due = pile.lines.iter().take_while(|((band, _), _)| *band == best);
        let keys = due.map(|((_, key), line)| Tally {
            key: key.clone(),
            count: line.left,
            // As if the steps of a key had come in to one shard after another, beginning anywhere: so
            // its oldest one is on another shard each time, and every shard has its part of the takes.
            since: Timestamp::from_millis(
                i64::from(line.all - line.left) * shards
                    + (i64::from(shard.number()) + begin(key)) % shards,
            ),
            weight: line.weight,
        });
        Ok(ShardTally::new(best, keys.collect()))
    }

    fn fetch(&self, shard: ShardId, band: Band, wants: &[Want]) -> Result<Vec<Vec<LocalId>>> {
        let pile = self.pile(shard);
        let oldest = |want: &Want| {
            pile.lines
                .get(&(band, want.key.clone()))
                .map_or_else(Vec::new, |line| {
                    let count = i64::from(line.left.min(want.count));
                    (line.next..line.next + count).map(LocalId::new).collect()
                })
        };
        Ok(wants.iter().map(oldest).collect())
    }
}

/// Returns some number of a key's own.
fn begin(key: &FairnessKey) -> i64 {
    key.as_str().bytes().map(i64::from).sum()
}

/// What a run has shown.
struct Seen {
    /// How long each turn of a refiller took, in milliseconds; what a store would take for its part is
    /// not in it.
    turns: Vec<f64>,
    off: f64,
    late: usize,
}

struct Fleet {
    supply: Arc<Counted>,
    planner: Arc<Planner>,
    cache: Arc<CandidateCache>,
    progress: Arc<Progress>,
    refillers: Vec<(ShardId, Refiller)>,
    weights: BTreeMap<FairnessKey, (f64, u64)>,
    urgent: FairnessKey,
}

impl Fleet {
    fn new(kit: &Kit, shards: u8, keys: usize, each: u32) -> Any<Self> {
        let supply = Arc::new(Counted((0..shards).map(|_| Mutex::default()).collect()));
        let mut weights = BTreeMap::new();
        for number in 0..keys {
            let key: FairnessKey = format!("key-{number:05}").parse()?;
            let weight = if number % HEAVY == 0 { 4.0 } else { 1.0 };
            for shard in ShardId::first(shards) {
                let weight = Weight::or_one(weight);
                supply
                    .pile(shard)
                    .put(Band::DEFAULT, key.clone(), weight, each);
            }
            weights.insert(key, (weight, 0));
        }
        let planner = Arc::new(Planner::new(Pick::Stride, 1));
        let cache = Arc::new(CandidateCache::new(WORKERS));
        let progress = Arc::new(Progress::new(shards, &kit.clock));
        let with = Shared {
            supply: Arc::clone(&supply) as Arc<_>,
            planner: Arc::clone(&planner),
            cache: Arc::clone(&cache),
            progress: Arc::clone(&progress),
            crowd: Arc::default(),
            status: Arc::new(StatusBoard::new(shards)),
            clock: Arc::clone(&kit.clock),
            sink: Arc::new(NoSink),
            promoted: Arc::new(|| ()),
        };
        let pace = Pace {
            heartbeat: Duration::from_secs(1),
            min_gap: Duration::ZERO,
        };
        let mut refillers: Vec<(ShardId, Refiller)> = ShardId::first(shards)
            .map(|shard| (shard, Refiller::new(shard, with.clone(), pace)))
            .collect();
        refillers.iter_mut().for_each(|(_, one)| one.introduce());
        Ok(Self {
            supply,
            planner,
            cache,
            progress,
            refillers,
            weights,
            urgent: "urgent".parse()?,
        })
    }

    /// Lets the crew take so many steps. Between two takes at most one shard turns, so that the others
    /// are as late as they would be.
    fn run(mut self, kit: &Kit, takes: usize) -> Any<Seen> {
        let mut seen = Seen {
            turns: Vec::new(),
            off: 0.0,
            late: 0,
        };
        let mut waiting: Option<usize> = None;
        let mut taken = 0;
        let mut next = 0;
        let mut dry = 0;
        while taken < takes {
            let turned = self.turn(kit, &mut next, &mut seen)?;
            let Some(candidate) = self.take() else {
                dry = if turned { 0 } else { dry + 1 };
                if dry > self.refillers.len() {
                    return Err("nothing is taken although steps are due".into());
                }
                continue;
            };
            taken += 1;
            if candidate.key == self.urgent {
                let since = waiting.take().ok_or("an urgent step was taken twice")?;
                seen.late = seen.late.max(taken - since - 1);
            } else if let Some((_, count)) = self.weights.get_mut(&candidate.key) {
                *count += 1;
            }
            if taken % URGENT == 0 && waiting.is_none() {
                let (shard, _) = self.refillers[taken / URGENT % self.refillers.len()];
                let mut pile = self.supply.pile(shard);
                pile.put(
                    Band::new(0).ok_or("no best band")?,
                    self.urgent.clone(),
                    Weight::ONE,
                    1,
                );
                drop(pile);
                self.progress.nudge(shard);
                waiting = Some(taken);
            }
        }
        let all: f64 = self.weights.values().map(|(weight, _)| weight).sum();
        let served: u64 = self.weights.values().map(|(_, count)| count).sum();
        for (weight, count) in self.weights.values() {
            let part = served as f64 * weight / all;
            seen.off = seen.off.max((*count as f64 - part).abs());
        }
        Ok(seen)
    }

    /// Turns the next shard whose bell was rung. Returns whether there was one.
    fn turn(&mut self, kit: &Kit, next: &mut usize, seen: &mut Seen) -> Any<bool> {
        for _ in 0..self.refillers.len() {
            let at = *next % self.refillers.len();
            *next += 1;
            let (shard, refiller) = &mut self.refillers[at];
            if self.progress.wake(*shard).sleep(Duration::ZERO) == Woken::Nudge {
                let (took, _) = kit.time(|| Ok(refiller.cycle()))?;
                seen.turns.push(millis(took));
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes and claims a step, as a worker and the engine's foreman do.
    fn take(&self) -> Option<Candidate> {
        let taken = self.cache.try_pop_from(self.cache.peek_shard()?)?;
        let candidate = taken.candidate;
        self.planner
            .took(candidate.band, &candidate.key, candidate.turn);
        let shard = candidate.id.shard;
        self.progress
            .took(self.cache.capacity(), taken.needs_refill.then_some(shard));
        let is_ours = self.supply.pile(shard).claim(&candidate);
        self.cache.release(candidate.id);
        self.progress.decided(shard, self.cache.is_empty());
        is_ours.then_some(candidate)
    }
}
