//! `fairq edit`: change what was asked for of a step that waits.

use std::ffi::OsString;

use clap::Args;

use super::answer::tell;
use super::steer;
use crate::cli::enqueue::{self, Maker, StepOptions};
use crate::cli::words::{self, IdRange};
use crate::cli::{Context, Done, show};
use crate::error::{Error, ErrorKind, Result};
use crate::store::Action;

/// Change a step that waits
///
/// What is not named stays. Variables are added to those that the step has; labels and limits take
/// the place of those that it has. An empty name, tag or flow takes it away; the word none takes away
/// limits, an expiry, a time-out, exit codes and a bound of the output.
/// A step that runs or is over is refused, with exit code 1. A step of another key stays on its shard.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq edit a17 -b urgent -w 2
  fairq edit a17 --at now                     due at once
  fairq edit a17 --retries 3 --timeout 10m
  fairq edit a17 --name '' --flow ''          without a name and out of its flow
  fairq edit a17 --limit none --expire none   of no limit, and for as long as it takes
  fairq edit a17 -- make -j4                  another command")]
pub(in crate::cli) struct EditArgs {
    /// The step
    #[arg(value_name = "ID", value_parser = words::ids)]
    id: IdRange,
    #[command(flatten)]
    options: StepOptions,
    /// A line for sh -c, however many words
    #[arg(short = 'c', long, value_name = "LINE", conflicts_with_all = ["argv", "command"])]
    shell: Option<OsString>,
    /// Take even one word as an exact argv
    #[arg(long)]
    argv: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Another command; options for fairq end at its first word
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    command: Vec<OsString>,
}

pub(in crate::cli) fn run(args: &EditArgs, context: &mut Context) -> Result<Done> {
    let id = args.id.single().ok_or_else(|| {
        Error::new(ErrorKind::Usage, "edit takes one step")
            .hint("fairq hold, release, retry and cancel take several")
    })?;
    let new_command = args.shell.is_some() || !args.command.is_empty();
    if args.options == StepOptions::default() && !new_command {
        return Err(Error::new(ErrorKind::Usage, "there is nothing to change")
            .hint("fairq edit --help shows what can be"));
    }
    let store = context.store_with_steps()?;
    let step = show::find(&store, id)?;
    let maker = Maker::new(context, Some(&store), context.clock.now());
    let mut edit = maker.edit(&args.options, &step)?;
    if new_command {
        let command = enqueue::command(args.shell.as_ref(), args.argv, &args.command)?;
        enqueue::check(&command, "the command")?;
        edit.command = Some(command);
    }
    let answers = steer(context, &store, &[id], &Action::from(edit), None)?;
    tell(context, &answers, "changed", args.json, false)
}
