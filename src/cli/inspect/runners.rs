//! `fairq inspect runners`: who is there, and what each of them runs.

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::live::{Answered, ask_those_there, nobody, share, told};
use crate::cli::render::table::Column;
use crate::cli::render::{Cell, Table, Tone, number};
use crate::cli::time::{ago, rough};
use crate::cli::{Context, Done};
use crate::error::Result;
use crate::model::{RunnerId, Span};
use crate::presence::control::Question;
use crate::presence::{self, Card, Standing};
use crate::store::sqlite::runners_dir;

/// Show the live runners and what they run
///
/// Those that died and whose steps nobody has taken back yet are named as well. Exits with 3 if no
/// runner is alive.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq inspect runners
  fairq inspect runners --json | jq '.runners[].crew.running[].id'")]
pub(super) struct RunnersArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct RunnersJson<'r> {
    runners: Vec<&'r Value>,
    /// Those that died and left their folder.
    dead: Vec<DeadJson>,
}

#[derive(Serialize)]
struct DeadJson {
    runner: RunnerId,
    pid: Option<u32>,
    started: Option<String>,
}

pub(super) fn run(args: &RunnersArgs, context: &mut Context) -> Result<Done> {
    let dead = dead(context)?;
    let answered = ask_those_there(context, &Question::Runner)?;
    if args.json {
        let dead = dead.into_iter().map(|(runner, card)| DeadJson {
            runner,
            pid: card.as_ref().map(|card| card.pid),
            started: card.map(|card| card.started.to_string()),
        });
        context.screen.json(&RunnersJson {
            runners: answered.iter().map(|one| &one.answer).collect(),
            dead: dead.collect(),
        })?;
    } else if !answered.is_empty() || !dead.is_empty() {
        let table = runner_table(context, &answered, &dead);
        context.screen.table(&table)?;
        let steps = step_table(&answered);
        if !steps.is_empty() {
            context.screen.line("")?;
            context.screen.table(&steps)?;
        }
    }
    if answered.is_empty() {
        return Err(nobody());
    }
    Ok(Done::Well)
}

/// Returns the runners that have a folder and a lock that can be taken.
fn dead(context: &Context) -> Result<Vec<(RunnerId, Option<Card>)>> {
    let runners = runners_dir(&context.settings.store);
    let mut dead = Vec::new();
    for runner in presence::all(&runners)? {
        if presence::standing(&runners, runner)? == Standing::Dead {
            dead.push((runner, presence::card(&runners, runner)));
        }
    }
    Ok(dead)
}

pub(super) fn runner_table(
    context: &Context,
    answered: &[Answered],
    dead: &[(RunnerId, Option<Card>)],
) -> Table {
    let now = context.clock.now();
    let started = |card: Option<&Card>| card.map(|card| ago(card.started, now));
    let pid = |card: Option<&Card>| card.map(|card| card.pid.to_string());
    let mut table = Table::new([
        Column::words("RUNNER"),
        Column::numbers("PID"),
        Column::words("STATE"),
        Column::words("STARTED"),
        Column::words("PICK"),
        Column::numbers("WORKERS"),
        Column::numbers("RUN"),
        Column::words(""),
        Column::numbers("SUCCEEDED"),
        Column::numbers("FAILED"),
        Column::numbers("PUT BACK"),
        Column::numbers("CLAIMS LOST"),
    ]);
    for one in answered {
        let (crew, steps) = (&one.answer["crew"], &one.answer["steps"]);
        let running = Value::from(crew["running"].as_array().map_or(0, Vec::len));
        table.row([
            Cell::new(one.runner.to_string()),
            Cell::new(pid(one.card.as_ref()).unwrap_or_default()),
            Cell::new("alive").tone(Tone::Good),
            Cell::new(started(one.card.as_ref()).unwrap_or_default()),
            Cell::new(told(&one.answer["pick"])),
            Cell::new(told(&crew["workers"])),
            Cell::new(told(&running)),
            Cell::new(number::bar(share(&running, &crew["workers"]), 8)),
            Cell::new(told(&steps["succeeded"])),
            Cell::new(told(&steps["failed"])),
            Cell::new(told(&steps["put_back"])),
            Cell::new(told(&crew["claims_lost"])),
        ]);
    }
    for (runner, card) in dead {
        table.row([
            Cell::new(runner.to_string()),
            Cell::new(pid(card.as_ref()).unwrap_or_default()),
            Cell::new("dead").tone(Tone::Bad),
            Cell::new(started(card.as_ref()).unwrap_or_default()),
        ]);
    }
    table
}

pub(super) fn step_table(answered: &[Answered]) -> Table {
    let mut table = Table::new([
        Column::words("STEP"),
        Column::numbers("BAND"),
        Column::words("KEY"),
        Column::numbers("SINCE"),
        Column::numbers("PID"),
        Column::numbers("WORKER"),
        Column::words("RUNNER"),
    ]);
    for one in answered {
        for step in one.answer["crew"]["running"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let since = Span::from_millis(step["running_ms"].as_u64().unwrap_or(0));
            table.row([
                Cell::new(told(&step["id"])),
                Cell::new(told(&step["band"])),
                Cell::new(told(&step["key"])),
                Cell::new(rough(since)),
                Cell::new(step["pid"].to_string()),
                Cell::new(told(&step["worker"])),
                Cell::new(one.runner.to_string()),
            ]);
        }
    }
    table
}
