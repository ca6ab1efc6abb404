//! Setting right what can be set right without guessing.

use std::fs;
use std::io;

use super::SqliteStore;
use super::check::files;
use super::check::shard::{COUNTED, MISCOUNTED, TALLIED, is_log_long};
use super::desk::Durability;
use super::shard::Shard;
use super::tx::Tx;
use crate::error::{Error, Result};
use crate::model::{LocalId, ShardId, StepId, Timestamp};
use crate::store::Release as _;

/// Tables with rows of steps, and the column that says of which. A row that belongs to no stored step
/// is of no use to anybody.
const OF_STEPS: [(&str, &str); 13] = [
    ("ready", "id"),
    ("delayed", "id"),
    ("blocked", "id"),
    ("limited", "id"),
    ("held", "id"),
    ("running", "id"),
    ("done", "id"),
    ("expiring", "id"),
    ("tags", "id"),
    ("attempts", "id"),
    ("output", "id"),
    ("edges", "child"),
    ("children", "parent"),
];

/// Steps that stand in no state. Fences count claims, and the last one may have been lost with the
/// row: one is left out, so that a runner which still has that claim writes nothing.
const HOLD: &str = "
    INSERT INTO held(id, since, due, attempt, fence)
    SELECT s.id, ?1, NULL,
           (SELECT coalesce(max(attempt), 0) FROM attempts a WHERE a.id = s.id),
           1 + max((SELECT coalesce(max(fence), 0) FROM attempts a WHERE a.id = s.id),
                   (SELECT coalesce(max(fence), 0) FROM output o WHERE o.id = s.id))
      FROM steps s
     WHERE s.id NOT IN (SELECT id FROM ready) AND s.id NOT IN (SELECT id FROM delayed)
       AND s.id NOT IN (SELECT id FROM blocked) AND s.id NOT IN (SELECT id FROM limited)
       AND s.id NOT IN (SELECT id FROM held) AND s.id NOT IN (SELECT id FROM running)
       AND s.id NOT IN (SELECT id FROM done)
    RETURNING id";

impl SqliteStore {
    /// Sets right what can be: sums that are wrong, rows and files that belong to no step, steps that
    /// stand nowhere (they are held), news between shards, places of limits, long logs. Each shard is
    /// set right in one transaction, while others work. Returns a line for each thing that was done;
    /// what could not be done is among them, as an error.
    pub fn repair(&self, now: Timestamp) -> Vec<Result<String>> {
        let mut done = Vec::new();
        let mut readable = Vec::new();
        for shard in &self.shards {
            match recount(shard, now) {
                Ok(lines) => {
                    readable.push(shard.id());
                    done.extend(lines.into_iter().map(Ok));
                }
                Err(error) => done.push(Err(skipped(shard.id(), &error))),
            }
            if is_log_long(shard) {
                done.push(fold(shard));
            }
        }
        // They need every shard: without one of them this is left to a day on which all are there.
        if readable.len() == self.shards.len() {
            match self.bring_news(now) {
                Ok(lines) => done.extend(lines.into_iter().map(Ok)),
                Err(error) => done.push(Err(error)),
            }
        }
        match files::stray(self, &readable) {
            Ok(stray) => done.extend(stray.iter().map(|file| {
                let path = self.root.join(file);
                match fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        Err(super::layout::cannot_remove(&path, &error))
                    }
                    Ok(()) | Err(_) => Ok(format!("removed {}", file.display())),
                }
            })),
            Err(error) => done.push(Err(error)),
        }
        done
    }

    /// Brings what shards have to tell each other, and gives places of limits anew.
    fn bring_news(&self, now: Timestamp) -> Result<Vec<String>> {
        let letters = self.count("SELECT count(*) FROM outbox")?;
        let mut released = self.mend(now)?.len();
        let places = self.count("SELECT count(*) FROM places")?;
        released += self.grant(now)?.len();
        let told = letters.saturating_sub(self.count("SELECT count(*) FROM outbox")?);
        let back = places.saturating_sub(self.count("SELECT count(*) FROM places")?);
        let lines = [
            (told, "news brought to other shards"),
            (back, "places of limits taken back"),
            (released as u64, "steps let go"),
        ];
        let done = lines.iter().filter(|(count, _)| *count > 0);
        Ok(done
            .map(|(count, what)| format!("{what}: {count}"))
            .collect())
    }

    /// Returns the sum of a number over all shards.
    fn count(&self, sql: &str) -> Result<u64> {
        let mut sum = 0;
        for shard in &self.shards {
            sum += shard
                .read(|connection| connection.query_row(sql, [], |row| row.get::<_, i64>(0)))?;
        }
        Ok(u64::try_from(sum).unwrap_or(0))
    }
}

fn skipped(shard: ShardId, error: &Error) -> Error {
    Error::new(
        error.kind(),
        format!("shard {shard} was left as it is: {error}"),
    )
}

/// Sets one shard's rows and sums right.
fn recount(shard: &Shard, now: Timestamp) -> Result<Vec<String>> {
    let id = shard.id();
    // A file whose pages are broken is not to be written any more.
    shard.read(|connection| {
        connection.query_row("PRAGMA quick_check(1)", [], |row| {
            match row.get::<_, String>(0)?.as_str() {
                "ok" => Ok(()),
                _ => Err(rusqlite::Error::SqliteFailure(
                    rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT),
                    None,
                )),
            }
        })
    })?;
    shard.write(Durability::Full, move |tx| {
        let mut lines = Vec::new();
        let mut did = |count: usize, what: &str| {
            if count > 0 {
                lines.push(format!("shard {id}: {what}: {count}"));
            }
        };
        let mut gone = 0;
        for (table, column) in OF_STEPS {
            gone += execute(
                tx,
                &format!("DELETE FROM {table} WHERE {column} NOT IN (SELECT id FROM steps)"),
            )?;
        }
        did(gone, "rows of forgotten steps removed");
        let held = tx
            .prepare(HOLD)?
            .query_map([now.millis()], |row| {
                Ok(StepId::new(id, LocalId::new(row.get(0)?)))
            })?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        did(held.len(), "steps that stood nowhere are held now");
        did(recount_blocked(tx, now)?, "blocked steps counted anew");
        did(recount_tally(tx)?, "tallies counted anew");
        did(recount_counters(tx)?, "counters counted anew");
        Ok(lines)
    })
}

/// Lets blocked steps count again what they wait for. One that waits for nothing is held: nobody can
/// tell why it was not let go.
fn recount_blocked(tx: &Tx<'_>, now: Timestamp) -> rusqlite::Result<usize> {
    let changed = execute(
        tx,
        &format!(
            "UPDATE blocked SET missing =
               (SELECT count(*) FROM edges WHERE child = blocked.id AND state = 0)
              WHERE id IN ({MISCOUNTED})"
        ),
    )?;
    tx.prepare(
        "INSERT INTO held(id, since, due, attempt, fence)
         SELECT id, ?1, due, attempt, fence FROM blocked WHERE missing = 0",
    )?
    .execute([now.millis()])?;
    execute(tx, "DELETE FROM blocked WHERE missing = 0")?;
    Ok(changed)
}

fn recount_tally(tx: &Tx<'_>) -> rusqlite::Result<usize> {
    let columns = "paused, band, key, n, head, since, weight";
    let wrong = execute(
        tx,
        &format!(
            "DELETE FROM tally WHERE (paused, band, key) IN (
               SELECT paused, band, key FROM
                 (SELECT {columns} FROM tally EXCEPT {TALLIED}))"
        ),
    )?;
    let missing = execute(
        tx,
        &format!("INSERT OR IGNORE INTO tally({columns}) {TALLIED}"),
    )?;
    Ok(wrong.max(missing))
}

fn recount_counters(tx: &Tx<'_>) -> rusqlite::Result<usize> {
    let counted = execute(
        tx,
        &format!(
            "INSERT INTO counters(name, value) SELECT name, value FROM ({COUNTED}) WHERE true
             ON CONFLICT(name) DO UPDATE SET value = excluded.value WHERE value <> excluded.value"
        ),
    )?;
    let numbers = execute(
        tx,
        "INSERT INTO counters(name, value)
         SELECT * FROM (SELECT 'next_id', (SELECT coalesce(max(id), 0) + 1 FROM steps)
                        UNION ALL
                        SELECT 'next_place', (SELECT coalesce(max(id), 0) + 1 FROM places)) WHERE true
         ON CONFLICT(name) DO UPDATE SET value = excluded.value WHERE value < excluded.value",
    )?;
    Ok(counted + numbers)
}

fn execute(tx: &Tx<'_>, sql: &str) -> rusqlite::Result<usize> {
    tx.prepare(sql)?.execute([])
}

/// Folds a shard's log back into its file, as far as readers let it.
fn fold(shard: &Shard) -> Result<String> {
    let connection = shard.own_connection()?;
    connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .map_err(|error| shard.failed(&error))?;
    Ok(format!("shard {}: log folded back", shard.id()))
}
