//! Trying steps again by hand: their tries are counted from the start, what was recorded stays, and
//! what they wait for is judged anew.

use std::collections::{BTreeMap, BTreeSet};

use super::SqliteStore;
use super::desk::Durability;
use super::intake::policy_text;
use super::links;
use super::read;
use super::row::{self, SELECT_STEP, StepRow};
use super::stand::{self, Carried};
use super::steer::{PORTION, missing, reopen};
use super::tx::Tx;
use crate::error::Result;
use crate::model::{LocalId, Need, ShardId, StepId, StepState, Timestamp};
use crate::store::Steered;

/// What steps wait for, or have waited for.
type Edges = BTreeMap<StepId, Vec<Edge>>;
/// One of those: the parent, what has to become of it, and what was known of that.
#[derive(Clone, Copy, Debug)]
struct Edge {
    parent: StepId,
    need: Need,
    state: u8,
}

/// Where steps of other shards stand.
type States = BTreeMap<StepId, Option<StepState>>;

/// Lets steps be tried again; answers in their order.
pub(super) fn retry(store: &SqliteStore, ids: &[StepId], now: Timestamp) -> Result<Vec<Steered>> {
    let mut answers: BTreeMap<StepId, Steered> = BTreeMap::new();
    let edges = edges(store, ids)?;
    // Parents before children: a child judged first would find its parent still failed.
    for (shard, steps) in layers(ids, &edges) {
        for portion in steps.chunks(PORTION) {
            let came = retry_portion(store, shard, portion, &edges, now)?;
            let ids = portion.iter().map(|local| StepId::new(shard, *local));
            answers.extend(ids.zip(came));
        }
    }
    Ok(ids
        .iter()
        .map(|id| answers.get(id).copied().unwrap_or(Steered::Missing))
        .collect())
}

fn edges(store: &SqliteStore, ids: &[StepId]) -> Result<Edges> {
    let mut by_shard: BTreeMap<ShardId, Vec<LocalId>> = BTreeMap::new();
    for id in ids {
        if id.shard.index() < store.shards.len() {
            by_shard.entry(id.shard).or_default().push(id.local);
        }
    }
    let mut edges = Edges::new();
    for (shard, steps) in by_shard {
        store.shard(shard)?.read(|connection| {
            let mut statement = connection
                .prepare_cached("SELECT shard, parent, need, state FROM edges WHERE child = ?1")?;
            for step in &steps {
                let found = statement
                    .query_map([step.get()], |row| {
                        Ok(Edge {
                            parent: StepId::new(row::shard(row, 0)?, row::local(row, 1)?),
                            need: row::need(row, 2)?,
                            state: row.get(3)?,
                        })
                    })?
                    .collect::<rusqlite::Result<Vec<_>>>()?;
                edges.insert(StepId::new(shard, *step), found);
            }
            Ok(())
        })?;
    }
    Ok(edges)
}

/// Sorts steps into layers, each a part of one shard, so that no step comes before its parents.
fn layers(ids: &[StepId], edges: &Edges) -> Vec<(ShardId, Vec<LocalId>)> {
    let mut left: BTreeSet<StepId> = ids
        .iter()
        .filter(|id| edges.contains_key(id))
        .copied()
        .collect();
    let mut layers = Vec::new();
    while !left.is_empty() {
        let mut layer: BTreeMap<ShardId, Vec<LocalId>> = BTreeMap::new();
        for id in &left {
            let waits = edges
                .get(id)
                .is_some_and(|parents| parents.iter().any(|edge| left.contains(&edge.parent)));
            if !waits {
                layer.entry(id.shard).or_default().push(id.local);
            }
        }
        if layer.is_empty() {
            // No store holds a circle; if one did, this ends all the same.
            for id in &left {
                layer.entry(id.shard).or_default().push(id.local);
            }
        }
        for (shard, steps) in layer {
            for step in &steps {
                left.remove(&StepId::new(shard, *step));
            }
            layers.push((shard, steps));
        }
    }
    layers
}

fn retry_portion(
    store: &SqliteStore,
    shard: ShardId,
    steps: &[LocalId],
    edges: &Edges,
    now: Timestamp,
) -> Result<Vec<Steered>> {
    let mut mine: Vec<(LocalId, Vec<Edge>)> = Vec::with_capacity(steps.len());
    let mut others: BTreeMap<ShardId, Vec<(LocalId, LocalId)>> = BTreeMap::new();
    for step in steps {
        let parents = edges.get(&StepId::new(shard, *step)).cloned();
        let parents = parents.unwrap_or_default();
        for Edge { parent, .. } in &parents {
            if parent.shard != shard {
                others
                    .entry(parent.shard)
                    .or_default()
                    .push((parent.local, *step));
            }
        }
        mine.push((*step, parents));
    }
    // Parents on other shards get to know their children first, and tell in the same breath where
    // they stand: a child that is told too much takes no harm, one that is told too little waits
    // for ever.
    let mut states = States::new();
    for (theirs, pairs) in others {
        states.extend(store.shard(theirs)?.write(Durability::Full, move |tx| {
            pairs
                .iter()
                .map(|(parent, child)| {
                    let state = read::state_of(tx.connection(), *parent)?;
                    if state.is_some_and(|state| !state.is_final()) {
                        links::add_child(tx, *parent, StepId::new(shard, *child))?;
                    }
                    Ok((StepId::new(theirs, *parent), state))
                })
                .collect::<rusqlite::Result<Vec<_>>>()
        })?);
    }
    store.shard(shard)?.write(Durability::Full, move |tx| {
        mine.iter()
            .map(|(step, parents)| retry_one(tx, *step, parents, &states, now))
            .collect::<rusqlite::Result<Vec<_>>>()
    })
}

fn retry_one(
    tx: &Tx<'_>,
    id: LocalId,
    parents: &[Edge],
    states: &States,
    now: Timestamp,
) -> rusqlite::Result<Steered> {
    let from = match read::state_of(tx.connection(), id)? {
        None => return Ok(Steered::Missing),
        Some(state @ (StepState::Failed | StepState::Cancelled)) => state,
        Some(state) => return Ok(Steered::Refused { state }),
    };
    let mut judged = Vec::with_capacity(parents.len());
    for Edge {
        parent,
        need,
        state: known,
    } in parents
    {
        let state = if parent.shard == tx.shard() {
            read::state_of(tx.connection(), parent.local)?
        } else {
            states.get(parent).copied().flatten()
        };
        let edge = match state {
            Some(state) if need.is_met_by(state) => 1,
            Some(state) if state.is_final() => return Ok(Steered::Refused { state: from }),
            Some(_) => 0,
            // It is not kept any more: what was known of it holds.
            None if *known == 2 => return Ok(Steered::Refused { state: from }),
            None => continue,
        };
        judged.push((*parent, *need, edge));
    }
    let fence = reopen(tx, id, from)?;
    for (parent, need, edge) in judged {
        if edge == 0 && parent.shard == tx.shard() {
            links::add_child(tx, parent.local, StepId::new(tx.shard(), id))?;
        }
        tx.prepare(
            "UPDATE edges SET state = ?5
              WHERE child = ?1 AND shard = ?2 AND parent = ?3 AND need = ?4",
        )?
        .execute((
            id.get(),
            parent.shard.number(),
            parent.local.get(),
            row::need_number(need),
            edge,
        ))?;
    }
    let mut step = tx
        .prepare(SELECT_STEP)?
        .query_row([id.get()], |row| StepRow::read(row, 0))?;
    if let Some(expire) = step.policy.expire.filter(|expire| *expire > now) {
        // Whatever ended it has removed the row, which only one that never was claimed needs.
        if fence == 0 {
            tx.prepare("INSERT OR REPLACE INTO expiring(id, at) VALUES (?1, ?2)")?
                .execute((id.get(), expire.millis()))?;
        }
    } else if step.policy.expire.take().is_some() {
        tx.prepare("UPDATE steps SET policy = ?2 WHERE id = ?1")?
            .execute((id.get(), policy_text(&step.policy)?))?;
    }
    let carried = Carried {
        fence,
        ..Carried::of(id, &step, now)
    };
    let to = stand::put(tx, &carried, missing(tx, id)?, now)?;
    Ok(Steered::Done { from, to })
}
