//! Forgetting steps that are over.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::ops::Bound;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use rusqlite::{Connection, OptionalExtension as _};

use super::SqliteStore;
use super::desk::Durability;
use super::links;
use super::row;
use super::tx::{Counter, Tx};
use crate::error::Result;
use crate::model::{LocalId, ShardId};
use crate::store::{Cleaned, Retention};

/// So many environments may stay that no step has any more.
const FEW_ENVS: i64 = 16;

/// Forgets a portion of a shard's steps, oldest numbers first, and gives the space back.
pub(super) fn clean(store: &SqliteStore, shard: ShardId, retention: &Retention) -> Result<Cleaned> {
    let on = store.shard(shard)?;
    let chosen = retention.only.as_ref().map(|only| {
        only.iter()
            .filter(|id| id.shard == shard)
            .map(|id| id.local)
            .collect::<BTreeSet<_>>()
    });
    let mut over: Vec<LocalId> = Vec::new();
    let mut last = LocalId::new(0);
    let done = loop {
        let next = on.read(|connection| candidates(connection, retention, &chosen, last))?;
        let Some(at) = next.last() else {
            break true;
        };
        last = *at;
        let needed = links::needed(store, shard, &next)?;
        over.extend(next.into_iter().filter(|id| !needed.contains(id)));
        if over.len() >= retention.most {
            break false;
        }
    };
    let tidy = done && retention.tidy;
    if over.is_empty() && !tidy {
        return Ok(Cleaned {
            done,
            ..Cleaned::default()
        });
    }
    let states = retention.states.clone();
    on.write(Durability::Normal, move |tx| {
        let mut cleaned = Cleaned {
            done,
            ..Cleaned::default()
        };
        for id in &over {
            // It may have been tried again since it was read.
            let state = links::ended(tx.connection(), *id)?;
            let Some(state) = state.filter(|state| states.contains(state)) else {
                continue;
            };
            cleaned.files.extend(forget(tx, *id)?);
            cleaned.steps += 1;
            tx.count(Counter::of_end(state), -1);
        }
        if tidy {
            sweep(tx)?;
        }
        shrink(tx.connection())?;
        Ok(cleaned)
    })
}

/// Returns the numbers of the next steps after `last` that are old enough, at most a portion.
fn candidates(
    connection: &Connection,
    retention: &Retention,
    chosen: &Option<BTreeSet<LocalId>>,
    last: LocalId,
) -> rusqlite::Result<Vec<LocalId>> {
    let before = retention.ended_before.millis();
    let mut found = Vec::new();
    if let Some(chosen) = chosen {
        let mut one =
            connection.prepare_cached("SELECT state FROM done WHERE id = ?1 AND ended < ?2")?;
        for id in chosen.range((Bound::Excluded(last), Bound::Unbounded)) {
            let state = one
                .query_row((id.get(), before), |row| row::final_state(row, 0))
                .optional()?;
            if state.is_some_and(|state| retention.states.contains(&state)) {
                found.push(*id);
                if found.len() == retention.most {
                    break;
                }
            }
        }
        return Ok(found);
    }
    let mut all = connection
        .prepare_cached("SELECT id, state FROM done WHERE id > ?1 AND ended < ?2 ORDER BY id")?;
    let mut rows = all.query((last.get(), before))?;
    while let Some(row) = rows.next()? {
        if retention.states.contains(&row::final_state(row, 1)?) {
            found.push(row::local(row, 0)?);
            if found.len() == retention.most {
                break;
            }
        }
    }
    Ok(found)
}

/// Removes everything of a step that is over, or that never was; returns the files of its outputs.
pub(super) fn forget(tx: &Tx<'_>, id: LocalId) -> rusqlite::Result<Vec<PathBuf>> {
    let files = tx
        .prepare("DELETE FROM output WHERE id = ?1 RETURNING path")?
        .query_map([id.get()], |row| row.get::<_, Option<Vec<u8>>>(0))?
        .collect::<rusqlite::Result<Vec<_>>>()?
        .into_iter()
        .flatten()
        .map(|path| PathBuf::from(OsString::from_vec(path)))
        .collect();
    for sql in [
        "DELETE FROM done WHERE id = ?1",
        "DELETE FROM attempts WHERE id = ?1",
        "DELETE FROM expiring WHERE id = ?1",
        "DELETE FROM tags WHERE id = ?1",
        "DELETE FROM edges WHERE child = ?1",
        "DELETE FROM children WHERE parent = ?1",
        "DELETE FROM steps WHERE id = ?1",
    ] {
        tx.prepare(sql)?.execute([id.get()])?;
    }
    Ok(files)
}

/// Removes what belongs to no step any more. A handful of environments is not worth the walk over
/// all steps.
fn sweep(tx: &Tx<'_>) -> rusqlite::Result<()> {
    let envs: i64 = tx
        .prepare("SELECT count(*) FROM envs")?
        .query_row([], |row| row.get(0))?;
    if envs > FEW_ENVS {
        tx.prepare("DELETE FROM envs WHERE id NOT IN (SELECT env FROM steps)")?
            .execute([])?;
    }
    tx.prepare(
        "DELETE FROM uniques
          WHERE shard = ?1 AND NOT EXISTS (SELECT 1 FROM steps WHERE id = uniques.step)",
    )?
    .execute([tx.shard().number()])
    .map(drop)
}

/// Gives pages that hold nothing any more back to the file system, a bounded number of them.
fn shrink(connection: &Connection) -> rusqlite::Result<()> {
    let mut vacuum = connection.prepare_cached("PRAGMA incremental_vacuum(4000)")?;
    let mut rows = vacuum.query([])?;
    while rows.next()?.is_some() {}
    Ok(())
}
