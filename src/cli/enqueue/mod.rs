//! `fairq enqueue`: put steps in.

mod array;
mod batch;
mod env;
mod flow;
#[cfg(test)]
mod hostile;
mod limits;
mod make;
mod object;
mod options;
mod size;
mod spool;
mod standing;
mod terms;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use self::array::{Indices, Param};
use self::batch::Batch;
pub(super) use self::batch::command;
pub(super) use self::make::Maker;
use self::options::Said;
pub(super) use self::options::StepOptions;
pub(super) use self::size::check;
use self::terms::term;
use super::follow::{self, View};
use super::steer::pause;
use super::wait::{self, Wait};
use super::{Context, Done};
use crate::error::Result;
use crate::model::{ShardId, StepId};
use crate::presence::bell;
use crate::store::sqlite::{Mode, SqliteStore, runners_dir};
use crate::store::{Intake as _, Put};

/// Exit code where a step was there already.
const MET: u8 = 4;

/// Put steps in and print their ids
///
/// One word is a line for `sh -c`; two or more are an exact argv, byte for byte, with no shell
/// between. The step runs in the present directory with the present environment. What is printed is
/// stored: it survives a power cut.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq enqueue 'make -j8 | tee log'              one word: a shell line
  fairq enqueue -- touch \"Let's go\"               two or more: an exact argv
  fairq enqueue -k alice -w 3 -b urgent ./train.sh
  fairq enqueue --retries 3 --timeout 10m --limit gpu ./train.sh
  fairq enqueue --after a3,a5-a9 ./report.sh      when all of them have succeeded
  fairq enqueue --unique nightly --follow ./nightly.sh
  fairq enqueue --array 0-99 ./render.sh {}       a hundred steps
  fairq enqueue --param lr=0.1,0.01 --param seed=1,2 ./train.sh {lr} {seed}
  find . -name '*.gz' | sed 's/.*/zcat & | wc -c/' | fairq enqueue --from -
  fairq enqueue --file flow.toml                  steps that wait for each other
  fairq enqueue --dry-run -k bob true             where it would stand; nothing is stored")]
pub(super) struct EnqueueArgs {
    #[command(flatten)]
    said: Said,
    /// Exit with code 4 if a step of the unique key is there already
    #[arg(long, requires = "unique", help_heading = "Once only")]
    unique_fail: bool,
    /// Take a shell line from each line of this file, or of standard input (-)
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["shell", "argv", "command", "array", "param", "from_ndjson", "file"],
        help_heading = "Many at once"
    )]
    from: Option<PathBuf>,
    /// The lines of --from end with NUL
    // The conflicts are those of --from: clap asks for nothing that what is there would forbid.
    #[arg(
        short = '0',
        long,
        requires = "from",
        conflicts_with_all = ["shell", "argv", "command"],
        help_heading = "Many at once"
    )]
    null: bool,
    /// Take a step from each line of this file, or of standard input (-): a JSON object with a
    /// command and any of the options
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["shell", "argv", "command", "array", "param", "file"],
        help_heading = "Many at once"
    )]
    from_ndjson: Option<PathBuf>,
    /// Take named steps that may wait for each other from this file
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["shell", "argv", "command", "array", "param"],
        help_heading = "Many at once"
    )]
    file: Option<PathBuf>,
    /// A step for each number (0-99, 1,5,9, 0-10:2), which takes the place of {} and is the
    /// step's `FAIRQ_ARRAY_INDEX`
    #[arg(long, value_name = "NUMBERS", value_parser = term::<Indices>, help_heading = "Many at once")]
    array: Option<Indices>,
    /// A step for each value, which takes the place of {NAME} and is the variable NAME (repeatable:
    /// for each combination)
    #[arg(long, value_name = "NAME=VALUE,VALUE", value_parser = term::<Param>, help_heading = "Many at once")]
    param: Vec<Param>,
    /// A line for sh -c, however many words
    #[arg(short = 'c', long, value_name = "LINE", conflicts_with_all = ["argv", "command"])]
    shell: Option<OsString>,
    /// Take even one word as an exact argv
    #[arg(long)]
    argv: bool,
    /// Wait until it has ended and exit with its code; with 1 if one of several did not succeed
    #[arg(long, conflicts_with = "dry_run")]
    wait: bool,
    /// Print what it writes until it has ended, and exit as --wait does; the id goes to standard error
    #[arg(long, conflicts_with_all = ["dry_run", "json"])]
    follow: bool,
    /// Say nothing but errors, not even the ids
    #[arg(short, long)]
    quiet: bool,
    /// Say where it would stand; store nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The command; options for fairq end at its first word
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    command: Vec<OsString>,
}

#[derive(Serialize)]
struct Enqueued {
    ids: Vec<StepId>,
    /// Those that were there already.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    met: Vec<StepId>,
    /// The names of a flow's steps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<Named>,
}

#[derive(Serialize)]
struct Named {
    id: StepId,
    name: String,
}

pub(super) fn run(args: &EnqueueArgs, context: &mut Context) -> Result<Done> {
    let now = context.clock.now();
    let existing = context.existing_store()?;
    let batch = Batch::of(args, &Maker::new(context, existing.as_ref(), now))?;
    if args.dry_run {
        return standing::dry_run(args.json, context, existing.as_ref(), &batch);
    }
    let store = match existing {
        Some(store) => store,
        None => context.store(Mode::Visit)?,
    };
    let put = match &batch {
        Batch::Whole(steps) => store.put(steps, now)?,
        Batch::Stream(stream) => {
            let maker = Maker::new(context, Some(&store), now);
            let mut steps = stream.steps(&args.said, &maker)?;
            let ids = store.pour(&stream.keys(), &mut steps, now)?;
            ids.into_iter().map(Put::New).collect()
        }
    };
    ring(&store, &put);
    let enqueued = enqueued(args, &put, &batch);
    tell(args, context, &enqueued)?;
    if !args.quiet {
        tell_pauses(context, &store, &enqueued.ids, &batch);
    }
    let met = !enqueued.met.is_empty();
    let done = await_ends(args, context, &store, &enqueued.ids)?;
    if met && args.unique_fail {
        context
            .screen
            .talk("a step of the unique key is there already: no other was put in");
        return Ok(Done::Code(MET));
    }
    Ok(done)
}

/// Wakes the runners of the shards that hold what was put in.
fn ring(store: &SqliteStore, put: &[Put]) {
    let mut shards: Vec<ShardId> = Vec::new();
    for one in put {
        if let Put::New(id) = one
            && !shards.contains(&id.shard)
        {
            shards.push(id.shard);
        }
    }
    bell::ring(&runners_dir(store.root()), &shards);
}

/// Says so if something of what was put in will not start because somebody has paused it. It is said
/// of steps that are stored already: what cannot be read is no failure.
fn tell_pauses(context: &mut Context, store: &SqliteStore, ids: &[StepId], batch: &Batch) {
    // A shard that is open already: to open another costs as much as putting the step in.
    let Some(one) = ids.first() else { return };
    let mut pauses = store.pauses_on(one.shard).unwrap_or_default();
    pauses.retain(|paused| match batch {
        Batch::Whole(steps) => steps
            .iter()
            .any(|step| paused.what.covers(step.band, &step.key)),
        Batch::Stream(stream) => stream
            .groups
            .iter()
            .any(|(band, key)| paused.what.covers(*band, key)),
    });
    pause::announce(context, &pauses);
}

fn enqueued(args: &EnqueueArgs, put: &[Put], batch: &Batch) -> Enqueued {
    let ids: Vec<StepId> = put.iter().copied().map(Put::id).collect();
    let met = put
        .iter()
        .filter_map(|put| match put {
            Put::New(_) => None,
            Put::Met(id) => Some(*id),
        })
        .collect();
    let steps = match batch {
        Batch::Whole(steps) if args.file.is_some() => ids
            .iter()
            .zip(steps)
            .filter_map(|(id, step)| {
                let name = step.name.clone()?;
                Some(Named { id: *id, name })
            })
            .collect(),
        Batch::Whole(_) | Batch::Stream(_) => Vec::new(),
    };
    Enqueued { ids, met, steps }
}

fn tell(args: &EnqueueArgs, context: &mut Context, enqueued: &Enqueued) -> Result<()> {
    if args.json {
        context.screen.json(enqueued)?;
    } else if !args.quiet {
        for id in &enqueued.ids {
            if args.follow {
                context.screen.talk(&id.to_string());
            } else {
                context.screen.line(&id.to_string())?;
            }
        }
    }
    // Whoever reads the ids does not wait for the steps.
    context.screen.flush()
}

/// Waits for what was put in, if that was asked for, and returns its code.
fn await_ends(
    args: &EnqueueArgs,
    context: &mut Context,
    store: &SqliteStore,
    ids: &[StepId],
) -> Result<Done> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    if args.follow {
        follow::follow(&View::default(), context, store, &ids)?;
        if context.screen.is_closed() {
            return Ok(Done::Well);
        }
    }
    if !args.wait && !args.follow {
        return Ok(Done::Well);
    }
    let waited = wait::until_over(&Wait::for_all(ids), context, store)?;
    Ok(Done::of(waited.code()))
}
