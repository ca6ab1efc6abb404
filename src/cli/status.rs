//! `fairq status`: what is where.

mod columns;
mod summary;

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use self::columns::Field;
pub(super) use self::columns::state;
use super::kept::{self, Kept};
use super::render::{Tone, text};
use super::select::{Selector, no_match};
use super::steer::pause::{PauseJson, announce};
use super::step_json::StepJson;
use super::{Context, Done};
use crate::engine::Notice;
use crate::error::Result;
use crate::model::{Band, RunnerId, ShardId, StepState, Timestamp};
use crate::presence;
use crate::presence::control::{Question, ask};
use crate::store::sqlite::{SqliteStore, runners_dir};
use crate::store::{Filter, Order, Paused, Read as _, StepView, Store as _, Supply as _};

/// Between two looks of --watch at whether anything was written.
const GLANCE: Duration = Duration::from_millis(100);
/// After so many of them it is drawn again anyhow: ages grow.
const MOST_GLANCES: u32 = 10;

/// Show what is where
///
/// First how many steps are in which state and band, and who runs them; then the steps: what runs,
/// what is due, then the newest.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq status
  fairq status --state failed --limit 0       all dead letters
  fairq status -k alice -b urgent
  fairq status --watch                        drawn again as things change
  fairq status --columns id,state,tries,result
  fairq status --json | jq '.counts'")]
pub(super) struct StatusArgs {
    #[command(flatten)]
    select: Selector,
    /// The order of the steps: relevance, id or newest
    #[arg(long, value_name = "ORDER", default_value = "relevance", value_parser = order)]
    sort: Order,
    /// At most so many steps; 0 for all
    #[arg(long, value_name = "N", default_value = "20")]
    limit: usize,
    /// These columns (id, state, band, key, weight, when, enqueued, tries, limit, runner, result, name, tags, flow, cwd, command)
    #[arg(
        long,
        value_name = "COLUMN",
        value_delimiter = ',',
        default_value = columns::USUAL,
        value_parser = Field::read
    )]
    columns: Vec<Field>,
    /// Go on, and show it again as things change
    #[arg(long, conflicts_with = "json")]
    watch: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn order(word: &str) -> Result<Order, String> {
    match word {
        "relevance" => Ok(Order::Relevance),
        "id" => Ok(Order::Id),
        "newest" => Ok(Order::Newest),
        _ => Err("it is relevance, id or newest".to_owned()),
    }
}

#[derive(Default, Serialize)]
struct Status<'s> {
    store: String,
    counts: BTreeMap<StepState, u64>,
    bands: BTreeMap<Band, u64>,
    /// How many of the due steps a pause keeps from starting.
    paused: u64,
    pauses: Vec<PauseJson>,
    next_due: Option<String>,
    runners: Vec<RunnerJson>,
    unreadable_shards: Vec<Unreadable>,
    kept: Kept,
    steps: Vec<StepJson<'s>>,
}

#[derive(Serialize)]
struct RunnerJson {
    runner: RunnerId,
    pid: Option<u32>,
    workers: Option<usize>,
    started: Option<String>,
}

#[derive(Clone, Serialize)]
struct Unreadable {
    shard: ShardId,
    error: String,
}

/// What all shards count together.
#[derive(Default)]
struct Sums {
    states: BTreeMap<StepState, u64>,
    bands: BTreeMap<Band, u64>,
    paused: u64,
    next_due: Option<Timestamp>,
    unreadable: Vec<Unreadable>,
}

pub(super) fn run(args: &StatusArgs, context: &mut Context) -> Result<Done> {
    let filter = Filter {
        order: args.sort,
        limit: (args.limit > 0).then_some(args.limit),
        ..args.select.filter(context)?
    };
    if args.watch {
        watch(args, context, &filter)?;
        return Ok(Done::Well);
    }
    let found = show(args, context, &filter)?;
    if !args.select.ids.is_empty() && !found {
        return Err(no_match());
    }
    Ok(Done::Well)
}

/// Shows it until nobody reads it any more.
fn watch(args: &StatusArgs, context: &mut Context, filter: &Filter) -> Result<()> {
    let nobody = Notice::default();
    let mut seen = versions(context)?;
    loop {
        // Nothing is moved where it cannot be: there one picture follows the other.
        if context.screen.is_terminal() && context.screen.paint().is_on() {
            context.screen.raw(b"\x1b[H\x1b[2J")?;
        }
        show(args, context, filter)?;
        context.screen.line("")?;
        context.screen.flush()?;
        if context.screen.is_closed() {
            return Ok(());
        }
        for _ in 0..MOST_GLANCES {
            nobody.wait(nobody.seen(), GLANCE);
            let now = versions(context)?;
            if now != seen {
                seen = now;
                break;
            }
        }
    }
}

/// Returns what changes whenever a shard is written; nothing of a store that is not there, or of
/// shards that cannot be read.
fn versions(context: &mut Context) -> Result<Vec<Option<u64>>> {
    let Some(store) = context.existing_store()? else {
        return Ok(Vec::new());
    };
    let shards = ShardId::first(store.shard_count());
    Ok(shards.map(|shard| store.version(shard).ok()).collect())
}

/// Shows all of it once. Returns whether there was a step.
fn show(args: &StatusArgs, context: &mut Context, filter: &Filter) -> Result<bool> {
    let Some(store) = context.existing_store()? else {
        let root = context.settings.store.display().to_string();
        if args.json {
            context.screen.json(&Status {
                store: root,
                ..Status::default()
            })?;
        } else {
            context
                .screen
                .talk(&format!("there is no store yet at {}", text::shown(root)));
        }
        return Ok(true);
    };
    let sums = sum(&store);
    // What can be read is still worth showing where a shard cannot.
    let readable = |error| {
        if sums.unreadable.is_empty() {
            Err(error)
        } else {
            Ok(())
        }
    };
    let steps = store
        .list(filter)
        .or_else(|error| readable(error).map(|()| Vec::new()))?;
    let pauses: Vec<Paused> = store
        .pauses()
        .or_else(|error| readable(error).map(|()| Vec::new()))?;
    let runners = runners(&store)?;
    if args.json {
        let status = Status {
            store: store.root().display().to_string(),
            counts: sums.states,
            bands: sums.bands,
            paused: sums.paused,
            pauses: pauses.iter().map(PauseJson::new).collect(),
            next_due: sums.next_due.map(|due| due.to_string()),
            runners,
            unreadable_shards: sums.unreadable,
            kept: Kept::of(&store),
            steps: steps.iter().map(StepJson::new).collect(),
        };
        context.screen.json(&status)?;
    } else {
        summary::write(context, &store, &sums, &runners)?;
        announce(context, &pauses);
        kept::announce(&store, context);
        list(context, &steps, args)?;
    }
    Ok(!steps.is_empty())
}

/// Writes the steps.
fn list(context: &mut Context, steps: &[StepView], args: &StatusArgs) -> Result<()> {
    let table = columns::table(context, steps, &args.columns);
    if !table.is_empty() {
        context.screen.line("")?;
        context.screen.table(&table)?;
    }
    if args.limit > 0 && steps.len() == args.limit {
        let first = args.limit;
        context.screen.talk(&format!(
            "(the first {first}; --limit 0 shows all that match)"
        ));
    }
    Ok(())
}

fn sum(store: &SqliteStore) -> Sums {
    let mut sums = Sums::default();
    for shard in ShardId::first(store.shard_count()) {
        let counts = match store.counts(shard) {
            Ok(counts) => counts,
            Err(error) => {
                sums.unreadable.push(Unreadable {
                    shard,
                    error: error.to_string(),
                });
                continue;
            }
        };
        for (state, count) in counts.states {
            *sums.states.entry(state).or_default() += count;
        }
        for (band, count) in counts.ready {
            *sums.bands.entry(band).or_default() += count;
        }
        sums.paused += counts.paused;
        sums.next_due = [sums.next_due, counts.next_due].into_iter().flatten().min();
    }
    sums
}

fn runners(store: &SqliteStore) -> Result<Vec<RunnerJson>> {
    let runners = runners_dir(store.root());
    // What it started with stands on its card; how many it has now only it can tell.
    let now = |runner| {
        let crew = ask(&runners, runner, &Question::Crew).ok()?;
        usize::try_from(crew["workers"].as_u64()?).ok()
    };
    let alive = presence::alive(&runners)?;
    Ok(alive
        .into_iter()
        .map(|(runner, card)| RunnerJson {
            runner,
            pid: card.as_ref().map(|card| card.pid),
            workers: now(runner).or_else(|| card.as_ref().map(|card| card.workers)),
            started: card.as_ref().map(|card| card.started.to_string()),
        })
        .collect())
}

/// Returns the colour of a state.
pub(super) const fn tone(state: StepState) -> Tone {
    match state {
        StepState::Running => Tone::Active,
        StepState::Succeeded => Tone::Good,
        StepState::Failed | StepState::Cancelled => Tone::Bad,
        StepState::Ready
        | StepState::Delayed
        | StepState::Blocked
        | StepState::Limited
        | StepState::Held => Tone::Plain,
    }
}
