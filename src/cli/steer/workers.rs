//! `fairq workers`: how many steps live runners run at once.

use clap::Args;
use serde::Serialize;

use crate::cli::render::{number, text};
use crate::cli::{Context, Done, words};
use crate::error::{Error, ErrorKind, Result};
use crate::model::RunnerId;
use crate::presence;
use crate::presence::control::{Question, ask};
use crate::store::sqlite::runners_dir;

/// Set how many steps the live runners run at once
///
/// It holds until the runner ends. What runs already goes on: with fewer workers, the next steps wait
/// until enough have ended. Exits with 3 if no runner is alive.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq workers 8                             of each live runner
  fairq workers 2 --runner 6f0c…              of this one; fairq status names them")]
pub(in crate::cli) struct WorkersArgs {
    /// How many
    #[arg(value_name = "N", value_parser = words::number)]
    workers: u32,
    /// Only this runner
    #[arg(long, value_name = "RUNNER")]
    runner: Option<RunnerId>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct WorkersJson {
    runners: Vec<Resized>,
}

#[derive(Serialize)]
struct Resized {
    runner: RunnerId,
    pid: Option<u32>,
    /// How many it has now; null if it did not answer.
    workers: Option<u32>,
    error: Option<String>,
}

pub(in crate::cli) fn run(args: &WorkersArgs, context: &mut Context) -> Result<Done> {
    let runners = runners_dir(&context.settings.store);
    let mut alive = presence::alive(&runners)?;
    if let Some(only) = args.runner {
        alive.retain(|(runner, _)| *runner == only);
    }
    if alive.is_empty() {
        let what = match args.runner {
            Some(runner) => format!("no runner {runner} is alive"),
            None => "no runner is alive".to_owned(),
        };
        return Err(Error::new(ErrorKind::NotFound, what)
            .hint("start one with that many: fairq run --workers N"));
    }
    let question = Question::Resize {
        workers: args.workers as usize,
    };
    let mut all = Vec::new();
    let mut refusal = None;
    for (runner, card) in alive {
        let answer = ask(&runners, runner, &question);
        let (workers, error) = match answer {
            Ok(_) => (Some(args.workers), None),
            Err(error) => {
                let told = error.to_string();
                refusal = Some(error);
                (None, Some(told))
            }
        };
        let said = error.as_ref().map_or_else(
            || {
                let steps = number::many(u64::from(args.workers), "step");
                format!("runner {runner} runs {steps} at once")
            },
            |error| format!("warning: {}", text::shown(error)),
        );
        context.screen.talk(&said);
        all.push(Resized {
            runner,
            pid: card.map(|card| card.pid),
            workers,
            error,
        });
    }
    if args.json {
        context.screen.json(&WorkersJson { runners: all })?;
    }
    match refusal {
        Some(error) => Ok(Done::Code(error.kind().exit_code())),
        None => Ok(Done::Well),
    }
}
