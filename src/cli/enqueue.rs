//! `fairq enqueue`: put steps in.

use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde::Serialize;

use super::render::{number, text};
use super::{Context, Done, words};
use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::model::{
    Band, Command, Due, Environment, FairnessKey, NewStep, OnLost, Policy, ShardId, StepId,
    Timestamp, Weight,
};
use crate::planner::{Pick, Planner};
use crate::presence::bell;
use crate::store::sqlite::{Mode, SqliteStore, runners_dir};
use crate::store::{Intake as _, Read as _, Store as _};
use crate::tally::{ShardTally, Tally};

/// The largest command or environment that is taken: beyond it no kernel starts a process.
const MOST_BYTES: usize = 2 * 1024 * 1024;
/// The largest single word or variable: Linux takes 32 pages.
const MOST_WORD: usize = 128 * 1024;

/// Put a step in and print its id
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
  find . -name '*.gz' | sed 's/.*/zcat & | wc -c/' | fairq enqueue --from -
  fairq enqueue --dry-run -k bob true             where it would stand; nothing is stored")]
pub(super) struct EnqueueArgs {
    /// How urgent it is: a number, lower first, or a name from the configuration [default: 100]
    #[arg(short, long, value_name = "BAND", allow_hyphen_values = true)]
    band: Option<String>,
    /// Whom it is run for; keys of one band share by weight
    #[arg(short, long, value_name = "KEY", default_value = "default")]
    key: FairnessKey,
    /// The key's share beside others, a number above 0
    #[arg(
        short,
        long,
        value_name = "WEIGHT",
        default_value = "1",
        allow_hyphen_values = true
    )]
    weight: Weight,
    /// A name for people
    #[arg(short, long, value_name = "NAME")]
    name: Option<String>,
    /// A label to select by (repeatable)
    #[arg(short, long, value_name = "TAG")]
    tag: Vec<String>,
    /// Not before so long from now (90s, 1h30m, 2d)
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = words::span,
        conflicts_with = "at",
        allow_hyphen_values = true
    )]
    delay: Option<crate::model::Span>,
    /// Not before this time (RFC 3339, now+1h, 16:00)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    at: Option<String>,
    /// Not before somebody releases it
    #[arg(long, conflicts_with_all = ["delay", "at"])]
    hold: bool,
    /// What becomes of it if its runner dies: retry, fail or hold
    #[arg(long, value_name = "WHAT", default_value = "retry", value_parser = on_lost)]
    on_lost: OnLost,
    /// Let processes live on that it leaves behind
    #[arg(long)]
    leave_group: bool,
    /// Run it in this directory
    #[arg(short = 'C', long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Set a variable (NAME=VALUE), or take it over (NAME) (repeatable)
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    env: Vec<OsString>,
    /// Start from an empty environment
    #[arg(long)]
    clean_env: bool,
    /// Take a shell line from each line of this file, or of standard input (-)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["shell", "argv", "command"])]
    from: Option<PathBuf>,
    /// The lines of --from end with NUL
    // The conflicts are those of --from: clap asks for nothing that what is there would forbid.
    #[arg(short = '0', long, requires = "from", conflicts_with_all = ["shell", "argv", "command"])]
    null: bool,
    /// A line for sh -c, however many words
    #[arg(short = 'c', long, value_name = "LINE", conflicts_with_all = ["argv", "command"])]
    shell: Option<OsString>,
    /// Take even one word as an exact argv
    #[arg(long)]
    argv: bool,
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
struct Enqueued<'e> {
    ids: &'e [StepId],
}

/// Where a step would stand.
#[derive(Serialize)]
struct Standing<'s> {
    shard: ShardId,
    band: Band,
    key: &'s FairnessKey,
    weight: Weight,
    /// How many steps it would be.
    steps: usize,
    /// Due steps in better bands, on all shards.
    due_in_better_bands: u64,
    /// Due steps of the same key in the same band.
    due_of_this_key: u64,
    /// Due steps of the same band.
    due_in_this_band: u64,
    /// The part of the band's slots that the key would have, from 0 to 1.
    expected_share: f64,
}

pub(super) fn run(args: &EnqueueArgs, context: &mut Context) -> Result<Done> {
    let now = context.clock.now();
    let commands = commands(args)?;
    let steps = steps(args, context, commands, now)?;
    if args.dry_run {
        return dry_run(args, context, &steps);
    }
    let store = context.store(Mode::Visit)?;
    let ids = store.enqueue(&steps, now)?;
    ring(&store, &ids);
    if args.json {
        context.screen.json(&Enqueued { ids: &ids })?;
    } else if !args.quiet {
        for id in ids {
            context.screen.line(&id.to_string())?;
        }
    }
    if !args.quiet
        && let Some(step) = steps.first()
    {
        super::steer::pause::warn_of(context, &store, step.band, &step.key);
    }
    Ok(Done::Well)
}

/// Wakes the runners of the shards that hold these steps.
fn ring(store: &SqliteStore, ids: &[StepId]) {
    let mut shards: Vec<ShardId> = ids.iter().map(|id| id.shard).collect();
    shards.sort_unstable();
    shards.dedup();
    bell::ring(&runners_dir(store.root()), &shards);
}

fn on_lost(word: &str) -> Result<OnLost, String> {
    match word {
        "retry" => Ok(OnLost::Retry),
        "fail" => Ok(OnLost::Fail),
        "hold" => Ok(OnLost::Hold),
        _ => Err("it is retry, fail or hold".to_owned()),
    }
}

/// Returns what is to be run, in the order of the ids to come.
fn commands(args: &EnqueueArgs) -> Result<Vec<Command>> {
    if let Some(from) = &args.from {
        return lines(from, args.null);
    }
    let command = match (&args.shell, args.command.as_slice()) {
        (Some(line), _) if !line.is_empty() => Command::Shell(line.clone()),
        (None, [line]) if !args.argv && !line.is_empty() => Command::Shell(line.clone()),
        (None, words) if words.first().is_some_and(|program| !program.is_empty()) => {
            Command::Argv(words.to_vec())
        }
        // Nothing, or a variable that was empty: a step that does nothing would hide the mistake.
        _ => {
            return Err(Error::new(ErrorKind::Usage, "there is no command")
                .hint("fairq enqueue 'a shell line', or fairq enqueue -- PROGRAM ARG…"));
        }
    };
    check_size(&command, "the command")?;
    Ok(vec![command])
}

/// Reads a shell line from each line of a file; empty lines are none.
fn lines(from: &Path, null: bool) -> Result<Vec<Command>> {
    let stdin = from == Path::new("-");
    let mut bytes = Vec::new();
    let read = if stdin {
        std::io::stdin().lock().read_to_end(&mut bytes)
    } else {
        std::fs::File::open(from).and_then(|mut file| file.read_to_end(&mut bytes))
    };
    let name = if stdin {
        "standard input".to_owned()
    } else {
        from.display().to_string()
    };
    read.or_fail(ErrorKind::General, || format!("cannot read {name}"))?;
    let end = if null { 0 } else { b'\n' };
    let mut commands = Vec::new();
    for (number, line) in bytes.split(|byte| *byte == end).enumerate() {
        if line.is_empty() {
            continue;
        }
        let at = || format!("line {} of {name}", number + 1);
        if line.contains(&0) {
            return Err(
                Error::new(ErrorKind::Usage, format!("{} has a NUL in it", at()))
                    .hint("if the lines end with NUL, say -0; nothing was stored"),
            );
        }
        let command = Command::Shell(OsString::from_vec(line.to_vec()));
        check_size(&command, &at())?;
        commands.push(command);
    }
    if commands.is_empty() {
        return Err(Error::new(
            ErrorKind::Usage,
            format!("{name} has no line to run"),
        ));
    }
    Ok(commands)
}

/// Refuses a command that no kernel would start.
fn check_size(command: &Command, what: &str) -> Result<()> {
    let longest = match command {
        Command::Shell(line) => line.len(),
        Command::Argv(words) => words.iter().map(|word| word.len()).max().unwrap_or(0),
    };
    too_large(what, "in one word", longest, MOST_WORD)?;
    too_large(what, "in all", command.size(), MOST_BYTES)
}

fn too_large(what: &str, how: &str, size: usize, most: usize) -> Result<()> {
    if size < most {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Usage,
        format!(
            "{what} is too large: {} {how}, the system takes less than {}",
            number::bytes(size as u64),
            number::bytes(most as u64)
        ),
    )
    .hint("put the data into a file; nothing was stored"))
}

fn steps(
    args: &EnqueueArgs,
    context: &Context,
    commands: Vec<Command>,
    now: Timestamp,
) -> Result<Vec<NewStep>> {
    let band = match &args.band {
        Some(word) => words::band(word, &context.settings)?,
        None => context.settings.default_band,
    };
    let due = match (&args.delay, &args.at, args.hold) {
        (Some(delay), ..) => Due::At(now + *delay),
        (None, Some(at), _) => Due::At(context.zone.read(at, now)?),
        (None, None, true) => Due::Held,
        (None, None, false) => Due::Now,
    };
    let like = NewStep {
        command: Command::Argv(Vec::new()),
        cwd: cwd(args, context)?,
        env: Arc::new(env(args, context)?),
        band,
        key: args.key.clone(),
        weight: args.weight,
        name: args.name.clone(),
        tags: args.tag.clone(),
        flow: None,
        due,
        after: Vec::new(),
        unique: None,
        policy: Policy {
            on_lost: args.on_lost,
            grace: context.settings.grace,
            leave_group: args.leave_group,
            ..Policy::default()
        },
    };
    Ok(commands
        .into_iter()
        .map(|command| NewStep {
            command,
            ..like.clone()
        })
        .collect())
}

/// Returns where the steps will run; it must be there now, for a mistyped one is best found here.
fn cwd(args: &EnqueueArgs, context: &Context) -> Result<PathBuf> {
    let here = || {
        context.around.cwd.clone().ok_or_else(|| {
            Error::new(ErrorKind::General, "the present directory is gone")
                .hint("go to one that is there, or name it with --cwd")
        })
    };
    let Some(given) = &args.cwd else {
        return here();
    };
    let path = if given.is_absolute() {
        given.clone()
    } else {
        here()?.join(given)
    };
    let refuse = |why: &str| {
        Err(
            Error::new(ErrorKind::Usage, format!("--cwd {}: {why}", path.display()))
                .hint("nothing was stored"),
        )
    };
    match std::fs::metadata(&path) {
        Ok(found) if found.is_dir() => Ok(path),
        Ok(_) => refuse("it is not a directory"),
        Err(error) => refuse(&error.to_string()),
    }
}

fn env(args: &EnqueueArgs, context: &Context) -> Result<Environment> {
    let around = &context.around.vars;
    let mut vars = if args.clean_env {
        std::collections::BTreeMap::new()
    } else {
        around.clone()
    };
    for given in &args.env {
        let bytes = given.as_bytes();
        let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
            Some(0) => {
                return Err(Error::new(
                    ErrorKind::Usage,
                    format!("--env {}: there is no name before the =", given.display()),
                ));
            }
            Some(split) => (
                OsStr::from_bytes(&bytes[..split]).to_owned(),
                OsStr::from_bytes(&bytes[split + 1..]).to_owned(),
            ),
            None => {
                let value = around.get(given).ok_or_else(|| {
                    Error::new(
                        ErrorKind::Usage,
                        format!("--env {}: there is no such variable here", given.display()),
                    )
                    .hint("give its value: --env NAME=VALUE")
                })?;
                (given.clone(), value.clone())
            }
        };
        vars.insert(name, value);
    }
    for (name, value) in &vars {
        let what = format!("the variable {}", name.display());
        too_large(&what, "in all", name.len() + value.len() + 2, MOST_WORD)?;
    }
    let env = Environment::from_pairs(vars);
    too_large(
        "the environment",
        "in all",
        env.as_bytes().len(),
        MOST_BYTES,
    )?;
    Ok(env)
}

fn dry_run(args: &EnqueueArgs, context: &mut Context, steps: &[NewStep]) -> Result<Done> {
    let Some(step) = steps.first() else {
        return Ok(Done::Well);
    };
    let standing = match context.existing_store()? {
        Some(store) => standing(&store, step, steps.len())?,
        None => Standing {
            shard: crate::store::placement::Placer::new(
                context.new_store().placement,
                context.settings.shards,
                0,
            )
            .peek(&step.key),
            band: step.band,
            key: &step.key,
            weight: step.weight,
            steps: steps.len(),
            due_in_better_bands: 0,
            due_of_this_key: 0,
            due_in_this_band: 0,
            expected_share: 1.0,
        },
    };
    if args.json {
        context.screen.json(&standing)?;
        return Ok(Done::Well);
    }
    let count = number::count;
    for (name, value) in [
        ("steps", count(standing.steps as u64)),
        (
            "shard",
            format!("{} ({})", standing.shard, standing.shard.letter()),
        ),
        ("band", standing.band.to_string()),
        ("key", text::shown(standing.key.as_str())),
        ("due in better bands", count(standing.due_in_better_bands)),
        (
            "due of this key in this band",
            count(standing.due_of_this_key),
        ),
        ("due in this band", count(standing.due_in_this_band)),
        (
            "expected share of this band",
            number::percent(standing.expected_share),
        ),
    ] {
        context.screen.line(&format!("{name}\t{value}"))?;
    }
    context.screen.talk("nothing was stored");
    Ok(Done::Well)
}

/// Works out where a step would stand, by the planner's own rules.
fn standing<'s>(store: &SqliteStore, step: &'s NewStep, steps: usize) -> Result<Standing<'s>> {
    let mut standing = Standing {
        shard: store.place(&step.key),
        band: step.band,
        key: &step.key,
        weight: step.weight,
        steps,
        due_in_better_bands: 0,
        due_of_this_key: 0,
        due_in_this_band: 0,
        expected_share: 1.0,
    };
    let planner = Planner::new(Pick::Stride, 0);
    for shard in ShardId::first(store.shard_count()) {
        let counts = store.counts(shard)?;
        for (band, count) in &counts.ready {
            if *band < step.band {
                standing.due_in_better_bands += count;
            } else if *band == step.band {
                standing.due_in_this_band += count;
            }
        }
        let mut keys = store.tally_at(shard, step.band)?;
        if let Some(own) = keys.iter().find(|tally| tally.key == step.key) {
            standing.due_of_this_key += u64::from(own.count);
        } else if shard == standing.shard {
            keys.push(Tally {
                key: step.key.clone(),
                count: 1,
                since: Timestamp::from_millis(i64::MAX),
                weight: step.weight,
            });
        }
        planner.tally(
            shard,
            ShardTally::new(step.band, keys),
            Timestamp::default(),
        );
    }
    let merged = planner.decide(0).merged;
    let all: f64 = merged.keys().iter().map(|key| key.weight.get()).sum();
    if let Some(own) = merged.keys().iter().find(|key| key.key == step.key) {
        standing.expected_share = own.weight.get() / all;
    }
    Ok(standing)
}
