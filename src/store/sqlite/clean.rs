//! Forgetting steps that are over.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use rusqlite::Connection;

use super::row;
use super::shard::Shard;
use super::tx::{Counter, Tx};
use super::writer::Durability;
use crate::error::Result;
use crate::model::{LocalId, StepState};
use crate::store::{Cleaned, Retention};

/// How many steps are forgotten in one transaction.
const PORTION: usize = 1000;
/// So many environments may stay that no step has any more.
const FEW_ENVS: i64 = 16;

/// Forgets a portion of a shard's steps, oldest numbers first, and gives the space back.
pub(super) fn clean(shard: &Shard, retention: &Retention) -> Result<Cleaned> {
    let chosen = retention.only.as_ref().map(|only| {
        only.iter()
            .filter(|id| id.shard == shard.id())
            .map(|id| id.local)
            .collect::<Vec<_>>()
    });
    let retention = retention.clone();
    shard.write(Durability::Normal, move |tx| {
        let over = over(tx, &retention, chosen.as_deref())?;
        let done = over.len() < PORTION;
        let mut files = Vec::new();
        for (id, state) in &over {
            files.extend(forget(tx, *id)?);
            tx.count(
                match state {
                    StepState::Succeeded => Counter::Succeeded,
                    StepState::Failed => Counter::Failed,
                    StepState::Cancelled
                    | StepState::Running
                    | StepState::Ready
                    | StepState::Delayed
                    | StepState::Blocked
                    | StepState::Limited
                    | StepState::Held => Counter::Cancelled,
                },
                -1,
            );
        }
        if done {
            sweep(tx)?;
        }
        shrink(tx.connection())?;
        Ok(Cleaned {
            steps: over.len() as u64,
            files,
            done,
        })
    })
}

/// Returns a portion of the steps that are to be forgotten.
fn over(
    tx: &Tx<'_>,
    retention: &Retention,
    chosen: Option<&[LocalId]>,
) -> rusqlite::Result<Vec<(LocalId, StepState)>> {
    let before = retention.ended_before.millis();
    let read = |row: &rusqlite::Row<'_>| Ok((row::local(row, 0)?, row::final_state(row, 1)?));
    let wanted = |state: &StepState| retention.states.contains(state);
    let mut found = Vec::new();
    if let Some(chosen) = chosen {
        let mut one = tx.prepare("SELECT id, state FROM done WHERE id = ?1 AND ended < ?2")?;
        for id in chosen {
            let mut rows = one.query_map((id.get(), before), read)?;
            if let Some(row) = rows.next() {
                found.extend(Some(row?).filter(|(_, state)| wanted(state)));
            }
            if found.len() == PORTION {
                break;
            }
        }
        return Ok(found);
    }
    let mut all = tx.prepare("SELECT id, state FROM done WHERE ended < ?1 ORDER BY id")?;
    for row in all.query_map([before], read)? {
        found.extend(Some(row?).filter(|(_, state)| wanted(state)));
        if found.len() == PORTION {
            break;
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
