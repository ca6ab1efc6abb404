//! Where steps rest: the seam to storage, cut by who asks.
//!
//! Five roles, each with just the questions of its one consumer: [`Intake`] for putting in,
//! [`Supply`] for the refiller, [`Claims`] for the crew, [`Settle`] for completion, [`Read`] for
//! people. A backend is a [`Store`], their sum; it passes `tests/store_conformance.rs` and nothing
//! above it changes.
//!
//! Nothing of a database crosses the seam: no row, no statement, no database error. Ordinary
//! outcomes are values (a lost claim is `None`, a late write is [`Settled::Fenced`]); an `Err` means
//! *unknown* and only that. Time is passed in. Batches go in and batches come out: a backend may
//! loop, a caller may not.

mod listing;
pub mod memory;
pub mod placement;
pub mod sqlite;
mod view;

use crate::error::Result;
use crate::model::{
    Band, Candidate, Claim, FairnessKey, LocalId, LostRun, NewStep, RunnerId, Settled, Settlement,
    ShardId, StepId, Stream, Timestamp,
};
use crate::stats::{Dispatch, Window};
use crate::tally::{ShardTally, Tally};

pub use view::{Arrival, Attempt, Counts, Filter, Order, ShardCounts, StepView};

/// Puts steps in.
pub trait Intake: Send + Sync {
    /// Stores the steps and returns their ids in the same order. All or nothing: after an error
    /// none of them exists. What is returned survives a power cut.
    ///
    /// # Errors
    ///
    /// `Busy` after waiting in vain for another writer, `Unavailable` if a shard cannot be written.
    fn enqueue(&self, steps: &[NewStep], now: Timestamp) -> Result<Vec<StepId>>;

    /// Returns the shard where the next step of this key would go.
    fn place(&self, key: &FairnessKey) -> ShardId;
}

/// What a refiller asks for: how many steps of one key it wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// The key.
    pub key: FairnessKey,
    /// How many of its oldest due steps.
    pub count: u32,
}

/// Answers the questions of a refill.
pub trait Supply: Send + Sync {
    /// Makes due what has become due by `now`, and returns when the next one will.
    ///
    /// # Errors
    ///
    /// The shard could not be read or written.
    fn promote(&self, shard: ShardId, now: Timestamp) -> Result<Option<Timestamp>>;

    /// Returns a number that differs whenever anything on the shard may have changed since it was
    /// last asked for, by this process or another.
    ///
    /// # Errors
    ///
    /// The shard could not be read.
    fn version(&self, shard: ShardId) -> Result<u64>;

    /// Returns the shard's best due band and what each key has there. Costs O(keys), never
    /// O(backlog).
    ///
    /// # Errors
    ///
    /// The shard could not be read; the caller then clears it from planning.
    fn tally(&self, shard: ShardId) -> Result<ShardTally>;

    /// Returns for each wanted key its oldest due steps at this band, oldest first; fewer if there
    /// are fewer.
    ///
    /// # Errors
    ///
    /// The shard could not be read.
    fn fetch(&self, shard: ShardId, band: Band, wants: &[Want]) -> Result<Vec<Vec<LocalId>>>;
}

/// Who claims, and until when the claim stands if nobody can ask whether the runner lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The runner.
    pub runner: RunnerId,
    /// The end.
    pub until: Timestamp,
}

/// Grants steps to runners, and takes them back from dead ones.
pub trait Claims: Send + Sync {
    /// Tries to make each candidate this runner's. `None` where it is no longer there to be had: a
    /// lost claim, which is normal.
    ///
    /// All candidates are of `shard`. The fence of a claim is above every earlier one of the step.
    ///
    /// # Errors
    ///
    /// The shard could not be written; nothing was claimed.
    fn claim(
        &self,
        shard: ShardId,
        candidates: &[Candidate],
        lease: Lease,
        now: Timestamp,
    ) -> Result<Vec<Option<Claim>>>;

    /// Lets all claims of a runner on this shard stand until the lease's new end.
    ///
    /// # Errors
    ///
    /// The shard could not be written; the claims stand as long as they did before.
    fn renew(&self, shard: ShardId, lease: Lease) -> Result<()>;

    /// Returns which runners hold steps of this shard, each with the latest end of its leases.
    ///
    /// # Errors
    ///
    /// The shard could not be read.
    fn holders(&self, shard: ShardId) -> Result<Vec<Lease>>;

    /// Takes back all steps of this shard that a dead runner holds, each as its policy says, and
    /// records the lost tries. The caller knows that the runner is dead.
    ///
    /// # Errors
    ///
    /// The shard could not be written; nothing was taken back.
    fn reclaim(&self, shard: ShardId, dead: RunnerId, now: Timestamp) -> Result<Vec<LostRun>>;
}

/// What to do when settlements are written, or could not be.
pub type AfterSettle = Box<dyn FnOnce(Result<Vec<Settled>>) + Send>;

/// Writes what became of steps.
pub trait Settle: Send + Sync {
    /// Writes verdicts about steps of `shard`, each fenced by its claim, and then calls `after` with
    /// one answer for each, from whatever thread. Returns before that; settlements of many callers
    /// are grouped into one transaction. On an error nothing was written, and the caller may try
    /// again with the same settlements.
    fn settle(&self, shard: ShardId, settlements: std::sync::Arc<[Settlement]>, after: AfterSettle);
}

/// Answers people's questions. Never takes a write lock.
pub trait Read: Send + Sync {
    /// Returns one step, or `None` if there is none of this id.
    ///
    /// # Errors
    ///
    /// The shard could not be read.
    fn get(&self, id: StepId) -> Result<Option<StepView>>;

    /// Returns the steps that match, in the filter's order, at most as many as it allows.
    ///
    /// # Errors
    ///
    /// A shard could not be read.
    fn list(&self, filter: &Filter) -> Result<Vec<StepView>>;

    /// Returns every try of a step that is over, first to last.
    ///
    /// # Errors
    ///
    /// The shard could not be read.
    fn attempts(&self, id: StepId) -> Result<Vec<Attempt>>;

    /// Returns what one try wrote to one stream, or `None` if it wrote nothing that was kept.
    ///
    /// # Errors
    ///
    /// The shard could not be read, or the output's file cannot be opened.
    fn output(&self, id: StepId, fence: u32, stream: Stream) -> Result<Option<Output>>;

    /// Returns what each key has due on a shard at one band, whether or not it is the best one.
    ///
    /// # Errors
    ///
    /// The shard could not be read.
    fn tally_at(&self, shard: ShardId, band: Band) -> Result<Vec<Tally>>;

    /// Returns how many due steps of the key come before this one at this band on its shard, whether
    /// or not it is due itself. It counts no further than `most`, and costs that at worst.
    ///
    /// # Errors
    ///
    /// The shard could not be read.
    fn ahead(&self, id: StepId, band: Band, key: &FairnessKey, most: u32) -> Result<u32>;

    /// Returns how many steps of one shard stand in which state, and at which bands.
    ///
    /// # Errors
    ///
    /// The shard could not be read.
    fn counts(&self, shard: ShardId) -> Result<ShardCounts>;

    /// Hands every try of the shard that lies in the window to `each`, in no order; running ones
    /// are among them. Costs O(all tries that are recorded), for there is no index on time; what
    /// lies in the window costs more than what does not.
    ///
    /// # Errors
    ///
    /// The shard could not be read; `each` may have been called by then.
    fn dispatches(
        &self,
        shard: ShardId,
        window: Window,
        each: &mut dyn FnMut(Dispatch),
    ) -> Result<()>;

    /// Returns the steps that were put in after the one of number `after` and not before `since`,
    /// in the order of their numbers, at most `limit` of them. Costs O(log(all steps) + limit); for
    /// this, times are taken to rise with the numbers, and where the clock was set back some steps
    /// from before `since` may be missed or found.
    ///
    /// # Errors
    ///
    /// The shard could not be read.
    fn arrivals(
        &self,
        shard: ShardId,
        after: LocalId,
        since: Timestamp,
        limit: usize,
    ) -> Result<Vec<Arrival>>;
}

/// A kept output: bytes from the store, or a file to read them from.
#[derive(Debug)]
pub enum Output {
    /// These bytes.
    Bytes(Vec<u8>),
    /// All of this file.
    File(std::fs::File),
}

/// Everything that the engine and the command line need of a store.
pub trait Store: Intake + Supply + Claims + Settle + Read {
    /// Returns how many shards there are; they are numbered from 0.
    fn shard_count(&self) -> u8;
}
