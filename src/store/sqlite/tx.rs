//! One write transaction, and the sums that it keeps in step.
//!
//! Steps enter and leave `ready` through here alone, so that `tally` always says what `ready` holds.
//! The sums are gathered while the transaction runs and written once at its end, per key and not per
//! step: a group of 64 claims of one key seeks the key's next head once (triggers would do it 64
//! times, and cost 25 % of a bulk enqueue).

use std::cell::RefCell;
use std::collections::BTreeMap;

use rusqlite::{CachedStatement, Connection, OptionalExtension as _};

use super::pauses;
use crate::model::{Band, FairnessKey, LocalId, ShardId, StepState, Timestamp, Weight};
use crate::store::Paused;

/// A row of `ready`, less its key columns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ReadyRow {
    pub(super) since: Timestamp,
    pub(super) weight: Weight,
    pub(super) attempt: u32,
    pub(super) fence: u32,
}

/// A counter that is kept so that nobody has to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Counter {
    Succeeded,
    Failed,
    Cancelled,
    Delayed,
    Blocked,
    Limited,
    Held,
}

impl Counter {
    /// Returns the counter of a final state; that of the cancelled for one that is none.
    pub(super) const fn of_end(state: StepState) -> Self {
        match state {
            StepState::Succeeded => Self::Succeeded,
            StepState::Failed => Self::Failed,
            StepState::Cancelled
            | StepState::Running
            | StepState::Ready
            | StepState::Delayed
            | StepState::Blocked
            | StepState::Limited
            | StepState::Held => Self::Cancelled,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Delayed => "delayed",
            Self::Blocked => "blocked",
            Self::Limited => "limited",
            Self::Held => "held",
        }
    }
}

/// What happened to one key's due steps.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    /// How many more there are.
    more: i64,
    /// The least id that came in, with its age and weight.
    least: Option<(LocalId, Timestamp, Weight)>,
    /// Whether any went out: the head may be gone.
    out: bool,
}

#[derive(Debug, Default)]
struct Sums {
    ready: BTreeMap<(Band, FairnessKey), Change>,
    counters: BTreeMap<Counter, i64>,
}

/// A write transaction that is open on a connection.
#[derive(Debug)]
pub(super) struct Tx<'c> {
    connection: &'c Connection,
    shard: ShardId,
    sums: RefCell<Sums>,
    /// What is paused on this shard, once somebody has asked.
    pauses: RefCell<Option<Vec<Paused>>>,
}

impl<'c> Tx<'c> {
    /// Starts one. Takes the write lock at once: a transaction that reads first and writes later
    /// fails in a third of all cases where others write, however long it is told to wait.
    pub(super) fn begin(connection: &'c Connection, shard: ShardId) -> rusqlite::Result<Self> {
        connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        Ok(Self {
            connection,
            shard,
            sums: RefCell::default(),
            pauses: RefCell::default(),
        })
    }

    /// Returns the shard that it writes.
    pub(super) const fn shard(&self) -> ShardId {
        self.shard
    }

    /// Returns whether nothing of this band and key is to start. What is paused is read once a
    /// transaction: pausing and resuming have transactions of their own.
    pub(super) fn is_paused(&self, band: Band, key: &FairnessKey) -> rusqlite::Result<bool> {
        let mut known = self.pauses.borrow_mut();
        let pauses = match &mut *known {
            Some(pauses) => pauses,
            unread => unread.insert(pauses::read(self.connection)?),
        };
        Ok(pauses.iter().any(|pause| pause.what.covers(band, key)))
    }

    /// Forgets what is paused, after this transaction has changed it.
    pub(super) fn forget_pauses(&self) {
        *self.pauses.borrow_mut() = None;
    }

    /// Writes the sums and makes all of it last.
    pub(super) fn commit(self) -> rusqlite::Result<()> {
        let written = self.write_sums().and_then(|()| {
            self.prepare("COMMIT")
                .and_then(|mut commit| commit.execute([]))
        });
        match written {
            Ok(_) => Ok(()),
            Err(error) => {
                self.roll_back();
                Err(error)
            }
        }
    }

    /// Undoes all of it.
    pub(super) fn roll_back(self) {
        // SQLite has rolled back by itself after some errors (a full disk); then this one fails, and
        // what is wanted has happened.
        if !self.connection.is_autocommit()
            && let Ok(mut rollback) = self.prepare("ROLLBACK")
        {
            drop(rollback.execute([]));
        }
    }

    /// Returns a statement that is prepared once a connection.
    pub(super) fn prepare(&self, sql: &str) -> rusqlite::Result<CachedStatement<'c>> {
        self.connection.prepare_cached(sql)
    }

    /// Returns the connection, for reading within the transaction.
    pub(super) const fn connection(&self) -> &'c Connection {
        self.connection
    }

    /// Makes a step due.
    pub(super) fn put_ready(
        &self,
        band: Band,
        key: &FairnessKey,
        id: LocalId,
        row: ReadyRow,
    ) -> rusqlite::Result<()> {
        self.prepare(
            "INSERT INTO ready(band, key, id, since, weight, attempt, fence)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute((
            band.get(),
            key.as_str(),
            id.get(),
            row.since.millis(),
            row.weight.get(),
            row.attempt,
            row.fence,
        ))?;
        let mut sums = self.sums.borrow_mut();
        let change = sums.change(band, key);
        change.more += 1;
        if change.least.is_none_or(|(least, ..)| id < least) {
            change.least = Some((id, row.since, row.weight));
        }
        Ok(())
    }

    /// Takes a step out of what is due. `None` if it is not there.
    pub(super) fn take_ready(
        &self,
        band: Band,
        key: &FairnessKey,
        id: LocalId,
    ) -> rusqlite::Result<Option<ReadyRow>> {
        let place = (band.get(), key.as_str(), id.get());
        // Looking first costs less than RETURNING, which fills a table of its own.
        let row = self
            .prepare(
                "SELECT since, weight, attempt, fence FROM ready
                  WHERE band = ?1 AND key = ?2 AND id = ?3",
            )?
            .query_row(place, |row| {
                Ok(ReadyRow {
                    since: Timestamp::from_millis(row.get(0)?),
                    weight: Weight::or_one(row.get(1)?),
                    attempt: row.get(2)?,
                    fence: row.get(3)?,
                })
            })
            .optional()?;
        if row.is_some() {
            self.prepare("DELETE FROM ready WHERE band = ?1 AND key = ?2 AND id = ?3")?
                .execute(place)?;
            let mut sums = self.sums.borrow_mut();
            let change = sums.change(band, key);
            change.more -= 1;
            change.out = true;
        }
        Ok(row)
    }

    /// Adds to a counter.
    pub(super) fn count(&self, counter: Counter, more: i64) {
        *self.sums.borrow_mut().counters.entry(counter).or_default() += more;
    }

    fn write_sums(&self) -> rusqlite::Result<()> {
        let sums = self.sums.take();
        for ((band, key), change) in &sums.ready {
            match (change.out, change.least) {
                (false, Some((id, since, weight))) => self
                    .prepare(
                        "INSERT INTO tally(paused, band, key, n, head, since, weight)
                         VALUES (?7, ?1, ?2, ?3, ?4, ?5, ?6)
                         ON CONFLICT(paused, band, key) DO UPDATE SET
                           n      = n + excluded.n,
                           since  = iif(excluded.head < head, excluded.since, since),
                           weight = iif(excluded.head < head, excluded.weight, weight),
                           head   = min(head, excluded.head)",
                    )?
                    .execute((
                        band.get(),
                        key.as_str(),
                        change.more,
                        id.get(),
                        since.millis(),
                        weight.get(),
                        self.is_paused(*band, key)?,
                    ))
                    .map(drop)?,
                (true, _) => self.seek_head(*band, key, change.more)?,
                (false, None) => {}
            }
        }
        for (counter, more) in &sums.counters {
            if *more != 0 {
                self.prepare("UPDATE counters SET value = value + ?2 WHERE name = ?1")?
                    .execute((counter.name(), more))?;
            }
        }
        Ok(())
    }

    /// Finds the key's oldest due step anew, after some were taken.
    fn seek_head(&self, band: Band, key: &FairnessKey, more: i64) -> rusqlite::Result<()> {
        let head = self
            .prepare(
                "SELECT id, since, weight FROM ready
                  WHERE band = ?1 AND key = ?2 ORDER BY id LIMIT 1",
            )?
            .query_row((band.get(), key.as_str()), |row| {
                Ok((
                    row.get::<_, i64>(0)?,
                    row.get::<_, i64>(1)?,
                    row.get::<_, f64>(2)?,
                ))
            })
            .optional()?;
        match head {
            None => self
                .prepare("DELETE FROM tally WHERE paused = ?3 AND band = ?1 AND key = ?2")?
                .execute((band.get(), key.as_str(), self.is_paused(band, key)?))
                .map(drop),
            Some((id, since, weight)) => self
                .prepare(
                    "INSERT INTO tally(paused, band, key, n, head, since, weight)
                     VALUES (?7, ?1, ?2, ?3, ?4, ?5, ?6)
                     ON CONFLICT(paused, band, key) DO UPDATE SET
                       n = n + excluded.n, head = excluded.head,
                       since = excluded.since, weight = excluded.weight",
                )?
                .execute((
                    band.get(),
                    key.as_str(),
                    more,
                    id,
                    since,
                    weight,
                    self.is_paused(band, key)?,
                ))
                .map(drop),
        }
    }
}

impl Sums {
    fn change(&mut self, band: Band, key: &FairnessKey) -> &mut Change {
        self.ready.entry((band, key.clone())).or_default()
    }
}
