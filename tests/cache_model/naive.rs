//! The cache as one would write it without a thought for speed: one flat list in the order of
//! arrival, each entry marked with how it came, everything counted anew at every question.

use std::collections::BTreeMap;

use fairq::cache::{CacheView, Counters, Offered, PartitionView, Taken, Waited};
use fairq::model::{Band, Candidate, ShardId, StepId};

use crate::kit::{Answer, Command, shard};

pub(crate) const SHARDS: u8 = 4;

#[derive(Clone, Debug)]
struct Entry {
    candidate: Candidate,
    offered: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Naive {
    capacity: usize,
    closed: bool,
    by_turn: bool,
    entries: Vec<Entry>,
    floors: BTreeMap<ShardId, Band>,
    last_fill: BTreeMap<ShardId, usize>,
    /// Taken ids and how many undecided claims each has.
    taken: BTreeMap<StepId, u32>,
    counters: Counters,
}

impl Naive {
    /// With `by_turn` unset the order is deepest first, whatever the turns.
    pub(crate) fn new(workers: usize, by_turn: bool) -> Self {
        Self {
            capacity: (2 * workers).max(1),
            closed: false,
            by_turn,
            entries: Vec::new(),
            floors: BTreeMap::new(),
            last_fill: BTreeMap::new(),
            taken: BTreeMap::new(),
            counters: Counters::default(),
        }
    }

    pub(crate) fn would_block(&self) -> bool {
        !self.closed && self.entries.is_empty()
    }

    fn of(&self, shard: ShardId) -> Vec<&Entry> {
        let all = self.entries.iter();
        all.filter(|one| one.candidate.id.shard == shard).collect()
    }

    fn depth(&self, shard: ShardId) -> usize {
        self.of(shard).len()
    }

    fn low_water(&self, shard: ShardId) -> usize {
        let half = self.last_fill.get(&shard).map_or(0, |fill| fill / 2);
        half.max(1)
    }

    fn next(&self) -> Option<ShardId> {
        let mut order: Vec<ShardId> = ShardId::first(SHARDS)
            .filter(|&shard| self.depth(shard) > 0)
            .collect();
        // From the last criterion to the first: each sort keeps what the one before has put.
        order.sort();
        order.sort_by_key(|&shard| std::cmp::Reverse(self.depth(shard)));
        if self.by_turn {
            order.sort_by_key(|&shard| self.of(shard)[0].candidate.turn);
        }
        order.sort_by_key(|shard| self.floors[shard]);
        order.first().copied()
    }

    fn take(&mut self, shard: ShardId) -> Option<Taken> {
        let mut all = self.entries.iter();
        let at = all.position(|one| one.candidate.id.shard == shard)?;
        let candidate = self.entries.remove(at).candidate;
        *self.taken.entry(candidate.id).or_default() += 1;
        let needs_refill = self.depth(shard) <= self.low_water(shard);
        self.counters.pops += 1;
        self.counters.refill_signals += u64::from(needs_refill);
        Some(Taken {
            candidate,
            needs_refill,
        })
    }

    fn refill(&mut self, shard: ShardId, batch: &[Candidate], floor: Band) -> usize {
        let earlier: Vec<StepId> = self
            .of(shard)
            .iter()
            .filter(|one| !one.offered)
            .map(|one| one.candidate.id)
            .collect();
        self.entries.retain(|one| one.candidate.id.shard != shard);
        for candidate in batch {
            if self.taken.contains_key(&candidate.id) {
                self.counters.duplicates += 1;
                continue;
            }
            self.entries.push(Entry {
                candidate: Candidate {
                    band: floor,
                    ..candidate.clone()
                },
                offered: false,
            });
        }
        self.floors.insert(shard, floor);
        self.last_fill.insert(shard, self.depth(shard));
        self.counters.refills += 1;
        self.counters.selected += self.depth(shard) as u64;
        let now: Vec<StepId> = self.of(shard).iter().map(|one| one.candidate.id).collect();
        let discarded = earlier.iter().filter(|id| !now.contains(id)).count();
        self.counters.discarded += discarded as u64;
        self.counters.kept += (earlier.len() - discarded) as u64;
        discarded
    }

    fn offer(&mut self, candidate: &Candidate) -> Offered {
        let shard = candidate.id.shard;
        self.taken.remove(&candidate.id);
        let full = self.entries.len() >= self.capacity;
        match self.depth(shard) {
            0 => {
                self.floors.insert(shard, candidate.band);
            }
            _ if candidate.band > self.floors[&shard] => {
                self.counters.offers_worse_band += 1;
                return Offered::WorseBand;
            }
            _ if full => {
                self.counters.offers_full += 1;
                return Offered::Full;
            }
            _ => {}
        }
        self.entries.push(Entry {
            candidate: candidate.clone(),
            offered: true,
        });
        self.counters.offers_admitted += 1;
        Offered::Admitted
    }

    fn resize(&mut self, workers: usize) {
        self.capacity = (2 * workers).max(1);
        let total = self.entries.len();
        let Some(over) = total.checked_sub(self.capacity).filter(|&over| over > 0) else {
            return;
        };
        let mut quotas: Vec<(ShardId, usize, usize)> = ShardId::first(SHARDS)
            .map(|shard| {
                let exact = self.depth(shard) * self.capacity;
                (shard, exact / total, exact % total)
            })
            .collect();
        for _ in quotas.iter().map(|quota| quota.1).sum::<usize>()..self.capacity {
            let best = quotas.iter().map(|quota| quota.2).max().unwrap();
            let lucky = quotas.iter_mut().find(|quota| quota.2 == best).unwrap();
            *lucky = (lucky.0, lucky.1 + 1, 0);
        }
        for (shard, keep, _) in quotas {
            let mut seen = 0;
            self.entries.retain(|one| {
                let here = one.candidate.id.shard == shard;
                seen += usize::from(here);
                !here || seen <= keep
            });
        }
        self.counters.trimmed += over as u64;
    }

    pub(crate) fn call(&mut self, command: &Command) -> Answer {
        if self.closed {
            return self.call_closed(command);
        }
        match command {
            Command::Refill(of, batch, floor) => {
                Answer::Count(self.refill(shard(*of), batch, *floor))
            }
            Command::Offer(candidate) => Answer::Offered(self.offer(candidate)),
            Command::Pop => {
                let next = self.next().expect("pop of an empty cache blocks");
                Answer::Took(self.take(next))
            }
            Command::TryPop(of) => {
                let taken = self.take(shard(*of));
                self.counters.failed_try_pops += u64::from(taken.is_none());
                Answer::Took(taken)
            }
            Command::Peek => Answer::Shard(self.next()),
            Command::Wait => {
                let next = self.next().expect("waiting at an empty cache blocks");
                Answer::Waited(Waited::Work(next))
            }
            Command::Resize(workers) => {
                self.resize(*workers);
                Answer::Done
            }
            Command::Close => {
                self.closed = true;
                Answer::Done
            }
            Command::Len | Command::TakenOf(_) | Command::Release(_) | Command::BeginCycle(_) => {
                self.call_always(command)
            }
        }
    }

    /// I28: what each call does once the cache is closed.
    fn call_closed(&mut self, command: &Command) -> Answer {
        match command {
            Command::Refill(..) => Answer::Count(0),
            Command::Offer(_) => {
                self.counters.offers_closed += 1;
                Answer::Offered(Offered::Closed)
            }
            Command::Pop => Answer::Took(None),
            Command::TryPop(_) => {
                self.counters.failed_try_pops += 1;
                Answer::Took(None)
            }
            Command::Peek => Answer::Shard(None),
            Command::Wait => Answer::Waited(Waited::Closed),
            Command::Resize(_) | Command::Close => Answer::Done,
            Command::Len | Command::TakenOf(_) | Command::Release(_) | Command::BeginCycle(_) => {
                self.call_always(command)
            }
        }
    }

    /// Calls to which it is all the same whether the cache is closed.
    fn call_always(&mut self, command: &Command) -> Answer {
        match command {
            Command::Len => Answer::Count(self.entries.len()),
            Command::TakenOf(of) => Answer::Count(self.taken_of(shard(*of))),
            Command::Release(id) => {
                if let Some(undecided) = self.taken.get_mut(id) {
                    *undecided = undecided.saturating_sub(1);
                }
                Answer::Done
            }
            Command::BeginCycle(of) => {
                self.taken
                    .retain(|id, undecided| id.shard != shard(*of) || *undecided > 0);
                Answer::Done
            }
            Command::Refill(..)
            | Command::Offer(_)
            | Command::Pop
            | Command::TryPop(_)
            | Command::Peek
            | Command::Wait
            | Command::Resize(_)
            | Command::Close => unreachable!("{command:?} depends on it"),
        }
    }

    fn taken_of(&self, shard: ShardId) -> usize {
        self.taken.keys().filter(|id| id.shard == shard).count()
    }

    /// The whole view, with an entry for every shard.
    pub(crate) fn view(&self) -> CacheView {
        let partitions = ShardId::first(SHARDS).map(|shard| {
            let here = self.of(shard);
            let offered = here.iter().filter(|one| one.offered).count();
            PartitionView {
                shard,
                floor: here.first().map(|_| self.floors[&shard]),
                depth: here.len(),
                planned: here.len() - offered,
                offered,
                last_fill: self.last_fill.get(&shard).copied().unwrap_or(0),
                low_water: self.low_water(shard),
                head_turn: here.first().map(|one| one.candidate.turn),
                first: here.iter().take(8).map(|one| one.candidate.id).collect(),
                taken: self.taken_of(shard),
            }
        });
        CacheView {
            capacity: self.capacity,
            total: self.entries.len(),
            closed: self.closed,
            parked: 0,
            retiring: 0,
            partitions: partitions.collect(),
            counters: self.counters,
        }
    }
}
