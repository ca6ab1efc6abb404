//! Giving places of limits away, and taking back those that nobody needs any more.
//!
//! Granting writes a step's places on shard 0 first and makes it due on its own shard second. It is
//! for one process at a time, which holds a lock on a file of the store while it does; what a crash
//! in between leaves, the next one finds: a holder that is neither due nor runs loses its places, and
//! gets them anew if it still waits.

use std::collections::BTreeMap;
use std::fs::File;

use rusqlite::OptionalExtension as _;

use super::SqliteStore;
use super::grants::{self, CLOCK, Grant, Holder, Moves, Past, Scene};
use super::limits::{Place, held, home, names, passes, seekers, set_limits};
use super::pauses;
use super::read;
use super::row;
use super::shard::Shard;
use super::stand;
use super::tx::Tx;
use crate::error::{Context as _, ErrorKind, Result};
use crate::model::{LimitName, Released, StepId, StepState, Timestamp};
use crate::store::LimitView;

/// So many rounds at most in one call: each but the last makes a step due or moves it.
const ROUNDS: usize = 1000;

/// Takes places back and gives free ones away. Returns what became due.
pub(super) fn grant(store: &SqliteStore, now: Timestamp) -> Result<Vec<Released>> {
    let home = home(store)?;
    if !is_in_play(store)? {
        return Ok(Vec::new());
    }
    let lock = lock(store)?;
    let mut released = Vec::new();
    let mut past = Past::default();
    for _ in 0..ROUNDS {
        let mut round = Round::look(store, home, &past)?;
        let looked_at = past.seen.len();
        let moves = round.decide(store, &mut past, now)?;
        // Where nobody of a band could be served, a worse one may be.
        let over = moves.is_empty() && round.stale.is_empty() && past.seen.len() == looked_at;
        if over {
            break;
        }
        released.extend(round.carry_out(store, home, moves, now)?);
    }
    drop(lock);
    Ok(released)
}

/// Returns whether anybody waits for a limit or has places of one.
fn is_in_play(store: &SqliteStore) -> Result<bool> {
    for shard in &store.shards {
        let any = shard.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT EXISTS (SELECT 1 FROM limited) OR EXISTS (SELECT 1 FROM places)",
                )?
                .query_row([], |row| row.get(0))
        })?;
        if any {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Waits until nobody else gives places away; lasts until the file is closed.
fn lock(store: &SqliteStore) -> Result<File> {
    let path = super::layout::limits_lock(store.root());
    let what = || format!("cannot lock {}", path.display());
    let file = super::layout::open_private(&path).or_fail(ErrorKind::Unavailable, what)?;
    file.lock().or_fail(ErrorKind::Unavailable, what)?;
    Ok(file)
}

/// How one round finds things.
#[derive(Debug)]
struct Round {
    scene: Scene,
    /// Rows of `places` whose steps need them no more.
    stale: Vec<i64>,
    /// The rows of steps that may have to give way.
    rows: BTreeMap<StepId, Vec<i64>>,
}

impl Round {
    fn look(store: &SqliteStore, home: &Shard, past: &Past) -> Result<Self> {
        let (held, places, passes) = home.read(|connection| {
            Ok((
                held(connection)?,
                set_limits(connection)?,
                passes(connection)?,
            ))
        })?;
        let mut round = Self {
            scene: Scene {
                places,
                passes,
                ..Scene::default()
            },
            stale: Vec::new(),
            rows: BTreeMap::new(),
        };
        let mut by_step: BTreeMap<StepId, Vec<Place>> = BTreeMap::new();
        for place in held {
            by_step.entry(place.step).or_default().push(place);
        }
        for (step, places) in by_step {
            round.judge(store, step, &places)?;
        }
        for shard in &store.shards {
            round.seek(shard, past)?;
        }
        Ok(round)
    }

    /// Finds out whether a step still needs the places that it has.
    fn judge(&mut self, store: &SqliteStore, step: StepId, places: &[Place]) -> Result<()> {
        let stands = store.shard(step.shard)?.read(|connection| {
            let Some(state) = read::state_of(connection, step.local)? else {
                return Ok(None);
            };
            let (band, key, policy) = connection
                .prepare_cached("SELECT band, key, policy FROM steps WHERE id = ?1")?
                .query_row([step.local.get()], |row| {
                    Ok((row::band(row, 0)?, row::key(row, 1)?, row::policy(row, 2)?))
                })?;
            let pauses = pauses::read(connection)?;
            let is_paused = pauses.iter().any(|pause| pause.what.covers(band, &key));
            Ok(Some((state, band, policy.limits, is_paused)))
        })?;
        let held: grants::Needs = places
            .iter()
            .map(|place| (place.name.clone(), place.n))
            .collect();
        let rows: Vec<i64> = places.iter().map(|place| place.id).collect();
        let (is_started, band, is_paused) = match stands {
            Some((StepState::Running, band, needs, _)) if needs == held => (true, band, false),
            Some((StepState::Ready, band, needs, paused)) if needs == held => (false, band, paused),
            // Also one that still waits: whoever gave it its places died before he made it due.
            Some(_) | None => {
                self.stale.extend(rows);
                return Ok(());
            }
        };
        self.rows.insert(step, rows);
        self.scene.holders.push(Holder {
            step,
            band,
            is_started,
            is_paused,
            places: held,
        });
        Ok(())
    }

    /// Finds those who wait on a shard, at the best band of each limit that has something to give.
    fn seek(&mut self, shard: &Shard, past: &Past) -> Result<()> {
        let found = shard.read(|connection| {
            let mut found = Vec::new();
            for name in names(connection)? {
                if !past.closed.contains(&name) && self.scene.may_give(&name) {
                    let seekers = seekers(connection, shard.id(), &name, &past.seen)?;
                    found.push((name, seekers));
                }
            }
            Ok(found)
        })?;
        for (name, seekers) in found {
            self.scene.seekers.entry(name).or_default().extend(seekers);
        }
        Ok(())
    }

    fn decide(&self, store: &SqliteStore, past: &mut Past, now: Timestamp) -> Result<Moves> {
        grants::decide(self.scene.clone(), past, &mut |step| {
            store.shard(step.shard)?.read(|connection| {
                let found = connection
                    .prepare_cached(
                        "SELECT s.policy, l.fence FROM limited l CROSS JOIN steps s ON s.id = l.id
                          WHERE l.id = ?1",
                    )?
                    .query_row([step.local.get()], |row| {
                        Ok((row::policy(row, 0)?, row.get::<_, u32>(1)?))
                    })
                    .optional()?;
                Ok(found.and_then(|(policy, fence)| {
                    let late = policy.expire.is_some_and(|expire| expire <= now);
                    (!late || fence > 0).then_some(policy.limits)
                }))
            })
        })
    }

    fn carry_out(
        &mut self,
        store: &SqliteStore,
        home: &Shard,
        moves: Moves,
        now: Timestamp,
    ) -> Result<Vec<Released>> {
        let mut free = std::mem::take(&mut self.stale);
        for (step, name) in moves.revoked {
            // One that has been claimed meanwhile keeps its places.
            if send_back(store, step, &name, now)? {
                free.extend(self.rows.remove(&step).unwrap_or_default());
            }
        }
        let (wanted, passes) = (moves.granted, moves.passes);
        let granted: Vec<StepId> = home.write(store.durability, move |tx| {
            let mut remove = tx.prepare("DELETE FROM places WHERE id = ?1")?;
            for id in &free {
                remove.execute([id])?;
            }
            let mut granted = Vec::new();
            for grant in &wanted {
                if take_places(tx, grant)? {
                    granted.push(grant.step);
                }
            }
            for ((name, key), pass) in &passes {
                tx.prepare("INSERT OR REPLACE INTO passes(name, key, pass) VALUES (?1, ?2, ?3)")?
                    .execute((name.as_str(), key, pass))?;
                if key == CLOCK {
                    // Who begins in the past begins now: nothing has to be known of him.
                    tx.prepare("DELETE FROM passes WHERE name = ?1 AND key <> ?2 AND pass <= ?3")?
                        .execute((name.as_str(), CLOCK, pass))?;
                }
            }
            Ok(granted)
        })?;
        let mut released = Vec::new();
        for step in granted {
            released.extend(make_due(store, step, now)?);
        }
        for (step, name) in moves.parked {
            park(store, step, &name)?;
        }
        Ok(released)
    }
}

/// Takes all places that a step needs, if they are still free. Only on shard 0.
fn take_places(tx: &Tx<'_>, grant: &Grant) -> rusqlite::Result<bool> {
    for (name, n) in &grant.places {
        let places: Option<u32> = tx
            .prepare("SELECT places FROM limits WHERE name = ?1")?
            .query_row([name.as_str()], |row| row.get(0))
            .optional()?;
        let taken: u32 = tx
            .prepare("SELECT ifnull(sum(n), 0) FROM places WHERE name = ?1")?
            .query_row([name.as_str()], |row| row.get(0))?;
        if taken.saturating_add(*n) > places.unwrap_or(LimitView::UNSET) {
            return Ok(false);
        }
    }
    for (name, n) in &grant.places {
        let id: i64 = tx
            .prepare(
                "UPDATE counters SET value = value + 1 WHERE name = 'next_place'
                 RETURNING value - 1",
            )?
            .query_row([], |row| row.get(0))?;
        tx.prepare("INSERT INTO places(id, name, shard, step, n) VALUES (?1, ?2, ?3, ?4, ?5)")?
            .execute((
                id,
                name.as_str(),
                grant.step.shard.number(),
                grant.step.local.get(),
                n,
            ))?;
    }
    Ok(true)
}

/// Lets a due step that has not been claimed wait for a limit again. `false` if it has been.
fn send_back(store: &SqliteStore, step: StepId, name: &LimitName, now: Timestamp) -> Result<bool> {
    let name = name.clone();
    store.shard(step.shard)?.write(store.durability, move |tx| {
        let Some(mut waiting) = stand::find(tx, step.local)? else {
            return Ok(false);
        };
        if waiting.state == StepState::Ready {
            stand::take(tx, &waiting)?;
            waiting.carried.since = now;
            stand::put_limited(tx, &waiting.carried, &name)?;
        }
        Ok(true)
    })
}

/// Makes a step due that has its places. Nothing if it does not wait for them any more: the next
/// round takes them back.
fn make_due(store: &SqliteStore, step: StepId, now: Timestamp) -> Result<Option<Released>> {
    store.shard(step.shard)?.write(store.durability, move |tx| {
        let waiting = stand::find(tx, step.local)?;
        let Some(mut waiting) = waiting.filter(|found| found.state == StepState::Limited) else {
            return Ok(None);
        };
        stand::take(tx, &waiting)?;
        waiting.carried.since = now;
        stand::put_ready(tx, &waiting.carried)?;
        Ok(Some(Released {
            id: step,
            band: waiting.carried.band,
            key: waiting.carried.key,
            weight: waiting.carried.weight,
        }))
    })
}

/// Lets a step wait for another one of its limits.
fn park(store: &SqliteStore, step: StepId, name: &LimitName) -> Result<()> {
    let name = name.clone();
    store.shard(step.shard)?.write(store.durability, move |tx| {
        tx.prepare("UPDATE limited SET name = ?2 WHERE id = ?1")?
            .execute((step.local.get(), name.as_str()))
            .map(drop)
    })
}
