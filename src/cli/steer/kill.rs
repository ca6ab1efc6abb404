//! `fairq kill`: send a signal to what steps run.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use serde_json::Value;

use super::answer::{Answer, Outcome, tell};
use crate::cli::render::text;
use crate::cli::select::Selector;
use crate::cli::{Context, Done, words};
use crate::error::Result;
use crate::model::{RunnerId, StepId, StepState};
use crate::presence::control::{Question, ask};
use crate::store::Read as _;
use crate::store::sqlite::runners_dir;

/// So many steps are named in one question to a runner.
const MOST_ASKED: usize = 1_000;

/// Send a signal to running steps
///
/// It goes to the whole process group of each. What a step makes of it is its own business: one that
/// ends by it has failed, and may be tried again by its --retries; fairq cancel ends a step for good.
/// Exits with 1 if one does not run.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq kill -s HUP a17                       so that it reads its settings again
  fairq kill -s STOP -k alice; fairq kill -s CONT -k alice
  fairq cancel a17                            end it for good")]
pub(in crate::cli) struct KillArgs {
    /// The signal: TERM, SIGTERM or 15
    #[arg(short, long, value_name = "SIGNAL", value_parser = words::signal, default_value = "TERM")]
    signal: i32,
    #[command(flatten)]
    select: Selector,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(in crate::cli) fn run(args: &KillArgs, context: &mut Context) -> Result<Done> {
    let store = context.store_with_steps()?;
    let ids = args
        .select
        .targets(context, &store, &[StepState::Running])?;
    let mut answers = Vec::with_capacity(ids.len());
    let mut running: BTreeMap<RunnerId, Vec<(StepId, u32)>> = BTreeMap::new();
    for id in ids {
        let step = store.get(id)?;
        let state = step.as_ref().map(|step| step.state);
        let runner = step.as_ref().and_then(|step| step.runner);
        if let (Some(step), Some(runner)) = (&step, runner) {
            running.entry(runner).or_default().push((id, step.fence));
        }
        answers.push(Answer {
            id,
            result: if state.is_some() {
                Outcome::Refused
            } else {
                Outcome::Missing
            },
            from: state,
            to: state,
            runner,
        });
    }
    let sent = send(context, &running, args.signal);
    for answer in &mut answers {
        if sent.contains(&answer.id) {
            answer.result = Outcome::Done;
        }
    }
    tell(context, &answers, "signalled", args.json, false)
}

/// Asks each runner to signal its own, and returns those that were.
fn send(
    context: &mut Context,
    running: &BTreeMap<RunnerId, Vec<(StepId, u32)>>,
    signal: i32,
) -> BTreeSet<StepId> {
    let runners = runners_dir(&context.settings.store);
    let mut sent = BTreeSet::new();
    for (runner, steps) in running {
        for steps in steps.chunks(MOST_ASKED) {
            let steps = steps.to_vec();
            match ask(&runners, *runner, &Question::Signal { steps, signal }) {
                Ok(answer) => sent.extend(named(&answer)),
                Err(error) => {
                    let line = format!("warning: {}", text::shown(error.to_string()));
                    context.screen.talk(&line);
                }
            }
        }
    }
    sent
}

/// Returns the steps that an answer names.
fn named(answer: &Value) -> impl Iterator<Item = StepId> + '_ {
    let ids = answer["signalled"].as_array().into_iter().flatten();
    ids.filter_map(|id| id.as_str()?.parse().ok())
}
