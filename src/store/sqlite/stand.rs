//! Where a step stands that does not run and is not over: how it gets there, how it is found there
//! and how it is taken away.

use rusqlite::OptionalExtension as _;

use super::row::{self, SELECT_STEP, StepRow};
use super::tx::{Counter, ReadyRow, Tx};
use crate::model::{Band, FairnessKey, LimitName, LocalId, StepState, Timestamp, Weight};

/// What a step takes along from table to table.
#[derive(Clone, Debug)]
pub(super) struct Carried {
    pub(super) id: LocalId,
    pub(super) band: Band,
    pub(super) key: FairnessKey,
    pub(super) weight: Weight,
    /// The first of its limits.
    pub(super) limit: Option<LimitName>,
    /// Not before this.
    pub(super) due: Option<Timestamp>,
    /// Since when it waits.
    pub(super) since: Timestamp,
    pub(super) attempt: u32,
    pub(super) fence: u32,
}

impl Carried {
    /// Returns what a step takes along that comes from nowhere.
    pub(super) fn of(id: LocalId, step: &StepRow, since: Timestamp) -> Self {
        Self {
            id,
            band: step.band,
            key: step.key.clone(),
            weight: step.weight,
            limit: step.policy.limits.keys().next().cloned(),
            due: None,
            since,
            attempt: 0,
            fence: 0,
        }
    }
}

/// A step that waits somewhere.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) state: StepState,
    pub(super) carried: Carried,
}

/// Puts a step that stands nowhere where it belongs: with the blocked if something is missing, else
/// with the delayed if its time has not come, else with the limited if it has limits, else with the
/// due.
pub(super) fn put(
    tx: &Tx<'_>,
    step: &Carried,
    missing: u32,
    now: Timestamp,
) -> rusqlite::Result<StepState> {
    if missing > 0 {
        tx.prepare(
            "INSERT INTO blocked(id, missing, due, attempt, fence) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute((
            step.id.get(),
            missing,
            step.due.map(Timestamp::millis),
            step.attempt,
            step.fence,
        ))?;
        tx.count(Counter::Blocked, 1);
        return Ok(StepState::Blocked);
    }
    if let Some(due) = step.due.filter(|due| *due > now) {
        tx.prepare("INSERT INTO delayed(id, due, attempt, fence) VALUES (?1, ?2, ?3, ?4)")?
            .execute((step.id.get(), due.millis(), step.attempt, step.fence))?;
        tx.count(Counter::Delayed, 1);
        return Ok(StepState::Delayed);
    }
    match &step.limit {
        Some(name) => {
            put_limited(tx, step, name)?;
            Ok(StepState::Limited)
        }
        None => {
            put_ready(tx, step)?;
            Ok(StepState::Ready)
        }
    }
}

/// Makes a step due.
pub(super) fn put_ready(tx: &Tx<'_>, step: &Carried) -> rusqlite::Result<()> {
    let row = ReadyRow {
        since: step.since,
        weight: step.weight,
        attempt: step.attempt,
        fence: step.fence,
    };
    tx.put_ready(step.band, &step.key, step.id, row)
}

/// Lets a step wait for a place of this limit.
pub(super) fn put_limited(tx: &Tx<'_>, step: &Carried, name: &LimitName) -> rusqlite::Result<()> {
    tx.prepare(
        "INSERT INTO limited(name, band, key, id, since, weight, attempt, fence)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute((
        name.as_str(),
        step.band.get(),
        step.key.as_str(),
        step.id.get(),
        step.since.millis(),
        step.weight.get(),
        step.attempt,
        step.fence,
    ))?;
    tx.count(Counter::Limited, 1);
    Ok(())
}

/// Lets a step wait for a person.
pub(super) fn put_held(tx: &Tx<'_>, step: &Carried, now: Timestamp) -> rusqlite::Result<()> {
    tx.prepare("INSERT INTO held(id, since, due, attempt, fence) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute((
            step.id.get(),
            now.millis(),
            step.due.map(Timestamp::millis),
            step.attempt,
            step.fence,
        ))?;
    tx.count(Counter::Held, 1);
    Ok(())
}

/// Where a step of this id waits; nothing if it runs, is over or does not exist.
pub(super) fn find(tx: &Tx<'_>, id: LocalId) -> rusqlite::Result<Option<Waiting>> {
    let step = tx
        .prepare(SELECT_STEP)?
        .query_row([id.get()], |row| StepRow::read(row, 0))
        .optional()?;
    match step {
        Some(step) => find_row(tx, id, &step),
        None => Ok(None),
    }
}

/// As [`find`], for a step whose row has been read.
pub(super) fn find_row(
    tx: &Tx<'_>,
    id: LocalId,
    step: &StepRow,
) -> rusqlite::Result<Option<Waiting>> {
    let plain = Carried::of(id, step, step.created);
    let ready = tx
        .prepare(
            "SELECT since, attempt, fence FROM ready WHERE band = ?1 AND key = ?2 AND id = ?3",
        )?
        .query_row((step.band.get(), step.key.as_str(), id.get()), |row| {
            Ok(Carried {
                since: row::timestamp(row, 0)?,
                attempt: row.get(1)?,
                fence: row.get(2)?,
                ..plain.clone()
            })
        })
        .optional()?;
    if let Some(carried) = ready {
        let state = StepState::Ready;
        return Ok(Some(Waiting { state, carried }));
    }
    for (state, sql) in ELSEWHERE {
        let found = tx
            .prepare(sql)?
            .query_row([id.get()], |row| {
                Ok(Carried {
                    due: row.get::<_, Option<i64>>(0)?.map(Timestamp::from_millis),
                    since: row
                        .get::<_, Option<i64>>(1)?
                        .map_or(plain.since, Timestamp::from_millis),
                    attempt: row.get(2)?,
                    fence: row.get(3)?,
                    ..plain.clone()
                })
            })
            .optional()?;
        if let Some(carried) = found {
            return Ok(Some(Waiting { state, carried }));
        }
    }
    Ok(None)
}

const ELSEWHERE: [(StepState, &str); 4] = [
    (
        StepState::Delayed,
        "SELECT due, NULL, attempt, fence FROM delayed WHERE id = ?1",
    ),
    (
        StepState::Blocked,
        "SELECT due, NULL, attempt, fence FROM blocked WHERE id = ?1",
    ),
    (
        StepState::Limited,
        "SELECT NULL, since, attempt, fence FROM limited WHERE id = ?1",
    ),
    (
        StepState::Held,
        "SELECT due, NULL, attempt, fence FROM held WHERE id = ?1",
    ),
];

/// Takes a step away from where it was found in this transaction.
pub(super) fn take(tx: &Tx<'_>, waiting: &Waiting) -> rusqlite::Result<()> {
    let step = &waiting.carried;
    let (sql, counter) = match waiting.state {
        StepState::Ready => {
            return tx.take_ready(step.band, &step.key, step.id).map(drop);
        }
        StepState::Delayed => ("DELETE FROM delayed WHERE id = ?1", Counter::Delayed),
        StepState::Blocked => ("DELETE FROM blocked WHERE id = ?1", Counter::Blocked),
        StepState::Limited => ("DELETE FROM limited WHERE id = ?1", Counter::Limited),
        StepState::Held => ("DELETE FROM held WHERE id = ?1", Counter::Held),
        StepState::Running | StepState::Succeeded | StepState::Failed | StepState::Cancelled => {
            return Ok(());
        }
    };
    let gone = tx.prepare(sql)?.execute([step.id.get()])?;
    tx.count(counter, -i64::try_from(gone).unwrap_or(0));
    Ok(())
}
