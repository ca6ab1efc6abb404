//! The bounded set of candidates between the refillers and the crew.
//!
//! It holds hints, never ownership: a stale or doubled candidate costs a lost claim and nothing
//! else. Each shard has a partition, which its refiller replaces whole. Workers take from the
//! partition with the best floor, and of those from the one whose next candidate has the earliest
//! turn; with equal turns the deepest goes first, then the lowest shard.
//!
//! One lock covers everything. Callers who find nothing sleep in one line for all partitions (a
//! worker that slept at one shard would miss the work of another) and are woken in the order of
//! their arrival, one for each candidate that comes in and never all of them. That is safe because
//! one sleeps only while the whole cache is empty and looks again when woken.
//!
//! Once closed, no call hands out anything.

mod partition;
mod taken;
mod trim;
mod view;

use partition::Partition;
pub use view::{CacheView, Counters, PartitionView};

use crate::model::{Band, Candidate, LocalId, ShardId, StepId};
use crate::sync::{Called, Line, Mutex, MutexGuard, lock};

/// The bounded set of candidates. Every call is safe from any thread; only [`Self::pop`] and
/// [`Self::wait_for_work`] block.
///
/// A worker's way is: wait for work holding nothing, take a permit, try to take from the shard it was
/// told, claim, [`Self::release`]. A refiller's is: [`Self::begin_cycle`], read the store,
/// [`Self::refill`].
#[derive(Debug)]
pub struct CandidateCache {
    state: Mutex<State>,
}

/// A candidate that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The hint.
    pub candidate: Candidate,
    /// Whether its shard's partition is at or under its low water, so that the shard's refiller
    /// should be nudged.
    pub needs_refill: bool,
}

/// What became of an offer. A declined step stays due in the store and comes by a later refill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// It is in the cache.
    Admitted,
    /// The partition serves a better band.
    WorseBand,
    /// The cache holds as much as it may.
    Full,
    /// The cache is closed.
    Closed,
}

/// Why [`CandidateCache::wait_for_work`] came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// There is a candidate, and this shard's partition is next. A hint: another may be faster.
    Work(ShardId),
    /// The caller was asked to leave, see [`CandidateCache::retire`].
    Retire,
    /// The cache is closed.
    Closed,
}

/// What a sleeper sleeps for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sleeper {
    /// A candidate.
    Taker,
    /// A candidate, or to be told to leave.
    Worker,
}

#[derive(Debug)]
struct State {
    capacity: usize,
    closed: bool,
    /// How many workers were asked to leave and have not yet been told.
    retiring: usize,
    /// By shard number, as far as shards have been heard of.
    partitions: Vec<Partition>,
    line: Line<Sleeper>,
    counters: Counters,
}

impl State {
    fn total(&self) -> usize {
        self.partitions.iter().map(Partition::depth).sum()
    }

    fn partition(&mut self, shard: ShardId) -> &mut Partition {
        let known = self.partitions.len().max(shard.index() + 1);
        self.partitions.resize_with(known, Partition::new);
        &mut self.partitions[shard.index()]
    }

    fn next(&self) -> Option<ShardId> {
        let at = partition::best(&self.partitions)?;
        u8::try_from(at).ok().and_then(ShardId::new)
    }

    fn take(&mut self, shard: ShardId) -> Option<Taken> {
        let taken = self.partitions.get_mut(shard.index())?.take()?;
        self.counters.pops += 1;
        self.counters.refill_signals += u64::from(taken.needs_refill);
        Some(taken)
    }

    fn call(&mut self, count: usize) -> Called {
        let called = self.line.call(count);
        self.counters.wakes += called.len() as u64;
        called
    }
}

/// Twice the workers: while each of them is busy, the next step for each is at hand.
const fn capacity_for(workers: usize) -> usize {
    let twice = workers.saturating_mul(2);
    if twice == 0 { 1 } else { twice }
}

impl CandidateCache {
    /// Returns an empty cache for a crew of this size. Its capacity is twice that, and at least 1.
    pub fn new(workers: usize) -> Self {
        Self {
            state: Mutex::new(State {
                capacity: capacity_for(workers),
                closed: false,
                retiring: 0,
                partitions: Vec::new(),
                line: Line::new(),
                counters: Counters::default(),
            }),
        }
    }

    /// Returns the bound on the sum of all partitions; every shard plans for this many.
    pub fn capacity(&self) -> usize {
        self.lock().capacity
    }

    /// Returns how many candidates there are.
    pub fn len(&self) -> usize {
        self.lock().total()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Replaces a shard's partition and its floor, and wakes one sleeper for each candidate.
    ///
    /// An empty batch says that nothing is due there and empties the partition. A read that failed
    /// says nothing and must not come here. Candidates that workers have taken (see
    /// [`Self::release`]) are left out; the others get the floor as their band. The batch is not cut
    /// to the capacity.
    ///
    /// Returns how many candidates of earlier refills were thrown away; neither those that the batch
    /// has again count, nor offered ones.
    /// Once closed it changes nothing and returns 0.
    pub fn refill(&self, shard: ShardId, batch: Vec<Candidate>, floor: Band) -> usize {
        debug_assert!(
            batch.iter().all(|candidate| candidate.id.shard == shard),
            "a batch holds steps of its own shard only"
        );
        let (refilled, called) = {
            let mut state = self.lock();
            if state.closed {
                return 0;
            }
            let refilled = state.partition(shard).refill(batch, floor);
            state.counters.refills += 1;
            state.counters.selected += refilled.selected as u64;
            state.counters.discarded += refilled.discarded as u64;
            state.counters.kept += refilled.kept as u64;
            state.counters.duplicates += refilled.duplicates as u64;
            (refilled, state.call(refilled.selected))
        };
        called.wake();
        refilled.discarded
    }

    /// Offers a step that has just become due, and wakes one sleeper if it is admitted.
    ///
    /// An empty partition admits always. Otherwise a band worse than the partition's is declined, and
    /// so is everything while the cache is full; what is admitted goes to the end. Whatever comes of
    /// it, the step no longer counts as taken.
    pub fn offer(&self, candidate: Candidate) -> Offered {
        let (offered, called) = {
            let mut state = self.lock();
            if state.closed {
                state.counters.offers_closed += 1;
                return Offered::Closed;
            }
            let room = state.total() < state.capacity;
            let offered = state.partition(candidate.id.shard).offer(candidate, room);
            let counters = &mut state.counters;
            *match offered {
                Offered::Admitted => &mut counters.offers_admitted,
                Offered::WorseBand => &mut counters.offers_worse_band,
                Offered::Full => &mut counters.offers_full,
                Offered::Closed => &mut counters.offers_closed,
            } += 1;
            (
                offered,
                state.call(usize::from(offered == Offered::Admitted)),
            )
        };
        called.wake();
        offered
    }

    /// Takes the next candidate; sleeps while there is none. `None` means that the cache is closed,
    /// and nothing else.
    pub fn pop(&self) -> Option<Taken> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(shard) = state.next() {
                return state.take(shard);
            }
            state = self.park(state, Sleeper::Taker);
        }
    }

    /// Sleeps until there is a candidate, and takes nothing.
    ///
    /// It exists so that a worker can sleep without a permit. A worker that was asked to leave is
    /// told so here, whether there is work or not.
    pub fn wait_for_work(&self) -> Waited {
        let mut state = self.lock();
        loop {
            state = match Self::without_waiting(state) {
                Ok(waited) => return waited,
                Err(state) => self.park(state, Sleeper::Worker),
            };
        }
    }

    /// Does as [`Self::wait_for_work`], and returns `None` where that would sleep.
    pub fn look_for_work(&self) -> Option<Waited> {
        Self::without_waiting(self.lock()).ok()
    }

    fn without_waiting(mut state: MutexGuard<'_, State>) -> Result<Waited, MutexGuard<'_, State>> {
        if state.closed {
            return Ok(Waited::Closed);
        }
        if state.retiring > 0 {
            state.retiring -= 1;
            // The leaver may have been woken for a candidate: that wake goes to the next.
            let work = state.next().is_some();
            let called = state.call(usize::from(work));
            drop(state);
            called.wake();
            return Ok(Waited::Retire);
        }
        match state.next() {
            Some(shard) => Ok(Waited::Work(shard)),
            None => Err(state),
        }
    }

    /// Takes the candidate in front of one shard's partition. Never blocks.
    ///
    /// `None` means "wait for work again": the partition is drained, another was faster, or the cache
    /// is closed, which waiting for work will tell.
    pub fn try_pop_from(&self, shard: ShardId) -> Option<Taken> {
        let mut state = self.lock();
        let taken = if state.closed {
            None
        } else {
            state.take(shard)
        };
        state.counters.failed_try_pops += u64::from(taken.is_none());
        taken
    }

    /// Returns the shard from which [`Self::pop`] would take. Never blocks; `None` if there is nothing
    /// to take or the cache is closed.
    pub fn peek_shard(&self) -> Option<ShardId> {
        let state = self.lock();
        if state.closed { None } else { state.next() }
    }

    /// Says that the claim of a taken step was decided, won or lost. Every take needs it, however it
    /// went on, or an offer of the same step.
    ///
    /// From the take until here, refills leave the step out: reads of the store still see it as due.
    /// After that they leave it out until the shard's next cycle has begun, since a read that is under
    /// way may be older than the claim.
    pub fn release(&self, id: StepId) {
        self.lock().partition(id.shard).taken.release(id.local);
    }

    /// Says that a shard's refiller will now read the store. To be called before the read begins: what
    /// was released until here is forgotten, because the read will see how it ended.
    pub fn begin_cycle(&self, shard: ShardId) {
        self.lock().partition(shard).taken.begin_cycle();
    }

    /// Returns how many steps of a shard a refill would leave out at most: a read that wants so many
    /// candidates has to ask for so many more.
    pub fn taken_of(&self, shard: ShardId) -> usize {
        self.lock()
            .partitions
            .get(shard.index())
            .map_or(0, |partition| partition.taken.len())
    }

    /// Returns how many callers sleep until there is work.
    pub fn parked(&self) -> usize {
        self.lock().line.len()
    }

    /// Returns which steps of a shard a refill would leave out now.
    pub fn taken_ids(&self, shard: ShardId) -> Vec<LocalId> {
        let state = self.lock();
        let partition = state.partitions.get(shard.index());
        partition.map_or_else(Vec::new, |partition| partition.taken.ids().collect())
    }

    /// Changes the capacity to that of a crew of this size.
    ///
    /// If there is now too much, every partition loses of its end in proportion to its depth. What is
    /// cut off stays due in the store. Growing changes nothing else and wakes nobody.
    pub fn resize(&self, workers: usize) {
        let mut state = self.lock();
        if state.closed {
            return;
        }
        state.capacity = capacity_for(workers);
        let depths: Vec<usize> = state.partitions.iter().map(Partition::depth).collect();
        let shares = trim::shares(&depths, state.capacity);
        let mut trimmed = 0;
        for (partition, share) in state.partitions.iter_mut().zip(shares) {
            trimmed += partition.cut(share);
        }
        state.counters.trimmed += trimmed as u64;
    }

    /// Asks `count` workers to leave: those that have slept longest, and, if fewer sleep, the next that
    /// come to [`Self::wait_for_work`].
    pub fn retire(&self, count: usize) {
        let called = {
            let mut state = self.lock();
            state.retiring += count;
            let called = state
                .line
                .call_those(count, |sleeper| *sleeper == Sleeper::Worker);
            state.counters.wakes += called.len() as u64;
            called
        };
        called.wake();
    }

    /// Takes back the asking of up to `count` workers that have not been told yet. Returns how many
    /// now stay.
    pub fn recall(&self, count: usize) -> usize {
        let mut state = self.lock();
        let stay = count.min(state.retiring);
        state.retiring -= stay;
        stay
    }

    /// Closes for good and wakes everyone. Closing again changes nothing.
    pub fn close(&self) {
        let called = {
            let mut state = self.lock();
            state.closed = true;
            let all = state.line.len();
            state.call(all)
        };
        called.wake();
    }

    /// Returns what there is to see.
    pub fn snapshot(&self) -> CacheView {
        let state = self.lock();
        CacheView {
            capacity: state.capacity,
            total: state.total(),
            closed: state.closed,
            parked: state.line.len(),
            retiring: state.retiring,
            partitions: ShardId::first(ShardId::MAX_SHARDS)
                .zip(&state.partitions)
                .map(|(shard, partition)| partition.view(shard))
                .collect(),
            counters: state.counters,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn park<'a>(&'a self, state: MutexGuard<'a, State>, sleeper: Sleeper) -> MutexGuard<'a, State> {
        Line::park(&self.state, state, |state| &mut state.line, sleeper)
    }
}
