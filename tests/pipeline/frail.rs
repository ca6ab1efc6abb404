//! A store in memory that fails, wishes and releases on demand.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use fairq::error::{Error, ErrorKind, Result};
use fairq::model::{
    Band, Candidate, Claim, Found, LocalId, LostRun, NewStep, Released, RunnerId, Settled,
    Settlement, ShardId, StepId, Timestamp,
};
use fairq::store::memory::MemoryStore;
use fairq::store::{AfterSettle, Claims, Intake as _, Lease, Release, Settle, Supply, Want};
use fairq::tally::ShardTally;

/// Which calls fail now.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) tally: AtomicBool,
    pub(crate) fetch: AtomicBool,
    pub(crate) claim: AtomicBool,
    /// The claim is made, and its answer is lost.
    pub(crate) claim_unheard: AtomicBool,
    pub(crate) settle: AtomicBool,
    pub(crate) deliver: AtomicBool,
    pub(crate) failed: AtomicUsize,
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

/// What comes by itself, without anybody who asks for it.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Whose end somebody wishes.
    pub(crate) wishes: Mutex<BTreeSet<(StepId, u32)>>,
    /// What each further step that ends well is followed by, on its own shard, at once.
    pub(crate) successors: Mutex<Vec<NewStep>>,
    /// What the next deliveries find, whatever shard they are from.
    pub(crate) delivered: Mutex<Vec<NewStep>>,
    /// What the next grants find.
    pub(crate) granted: Mutex<Vec<NewStep>>,
    /// Whether every outcome is to be told of to others.
    pub(crate) tell: AtomicBool,
    /// How often what was asked.
    pub(crate) deliveries: AtomicUsize,
    pub(crate) grants: AtomicUsize,
}

/// Outcomes that wait for the next claim on their shard.
type Late = Vec<(ShardId, Arc<[Settlement]>, AfterSettle)>;

/// A store in memory whose shard 0 fails on demand, and that is as slow to record outcomes as a store
/// may be.
#[derive(Clone)]
pub(crate) struct Frail {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) news: Arc<News>,
    late: Arc<Mutex<Late>>,
}

impl Frail {
    pub(crate) fn new(store: MemoryStore) -> Self {
        Self {
            store: Arc::new(store),
            faults: Arc::default(),
            news: Arc::default(),
            late: Arc::default(),
        }
    }

    fn strike(&self, shard: ShardId, fault: &AtomicBool) -> Result<()> {
        if shard.number() == 0 {
            self.faults.strike(fault)
        } else {
            Ok(())
        }
    }

    /// Puts steps in, which nobody is told of but by what this returns.
    fn release(&self, steps: &[NewStep], now: Timestamp) -> Vec<Released> {
        let ids = self.store.enqueue(steps, now).unwrap();
        ids.iter()
            .zip(steps)
            .map(|(id, step)| Released {
                id: *id,
                band: step.band,
                key: step.key.clone(),
                weight: step.weight,
            })
            .collect()
    }

    fn follow(
        &self,
        settlements: &[Settlement],
        outcome: Result<Vec<Settled>>,
    ) -> Result<Vec<Settled>> {
        let mut all = outcome?;
        for (settlement, settled) in settlements.iter().zip(&mut all) {
            let Settled::Recorded(recorded) = settled else {
                continue;
            };
            let next = self.news.successors.lock().unwrap().pop();
            let released = self.release(next.as_slice(), settlement.finished.ended);
            recorded.released.extend(released);
            recorded.tell |= self.news.tell.load(Ordering::SeqCst);
        }
        Ok(all)
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
        self.hurry(shard);
        self.strike(shard, &self.faults.claim)?;
        let claims = self.store.claim(shard, candidates, lease, now)?;
        self.strike(shard, &self.faults.claim_unheard)?;
        Ok(claims)
    }
    fn renew(&self, shard: ShardId, lease: Lease) -> Result<()> {
        self.store.renew(shard, lease)
    }
    fn holders(&self, shard: ShardId) -> Result<Vec<Lease>> {
        self.store.holders(shard)
    }
    fn keep(&self, dead: RunnerId, found: Found) -> Result<()> {
        self.store.keep(dead, found)
    }

    fn reclaim(&self, shard: ShardId, dead: RunnerId, now: Timestamp) -> Result<Vec<LostRun>> {
        self.store.reclaim(shard, dead, now)
    }
    fn wishes(&self, shard: ShardId, runner: RunnerId) -> Result<Vec<(LocalId, u32)>> {
        let mut wishes = self.store.wishes(shard, runner)?;
        let ours = self.news.wishes.lock().unwrap();
        let here = ours.iter().filter(|(id, _)| id.shard == shard);
        wishes.extend(here.map(|(id, fence)| (id.local, *fence)));
        Ok(wishes)
    }
}

impl Release for Frail {
    fn deliver(&self, from: ShardId, now: Timestamp) -> Result<Vec<Released>> {
        self.strike(from, &self.faults.deliver)?;
        self.news.deliveries.fetch_add(1, Ordering::SeqCst);
        let mut released = self.store.deliver(from, now)?;
        let found = std::mem::take(&mut *self.news.delivered.lock().unwrap());
        released.extend(self.release(&found, now));
        Ok(released)
    }
    fn grant(&self, now: Timestamp) -> Result<Vec<Released>> {
        self.news.grants.fetch_add(1, Ordering::SeqCst);
        let mut released = self.store.grant(now)?;
        let found = std::mem::take(&mut *self.news.granted.lock().unwrap());
        released.extend(self.release(&found, now));
        Ok(released)
    }
    fn mend(&self, now: Timestamp) -> Result<Vec<Released>> {
        self.store.mend(now)
    }
}

impl Settle for Frail {
    fn settle(&self, shard: ShardId, settlements: Arc<[Settlement]>, after: AfterSettle) {
        let (me, told) = (self.clone(), Arc::clone(&settlements));
        let after: AfterSettle = Box::new(move |outcome| after(me.follow(&told, outcome)));
        match self.strike(shard, &self.faults.settle) {
            Ok(()) => self.store.settle(shard, settlements, after),
            Err(error) => after(Err(error)),
        }
    }

    fn settle_later(&self, shard: ShardId, settlements: Arc<[Settlement]>, after: AfterSettle) {
        self.late.lock().unwrap().push((shard, settlements, after));
    }

    fn hurry(&self, shard: ShardId) {
        let due: Late = {
            let mut late = self.late.lock().unwrap();
            let (due, rest) = late.drain(..).partition(|(at, ..)| *at == shard);
            *late = rest;
            due
        };
        for (shard, settlements, after) in due {
            self.settle(shard, settlements, after);
        }
    }
}

fairq::forward!(Intake, Read, Steer, Store for Frail);
