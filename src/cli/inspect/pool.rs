//! `fairq inspect pool`: the reading connections of live runners.

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

/// Show the reading connections of the live runners
///
/// For each shard how many connections may be lent at once, how many are, and how long others had to
/// wait for one. Exits with 3 if no runner is alive.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq inspect pool
  fairq inspect pool --json | jq '.runners[].shards[].waits'")]
pub(super) struct PoolArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct PoolsJson {
    runners: Vec<RunnerPools>,
}

#[derive(Serialize)]
struct RunnerPools {
    runner: RunnerId,
    pid: Option<u32>,
    shards: Value,
}

pub(super) fn run(args: &PoolArgs, context: &mut Context) -> Result<Done> {
    let answered = ask_all(context, &Question::Pool)?;
    if args.json {
        let runners = answered.into_iter().map(|one| RunnerPools {
            runner: one.runner,
            pid: one.pid(),
            shards: one.answer,
        });
        context.screen.json(&PoolsJson {
            runners: runners.collect(),
        })?;
    } else {
        context.screen.table(&table(&answered))?;
    }
    Ok(Done::Well)
}

pub(super) fn table(answered: &[Answered]) -> Table {
    let mut table = Table::new([
        Column::words("RUNNER"),
        Column::words("SHARD"),
        Column::numbers("CAPACITY"),
        Column::numbers("OPEN"),
        Column::numbers("LENT"),
        Column::words(""),
        Column::numbers("WAITING"),
        Column::numbers("WAITS"),
        Column::numbers("WAITED"),
        Column::numbers("MADE"),
        Column::numbers("FAILED"),
    ]);
    for one in answered {
        for pool in one.answer.as_array().into_iter().flatten() {
            table.row([
                Cell::new(one.runner.to_string()),
                Cell::new(told(&pool["shard"])),
                Cell::new(told(&pool["capacity"])),
                Cell::new(told(&pool["open"])),
                Cell::new(told(&pool["lent"])),
                Cell::new(number::bar(share(&pool["lent"], &pool["capacity"]), 8)),
                Cell::new(told(&pool["waiting"])),
                Cell::new(told(&pool["waits"])),
                Cell::new(number::micros(pool["wait_micros"].as_u64().unwrap_or(0))),
                Cell::new(told(&pool["made"])),
                Cell::new(told(&pool["failed"])),
            ]);
        }
    }
    table
}
