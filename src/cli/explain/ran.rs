//! What became of a step that was claimed: when it was due, planned, claimed, started, ended.

use std::path::Path;

use serde::Serialize;

use crate::decisions::{self, Pick, Record, Slot};
use crate::error::Result;
use crate::model::{Band, Ending, FairnessKey, RunnerId, ShardId, StepId, StepState, Timestamp};
use crate::store::{Attempt, StepView};

/// One try, over or not.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Try {
    pub(super) fence: u32,
    pub(super) runner: RunnerId,
    /// Which worker and process; of a running step only its runner knows.
    pub(super) worker: Option<u32>,
    pub(super) pid: Option<u32>,
    #[serde(serialize_with = "written")]
    pub(super) due_since: Timestamp,
    /// The first push whose slots name it: there the runner had seen it and planned it.
    pub(super) planned: Option<Planned>,
    /// The last push before the claim that names it: from there it was taken.
    pub(super) taken_from: Option<Planned>,
    /// The oldest record that the runner's log still has.
    #[serde(serialize_with = "perhaps_written")]
    pub(super) log_from: Option<Timestamp>,
    #[serde(serialize_with = "written")]
    pub(super) claimed: Timestamp,
    #[serde(serialize_with = "perhaps_written")]
    pub(super) started: Option<Timestamp>,
    #[serde(serialize_with = "perhaps_written")]
    pub(super) ended: Option<Timestamp>,
    pub(super) ending: Option<Ending>,
    pub(super) waited_ms: u64,
}

/// A step's place in what a runner pushed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Planned {
    #[serde(serialize_with = "written")]
    pub(super) at: Timestamp,
    pub(super) runner: RunnerId,
    pub(super) shard: ShardId,
    pub(super) cycle: u64,
    pub(super) band: Band,
    pub(super) pick: Pick,
    pub(super) seed: Option<u64>,
    pub(super) capacity: usize,
    /// From 1.
    pub(super) place: usize,
    pub(super) of: usize,
    pub(super) turn: f64,
    /// What stood before it on its shard, first to last.
    pub(super) ahead: Vec<Ahead>,
}

/// A step that stood before another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Ahead {
    pub(super) id: StepId,
    pub(super) key: FairnessKey,
    pub(super) turn: f64,
}

fn written<S: serde::Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(at)
}

#[expect(clippy::ref_option, reason = "serde passes a reference")]
fn perhaps_written<S: serde::Serializer>(
    at: &Option<Timestamp>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => serializer.collect_str(at),
        None => serializer.serialize_none(),
    }
}

impl Planned {
    fn of(id: StepId, runner: RunnerId, record: &Record) -> Option<Self> {
        let place = record.place(id)?;
        let ahead = |Slot(key, turn, id): &Slot| Ahead {
            id: *id,
            key: key.clone(),
            turn: *turn,
        };
        Some(Self {
            at: record.at,
            runner,
            shard: record.shard,
            cycle: record.cycle,
            band: record.band,
            pick: record.pick,
            seed: record.seed,
            capacity: record.capacity,
            place: place + 1,
            of: record.slots.len(),
            turn: record.slots[place].1,
            ahead: record.slots[..place].iter().map(ahead).collect(),
        })
    }
}

/// Returns all tries of a step, first to last, each with what its runner's log still tells.
pub(super) fn tries(step: &StepView, attempts: &[Attempt], dir: &Path) -> Result<Vec<Try>> {
    let over = attempts.iter().map(|attempt| Try {
        fence: attempt.fence,
        runner: attempt.runner,
        // A step that was lost with its runner had a worker that nobody knows any more.
        worker: (attempt.ending != Ending::Lost).then_some(attempt.worker),
        pid: None,
        due_since: attempt.since,
        planned: None,
        taken_from: None,
        log_from: None,
        claimed: attempt.claimed,
        started: attempt.started,
        ended: Some(attempt.ended),
        ending: Some(attempt.ending.clone()),
        waited_ms: attempt.claimed.since(attempt.since).millis(),
    });
    let running = step.runner.filter(|_| step.state == StepState::Running);
    let running = running.map(|runner| {
        let since = step.since.unwrap_or(step.created);
        Try {
            fence: step.fence,
            runner,
            worker: None,
            pid: None,
            due_since: since,
            planned: None,
            taken_from: None,
            log_from: None,
            claimed: step.at,
            started: None,
            ended: None,
            ending: None,
            waited_ms: step.at.since(since).millis(),
        }
    });
    let mut tries: Vec<Try> = over.chain(running).collect();
    let mut after = None;
    for one in &mut tries {
        let known = decisions::read(dir, one.runner, &[step.id])?;
        let of_this = |record: &&Record| {
            record.at <= one.claimed && after.is_none_or(|after| record.at >= after)
        };
        let records: Vec<&Record> = known.records.iter().filter(of_this).collect();
        let planned = |record: &&Record| Planned::of(step.id, one.runner, record);
        one.planned = records.first().and_then(planned);
        one.taken_from = records.last().and_then(planned);
        one.log_from = known.from;
        after = one.ended;
    }
    Ok(tries)
}

/// Returns the last push by a runner, not after this time, that names the step.
pub(super) fn planned_until(
    dir: &Path,
    runner: RunnerId,
    id: StepId,
    until: Timestamp,
) -> Result<Option<Planned>> {
    let known = decisions::read(dir, runner, &[id])?;
    let mut records = known.records.iter().rev();
    Ok(records
        .find(|record| record.at <= until)
        .and_then(|record| Planned::of(id, runner, record)))
}
