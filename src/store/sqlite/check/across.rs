//! Between shards: news that nobody brought, places that nobody holds, pauses that differ.

use std::collections::BTreeSet;

use super::{Finding, place, some_of};
use crate::error::Result;
use crate::model::{LocalId, ShardId, StepId, StepState};
use crate::store::sqlite::desk::Durability;
use crate::store::sqlite::shard::Shard;
use crate::store::sqlite::{SqliteStore, outbox, pauses, read, row};

const MENDS: &str = "the next runner sets it right, or fairq doctor --repair";

/// Looks at what lies between the shards that can be read.
pub(super) fn check(store: &SqliteStore, readable: &[ShardId], alive: bool) -> Vec<Finding> {
    let shards: Vec<&Shard> = store
        .shards
        .iter()
        .filter(|shard| readable.contains(&shard.id()))
        .collect();
    let mut findings = Vec::new();
    let mut keep = |place: String, found: Result<Option<Finding>>| match found {
        Ok(found) => findings.extend(found),
        Err(error) => findings.push(Finding::of_error("tables", place, &error)),
    };
    for shard in &shards {
        keep(place(shard.id()), waiting(store, shard, readable));
        keep(place(shard.id()), differing(&shards, shard));
        if !alive {
            keep(place(shard.id()), letters(shard));
        }
    }
    if let (false, Some(first)) = (
        alive,
        shards.first().filter(|shard| shard.id().index() == 0),
    ) {
        keep(place(first.id()), places(store, first, readable));
    }
    findings
}

/// Finds news of ends that were not brought to other shards.
fn letters(shard: &Shard) -> Result<Option<Finding>> {
    let children = shard.read(|connection| {
        connection
            .prepare("SELECT DISTINCT shard, child FROM outbox ORDER BY shard, child")?
            .query_map([], |row| {
                Ok(StepId::new(row::shard(row, 0)?, row::local(row, 1)?).to_string())
            })?
            .collect::<rusqlite::Result<Vec<_>>>()
    })?;
    Ok((!children.is_empty()).then(|| {
        let what = format!(
            "has not told {} of ends that they wait for",
            some_of(&children)
        );
        Finding::warning("outbox", place(shard.id()), what, MENDS)
    }))
}

/// Finds steps that wait for steps of other shards which will never tell them.
fn waiting(store: &SqliteStore, shard: &Shard, readable: &[ShardId]) -> Result<Option<Finding>> {
    let mut stuck = BTreeSet::new();
    for open in shard.read(|connection| outbox::open_edges(connection, shard.id()))? {
        if !readable.contains(&open.parent.shard) {
            continue;
        }
        let child = StepId::new(shard.id(), open.child);
        // Whoever puts both in at once holds the parent's shard until it is committed, too.
        let theirs = store.shard(open.parent.shard)?;
        let will_tell = theirs.read(|connection| tells(connection, open.parent.local, child))?
            || theirs.write(Durability::Normal, move |tx| {
                tells(tx.connection(), open.parent.local, child)
            })?;
        // What was told meanwhile is not open any more.
        let still = !will_tell && shard.read(|connection| is_open(connection, open))?;
        if still {
            stuck.insert(child.to_string());
        }
    }
    let stuck: Vec<String> = stuck.into_iter().collect();
    Ok((!stuck.is_empty()).then(|| {
        let what = format!(
            "{} wait for steps that will never tell them",
            some_of(&stuck)
        );
        Finding::error("edges", place(shard.id()), what, MENDS)
    }))
}

/// Returns whether a step will tell another one of its end, or has put that into the outbox.
fn tells(
    connection: &rusqlite::Connection,
    parent: LocalId,
    child: StepId,
) -> rusqlite::Result<bool> {
    let keys = (parent.get(), child.shard.number(), child.local.get());
    let knows = |sql: &str| connection.prepare_cached(sql)?.exists(keys);
    Ok(
        knows("SELECT 1 FROM children WHERE parent = ?1 AND shard = ?2 AND child = ?3")?
            || knows("SELECT 1 FROM outbox WHERE parent = ?1 AND shard = ?2 AND child = ?3")?,
    )
}

/// Returns whether an edge is open still.
fn is_open(connection: &rusqlite::Connection, open: outbox::Open) -> rusqlite::Result<bool> {
    let parent = (open.parent.shard.number(), open.parent.local.get());
    connection
        .prepare_cached(
            "SELECT 1 FROM edges WHERE child = ?1 AND shard = ?2 AND parent = ?3 AND state = 0",
        )?
        .exists((open.child.get(), parent.0, parent.1))
}

/// Finds places of limits whose holders neither run nor are due.
fn places(store: &SqliteStore, first: &Shard, readable: &[ShardId]) -> Result<Option<Finding>> {
    let held = first.read(|connection| {
        connection
            .prepare("SELECT shard, step, name FROM places ORDER BY name, shard, step")?
            .query_map([], |row| {
                let holder = StepId::new(row::shard(row, 0)?, row::local(row, 1)?);
                Ok((holder, row.get::<_, String>(2)?))
            })?
            .collect::<rusqlite::Result<Vec<_>>>()
    })?;
    let mut lost = Vec::new();
    for (holder, name) in held {
        if !readable.contains(&holder.shard) {
            continue;
        }
        let state = store
            .shard(holder.shard)?
            .read(|connection| read::state_of(connection, holder.local))?;
        if !matches!(state, Some(StepState::Ready | StepState::Running)) {
            lost.push(format!("{name} by {holder}"));
        }
    }
    Ok((!lost.is_empty()).then(|| {
        let what = format!(
            "places of limits are held that nobody needs: {}",
            some_of(&lost)
        );
        Finding::warning("limits", place(first.id()), what, MENDS)
    }))
}

/// Finds a shard whose pauses are not those of the first one.
fn differing(shards: &[&Shard], shard: &Shard) -> Result<Option<Finding>> {
    let Some(first) = shards.first().filter(|first| first.id() != shard.id()) else {
        return Ok(None);
    };
    let of = |shard: &Shard| -> Result<BTreeSet<String>> {
        let pauses = shard.read(pauses::read)?;
        Ok(pauses
            .into_iter()
            .map(|pause| format!("{:?}", pause.what))
            .collect())
    };
    // Whoever pauses does so shard by shard: looked at again, that is over.
    let differ = of(first)? != of(shard)? && of(first)? != of(shard)?;
    Ok(differ.then(|| {
        Finding::error(
            "pauses",
            place(shard.id()),
            format!(
                "has other pauses than shard {}: some steps start that should not, or the reverse",
                first.id()
            ),
            "pause or resume again what is meant: fairq status names all pauses",
        )
    }))
}
