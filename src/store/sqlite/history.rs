//! What happened in some time: tries and arrivals.
//!
//! No table has an index on time, for every step would pay for it. Tries are found by reading all
//! of the narrow tables `done` and `attempts`, and only for those of the window the wide row of the
//! step; arrivals by bisecting the numbers, which rise with time.

use rusqlite::{Connection, OptionalExtension as _, Row};

use super::row;
use crate::model::{FairnessKey, LocalId, ShardId, StepId, Timestamp, Weight};
use crate::stats::{Dispatch, Outcome, Window};
use crate::store::Arrival;

/// The tries, by a condition on each of the three tables and an end for all of them.
macro_rules! tries {
    ($condition:literal, $end:literal) => {
        concat!(
            "SELECT t.id, s.band, s.key, s.weight, t.since, t.claimed, t.started, t.ended,
                    t.ending, t.code
               FROM (SELECT id, since, claimed, started, ended, ending, code
                       FROM done WHERE runner IS NOT NULL",
            $condition,
            " UNION ALL
                     SELECT id, since, claimed, started, ended, ending, code
                       FROM attempts WHERE runner IS NOT NULL",
            $condition,
            " UNION ALL
                     SELECT id, since, claimed, NULL, NULL, NULL, NULL
                       FROM running WHERE runner IS NOT NULL",
            $condition,
            $end,
            ") t CROSS JOIN steps s ON s.id = t.id"
        )
    };
}

pub(super) const SINCE: &str = tries!(" AND claimed >= ?1", "");
pub(super) const LAST: &str = tries!("", " ORDER BY 3 DESC, 1 DESC LIMIT ?1");
/// The first step from a number on.
pub(super) const AT: &str = "SELECT id, created FROM steps WHERE id >= ?1 ORDER BY id LIMIT 1";
pub(super) const ARRIVALS: &str = "SELECT id, band, key, weight, name, created FROM steps
      WHERE id >= ?1 AND created >= ?2 ORDER BY id LIMIT ?3";

/// Hands the tries of a window to `each`.
pub(super) fn dispatches(
    connection: &Connection,
    shard: ShardId,
    window: Window,
    each: &mut dyn FnMut(Dispatch),
) -> rusqlite::Result<()> {
    let (sql, value) = match window {
        Window::Since(from) => (SINCE, from.millis()),
        Window::Last(count) => (LAST, i64::try_from(count).unwrap_or(i64::MAX)),
    };
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([value])?;
    let mut keys = Keys::default();
    while let Some(row) = rows.next()? {
        each(dispatch(row, shard, &mut keys)?);
    }
    Ok(())
}

fn dispatch(row: &Row<'_>, shard: ShardId, keys: &mut Keys) -> rusqlite::Result<Dispatch> {
    let ended = row.get::<_, Option<i64>>(7)?.map(Timestamp::from_millis);
    Ok(Dispatch {
        id: StepId::new(shard, row::local(row, 0)?),
        band: row::band(row, 1)?,
        key: keys.get(row.get_ref(2)?.as_str()?),
        weight: Weight::or_one(row.get(3)?),
        since: row::timestamp(row, 4)?,
        claimed: row::timestamp(row, 5)?,
        started: row.get::<_, Option<i64>>(6)?.map(Timestamp::from_millis),
        ended,
        outcome: match (ended, row.get(8)?, row.get(9)?) {
            (None, ..) => Outcome::Running,
            (Some(_), Some(0), Some(0)) => Outcome::Succeeded,
            (Some(_), Some(3), _) => Outcome::Interrupted,
            (Some(_), Some(4), _) => Outcome::Lost,
            (Some(_), Some(0..=2), _) => Outcome::Failed,
            (Some(_), ..) => return Err(row::unreadable(8, rusqlite::types::Type::Integer)),
        },
    })
}

/// Every key once, in the order of their bytes: a million tries have few of them.
#[derive(Default)]
struct Keys(Vec<FairnessKey>);

impl Keys {
    fn get(&mut self, text: &str) -> FairnessKey {
        match self.0.binary_search_by(|key| key.as_str().cmp(text)) {
            Ok(at) => self.0[at].clone(),
            Err(at) => {
                let key = FairnessKey::from_store(text);
                self.0.insert(at, key.clone());
                key
            }
        }
    }
}

/// Returns steps by the order in which they were put in.
pub(super) fn arrivals(
    connection: &Connection,
    shard: ShardId,
    after: LocalId,
    since: Timestamp,
    limit: usize,
) -> rusqlite::Result<Vec<Arrival>> {
    let first = first_since(connection, after.get().saturating_add(1), since)?;
    connection
        .prepare_cached(ARRIVALS)?
        .query_map(
            (
                first,
                since.millis(),
                i64::try_from(limit).unwrap_or(i64::MAX),
            ),
            |row| {
                Ok(Arrival {
                    id: StepId::new(shard, row::local(row, 0)?),
                    band: row::band(row, 1)?,
                    key: row::key(row, 2)?,
                    weight: Weight::or_one(row.get(3)?),
                    name: row.get(4)?,
                    created: row::timestamp(row, 5)?,
                })
            },
        )?
        .collect()
}

/// Returns the least number from `from` on that was put in at or after `since`; one beyond the last
/// if there is none.
fn first_since(connection: &Connection, from: i64, since: Timestamp) -> rusqlite::Result<i64> {
    let mut next = connection.prepare_cached(AT)?;
    let last: Option<i64> = connection
        .prepare_cached("SELECT max(id) FROM steps")?
        .query_row([], |row| row.get(0))?;
    let (mut low, mut high) = (from, last.unwrap_or(0).saturating_add(1).max(from));
    // All below `low` are too old, all from `high` on are not.
    let mut middle = low;
    while low < high {
        let found = next
            .query_row([middle], |row| {
                Ok((row.get::<_, i64>(0)?, row::timestamp(row, 1)?))
            })
            .optional()?;
        match found {
            Some((id, created)) if created < since => low = id + 1,
            Some(_) | None => high = middle,
        }
        middle = low + (high - low) / 2;
    }
    Ok(low)
}
