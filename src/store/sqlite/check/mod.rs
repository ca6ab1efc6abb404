//! Looking a store over: what is not as it must be, and what that means.
//!
//! Each shard is looked at in one snapshot, so that what others write meanwhile is never mistaken for
//! damage; a shard that cannot be read is a finding, and the others are looked at all the same.

mod across;
pub(super) mod files;
pub(super) mod shard;

use std::fmt;

use serde::Serialize;

use super::SqliteStore;
use crate::ambient::Clock;
use crate::error::Error;
use crate::model::ShardId;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Steps may be lost, stuck or counted wrongly.
    Error,
    /// Nothing is lost, but somebody should know.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// Something that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The check that found it: one word, for programs.
    pub check: &'static str,
    /// Where: a shard, a runner, a path.
    pub place: String,
    /// What was found and what it means.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
}

impl Finding {
    /// Makes an error of something.
    pub fn error(
        check: &'static str,
        place: impl Into<String>,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Error,
            check,
            place: place.into(),
            what: what.into(),
            remedy: remedy.into(),
        }
    }

    /// Makes a warning of something.
    pub fn warning(
        check: &'static str,
        place: impl Into<String>,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(check, place, what, remedy)
        }
    }

    /// Makes a finding of what kept a part from being looked at.
    pub fn of_error(check: &'static str, place: impl Into<String>, error: &Error) -> Self {
        Self::error(check, place, error.to_string(), error.hints().join("; "))
    }
}

/// How a store is to be looked over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Compare every index with its table, too: reads everything several times.
    pub full: bool,
    /// Runners live: what is under way between two shards is their business, and left out.
    pub alive: bool,
}

impl SqliteStore {
    /// Looks over every shard, what is between them, and the files beside them; worst first within
    /// each. Costs O(all that is stored). Changes nothing.
    pub fn check(&self, look: Look, clock: &dyn Clock) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut readable = Vec::new();
        for shard in &self.shards {
            let found = shard::check(shard, look.full, clock);
            if found.is_readable {
                readable.push(shard.id());
            }
            findings.extend(found.findings);
        }
        findings.extend(across::check(self, &readable, look.alive));
        findings.extend(files::check(self, &readable));
        findings
    }
}

/// Returns how a shard is called in findings.
fn place(shard: ShardId) -> String {
    format!("shard {shard}")
}

/// Returns the first of many names, and how many more there are.
fn some_of(names: &[String]) -> String {
    const NAMED: usize = 5;
    let first = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}
