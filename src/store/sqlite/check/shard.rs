//! One shard: whether its file is whole, and whether its tables agree with one another.

use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::{Finding, Severity, place, some_of};
use crate::ambient::Clock;
use crate::model::{LocalId, StepId, Timestamp};
use crate::store::sqlite::shard::Shard;

/// A file that should not be so long: twice the length at which a writer waits for its log to be
/// folded back.
const LONG_LOG: u64 = 512 << 20;

/// What was found on a shard.
pub(super) struct Found {
    pub(super) findings: Vec<Finding>,
    /// Whether the tables can be read.
    pub(super) is_readable: bool,
}

/// Something that must not be, and the statement that finds it.
struct Rule {
    check: &'static str,
    severity: Severity,
    /// Yields one column: ids of steps, or names. `{shard}` stands for the shard's number,
    /// `{stands}` for the ids of all steps that stand somewhere, as often as they do.
    sql: &'static str,
    /// What it means, after the names of what was found.
    what: &'static str,
    remedy: &'static str,
}

const STANDS: &str = "SELECT id FROM ready UNION ALL SELECT id FROM delayed
    UNION ALL SELECT id FROM blocked UNION ALL SELECT id FROM limited
    UNION ALL SELECT id FROM held UNION ALL SELECT id FROM running UNION ALL SELECT id FROM done";

/// What `tally` must hold, from what it is the sum of.
pub(in crate::store::sqlite) const TALLIED: &str = "
    SELECT EXISTS(SELECT 1 FROM pauses p
                   WHERE (p.band IS NULL OR p.band = r.band) AND (p.key IS NULL OR p.key = r.key)),
           r.band, r.key, r.n, r.head, r.since, r.weight
      FROM (SELECT band, key, count(*) AS n, min(id) AS head, since, weight
              FROM ready GROUP BY band, key) r";

/// What the counters of states must say.
pub(in crate::store::sqlite) const COUNTED: &str = "
    SELECT 'succeeded' AS name, (SELECT count(*) FROM done WHERE state = 0) AS value
    UNION ALL SELECT 'failed', (SELECT count(*) FROM done WHERE state = 1)
    UNION ALL SELECT 'cancelled', (SELECT count(*) FROM done WHERE state = 2)
    UNION ALL SELECT 'delayed', (SELECT count(*) FROM delayed)
    UNION ALL SELECT 'blocked', (SELECT count(*) FROM blocked)
    UNION ALL SELECT 'limited', (SELECT count(*) FROM limited)
    UNION ALL SELECT 'held', (SELECT count(*) FROM held)";

/// Blocked steps that count their open edges wrongly.
pub(in crate::store::sqlite) const MISCOUNTED: &str = "SELECT id FROM blocked
     WHERE missing <> (SELECT count(*) FROM edges WHERE child = blocked.id AND state = 0)
        OR missing = 0";

const REPAIR: &str = "fairq doctor --repair";

const RULES: &[Rule] = &[
    Rule {
        check: "states",
        severity: Severity::Error,
        sql: "SELECT id FROM ({stands}) GROUP BY id HAVING count(*) > 1",
        what: "stand in more than one state: which one is true cannot be told",
        remedy: "restore a backup of this shard",
    },
    Rule {
        check: "states",
        severity: Severity::Error,
        sql: "SELECT id FROM steps EXCEPT SELECT id FROM ({stands})",
        what: "stand in no state and never run",
        remedy: "fairq doctor --repair holds them until they are released",
    },
    Rule {
        check: "states",
        severity: Severity::Error,
        sql: "SELECT r.id FROM ready r JOIN steps s ON s.id = r.id
               WHERE r.band <> s.band OR r.key <> s.key
              UNION SELECT l.id FROM limited l JOIN steps s ON s.id = l.id
               WHERE l.band <> s.band OR l.key <> s.key",
        what: "wait under another band or key than their own",
        remedy: "restore a backup of this shard",
    },
    Rule {
        check: "states",
        severity: Severity::Error,
        sql: "SELECT id FROM steps WHERE env NOT IN (SELECT id FROM envs)",
        what: "have lost their environment and cannot run",
        remedy: "restore a backup of this shard",
    },
    Rule {
        check: "leftovers",
        severity: Severity::Warning,
        sql: "SELECT id FROM (
                SELECT id FROM ({stands}) UNION SELECT id FROM expiring UNION SELECT id FROM tags
                UNION SELECT id FROM attempts UNION SELECT id FROM output
                UNION SELECT child FROM edges UNION SELECT parent FROM children)
              EXCEPT SELECT id FROM steps",
        what: "are not stored any more, but rows of them are",
        remedy: REPAIR,
    },
    Rule {
        check: "tally",
        severity: Severity::Error,
        sql: "SELECT DISTINCT key || ' at band ' || band FROM (
                SELECT * FROM (SELECT paused, band, key, n, head, since, weight FROM tally
                               EXCEPT {tallied})
                UNION ALL
                SELECT * FROM ({tallied} EXCEPT
                               SELECT paused, band, key, n, head, since, weight FROM tally))",
        what: "are summed up wrongly: they get too many turns, or none",
        remedy: REPAIR,
    },
    Rule {
        check: "counters",
        severity: Severity::Error,
        sql: "SELECT is_so.name || ' (says ' || coalesce(c.value, 'nothing') || ', is ' || is_so.value || ')'
                FROM ({counted}) is_so LEFT JOIN counters c ON c.name = is_so.name
               WHERE c.value IS NOT is_so.value",
        what: "are counted wrongly: status and drain are misled",
        remedy: REPAIR,
    },
    Rule {
        check: "counters",
        severity: Severity::Error,
        sql: "SELECT name FROM counters
               WHERE name = 'next_id' AND value <= (SELECT coalesce(max(id), 0) FROM steps)
                  OR name = 'next_place' AND value <= (SELECT coalesce(max(id), 0) FROM places)",
        what: "would give a number away twice",
        remedy: REPAIR,
    },
    Rule {
        check: "edges",
        severity: Severity::Error,
        sql: "{miscounted}",
        what: "miscount what they wait for, and may never be let go",
        remedy: REPAIR,
    },
    Rule {
        check: "edges",
        severity: Severity::Error,
        sql: "SELECT DISTINCT w.id FROM (SELECT id FROM blocked UNION ALL SELECT id FROM held) w
                JOIN edges e ON e.child = w.id
               WHERE e.state = 0 AND e.shard = {shard} AND NOT EXISTS(
                 SELECT 1 FROM children c
                  WHERE c.parent = e.parent AND c.shard = {shard} AND c.child = e.child)",
        what: "wait for a step that does not know of them",
        remedy: "put them in anew, and cancel these",
    },
];

/// Looks at one shard.
pub(super) fn check(shard: &Shard, full: bool, clock: &dyn Clock) -> Found {
    let place = place(shard.id());
    let mut findings = long_log(shard, &place);
    let broken = match shard.read(|connection| broken(connection, full)) {
        Ok(broken) => broken,
        Err(error) => {
            findings.push(Finding::of_error("file", place, &error));
            return Found {
                findings,
                is_readable: false,
            };
        }
    };
    if !broken.is_empty() {
        findings.push(Finding::error(
            "file",
            place,
            format!("is corrupt: {}", some_of(&broken)),
            "stop all runners, then restore a backup of this file",
        ));
        return Found {
            findings,
            is_readable: false,
        };
    }
    let looked = shard.read(|connection| {
        let mut findings = rules(connection, shard, &place)?;
        let newest = newest(connection)?;
        // After reading: what is later than this was not written by this clock.
        findings.extend(ahead(newest, clock.now(), &place));
        Ok(findings)
    });
    match looked {
        Ok(found) => findings.extend(found),
        Err(error) => findings.push(Finding::of_error("tables", place, &error)),
    }
    Found {
        findings,
        is_readable: true,
    }
}

/// Returns what SQLite finds wrong with the file.
fn broken(connection: &Connection, full: bool) -> rusqlite::Result<Vec<String>> {
    let check = if full {
        "integrity_check"
    } else {
        "quick_check"
    };
    let mut said = connection.prepare(&format!("PRAGMA {check}(20)"))?;
    let lines = said
        .query_map([], |row| row.get::<_, String>(0))?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(lines.into_iter().filter(|line| line != "ok").collect())
}

fn rules(connection: &Connection, shard: &Shard, place: &str) -> rusqlite::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for rule in RULES {
        let sql = rule
            .sql
            .replace("{stands}", STANDS)
            .replace("{tallied}", TALLIED)
            .replace("{counted}", COUNTED)
            .replace("{miscounted}", MISCOUNTED)
            .replace("{shard}", &shard.id().to_string());
        let names = connection
            .prepare(&sql)?
            .query_map([], |row| {
                Ok(match row.get_ref(0)? {
                    ValueRef::Integer(id) => StepId::new(shard.id(), LocalId::new(id)).to_string(),
                    ValueRef::Text(name) => String::from_utf8_lossy(name).into_owned(),
                    ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => {
                        return Err(rusqlite::Error::InvalidQuery);
                    }
                })
            })?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        if !names.is_empty() {
            findings.push(Finding {
                severity: rule.severity,
                check: rule.check,
                place: place.to_owned(),
                what: format!("{} {}", some_of(&names), rule.what),
                remedy: rule.remedy.to_owned(),
            });
        }
    }
    Ok(findings)
}

/// Returns the latest instant at which something happened, as it is recorded.
fn newest(connection: &Connection) -> rusqlite::Result<Option<Timestamp>> {
    connection.query_row(
        "SELECT max(at) FROM (
           SELECT max(created) AS at FROM steps UNION ALL SELECT max(ended) FROM done
           UNION ALL SELECT max(ended) FROM attempts UNION ALL SELECT max(claimed) FROM running)",
        [],
        |row| Ok(row.get::<_, Option<i64>>(0)?.map(Timestamp::from_millis)),
    )
}

fn ahead(newest: Option<Timestamp>, now: Timestamp, place: &str) -> Option<Finding> {
    let newest = newest.filter(|newest| *newest > now)?;
    Some(Finding::warning(
        "clock",
        place,
        format!("has a record of {newest}, but it is {now}: the clock was set back"),
        "check the clock; delays and ages are off until it has caught up",
    ))
}

fn long_log(shard: &Shard, place: &str) -> Vec<Finding> {
    let Some(length) = super::files::log_length(shard.path()).filter(|length| *length > LONG_LOG)
    else {
        return Vec::new();
    };
    vec![Finding::warning(
        "log",
        place,
        format!(
            "has a write-ahead log of {} MiB: somebody reads for long, or nobody folds it back",
            length >> 20
        ),
        REPAIR,
    )]
}

/// Returns whether a shard's log is so long that it is to be folded back.
pub(in crate::store::sqlite) fn is_log_long(shard: &Shard) -> bool {
    super::files::log_length(shard.path()).is_some_and(|length| length > LONG_LOG)
}
