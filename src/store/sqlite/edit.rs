//! Changing what was asked for of a step that waits.

use std::os::unix::ffi::OsStrExt as _;

use rusqlite::OptionalExtension as _;

use super::intake::{Envs, policy_text};
use super::row::{SELECT_STEP, StepRow};
use super::stand::{self, Carried, Waiting};
use super::steer::missing;
use super::tx::Tx;
use crate::model::{Band, Command, FairnessKey, LimitName, LocalId, StepState, Timestamp, Weight};
use crate::store::{Edit, Steered};

/// Changes a step, and puts it where it belongs as it is now; a held one stays held.
pub(super) fn edit(
    tx: &Tx<'_>,
    waiting: &Waiting,
    edit: &Edit,
    now: Timestamp,
) -> rusqlite::Result<Steered> {
    let id = waiting.carried.id;
    let was = &waiting.carried;
    let had = asked(tx, id)?.policy.limits;
    let waits_for = limit_of(tx, id)?;
    // Taken away first: it stands under its old band and key.
    stand::take(tx, waiting)?;
    rewrite(tx, waiting, edit)?;
    let step = asked(tx, id)?;
    let carried = |since| Carried {
        due: edit.due.unwrap_or(was.due),
        attempt: was.attempt,
        fence: was.fence,
        ..Carried::of(id, &step, since)
    };
    let stays = step.policy.limits == had && edit.due.flatten().is_none_or(|due| due <= now);
    let to = match waiting.state {
        StepState::Held => {
            stand::put_held(tx, &carried(was.since), now)?;
            StepState::Held
        }
        // What is due or only waits for a place stays so, with its age and its places.
        StepState::Ready if stays => {
            stand::put_ready(tx, &carried(was.since))?;
            StepState::Ready
        }
        StepState::Limited if stays && let Some(name) = waits_for => {
            stand::put_limited(tx, &carried(was.since), &name)?;
            StepState::Limited
        }
        StepState::Ready
        | StepState::Limited
        | StepState::Delayed
        | StepState::Blocked
        | StepState::Running
        | StepState::Succeeded
        | StepState::Failed
        | StepState::Cancelled => stand::put(tx, &carried(now), missing(tx, id)?, now)?,
    };
    Ok(Steered::Done {
        from: waiting.state,
        to,
    })
}

fn asked(tx: &Tx<'_>, id: LocalId) -> rusqlite::Result<StepRow> {
    tx.prepare(SELECT_STEP)?
        .query_row([id.get()], |row| StepRow::read(row, 0))
}

/// Returns the limit that a step was last seen to wait for, if it waits for one.
fn limit_of(tx: &Tx<'_>, id: LocalId) -> rusqlite::Result<Option<LimitName>> {
    tx.prepare("SELECT name FROM limited WHERE id = ?1")?
        .query_row([id.get()], |row| {
            Ok(LimitName::from_store(row.get_ref(0)?.as_str()?))
        })
        .optional()
}

fn rewrite(tx: &Tx<'_>, waiting: &Waiting, edit: &Edit) -> rusqlite::Result<()> {
    let id = waiting.carried.id.get();
    if let Some(command) = &edit.command {
        tx.prepare("UPDATE steps SET shell = ?2, command = ?3 WHERE id = ?1")?
            .execute((id, matches!(command, Command::Shell(_)), command.to_bytes()))?;
    }
    if let Some(cwd) = &edit.cwd {
        tx.prepare("UPDATE steps SET cwd = ?2 WHERE id = ?1")?
            .execute((id, cwd.as_os_str().as_bytes()))?;
    }
    if let Some(env) = &edit.env {
        let env = Envs::default().id(tx, env)?;
        tx.prepare("UPDATE steps SET env = ?2 WHERE id = ?1")?
            .execute((id, env))?;
    }
    if edit.band.is_some() || edit.key.is_some() || edit.weight.is_some() {
        tx.prepare(
            "UPDATE steps SET band = ifnull(?2, band), key = ifnull(?3, key),
                              weight = ifnull(?4, weight) WHERE id = ?1",
        )?
        .execute((
            id,
            edit.band.map(Band::get),
            edit.key.as_ref().map(FairnessKey::as_str),
            edit.weight.map(Weight::get),
        ))?;
    }
    if let Some(name) = &edit.name {
        tx.prepare("UPDATE steps SET name = ?2 WHERE id = ?1")?
            .execute((id, name))?;
    }
    if let Some(flow) = &edit.flow {
        tx.prepare("UPDATE steps SET flow = ?2 WHERE id = ?1")?
            .execute((id, flow))?;
    }
    if let Some(policy) = &edit.policy {
        tx.prepare("UPDATE steps SET policy = ?2 WHERE id = ?1")?
            .execute((id, policy_text(policy)?))?;
        tx.prepare("DELETE FROM expiring WHERE id = ?1")?
            .execute([id])?;
        // What was claimed once does not expire.
        if let Some(expire) = policy.expire
            && waiting.carried.fence == 0
        {
            tx.prepare("INSERT INTO expiring(at, id) VALUES (?1, ?2)")?
                .execute((expire.millis(), id))?;
        }
    }
    if let Some(tags) = &edit.tags {
        tx.prepare("DELETE FROM tags WHERE id = ?1")?
            .execute([id])?;
        for tag in tags {
            tx.prepare("INSERT OR IGNORE INTO tags(id, tag) VALUES (?1, ?2)")?
                .execute((id, tag))?;
        }
    }
    Ok(())
}
