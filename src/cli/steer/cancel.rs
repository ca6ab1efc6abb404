//! `fairq cancel`: end steps, and wait until no process of them is left.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;

use super::answer::{Answer, Outcome, tell};
use super::steer;
use crate::cli::render::number;
use crate::cli::select::Selector;
use crate::cli::{Context, Done};
use crate::engine::Notice;
use crate::error::Result;
use crate::model::{ShardId, StepState};
use crate::presence;
use crate::store::sqlite::{SqliteStore, runners_dir};
use crate::store::{Action, Read as _, Supply as _};

/// Between two looks. A look asks each shard whether anything was written since the last one.
const PAUSE: Duration = Duration::from_millis(20);
/// After so many looks without news the runners are looked at.
const PATIENCE: u32 = 25;

/// Cancel steps, waiting or running
///
/// What waits is over at once and never starts. What runs is asked to end by its kill signal, and
/// killed after its grace; it is cancelled only when no process of it is left, and this command ends
/// only then. Steps that are over are refused. Exits with 1 if any was, or cannot be ended because
/// its runner died and no other one is there to take over.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq cancel a17
  fairq cancel -k alice                       whatever of alice waits or runs
  fairq cancel --state ready,delayed          only what has not started
  fairq cancel --all --no-wait                ask only; status shows what is still cancelling")]
pub(in crate::cli) struct CancelArgs {
    #[command(flatten)]
    select: Selector,
    /// Do not wait for running steps to end
    #[arg(long)]
    no_wait: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The states of which there is something to cancel.
const OPEN: &[StepState] = &[
    StepState::Running,
    StepState::Ready,
    StepState::Delayed,
    StepState::Blocked,
    StepState::Limited,
    StepState::Held,
];

pub(in crate::cli) fn run(args: &CancelArgs, context: &mut Context) -> Result<Done> {
    let store = context.store_with_steps()?;
    let ids = args.select.targets(context, &store, OPEN)?;
    let mut answers = steer(
        context,
        &store,
        &ids,
        &Action::Cancel,
        Some(StepState::Cancelled),
    )?;
    let left = if args.no_wait {
        false
    } else {
        await_ends(context, &store, &mut answers)?
    };
    tell(context, &answers, "cancelled", args.json, left)
}

/// Waits until all that were asked to end are over. `true` if nobody is there to end some.
fn await_ends(context: &mut Context, store: &SqliteStore, answers: &mut [Answer]) -> Result<bool> {
    let mut versions = BTreeMap::new();
    let nobody = Notice::default();
    let mut quiet = 0;
    loop {
        let before = open(answers);
        look(store, &mut versions, answers)?;
        let open = open(answers);
        if open == 0 {
            return Ok(false);
        }
        quiet = if open < before { 0 } else { quiet + 1 };
        let count = number::many(open as u64, "step");
        let standing = format!("waiting for {count} to end");
        if quiet % PATIENCE == 1 {
            context.screen.progress(&standing);
            if is_forsaken(store)? {
                context.screen.talk(&format!(
                    "the runner of {count} has died; the next fairq run ends what is left of them"
                ));
                return Ok(true);
            }
        }
        nobody.wait(nobody.seen(), PAUSE);
    }
}

fn open(answers: &[Answer]) -> usize {
    let asked = answers.iter().filter(|one| one.result == Outcome::Asked);
    asked.count()
}

/// Looks again at those that were asked to end and whose shard was written since the last look.
fn look(
    store: &SqliteStore,
    versions: &mut BTreeMap<ShardId, u64>,
    answers: &mut [Answer],
) -> Result<()> {
    let mut changed = BTreeMap::new();
    for answer in answers
        .iter_mut()
        .filter(|one| one.result == Outcome::Asked)
    {
        let shard = answer.id.shard;
        let news = match changed.get(&shard) {
            Some(news) => *news,
            None => {
                let version = store.version(shard)?;
                let news = versions.insert(shard, version) != Some(version);
                changed.insert(shard, news);
                news
            }
        };
        if !news {
            continue;
        }
        match store.get(answer.id)? {
            Some(step) if !step.state.is_final() => answer.runner = step.runner.or(answer.runner),
            over => {
                answer.result = Outcome::Done;
                answer.to = over.map(|step| step.state);
            }
        }
    }
    Ok(())
}

/// Returns whether no runner lives that could end what is left. Any live one takes over from the
/// dead.
fn is_forsaken(store: &SqliteStore) -> Result<bool> {
    let alive = presence::alive(&runners_dir(store.root()))?;
    Ok(alive.is_empty())
}
