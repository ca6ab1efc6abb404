//! Steering: what people do to steps that are stored. A command is a file here; what they share is
//! below and in `answer.rs`.

mod answer;
pub(super) mod cancel;
pub(super) mod clean;
pub(super) mod edit;
pub(super) mod kill;
pub(super) mod limit;
pub(super) mod moves;
pub(super) mod pause;
pub(super) mod workers;

use std::collections::BTreeSet;

use self::answer::Answer;
use super::Context;
use super::render::{number, text};
use crate::error::Result;
use crate::model::{ShardId, StepId, StepState};
use crate::presence::bell;
use crate::store::sqlite::{SqliteStore, runners_dir};
use crate::store::{Action, Release as _, Steer as _, Store as _};

/// So many steps are changed between two signs of life, and before the runners hear of it.
const SLICE: usize = 10_000;

/// Does one thing to all of these steps, and sees to what follows from it. The runners hear of each
/// slice at once. What a crash or an error cuts off the same command does when it is given again.
/// Where a step stands as `wanted` already, that is as good as done.
fn steer(
    context: &mut Context,
    store: &SqliteStore,
    ids: &[StepId],
    action: &Action,
    wanted: Option<StepState>,
) -> Result<Vec<Answer>> {
    let mut answers = Vec::with_capacity(ids.len());
    for slice in ids.chunks(SLICE) {
        let steered = store.steer(slice, action, context.clock.now())?;
        let told = slice.iter().zip(steered);
        answers.extend(told.map(|(id, steered)| Answer::new(*id, steered, wanted)));
        ring(store, &shards_of(slice));
        if ids.len() > SLICE {
            let [done, all] = [answers.len(), ids.len()].map(|count| number::count(count as u64));
            context.screen.progress(&format!("{done} of {all} steps"));
        }
    }
    follow_up(context, store, ids);
    Ok(answers)
}

/// Tells dependents on other shards of what has ended, and gives the places of limits on that have
/// become free, whether or not a runner is there to do so.
fn follow_up(context: &mut Context, store: &SqliteStore, ids: &[StepId]) {
    let now = context.clock.now();
    let mut shards = shards_of(ids);
    // Ids of shards that there are not have been answered already.
    shards.retain(|shard| shard.number() < store.shard_count());
    let told = shards
        .iter()
        .try_for_each(|shard| store.deliver(*shard, now).map(drop))
        .and_then(|()| store.grant(now));
    match told {
        // Whom it lets go may be on any shard.
        Ok(_) => ring_all(store),
        // What was asked for is done, and a runner does the rest at its next heartbeat.
        Err(error) => context.screen.talk(&format!(
            "warning: steps that wait for these have not been told yet: {}",
            text::shown(error.to_string())
        )),
    }
}

fn shards_of(ids: &[StepId]) -> Vec<ShardId> {
    let shards: BTreeSet<ShardId> = ids.iter().map(|id| id.shard).collect();
    shards.into_iter().collect()
}

/// Wakes the runners for these shards.
fn ring(store: &SqliteStore, shards: &[ShardId]) {
    bell::ring(&runners_dir(store.root()), shards);
}

/// Wakes the runners for all shards.
fn ring_all(store: &SqliteStore) {
    let shards: Vec<ShardId> = ShardId::first(store.shard_count()).collect();
    ring(store, &shards);
}
