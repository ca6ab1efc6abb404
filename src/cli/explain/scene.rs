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
use crate::store::{ShardCounts, StepView, Store};
use crate::tally::{ShardTally, TallyBoard};

/// Steps before one of its key are counted up to here.
pub(super) const MOST_AHEAD: u32 = 10_000;

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

/// Everything that has a say in when a waiting step runs.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) now: Timestamp,
    pub(super) rivals: Vec<Rival>,
    /// Only of a step that is due.
    pub(super) place: Option<Place>,
    pub(super) runners: Vec<Live>,
    /// The shards that could not be read, and why.
    pub(super) unreadable: Vec<(ShardId, String)>,
}

impl Scene {
    /// Looks around a step that has not run.
    pub(super) fn around(
        step: &StepView,
        store: &dyn Store,
        runners: &Path,
        now: Timestamp,
    ) -> Result<Self> {
        let mut scene = Self {
            now,
            rivals: Vec::new(),
            place: None,
            runners: live(runners)?,
            unreadable: Vec::new(),
        };
        let mut rivals: BTreeMap<Band, Vec<(ShardId, u64)>> = BTreeMap::new();
        let mut board = TallyBoard::default();
        for shard in ShardId::first(store.shard_count()) {
            let looked = store
                .counts(shard)
                .and_then(|counts| Ok((counts, store.tally_at(shard, step.band)?)));
            match looked {
                Ok((counts, tallies)) => {
                    better_than(step.band, &counts)
                        .for_each(|(band, due)| rivals.entry(band).or_default().push((shard, due)));
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
        Ok(scene)
    }
}

fn better_than(band: Band, counts: &ShardCounts) -> impl Iterator<Item = (Band, u64)> {
    let better = counts.ready.range(..band);
    better
        .filter(|(_, due)| **due > 0)
        .map(|(band, due)| (*band, *due))
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
