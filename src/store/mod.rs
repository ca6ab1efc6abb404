//! Where steps rest: the seam to storage, cut by who asks.
//!
//! Seven roles, each with just the questions of its one consumer: [`Intake`] for putting in,
//! [`Supply`] for the refiller, [`Claims`] for the crew, [`Settle`] for completion, [`Release`] for
//! the engine that lets steps go which wait for others, [`Read`] and [`Steer`] for people. A backend is a [`Store`], their sum; it passes `tests/store_conformance.rs` and nothing
//! above it changes.
//!
//! Nothing of a database crosses the seam: no row, no statement, no database error. Ordinary
//! outcomes are values (a lost claim is `None`, a late write is [`Settled::Fenced`]); an `Err` means
//! *unknown* and only that. Time is passed in. Batches go in and batches come out: a backend may
//! loop, a caller may not.

mod batch;
mod forward;
mod listing;
pub mod memory;
mod only;
pub mod placement;
pub mod sqlite;
mod steer;
mod view;

use std::collections::BTreeSet;

use crate::error::Result;
use crate::model::{
    Band, Candidate, Claim, FairnessKey, Found, LocalId, LostRun, NewStep, Released, RunnerId,
    Settled, Settlement, ShardId, StepId, Stream, Timestamp,
};
use crate::stats::{Dispatch, Window};
use crate::tally::{ShardTally, Tally};

pub use only::Only;
pub use steer::{Action, Cleaned, Edit, LimitView, Link, Pause, Paused, Retention, Steer, Steered};
pub use view::{Arrival, Attempt, Counts, Filter, Order, ShardCounts, StepView};

/// Puts steps in.
pub trait Intake: Send + Sync {
    /// Stores the steps and returns their ids in the same order. All or nothing: after an error
    /// none of them exists. What is returned survives a power cut.
    ///
    /// # Errors
    ///
    /// `Busy` after waiting in vain for another writer, `Unavailable` if a shard cannot be written.
    fn enqueue(&self, steps: &[NewStep], now: Timestamp) -> Result<Vec<StepId>> {
        let put = self.put(steps, now)?;
        Ok(put.into_iter().map(Put::id).collect())
    }

    /// Does as [`Self::enqueue`], and tells which steps were needless because another one of their
    /// unique key was there. The one that was last put in under a key stands for it, on whatever
    /// shard, until it is cleaned away. Of two steps of one unique key in a batch the second is
    /// needless; who waits for it waits for the first.
    ///
    /// A step waits for others first, then for its time, then for places of limits: it is stored as
    /// held if it asks for that, else as blocked, delayed, limited or due. Of a parent that has
    /// ended already nobody waits for news: the need is met, or the step is over with
    /// [`Ending::Skipped`], at once, held or not. A parent may stand behind its dependents in the
    /// batch.
    ///
    /// # Errors
    ///
    /// As [`Self::enqueue`]; `NotFound` if a parent is not stored, `Usage` if a parent is not in the
    /// batch, or if the steps of the batch wait for each other in a circle, which is named by their
    /// places, counted from 1, each before the one that it waits for: `1 → 2 → 1`.
    ///
    /// [`Ending::Skipped`]: crate::model::Ending::Skipped
    fn put(&self, steps: &[NewStep], now: Timestamp) -> Result<Vec<Put>>;

    /// Puts in as many steps as there come, in bounded memory; nothing of them is kept here but
    /// their ids. They have neither parents nor unique keys, and are of these keys only.
    ///
    /// # Errors
    ///
    /// As [`Self::enqueue`], and the first error that comes instead of a step; in any case nothing
    /// was stored.
    fn pour(
        &self,
        keys: &BTreeSet<FairnessKey>,
        steps: &mut dyn Iterator<Item = Result<NewStep>>,
        now: Timestamp,
    ) -> Result<Vec<StepId>>;

    /// Returns the shard where the next step of this key would go.
    fn place(&self, key: &FairnessKey) -> ShardId;
}

/// What putting a step in came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is stored under this id.
    New(StepId),
    /// It was needless: this one is there.
    Met(StepId),
}

impl Put {
    /// Returns the id of the step that is there now.
    pub const fn id(self) -> StepId {
        match self {
            Self::New(id) | Self::Met(id) => id,
        }
    }
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
    /// Makes due what has become due by `now`, ends what was not to be started any more, and
    /// returns when there will be something to do again.
    ///
    /// What never was claimed and was to be by then fails with [`Ending::Expired`] at `now`, whether
    /// it is due, delayed, blocked, limited or held; its dependents follow. What has limits is not
    /// made due but waits for its places from its time on.
    ///
    /// [`Ending::Expired`]: crate::model::Ending::Expired
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

    /// Returns the shard's best due band and what each key has there; what is paused is left out.
    /// Costs O(keys), never O(backlog).
    ///
    /// # Errors
    ///
    /// The shard could not be read; the caller then clears it from planning.
    fn tally(&self, shard: ShardId) -> Result<ShardTally>;

    /// Returns for each wanted key its oldest due steps at this band, oldest first; fewer if there
    /// are fewer, none if they are paused.
    ///
    /// # Errors
    ///
    /// The shard could not be read.
    fn fetch(&self, shard: ShardId, band: Band, wants: &[Want]) -> Result<Vec<Vec<LocalId>>>;

    /// Promotes and reports, as [`Self::version`], [`Self::promote`] and [`Self::tally`] do, one after
    /// the other, and perhaps in one go. `None` if that would bring nothing new: the shard still has
    /// the version that is `known`, and the time that was told with it has not come.
    ///
    /// # Errors
    ///
    /// The shard could not be read or written; the caller then clears it from planning.
    fn look(&self, shard: ShardId, known: Option<Known>, now: Timestamp) -> Result<Option<Look>> {
        look_in_parts(self, shard, known, now)
    }
}

/// What a caller has seen of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The version of the shard from before that look.
    pub version: u64,
    /// When there will be something to promote.
    pub next: Option<Timestamp>,
}

impl Known {
    /// Returns whether a look at a shard of this version would bring nothing new.
    fn is_all(self, version: u64, now: Timestamp) -> bool {
        self.version == version && self.next.is_none_or(|next| next > now)
    }
}

/// What a look at a shard has brought.
#[derive(Clone, Debug, PartialEq)]
pub struct Look {
    /// What a later look needs to know. The version is that from before the report: if anything
    /// changed meanwhile, the next look is new again.
    pub known: Known,
    /// What is due.
    pub tally: ShardTally,
}

/// Looks at a shard by three questions.
fn look_in_parts<S: Supply + ?Sized>(
    supply: &S,
    shard: ShardId,
    known: Option<Known>,
    now: Timestamp,
) -> Result<Option<Look>> {
    let version = supply.version(shard)?;
    if known.is_some_and(|known| known.is_all(version, now)) {
        return Ok(None);
    }
    let next = supply.promote(shard, now)?;
    Ok(Some(Look {
        known: Known { version, next },
        tally: supply.tally(shard)?,
    }))
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
    /// A step that is paused, or that was not to be started any more, is not granted.
    ///
    /// # Errors
    ///
    /// The shard could not be written, or did not answer: it is not known whether anything was claimed.
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
    /// records the lost tries. One that was lost too often fails ([`Policy::after_loss`]). One whose end somebody has asked for is cancelled instead. The caller
    /// knows that the runner is dead.
    ///
    /// [`Policy::after_loss`]: crate::model::Policy::after_loss
    ///
    /// # Errors
    ///
    /// The shard could not be written; nothing was taken back.
    fn reclaim(&self, shard: ShardId, dead: RunnerId, now: Timestamp) -> Result<Vec<LostRun>>;

    /// Keeps what was found of the output of a try that a dead runner still holds; of any other nothing
    /// is kept. Done again, the last one counts. To be called before the step is taken back.
    ///
    /// # Errors
    ///
    /// The shard could not be written; nothing was kept.
    fn keep(&self, dead: RunnerId, found: Found) -> Result<()>;

    /// Returns the running claims of this runner whose end somebody has asked for, with their
    /// fences.
    ///
    /// # Errors
    ///
    /// The shard could not be read.
    fn wishes(&self, shard: ShardId, runner: RunnerId) -> Result<Vec<(LocalId, u32)>>;
}

/// Lets steps go that wait for something which is not on their own shard.
pub trait Release: Send + Sync {
    /// Tells the dependents on other shards of what ended on this one, and theirs, on whatever shard,
    /// where that ends them. Whatever a crash has cut off is done by the next call. Returns what
    /// became due.
    ///
    /// Until then nothing on another shard changes because of an end on this one; dependents on the
    /// same shard follow in the transaction that ends the step.
    ///
    /// # Errors
    ///
    /// A shard could not be read or written; what is left is told by the next call.
    fn deliver(&self, from: ShardId, now: Timestamp) -> Result<Vec<Released>>;

    /// Takes back the places of limits from steps that neither run nor are due any more, or have other
    /// limits than when they got them, and gives free ones to steps that wait: best band first, within a band fairly among keys, within a key
    /// oldest first; a due step that has not started yet gives way to one of a better band. Returns
    /// what became due; it has been due since `now`.
    ///
    /// * A step gets all its places at once or none.
    /// * Who cannot be served closes the limits that are short for it to all who come after it in
    ///   this round, so that one that needs many places is not passed by for ever; the limits that
    ///   it has enough of stay open. One that needs more places than a limit has closes nothing.
    /// * A step that is paused, or that was not to be started any more, is left out. If a paused one
    ///   is due and has places, it gives way to any step that could start, before those of worse
    ///   bands do.
    /// * Of steps that may give way those of the worst band do, and of these the youngest; none does
    ///   unless the other step can start then. It waits again from `now` on.
    /// * Fairly, by start-time fair queueing: in a limit's own time each step of a key begins where
    ///   the key's last one ended, but not before the present, and lasts places / weight. The key
    ///   whose step begins first is next, of equals the one that has waited longest. Nobody saves
    ///   turns up by being away. The present is where what was served last began.
    ///
    /// # Errors
    ///
    /// A shard could not be read or written; the next call does the rest.
    fn grant(&self, now: Timestamp) -> Result<Vec<Released>>;

    /// Looks whether steps wait for parents that have ended, or that never were stored, because a
    /// process died between two shards; and sets that right. A step whose parent never was stored is
    /// over, as if that had been cancelled. Returns what became due. Costs O(waiting steps with
    /// parents on other shards): for the start of a runner.
    ///
    /// # Errors
    ///
    /// A shard could not be read or written.
    fn mend(&self, now: Timestamp) -> Result<Vec<Released>>;
}

/// What to do when settlements are written, or could not be.
pub type AfterSettle = Box<dyn FnOnce(Result<Vec<Settled>>) + Send>;

/// Writes what became of steps.
pub trait Settle: Send + Sync {
    /// Writes verdicts about steps of `shard`, each fenced by its claim, and then calls `after` with
    /// one answer for each, from whatever thread. Returns before that; settlements of many callers
    /// are grouped into one transaction. On an error nothing was written, and the caller may try
    /// again with the same settlements.
    ///
    /// A step whose end somebody has asked for is cancelled, whatever the verdict, with the ending of
    /// this try. What follows from an end on the same shard happens in the same transaction, as of
    /// the instant at which the try ended.
    fn settle(&self, shard: ShardId, settlements: std::sync::Arc<[Settlement]>, after: AfterSettle);

    /// As [`Self::settle`], but it may wait for the next write to that shard, whose transaction it then
    /// shares. For callers who write there at once, or call [`Self::hurry`] if they do not.
    fn settle_later(
        &self,
        shard: ShardId,
        settlements: std::sync::Arc<[Settlement]>,
        after: AfterSettle,
    ) {
        self.settle(shard, settlements, after);
    }

    /// Has everything written soon that was left for later on that shard. Returns before that.
    fn hurry(&self, _shard: ShardId) {}
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

    /// Returns the ids of the steps that match, in the order of the ids, whatever the filter says of
    /// order and number. Holds nothing else of them in memory.
    ///
    /// # Errors
    ///
    /// A shard could not be read.
    fn find(&self, filter: &Filter) -> Result<Vec<StepId>>;

    /// Returns what this step waits for or has waited for, in the order of the parents' ids, of one
    /// parent in the order of the needs.
    ///
    /// # Errors
    ///
    /// A shard could not be read.
    fn parents(&self, id: StepId) -> Result<Vec<Link>>;

    /// Returns the steps that wait for this one now, blocked or held, in the order of their ids.
    ///
    /// # Errors
    ///
    /// A shard could not be read.
    fn dependents(&self, id: StepId) -> Result<Vec<StepId>>;

    /// Returns what is paused, oldest first.
    ///
    /// # Errors
    ///
    /// A shard could not be read.
    fn pauses(&self) -> Result<Vec<Paused>>;

    /// Returns every limit that was set or that a step waits for or holds a place of, by name. A step
    /// that waits for several limits counts for the one that it was last seen to wait for.
    ///
    /// # Errors
    ///
    /// A shard could not be read.
    fn limits(&self) -> Result<Vec<LimitView>>;

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
pub trait Store: Intake + Supply + Claims + Settle + Release + Read + Steer {
    /// Returns how many shards there are; they are numbered from 0.
    fn shard_count(&self) -> u8;
}
