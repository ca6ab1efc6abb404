//! Granting steps to runners, and taking them back from dead ones.

use super::SqliteStore;
use super::desk::Durability;
use super::links;
use super::row::{self, EnvCache, SELECT_STEP, StepRow};
use super::settle::{Try, end_running, keep_output, record_try};
use super::stand::{self, Carried};
use super::tx::Tx;
use crate::error::Result;
use crate::model::{
    Candidate, Claim, Ending, Found, LocalId, LostRun, OnLost, RunnerId, ShardId, StepId,
    StepState, Timestamp,
};
use crate::store::{Claims, Lease};

impl Claims for SqliteStore {
    fn wishes(&self, shard: ShardId, runner: RunnerId) -> Result<Vec<(LocalId, u32)>> {
        self.shard(shard)?.read(|connection| {
            connection
                .prepare_cached("SELECT id, fence FROM running WHERE wish = 1 AND runner = ?1")?
                .query_map([runner.get()], |row| Ok((row::local(row, 0)?, row.get(1)?)))?
                .collect()
        })
    }

    fn claim(
        &self,
        shard: ShardId,
        candidates: &[Candidate],
        lease: Lease,
        now: Timestamp,
    ) -> Result<Vec<Option<Claim>>> {
        let shard = self.shard(shard)?;
        let envs = shard.envs();
        let candidates = candidates.to_vec();
        shard.write(self.durability, move |tx| {
            candidates
                .iter()
                .map(|candidate| claim(tx, &envs, candidate, lease, now))
                .collect()
        })
    }

    fn renew(&self, shard: ShardId, lease: Lease) -> Result<()> {
        // A lease is a hint for times when locks cannot be asked: it need not survive a power cut.
        self.shard(shard)?.write(Durability::Normal, move |tx| {
            tx.prepare("UPDATE running SET lease = ?2 WHERE runner = ?1 AND lease < ?2")?
                .execute((lease.runner.get(), lease.until.millis()))
                .map(drop)
        })
    }

    fn holders(&self, shard: ShardId) -> Result<Vec<Lease>> {
        self.shard(shard)?.read(|connection| {
            connection
                .prepare_cached("SELECT runner, max(lease) FROM running GROUP BY runner")?
                .query_map([], |row| {
                    Ok(Lease {
                        runner: row::runner(row, 0)?,
                        until: row::timestamp(row, 1)?,
                    })
                })?
                .collect()
        })
    }

    fn keep(&self, dead: RunnerId, found: Found) -> Result<()> {
        self.shard(found.id.shard)?
            .write(self.durability, move |tx| {
                let id = found.id.local;
                let held = tx
                    .prepare("SELECT 1 FROM running WHERE id = ?1 AND runner = ?2 AND fence = ?3")?
                    .exists((id.get(), dead.get(), found.fence))?;
                if held {
                    keep_output(tx, id, found.fence, [&found.stdout, &found.stderr])?;
                }
                Ok(())
            })
    }

    fn reclaim(&self, shard: ShardId, dead: RunnerId, now: Timestamp) -> Result<Vec<LostRun>> {
        let on = self.shard(shard)?;
        on.write(self.durability, move |tx| {
            let held: Vec<(LocalId, u32)> = tx
                .prepare("SELECT id, fence FROM running WHERE runner = ?1 ORDER BY id")?
                .query_map([dead.get()], |row| Ok((row::local(row, 0)?, row.get(1)?)))?
                .collect::<rusqlite::Result<_>>()?;
            held.into_iter()
                .map(|(id, fence)| {
                    let state = take_back(tx, id, dead, fence, now)?;
                    Ok(LostRun {
                        id: StepId::new(shard, id),
                        runner: dead,
                        state,
                    })
                })
                .collect()
        })
    }
}

fn claim(
    tx: &Tx<'_>,
    envs: &EnvCache,
    candidate: &Candidate,
    lease: Lease,
    now: Timestamp,
) -> rusqlite::Result<Option<Claim>> {
    let id = candidate.id.local;
    if tx.is_paused(candidate.band, &candidate.key)? {
        return Ok(None);
    }
    let Some(ready) = tx.take_ready(candidate.band, &candidate.key, id)? else {
        return Ok(None);
    };
    let step = step(tx, id)?;
    if ready.fence == 0 && step.policy.expire.is_some_and(|expire| expire <= now) {
        // Its shard's next promotion ends it and tells who waits for it.
        tx.put_ready(candidate.band, &candidate.key, id, ready)?;
        return Ok(None);
    }
    if step.policy.expire.is_some() {
        tx.prepare("DELETE FROM expiring WHERE id = ?1")?
            .execute([id.get()])?;
    }
    let (fence, attempt) = (ready.fence + 1, ready.attempt + 1);
    tx.prepare(
        "INSERT INTO running(id, runner, fence, attempt, since, claimed, lease, limits)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute((
        id.get(),
        lease.runner.get(),
        fence,
        attempt,
        ready.since.millis(),
        now.millis(),
        lease.until.millis(),
        !step.policy.limits.is_empty(),
    ))?;
    let env = envs.get(tx.connection(), step.env)?;
    Ok(Some(Claim {
        id: candidate.id,
        runner: lease.runner,
        fence,
        attempt,
        band: step.band,
        key: step.key,
        name: step.name,
        command: step.command,
        cwd: step.cwd,
        env,
        policy: step.policy,
        since: ready.since,
        claimed: now,
    }))
}

fn step(tx: &Tx<'_>, id: LocalId) -> rusqlite::Result<StepRow> {
    tx.prepare(SELECT_STEP)?
        .query_row([id.get()], |row| StepRow::read(row, 0))
}

/// Returns how many runs of a step were lost since anything else became of one.
fn lost_in_a_row(tx: &Tx<'_>, id: LocalId) -> rusqlite::Result<u32> {
    let (lost, ..) = row::ending_columns(&Ending::Lost);
    tx.prepare(
        "SELECT count(*) FROM attempts WHERE id = ?1 AND fence >
           (SELECT coalesce(max(fence), 0) FROM attempts WHERE id = ?1 AND ending <> ?2)",
    )?
    .query_row((id.get(), lost), |row| row.get(0))
}

/// Takes one step back from a dead runner as its policy says.
fn take_back(
    tx: &Tx<'_>,
    id: LocalId,
    dead: RunnerId,
    fence: u32,
    now: Timestamp,
) -> rusqlite::Result<StepState> {
    let step = step(tx, id)?;
    let held = end_running(tx, id, dead, fence)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    let lost = Try {
        id,
        runner: dead,
        fence,
        attempt: held.attempt,
        worker: 0,
        since: held.since,
        claimed: held.claimed,
        started: None,
        ended: now,
        ending: &Ending::Lost,
    };
    let on_lost = step.policy.after_loss(lost_in_a_row(tx, id)?);
    let over = match on_lost {
        _ if held.wish => Some(StepState::Cancelled),
        OnLost::Fail => Some(StepState::Failed),
        OnLost::Retry | OnLost::Hold => None,
    };
    record_try(tx, &lost, over)?;
    if let Some(state) = over {
        // Those that become due are found by the next cycle; those of other shards by the next
        // delivery.
        links::tell(tx, id, state, now, &mut Vec::new())?;
        return Ok(state);
    }
    let back = Carried {
        fence,
        ..Carried::of(id, &step, held.since)
    };
    if on_lost == OnLost::Hold {
        let attempt = held.attempt;
        stand::put_held(tx, &Carried { attempt, ..back }, now)?;
        return Ok(StepState::Held);
    }
    // It is due again at once, and keeps its places.
    stand::put_ready(
        tx,
        &Carried {
            attempt: held.attempt.saturating_sub(1),
            ..back
        },
    )?;
    Ok(StepState::Ready)
}
