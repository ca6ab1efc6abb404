//! `fairq show`: everything about a step.

use clap::Args;
use nix::sys::signal::Signal;
use serde::Serialize;

use super::explain::joined;
use super::render::table::Column;
use super::render::{Cell, Table, number, quote, text};
use super::select::no_such_step;
use super::status::{state, tone};
use super::step_json::StepJson;
use super::words::{self, IdRange};
use super::{Context, Done};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Backoff, Ending, OnLost, Policy, StepId, StepState, Timestamp};
use crate::store::{Attempt, Link, Read as _, StepView};

/// So many dependents are named.
const MOST_NAMED: usize = 20;

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
    let parents = store.parents(id)?;
    let dependents = store.dependents(id)?;
    if args.json {
        let env = step
            .env
            .pairs()
            .map(|(name, value)| {
                let value = args.show_env.then(|| value.to_string_lossy().into_owned());
                (name.to_string_lossy().into_owned(), value)
            })
            .collect();
        let step = StepJson::new(&step)
            .with_attempts(&attempts)
            .with_links(&parents, &dependents);
        context.screen.json(&Shown { step, env })?;
        return Ok(Done::Well);
    }
    let mut table = Table::new([Column::words("FIELD"), Column::text("VALUE")]);
    let facts = [
        facts(context, &step),
        links(&parents, &dependents),
        policy(context, &step.policy),
    ];
    for (field, value) in facts.concat() {
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

fn time(context: &Context, instant: Timestamp) -> String {
    if context.screen.is_terminal() {
        context.zone.show(instant)
    } else {
        instant.to_string()
    }
}

fn facts(context: &Context, step: &StepView) -> Vec<(&'static str, String)> {
    let time = |instant| time(context, instant);
    let mut facts = vec![
        ("id", step.id.to_string()),
        ("state", state(step).to_owned()),
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
    if let Some(flow) = &step.flow {
        facts.push(("flow", flow.clone()));
    }
    facts.push(("enqueued", time(step.created)));
    match step.state {
        StepState::Running => facts.push(("claimed", time(step.at))),
        StepState::Ready => facts.push(("due since", time(step.at))),
        StepState::Delayed => facts.push(("due at", time(step.at))),
        StepState::Blocked => facts.push(("blocked", "until other steps have ended".to_owned())),
        StepState::Limited => {
            let limit = step.limit.as_ref();
            let of = limit.map_or_else(|| "a limit".to_owned(), |name| format!("limit {name}"));
            facts.push(("limited", format!("until {of} has a free place")));
        }
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
        if let Some(why) = given_up(step) {
            facts.push(("why", why));
        }
    }
    facts
}

/// Says why a step that is to be run again when its runner dies has failed by that all the same.
pub(super) fn given_up(step: &StepView) -> Option<String> {
    let is_lost = step.state == StepState::Failed && step.ending == Some(Ending::Lost);
    (is_lost && step.policy.on_lost == OnLost::Retry).then(|| {
        format!(
            "{} runners in a row died while it ran, so it is not run again of itself; \
             fairq retry {} does",
            Policy::MAX_LOST,
            step.id
        )
    })
}

/// Returns what the step waits for, and what waits for it.
fn links(parents: &[Link], dependents: &[StepId]) -> Vec<(&'static str, String)> {
    let mut facts: Vec<(&'static str, String)> = parents
        .iter()
        .map(|link| {
            let state = link.state.map_or("not kept any more", StepState::word);
            let met = if link.met { "met" } else { "not met" };
            let need = link.need.word();
            (
                "after",
                format!("{need} of {} ({state}): {met}", link.parent),
            )
        })
        .collect();
    if !dependents.is_empty() {
        let more = dependents.len().saturating_sub(MOST_NAMED);
        let mut named: Vec<String> = dependents
            .iter()
            .take(MOST_NAMED)
            .map(ToString::to_string)
            .collect();
        if more > 0 {
            named.push(format!("{} more", number::count(more as u64)));
        }
        facts.push(("before", joined(&named)));
    }
    facts
}

/// Returns what of the policy is not as it is for all.
fn policy(context: &Context, policy: &Policy) -> Vec<(&'static str, String)> {
    let usual = Policy::default();
    let codes = |codes: &[u8]| {
        let codes: Vec<String> = codes.iter().map(ToString::to_string).collect();
        codes.join(", ")
    };
    let mut facts = Vec::new();
    if policy.retries > 0 {
        let Backoff { base, factor, cap } = policy.backoff;
        let times = number::many(u64::from(policy.retries), "time");
        let waits = format!("after {base}, each time {factor} times as long, at most {cap}");
        facts.push(("retries", format!("{times}, {waits}")));
    }
    if !policy.retry_on.is_empty() {
        facts.push(("retried on", codes(&policy.retry_on)));
    }
    if !policy.no_retry_on.is_empty() {
        facts.push(("not retried on", codes(&policy.no_retry_on)));
    }
    if let Some(timeout) = policy.timeout {
        facts.push(("timeout", timeout.to_string()));
    }
    if policy.kill_signal != usual.kill_signal {
        let name = Signal::try_from(policy.kill_signal).map(Signal::as_str);
        let number = || policy.kill_signal.to_string();
        facts.push(("kill signal", name.map_or_else(|_| number(), str::to_owned)));
    }
    if policy.grace != usual.grace {
        facts.push(("grace", policy.grace.to_string()));
    }
    if let Some(expire) = policy.expire {
        let instant = time(context, expire);
        facts.push(("expires", format!("if not started by {instant}")));
    }
    for (name, places) in &policy.limits {
        let places = number::many(u64::from(*places), "place");
        facts.push(("limit", format!("{name}: {places}")));
    }
    if let Some(most) = policy.max_output {
        facts.push(("max output", number::bytes(most)));
    }
    match policy.on_lost {
        OnLost::Retry => {}
        OnLost::Fail => facts.push(("on lost", "fail".to_owned())),
        OnLost::Hold => facts.push(("on lost", "hold".to_owned())),
    }
    for (name, value) in &policy.vars {
        facts.push(("member", text::shown(format!("{name}={value}"))));
    }
    if policy.leave_group {
        facts.push(("leaves", "processes of its group behind".to_owned()));
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
