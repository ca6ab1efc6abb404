//! `fairq inspect cache`: what live runners hold ready.

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::live::{Answered, ask_all, share, told};
use crate::cli::render::table::Column;
use crate::cli::render::{Cell, Table, number};
use crate::cli::{Context, Done};
use crate::error::Result;
use crate::model::RunnerId;
use crate::presence::control::Question;

/// Show what the live runners hold ready
///
/// Asks each of them: what each shard's partition holds and how the counters stand since the start.
/// Exits with 3 if no runner is alive.
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
struct CachesJson<'c> {
    runners: Vec<RunnerCache<'c>>,
}

#[derive(Serialize)]
struct RunnerCache<'c> {
    runner: RunnerId,
    pid: Option<u32>,
    cache: &'c Value,
    /// The part of what refills selected that they threw away again.
    waste: f64,
    crew: &'c Value,
}

pub(super) fn run(args: &CacheArgs, context: &mut Context) -> Result<Done> {
    let caches = ask_all(context, &Question::Cache)?;
    let crews = ask_all(context, &Question::Runner)?;
    // A runner that left in between has no say in either list.
    let both: Vec<(&Answered, &Value)> = caches
        .iter()
        .filter_map(|one| {
            let crew = crews.iter().find(|other| other.runner == one.runner)?;
            Some((one, &crew.answer["crew"]))
        })
        .collect();
    if args.json {
        let runners = both.iter().map(|(one, crew)| RunnerCache {
            runner: one.runner,
            pid: one.pid(),
            cache: &one.answer,
            waste: waste(&one.answer["counters"]),
            crew,
        });
        context.screen.json(&CachesJson {
            runners: runners.collect(),
        })?;
        return Ok(Done::Well);
    }
    for (place, (one, crew)) in both.iter().enumerate() {
        if place > 0 {
            context.screen.line("")?;
        }
        print(context, one, crew)?;
    }
    Ok(Done::Well)
}

fn waste(counters: &Value) -> f64 {
    share(&counters["discarded"], &counters["selected"])
}

pub(super) fn print(context: &mut Context, of: &Answered, crew: &Value) -> Result<()> {
    let cache = &of.answer;
    let running = crew["running"].as_array().map_or(0, Vec::len);
    context.screen.line(&format!(
        "{}: capacity {}, holds {}, {} workers asleep, {} retiring, {running} steps running{}",
        of.name(),
        told(&cache["capacity"]),
        told(&cache["total"]),
        told(&cache["parked"]),
        told(&cache["retiring"]),
        if cache["closed"] == true {
            ", closed"
        } else {
            ""
        },
    ))?;
    context.screen.line("")?;
    context.screen.table(&partitions(cache))?;
    context.screen.line("")?;
    context.screen.table(&counters(cache, crew))
}

fn partitions(cache: &Value) -> Table {
    let mut table = Table::new([
        Column::words("SHARD"),
        Column::numbers("FLOOR"),
        Column::numbers("DEPTH"),
        Column::words(""),
        Column::numbers("PLANNED"),
        Column::numbers("OFFERED"),
        Column::numbers("LAST FILL"),
        Column::numbers("LOW WATER"),
        Column::numbers("HEAD TURN"),
        Column::numbers("TAKEN"),
        Column::text("FIRST"),
    ]);
    for partition in cache["partitions"].as_array().into_iter().flatten() {
        let first = partition["first"].as_array().into_iter().flatten();
        let first: Vec<String> = first.map(told).collect();
        let turn = partition["head_turn"].as_f64();
        table.row([
            Cell::new(told(&partition["shard"])),
            Cell::new(told(&partition["floor"])),
            Cell::new(told(&partition["depth"])),
            Cell::new(number::bar(
                share(&partition["depth"], &cache["capacity"]),
                8,
            )),
            Cell::new(told(&partition["planned"])),
            Cell::new(told(&partition["offered"])),
            Cell::new(told(&partition["last_fill"])),
            Cell::new(told(&partition["low_water"])),
            Cell::new(turn.map(|turn| format!("{turn:.3}")).unwrap_or_default()),
            Cell::new(told(&partition["taken"])),
            Cell::new(first.join(" ")),
        ]);
    }
    table
}

/// Everything counted since the start, a line each.
fn counters(cache: &Value, crew: &Value) -> Table {
    let counters = &cache["counters"];
    let mut table = Table::new([
        Column::words("SINCE THE START"),
        Column::numbers("COUNT"),
        Column::text(""),
    ]);
    let rows = [
        ("refills", "refills", "times a partition was replaced"),
        ("selected", "selected", "candidates that refills put in"),
        ("kept", "kept", "of them selected again by the next refill"),
        ("discarded", "discarded", "of them thrown away again"),
        (
            "duplicates",
            "duplicates",
            "left out, as a worker held them already",
        ),
        ("trimmed", "trimmed", "cut off by a smaller capacity"),
        (
            "offers_admitted",
            "offers admitted",
            "steps put in without a plan",
        ),
        (
            "offers_worse_band",
            "offers declined",
            "as a better band was served",
        ),
        ("offers_full", "offers declined", "as the cache was full"),
        (
            "offers_closed",
            "offers declined",
            "as the cache was closed",
        ),
        ("pops", "taken", "candidates that workers took"),
        (
            "failed_try_pops",
            "taken in vain",
            "tries to take that found nothing",
        ),
        (
            "refill_signals",
            "low water",
            "takes that asked for a refill",
        ),
        ("wakes", "wakes", "sleepers that were woken"),
    ];
    for (field, name, about) in rows {
        let about = if field == "discarded" {
            format!("{about}: {} waste", number::percent(waste(counters)))
        } else {
            about.to_owned()
        };
        let count = told(&counters[field]);
        table.row([name.to_owned(), count, about]);
    }
    let rows = [
        ("claims_won", "claims won", "steps that this runner got"),
        (
            "claims_lost",
            "claims lost",
            "races that another runner won",
        ),
        (
            "claims_failed",
            "claims failed",
            "shards that could not be written",
        ),
    ];
    for (field, name, about) in rows {
        let count = told(&crew[field]);
        table.row([name.to_owned(), count, about.to_owned()]);
    }
    table
}
