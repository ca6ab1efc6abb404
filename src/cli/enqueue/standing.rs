//! `--dry-run`: where a step would stand.

use serde::Serialize;

use super::batch::Batch;
use crate::cli::render::{number, text};
use crate::cli::{Context, Done};
use crate::error::Result;
use crate::model::{Band, FairnessKey, NewStep, ShardId, Timestamp, Weight};
use crate::planner::{Pick, Planner};
use crate::store::placement::Placer;
use crate::store::sqlite::SqliteStore;
use crate::store::{Intake as _, Read as _, Store as _};
use crate::tally::{ShardTally, Tally};

/// Where a step would stand.
#[derive(Serialize)]
struct Standing<'s> {
    shard: ShardId,
    band: Band,
    key: &'s FairnessKey,
    weight: Weight,
    /// How many steps it would be.
    steps: u64,
    /// Due steps in better bands, on all shards.
    due_in_better_bands: u64,
    /// Due steps of the same key in the same band.
    due_of_this_key: u64,
    /// Due steps of the same band.
    due_in_this_band: u64,
    /// The part of the band's slots that the key would have, from 0 to 1.
    expected_share: f64,
}

/// Says where the steps of a batch would stand; stores nothing.
pub(super) fn dry_run(
    json: bool,
    context: &mut Context,
    existing: Option<&SqliteStore>,
    batch: &Batch,
) -> Result<Done> {
    let step = batch.first();
    let standing = match existing {
        Some(store) => standing(store, step, batch.count())?,
        None => Standing {
            shard: Placer::new(context.new_store().placement, context.settings.shards(), 0)
                .peek(&step.key),
            band: step.band,
            key: &step.key,
            weight: step.weight,
            steps: batch.count(),
            due_in_better_bands: 0,
            due_of_this_key: 0,
            due_in_this_band: 0,
            expected_share: 1.0,
        },
    };
    if json {
        context.screen.json(&standing)?;
        return Ok(Done::Well);
    }
    let count = number::count;
    for (name, value) in [
        ("steps", count(standing.steps)),
        (
            "shard",
            format!("{} ({})", standing.shard, standing.shard.letter()),
        ),
        ("band", standing.band.to_string()),
        ("key", text::shown(standing.key.as_str())),
        ("due in better bands", count(standing.due_in_better_bands)),
        (
            "due of this key in this band",
            count(standing.due_of_this_key),
        ),
        ("due in this band", count(standing.due_in_this_band)),
        (
            "expected share of this band",
            number::percent(standing.expected_share),
        ),
    ] {
        context.screen.line(&format!("{name}\t{value}"))?;
    }
    context.screen.talk("nothing was stored");
    Ok(Done::Well)
}

/// Works out where a step would stand, by the planner's own rules.
fn standing<'s>(store: &SqliteStore, step: &'s NewStep, steps: u64) -> Result<Standing<'s>> {
    let mut standing = Standing {
        shard: store.place(&step.key),
        band: step.band,
        key: &step.key,
        weight: step.weight,
        steps,
        due_in_better_bands: 0,
        due_of_this_key: 0,
        due_in_this_band: 0,
        expected_share: 1.0,
    };
    let planner = Planner::new(Pick::Stride, 0);
    for shard in ShardId::first(store.shard_count()) {
        let counts = store.counts(shard)?;
        for (band, count) in &counts.ready {
            if *band < step.band {
                standing.due_in_better_bands += count;
            } else if *band == step.band {
                standing.due_in_this_band += count;
            }
        }
        let mut keys = store.tally_at(shard, step.band)?;
        if let Some(own) = keys.iter().find(|tally| tally.key == step.key) {
            standing.due_of_this_key += u64::from(own.count);
        } else if shard == standing.shard {
            keys.push(Tally {
                key: step.key.clone(),
                count: 1,
                since: Timestamp::from_millis(i64::MAX),
                weight: step.weight,
            });
        }
        planner.tally(
            shard,
            ShardTally::new(step.band, keys),
            Timestamp::default(),
        );
    }
    let merged = planner.decide(0).merged;
    let all: f64 = merged.keys().iter().map(|key| key.weight.get()).sum();
    if let Some(own) = merged.keys().iter().find(|key| key.key == step.key) {
        standing.expected_share = own.weight.get() / all;
    }
    Ok(standing)
}
