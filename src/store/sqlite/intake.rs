//! Putting steps in.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher as _;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use rusqlite::Connection;
use siphasher::sip::SipHasher13;

use super::SqliteStore;
use super::shard::Shard;
use super::tx::{Counter, ReadyRow, Tx};
use super::writer::{Durability, set_durability};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{
    Command, Due, Environment, FairnessKey, LocalId, NewStep, Policy, ShardId, StepId, Timestamp,
};
use crate::store::{Intake, Put};

impl Intake for SqliteStore {
    fn pour(
        &self,
        keys: &BTreeSet<FairnessKey>,
        steps: &mut dyn Iterator<Item = Result<NewStep>>,
        _: Timestamp,
    ) -> Result<Vec<StepId>> {
        super::pending::pour(keys, steps)
    }

    fn put(&self, steps: &[NewStep], now: Timestamp) -> Result<Vec<Put>> {
        let mut placed: BTreeMap<ShardId, Vec<usize>> = BTreeMap::new();
        for (at, step) in steps.iter().enumerate() {
            placed
                .entry(self.placer.place(&step.key))
                .or_default()
                .push(at);
        }
        // Every shard's transaction is open and filled before the first one is committed: whatever
        // fails until then leaves nothing anywhere. Shards are entered in their order, so that two
        // batches never wait for each other.
        let mut open = Vec::new();
        for (shard, members) in &placed {
            let shard = self.shard(*shard)?;
            open.push((shard, shard.own_connection()?, members));
        }
        let mut filled = Vec::new();
        for (shard, connection, members) in &open {
            filled.push((*shard, fill(shard, connection, steps, members, now)?));
        }
        let mut ids = vec![None; steps.len()];
        let mut committed: Vec<(&Shard, std::ops::Range<i64>)> = Vec::new();
        for ((shard, (tx, first)), (_, _, members)) in filled.into_iter().zip(&open) {
            if let Err(error) = tx.commit() {
                // The others of the batch are rolled back by being dropped; those before it are
                // taken out again, so that an error always means that nothing is there.
                let error = shard.failed(&error);
                return Err(match take_back(&committed) {
                    Ok(()) => error,
                    Err(also) => also.context(error.to_string()),
                });
            }
            let mut next = first;
            for at in *members {
                ids[*at] = Some(StepId::new(shard.id(), LocalId::new(next)));
                next += 1;
            }
            committed.push((shard, first..next));
        }
        ids.into_iter()
            .map(|id| id.map(Put::New))
            .collect::<Option<Vec<Put>>>()
            .ok_or_else(|| Error::new(ErrorKind::Internal, "a step of the batch was not stored"))
    }

    fn place(&self, key: &FairnessKey) -> ShardId {
        self.placer.peek(key)
    }
}

/// Puts one shard's part of a batch into a transaction, and returns it with the first id.
fn fill<'c>(
    shard: &Shard,
    connection: &'c Connection,
    steps: &[NewStep],
    members: &[usize],
    now: Timestamp,
) -> Result<(Tx<'c>, i64)> {
    let failed = |error: rusqlite::Error| shard.failed(&error);
    // An acknowledged step survives a power cut.
    set_durability(connection, &mut Durability::Normal, Durability::Full).map_err(failed)?;
    let tx = Tx::begin(connection).map_err(failed)?;
    match insert(&tx, steps, members, now) {
        Ok(first) => Ok((tx, first)),
        Err(error) => {
            tx.roll_back();
            Err(failed(error))
        }
    }
}

fn insert(
    tx: &Tx<'_>,
    steps: &[NewStep],
    members: &[usize],
    now: Timestamp,
) -> rusqlite::Result<i64> {
    let count = i64::try_from(members.len()).unwrap_or(i64::MAX);
    let first: i64 = tx
        .prepare(
            "UPDATE counters SET value = value + ?1 WHERE name = 'next_id'
             RETURNING value - ?1",
        )?
        .query_row([count], |row| row.get(0))?;
    let mut envs = Envs::default();
    for (id, at) in (first..).zip(members) {
        let step = &steps[*at];
        let env = envs.id(tx, &step.env)?;
        insert_step(tx, id, step, env, now)?;
        stand(tx, LocalId::new(id), step, now)?;
    }
    Ok(first)
}

fn insert_step(
    tx: &Tx<'_>,
    id: i64,
    step: &NewStep,
    env: i64,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let policy = if step.policy == Policy::default() {
        None
    } else {
        Some(
            serde_json::to_string(&step.policy)
                .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?,
        )
    };
    tx.prepare(
        "INSERT INTO steps(id, shell, command, cwd, env, band, key, weight, created, name, policy)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?
    .execute((
        id,
        matches!(step.command, Command::Shell(_)),
        step.command.to_bytes(),
        step.cwd.as_os_str().as_bytes(),
        env,
        step.band.get(),
        step.key.as_str(),
        step.weight.get(),
        now.millis(),
        &step.name,
        policy,
    ))?;
    for tag in &step.tags {
        tx.prepare("INSERT OR IGNORE INTO tags(id, tag) VALUES (?1, ?2)")?
            .execute((id, tag))?;
    }
    Ok(())
}

/// Puts a new step where it stands: with the due, the delayed or the held.
fn stand(tx: &Tx<'_>, id: LocalId, step: &NewStep, now: Timestamp) -> rusqlite::Result<()> {
    match step.due {
        Due::Held => {
            tx.prepare("INSERT INTO held(id, since, attempt, fence) VALUES (?1, ?2, 0, 0)")?
                .execute((id.get(), now.millis()))?;
            tx.count(Counter::Held, 1);
        }
        Due::At(due) if due > now => {
            tx.prepare("INSERT INTO delayed(id, due, attempt, fence) VALUES (?1, ?2, 0, 0)")?
                .execute((id.get(), due.millis()))?;
            tx.count(Counter::Delayed, 1);
        }
        Due::Now | Due::At(_) => tx.put_ready(
            step.band,
            &step.key,
            id,
            ReadyRow {
                since: now,
                weight: step.weight,
                attempt: 0,
                fence: 0,
            },
        )?,
    }
    Ok(())
}

/// Finds the rows of environments, each distinct one once.
#[derive(Default)]
struct Envs {
    /// The last one: in a batch nearly all steps share one.
    last: Option<(Arc<Environment>, i64)>,
}

impl Envs {
    fn id(&mut self, tx: &Tx<'_>, env: &Arc<Environment>) -> rusqlite::Result<i64> {
        if let Some((last, id)) = &self.last
            && (Arc::ptr_eq(last, env) || last == env)
        {
            return Ok(*id);
        }
        let mut hasher = SipHasher13::new();
        hasher.write(env.as_bytes());
        let hash = hasher.finish().cast_signed();
        let mut find = tx.prepare("SELECT id FROM envs WHERE hash = ?1 AND vars = ?2")?;
        let mut found = find.query((hash, env.as_bytes()))?;
        let id = match found.next()? {
            Some(row) => row.get(0)?,
            None => tx
                .prepare("INSERT INTO envs(hash, vars) VALUES (?1, ?2) RETURNING id")?
                .query_row((hash, env.as_bytes()), |row| row.get(0))?,
        };
        self.last = Some((Arc::clone(env), id));
        Ok(id)
    }
}

/// Takes the steps of a failed batch out of the shards that had already committed.
fn take_back(committed: &[(&Shard, std::ops::Range<i64>)]) -> Result<(), Error> {
    for (shard, ids) in committed {
        let (first, end) = (ids.start, ids.end);
        shard.write(Durability::Full, move |tx| {
            for id in first..end {
                let local = LocalId::new(id);
                let found = tx
                    .prepare("SELECT band, key FROM steps WHERE id = ?1")?
                    .query_row([id], |row| {
                        Ok((super::row::band(row, 0)?, super::row::key(row, 1)?))
                    })?;
                tx.take_ready(found.0, &found.1, local)?;
                for (table, counter) in [("delayed", Counter::Delayed), ("held", Counter::Held)] {
                    let gone = tx
                        .prepare(&format!("DELETE FROM {table} WHERE id = ?1"))?
                        .execute([id])?;
                    tx.count(counter, -i64::try_from(gone).unwrap_or(0));
                }
                tx.prepare("DELETE FROM tags WHERE id = ?1")?
                    .execute([id])?;
                tx.prepare("DELETE FROM steps WHERE id = ?1")?
                    .execute([id])?;
            }
            Ok(())
        })?;
    }
    Ok(())
}
