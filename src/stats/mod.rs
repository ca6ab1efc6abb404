//! What the record of tries says: how much, how long, and whether it was fair.
//!
//! Everything here is computed from values that were read before; nothing reads a clock or a store.

mod fairness;
mod summary;

pub use fairness::{KeyShare, fairness};
pub use summary::{Busiest, Counts, Group, Quantiles, Summary};

use serde::Serialize;

use crate::model::{Band, Ending, FairnessKey, StepId, Timestamp, Weight};

/// One try of a step, running or over, as far as statistics want to know it.
#[derive(Clone, Debug, PartialEq)]
pub struct Dispatch {
    /// Which step.
    pub id: StepId,
    /// The step's band.
    pub band: Band,
    /// The step's key.
    pub key: FairnessKey,
    /// The step's weight.
    pub weight: Weight,
    /// Since when the step had been due.
    pub since: Timestamp,
    /// When it was claimed.
    pub claimed: Timestamp,
    /// When its process was started; `None` if there never was one, or it still runs.
    pub started: Option<Timestamp>,
    /// When it ended; `None` if it still runs.
    pub ended: Option<Timestamp>,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It still runs.
    Running,
    /// It exited with 0.
    Succeeded,
    /// It exited otherwise, a signal ended it, or it could not be started.
    Failed,
    /// It was stopped for reasons of ours, and put back.
    Interrupted,
    /// Its runner died.
    Lost,
}

impl Outcome {
    /// Returns what an ending amounts to.
    pub const fn of(ending: &Ending) -> Self {
        match ending {
            Ending::Exited { code: 0 } => Self::Succeeded,
            Ending::Exited { .. }
            | Ending::Signalled { .. }
            | Ending::Unstarted { .. }
            | Ending::TimedOut { .. }
            | Ending::Cancelled
            | Ending::Skipped { .. }
            | Ending::Expired => Self::Failed,
            Ending::Interrupted => Self::Interrupted,
            Ending::Lost => Self::Lost,
        }
    }
}

/// A key that has due steps now, on one shard at one band: its oldest one stands for all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// The band.
    pub band: Band,
    /// The key.
    pub key: FairnessKey,
    /// The weight of its oldest due step.
    pub weight: Weight,
    /// Since when that one has been due.
    pub since: Timestamp,
}

/// Which tries to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// Those that were claimed at or after an instant.
    Since(Timestamp),
    /// So many, the latest by the time of their claims.
    Last(usize),
}

/// Sorts tries by the time of their claims, and lets a step that was put back wait only from then
/// on: while it ran, it did not.
pub fn in_order(dispatches: &mut [Dispatch]) {
    dispatches.sort_by_key(|one| (one.id, one.claimed));
    for at in 1..dispatches.len() {
        let before = &dispatches[at - 1];
        if before.id == dispatches[at].id {
            let ended = before.ended.unwrap_or(before.claimed);
            let one = &mut dispatches[at];
            one.since = one.since.max(ended).min(one.claimed);
        }
    }
    dispatches.sort_by_key(|one| (one.claimed, one.since, one.id));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn one(id: &str, since: i64, claimed: i64, ended: i64) -> Dispatch {
        Dispatch {
            id: id.parse().unwrap(),
            band: Band::DEFAULT,
            key: "k".parse().unwrap(),
            weight: Weight::ONE,
            since: at(since),
            claimed: at(claimed),
            started: Some(at(claimed)),
            ended: Some(at(ended)),
            outcome: Outcome::Succeeded,
        }
    }

    #[test]
    fn a_step_that_was_put_back_waits_from_then_on() {
        let mut tries = [
            one("a1", 0, 60, 70),
            one("a2", 5, 20, 30),
            one("a1", 0, 10, 50),
        ];
        in_order(&mut tries);
        assert_eq!(
            tries,
            [
                one("a1", 0, 10, 50),
                one("a2", 5, 20, 30),
                one("a1", 50, 60, 70)
            ]
        );
    }
}
