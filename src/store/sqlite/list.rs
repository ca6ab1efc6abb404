//! Listing steps: one statement a state, made for the filter.

use rusqlite::Connection;
use rusqlite::types::Value;

use super::read::{Found, all_of};
use super::row;
use super::shard::Shard;
use crate::error::Result;
use crate::model::{StepId, StepState};
use crate::store::{Filter, Order, StepView};

/// Returns the steps of one shard that match, at least all those that can be among the first
/// `limit` of all shards; in no order.
pub(super) fn list(shard: &Shard, filter: &Filter) -> Result<Vec<StepView>> {
    let Some(ranges) = ranges(shard, filter) else {
        return Ok(Vec::new());
    };
    shard.read(|connection| {
        let mut views = Vec::new();
        for state in tables(filter) {
            if let Some(limit) = first_due(state, filter) {
                views.extend(due(connection, shard, filter, limit)?);
                continue;
            }
            let (sql, values) = statement(state, filter, &ranges);
            let mut statement = connection.prepare_cached(&sql)?;
            let found = statement
                .query_map(rusqlite::params_from_iter(values), |row| {
                    Found::read(row, state)
                })?
                .collect::<rusqlite::Result<Vec<_>>>()?;
            for one in found {
                views.push(one.complete(connection, shard)?);
            }
        }
        Ok(views)
    })
}

/// Returns the ids of the steps of one shard that match, in no order.
pub(super) fn find(shard: &Shard, filter: &Filter) -> Result<Vec<StepId>> {
    let Some(ranges) = ranges(shard, filter) else {
        return Ok(Vec::new());
    };
    shard.read(|connection| {
        let mut ids = Vec::new();
        for state in tables(filter) {
            let (rows, values) = condition(state, filter, &ranges);
            let (alias, _) = order(state, Order::Id);
            let from = all_of(state)
                .split_once(" FROM ")
                .map_or("", |(_, from)| from);
            let sql = format!("SELECT {alias}.id FROM {from}{rows}");
            let mut statement = connection.prepare_cached(&sql)?;
            let found = statement.query_map(rusqlite::params_from_iter(values), |row| {
                Ok(StepId::new(shard.id(), row::local(row, 0)?))
            })?;
            for id in found {
                ids.push(id?);
            }
        }
        Ok(ids)
    })
}

/// Returns the filter's ranges of numbers on this shard; `None` if it names ids and none is here.
fn ranges(shard: &Shard, filter: &Filter) -> Option<Vec<(i64, i64)>> {
    let ranges: Vec<(i64, i64)> = filter
        .ids
        .iter()
        .filter(|(of, ..)| *of == shard.id())
        .map(|(_, first, last)| (*first, *last))
        .collect();
    (!ranges.is_empty() || filter.ids.is_empty()).then_some(ranges)
}

/// Returns how many due steps are wanted, where only the first ones are and no more is asked of them
/// than band and key.
fn first_due(state: StepState, filter: &Filter) -> Option<usize> {
    let plain = filter.ids.is_empty() && filter.tags.is_empty() && filter.flows.is_empty();
    let first = state == StepState::Ready && filter.order == Order::Relevance && plain;
    filter.limit.filter(|_| first)
}

/// Returns the due steps that can be among the first so many: those of the keys whose oldest steps
/// are the oldest. Ordering all due steps would read them all, half a second for a million. Within
/// a key the order of arrival stands for that of falling due.
fn due(
    connection: &Connection,
    shard: &Shard,
    filter: &Filter,
    limit: usize,
) -> rusqlite::Result<Vec<StepView>> {
    let mut heads = connection.prepare_cached(HEADS)?;
    let mut rows = heads.query([])?;
    let mut keys = Vec::new();
    while keys.len() < limit
        && let Some(row) = rows.next()?
    {
        let (band, key) = (row::band(row, 0)?, row::key(row, 1)?);
        let wanted = (filter.bands.is_empty() || filter.bands.contains(&band))
            && (filter.keys.is_empty() || filter.keys.contains(&key));
        if wanted {
            keys.push((band, key));
        }
    }
    let sql = format!(
        "{} WHERE r.band = ?1 AND r.key = ?2 ORDER BY r.id LIMIT ?3",
        all_of(StepState::Ready)
    );
    let mut steps = connection.prepare_cached(&sql)?;
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut views = Vec::new();
    for (band, key) in keys {
        let found = steps
            .query_map((band.get(), key.as_str(), most), |row| {
                Found::read(row, StepState::Ready)
            })?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        for one in found {
            views.push(one.complete(connection, shard)?);
        }
    }
    Ok(views)
}

/// Every key with due steps, in the order of its oldest one. As long as there are keys, not steps.
const HEADS: &str = "SELECT band, key FROM tally ORDER BY band, since";

/// Returns one state for each statement that is needed.
fn tables(filter: &Filter) -> Vec<StepState> {
    let wanted = |state: StepState| filter.states.is_empty() || filter.states.contains(&state);
    let mut states: Vec<StepState> = StepState::ALL
        .into_iter()
        .filter(|state| !state.is_final() && wanted(*state))
        .collect();
    let finals: Vec<StepState> = StepState::ALL
        .into_iter()
        .filter(|state| state.is_final() && wanted(*state))
        .collect();
    if finals.len() == 3 {
        // All three stand in one table: one statement without a condition on the state.
        states.push(StepState::Succeeded);
    } else {
        states.extend(finals);
    }
    states
}

fn statement(state: StepState, filter: &Filter, ranges: &[(i64, i64)]) -> (String, Vec<Value>) {
    let (condition, mut values) = condition(state, filter, ranges);
    let (_, order) = order(state, filter.order);
    let mut sql = all_of(state).to_owned();
    sql.push_str(&condition);
    sql.push_str(" ORDER BY ");
    sql.push_str(order);
    if let Some(limit) = filter.limit {
        sql.push_str(" LIMIT ?");
        values.push(Value::from(i64::try_from(limit).unwrap_or(i64::MAX)));
    }
    (sql, values)
}

/// Returns what a row has to meet, as a WHERE clause or nothing, with its values.
fn condition(state: StepState, filter: &Filter, ranges: &[(i64, i64)]) -> (String, Vec<Value>) {
    let (alias, _) = order(state, filter.order);
    let mut conditions = Vec::new();
    let mut values = Vec::new();
    if let Some(number) = final_number(state, filter) {
        // Literals: only so can the index of dead letters be used.
        conditions.push(format!("e.state = {number}"));
        if number != 0 {
            conditions.push("e.state <> 0".to_owned());
        }
    }
    if !ranges.is_empty() {
        let parts: Vec<String> = ranges
            .iter()
            .map(|(first, last)| format!("{alias}.id BETWEEN {first} AND {last}"))
            .collect();
        conditions.push(format!("({})", parts.join(" OR ")));
    }
    let mut one_of = |column: &str, wanted: Vec<Value>| {
        if !wanted.is_empty() {
            let marks = vec!["?"; wanted.len()].join(", ");
            conditions.push(format!("{column} IN ({marks})"));
            values.extend(wanted);
        }
    };
    one_of(
        "s.key",
        filter
            .keys
            .iter()
            .map(|key| Value::from(key.as_str().to_owned()))
            .collect(),
    );
    one_of(
        "s.band",
        filter
            .bands
            .iter()
            .map(|band| Value::from(band.get()))
            .collect(),
    );
    one_of(
        "s.flow",
        filter
            .flows
            .iter()
            .map(|flow| Value::from(flow.clone()))
            .collect(),
    );
    if !filter.tags.is_empty() {
        let marks = vec!["?"; filter.tags.len()].join(", ");
        conditions.push(format!(
            "{alias}.id IN (SELECT id FROM tags WHERE tag IN ({marks}))"
        ));
        values.extend(filter.tags.iter().map(|tag| Value::from(tag.clone())));
    }
    let mut sql = String::new();
    if !conditions.is_empty() {
        sql.push_str(" WHERE ");
        sql.push_str(&conditions.join(" AND "));
    }
    (sql, values)
}

/// Returns the alias of a state's table, and the order in which its first rows are the ones to show.
fn order(state: StepState, order: Order) -> (&'static str, &'static str) {
    match (state, order) {
        (StepState::Running, Order::Relevance) => ("u", "u.claimed, u.id"),
        (StepState::Running, Order::Id) => ("u", "u.id"),
        (StepState::Running, Order::Newest) => ("u", "u.id DESC"),
        (StepState::Ready, Order::Relevance) => ("r", "r.band, r.since, r.id"),
        (StepState::Ready, Order::Id) => ("r", "r.id"),
        (StepState::Ready, Order::Newest) => ("r", "r.id DESC"),
        (StepState::Delayed, Order::Id) => ("d", "d.id"),
        (StepState::Delayed, Order::Relevance | Order::Newest) => ("d", "d.id DESC"),
        (StepState::Blocked, Order::Id) => ("b", "b.id"),
        (StepState::Blocked, Order::Relevance | Order::Newest) => ("b", "b.id DESC"),
        (StepState::Limited, Order::Id) => ("l", "l.id"),
        (StepState::Limited, Order::Relevance | Order::Newest) => ("l", "l.id DESC"),
        (StepState::Held, Order::Id) => ("h", "h.id"),
        (StepState::Held, Order::Relevance | Order::Newest) => ("h", "h.id DESC"),
        (StepState::Succeeded | StepState::Failed | StepState::Cancelled, Order::Id) => {
            ("e", "e.id")
        }
        (
            StepState::Succeeded | StepState::Failed | StepState::Cancelled,
            Order::Relevance | Order::Newest,
        ) => ("e", "e.id DESC"),
    }
}

/// Returns the number of a final state in `done`; `None` where the statement wants all three.
fn final_number(state: StepState, filter: &Filter) -> Option<u8> {
    let all = filter.states.is_empty()
        || [
            StepState::Succeeded,
            StepState::Failed,
            StepState::Cancelled,
        ]
        .iter()
        .all(|one| filter.states.contains(one));
    match state {
        StepState::Succeeded if !all => Some(0),
        StepState::Failed if !all => Some(1),
        StepState::Cancelled if !all => Some(2),
        StepState::Succeeded
        | StepState::Failed
        | StepState::Cancelled
        | StepState::Running
        | StepState::Ready
        | StepState::Delayed
        | StepState::Blocked
        | StepState::Limited
        | StepState::Held => None,
    }
}
