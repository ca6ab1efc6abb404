//! What a run says at its end.

use std::time::Duration;

use serde::Serialize;

use crate::cli::Context;
use crate::cli::render::table::Column;
use crate::cli::render::{Cell, Table, number};
use crate::cli::runlog::Voice;
use crate::engine::Engine;
use crate::error::Result;
use crate::model::{ShardId, Span, StepState};
use crate::store::Store;

/// Says what a drained store still holds, for it looks empty and is not.
pub(super) fn tell_left(context: &mut Context, store: &dyn Store) {
    let mut left = std::collections::BTreeMap::new();
    for shard in ShardId::first(store.shard_count()) {
        // One that cannot be read has said so while it was served.
        let counts = store.counts(shard).unwrap_or_default();
        let waiting = [
            StepState::Delayed,
            StepState::Blocked,
            StepState::Limited,
            StepState::Held,
        ];
        for state in waiting {
            let count = counts.states.get(&state).copied().unwrap_or(0);
            *left.entry(state.word()).or_insert(0) += count;
        }
        *left.entry("paused").or_insert(0) += counts.paused;
    }
    let parts: Vec<String> = left
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(state, count)| format!("{} {state}", number::count(count)))
        .collect();
    if !parts.is_empty() {
        context
            .screen
            .talk(&format!("left in the store: {}", parts.join(", ")));
    }
}

/// What a run has done.
#[derive(Serialize)]
struct Summary {
    event: &'static str,
    succeeded: u64,
    failed: u64,
    put_back: u64,
    seconds: f64,
    steps_per_second: f64,
    wait_ms: Quantiles,
    run_ms: Quantiles,
    keys: Vec<KeyShare>,
}

#[derive(Serialize)]
struct Quantiles {
    p50: Option<u64>,
    p99: Option<u64>,
}

#[derive(Serialize)]
struct KeyShare {
    band: crate::model::Band,
    key: crate::model::FairnessKey,
    steps: u64,
    share: f64,
}

/// Prints what the run has done.
pub(super) fn summarise(
    voice: Voice,
    context: &mut Context,
    engine: &Engine,
    ran_for: Duration,
) -> Result<()> {
    let tally = engine.tally();
    let all: u64 = tally.claimed.values().sum();
    let seconds = ran_for.as_secs_f64();
    let quantiles = |of: &crate::model::Durations| Quantiles {
        p50: of.quantile(0.5),
        p99: of.quantile(0.99),
    };
    #[expect(clippy::cast_precision_loss, reason = "rates and shares for people")]
    let summary = Summary {
        event: "summary",
        succeeded: tally.succeeded,
        failed: tally.failed,
        put_back: tally.put_back,
        seconds,
        steps_per_second: (tally.succeeded + tally.failed) as f64 / seconds.max(1e-6),
        wait_ms: quantiles(&tally.waited),
        run_ms: quantiles(&tally.ran),
        keys: tally
            .claimed
            .iter()
            .map(|((band, key), steps)| KeyShare {
                band: *band,
                key: key.clone(),
                steps: *steps,
                share: *steps as f64 / all.max(1) as f64,
            })
            .collect(),
    };
    if voice == Voice::Json {
        return context.screen.json_line(&summary);
    }
    if voice == Voice::Quiet {
        return Ok(());
    }
    let told = |millis: Option<u64>| {
        millis.map_or_else(
            || "-".to_owned(),
            |millis| Span::from_millis(millis).to_string(),
        )
    };
    context.screen.talk(&format!(
        "{} succeeded, {} failed{} in {}, {}; waited {} (p99 {}), ran {} (p99 {})",
        number::count(summary.succeeded),
        number::count(summary.failed),
        if summary.put_back > 0 {
            format!(", {} put back", number::count(summary.put_back))
        } else {
            String::new()
        },
        Span::from(ran_for),
        number::rate(summary.steps_per_second),
        told(summary.wait_ms.p50),
        told(summary.wait_ms.p99),
        told(summary.run_ms.p50),
        told(summary.run_ms.p99),
    ));
    if summary.keys.len() > 1 && context.screen.is_terminal() {
        let mut table = Table::new([
            Column::numbers("BAND"),
            Column::words("KEY"),
            Column::numbers("STEPS"),
            Column::numbers("SHARE"),
            Column::words(""),
        ]);
        for key in &summary.keys {
            table.row([
                Cell::new(key.band.to_string()),
                Cell::new(key.key.as_str()),
                Cell::new(number::count(key.steps)),
                Cell::new(number::percent(key.share)),
                Cell::new(number::bar(key.share, 20)),
            ]);
        }
        context.screen.table(&table)?;
    }
    Ok(())
}
