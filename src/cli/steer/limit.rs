//! `fairq limit`: how many steps that name a limit may run at once.

use clap::{Args, Subcommand};
use serde::Serialize;

use super::ring_all;
use crate::cli::render::table::Column;
use crate::cli::render::{Cell, Table, number, text};
use crate::cli::{Context, Done, words};
use crate::error::{Error, ErrorKind, Result};
use crate::model::LimitName;
use crate::store::sqlite::{Mode, SqliteStore};
use crate::store::{LimitView, Read as _, Release as _, Steer as _};

/// So many holders are named in a table.
const MOST_NAMED: usize = 5;

/// Set, list and forget named limits
///
/// A step that names a limit (enqueue --limit NAME[:N]) runs only while it holds its places of it. A
/// limit that nobody has set has one place. One limit holds for all shards and runners together.
#[derive(Debug, Args)]
pub(in crate::cli) struct LimitArgs {
    #[command(subcommand)]
    command: LimitCommand,
}

#[derive(Debug, Subcommand)]
enum LimitCommand {
    Set(SetArgs),
    Ls(LsArgs),
    Rm(RmArgs),
}

/// Set how many places a limit has
///
/// It holds at once. Nothing that runs is ended: after it was lowered, steps that hold places beyond
/// it end first. With 0 places nothing of it starts.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq limit set gpu 2
  fairq limit set gpu 0                       nothing that needs one starts any more")]
struct SetArgs {
    /// The limit
    #[arg(value_name = "NAME")]
    name: LimitName,
    /// How many places it has
    #[arg(value_name = "N", value_parser = words::number)]
    places: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// List limits: those that are set, and those that steps wait for or hold
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq limit ls
  fairq limit ls --json | jq '.limits[] | select(.waiting > 0).name'")]
struct LsArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Forget what a limit was set to; it has one place then
///
/// Exits with 3 if nobody had set it.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq limit rm gpu")]
struct RmArgs {
    /// The limit
    #[arg(value_name = "NAME")]
    name: LimitName,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct SetJson<'s> {
    name: &'s LimitName,
    /// How many places it has now.
    places: u32,
    /// What it was set to before; null if nobody had set it.
    before: Option<u32>,
}

#[derive(Serialize)]
struct LimitsJson<'l> {
    limits: &'l [LimitView],
}

pub(in crate::cli) fn run(args: &LimitArgs, context: &mut Context) -> Result<Done> {
    match &args.command {
        LimitCommand::Set(args) => set(args, context),
        LimitCommand::Ls(args) => list(args, context),
        LimitCommand::Rm(args) => remove(args, context),
    }
}

fn set(args: &SetArgs, context: &mut Context) -> Result<Done> {
    // Made if there is none: a limit is best set before the first step names it.
    let store = context.store(Mode::Visit)?;
    let before = change(context, &store, &args.name, Some(args.places))?;
    let was = before.map_or_else(
        || "not set before".to_owned(),
        |before| format!("was {before}"),
    );
    said(context, args.json, &args.name, args.places, before, &was)
}

fn remove(args: &RmArgs, context: &mut Context) -> Result<Done> {
    let not_set = || {
        Error::new(
            ErrorKind::NotFound,
            format!("nobody has set the limit {}", args.name),
        )
        .hint("fairq limit ls names those that are set")
    };
    let store = context.existing_store()?.ok_or_else(not_set)?;
    let before = change(context, &store, &args.name, None)?.ok_or_else(not_set)?;
    let was = format!("forgotten, was {before}");
    let places = LimitView::UNSET;
    said(context, args.json, &args.name, places, Some(before), &was)
}

/// Sets a limit, gives out what has become free, and lets the runners know.
fn change(
    context: &Context,
    store: &SqliteStore,
    name: &LimitName,
    places: Option<u32>,
) -> Result<Option<u32>> {
    let before = store.set_limit(name, places)?;
    store.grant(context.clock.now())?;
    ring_all(store);
    Ok(before)
}

fn said(
    context: &mut Context,
    json: bool,
    name: &LimitName,
    places: u32,
    before: Option<u32>,
    was: &str,
) -> Result<Done> {
    if json {
        context.screen.json(&SetJson {
            name,
            places,
            before,
        })?;
    } else {
        let many = number::many(u64::from(places), "place");
        let line = format!("limit {name} has {many} ({was})");
        context.screen.talk(&text::shown(line));
    }
    Ok(Done::Well)
}

fn list(args: &LsArgs, context: &mut Context) -> Result<Done> {
    let limits = match context.existing_store()? {
        Some(store) => store.limits()?,
        None => Vec::new(),
    };
    if args.json {
        context.screen.json(&LimitsJson { limits: &limits })?;
        return Ok(Done::Well);
    }
    if limits.is_empty() {
        context.screen.talk("there is no limit");
        return Ok(Done::Well);
    }
    let mut table = Table::new([
        Column::words("LIMIT"),
        Column::numbers("PLACES"),
        Column::words("SET"),
        Column::numbers("TAKEN"),
        Column::numbers("WAITING"),
        Column::text("HELD BY"),
    ]);
    for limit in &limits {
        table.row([
            Cell::new(limit.name.as_str()),
            Cell::new(number::count(u64::from(limit.places))),
            Cell::new(if limit.is_set { "yes" } else { "no" }),
            Cell::new(number::count(u64::from(limit.taken()))),
            Cell::new(number::count(limit.waiting)),
            Cell::new(holders(limit)),
        ]);
    }
    context.screen.table(&table)?;
    Ok(Done::Well)
}

/// Names some of the steps that hold places: `a3, b1 (2 places) and 7 more`.
pub(in crate::cli) fn holders(limit: &LimitView) -> String {
    let one = |(id, places): (&crate::model::StepId, &u32)| match places {
        1 => id.to_string(),
        places => format!("{id} ({places} places)"),
    };
    let mut named: Vec<String> = limit.holders.iter().take(MOST_NAMED).map(one).collect();
    let more = limit.holders.len().saturating_sub(MOST_NAMED);
    if more > 0 {
        named.push(format!("{} more", number::count(more as u64)));
    }
    crate::cli::explain::joined(&named)
}
