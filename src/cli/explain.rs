//! `fairq explain`: why a step has not run, or why it ran when it did.

mod before;
mod ran;
mod reasons;
mod scene;
mod waits;

use clap::Args;
use serde::Serialize;

use self::before::{Told, Verdict};
use self::ran::{Planned, Try};
use self::reasons::Reason;
pub(super) use self::reasons::joined;
use self::scene::{Live, Place, Scene};
use super::render::{number, text};
use super::select::no_such_step;
use super::show::given_up;
use super::step_json::StepJson;
use super::words::{self, IdRange};
use super::{Context, Done};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{RunnerId, ShardId, StepId, StepState, Timestamp};
use crate::store::sqlite::{SqliteStore, decisions_dir, runners_dir};
use crate::store::{Read as _, StepView};

/// Explain why a step has not run, or why it ran when it did
///
/// Of a step that waits: every reason that holds, and what would have to change. Of one that was
/// claimed: when it fell due, was planned, claimed, started and ended, and what stood before it. It
/// asks the shards, the live runners and the logs of what runners decided; it changes nothing.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq explain a17
  fairq explain a17 --json | jq -r '.reasons[].code'
  fairq explain --before a17 b3               why a17 ran before b3, or that it did not")]
pub(super) struct ExplainArgs {
    /// The step; with --before, two
    #[arg(value_name = "ID", value_parser = words::ids, required = true, num_args = 1..=2)]
    ids: Vec<IdRange>,
    /// Explain why the first of two steps ran before the second
    #[arg(long)]
    before: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct ExplainJson<'e> {
    at: String,
    step: StepJson<'e>,
    /// Why it has not run, or never will; empty of a step that runs or has run to its own end.
    reasons: &'e [Reason],
    /// Where it stands within its key, and its key within the band; of a due step.
    place: Option<&'e Place>,
    /// The last push of each live runner that names it; of a due step.
    planned: &'e [Planned],
    /// Its tries.
    tries: &'e [Try],
    runners: &'e [Live],
    /// Shards that could not be read; better bands may have steps there.
    unreadable: &'e [(ShardId, String)],
}

/// What is left to say where the step itself cannot be read.
#[derive(Serialize)]
struct UnreadableJson<'e> {
    at: String,
    id: StepId,
    reasons: &'e [Reason],
    runners: &'e [Live],
}

#[derive(Serialize)]
struct BeforeJson<'e> {
    at: String,
    a: StepJson<'e>,
    b: StepJson<'e>,
    #[serde(flatten)]
    verdict: &'e Verdict,
    a_tries: &'e [Try],
    b_tries: &'e [Try],
}

pub(super) fn run(args: &ExplainArgs, context: &mut Context) -> Result<Done> {
    let ids: Option<Vec<StepId>> = args.ids.iter().map(|range| range.single()).collect();
    let store = match (ids.as_deref(), args.before) {
        (Some([_]), false) | (Some([_, _]), true) => context.store_with_steps()?,
        (_, true) => {
            return Err(Error::new(ErrorKind::Usage, "--before compares two steps")
                .hint("fairq explain --before a17 b3"));
        }
        (_, false) => {
            return Err(Error::new(ErrorKind::Usage, "explain takes one step")
                .hint("fairq explain --before a17 b3 compares two"));
        }
    };
    match ids.as_deref() {
        Some([a, b]) => compare(args, context, &store, *a, *b),
        Some([id]) => explain(args, context, &store, *id),
        Some(_) | None => Ok(Done::Well),
    }
}

fn explain(
    args: &ExplainArgs,
    context: &mut Context,
    store: &SqliteStore,
    id: StepId,
) -> Result<Done> {
    let now = context.clock.now();
    let runners = runners_dir(store.root());
    let step = match store.get(id) {
        Ok(step) => step.ok_or_else(|| no_such_step(&id.to_string()))?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(error),
        Err(error) => return unreadable(args, context, id, &error, &scene::live(&runners)?),
    };
    let attempts = store.attempts(id)?;
    let dir = decisions_dir(store.root());
    let mut tries = ran::tries(&step, &attempts, &dir)?;
    let waits = !step.state.is_final() && step.state != StepState::Running;
    let scene = if waits {
        Scene::around(&step, store, &runners, now)?
    } else {
        Scene {
            now,
            runners: scene::live(&runners)?,
            parents: store.parents(id).unwrap_or_default(),
            ..Scene::default()
        }
    };
    let reasons = if waits {
        reasons::all(&step, &attempts, &scene, |at| time(context, at))
    } else {
        waits::over(&step, &scene).into_iter().collect()
    };
    let mut planned = Vec::new();
    if step.state == StepState::Ready {
        for live in &scene.runners {
            planned.extend(ran::planned_until(&dir, live.runner, id, now)?);
        }
    }
    find_worker(&step, &scene.runners, &mut tries);
    if args.json {
        context.screen.json(&ExplainJson {
            at: now.to_string(),
            step: StepJson::new(&step),
            reasons: &reasons,
            place: scene.place.as_ref(),
            planned: &planned,
            tries: &tries,
            runners: &scene.runners,
            unreadable: &scene.unreadable,
        })?;
        return Ok(Done::Well);
    }
    say(context, &headline(context, &step))?;
    print_reasons(context, &reasons)?;
    for planned in &planned {
        let line = format!("planned by runner {}: {}", planned.runner, stood(planned));
        say(context, &line)?;
    }
    for one in &tries {
        print_try(context, one)?;
    }
    Ok(Done::Well)
}

/// Adds to the running try what only its runner knows.
fn find_worker(step: &StepView, runners: &[Live], tries: &mut [Try]) {
    let crews = runners
        .iter()
        .filter(|live| Some(live.runner) == step.runner);
    let busy = crews
        .filter_map(|live| live.crew.as_ref())
        .flat_map(|crew| &crew.running)
        .find(|busy| busy.id == step.id);
    if let (Some(busy), Some(running)) = (busy, tries.last_mut())
        && step.state == StepState::Running
    {
        running.worker = Some(busy.worker);
        running.pid = busy.pid;
    }
}

fn unreadable(
    args: &ExplainArgs,
    context: &mut Context,
    id: StepId,
    error: &Error,
    runners: &[Live],
) -> Result<Done> {
    let mut reasons = vec![reasons::unread(id.shard, &error.to_string())];
    reasons.extend(reasons::runners_for(id, false, runners));
    if args.json {
        context.screen.json(&UnreadableJson {
            at: context.clock.now().to_string(),
            id,
            reasons: &reasons,
            runners,
        })?;
    } else {
        say(context, &format!("nothing can be told of {id} itself"))?;
        print_reasons(context, &reasons)?;
    }
    Ok(Done::Code(error.kind().exit_code()))
}

fn compare(
    args: &ExplainArgs,
    context: &mut Context,
    store: &SqliteStore,
    a: StepId,
    b: StepId,
) -> Result<Done> {
    let dir = decisions_dir(store.root());
    let told = |id| {
        let step = super::show::find(store, id)?;
        let tries = ran::tries(&step, &store.attempts(id)?, &dir)?;
        Ok::<_, Error>((step, tries))
    };
    let (one, other) = (told(a)?, told(b)?);
    let verdict = before::verdict(
        Told {
            step: &one.0,
            tries: &one.1,
        },
        Told {
            step: &other.0,
            tries: &other.1,
        },
        &dir,
    )?;
    if args.json {
        context.screen.json(&BeforeJson {
            at: context.clock.now().to_string(),
            a: StepJson::new(&one.0),
            b: StepJson::new(&other.0),
            verdict: &verdict,
            a_tries: &one.1,
            b_tries: &other.1,
        })?;
        return Ok(Done::Well);
    }
    say(context, &verdict.sentence)?;
    for ground in &verdict.grounds {
        say(context, &format!("  {}: {}", ground.code, ground.sentence))?;
    }
    Ok(Done::Well)
}

/// Prints a line that may hold words of users.
fn say(context: &mut Context, line: &str) -> Result<()> {
    context.screen.line(&text::shown(line))
}

fn time(context: &Context, instant: Timestamp) -> String {
    if context.screen.is_terminal() {
        context.zone.show(instant)
    } else {
        instant.to_string()
    }
}

fn headline(context: &Context, step: &StepView) -> String {
    let what = format!(
        "{} (band {}, key {}, weight {})",
        step.id, step.band, step.key, step.weight
    );
    match step.state {
        StepState::Running if step.cancelling => {
            format!("{what} runs, and its end has been asked for")
        }
        StepState::Running => format!("{what} runs"),
        StepState::Ready => {
            let since = time(context, step.at);
            format!("{what} has not run; it has been due since {since}, because")
        }
        StepState::Delayed | StepState::Blocked | StepState::Limited | StepState::Held => {
            format!("{what} has not run, because")
        }
        StepState::Succeeded | StepState::Failed => match given_up(step) {
            Some(why) => format!("{what} has {}: {why}", step.state),
            None => format!("{what} has {}", step.state),
        },
        StepState::Cancelled => format!("{what} was cancelled"),
    }
}

fn print_reasons(context: &mut Context, reasons: &[Reason]) -> Result<()> {
    for reason in reasons {
        say(context, &format!("  {}: {}", reason.code, reason.sentence))?;
        say(context, &format!("    ends when {}", reason.changes))?;
    }
    Ok(())
}

/// Says where a step stood in a push.
fn stood(planned: &Planned) -> String {
    let ahead: Vec<String> = planned
        .ahead
        .iter()
        .rev()
        .take(5)
        .rev()
        .map(|ahead| format!("{} ({})", ahead.id, ahead.key))
        .collect();
    format!(
        "cycle {} of shard {} at {}, place {} of {}, turn {:.3}{}",
        planned.cycle,
        planned.shard,
        planned.at,
        planned.place,
        planned.of,
        planned.turn,
        match planned.ahead.len() {
            0 => String::new(),
            count if count > ahead.len() => format!(
                ", behind {} more and {}",
                number::count((count - ahead.len()) as u64),
                joined(&ahead)
            ),
            _ => format!(", behind {}", joined(&ahead)),
        }
    )
}

fn print_try(context: &mut Context, one: &Try) -> Result<()> {
    let worker = one
        .worker
        .map_or_else(String::new, |worker| format!(" worker {worker}"));
    let pid = one
        .pid
        .map_or_else(String::new, |pid| format!(" pid {pid}"));
    let planned = one
        .planned
        .as_ref()
        .map_or_else(|| not_known(one.runner, one.log_from), stood);
    let mut lines = vec![
        format!("try {} by runner {}{worker}{pid}", one.fence, one.runner),
        format!("  due since {}", time(context, one.due_since)),
        format!("  planned   {planned}"),
    ];
    if let Some(taken) = one
        .taken_from
        .as_ref()
        .filter(|it| Some(*it) != one.planned.as_ref())
    {
        lines.push(format!("  taken     {}", stood(taken)));
    }
    let waited = one.claimed.since(one.due_since);
    lines.push(format!(
        "  claimed   {} after {waited}",
        time(context, one.claimed)
    ));
    if let Some(started) = one.started {
        lines.push(format!("  started   {}", time(context, started)));
    }
    if let (Some(ended), Some(ending)) = (one.ended, &one.ending) {
        lines.push(format!("  ended     {}: {ending}", time(context, ended)));
    }
    lines.iter().try_for_each(|line| say(context, line))
}

fn not_known(runner: RunnerId, log_from: Option<Timestamp>) -> String {
    match log_from {
        Some(from) => format!(
            "not in the log of runner {runner}, which goes back to {from} and is written up to a second late"
        ),
        None => format!("not known any more: there is no log of runner {runner}"),
    }
}
