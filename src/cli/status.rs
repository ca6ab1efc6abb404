//! `fairq status`: what is where.

use std::collections::BTreeMap;

use clap::Args;
use serde::Serialize;

use super::render::table::Column;
use super::render::{Cell, Table, Tone, number, quote, text};
use super::select::Selector;
use super::step_json::StepJson;
use super::time::ago;
use super::{Context, Done};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Band, Ending, RunnerId, ShardId, StepState, Timestamp};
use crate::presence;
use crate::store::sqlite::{SqliteStore, runners_dir};
use crate::store::{Order, Read as _, StepView, Store as _};

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
    next_due: Option<String>,
    runners: Vec<RunnerJson>,
    unreadable_shards: Vec<Unreadable>,
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
    next_due: Option<Timestamp>,
    unreadable: Vec<Unreadable>,
}

pub(super) fn run(args: &StatusArgs, context: &mut Context) -> Result<Done> {
    let filter = crate::store::Filter {
        order: args.sort,
        limit: (args.limit > 0).then_some(args.limit),
        ..args.select.filter(context)?
    };
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
        return Ok(Done::Well);
    };
    let sums = sum(&store);
    let steps = match store.list(&filter) {
        Ok(steps) => steps,
        // What can be read is still worth showing where a shard cannot.
        Err(_) if !sums.unreadable.is_empty() => Vec::new(),
        Err(error) => return Err(error),
    };
    let runners = runners(&store)?;
    if args.json {
        let status = Status {
            store: store.root().display().to_string(),
            counts: sums.states,
            bands: sums.bands,
            next_due: sums.next_due.map(|due| due.to_string()),
            runners,
            unreadable_shards: sums.unreadable,
            steps: steps.iter().map(StepJson::new).collect(),
        };
        context.screen.json(&status)?;
    } else {
        summary(context, &store, &sums, &runners)?;
        table(context, &steps, args)?;
    }
    if !args.select.ids.is_empty() && steps.is_empty() {
        return Err(Error::new(ErrorKind::NotFound, "no step matches"));
    }
    Ok(Done::Well)
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
        sums.next_due = [sums.next_due, counts.next_due].into_iter().flatten().min();
    }
    sums
}

fn runners(store: &SqliteStore) -> Result<Vec<RunnerJson>> {
    let alive = presence::alive(&runners_dir(store.root()))?;
    Ok(alive
        .into_iter()
        .map(|(runner, card)| RunnerJson {
            runner,
            pid: card.as_ref().map(|card| card.pid),
            workers: card.as_ref().map(|card| card.workers),
            started: card.as_ref().map(|card| card.started.to_string()),
        })
        .collect())
}

/// Writes counts and runners.
fn summary(
    context: &mut Context,
    store: &SqliteStore,
    sums: &Sums,
    runners: &[RunnerJson],
) -> Result<()> {
    let now = context.clock.now();
    let mut lines = vec![format!(
        "store    {}",
        text::shown(store.root().display().to_string())
    )];
    let counts: Vec<String> = StepState::ALL
        .iter()
        .filter_map(|state| {
            sums.states
                .get(state)
                .map(|count| format!("{state} {}", number::count(*count)))
        })
        .collect();
    let none = || "nothing".to_owned();
    lines.push(format!(
        "steps    {}",
        if counts.is_empty() {
            none()
        } else {
            counts.join(", ")
        }
    ));
    if !sums.bands.is_empty() {
        let bands: Vec<String> = sums
            .bands
            .iter()
            .map(|(band, count)| format!("{band}: {} due", number::count(*count)))
            .collect();
        lines.push(format!("bands    {}", bands.join(", ")));
    }
    if let Some(due) = sums.next_due {
        lines.push(format!("next due {}", context.zone.show(due)));
    }
    if runners.is_empty() {
        lines.push("runners  none: start one with fairq run".to_owned());
    }
    for runner in runners {
        let told = |value: Option<String>| value.unwrap_or_else(|| "?".to_owned());
        let since = presence::card(&runners_dir(store.root()), runner.runner)
            .map_or_else(String::new, |card| {
                format!(", started {}", ago(card.started, now))
            });
        lines.push(format!(
            "runner   {} pid {} with {} workers{since}",
            runner.runner,
            told(runner.pid.map(|pid| pid.to_string())),
            told(runner.workers.map(|workers| workers.to_string())),
        ));
    }
    for shard in &sums.unreadable {
        lines.push(format!("warning: {}", text::shown(&shard.error)));
    }
    for line in lines {
        context.screen.line(&line)?;
    }
    Ok(())
}

fn table(context: &mut Context, steps: &[StepView], args: &StatusArgs) -> Result<()> {
    let now = context.clock.now();
    let mut table = Table::new([
        Column::words("ID"),
        Column::words("STATE"),
        Column::numbers("BAND"),
        Column::words("KEY"),
        Column::words("WHEN"),
        Column::words("RESULT"),
        Column::text("NAME"),
        Column::text("COMMAND"),
    ]);
    for step in steps {
        table.row([
            Cell::new(step.id.to_string()),
            Cell::new(step.state.word()).tone(tone(step.state)),
            Cell::new(step.band.to_string()),
            Cell::new(step.key.as_str()),
            Cell::new(when(context, step, now)),
            Cell::new(step.ending.as_ref().map(result).unwrap_or_default()),
            Cell::new(step.name.as_deref().unwrap_or_default()),
            Cell::new(quote::summary(&step.command)),
        ]);
    }
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

/// Returns when a step began to be what it is: for people how long ago, for scripts the instant.
fn when(context: &Context, step: &StepView, now: Timestamp) -> String {
    if !context.screen.is_terminal() {
        return step.at.to_string();
    }
    match step.state {
        StepState::Delayed => context.zone.show(step.at),
        StepState::Running
        | StepState::Ready
        | StepState::Blocked
        | StepState::Limited
        | StepState::Held
        | StepState::Succeeded
        | StepState::Failed
        | StepState::Cancelled => ago(step.at, now),
    }
}

/// Returns an ending in a few words.
fn result(ending: &Ending) -> String {
    match ending {
        Ending::Unstarted { .. } => "not started".to_owned(),
        Ending::Skipped { .. } => "skipped".to_owned(),
        Ending::Cancelled => "not started".to_owned(),
        Ending::Expired => "expired".to_owned(),
        Ending::Exited { .. }
        | Ending::Signalled { .. }
        | Ending::Interrupted
        | Ending::Lost
        | Ending::TimedOut { .. } => ending.to_string(),
    }
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
