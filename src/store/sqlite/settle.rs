//! Recording what became of a try.

use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use rusqlite::OptionalExtension as _;

use super::SqliteStore;
use super::links;
use super::row::{self, SELECT_STEP, StepRow};
use super::stand::{self, Carried};
use super::tx::{Counter, Tx};
use crate::model::{
    Captured, Ending, LocalId, Recorded, RunnerId, Settled, Settlement, ShardId, StepState,
    Timestamp, Verdict,
};
use crate::store::{AfterSettle, Settle};

impl Settle for SqliteStore {
    fn settle(&self, shard: ShardId, settlements: Arc<[Settlement]>, after: AfterSettle) {
        match self.shard(shard) {
            Ok(shard) => shard.submit(self.durability, settling(settlements), after),
            Err(error) => after(Err(error)),
        }
    }

    fn settle_later(&self, shard: ShardId, settlements: Arc<[Settlement]>, after: AfterSettle) {
        match self.shard(shard) {
            Ok(shard) => shard.leave(self.durability, settling(settlements), after),
            Err(error) => after(Err(error)),
        }
    }

    fn hurry(&self, shard: ShardId) {
        // Where there is no such shard, nothing was left there.
        if let Ok(shard) = self.shard(shard) {
            shard.hurry();
        }
    }
}

/// Returns the write of these outcomes.
fn settling(
    settlements: Arc<[Settlement]>,
) -> impl FnMut(&Tx<'_>) -> rusqlite::Result<Vec<Settled>> + Send + 'static {
    move |tx| settlements.iter().map(|one| settle(tx, one)).collect()
}

/// A row of `running` that was taken out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) attempt: u32,
    pub(super) since: Timestamp,
    pub(super) claimed: Timestamp,
    /// Whether somebody had asked for its end.
    pub(super) wish: bool,
    /// Whether it holds places of limits.
    pub(super) limits: bool,
}

/// Takes a step out of `running` if this claim still holds it. The fence of every late write.
pub(super) fn end_running(
    tx: &Tx<'_>,
    id: LocalId,
    runner: RunnerId,
    fence: u32,
) -> rusqlite::Result<Option<Held>> {
    let held = tx
        .prepare(
            "SELECT attempt, since, claimed, wish, limits FROM running
              WHERE id = ?1 AND runner = ?2 AND fence = ?3",
        )?
        .query_row((id.get(), runner.get(), fence), |row| {
            Ok(Held {
                attempt: row.get(0)?,
                since: row::timestamp(row, 1)?,
                claimed: row::timestamp(row, 2)?,
                wish: row.get(3)?,
                limits: row.get(4)?,
            })
        })
        .optional()?;
    if held.is_some() {
        tx.prepare("DELETE FROM running WHERE id = ?1")?
            .execute([id.get()])?;
    }
    Ok(held)
}

/// A try that is over, as it is recorded.
#[derive(Debug)]
pub(super) struct Try<'t> {
    pub(super) id: LocalId,
    pub(super) runner: RunnerId,
    pub(super) fence: u32,
    pub(super) attempt: u32,
    pub(super) worker: u32,
    pub(super) since: Timestamp,
    pub(super) claimed: Timestamp,
    pub(super) started: Option<Timestamp>,
    pub(super) ended: Timestamp,
    pub(super) ending: &'t Ending,
}

/// Records a try: as the step's last one where it leads to a final state, else among the attempts.
pub(super) fn record_try(
    tx: &Tx<'_>,
    one: &Try<'_>,
    state: Option<StepState>,
) -> rusqlite::Result<()> {
    let (kind, code, reason) = row::ending_columns(one.ending);
    let columns = (
        one.id.get(),
        one.fence,
        one.attempt,
        one.runner.get(),
        one.worker,
        one.since.millis(),
        one.claimed.millis(),
        one.started.map(Timestamp::millis),
        one.ended.millis(),
        kind,
        code,
        reason,
    );
    let (sql, counter) = match state {
        Some(StepState::Succeeded) => (DONE_SUCCEEDED, Some(Counter::Succeeded)),
        Some(StepState::Failed) => (DONE_FAILED, Some(Counter::Failed)),
        Some(StepState::Cancelled) => (DONE_CANCELLED, Some(Counter::Cancelled)),
        None
        | Some(
            StepState::Running
            | StepState::Ready
            | StepState::Delayed
            | StepState::Blocked
            | StepState::Limited
            | StepState::Held,
        ) => (TRY, None),
    };
    tx.prepare(sql)?.execute(columns)?;
    if let Some(counter) = counter {
        tx.count(counter, 1);
    }
    Ok(())
}

macro_rules! insert_try {
    ($table:literal, $state:literal, $value:literal) => {
        concat!(
            "INSERT INTO ",
            $table,
            "(",
            $state,
            "id, fence, attempt, runner, worker, since, claimed, started, ended, ending, code, reason)
             VALUES (",
            $value,
            "?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)"
        )
    };
}

const DONE_SUCCEEDED: &str = insert_try!("done", "state, ", "0, ");
const DONE_FAILED: &str = insert_try!("done", "state, ", "1, ");
const DONE_CANCELLED: &str = insert_try!("done", "state, ", "2, ");
const TRY: &str = insert_try!("attempts", "", "");

fn settle(tx: &Tx<'_>, settlement: &Settlement) -> rusqlite::Result<Settled> {
    let finished = &settlement.finished;
    let id = finished.id.local;
    let Some(held) = end_running(tx, id, finished.runner, finished.fence)? else {
        return Ok(Settled::Fenced);
    };
    let one = Try {
        id,
        runner: finished.runner,
        fence: finished.fence,
        attempt: held.attempt,
        worker: finished.worker,
        since: held.since,
        claimed: held.claimed,
        started: finished.started,
        ended: finished.ended,
        ending: &finished.ending,
    };
    let verdict = settlement.verdict;
    let over = match verdict {
        // What was asked to end is not started again, and is not called a success either.
        _ if held.wish => Some(StepState::Cancelled),
        Verdict::Succeeded => Some(StepState::Succeeded),
        Verdict::Failed => Some(StepState::Failed),
        Verdict::Retry { .. } | Verdict::GiveBack => None,
    };
    record_try(tx, &one, over)?;
    keep_output(tx, id, finished.fence, [&finished.stdout, &finished.stderr])?;
    let mut recorded = Recorded {
        state: StepState::Ready,
        released: Vec::new(),
        tell: held.limits,
    };
    let now = finished.ended;
    match over {
        Some(state) => {
            recorded.state = state;
            recorded.tell |= links::tell(tx, id, state, now, &mut recorded.released)?;
        }
        None => {
            recorded.state = put_back(tx, id, held, finished.fence, verdict, now)?;
            recorded.tell &= recorded.state != StepState::Ready;
        }
    }
    Ok(Settled::Recorded(recorded))
}

/// Puts a step back that is to be tried again: at its time, this try counted; or with its age, as if
/// this try had not been.
fn put_back(
    tx: &Tx<'_>,
    id: LocalId,
    held: Held,
    fence: u32,
    verdict: Verdict,
    now: Timestamp,
) -> rusqlite::Result<StepState> {
    let step = tx
        .prepare(SELECT_STEP)?
        .query_row([id.get()], |row| StepRow::read(row, 0))?;
    let plain = Carried {
        fence,
        ..Carried::of(id, &step, held.since)
    };
    let step = match verdict {
        Verdict::Retry { at } => Carried {
            due: Some(at),
            since: at,
            attempt: held.attempt,
            ..plain
        },
        // It is due again at once, and keeps its places.
        Verdict::GiveBack | Verdict::Succeeded | Verdict::Failed => Carried {
            attempt: held.attempt.saturating_sub(1),
            limit: None,
            ..plain
        },
    };
    stand::put(tx, &step, 0, now)
}

/// Keeps what a try wrote to its output and to its error.
pub(super) fn keep_output(
    tx: &Tx<'_>,
    id: LocalId,
    fence: u32,
    streams: [&Captured; 2],
) -> rusqlite::Result<()> {
    for (stream, captured) in (0..).zip(streams) {
        let (bytes, path, size) = match captured {
            Captured::Empty => continue,
            Captured::Inline(bytes) => (Some(bytes.as_slice()), None, bytes.len() as u64),
            Captured::File { path, size } => (None, Some(path.as_os_str().as_bytes()), *size),
        };
        tx.prepare(
            "INSERT OR REPLACE INTO output(id, fence, stream, bytes, path, size)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute((id.get(), fence, stream, bytes, path, size.cast_signed()))?;
    }
    Ok(())
}
