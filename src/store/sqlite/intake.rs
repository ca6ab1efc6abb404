//! Putting steps in.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher as _;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use rusqlite::Connection;
use siphasher::sip::SipHasher13;

use super::SqliteStore;
use super::batch;
use super::clean;
use super::desk::{Durability, set_durability};
use super::shard::Shard;
use super::stand::{self, Carried};
use super::tx::Tx;
use crate::error::{Error, ErrorKind, Result};
use crate::model::{
    Command, Due, Environment, FairnessKey, LocalId, NewStep, Policy, ShardId, StepId, Timestamp,
};
use crate::store::placement::Placement;
use crate::store::{Intake, Put};

impl Intake for SqliteStore {
    fn put(&self, steps: &[NewStep], now: Timestamp) -> Result<Vec<Put>> {
        batch::put(self, steps, now)
    }

    fn pour(
        &self,
        keys: &BTreeSet<FairnessKey>,
        steps: &mut dyn Iterator<Item = Result<NewStep>>,
        now: Timestamp,
    ) -> Result<Vec<StepId>> {
        let reach: BTreeSet<ShardId> = match self.manifest.placement {
            Placement::Key => keys.iter().map(|key| self.placer.peek(key)).collect(),
            Placement::Spread => self.shards.iter().map(Shard::id).collect(),
        };
        let open = Open::all(self, &reach)?;
        let mut fills = open.begin()?;
        let mut ids = Vec::new();
        for step in steps {
            let step = step?;
            let shard = self.placer.place(&step.key);
            let fill = fills.get_mut(&shard).ok_or_else(|| unreached(shard))?;
            let id = fill.insert(&step, now)?;
            fill.stand(&step, id, 0, now)?;
            ids.push(StepId::new(shard, id));
        }
        commit(fills)?;
        Ok(ids)
    }

    fn place(&self, key: &FairnessKey) -> ShardId {
        self.placer.peek(key)
    }
}

fn unreached(shard: ShardId) -> Error {
    Error::new(
        ErrorKind::Internal,
        format!("a step of the batch belongs on shard {shard}, which was not opened for it"),
    )
}

/// A connection of our own to each shard that a batch touches.
pub(super) struct Open<'s>(Vec<(&'s Shard, Option<Connection>)>);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        for (shard, connection) in &mut self.0 {
            connection
                .take()
                .into_iter()
                .for_each(|one| shard.give_back(one));
        }
    }
}

impl<'s> Open<'s> {
    /// Opens them in the order of the shards, so that two batches never wait for each other.
    pub(super) fn all(store: &'s SqliteStore, reach: &BTreeSet<ShardId>) -> Result<Self> {
        reach
            .iter()
            .map(|shard| {
                let shard = store.shard(*shard)?;
                Ok((shard, Some(shard.take_connection()?)))
            })
            .collect::<Result<_>>()
            .map(Self)
    }

    /// Begins a transaction on each. All are open and filled before the first one is committed:
    /// whatever fails until then leaves nothing anywhere.
    pub(super) fn begin(&self) -> Result<Fills<'_>> {
        self.0
            .iter()
            .filter_map(|(shard, connection)| Some((shard, connection.as_ref()?)))
            .map(|(shard, connection)| Ok((shard.id(), Fill::begin(shard, connection)?)))
            .collect()
    }
}

/// The open transactions of a batch, by shard.
pub(super) type Fills<'o> = BTreeMap<ShardId, Fill<'o>>;

/// One shard's part of a batch: an open transaction, rolled back unless it is committed.
pub(super) struct Fill<'o> {
    pub(super) shard: &'o Shard,
    tx: Option<Tx<'o>>,
    first: i64,
    next: i64,
    envs: Envs,
}

impl<'o> Fill<'o> {
    fn begin(shard: &'o Shard, connection: &'o Connection) -> Result<Self> {
        let failed = |error: rusqlite::Error| shard.failed(&error);
        // An acknowledged step survives a power cut.
        set_durability(connection, &mut Durability::Normal, Durability::Full).map_err(failed)?;
        let tx = Tx::begin(connection, shard.id()).map_err(failed)?;
        let mut fill = Self {
            shard,
            tx: Some(tx),
            first: 0,
            next: 0,
            envs: Envs::default(),
        };
        fill.first = fill.on(|tx| {
            tx.prepare("SELECT value FROM counters WHERE name = 'next_id'")?
                .query_row([], |row| row.get(0))
        })?;
        fill.next = fill.first;
        Ok(fill)
    }

    /// Reads or writes in the transaction.
    pub(super) fn on<T>(&self, act: impl FnOnce(&Tx<'o>) -> rusqlite::Result<T>) -> Result<T> {
        let tx = self.tx.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::Internal, "a transaction was used after its end")
        })?;
        act(tx).map_err(|error| self.shard.failed(&error))
    }

    /// Gives the next number of the shard away.
    pub(super) const fn number(&mut self) -> LocalId {
        let id = LocalId::new(self.next);
        self.next += 1;
        id
    }

    /// Stores what is asked for under the next number; the step stands nowhere yet.
    fn insert(&mut self, step: &NewStep, now: Timestamp) -> Result<LocalId> {
        let id = self.number();
        self.insert_as(id, step, now)?;
        Ok(id)
    }

    /// Stores what is asked for under a number that was given away.
    pub(super) fn insert_as(&mut self, id: LocalId, step: &NewStep, now: Timestamp) -> Result<()> {
        let mut envs = std::mem::take(&mut self.envs);
        let inserted = self.on(|tx| {
            let env = envs.id(tx, &step.env)?;
            insert_step(tx, id.get(), step, env, now)
        });
        self.envs = envs;
        inserted
    }

    /// Puts a new step where it belongs.
    pub(super) fn stand(
        &self,
        step: &NewStep,
        id: LocalId,
        missing: u32,
        now: Timestamp,
    ) -> Result<()> {
        self.on(|tx| {
            let carried = carried(step, id, now);
            if step.due == Due::Held {
                stand::put_held(tx, &carried, now)
            } else {
                stand::put(tx, &carried, missing, now).map(drop)
            }
        })
    }

    fn commit(mut self) -> Result<std::ops::Range<i64>> {
        let (first, next) = (self.first, self.next);
        if next > first {
            self.on(|tx| {
                tx.prepare("UPDATE counters SET value = ?1 WHERE name = 'next_id'")?
                    .execute([next])
                    .map(drop)
            })?;
        }
        if let Some(tx) = self.tx.take() {
            tx.commit().map_err(|error| self.shard.failed(&error))?;
        }
        Ok(first..next)
    }
}

impl Drop for Fill<'_> {
    fn drop(&mut self) {
        if let Some(tx) = self.tx.take() {
            tx.roll_back();
        }
    }
}

/// Returns what a new step takes to where it stands.
pub(super) fn carried(step: &NewStep, id: LocalId, now: Timestamp) -> Carried {
    Carried {
        id,
        band: step.band,
        key: step.key.clone(),
        weight: step.weight,
        limit: step.policy.limits.keys().next().cloned(),
        due: match step.due {
            Due::At(due) => Some(due),
            Due::Now | Due::Held => None,
        },
        since: now,
        attempt: 0,
        fence: 0,
    }
}

/// Makes a whole batch last. An error means that nothing of it is there.
pub(super) fn commit(fills: Fills<'_>) -> Result<()> {
    let mut committed: Vec<(&Shard, std::ops::Range<i64>)> = Vec::new();
    for (_, fill) in fills {
        let shard = fill.shard;
        match fill.commit() {
            Ok(ids) => committed.push((shard, ids)),
            Err(error) => {
                // The others of the batch are rolled back by being dropped; those before it are
                // taken out again, so that an error always means that nothing is there.
                return Err(match take_back(&committed) {
                    Ok(()) => error,
                    Err(also) => also.context(error.to_string()),
                });
            }
        }
    }
    Ok(())
}

/// Returns how a policy is kept; nothing where all is default.
pub(super) fn policy_text(policy: &Policy) -> rusqlite::Result<Option<String>> {
    if *policy == Policy::default() {
        return Ok(None);
    }
    serde_json::to_string(policy)
        .map(Some)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

fn insert_step(
    tx: &Tx<'_>,
    id: i64,
    step: &NewStep,
    env: i64,
    now: Timestamp,
) -> rusqlite::Result<()> {
    tx.prepare(
        "INSERT INTO steps(id, shell, command, cwd, env, band, key, weight, created, name, policy,
                           flow)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
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
        policy_text(&step.policy)?,
        &step.flow,
    ))?;
    for tag in &step.tags {
        tx.prepare("INSERT OR IGNORE INTO tags(id, tag) VALUES (?1, ?2)")?
            .execute((id, tag))?;
    }
    if let Some(expire) = step.policy.expire {
        tx.prepare("INSERT INTO expiring(at, id) VALUES (?1, ?2)")?
            .execute((expire.millis(), id))?;
    }
    Ok(())
}

/// Finds the rows of environments, each distinct one once.
#[derive(Debug, Default)]
pub(super) struct Envs {
    /// The last one: in a batch nearly all steps share one.
    last: Option<(Arc<Environment>, i64)>,
}

impl Envs {
    pub(super) fn id(&mut self, tx: &Tx<'_>, env: &Arc<Environment>) -> rusqlite::Result<i64> {
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
        let ids = ids.clone();
        shard.write(Durability::Full, move |tx| {
            for id in ids.clone().map(LocalId::new) {
                if let Some(waiting) = stand::find(tx, id)? {
                    stand::take(tx, &waiting)?;
                }
                clean::forget(tx, id)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}
