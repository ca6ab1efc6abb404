//! `fairq retry`, `hold` and `release`: steps that are put elsewhere at once.

use clap::Args;

use super::answer::tell;
use super::steer;
use crate::cli::select::Selector;
use crate::cli::{Context, Done};
use crate::error::Result;
use crate::model::StepState;
use crate::store::Action;

/// Let failed or cancelled steps be tried again
///
/// Their tries are counted from the start; what was recorded of the earlier ones stays. Steps that
/// still wait, run or have succeeded are refused. Exits with 1 if any was.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq retry a17
  fairq retry --state failed                  all dead letters
  fairq retry --flow nightly                  what failed or was cancelled of a flow")]
pub(in crate::cli) struct RetryArgs {
    #[command(flatten)]
    select: Selector,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Let steps wait until they are released
///
/// What runs cannot be held and is refused, as is what is over. A held step keeps its place in time:
/// once released it is due as if it had never been held.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq hold a17 a20-a29
  fairq hold -k alice                         all steps of alice that wait now, but none to come
  fairq pause -k alice                        those to come as well")]
pub(in crate::cli) struct HoldArgs {
    #[command(flatten)]
    select: Selector,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Let held steps go
///
/// They go where they belong: due, or delayed, or waiting for other steps or for a limit.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq release a17
  fairq release --all                         everything that is held")]
pub(in crate::cli) struct ReleaseArgs {
    #[command(flatten)]
    select: Selector,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What one of these commands does.
struct Move {
    action: Action,
    /// The states that it is meant for where none are named.
    of: &'static [StepState],
    /// Where a step may stand already without harm.
    wanted: Option<StepState>,
    /// What is said of a step to which it was done.
    done: &'static str,
}

pub(in crate::cli) fn retry(args: &RetryArgs, context: &mut Context) -> Result<Done> {
    let what = Move {
        action: Action::Retry,
        of: &[StepState::Failed, StepState::Cancelled],
        wanted: None,
        done: "retried",
    };
    run(&args.select, args.json, &what, context)
}

pub(in crate::cli) fn hold(args: &HoldArgs, context: &mut Context) -> Result<Done> {
    let what = Move {
        action: Action::Hold,
        of: &[
            StepState::Ready,
            StepState::Delayed,
            StepState::Blocked,
            StepState::Limited,
        ],
        wanted: Some(StepState::Held),
        done: "held",
    };
    run(&args.select, args.json, &what, context)
}

pub(in crate::cli) fn release(args: &ReleaseArgs, context: &mut Context) -> Result<Done> {
    let what = Move {
        action: Action::Release,
        of: &[StepState::Held],
        wanted: None,
        done: "released",
    };
    run(&args.select, args.json, &what, context)
}

fn run(select: &Selector, json: bool, what: &Move, context: &mut Context) -> Result<Done> {
    let store = context.store_with_steps()?;
    let ids = select.targets(context, &store, what.of)?;
    let answers = steer(context, &store, &ids, &what.action, what.wanted)?;
    tell(context, &answers, what.done, json, false)
}
