//! Answering people's questions; never writes.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use rusqlite::{Connection, OptionalExtension as _, Row};

use super::SqliteStore;
use super::history;
use super::limits;
use super::links;
use super::list;
use super::pauses;
use super::row::{self, StepRow, step_columns};
use super::shard::Shard;
use super::supply::{self, NEXT_DUE};
use super::tx::Counter;
use crate::error::{Context as _, ErrorKind, Result};
use crate::model::{
    Band, Ending, FairnessKey, LimitName, LocalId, RunnerId, ShardId, StepId, StepState, Stream,
    Timestamp,
};
use crate::stats::{Dispatch, Window};
use crate::store::{
    Arrival, Attempt, Filter, LimitView, Link, Output, Paused, Read, ShardCounts, StepView,
};
use crate::tally::Tally;

impl Read for SqliteStore {
    fn get(&self, id: StepId) -> Result<Option<StepView>> {
        let shard = self.shard(id.shard)?;
        let found = shard.read(|connection| {
            for (state, sql) in POINT {
                let found = connection
                    .prepare_cached(sql)?
                    .query_row([id.local.get()], |row| Found::read(row, state))
                    .optional()?;
                if let Some(found) = found {
                    return found.complete(connection, shard).map(Some);
                }
            }
            Ok(None)
        })?;
        Ok(found)
    }

    fn list(&self, filter: &Filter) -> Result<Vec<StepView>> {
        let mut views = Vec::new();
        for shard in &self.shards {
            views.extend(list::list(shard, filter)?);
        }
        views.sort_by(|a, b| filter.order.compare(a, b));
        views.truncate(filter.limit.unwrap_or(usize::MAX));
        Ok(views)
    }

    fn find(&self, filter: &Filter) -> Result<Vec<StepId>> {
        let mut ids = Vec::new();
        for shard in &self.shards {
            ids.extend(list::find(shard, filter)?);
        }
        ids.sort_unstable();
        Ok(ids)
    }

    fn parents(&self, id: StepId) -> Result<Vec<Link>> {
        links::parents(self, id)
    }

    fn dependents(&self, id: StepId) -> Result<Vec<StepId>> {
        links::dependents(self, id)
    }

    fn pauses(&self) -> Result<Vec<Paused>> {
        // Every shard has the same ones, but for the moment in which they are changed.
        let mut all: Vec<Paused> = Vec::new();
        for shard in &self.shards {
            for paused in shard.read(pauses::read)? {
                if !all.iter().any(|known| known.what == paused.what) {
                    all.push(paused);
                }
            }
        }
        all.sort_by(|a, b| (a.since, &a.what).cmp(&(b.since, &b.what)));
        Ok(all)
    }

    fn limits(&self) -> Result<Vec<LimitView>> {
        limits::view(self)
    }

    fn attempts(&self, id: StepId) -> Result<Vec<Attempt>> {
        self.shard(id.shard)?.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT fence, attempt, runner, worker, since, claimed, started, ended,
                            ending, code, reason
                       FROM attempts WHERE id = ?1
                     UNION ALL
                     SELECT fence, attempt, runner, worker, since, claimed, started, ended,
                            ending, code, reason
                       FROM done WHERE id = ?1 AND runner IS NOT NULL
                      ORDER BY fence",
                )?
                .query_map([id.local.get()], attempt)?
                .collect()
        })
    }

    fn output(&self, id: StepId, fence: u32, stream: Stream) -> Result<Option<Output>> {
        let which = match stream {
            Stream::Stdout => 0,
            Stream::Stderr => 1,
        };
        let kept =
            self.shard(id.shard)?.read(|connection| {
                connection
                .prepare_cached(
                    "SELECT bytes, path FROM output WHERE id = ?1 AND fence = ?2 AND stream = ?3",
                )?
                .query_row((id.local.get(), fence, which), |row| {
                    Ok((row.get::<_, Option<Vec<u8>>>(0)?, row.get::<_, Option<Vec<u8>>>(1)?))
                })
                .optional()
            })?;
        match kept {
            None => Ok(None),
            Some((Some(bytes), _)) => Ok(Some(Output::Bytes(bytes))),
            Some((None, path)) => {
                let below = PathBuf::from(OsString::from_vec(path.unwrap_or_default()));
                let path = self.root.join(below);
                File::open(&path)
                    .map(|file| Some(Output::File(file)))
                    .or_fail(ErrorKind::Unavailable, || {
                        format!("cannot open the output of {id}, {}", path.display())
                    })
            }
        }
    }

    fn tally_at(&self, shard: ShardId, band: Band) -> Result<Vec<Tally>> {
        self.shard(shard)?.read(|connection| {
            connection
                .prepare_cached(
                    "SELECT band, key, n, since, weight FROM tally
                      WHERE paused IN (0, 1) AND band = ?1 ORDER BY key",
                )?
                .query_map([band.get()], supply::tally_row)?
                .collect()
        })
    }

    fn ahead(&self, id: StepId, band: Band, key: &FairnessKey, most: u32) -> Result<u32> {
        self.shard(id.shard)?.read(|connection| {
            connection
                .prepare_cached(AHEAD)?
                .query_row((band.get(), key.as_str(), id.local.get(), most), |row| {
                    row.get(0)
                })
        })
    }

    fn counts(&self, shard: ShardId) -> Result<ShardCounts> {
        self.shard(shard)?.read(counts)
    }

    fn dispatches(
        &self,
        shard: ShardId,
        window: Window,
        each: &mut dyn FnMut(Dispatch),
    ) -> Result<()> {
        self.shard(shard)?
            .read(|connection| history::dispatches(connection, shard, window, each))
    }

    fn arrivals(
        &self,
        shard: ShardId,
        after: LocalId,
        since: Timestamp,
        limit: usize,
    ) -> Result<Vec<Arrival>> {
        self.shard(shard)?
            .read(|connection| history::arrivals(connection, shard, after, since, limit))
    }
}

/// How many delayed steps have been tried before.
pub(super) const RETRYING: &str =
    "SELECT count(*) FROM delayed INDEXED BY retrying WHERE attempt > 0";

/// How many due steps of a key stand before an id, counted up to a limit.
pub(super) const AHEAD: &str = "SELECT count(*) FROM
    (SELECT 1 FROM ready WHERE band = ?1 AND key = ?2 AND id < ?3 LIMIT ?4)";

fn counts(connection: &Connection) -> rusqlite::Result<ShardCounts> {
    let mut counts = ShardCounts::default();
    let mut counters = connection.prepare_cached("SELECT name, value FROM counters")?;
    let mut rows = counters.query([])?;
    while let Some(row) = rows.next()? {
        let state = match row.get_ref(0)?.as_str()? {
            name if name == Counter::Succeeded.name() => StepState::Succeeded,
            name if name == Counter::Failed.name() => StepState::Failed,
            name if name == Counter::Cancelled.name() => StepState::Cancelled,
            name if name == Counter::Delayed.name() => StepState::Delayed,
            name if name == Counter::Blocked.name() => StepState::Blocked,
            name if name == Counter::Limited.name() => StepState::Limited,
            name if name == Counter::Held.name() => StepState::Held,
            _ => continue,
        };
        counts.states.insert(state, number(row, 1)?);
    }
    let running = connection
        .prepare_cached("SELECT count(*) FROM running")?
        .query_row([], |row| number(row, 0))?;
    counts.states.insert(StepState::Running, running);
    let mut bands = connection.prepare_cached("SELECT band, sum(n) FROM tally GROUP BY band")?;
    let mut rows = bands.query([])?;
    while let Some(row) = rows.next()? {
        counts.ready.insert(row::band(row, 0)?, number(row, 1)?);
    }
    counts
        .states
        .insert(StepState::Ready, counts.ready.values().sum());
    counts.paused = connection
        .prepare_cached("SELECT ifnull(sum(n), 0) FROM tally WHERE paused = 1")?
        .query_row([], |row| number(row, 0))?;
    counts.retrying = connection
        .prepare_cached(RETRYING)?
        .query_row([], |row| number(row, 0))?;
    counts.states.retain(|_, count| *count > 0);
    counts.next_due = connection
        .prepare_cached(NEXT_DUE)?
        .query_row([], |row| row::timestamp(row, 0))
        .optional()?;
    Ok(counts)
}

/// Returns where a step stands; `None` if there is none of this id.
pub(super) fn state_of(
    connection: &Connection,
    id: LocalId,
) -> rusqlite::Result<Option<StepState>> {
    for (state, sql) in POINT {
        let found = connection
            .prepare_cached(sql)?
            .query_row([id.get()], |row| {
                if state.is_final() {
                    row::final_state(row, 9)
                } else {
                    Ok(state)
                }
            })
            .optional()?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Reads a number of rows.
fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column)
        .map(|count| u64::try_from(count).unwrap_or(0))
}

fn attempt(row: &Row<'_>) -> rusqlite::Result<Attempt> {
    Ok(Attempt {
        fence: row.get(0)?,
        attempt: row.get(1)?,
        runner: row::runner(row, 2)?,
        worker: row.get(3)?,
        since: row::timestamp(row, 4)?,
        claimed: row::timestamp(row, 5)?,
        started: row.get::<_, Option<i64>>(6)?.map(Timestamp::from_millis),
        ended: row::timestamp(row, 7)?,
        ending: row::ending(row, 8)?,
    })
}

/// What each state's table tells, in the same columns for all: id, at, attempt, fence, runner,
/// started, ending, code, reason, final state, since, wish, limit; then the step's own.
macro_rules! view_of {
    (running, $from:literal) => {
        view_of!(@ "u.id, u.claimed, u.attempt, u.fence, u.runner, NULL, NULL, NULL, NULL, NULL, u.since, u.wish, NULL, ", $from)
    };
    (ready, $from:literal) => {
        view_of!(@ "r.id, r.since, r.attempt, r.fence, NULL, NULL, NULL, NULL, NULL, NULL, r.since, 0, NULL, ", $from)
    };
    (delayed, $from:literal) => {
        view_of!(@ "d.id, d.due, d.attempt, d.fence, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, ", $from)
    };
    (blocked, $from:literal) => {
        view_of!(@ "b.id, s.created, b.attempt, b.fence, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, ", $from)
    };
    (limited, $from:literal) => {
        view_of!(@ "l.id, l.since, l.attempt, l.fence, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, l.name, ", $from)
    };
    (held, $from:literal) => {
        view_of!(@ "h.id, s.created, h.attempt, h.fence, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, ", $from)
    };
    (done, $from:literal) => {
        view_of!(@ "e.id, e.ended, e.attempt, e.fence, NULL, e.started, e.ending, e.code, e.reason, e.state, NULL, 0, NULL, ", $from)
    };
    (@ $columns:literal, $from:literal) => {
        concat!("SELECT ", $columns, step_columns!(), $from)
    };
}

/// Where a step of a known id may stand.
const POINT: [(StepState, &str); 7] = [
    (
        StepState::Succeeded,
        view_of!(
            done,
            " FROM done e CROSS JOIN steps s ON s.id = e.id WHERE e.id = ?1"
        ),
    ),
    (
        StepState::Ready,
        view_of!(
            ready,
            " FROM steps s CROSS JOIN ready r ON r.band = s.band AND r.key = s.key AND r.id = s.id
              WHERE s.id = ?1"
        ),
    ),
    (
        StepState::Running,
        view_of!(
            running,
            " FROM running u CROSS JOIN steps s ON s.id = u.id WHERE u.id = ?1"
        ),
    ),
    (
        StepState::Delayed,
        view_of!(
            delayed,
            " FROM delayed d CROSS JOIN steps s ON s.id = d.id WHERE d.id = ?1"
        ),
    ),
    (
        StepState::Blocked,
        view_of!(
            blocked,
            " FROM blocked b CROSS JOIN steps s ON s.id = b.id WHERE b.id = ?1"
        ),
    ),
    (
        StepState::Limited,
        view_of!(
            limited,
            " FROM limited l CROSS JOIN steps s ON s.id = l.id WHERE l.id = ?1"
        ),
    ),
    (
        StepState::Held,
        view_of!(
            held,
            " FROM held h CROSS JOIN steps s ON s.id = h.id WHERE h.id = ?1"
        ),
    ),
];

/// The steps of one state, without a condition yet.
pub(super) const fn all_of(state: StepState) -> &'static str {
    match state {
        StepState::Running => {
            view_of!(running, " FROM running u CROSS JOIN steps s ON s.id = u.id")
        }
        StepState::Ready => view_of!(ready, " FROM ready r CROSS JOIN steps s ON s.id = r.id"),
        StepState::Delayed => {
            view_of!(delayed, " FROM delayed d CROSS JOIN steps s ON s.id = d.id")
        }
        StepState::Blocked => {
            view_of!(blocked, " FROM blocked b CROSS JOIN steps s ON s.id = b.id")
        }
        StepState::Limited => {
            view_of!(limited, " FROM limited l CROSS JOIN steps s ON s.id = l.id")
        }
        StepState::Held => view_of!(held, " FROM held h CROSS JOIN steps s ON s.id = h.id"),
        StepState::Succeeded => view_of!(done, " FROM done e CROSS JOIN steps s ON s.id = e.id"),
        // Named, because SQLite would rather walk all of `done` in the order of the ids. Its
        // statements repeat the index's own condition, which SQLite does not infer.
        StepState::Failed | StepState::Cancelled => view_of!(
            done,
            " FROM done e INDEXED BY dead_letters CROSS JOIN steps s ON s.id = e.id"
        ),
    }
}

/// A row of one of these statements, before the parts that stand elsewhere are added.
#[derive(Debug)]
pub(super) struct Found {
    id: LocalId,
    state: StepState,
    at: Timestamp,
    since: Option<Timestamp>,
    attempt: u32,
    fence: u32,
    runner: Option<RunnerId>,
    started: Option<Timestamp>,
    ending: Option<Ending>,
    cancelling: bool,
    limit: Option<LimitName>,
    step: StepRow,
}

/// Columns before the step's own.
const OWN: usize = 13;

impl Found {
    /// Reads a row of a statement for this state; which final state it is, the row says itself.
    pub(super) fn read(row: &Row<'_>, state: StepState) -> rusqlite::Result<Self> {
        let over = state.is_final();
        let state = if over {
            row::final_state(row, 9)?
        } else {
            state
        };
        Ok(Self {
            id: row::local(row, 0)?,
            state,
            at: row::timestamp(row, 1)?,
            since: row.get::<_, Option<i64>>(10)?.map(Timestamp::from_millis),
            attempt: row.get(2)?,
            fence: row.get(3)?,
            runner: row.get::<_, Option<i64>>(4)?.map(RunnerId::new),
            started: row.get::<_, Option<i64>>(5)?.map(Timestamp::from_millis),
            ending: if over {
                Some(row::ending(row, 6)?)
            } else {
                None
            },
            cancelling: row.get(11)?,
            limit: row
                .get_ref(12)?
                .as_str_or_null()?
                .map(LimitName::from_store),
            step: StepRow::read(row, OWN)?,
        })
    }

    /// Adds the environment and the tags.
    pub(super) fn complete(
        self,
        connection: &Connection,
        shard: &Shard,
    ) -> rusqlite::Result<StepView> {
        let env = shard.envs().get(connection, self.step.env)?;
        let tags = connection
            .prepare_cached("SELECT tag FROM tags WHERE id = ?1 ORDER BY tag")?
            .query_map([self.id.get()], |row| row.get(0))?
            .collect::<rusqlite::Result<Vec<String>>>()?;
        Ok(StepView {
            id: StepId::new(shard.id(), self.id),
            state: self.state,
            command: self.step.command,
            cwd: self.step.cwd,
            env,
            band: self.step.band,
            key: self.step.key,
            weight: self.step.weight,
            name: self.step.name,
            tags,
            policy: self.step.policy,
            created: self.step.created,
            at: self.at,
            since: self.since,
            attempt: self.attempt,
            fence: self.fence,
            runner: self.runner,
            flow: self.step.flow,
            cancelling: self.cancelling,
            limit: self.limit,
            ending: self.ending,
            started: self.started,
        })
    }
}
