//! `fairq clean`: forget steps that are over.

use std::fs;
use std::io;

use clap::Args;
use serde::Serialize;

use crate::cli::render::{number, text};
use crate::cli::select::{Selector, no_match};
use crate::cli::{Context, Done, words};
use crate::error::{Error, ErrorKind, Result, plain};
use crate::model::{ShardId, Span, StepId, StepState, Timestamp};
use crate::store::sqlite::SqliteStore;
use crate::store::{Filter, Read as _, Retention, Steer as _, Store as _};

/// Forget steps that are over, with all that is kept of them
///
/// This cannot be undone, and a forgotten step cannot be retried; so it wants to be told which:
/// --older-than, --state, ids or another condition, or --all for everything that is over. Steps that
/// wait or run are never touched, nor are those for which others still wait. Exits with 3 if there
/// was none to forget.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq clean --state succeeded               keep dead letters
  fairq clean --older-than 7d
  fairq clean --all --dry-run                 how many that would be
  fairq clean --flow nightly --older-than 1d")]
pub(in crate::cli) struct CleanArgs {
    #[command(flatten)]
    select: Selector,
    /// Only what ended so long ago (90s, 1h30m, 7d)
    #[arg(long, value_name = "DURATION", value_parser = words::span, allow_hyphen_values = true)]
    older_than: Option<Span>,
    /// Only say how many steps that would be at most
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Default, Serialize)]
struct CleanedJson {
    dry_run: bool,
    /// How many steps were forgotten, or would be at most.
    steps: u64,
    /// How many files of outputs were removed, and how large they were.
    files: u64,
    bytes: u64,
}

pub(in crate::cli) fn run(args: &CleanArgs, context: &mut Context) -> Result<Done> {
    if args.select.is_empty() && args.older_than.is_none() {
        return Err(Error::new(ErrorKind::Usage, "nothing says what to forget")
            .hint("give a condition such as --older-than 7d or --state succeeded")
            .hint("--all forgets everything that is over"));
    }
    let states = states(&args.select.state)?;
    let store = context.store_with_steps()?;
    let ended_before = args
        .older_than
        .map_or(Timestamp::from_millis(i64::MAX), |age| {
            context.clock.now() - age
        });
    let filter = Filter {
        states: states.clone(),
        ..args.select.filter(context)?
    };
    let cleaned = if args.dry_run {
        CleanedJson {
            dry_run: true,
            steps: count(&store, &filter, args.older_than.map(|_| ended_before))?,
            ..CleanedJson::default()
        }
    } else {
        let retention = Retention {
            ended_before,
            states,
            // By states and time alone the store finds them without being told each.
            only: selects_some(&args.select)
                .then(|| store.find(&filter))
                .transpose()?,
            most: Retention::PORTION,
            tidy: true,
        };
        clean(context, &store, &retention)?
    };
    if args.json {
        context.screen.json(&cleaned)?;
    } else if cleaned.steps > 0 {
        context.screen.talk(&text::shown(said(&cleaned)));
    }
    if cleaned.steps == 0 {
        return Err(no_match());
    }
    Ok(Done::Well)
}

/// Returns the final states that are meant.
fn states(named: &[StepState]) -> Result<Vec<StepState>> {
    if let Some(open) = named.iter().find(|state| !state.is_final()) {
        let what = format!("a step that is {open} is not over: it cannot be forgotten");
        return Err(Error::new(ErrorKind::Usage, what).hint("cancel it first: fairq cancel"));
    }
    let all = named.is_empty();
    Ok(if all {
        StepState::OVER.to_vec()
    } else {
        named.to_vec()
    })
}

/// Returns whether more than states is selected by.
fn selects_some(select: &Selector) -> bool {
    let by_state = Selector {
        state: Vec::new(),
        ..select.clone()
    };
    !by_state.is_unconditional()
}

/// Counts what would be forgotten; what others wait for is among it.
fn count(store: &SqliteStore, filter: &Filter, before: Option<Timestamp>) -> Result<u64> {
    let ids = store.find(filter)?;
    let Some(before) = before else {
        return Ok(ids.len() as u64);
    };
    let mut count = 0;
    for id in ids {
        let is_over = |step: &crate::store::StepView| step.state.is_final() && step.at < before;
        count += u64::from(store.get(id)?.as_ref().is_some_and(is_over));
    }
    Ok(count)
}

fn clean(context: &mut Context, store: &SqliteStore, all: &Retention) -> Result<CleanedJson> {
    let mut sum = CleanedJson::default();
    for shard in ShardId::first(store.shard_count()) {
        let own = |ids: &Vec<StepId>| ids.iter().copied().filter(|id| id.shard == shard).collect();
        let retention = Retention {
            only: all.only.as_ref().map(own),
            ..all.clone()
        };
        if retention.only.as_ref().is_some_and(Vec::is_empty) {
            continue;
        }
        loop {
            let cleaned = store.clean(shard, &retention)?;
            sum.steps += cleaned.steps;
            for file in &cleaned.files {
                remove(context, store, file, &mut sum);
            }
            let steps = number::many(sum.steps, "step");
            context.screen.progress(&format!("{steps} forgotten"));
            if cleaned.done {
                break;
            }
        }
    }
    Ok(sum)
}

/// Removes the file of an output. One that cannot be removed is named and no reason to stop: its step
/// is forgotten already.
fn remove(
    context: &mut Context,
    store: &SqliteStore,
    file: &std::path::Path,
    sum: &mut CleanedJson,
) {
    let path = store.root().join(file);
    let size = fs::metadata(&path).map_or(0, |found| found.len());
    match fs::remove_file(&path) {
        Ok(()) => {
            sum.files += 1;
            sum.bytes += size;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            let line = format!(
                "warning: cannot remove {}: {}",
                path.display(),
                plain(&error)
            );
            context.screen.talk(&text::shown(line));
        }
    }
}

fn said(cleaned: &CleanedJson) -> String {
    let steps = number::many(cleaned.steps, "step");
    if cleaned.dry_run {
        return format!("{steps} would be forgotten, but for those that others wait for");
    }
    match cleaned.files {
        0 => format!("{steps} forgotten"),
        files => format!(
            "{steps} forgotten, with {} of outputs ({})",
            number::many(files, "file"),
            number::bytes(cleaned.bytes)
        ),
    }
}
