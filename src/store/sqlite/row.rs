//! Rows and the values that they stand for.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Row};

use crate::model::{
    Band, Command, Ending, Environment, FairnessKey, LocalId, Need, Policy, RunnerId, ShardId,
    StepState, Timestamp, Weight,
};

/// What was asked for, as `steps` holds it.
#[derive(Clone, Debug)]
pub(super) struct StepRow {
    pub(super) command: Command,
    pub(super) cwd: PathBuf,
    pub(super) env: i64,
    pub(super) band: Band,
    pub(super) key: FairnessKey,
    pub(super) weight: Weight,
    pub(super) created: Timestamp,
    pub(super) name: Option<String>,
    pub(super) policy: Policy,
    pub(super) flow: Option<String>,
}

/// The columns of [`StepRow`], for statements that read it.
macro_rules! step_columns {
    () => {
        "s.shell, s.command, s.cwd, s.env, s.band, s.key, s.weight, s.created, s.name, s.policy, s.flow"
    };
}
pub(super) use step_columns;

/// Reads what was asked for.
pub(super) const SELECT_STEP: &str =
    concat!("SELECT ", step_columns!(), " FROM steps s WHERE s.id = ?1");
impl StepRow {
    /// Reads the row from its columns, which begin at `from`.
    pub(super) fn read(row: &Row<'_>, from: usize) -> rusqlite::Result<Self> {
        let command = Command::from_bytes(row.get(from)?, row.get_ref(from + 1)?.as_blob()?)
            .ok_or_else(|| unreadable(from + 1, Type::Blob))?;
        Ok(Self {
            command,
            cwd: PathBuf::from(OsString::from_vec(row.get(from + 2)?)),
            env: row.get(from + 3)?,
            band: band(row, from + 4)?,
            key: key(row, from + 5)?,
            weight: Weight::or_one(row.get(from + 6)?),
            created: timestamp(row, from + 7)?,
            name: row.get(from + 8)?,
            policy: policy(row, from + 9)?,
            flow: row.get(from + 10)?,
        })
    }
}

/// Says that a column does not hold what this program wrote there.
pub(super) fn unreadable(column: usize, kind: Type) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, kind, "not a value that fairq writes".into())
}

/// Reads how a step is to be treated.
pub(super) fn policy(row: &Row<'_>, column: usize) -> rusqlite::Result<Policy> {
    match row.get_ref(column)?.as_str_or_null()? {
        None => Ok(Policy::default()),
        Some(text) => Policy::from_json(text).ok_or_else(|| unreadable(column, Type::Text)),
    }
}

pub(super) fn band(row: &Row<'_>, column: usize) -> rusqlite::Result<Band> {
    Band::new(row.get(column)?).ok_or_else(|| unreadable(column, Type::Integer))
}

pub(super) fn key(row: &Row<'_>, column: usize) -> rusqlite::Result<FairnessKey> {
    Ok(FairnessKey::from_store(row.get_ref(column)?.as_str()?))
}

pub(super) fn timestamp(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    row.get(column).map(Timestamp::from_millis)
}

pub(super) fn local(row: &Row<'_>, column: usize) -> rusqlite::Result<LocalId> {
    row.get(column).map(LocalId::new)
}

/// How an ending stands in `done` and `attempts`: its kind, a code, a reason.
pub(super) fn ending_columns(ending: &Ending) -> (u8, i32, Option<&str>) {
    match ending {
        Ending::Exited { code } => (0, *code, None),
        Ending::Signalled { signal } => (1, *signal, None),
        Ending::Unstarted { reason } => (2, 0, Some(reason)),
        Ending::Interrupted => (3, 0, None),
        Ending::Lost => (4, 0, None),
        Ending::TimedOut { killed } => (5, i32::from(*killed), None),
        Ending::Cancelled => (6, 0, None),
        Ending::Skipped { reason } => (7, 0, Some(reason)),
        Ending::Expired => (8, 0, None),
    }
}

/// Reads an ending from its three columns, which begin at `from`.
pub(super) fn ending(row: &Row<'_>, from: usize) -> rusqlite::Result<Ending> {
    Ok(match row.get::<_, u8>(from)? {
        0 => Ending::Exited {
            code: row.get(from + 1)?,
        },
        1 => Ending::Signalled {
            signal: row.get(from + 1)?,
        },
        2 => Ending::Unstarted {
            reason: row.get::<_, Option<String>>(from + 2)?.unwrap_or_default(),
        },
        3 => Ending::Interrupted,
        4 => Ending::Lost,
        5 => Ending::TimedOut {
            killed: row.get(from + 1)?,
        },
        6 => Ending::Cancelled,
        7 => Ending::Skipped {
            reason: row.get::<_, Option<String>>(from + 2)?.unwrap_or_default(),
        },
        8 => Ending::Expired,
        _ => return Err(unreadable(from, Type::Integer)),
    })
}

/// Returns the number of a final state in `done`; 2, cancelled, for one that is none.
pub(super) const fn final_number(state: StepState) -> u8 {
    match state {
        StepState::Succeeded => 0,
        StepState::Failed => 1,
        StepState::Cancelled
        | StepState::Running
        | StepState::Ready
        | StepState::Delayed
        | StepState::Blocked
        | StepState::Limited
        | StepState::Held => 2,
    }
}

/// Reads a final state of `done`.
pub(super) fn final_state(row: &Row<'_>, column: usize) -> rusqlite::Result<StepState> {
    Ok(match row.get::<_, u8>(column)? {
        0 => StepState::Succeeded,
        1 => StepState::Failed,
        2 => StepState::Cancelled,
        _ => return Err(unreadable(column, Type::Integer)),
    })
}

/// Reads the number of a shard.
pub(super) fn shard(row: &Row<'_>, column: usize) -> rusqlite::Result<ShardId> {
    let number: u8 = row.get(column)?;
    ShardId::new(number).ok_or_else(|| unreadable(column, Type::Integer))
}

/// How a need stands in `edges`.
pub(super) const fn need_number(need: Need) -> u8 {
    match need {
        Need::Success => 0,
        Need::End => 1,
        Need::Failure => 2,
    }
}

/// Reads a need of `edges`.
pub(super) fn need(row: &Row<'_>, column: usize) -> rusqlite::Result<Need> {
    Ok(match row.get::<_, u8>(column)? {
        0 => Need::Success,
        1 => Need::End,
        2 => Need::Failure,
        _ => return Err(unreadable(column, Type::Integer)),
    })
}

pub(super) fn runner(row: &Row<'_>, column: usize) -> rusqlite::Result<RunnerId> {
    row.get(column).map(RunnerId::new)
}

/// The environments that were read last: nearly all steps of a store share a handful, and each is
/// kilobytes long.
#[derive(Debug, Default)]
pub(super) struct EnvCache(Mutex<Vec<(i64, Arc<Environment>)>>);

impl EnvCache {
    /// How many are kept.
    const KEPT: usize = 32;

    /// Returns an environment, from memory if it is there.
    pub(super) fn get(
        &self,
        connection: &Connection,
        id: i64,
    ) -> rusqlite::Result<Arc<Environment>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = kept.iter().position(|(other, _)| *other == id) {
            // The last used stand at the end.
            kept[at..].rotate_left(1);
            return Ok(Arc::clone(&kept[kept.len() - 1].1));
        }
        let vars: Vec<u8> = connection
            .prepare_cached("SELECT vars FROM envs WHERE id = ?1")?
            .query_row([id], |row| row.get(0))
            .optional()?
            .unwrap_or_default();
        let env = Arc::new(Environment::from_bytes(vars));
        if kept.len() == Self::KEPT {
            kept.remove(0);
        }
        kept.push((id, Arc::clone(&env)));
        Ok(env)
    }
}
