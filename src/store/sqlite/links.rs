//! Steps that wait for other steps: telling them what became of those.
//!
//! On one shard it happens in the transaction that ends the parent. Steps of other shards are told
//! by way of the outbox, which is written in that transaction too. Telling twice changes nothing: an
//! edge that is answered is not open any more.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension as _};

use super::SqliteStore;
use super::row;
use super::stand::{self, Waiting};
use super::tx::{Counter, Tx};
use crate::error::Result;
use crate::model::{Ending, LocalId, Need, Released, ShardId, StepId, StepState, Timestamp};
use crate::store::Link;

/// How a step ends that never ran.
#[derive(Clone, Copy, Debug)]
pub(super) struct End<'e> {
    state: StepState,
    ending: &'e Ending,
}

impl<'e> End<'e> {
    pub(super) const fn failed(ending: &'e Ending) -> Self {
        Self {
            state: StepState::Failed,
            ending,
        }
    }

    pub(super) const fn cancelled(ending: &'e Ending) -> Self {
        Self {
            state: StepState::Cancelled,
            ending,
        }
    }
}

/// Ends a step that waits, and tells those who wait for it. Returns whether steps of other shards
/// have yet to be told.
pub(super) fn end_waiting(
    tx: &Tx<'_>,
    step: &Waiting,
    end: End<'_>,
    now: Timestamp,
    released: &mut Vec<Released>,
) -> rusqlite::Result<bool> {
    stand::take(tx, step)?;
    record_end(tx, step, end, now)?;
    tell(tx, step.carried.id, end.state, now, released)
}

/// Records that a step which stands nowhere any more is over without having run.
pub(super) fn record_end(
    tx: &Tx<'_>,
    step: &Waiting,
    end: End<'_>,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let (kind, code, reason) = row::ending_columns(end.ending);
    tx.prepare("DELETE FROM expiring WHERE id = ?1")?
        .execute([step.carried.id.get()])?;
    tx.prepare(
        "INSERT INTO done(id, state, fence, attempt, runner, worker, since, claimed, started,
                          ended, ending, code, reason)
         VALUES (?1, ?2, ?3, ?4, NULL, 0, ?5, ?6, NULL, ?6, ?7, ?8, ?9)",
    )?
    .execute((
        step.carried.id.get(),
        row::final_number(end.state),
        step.carried.fence,
        step.carried.attempt,
        step.carried.since.millis(),
        now.millis(),
        kind,
        code,
        reason,
    ))?;
    tx.count(Counter::of_end(end.state), 1);
    Ok(())
}

/// Tells the steps that wait for one that has just ended. Returns whether somebody has yet to be
/// told: steps of other shards, or whoever gives places of limits away.
pub(super) fn tell(
    tx: &Tx<'_>,
    parent: LocalId,
    state: StepState,
    now: Timestamp,
    released: &mut Vec<Released>,
) -> rusqlite::Result<bool> {
    let mut others = false;
    // What ends because of it has dependents too.
    let mut ended = vec![(parent, state)];
    while let Some((parent, state)) = ended.pop() {
        let children: Vec<(ShardId, LocalId)> = tx
            .prepare(CHILDREN)?
            .query_map([parent.get()], |row| {
                Ok((row::shard(row, 0)?, row::local(row, 1)?))
            })?
            .collect::<rusqlite::Result<_>>()?;
        if children.is_empty() {
            continue;
        }
        tx.prepare("DELETE FROM children WHERE parent = ?1")?
            .execute([parent.get()])?;
        for (shard, child) in children {
            if shard == tx.shard() {
                let parent = StepId::new(shard, parent);
                match answer(tx, child, parent, state, now, released)? {
                    Answer::Ended => ended.push((child, StepState::Cancelled)),
                    Answer::Limited => others = true,
                    Answer::Waits => {}
                }
            } else {
                others = true;
                tx.prepare(
                    "INSERT INTO outbox(shard, child, parent, state) VALUES (?1, ?2, ?3, ?4)",
                )?
                .execute((
                    shard.number(),
                    child.get(),
                    parent.get(),
                    row::final_number(state),
                ))?;
            }
        }
    }
    Ok(others)
}

/// Who is to be told when a step ends.
pub(super) const CHILDREN: &str = "SELECT shard, child FROM children WHERE parent = ?1";

/// What a step makes of the end of a parent.
pub(super) enum Answer {
    /// It waits on, or is due.
    Waits,
    /// Nothing is missing any more but places of its limits.
    Limited,
    /// It is over: its need can never be met.
    Ended,
}

/// Tells one step of this shard how a parent has ended.
pub(super) fn answer(
    tx: &Tx<'_>,
    child: LocalId,
    parent: StepId,
    state: StepState,
    now: Timestamp,
    released: &mut Vec<Released>,
) -> rusqlite::Result<Answer> {
    let open: Vec<Need> = tx
        .prepare(
            "SELECT need FROM edges WHERE child = ?1 AND shard = ?2 AND parent = ?3 AND state = 0",
        )?
        .query_map(
            (child.get(), parent.shard.number(), parent.local.get()),
            |row| row::need(row, 0),
        )?
        .collect::<rusqlite::Result<_>>()?;
    if open.is_empty() {
        return Ok(Answer::Waits);
    }
    let mut met = 0;
    for need in &open {
        let is_met = need.is_met_by(state);
        met += u32::from(is_met);
        tx.prepare(
            "UPDATE edges SET state = ?5
              WHERE child = ?1 AND shard = ?2 AND parent = ?3 AND need = ?4",
        )?
        .execute((
            child.get(),
            parent.shard.number(),
            parent.local.get(),
            row::need_number(*need),
            if is_met { 1 } else { 2 },
        ))?;
    }
    let Some(waiting) = stand::find(tx, child)? else {
        return Ok(Answer::Waits);
    };
    if usize::try_from(met).is_ok_and(|met| met < open.len()) {
        stand::take(tx, &waiting)?;
        let reason = Ending::skipped(parent, Some(state));
        record_end(tx, &waiting, End::cancelled(&reason), now)?;
        return Ok(Answer::Ended);
    }
    if waiting.state == StepState::Blocked {
        let missing: u32 = tx
            .prepare("UPDATE blocked SET missing = missing - ?2 WHERE id = ?1 RETURNING missing")?
            .query_row((child.get(), met), |row| row.get(0))?;
        if missing == 0 {
            stand::take(tx, &waiting)?;
            if release(tx, waiting, now, released)? == StepState::Limited {
                return Ok(Answer::Limited);
            }
        }
    }
    Ok(Answer::Waits)
}

/// Puts a step for which nothing is missing any more where it belongs.
fn release(
    tx: &Tx<'_>,
    waiting: Waiting,
    now: Timestamp,
    released: &mut Vec<Released>,
) -> rusqlite::Result<StepState> {
    let mut step = waiting.carried;
    step.since = now;
    let state = stand::put(tx, &step, 0, now)?;
    if state == StepState::Ready {
        released.push(Released {
            id: StepId::new(tx.shard(), step.id),
            band: step.band,
            key: step.key,
            weight: step.weight,
        });
    }
    Ok(state)
}

/// Returns how a step has ended; `None` if it has not, or there is none.
pub(super) fn ended(connection: &Connection, id: LocalId) -> rusqlite::Result<Option<StepState>> {
    connection
        .prepare_cached("SELECT state FROM done WHERE id = ?1")?
        .query_row([id.get()], |row| row::final_state(row, 0))
        .optional()
}

/// Returns whether there is a step of this id.
pub(super) fn exists(connection: &Connection, id: LocalId) -> rusqlite::Result<bool> {
    connection
        .prepare_cached("SELECT 1 FROM steps WHERE id = ?1")?
        .exists([id.get()])
}

/// Lets a parent of this shard know of a child.
pub(super) fn add_child(tx: &Tx<'_>, parent: LocalId, child: StepId) -> rusqlite::Result<()> {
    tx.prepare("INSERT OR IGNORE INTO children(parent, shard, child) VALUES (?1, ?2, ?3)")?
        .execute((parent.get(), child.shard.number(), child.local.get()))
        .map(drop)
}

/// Keeps what a step of this shard waits for, or waited for.
pub(super) fn add_edge(
    tx: &Tx<'_>,
    child: LocalId,
    parent: StepId,
    need: Need,
    state: u8,
) -> rusqlite::Result<()> {
    tx.prepare(
        "INSERT OR REPLACE INTO edges(child, shard, parent, need, state) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute((
        child.get(),
        parent.shard.number(),
        parent.local.get(),
        row::need_number(need),
        state,
    ))
    .map(drop)
}

/// Reads what a step waits for, or has waited for.
pub(super) fn parents(store: &SqliteStore, id: StepId) -> Result<Vec<Link>> {
    let edges: Vec<(StepId, Need, bool)> = store.shard(id.shard)?.read(|connection| {
        connection
            .prepare_cached("SELECT shard, parent, need, state FROM edges WHERE child = ?1")?
            .query_map([id.local.get()], |row| {
                let parent = StepId::new(row::shard(row, 0)?, row::local(row, 1)?);
                Ok((parent, row::need(row, 2)?, row.get::<_, u8>(3)? == 1))
            })?
            .collect()
    })?;
    edges
        .into_iter()
        .map(|(parent, need, met)| {
            let state = store
                .shard(parent.shard)?
                .read(|connection| super::read::state_of(connection, parent.local))?;
            Ok(Link {
                parent,
                need,
                met,
                state,
            })
        })
        .collect()
}

/// Reads who waits for a step now, blocked or held.
pub(super) fn dependents(store: &SqliteStore, id: StepId) -> Result<Vec<StepId>> {
    let mut waiting = Vec::new();
    for shard in &store.shards {
        waiting.extend(shard.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT DISTINCT child FROM edges
                      WHERE shard = ?1 AND parent = ?2 AND state = 0
                        AND (child IN (SELECT id FROM blocked) OR child IN (SELECT id FROM held))
                      ORDER BY child",
                )?
                .query_map((id.shard.number(), id.local.get()), |row| {
                    Ok(StepId::new(shard.id(), row::local(row, 0)?))
                })?
                .collect::<rusqlite::Result<Vec<_>>>()
        })?);
    }
    Ok(waiting)
}

/// Returns which of these steps of a shard somebody waits for or has waited for who is not over.
pub(super) fn needed(
    store: &SqliteStore,
    shard: ShardId,
    steps: &[LocalId],
) -> Result<BTreeSet<LocalId>> {
    let mut needed = BTreeSet::new();
    for on in &store.shards {
        needed.extend(on.read(|connection| {
            let mut any = connection.prepare_cached(
                "SELECT 1 FROM edges e WHERE e.shard = ?1 AND e.parent = ?2
                    AND NOT EXISTS (SELECT 1 FROM done WHERE id = e.child) LIMIT 1",
            )?;
            let mut found = Vec::new();
            for step in steps {
                if any.exists((shard.number(), step.get()))? {
                    found.push(*step);
                }
            }
            Ok(found)
        })?);
    }
    Ok(needed)
}
