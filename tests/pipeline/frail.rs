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

