//! `fairq inspect cache`: what live runners hold ready.

use clap::Args;
use serde::Serialize;

use crate::cli::render::table::Column;
use crate::cli::render::{Cell, Table, number};
use crate::cli::{Context, Done};
use crate::error::{Error, ErrorKind, Result};
use crate::presence;
use crate::presence::control::{Question, ask};
use crate::store::sqlite::runners_dir;

/// Show what the live runners hold ready
///
/// Asks each of them. Exits with 3 if there is none.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq inspect cache
  fairq inspect cache --json | jq '.runners[].cache.counters'")]
pub(super) struct CacheArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct CachesJson {
    runners: Vec<RunnerCache>,
}

#[derive(Serialize)]
struct RunnerCache {
    runner: crate::model::RunnerId,
    pid: Option<u32>,
    cache: serde_json::Value,
    crew: serde_json::Value,
}

pub(super) fn run(args: &CacheArgs, context: &mut Context) -> Result<Done> {
    let runners = runners_dir(&context.settings.store);
    let mut caches = Vec::new();
    for (runner, card) in presence::alive(&runners)? {
        caches.push(RunnerCache {
            runner,
            pid: card.map(|card| card.pid),
            cache: ask(&runners, runner, &Question::Cache)?,
            crew: ask(&runners, runner, &Question::Crew)?,
        });
    }
    if caches.is_empty() {
        return Err(Error::new(
            ErrorKind::NotFound,
            "no runner is alive, so there is no cache",
        )
        .hint("start one with fairq run; fairq inspect plan works without"));
    }
    if args.json {
        context.screen.json(&CachesJson { runners: caches })?;
        return Ok(Done::Well);
    }
    for cache in &caches {
        print(context, cache)?;
    }
    Ok(Done::Well)
}

fn print(context: &mut Context, of: &RunnerCache) -> Result<()> {
    let cache = &of.cache;
    let told = |value: &serde_json::Value| match value.as_str() {
        Some(text) => text.to_owned(),
        None if value.is_null() => String::new(),
        None => value.to_string(),
    };
    context.screen.line(&format!(
        "runner {} pid {}: capacity {}, holds {}, {} workers asleep, {} steps running",
        of.runner,
        of.pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string()),
        told(&cache["capacity"]),
        told(&cache["total"]),
        told(&cache["parked"]),
        of.crew["running"].as_array().map_or(0, Vec::len),
    ))?;
    let mut table = Table::new([
        Column::words("SHARD"),
        Column::numbers("FLOOR"),
        Column::numbers("DEPTH"),
        Column::numbers("OFFERED"),
        Column::numbers("LAST FILL"),
        Column::numbers("LOW WATER"),
        Column::numbers("HEAD TURN"),
        Column::text("FIRST"),
    ]);
    for partition in cache["partitions"].as_array().into_iter().flatten() {
        let first: Vec<String> = partition["first"]
            .as_array()
            .into_iter()
            .flatten()
            .map(told)
            .collect();
        let turn = partition["head_turn"]
            .as_f64()
            .map(|turn| format!("{turn:.3}"));
        table.row([
            Cell::new(told(&partition["shard"])),
            Cell::new(told(&partition["floor"])),
            Cell::new(told(&partition["depth"])),
            Cell::new(told(&partition["offered"])),
            Cell::new(told(&partition["last_fill"])),
            Cell::new(told(&partition["low_water"])),
            Cell::new(turn.unwrap_or_default()),
            Cell::new(first.join(" ")),
        ]);
    }
    context.screen.table(&table)?;
    let counter = |name: &str| cache["counters"][name].as_u64().unwrap_or(0);
    let (selected, discarded) = (counter("selected"), counter("discarded"));
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    let waste = discarded as f64 / selected.max(1) as f64;
    context.screen.line(&format!(
        "since the start: {} refills selected {} and discarded {} ({}), {} taken, {} claims lost",
        number::count(counter("refills")),
        number::count(selected),
        number::count(discarded),
        number::percent(waste),
        number::count(counter("pops")),
        number::count(of.crew["claims_lost"].as_u64().unwrap_or(0)),
    ))
}
