//! Named limits: what they are set to, who holds places, who waits.
//!
//! A limit holds for all shards and runners together, so one place keeps it: shard 0. A step that
//! waits for a limit stands in `limited` on its own shard.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, OptionalExtension as _};

use super::SqliteStore;
use super::desk::Durability;
use super::grants::{self, Seeker};
use super::pauses;
use super::read;
use super::row;
use super::shard::Shard;
use crate::error::Result;
use crate::model::{Band, FairnessKey, LimitName, ShardId, StepId, StepState, Weight};
use crate::store::LimitView;

/// How many of a key's waiting steps are looked at in one round.
const PER_KEY: u32 = 8;
/// Returns the shard that keeps limits.
pub(super) fn home(store: &SqliteStore) -> Result<&Shard> {
    store.shard(ShardId::new(0).expect("there is a first shard"))
}

/// A row of `places`.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) id: i64,
    pub(super) name: LimitName,
    pub(super) step: StepId,
    pub(super) n: u32,
}

pub(super) fn held(connection: &Connection) -> rusqlite::Result<Vec<Place>> {
    connection
        .prepare_cached("SELECT id, name, shard, step, n FROM places ORDER BY id")?
        .query_map([], |row| {
            Ok(Place {
                id: row.get(0)?,
                name: LimitName::from_store(row.get_ref(1)?.as_str()?),
                step: StepId::new(row::shard(row, 2)?, row::local(row, 3)?),
                n: row.get(4)?,
            })
        })?
        .collect()
}

pub(super) fn set_limits(connection: &Connection) -> rusqlite::Result<BTreeMap<LimitName, u32>> {
    connection
        .prepare_cached("SELECT name, places FROM limits")?
        .query_map([], |row| {
            Ok((
                LimitName::from_store(row.get_ref(0)?.as_str()?),
                row.get(1)?,
            ))
        })?
        .collect()
}

pub(super) fn passes(connection: &Connection) -> rusqlite::Result<grants::Passes> {
    connection
        .prepare_cached("SELECT name, key, pass FROM passes")?
        .query_map([], |row| {
            let name = LimitName::from_store(row.get_ref(0)?.as_str()?);
            Ok(((name, row.get(1)?), row.get(2)?))
        })?
        .collect()
}

/// The limits that somebody waits for on this shard: a search for each, however many wait.
pub(super) fn names(connection: &Connection) -> rusqlite::Result<Vec<LimitName>> {
    let mut after = connection
        .prepare_cached("SELECT name FROM limited WHERE name > ?1 ORDER BY name LIMIT 1")?;
    let mut names: Vec<LimitName> = Vec::new();
    loop {
        let last = names.last().map_or("", LimitName::as_str);
        let next = after
            .query_row([last], |row| {
                Ok(LimitName::from_store(row.get_ref(0)?.as_str()?))
            })
            .optional()?;
        match next {
            Some(name) => names.push(name),
            None => return Ok(names),
        }
    }
}

/// Each key's oldest steps that wait for a limit, at the best band at which not all is paused.
pub(super) fn seekers(
    connection: &Connection,
    shard: ShardId,
    name: &LimitName,
    seen: &BTreeSet<StepId>,
) -> rusqlite::Result<Vec<Seeker>> {
    let pauses = pauses::read(connection)?;
    let mut bands = connection.prepare_cached(
        "SELECT band FROM limited WHERE name = ?1 AND band > ?2 ORDER BY band LIMIT 1",
    )?;
    let mut last: i64 = -1;
    loop {
        let band = bands
            .query_row((name.as_str(), last), |row| row::band(row, 0))
            .optional()?;
        let Some(band) = band else {
            return Ok(Vec::new());
        };
        last = i64::from(band.get());
        let found = seekers_at(connection, shard, name, band, seen, &|key| {
            pauses.iter().any(|pause| pause.what.covers(band, key))
        })?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
}

fn seekers_at(
    connection: &Connection,
    shard: ShardId,
    name: &LimitName,
    band: Band,
    seen: &BTreeSet<StepId>,
    is_paused: &dyn Fn(&FairnessKey) -> bool,
) -> rusqlite::Result<Vec<Seeker>> {
    let mut keys = connection.prepare_cached(
        "SELECT key FROM limited WHERE name = ?1 AND band = ?2 AND key > ?3 ORDER BY key LIMIT 1",
    )?;
    let mut steps = connection.prepare_cached(
        "SELECT id, since, weight FROM limited
          WHERE name = ?1 AND band = ?2 AND key = ?3 ORDER BY id",
    )?;
    let mut found = Vec::new();
    let mut last = String::new();
    while let Some(key) = keys
        .query_row((name.as_str(), band.get(), &last), |row| row::key(row, 0))
        .optional()?
    {
        key.as_str().clone_into(&mut last);
        if is_paused(&key) {
            continue;
        }
        let mut rows = steps.query((name.as_str(), band.get(), key.as_str()))?;
        let mut left = PER_KEY;
        while left > 0
            && let Some(row) = rows.next()?
        {
            let step = StepId::new(shard, row::local(row, 0)?);
            if !seen.contains(&step) {
                left -= 1;
                found.push(Seeker {
                    step,
                    band,
                    key: key.clone(),
                    since: row::timestamp(row, 1)?,
                    weight: Weight::or_one(row.get(2)?),
                });
            }
        }
    }
    Ok(found)
}

/// Sets or forgets a limit; returns what it was set to.
pub(super) fn set(
    store: &SqliteStore,
    name: &LimitName,
    places: Option<u32>,
) -> Result<Option<u32>> {
    let name = name.clone();
    home(store)?.write(Durability::Full, move |tx| {
        let was = tx
            .prepare("DELETE FROM limits WHERE name = ?1 RETURNING places")?
            .query_row([name.as_str()], |row| row.get(0))
            .optional()?;
        if let Some(places) = places {
            tx.prepare("INSERT INTO limits(name, places) VALUES (?1, ?2)")?
                .execute((name.as_str(), places))?;
        }
        Ok(was)
    })
}

/// Reads every limit that was set, waited for or held.
pub(super) fn view(store: &SqliteStore) -> Result<Vec<LimitView>> {
    let (held, set) =
        home(store)?.read(|connection| Ok((held(connection)?, set_limits(connection)?)))?;
    let mut views: BTreeMap<LimitName, LimitView> = BTreeMap::new();
    for (name, places) in &set {
        entry(&mut views, name, Some(*places));
    }
    for place in held {
        let state = store
            .shard(place.step.shard)?
            .read(|connection| read::state_of(connection, place.step.local))?;
        // Others keep their rows until places are given away again.
        if !matches!(state, Some(StepState::Ready | StepState::Running)) {
            continue;
        }
        let view = entry(&mut views, &place.name, None);
        view.holders.insert(place.step, place.n);
    }
    for shard in &store.shards {
        let waiting: Vec<(LimitName, i64)> = shard.read(|connection| {
            connection
                .prepare_cached("SELECT name, count(*) FROM limited GROUP BY name")?
                .query_map([], |row| {
                    Ok((
                        LimitName::from_store(row.get_ref(0)?.as_str()?),
                        row.get(1)?,
                    ))
                })?
                .collect()
        })?;
        for (name, count) in waiting {
            entry(&mut views, &name, None).waiting += u64::try_from(count).unwrap_or(0);
        }
    }
    Ok(views.into_values().collect())
}

/// Returns a limit's view, made of what is known of it at first.
fn entry<'v>(
    views: &'v mut BTreeMap<LimitName, LimitView>,
    name: &LimitName,
    places: Option<u32>,
) -> &'v mut LimitView {
    views.entry(name.clone()).or_insert_with(|| LimitView {
        name: name.clone(),
        places: places.unwrap_or(LimitView::UNSET),
        is_set: places.is_some(),
        holders: BTreeMap::new(),
        waiting: 0,
    })
}
