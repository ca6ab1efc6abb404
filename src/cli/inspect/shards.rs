//! `fairq inspect shards`: the files, what they hold, and how their cycles fare.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::live::{Answered, ask_those_there, quantiles, told};
use crate::cli::render::table::Column;
use crate::cli::render::{Cell, Table, Tone, number};
use crate::cli::time::ago;
use crate::cli::{Context, Done};
use crate::error::Result;
use crate::model::{Band, ShardId, StepState, Timestamp};
use crate::presence::control::Question;
use crate::store::sqlite::SqliteStore;
use crate::store::{Read as _, ShardCounts, Store as _};

/// Show the shards: their files, their steps, their cycles
///
/// Files and steps are read from the store. Of the live runners it shows how often each shard's
/// cycle turned and how long its phases and its writes took (p50/p99); it works without any.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq inspect shards
  fairq inspect shards --json | jq '.shards[].wal_bytes'")]
pub(super) struct ShardsArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct ShardsJson<'s> {
    shards: Vec<ShardJson>,
    /// What each live runner does on each shard.
    runners: Vec<RunnerJson<'s>>,
}

#[derive(Serialize)]
struct RunnerJson<'s> {
    runner: crate::model::RunnerId,
    pid: Option<u32>,
    shards: &'s Value,
}

#[derive(Serialize)]
struct ShardJson {
    shard: ShardId,
    letter: char,
    file: String,
    bytes: Option<u64>,
    wal_bytes: u64,
    schema_version: Option<i32>,
    /// Why it cannot be read.
    error: Option<String>,
    states: BTreeMap<StepState, u64>,
    /// How many due steps each band has.
    bands: BTreeMap<Band, u64>,
    next_due: Option<String>,
    #[serde(skip)]
    next: Option<Timestamp>,
}

pub(super) fn run(args: &ShardsArgs, context: &mut Context) -> Result<Done> {
    let store = context.store_with_steps()?;
    let answered = ask_those_there(context, &Question::Runner)?;
    let shards = ShardId::first(store.shard_count())
        .map(|shard| look(&store, shard))
        .collect::<Result<Vec<_>>>()?;
    if args.json {
        let runners = answered.iter().map(|one| RunnerJson {
            runner: one.runner,
            pid: one.pid(),
            shards: &one.answer["shards"],
        });
        context.screen.json(&ShardsJson {
            shards,
            runners: runners.collect(),
        })?;
        return Ok(Done::Well);
    }
    let now = context.clock.now();
    let screen = &mut context.screen;
    screen.table(&file_table(&shards))?;
    screen.line("")?;
    screen.table(&step_table(&shards, now))?;
    if !answered.is_empty() {
        screen.line("")?;
        screen.table(&cycle_table(&answered))?;
        screen.line("")?;
        screen.table(&writer_table(&answered))?;
    }
    Ok(Done::Well)
}

/// Looks at one shard. Its files are measured by their paths and never opened: closing any
/// descriptor of them would take SQLite's locks away.
fn look(store: &SqliteStore, shard: ShardId) -> Result<ShardJson> {
    let file = store.file(shard)?;
    let mut log = file.as_os_str().to_owned();
    log.push("-wal");
    let size = |path: &Path| fs::metadata(path).ok().map(|about| about.len());
    let read = store
        .schema_version(shard)
        .and_then(|version| Ok((version, store.counts(shard)?)));
    let (schema_version, counts, error) = match read {
        Ok((version, counts)) => (Some(version), counts, None),
        Err(error) => (None, ShardCounts::default(), Some(error.to_string())),
    };
    Ok(ShardJson {
        shard,
        letter: shard.letter(),
        file: file.display().to_string(),
        bytes: size(file),
        wal_bytes: size(Path::new(&log)).unwrap_or(0),
        schema_version,
        error,
        states: counts.states,
        bands: counts.ready,
        next_due: counts.next_due.map(|due| due.to_string()),
        next: counts.next_due,
    })
}

fn name(shard: ShardId) -> Cell {
    Cell::new(format!("{shard} ({})", shard.letter()))
}

fn file_table(shards: &[ShardJson]) -> Table {
    let mut table = Table::new([
        Column::words("SHARD"),
        Column::numbers("SIZE"),
        Column::numbers("WAL"),
        Column::numbers("SCHEMA"),
        Column::text("HEALTH"),
        Column::text("FILE"),
    ]);
    for shard in shards {
        let health = match &shard.error {
            None => Cell::new("readable").tone(Tone::Good),
            Some(error) => Cell::new(error).tone(Tone::Bad),
        };
        let version = shard.schema_version.map(|version| version.to_string());
        table.row([
            name(shard.shard),
            Cell::new(shard.bytes.map(number::bytes).unwrap_or_default()),
            Cell::new(number::bytes(shard.wal_bytes)),
            Cell::new(version.unwrap_or_default()),
            health,
            Cell::new(&shard.file),
        ]);
    }
    table
}

fn step_table(shards: &[ShardJson], now: Timestamp) -> Table {
    let states = StepState::ALL.map(|state| Column::numbers(&state.word().to_uppercase()));
    let mut columns = vec![Column::words("SHARD")];
    columns.extend(states);
    columns.extend([Column::words("NEXT DUE"), Column::text("READY BY BAND")]);
    let mut table = Table::new(columns);
    for shard in shards {
        let mut row = vec![name(shard.shard)];
        row.extend(StepState::ALL.map(|state| {
            let count = shard.states.get(&state).copied().unwrap_or(0);
            Cell::new(number::count(count))
        }));
        let bands: Vec<String> = shard
            .bands
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(band, count)| format!("{band}:{count}"))
            .collect();
        row.push(Cell::new(
            shard.next.map(|due| ago(due, now)).unwrap_or_default(),
        ));
        row.push(Cell::new(bands.join(" ")));
        table.row(row);
    }
    table
}

/// Returns each runner's answer about each shard.
fn parts(answered: &[Answered]) -> impl Iterator<Item = (&Answered, &Value)> {
    answered.iter().flat_map(|one| {
        let shards = one.answer["shards"].as_array();
        shards.into_iter().flatten().map(move |shard| (one, shard))
    })
}

fn cycle_table(answered: &[Answered]) -> Table {
    let mut table = Table::new([
        Column::words("RUNNER"),
        Column::words("SHARD"),
        Column::numbers("CYCLES"),
        Column::numbers("PUSHED"),
        Column::numbers("BLIND"),
        Column::numbers("TALLY"),
        Column::numbers("PLAN"),
        Column::numbers("FETCH"),
        Column::numbers("PUSH"),
        Column::text("ERROR"),
    ]);
    for (one, shard) in parts(answered) {
        let phase = |name: &str| Cell::new(quantiles(&shard["phases"][name]));
        table.row([
            Cell::new(one.runner.to_string()),
            Cell::new(told(&shard["shard"])),
            Cell::new(told(&shard["cycles"])),
            Cell::new(told(&shard["pushed"])),
            Cell::new(told(&shard["blind"])),
            phase("tally"),
            phase("plan"),
            phase("fetch"),
            phase("push"),
            Cell::new(told(&shard["error"])).tone(Tone::Bad),
        ]);
    }
    table
}

fn writer_table(answered: &[Answered]) -> Table {
    let mut table = Table::new([
        Column::words("RUNNER"),
        Column::words("SHARD"),
        Column::numbers("WRITES"),
        Column::numbers("COMMITS"),
        Column::numbers("LARGEST"),
        Column::numbers("QUEUED"),
        Column::numbers("COMMIT TIME"),
    ]);
    for (one, shard) in parts(answered) {
        let writer = &shard["writer"];
        table.row([
            Cell::new(one.runner.to_string()),
            Cell::new(told(&shard["shard"])),
            Cell::new(told(&writer["writes"])),
            Cell::new(told(&writer["groups"])),
            Cell::new(told(&writer["largest_group"])),
            Cell::new(told(&writer["queued"])),
            Cell::new(quantiles(&writer["commit_micros"])),
        ]);
    }
    table
}
