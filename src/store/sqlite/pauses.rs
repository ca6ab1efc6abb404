//! What is not to start: the same rows on every shard, and a mark on the tallies that they cover.

use rusqlite::Connection;

use super::SqliteStore;
use super::desk::Durability;
use super::row;
use super::tx::Tx;
use crate::error::Result;
use crate::model::{Band, FairnessKey, Timestamp};
use crate::store::{Pause, Paused};

/// Reads what is paused on a shard, oldest first.
pub(super) fn read(connection: &Connection) -> rusqlite::Result<Vec<Paused>> {
    connection
        .prepare_cached("SELECT band, key, since FROM pauses")?
        .query_map([], |row| {
            let band: Option<u32> = row.get(0)?;
            Ok(Paused {
                what: Pause {
                    band: band.and_then(Band::new),
                    key: row
                        .get_ref(1)?
                        .as_str_or_null()?
                        .map(FairnessKey::from_store),
                },
                since: row::timestamp(row, 2)?,
            })
        })?
        .collect()
}

/// Pauses on every shard. What a crash leaves undone, the same call does.
pub(super) fn pause(store: &SqliteStore, what: &Pause, now: Timestamp) -> Result<()> {
    for shard in &store.shards {
        let what = what.clone();
        shard.write(Durability::Full, move |tx| pause_shard(tx, &what, now))?;
    }
    Ok(())
}

/// Resumes on every shard; `true` if any had the pause.
pub(super) fn resume(store: &SqliteStore, what: &Pause) -> Result<bool> {
    let mut any = false;
    for shard in &store.shards {
        let what = what.clone();
        any |= shard.write(Durability::Full, move |tx| resume_shard(tx, &what))?;
    }
    Ok(any)
}

fn pause_shard(tx: &Tx<'_>, what: &Pause, now: Timestamp) -> rusqlite::Result<()> {
    let (band, key) = columns(what);
    let known: i64 = tx
        .prepare("SELECT count(*) FROM pauses WHERE band IS ?1 AND key IS ?2")?
        .query_row((band, key), |row| row.get(0))?;
    if known > 0 {
        return Ok(());
    }
    tx.prepare("INSERT INTO pauses(band, key, since) VALUES (?1, ?2, ?3)")?
        .execute((band, key, now.millis()))?;
    tx.prepare(
        "UPDATE tally SET paused = 1
          WHERE paused = 0 AND (?1 IS NULL OR band = ?1) AND (?2 IS NULL OR key = ?2)",
    )?
    .execute((band, key))?;
    tx.forget_pauses();
    Ok(())
}

fn resume_shard(tx: &Tx<'_>, what: &Pause) -> rusqlite::Result<bool> {
    let (band, key) = columns(what);
    let gone = tx
        .prepare("DELETE FROM pauses WHERE band IS ?1 AND key IS ?2")?
        .execute((band, key))?;
    if gone == 0 {
        return Ok(false);
    }
    tx.forget_pauses();
    let marked: Vec<(Band, FairnessKey)> = tx
        .prepare("SELECT band, key FROM tally WHERE paused = 1")?
        .query_map([], |row| Ok((row::band(row, 0)?, row::key(row, 1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (band, key) in marked {
        if !tx.is_paused(band, &key)? {
            tx.prepare("UPDATE tally SET paused = 0 WHERE paused = 1 AND band = ?1 AND key = ?2")?
                .execute((band.get(), key.as_str()))?;
        }
    }
    Ok(true)
}

fn columns(what: &Pause) -> (Option<u32>, Option<&str>) {
    (
        what.band.map(Band::get),
        what.key.as_ref().map(FairnessKey::as_str),
    )
}
