//! `fairq wait`: until steps have ended.

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::select::Selector;
use super::{Context, Done, words};
use crate::engine::Notice;
use crate::error::Result;
use crate::model::{Ending, ShardId, Span, StepId, StepState};
use crate::store::sqlite::SqliteStore;
use crate::store::{StepView, Supply as _};

/// Exit code where the time ran out.
const TIMED_OUT: u8 = 124;
/// Between two looks. A look asks each shard whether anything was written since the last one, which
/// costs microseconds; only then are the steps read.
const PAUSE: Duration = Duration::from_millis(20);

/// Wait until steps have ended
///
/// Exits with the step's own code if one step was named (128+n for a signal), with 0 if all of
/// several succeeded, else with 1.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq wait a17; echo $?                     the step's own exit code
  fairq wait a17-a29 --timeout 10m
  fairq wait -k alice --any                   until the first of alice's steps has ended")]
pub(super) struct WaitArgs {
    #[command(flatten)]
    select: Selector,
    /// Until one of them has ended
    #[arg(long)]
    any: bool,
    /// Give up after so long, with exit code 124
    #[arg(long, value_name = "DURATION", value_parser = words::span, allow_hyphen_values = true)]
    timeout: Option<Span>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Waited {
    timed_out: bool,
    steps: Vec<WaitedStep>,
}

#[derive(Serialize)]
struct WaitedStep {
    id: StepId,
    state: StepState,
    exit_code: Option<i32>,
}

pub(super) fn run(args: &WaitArgs, context: &mut Context) -> Result<Done> {
    let store = context.store_with_steps()?;
    let mut steps = args.select.resolve(context, &store)?;
    let until = args
        .timeout
        .map(|limit| context.clock.monotonic() + Duration::from(limit));
    let mut versions = std::collections::BTreeMap::new();
    let nobody = Notice::default();
    let enough = |steps: &[StepView]| {
        let mut over = steps.iter().map(|step| step.state.is_final());
        if args.any {
            over.any(|over| over)
        } else {
            over.all(|over| over)
        }
    };
    let mut timed_out = false;
    while !enough(&steps) {
        let left = until.map(|until| until.saturating_sub(context.clock.monotonic()));
        if left.is_some_and(|left| left.is_zero()) {
            timed_out = true;
            break;
        }
        nobody.wait(nobody.seen(), left.map_or(PAUSE, |left| left.min(PAUSE)));
        look(&store, &mut versions, &mut steps)?;
    }
    let code = if timed_out {
        TIMED_OUT
    } else {
        code(args, &steps)
    };
    if args.json {
        let steps = steps
            .iter()
            .map(|step| WaitedStep {
                id: step.id,
                state: step.state,
                exit_code: step.ending.as_ref().map(Ending::shell_code),
            })
            .collect();
        context.screen.json(&Waited { timed_out, steps })?;
    } else if timed_out {
        let open = steps.iter().filter(|step| !step.state.is_final()).count();
        context.screen.talk(&format!(
            "the time is up and {open} of {} have not ended",
            steps.len()
        ));
    }
    Ok(if code == 0 {
        Done::Well
    } else {
        Done::Code(code)
    })
}

/// Reads those steps again that have not ended and whose shard was written since the last look.
fn look(
    store: &SqliteStore,
    versions: &mut std::collections::BTreeMap<ShardId, u64>,
    steps: &mut [StepView],
) -> Result<()> {
    let mut changed = std::collections::BTreeSet::new();
    let mut asked = std::collections::BTreeSet::new();
    for step in steps.iter_mut().filter(|step| !step.state.is_final()) {
        let shard = step.id.shard;
        if asked.insert(shard) {
            let version = store.version(shard)?;
            if versions.insert(shard, version) != Some(version) {
                changed.insert(shard);
            }
        }
        if changed.contains(&shard) {
            *step = super::show::find(store, step.id)?;
        }
    }
    Ok(())
}

/// Returns the exit code for steps that have ended.
fn code(args: &WaitArgs, steps: &[StepView]) -> u8 {
    let ended: Vec<&StepView> = steps.iter().filter(|step| step.state.is_final()).collect();
    match (args.select.ids.as_slice(), ended.as_slice()) {
        ([one], [step]) if one.single().is_some() => step_code(step),
        (_, ended) => u8::from(!ended.iter().all(|step| step.state == StepState::Succeeded)),
    }
}

/// Returns a step's own exit code.
pub(super) fn step_code(step: &StepView) -> u8 {
    let told = step.ending.as_ref().map_or(0, Ending::shell_code);
    match (step.state, u8::try_from(told)) {
        (StepState::Succeeded, _) => 0,
        // Whatever else it says, a step that did not succeed does not look as if it had.
        (_, Ok(0) | Err(_)) => 1,
        (_, Ok(code)) => code,
    }
}
