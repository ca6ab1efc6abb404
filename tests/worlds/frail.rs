//! The store as one process sees it: every call may fail, take effect unheard, or be its last.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fairq::error::{Error, ErrorKind, Result};
use fairq::model::{
    Band, Candidate, Claim, Found, LocalId, LostRun, Released, RunnerId, Settlement, ShardId,
    Timestamp,
};
use fairq::store::{AfterSettle, Claims, Lease, Release, Settle, Store, Supply, Want};
use fairq::tally::ShardTally;

use super::chance::Fault;
use super::fate::{Fate, Late};

/// Whether a process lives, and after how many calls it dies.
#[derive(Debug, Default)]
pub(crate) struct Life {
    dead: AtomicBool,
    /// 0: not by this.
    calls_left: AtomicU64,
}

impl Life {
    pub(crate) fn is_over(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    pub(crate) fn end(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    pub(crate) fn ends_after(&self, calls: u64) {
        self.calls_left.store(calls, Ordering::Relaxed);
    }

    /// Counts a call. Returns whether the process has just died.
    fn dies(&self) -> bool {
        let left = self.calls_left.load(Ordering::Relaxed);
        if left == 1 {
            self.end();
        }
        self.calls_left
            .store(left.saturating_sub(1), Ordering::Relaxed);
        left == 1
    }
}

pub(crate) struct Frail {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) fate: Arc<Fate>,
    pub(crate) runner: RunnerId,
    pub(crate) life: Arc<Life>,
    /// Calls that need several shards fail by themselves while one of them is down.
    pub(crate) breaks: bool,
}

fairq::forward!(Read, Steer, Intake, Store for Frail);

pub(crate) fn gone(what: &str) -> Error {
    Error::new(ErrorKind::Unavailable, what)
}

impl Frail {
    /// Begins a call: fails if it is not to reach the store.
    fn enter(&self, what: &str, shard: Option<ShardId>, fault: Fault) -> Result<()> {
        if self.life.is_over() {
            return Err(gone("the runner is dead"));
        }
        if self.life.dies() {
            self.fate.count(Fault::CrashInside);
            self.fate
                .note(format_args!("{} dies before {what}", self.runner));
            return Err(gone("the runner has just died"));
        }
        let down = {
            let mut inner = self.fate.lock();
            inner.calls += 1;
            shard.is_some_and(|shard| inner.down.contains(&shard))
        };
        if down {
            self.fate
                .note(format_args!("{} {what} {shard:?}: down", self.runner));
            return Err(gone("the shard is down"));
        }
        if self.fate.strikes(fault) {
            self.fate
                .note(format_args!("{} {what} {shard:?}: fails", self.runner));
            return Err(gone("it fails"));
        }
        Ok(())
    }

    fn wrote(&self) {
        self.fate.lock().writes += 1;
    }

    /// Makes a call that needs several shards.
    fn errand(
        &self,
        what: &str,
        from: Option<ShardId>,
        call: impl FnOnce() -> Result<Vec<Released>>,
    ) -> Result<Vec<Released>> {
        self.enter(what, from, Fault::Errand)?;
        if !self.breaks && !self.fate.lock().down.is_empty() {
            return Err(gone("a shard is down"));
        }
        self.wrote();
        let released = call();
        if released.is_err() {
            self.fate.count(Fault::HalfErrand);
            return released;
        }
        if self.fate.strikes(Fault::HalfErrand) {
            return Err(gone("it was done, and nobody heard of it"));
        }
        let ids: Vec<String> = released
            .iter()
            .flatten()
            .map(|one| one.id.to_string())
            .collect();
        if !ids.is_empty() {
            self.fate
                .note(format_args!("{} {what}: {}", self.runner, ids.join(" ")));
        }
        released
    }
}

impl Supply for Frail {
    fn promote(&self, shard: ShardId, now: Timestamp) -> Result<Option<Timestamp>> {
        self.enter("promote", Some(shard), Fault::Blind)?;
        self.wrote();
        self.store.promote(shard, now)
    }

    fn version(&self, shard: ShardId) -> Result<u64> {
        self.enter("version", Some(shard), Fault::Blind)?;
        self.store.version(shard)
    }

    fn tally(&self, shard: ShardId) -> Result<ShardTally> {
        self.enter("tally", Some(shard), Fault::Blind)?;
        self.store.tally(shard)
    }

    fn fetch(&self, shard: ShardId, band: Band, wants: &[Want]) -> Result<Vec<Vec<LocalId>>> {
        self.enter("fetch", Some(shard), Fault::Unfetched)?;
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
        self.enter("claim", Some(shard), Fault::ClaimBefore)?;
        self.wrote();
        let claims = self.store.claim(shard, candidates, lease, now)?;
        for claim in claims.iter().flatten() {
            self.fate.note(format_args!(
                "{} claims {} fence {} band {} key {}",
                self.runner, claim.id, claim.fence, claim.band, claim.key
            ));
            let parents = self.store.parents(claim.id)?;
            self.fate.lock().book.granted(claim, lease, &parents);
        }
        if claims.iter().any(Option::is_some) && self.fate.strikes(Fault::ClaimAfter) {
            return Err(gone("it was claimed, and nobody heard of it"));
        }
        Ok(claims)
    }

    fn renew(&self, shard: ShardId, lease: Lease) -> Result<()> {
        self.enter("renew", Some(shard), Fault::Steward)?;
        self.wrote();
        self.store.renew(shard, lease)?;
        self.fate.lock().book.renewed(shard, lease);
        Ok(())
    }

    fn holders(&self, shard: ShardId) -> Result<Vec<Lease>> {
        self.enter("holders", Some(shard), Fault::Steward)?;
        self.store.holders(shard)
    }

    fn reclaim(&self, shard: ShardId, dead: RunnerId, now: Timestamp) -> Result<Vec<LostRun>> {
        self.enter("reclaim", Some(shard), Fault::Steward)?;
        self.wrote();
        let lost = self.store.reclaim(shard, dead, now)?;
        for run in &lost {
            self.fate.note(format_args!(
                "{} takes {} back from {}: {}",
                self.runner, run.id, run.runner, run.state
            ));
            let from_living = self.fate.lock().book.taken_back(run, now);
            if from_living {
                self.fate.count(Fault::TakenOver);
            }
        }
        Ok(lost)
    }

    fn keep(&self, dead: RunnerId, found: Found) -> Result<()> {
        self.store.keep(dead, found)
    }

    fn wishes(&self, shard: ShardId, runner: RunnerId) -> Result<Vec<(LocalId, u32)>> {
        self.enter("wishes", Some(shard), Fault::Errand)?;
        self.store.wishes(shard, runner)
    }
}

impl Release for Frail {
    fn deliver(&self, from: ShardId, now: Timestamp) -> Result<Vec<Released>> {
        self.errand("deliver", Some(from), || self.store.deliver(from, now))
    }

    fn grant(&self, now: Timestamp) -> Result<Vec<Released>> {
        self.errand("grant", None, || self.store.grant(now))
    }

    fn mend(&self, now: Timestamp) -> Result<Vec<Released>> {
        self.errand("mend", None, || self.store.mend(now))
    }
}

impl Settle for Frail {
    fn settle(&self, shard: ShardId, settlements: Arc<[Settlement]>, after: AfterSettle) {
        if let Err(error) = self.enter("settle", Some(shard), Fault::SettleBefore) {
            after(Err(error));
            return;
        }
        if self.fate.strikes(Fault::SettleLate) {
            self.fate.lock().late.push(Late {
                runner: self.runner,
                shard,
                settlements,
                after,
            });
            return;
        }
        self.land(shard, settlements, after);
    }
}

impl Frail {
    /// Writes outcomes, at last.
    pub(crate) fn land(&self, shard: ShardId, settlements: Arc<[Settlement]>, after: AfterSettle) {
        self.wrote();
        let fate = Arc::clone(&self.fate);
        let written = Arc::clone(&settlements);
        let heard = move |outcome: Result<Vec<fairq::model::Settled>>| {
            for (settlement, settled) in written.iter().zip(outcome.iter().flatten()) {
                let finished = &settlement.finished;
                fate.note(format_args!(
                    "{} settles {} fence {}: {} {settled:?}",
                    finished.runner, finished.id, finished.fence, finished.ending
                ));
                let is_stale = fate.lock().book.settled(settlement, settled);
                if is_stale {
                    fate.count(Fault::StaleFence);
                }
            }
            if outcome.is_ok() && fate.strikes(Fault::SettleAfter) {
                after(Err(gone("it was written, and nobody heard of it")));
            } else {
                after(outcome);
            }
        };
        self.store.settle(shard, settlements, Box::new(heard));
    }
}
