//! The questions of a refill. Each statement searches one key range and sorts nothing; a test holds
//! them to it.

use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Row};

use super::SqliteStore;
use super::desk::Durability;
use super::links;
use super::pauses;
use super::row;
use super::shard;
use super::stand::{self, Carried};
use super::tx::{Counter, Tx};
use crate::error::Result;
use crate::model::{Band, Ending, LocalId, ShardId, Timestamp, Weight};
use crate::store::{Known, Look, Supply, Want, look_in_parts};
use crate::tally::{ShardTally, Tally};

/// The best band and what each key has there.
pub(super) const TALLY: &str = "SELECT band, key, n, since, weight FROM tally
      WHERE paused = 0 AND band = (SELECT min(band) FROM tally WHERE paused = 0) ORDER BY key";
/// A key's oldest due steps.
pub(super) const FETCH: &str =
    "SELECT id FROM ready WHERE band = ?1 AND key = ?2 ORDER BY id LIMIT ?3";
/// What has become due, oldest first.
pub(super) const COME_DUE: &str =
    "SELECT d.id, d.due, d.attempt, d.fence, s.band, s.key, s.weight, s.policy
       FROM delayed d CROSS JOIN steps s ON s.id = d.id
      WHERE d.due <= ?1 ORDER BY d.due, d.id LIMIT 1000";
/// When the next step falls due.
pub(super) const NEXT_DUE: &str = "SELECT due FROM delayed ORDER BY due LIMIT 1";
/// When the next one is not to be started any more.
pub(super) const NEXT_EXPIRY: &str = "SELECT at FROM expiring ORDER BY at LIMIT 1";
/// What is not to be started any more.
const EXPIRED: &str = "SELECT id FROM expiring WHERE at <= ?1 ORDER BY at, id LIMIT 1000";

/// What a look at one moment has shown.
enum Glance {
    Same,
    New(Look),
    /// There is something to promote first.
    Due,
}

impl Supply for SqliteStore {
    fn look(&self, shard: ShardId, known: Option<Known>, now: Timestamp) -> Result<Option<Look>> {
        // In one transaction: for each of its own, the log is locked, and whatever another connection
        // has written makes it forget the pages that it had.
        let glance = self.shard(shard)?.watch(|connection| {
            shard::snapshot(connection, |connection| {
                let version = version(connection)?;
                if known.is_some_and(|known| known.is_all(version, now)) {
                    return Ok(Glance::Same);
                }
                let next = next(connection)?;
                if next.is_some_and(|next| next <= now) {
                    return Ok(Glance::Due);
                }
                Ok(Glance::New(Look {
                    known: Known { version, next },
                    tally: tally(connection)?,
                }))
            })
        })?;
        match glance {
            Glance::Same => Ok(None),
            Glance::New(look) => Ok(Some(look)),
            Glance::Due => look_in_parts(self, shard, known, now),
        }
    }

    fn promote(&self, shard: ShardId, now: Timestamp) -> Result<Option<Timestamp>> {
        let shard = self.shard(shard)?;
        loop {
            let next = shard.watch(next)?;
            if next.is_none_or(|next| next > now) {
                return Ok(next);
            }
            // In portions: a writer that moves a million steps at once holds everybody up.
            shard.write(Durability::Normal, move |tx| {
                promote(tx, now)?;
                expire(tx, now)
            })?;
        }
    }

    fn version(&self, shard: ShardId) -> Result<u64> {
        self.shard(shard)?.watch(version)
    }

    fn tally(&self, shard: ShardId) -> Result<ShardTally> {
        self.shard(shard)?.watch(tally)
    }

    fn fetch(&self, shard: ShardId, band: Band, wants: &[Want]) -> Result<Vec<Vec<LocalId>>> {
        self.shard(shard)?.watch(|connection| {
            // All keys are seen at one moment, and the log is locked once.
            shard::snapshot(connection, |connection| {
                let mut statement = connection.prepare_cached(FETCH)?;
                let paused = pauses::read(connection)?;
                wants
                    .iter()
                    .map(|want| {
                        if paused
                            .iter()
                            .any(|pause| pause.what.covers(band, &want.key))
                        {
                            return Ok(Vec::new());
                        }
                        fetch_key(&mut statement, band, want)
                    })
                    .collect()
            })
        })
    }
}

fn version(connection: &Connection) -> rusqlite::Result<u64> {
    connection
        .prepare_cached("PRAGMA data_version")?
        .query_row([], |row| row.get::<_, i64>(0))
        .map(i64::cast_unsigned)
}

/// Returns when there will be something to promote or to end.
fn next(connection: &Connection) -> rusqlite::Result<Option<Timestamp>> {
    let (due, expiry) = (
        first(connection, NEXT_DUE)?,
        first(connection, NEXT_EXPIRY)?,
    );
    Ok(due.into_iter().chain(expiry).min())
}

fn first(connection: &Connection, sql: &str) -> rusqlite::Result<Option<Timestamp>> {
    connection
        .prepare_cached(sql)?
        .query_row([], |row| row::timestamp(row, 0))
        .optional()
}

fn promote(tx: &Tx<'_>, now: Timestamp) -> rusqlite::Result<()> {
    let mut statement = tx.prepare(COME_DUE)?;
    let due = statement
        .query_map([now.millis()], |row| {
            Ok(Carried {
                id: row::local(row, 0)?,
                band: row::band(row, 4)?,
                key: row::key(row, 5)?,
                weight: Weight::or_one(row.get(6)?),
                limit: row::policy(row, 7)?.limits.into_keys().next(),
                due: None,
                since: row::timestamp(row, 1)?,
                attempt: row.get(2)?,
                fence: row.get(3)?,
            })
        })?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let mut remove = tx.prepare("DELETE FROM delayed WHERE id = ?1")?;
    for step in &due {
        remove.execute([step.id.get()])?;
        stand::put(tx, step, 0, now)?;
    }
    tx.count(Counter::Delayed, -i64::try_from(due.len()).unwrap_or(0));
    Ok(())
}

/// Ends the steps that were not started in time. One that has been started is left alone.
fn expire(tx: &Tx<'_>, now: Timestamp) -> rusqlite::Result<()> {
    let over: Vec<LocalId> = tx
        .prepare(EXPIRED)?
        .query_map([now.millis()], |row| row::local(row, 0))?
        .collect::<rusqlite::Result<_>>()?;
    let mut remove = tx.prepare("DELETE FROM expiring WHERE id = ?1")?;
    for id in over {
        remove.execute([id.get()])?;
        let Some(step) = stand::find(tx, id)? else {
            continue;
        };
        if step.carried.fence == 0 {
            // Whoever waits for it on this shard is found by the cycle that called us.
            let mut released = Vec::new();
            let end = links::End::failed(&Ending::Expired);
            links::end_waiting(tx, &step, end, now, &mut released)?;
        }
    }
    Ok(())
}

/// Reads the tally of one shard.
pub(super) fn tally(connection: &Connection) -> rusqlite::Result<ShardTally> {
    let mut statement = connection.prepare_cached(TALLY)?;
    let mut rows = statement.query([])?;
    let mut band = None;
    let mut keys = Vec::new();
    while let Some(row) = rows.next()? {
        if band.is_none() {
            band = Some(row::band(row, 0)?);
        }
        keys.push(tally_row(row)?);
    }
    Ok(band.map_or_else(ShardTally::nothing, |band| ShardTally::new(band, keys)))
}

/// Reads one row of `tally`: band, key, n, since, weight.
pub(super) fn tally_row(row: &Row<'_>) -> rusqlite::Result<Tally> {
    Ok(Tally {
        key: row::key(row, 1)?,
        count: u32::try_from(row.get::<_, i64>(2)?).unwrap_or(u32::MAX),
        since: row::timestamp(row, 3)?,
        weight: Weight::or_one(row.get(4)?),
    })
}

fn fetch_key(
    statement: &mut CachedStatement<'_>,
    band: Band,
    want: &Want,
) -> rusqlite::Result<Vec<LocalId>> {
    statement
        .query_map((band.get(), want.key.as_str(), want.count), |row| {
            row::local(row, 0)
        })?
        .collect()
}
