//! Telling steps of other shards what became of those that they wait for.
//!
//! The outbox of a shard is written in the transaction that ends a step; a row leaves it when the
//! other shard has it, so a crash in between delays and loses nothing.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::Connection;

use super::SqliteStore;
use super::desk::Durability;
use super::links::{Answer, add_child, answer, ended, exists, tell};
use super::row;
use super::shard::Shard;
use super::tx::Tx;
use crate::error::Result;
use crate::model::{LocalId, Released, ShardId, StepId, StepState, Timestamp};

/// A row of the outbox.
#[derive(Clone, Copy, Debug)]
struct Letter {
    id: i64,
    to: ShardId,
    child: LocalId,
    parent: LocalId,
    state: StepState,
}

/// Tells the dependents on other shards of what ended on this one.
pub(super) fn deliver(store: &SqliteStore, from: ShardId, now: Timestamp) -> Result<Vec<Released>> {
    let mut released = Vec::new();
    // What ends on another shard because of it has dependents elsewhere too.
    let mut senders = vec![from];
    while let Some(from) = senders.pop() {
        senders.extend(deliver_from(store, from, now, &mut released)?);
    }
    Ok(released)
}

/// Tells what one shard has to tell. Returns the shards that may have more to tell because of it.
fn deliver_from(
    store: &SqliteStore,
    from: ShardId,
    now: Timestamp,
    released: &mut Vec<Released>,
) -> Result<BTreeSet<ShardId>> {
    let mut more = BTreeSet::new();
    let sender = store.shard(from)?;
    loop {
        let letters = sender.read(letters)?;
        if letters.is_empty() {
            return Ok(more);
        }
        let mut by_shard: BTreeMap<ShardId, Vec<Letter>> = BTreeMap::new();
        for letter in letters {
            by_shard.entry(letter.to).or_default().push(letter);
        }
        for (to, letters) in by_shard {
            let mine = letters.clone();
            released.extend(store.shard(to)?.write(store.durability, move |tx| {
                let mut released = Vec::new();
                for letter in &mine {
                    let parent = StepId::new(from, letter.parent);
                    let answer =
                        answer(tx, letter.child, parent, letter.state, now, &mut released)?;
                    if matches!(answer, Answer::Ended) {
                        tell(tx, letter.child, StepState::Cancelled, now, &mut released)?;
                    }
                }
                Ok(released)
            })?);
            more.insert(to);
            // Only now: whoever dies before this tells again.
            sender.write(Durability::Normal, move |tx| {
                let mut remove = tx.prepare("DELETE FROM outbox WHERE id = ?1")?;
                letters
                    .iter()
                    .try_for_each(|letter| remove.execute([letter.id]).map(drop))
            })?;
        }
    }
}

/// Reads what is to be told, in portions.
fn letters(connection: &Connection) -> rusqlite::Result<Vec<Letter>> {
    connection
        .prepare_cached(
            "SELECT id, shard, child, parent, state FROM outbox ORDER BY id LIMIT 1000",
        )?
        .query_map([], |row| {
            Ok(Letter {
                id: row.get(0)?,
                to: row::shard(row, 1)?,
                child: row::local(row, 2)?,
                parent: row::local(row, 3)?,
                state: row::final_state(row, 4)?,
            })
        })?
        .collect()
}

/// An edge that is open between two shards.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) child: LocalId,
    pub(super) parent: StepId,
}

/// Looks whether steps wait for parents on other shards that have ended or were never stored. Only a
/// process that died between two shards leaves such a thing.
pub(super) fn mend(store: &SqliteStore, now: Timestamp) -> Result<Vec<Released>> {
    let mut released = Vec::new();
    for shard in &store.shards {
        for open in shard.read(|connection| open_edges(connection, shard.id()))? {
            let theirs = store.shard(open.parent.shard)?;
            let local = open.parent.local;
            let (there, ended) = theirs
                .read(|connection| Ok((exists(connection, local)?, ended(connection, local)?)))?;
            match (there, ended) {
                (true, None) => register(theirs, shard.id(), open)?,
                (true, Some(state)) => released.extend(mend_one(shard, open, state, now)?),
                // A step that never was is as good as one that was cancelled. But whoever puts both
                // in may just have committed the child's shard: he holds the parent's until that is
                // committed too, so that writing there waits for him.
                (false, _) => {
                    let there = theirs
                        .write(Durability::Normal, move |tx| exists(tx.connection(), local))?;
                    if !there {
                        released.extend(mend_one(shard, open, StepState::Cancelled, now)?);
                    }
                }
            }
        }
    }
    // What ended because of it has dependents too.
    for shard in &store.shards {
        released.extend(deliver(store, shard.id(), now)?);
    }
    Ok(released)
}

/// Reads which steps that wait have edges to other shards which are open.
pub(super) fn open_edges(connection: &Connection, shard: ShardId) -> rusqlite::Result<Vec<Open>> {
    connection
        .prepare_cached(
            "SELECT e.child, e.shard, e.parent
               FROM (SELECT id FROM blocked UNION ALL SELECT id FROM held) w
              CROSS JOIN edges e ON e.child = w.id
              WHERE e.state = 0 AND e.shard <> ?1",
        )?
        .query_map([shard.number()], |row| {
            Ok(Open {
                child: row::local(row, 0)?,
                parent: StepId::new(row::shard(row, 1)?, row::local(row, 2)?),
            })
        })?
        .collect()
}

/// Makes sure that a living parent knows of its child.
fn register(parents: &Shard, child_shard: ShardId, open: Open) -> Result<()> {
    let known = parents.read(|connection| {
        connection
            .prepare_cached(
                "SELECT 1 FROM children WHERE parent = ?1 AND shard = ?2 AND child = ?3",
            )?
            .exists((
                open.parent.local.get(),
                child_shard.number(),
                open.child.get(),
            ))
    })?;
    if known {
        return Ok(());
    }
    parents.write(Durability::Normal, move |tx| {
        add_child(tx, open.parent.local, StepId::new(child_shard, open.child))
    })
}

fn mend_one(shard: &Shard, open: Open, state: StepState, now: Timestamp) -> Result<Vec<Released>> {
    shard.write(Durability::Normal, move |tx| {
        let mut released = Vec::new();
        let answer = answer(tx, open.child, open.parent, state, now, &mut released)?;
        if matches!(answer, Answer::Ended) {
            tell(tx, open.child, StepState::Cancelled, now, &mut released)?;
        }
        Ok(released)
    })
}

/// Takes back what was to be told of the end of a step that is to be tried again.
pub(super) fn untell(tx: &Tx<'_>, parent: LocalId) -> rusqlite::Result<()> {
    let letters: Vec<StepId> = tx
        .prepare("SELECT shard, child FROM outbox WHERE parent = ?1")?
        .query_map([parent.get()], |row| {
            Ok(StepId::new(row::shard(row, 0)?, row::local(row, 1)?))
        })?
        .collect::<rusqlite::Result<_>>()?;
    for child in letters {
        add_child(tx, parent, child)?;
    }
    tx.prepare("DELETE FROM outbox WHERE parent = ?1")?
        .execute([parent.get()])
        .map(drop)
}
