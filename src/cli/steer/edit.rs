//! `fairq edit`: change what was asked for of a step that waits.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use super::answer::{Answer, tell};
use super::steer;
use crate::cli::words::{self, IdRange};
use crate::cli::{Context, Done, show};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Command, Environment, FairnessKey, Span, Weight};
use crate::store::{Action, Edit, StepView};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

/// Change a step that waits
///
/// What is not named stays. Names of variables are added to those that it has. A step that runs or is
/// over is refused, with exit code 1. A step of another key stays on its shard.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq edit a17 -b urgent -w 2
  fairq edit a17 --at now                     due at once
  fairq edit a17 --retries 3 --timeout 10m
  fairq edit a17 --name '' --flow ''          without a name and out of its flow
  fairq edit a17 -- make -j4                  another command")]
pub(in crate::cli) struct EditArgs {
    /// The step
    #[arg(value_name = "ID", value_parser = words::ids)]
    id: IdRange,
    /// How urgent it is: a number, lower first, or a name from the configuration
    #[arg(short, long, value_name = "BAND", allow_hyphen_values = true)]
    band: Option<String>,
    /// Whom it is run for
    #[arg(short, long, value_name = "KEY")]
    key: Option<FairnessKey>,
    /// The key's share beside others, a number above 0
    #[arg(short, long, value_name = "WEIGHT", allow_hyphen_values = true)]
    weight: Option<Weight>,
    /// A name for people; an empty one takes it away
    #[arg(short, long, value_name = "NAME")]
    name: Option<String>,
    /// Labels in place of those that it has (repeatable); an empty one takes all away
    #[arg(short, long, value_name = "TAG")]
    tag: Vec<String>,
    /// The flow that it belongs to; an empty one takes it out
    #[arg(long, value_name = "NAME")]
    flow: Option<String>,
    /// Not before so long from now (90s, 1h30m, 2d)
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = words::span,
        conflicts_with = "at",
        allow_hyphen_values = true
    )]
    delay: Option<Span>,
    /// Not before this time (now, RFC 3339, now+1h, 16:00)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    at: Option<String>,
    /// How often it is tried again after a failure
    #[arg(long, value_name = "N", value_parser = words::number)]
    retries: Option<u32>,
    /// How long one try may run; 0 for as long as it takes
    #[arg(long, value_name = "DURATION", value_parser = words::span, allow_hyphen_values = true)]
    timeout: Option<Span>,
    /// Run it in this directory
    #[arg(short = 'C', long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Set a variable (repeatable)
    #[arg(short, long, value_name = "NAME=VALUE")]
    env: Vec<OsString>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Another command: one word is a shell line, two or more are an exact argv
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    command: Vec<OsString>,
}

pub(in crate::cli) fn run(args: &EditArgs, context: &mut Context) -> Result<Done> {
    let id = args.id.single().ok_or_else(|| {
        Error::new(ErrorKind::Usage, "edit takes one step")
            .hint("fairq hold, release, retry and cancel take several")
    })?;
    let store = context.store_with_steps()?;
    let step = show::find(&store, id)?;
    let edit = edit(args, context, &step)?;
    let ids = [id];
    let steered = steer(context, &store, &ids, &Action::Edit(edit))?;
    let answers: Vec<Answer> = ids
        .iter()
        .zip(steered)
        .map(|(id, steered)| Answer::new(*id, steered, None))
        .collect();
    tell(context, &answers, "changed", args.json, false)
}

fn edit(args: &EditArgs, context: &Context, step: &StepView) -> Result<Edit> {
    let some = |text: &String| (!text.is_empty()).then(|| text.clone());
    let now = context.clock.now();
    let due = match (&args.delay, &args.at) {
        (Some(delay), _) => Some(now + *delay),
        (None, Some(at)) => Some(context.zone.read(at, now)?),
        (None, None) => None,
    };
    let mut policy = step.policy.clone();
    if let Some(retries) = args.retries {
        policy.retries = retries;
    }
    if let Some(timeout) = args.timeout {
        policy.timeout = (timeout.millis() > 0).then_some(timeout);
    }
    let band = args.band.as_ref();
    let edit = Edit {
        command: command(args)?,
        cwd: args
            .cwd
            .as_deref()
            .map(|cwd| directory(cwd, context))
            .transpose()?,
        env: env(args, step)?,
        band: band
            .map(|band| words::band(band, &context.settings))
            .transpose()?,
        key: args.key.clone(),
        weight: args.weight,
        name: args.name.as_ref().map(some),
        tags: (!args.tag.is_empty()).then(|| {
            let tags = args.tag.iter().filter(|tag| !tag.is_empty());
            tags.cloned().collect()
        }),
        flow: args.flow.as_ref().map(some),
        due: due.map(|due| (due > now).then_some(due)),
        policy: (policy != step.policy || args.retries.is_some() || args.timeout.is_some())
            .then_some(policy),
    };
    if is_empty(&edit) {
        return Err(Error::new(ErrorKind::Usage, "there is nothing to change")
            .hint("fairq edit --help shows what can be"));
    }
    Ok(edit)
}

/// Returns whether an edit leaves everything as it is.
const fn is_empty(edit: &Edit) -> bool {
    let Edit {
        command,
        cwd,
        env,
        band,
        key,
        weight,
        name,
        tags,
        flow,
        due,
        policy,
    } = edit;
    command.is_none()
        && cwd.is_none()
        && env.is_none()
        && band.is_none()
        && key.is_none()
        && weight.is_none()
        && name.is_none()
        && tags.is_none()
        && flow.is_none()
        && due.is_none()
        && policy.is_none()
}

fn command(args: &EditArgs) -> Result<Option<Command>> {
    match args.command.as_slice() {
        [] => Ok(None),
        [first, ..] if first.is_empty() => {
            Err(Error::new(ErrorKind::Usage, "the command is empty"))
        }
        [line] => Ok(Some(Command::Shell(line.clone()))),
        words => Ok(Some(Command::Argv(words.to_vec()))),
    }
}

/// Returns where it will run; it must be there now, for a mistyped one is best found here.
fn directory(given: &Path, context: &Context) -> Result<PathBuf> {
    let here = context.around.cwd.clone().unwrap_or_default();
    let path = here.join(given);
    if path.is_absolute() && path.is_dir() {
        return Ok(path);
    }
    let what = format!("--cwd {}: it is not a directory", path.display());
    Err(Error::new(ErrorKind::Usage, what).hint("nothing was changed"))
}

fn env(args: &EditArgs, step: &StepView) -> Result<Option<Arc<Environment>>> {
    if args.env.is_empty() {
        return Ok(None);
    }
    let mut vars: std::collections::BTreeMap<OsString, OsString> = step
        .env
        .pairs()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    for given in &args.env {
        let mut name = given.clone().into_vec();
        let split = name.iter().position(|byte| *byte == b'=');
        let Some(split) = split.filter(|split| *split > 0) else {
            let what = format!("--env {}: it is not NAME=VALUE", given.display());
            return Err(Error::new(ErrorKind::Usage, what).hint("nothing was changed"));
        };
        let value = name.split_off(split + 1);
        name.truncate(split);
        vars.insert(OsString::from_vec(name), OsString::from_vec(value));
    }
    Ok(Some(Arc::new(Environment::from_pairs(vars))))
}
