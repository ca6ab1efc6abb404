//! What there is around a step: the shards, its band, its key, the runners.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::model::{Band, FairnessKey, RunnerId, ShardId, StepId, StepState, Timestamp, Weight};
use crate::planner::Merged;
use crate::presence;
use crate::presence::control::{Question, ask};
use crate::store::{Filter, LimitView, Link, Order, Paused, ShardCounts, StepView, Store};
use crate::tally::{ShardTally, TallyBoard};

/// Steps before one of its key are counted up to here.
pub(super) const MOST_AHEAD: u32 = 10_000;
/// Steps that wait for limits are looked at up to here.
const MOST_LIMITED: usize = 10_000;

/// Due steps of one band better than the step's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Rival {
    pub(super) band: Band,
    pub(super) due: u64,
    /// How many of them each shard has.
    pub(super) shards: Vec<(ShardId, u64)>,
}

/// Where a due step stands within its key, and its key within the band.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Place {
    /// How many due steps of its key come before it on its shard, counted up to `counted_to`.
    pub(super) ahead: u32,
    pub(super) counted_to: u32,
    /// How many due steps its key has on its shard, and on all.
    pub(super) on_shard: u64,
    pub(super) in_all: u64,
    /// The weight that counts for its key, and the shard whose oldest step has it.
    pub(super) weight: Weight,
    pub(super) oldest_on: ShardId,
    /// The part of the band's starts that its key should have, from 0 to 1.
    pub(super) share: f64,
    /// How many keys have due steps in the band, its own with them, and their weights together.
    pub(super) keys: usize,
    pub(super) weights: f64,
}

/// A live runner, and what it says of itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Live {
    pub(super) runner: RunnerId,
    pub(super) pid: Option<u32>,
    /// What its crew does; `None` with the reason in `error` if it did not answer.
    pub(super) crew: Option<Crew>,
    pub(super) error: Option<String>,
    /// The shards that take no part in its plans.
    pub(super) withdrawn: Vec<ShardId>,
}

/// What a runner's crew says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Crew {
    pub(super) workers: usize,
    pub(super) draining: bool,
    pub(super) running: Vec<Busy>,
}

/// A busy worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Busy {
    pub(super) worker: u32,
    pub(super) id: StepId,
    pub(super) band: Band,
    pub(super) key: FairnessKey,
    /// In milliseconds since 1970.
    pub(super) claimed: Timestamp,
    pub(super) pid: Option<u32>,
}

/// Who is given places of a limit before a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Queue {
    /// How many of better bands, and of the step's key in its own.
    pub(super) before: BTreeMap<Band, u64>,
    /// Whether not all that wait were counted.
    pub(super) cut: bool,
}

/// Everything that has a say in when a waiting step runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Scene {
    pub(super) now: Timestamp,
    pub(super) rivals: Vec<Rival>,
    /// Only of a step that is due.
    pub(super) place: Option<Place>,
    pub(super) runners: Vec<Live>,
    /// The shards that could not be read, and why.
    pub(super) unreadable: Vec<(ShardId, String)>,
    /// What it waits for, or has waited for.
    pub(super) parents: Vec<Link>,
    /// The pauses that cover it.
    pub(super) pauses: Vec<Paused>,
    /// The limits that it names, and who waits for each before it; of a limited step.
    pub(super) limits: Vec<(LimitView, Queue)>,
}

impl Scene {
    /// Looks around a step that has not run.
    pub(super) fn around(
        step: &StepView,
        store: &dyn Store,
        runners: &Path,
        now: Timestamp,
    ) -> Result<Self> {
        // What cannot be read of these is on a shard that is named as unreadable below.
        let all_pauses = store.pauses().unwrap_or_default();
        let starts =
            |band, key: &FairnessKey| !all_pauses.iter().any(|it| it.what.covers(band, key));
        let own = all_pauses.iter();
        let own = own.filter(|it| it.what.covers(step.band, &step.key));
        let mut scene = Self {
            now,
            runners: live(runners)?,
            parents: store.parents(step.id).unwrap_or_default(),
            pauses: own.cloned().collect(),
            ..Self::default()
        };
        let mut rivals: BTreeMap<Band, Vec<(ShardId, u64)>> = BTreeMap::new();
        let mut board = TallyBoard::default();
        for shard in ShardId::first(store.shard_count()) {
            let looked = store.counts(shard).and_then(|counts| {
                let better = better_than(step.band, &counts);
                let better = if all_pauses.is_empty() {
                    better
                } else {
                    not_paused(store, shard, &better, &starts)?
                };
                Ok((better, store.tally_at(shard, step.band)?))
            });
            match looked {
                Ok((better, mut tallies)) => {
                    better
                        .into_iter()
                        .for_each(|(band, due)| rivals.entry(band).or_default().push((shard, due)));
                    tallies.retain(|tally| starts(step.band, &tally.key));
                    board.report(shard, Arc::new(ShardTally::new(step.band, tallies)), now);
                }
                Err(error) => scene.unreadable.push((shard, error.to_string())),
            }
        }
        let rival = |(band, shards): (Band, Vec<(ShardId, u64)>)| Rival {
            band,
            due: shards.iter().map(|(_, due)| due).sum(),
            shards,
        };
        scene.rivals = rivals.into_iter().map(rival).collect();
        if step.state == StepState::Ready {
            let ahead = store.ahead(step.id, step.band, &step.key, MOST_AHEAD)?;
            // By the planner's own code, so that what is said of shares is what is planned by.
            scene.place = place(step, &Merged::of(&board), ahead);
        }
        if step.state == StepState::Limited {
            scene.limits = limits(step, store)?;
        }
        Ok(scene)
    }
}

/// Returns which better bands have due steps on a shard, paused ones included, and how many.
fn better_than(band: Band, counts: &ShardCounts) -> Vec<(Band, u64)> {
    let better = counts.ready.range(..band);
    better
        .filter(|(_, due)| **due > 0)
        .map(|(band, due)| (*band, *due))
        .collect()
}

/// Returns the same without steps that a pause keeps from starting: they are in nobody's way.
fn not_paused(
    store: &dyn Store,
    shard: ShardId,
    bands: &[(Band, u64)],
    starts: &impl Fn(Band, &FairnessKey) -> bool,
) -> Result<Vec<(Band, u64)>> {
    let mut left = Vec::new();
    for (band, _) in bands {
        let tallies = store.tally_at(shard, *band)?;
        let due = tallies.iter().filter(|tally| starts(*band, &tally.key));
        let due: u64 = due.map(|tally| u64::from(tally.count)).sum();
        if due > 0 {
            left.push((*band, due));
        }
    }
    Ok(left)
}

/// Returns the limits that a step names, with those that wait for each before it.
fn limits(step: &StepView, store: &dyn Store) -> Result<Vec<(LimitView, Queue)>> {
    let mut limits = store.limits()?;
    limits.retain(|limit| step.policy.limits.contains_key(&limit.name));
    let waiting = store.list(&Filter {
        states: vec![StepState::Limited],
        order: Order::Id,
        limit: Some(MOST_LIMITED),
        ..Filter::default()
    })?;
    let is_before = |other: &StepView| {
        let of_key = other.band == step.band && other.key == step.key;
        other.band < step.band || of_key && (other.at, other.id) < (step.at, step.id)
    };
    let queue = |limit: &LimitView| {
        let mut queue = Queue {
            cut: waiting.len() == MOST_LIMITED,
            ..Queue::default()
        };
        let same = waiting
            .iter()
            .filter(|other| other.policy.limits.contains_key(&limit.name));
        for other in same.filter(|other| is_before(other)) {
            *queue.before.entry(other.band).or_default() += 1;
        }
        queue
    };
    Ok(limits
        .into_iter()
        .map(|limit| {
            let queue = queue(&limit);
            (limit, queue)
        })
        .collect())
}

fn place(step: &StepView, merged: &Merged, ahead: u32) -> Option<Place> {
    let key = merged.keys().iter().find(|key| key.key == step.key)?;
    let held = merged.holders(key);
    let on_shard = held.iter().find(|held| held.shard == step.id.shard)?;
    let weights: f64 = merged.keys().iter().map(|key| key.weight.get()).sum();
    Some(Place {
        ahead,
        counted_to: MOST_AHEAD,
        on_shard: u64::from(on_shard.count),
        in_all: key.count,
        weight: key.weight,
        oldest_on: key.oldest,
        share: key.weight.get() / weights,
        keys: merged.keys().len(),
        weights,
    })
}

/// Asks all live runners.
pub(super) fn live(runners: &Path) -> Result<Vec<Live>> {
    let alive = presence::alive(runners)?.into_iter();
    Ok(alive
        .map(|(runner, card)| {
            let pid = card.map(|card| card.pid);
            match question(runners, runner) {
                Ok((crew, withdrawn)) => Live {
                    runner,
                    pid,
                    crew: Some(crew),
                    error: None,
                    withdrawn,
                },
                Err(error) => Live {
                    runner,
                    pid,
                    crew: None,
                    error: Some(error),
                    withdrawn: Vec::new(),
                },
            }
        })
        .collect())
}

fn question(runners: &Path, runner: RunnerId) -> Result<(Crew, Vec<ShardId>), String> {
    let told = |question| ask(runners, runner, question).map_err(|error| error.to_string());
    let crew = serde_json::from_value(told(&Question::Crew)?);
    // A shard that is not in its plans is one that it has not been able to look at.
    let shards = told(&Question::Runner)?;
    let withdrawn = ShardId::first(ShardId::MAX_SHARDS)
        .zip(shards["shards"].as_array().into_iter().flatten())
        .filter(|(_, shard)| shard["tallied_ms_ago"].is_null())
        .map(|(shard, _)| shard)
        .collect();
    // What a runner answers that is just going away.
    let unsaid = |_| format!("the runner {runner} does not say what it does");
    crew.map(|crew| (crew, withdrawn)).map_err(unsaid)
}
