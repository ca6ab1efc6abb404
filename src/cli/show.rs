//! `fairq show`: everything about a step.

use clap::Args;
use serde::Serialize;

use super::render::table::Column;
use super::render::{Cell, Table, quote, text};
use super::select::no_such_step;
use super::status::tone;
use super::step_json::StepJson;
use super::words::{self, IdRange};
use super::{Context, Done};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{StepId, StepState, Timestamp};
use crate::store::{Attempt, Read as _, StepView};

/// Show everything about a step
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq show a17
  fairq show a17 --show-env                   with the values of its variables
  fairq show a17 --json | jq -r '.step.command'   paste it into a shell")]
pub(super) struct ShowArgs {
    /// The step
    #[arg(value_name = "ID", value_parser = words::ids)]
    id: IdRange,
    /// Show the values of its variables, which may be secret
    #[arg(long)]
    show_env: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Shown<'s> {
    step: StepJson<'s>,
    /// Names, and values if they were asked for; bytes that are no UTF-8 are replaced.
    env: Vec<(String, Option<String>)>,
}

pub(super) fn run(args: &ShowArgs, context: &mut Context) -> Result<Done> {
    let id = args.id.single().ok_or_else(|| {
        Error::new(ErrorKind::Usage, "show takes one step").hint("fairq status a5-a9 lists several")
    })?;
    let store = context.store_with_steps()?;
    let step = find(&store, id)?;
    let attempts = store.attempts(id)?;
    if args.json {
        let env = step
            .env
            .pairs()
            .map(|(name, value)| {
                let value = args.show_env.then(|| value.to_string_lossy().into_owned());
                (name.to_string_lossy().into_owned(), value)
            })
            .collect();
        let step = StepJson::new(&step).with_attempts(&attempts);
        context.screen.json(&Shown { step, env })?;
        return Ok(Done::Well);
    }
    let mut table = Table::new([Column::words("FIELD"), Column::text("VALUE")]);
    for (field, value) in facts(context, &step) {
        let cell = Cell::new(value);
        table.row([
            Cell::new(field),
            if field == "state" {
                cell.tone(tone(step.state))
            } else {
                cell
            },
        ]);
    }
    for attempt in &attempts {
        table.row([
            Cell::new(format!("try {}", attempt.fence)),
            Cell::new(attempt_line(context, attempt)),
        ]);
    }
    if args.show_env {
        for (name, value) in step.env.pairs() {
            let line = [name.as_encoded_bytes(), b"=", value.as_encoded_bytes()].concat();
            table.row([Cell::new("env"), Cell::new(line)]);
        }
    } else {
        let count = step.env.pairs().count();
        table.row([
            Cell::new("env"),
            Cell::new(format!("{count} variables (--show-env shows their values)")),
        ]);
    }
    context.screen.table(&table)?;
    // By itself and whole: what a terminal cuts off cannot be pasted.
    if context.screen.is_terminal() {
        context.screen.line("")?;
        context.screen.line(&quote::command_shown(&step.command))?;
    }
    Ok(Done::Well)
}

/// Finds a step or says that there is none.
pub(super) fn find(store: &crate::store::sqlite::SqliteStore, id: StepId) -> Result<StepView> {
    store.get(id)?.ok_or_else(|| no_such_step(&id.to_string()))
}

fn facts(context: &Context, step: &StepView) -> Vec<(&'static str, String)> {
    let time = |instant: Timestamp| {
        if context.screen.is_terminal() {
            context.zone.show(instant)
        } else {
            instant.to_string()
        }
    };
    let mut facts = vec![
        ("id", step.id.to_string()),
        ("state", step.state.to_string()),
        ("command", quote::command_shown(&step.command)),
        ("cwd", step.cwd.display().to_string()),
        ("band", step.band.to_string()),
        ("key", step.key.to_string()),
        ("weight", step.weight.to_string()),
    ];
    if let Some(name) = &step.name {
        facts.push(("name", name.clone()));
    }
    if !step.tags.is_empty() {
        facts.push(("tags", step.tags.join(", ")));
    }
    facts.push(("enqueued", time(step.created)));
    match step.state {
        StepState::Running => facts.push(("claimed", time(step.at))),
        StepState::Ready => facts.push(("due since", time(step.at))),
        StepState::Delayed => facts.push(("due at", time(step.at))),
        StepState::Blocked => facts.push(("blocked", "until other steps have ended".to_owned())),
        StepState::Limited => facts.push(("limited", "until a limit has a free place".to_owned())),
        StepState::Held => facts.push(("held", "until somebody releases it".to_owned())),
        StepState::Succeeded | StepState::Failed | StepState::Cancelled => {
            facts.push(("ended", time(step.at)));
        }
    }
    if let Some(runner) = step.runner {
        facts.push(("runner", runner.to_string()));
    }
    if let Some(ending) = &step.ending {
        facts.push(("result", ending.to_string()));
    }
    facts
}

fn attempt_line(context: &Context, attempt: &Attempt) -> String {
    let began = attempt.started.unwrap_or(attempt.claimed);
    text::shown(format!(
        "{} after {}, {} waiting, by runner {} worker {}",
        attempt.ending,
        attempt.ended.since(began),
        attempt.claimed.since(attempt.since),
        attempt.runner,
        attempt.worker,
    )) + &format!(", ended {}", context.zone.show(attempt.ended))
}
