//! Doing what people ask for to steps that are stored.

use std::collections::BTreeMap;

use rusqlite::OptionalExtension as _;

use super::SqliteStore;
use super::desk::Durability;
use super::edit;
use super::limits;
use super::links::{self, End};
use super::outbox;
use super::pauses;
use super::retry;
use super::row;
use super::stand;
use super::tx::{Counter, Tx};
use crate::error::Result;
use crate::model::{Ending, LimitName, LocalId, ShardId, StepId, StepState, Timestamp};
use crate::store::{Action, Cleaned, Pause, Retention, Steer, Steered};

/// How many steps are changed in one transaction: a writer that changes a million at once holds
/// everybody up.
pub(super) const PORTION: usize = 1000;

impl Steer for SqliteStore {
    fn steer(&self, ids: &[StepId], action: &Action, now: Timestamp) -> Result<Vec<Steered>> {
        if matches!(action, Action::Retry) {
            return retry::retry(self, ids, now);
        }
        let mut by_shard: BTreeMap<ShardId, Vec<usize>> = BTreeMap::new();
        for (at, id) in ids.iter().enumerate() {
            by_shard.entry(id.shard).or_default().push(at);
        }
        let mut answers = vec![Steered::Missing; ids.len()];
        for (shard, places) in by_shard {
            let Ok(on) = self.shard(shard) else {
                continue;
            };
            for portion in places.chunks(PORTION) {
                let steps: Vec<LocalId> = portion.iter().map(|at| ids[*at].local).collect();
                let action = action.clone();
                // What a person was told survives a power cut.
                let came = on.write(Durability::Full, move |tx| {
                    steps
                        .iter()
                        .map(|id| steer(tx, *id, &action, now))
                        .collect::<rusqlite::Result<Vec<_>>>()
                })?;
                for (at, steered) in portion.iter().zip(came) {
                    answers[*at] = steered;
                }
            }
        }
        Ok(answers)
    }

    fn pause(&self, what: &Pause, now: Timestamp) -> Result<()> {
        pauses::pause(self, what, now)
    }

    fn resume(&self, what: &Pause) -> Result<bool> {
        pauses::resume(self, what)
    }

    fn set_limit(&self, name: &LimitName, places: Option<u32>) -> Result<Option<u32>> {
        limits::set(self, name, places)
    }

    fn clean(&self, shard: ShardId, retention: &Retention) -> Result<Cleaned> {
        super::clean::clean(self, shard, retention)
    }
}

fn steer(tx: &Tx<'_>, id: LocalId, action: &Action, now: Timestamp) -> rusqlite::Result<Steered> {
    let Some(waiting) = stand::find(tx, id)? else {
        return not_waiting(tx, id, action);
    };
    let from = waiting.state;
    let refused = Ok(Steered::Refused { state: from });
    match action {
        Action::Cancel => {
            let end = End::cancelled(&Ending::Cancelled);
            links::end_waiting(tx, &waiting, end, now, &mut Vec::new())?;
            let to = StepState::Cancelled;
            Ok(Steered::Done { from, to })
        }
        Action::Hold if from == StepState::Held => refused,
        Action::Hold => {
            stand::take(tx, &waiting)?;
            stand::put_held(tx, &waiting.carried, now)?;
            let to = StepState::Held;
            Ok(Steered::Done { from, to })
        }
        Action::Release if from != StepState::Held => refused,
        Action::Release => {
            stand::take(tx, &waiting)?;
            let mut step = waiting.carried;
            step.since = now;
            let to = stand::put(tx, &step, missing(tx, id)?, now)?;
            Ok(Steered::Done { from, to })
        }
        Action::Edit(edit) => edit::edit(tx, &waiting, edit, now),
        Action::Retry => refused,
    }
}

/// How many things a step waits for.
pub(super) fn missing(tx: &Tx<'_>, id: LocalId) -> rusqlite::Result<u32> {
    tx.prepare("SELECT count(*) FROM edges WHERE child = ?1 AND state = 0")?
        .query_row([id.get()], |row| row.get(0))
}

/// Answers for a step that runs, is over, or is not there.
fn not_waiting(tx: &Tx<'_>, id: LocalId, action: &Action) -> rusqlite::Result<Steered> {
    if matches!(action, Action::Cancel) {
        let runner = tx
            .prepare("UPDATE running SET wish = 1 WHERE id = ?1 RETURNING runner")?
            .query_row([id.get()], |row| row::runner(row, 0))
            .optional()?;
        if let Some(runner) = runner {
            return Ok(Steered::Asked { runner });
        }
    }
    let state = super::read::state_of(tx.connection(), id)?;
    Ok(state.map_or(Steered::Missing, |state| Steered::Refused { state }))
}

/// Takes a step that is over out of `done`, and lets what is recorded of its last try stand among
/// the others. Returns its fence.
pub(super) fn reopen(tx: &Tx<'_>, id: LocalId, state: StepState) -> rusqlite::Result<u32> {
    tx.prepare(
        "INSERT INTO attempts(id, fence, attempt, runner, worker, since, claimed, started, ended,
                              ending, code, reason)
         SELECT id, fence, attempt, runner, worker, since, claimed, started, ended,
                ending, code, reason
           FROM done WHERE id = ?1 AND runner IS NOT NULL",
    )?
    .execute([id.get()])?;
    let fence = tx
        .prepare("DELETE FROM done WHERE id = ?1 RETURNING fence")?
        .query_row([id.get()], |row| row.get(0))?;
    tx.count(Counter::of_end(state), -1);
    outbox::untell(tx, id)?;
    Ok(fence)
}
