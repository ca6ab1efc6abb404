//! What one call puts in: some steps that are made at once, or many that are made one by one.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::EnqueueArgs;
use super::array::Expansion;
use super::flow;
use super::make::Maker;
use super::object;
use super::options::Said;
use super::size::{self, MOST_BYTES, MOST_WORD};
use super::spool::{Form, Record, Spool};
use crate::error::{Error, ErrorKind, Result};
use crate::model::{Band, Command, FairnessKey, NewStep};

/// The steps of one call, checked, not yet stored.
pub(super) enum Batch {
    /// Few enough, or so bound to others that they have to be there all at once. At least one.
    Whole(Vec<NewStep>),
    /// As many as there are, bound to nothing.
    Stream(Box<Stream>),
}

/// Steps that are made one by one.
pub(super) struct Stream {
    source: Source,
    /// Their bands and keys.
    pub(super) groups: BTreeSet<(Band, FairnessKey)>,
    /// The first of them.
    pub(super) first: NewStep,
    /// How many there are.
    pub(super) count: u64,
}

enum Source {
    /// A shell line each.
    Lines(Spool),
    /// An object each.
    Objects(Spool),
    /// A place of an expansion each.
    Expansion { of: Expansion, like: Box<NewStep> },
}

impl Batch {
    /// Makes the steps that the arguments ask for.
    ///
    /// # Errors
    ///
    /// What cannot be read, or cannot be meant.
    pub(super) fn of(args: &EnqueueArgs, maker: &Maker<'_>) -> Result<Self> {
        if let Some(path) = &args.file {
            return flow::read(path, &args.said, maker).map(Self::Whole);
        }
        if let Some(path) = &args.from_ndjson {
            return objects(path, &args.said, maker);
        }
        if let Some(path) = &args.from {
            return lines(path, args, maker);
        }
        let like = maker.make(
            &args.said,
            command(args.shell.as_ref(), args.argv, &args.command)?,
        )?;
        let Some(of) = Expansion::of(args.array.as_ref(), &args.param)? else {
            return Ok(Self::Whole(vec![like]));
        };
        let stream = Stream {
            groups: BTreeSet::from([(like.band, like.key.clone())]),
            first: of.step(&like, 0)?,
            count: of.count(),
            source: Source::Expansion {
                of,
                like: Box::new(like),
            },
        };
        stream.or_whole(args.said.ties.bind(), &args.said, maker)
    }

    /// Returns the first of the steps.
    pub(super) fn first(&self) -> &NewStep {
        match self {
            Self::Whole(steps) => steps.first().expect("a batch has at least one step"),
            Self::Stream(stream) => &stream.first,
        }
    }

    /// Returns how many steps there are.
    pub(super) const fn count(&self) -> u64 {
        match self {
            Self::Whole(steps) => steps.len() as u64,
            Self::Stream(stream) => stream.count,
        }
    }
}

impl Stream {
    /// Returns the keys of the steps.
    pub(super) fn keys(&self) -> BTreeSet<FairnessKey> {
        self.groups.iter().map(|(_, key)| key.clone()).collect()
    }

    /// Makes the steps, from the first one on.
    ///
    /// # Errors
    ///
    /// What was kept of them cannot be read any more.
    pub(super) fn steps<'s>(
        &'s self,
        said: &'s Said,
        maker: &'s Maker<'_>,
    ) -> Result<Box<dyn Iterator<Item = Result<NewStep>> + 's>> {
        Ok(match &self.source {
            Source::Expansion { of, like } => Box::new(of.steps(like)),
            Source::Lines(spool) => Box::new(spool.records()?.filter_map(|record| {
                let step = |command| NewStep {
                    command,
                    ..self.first.clone()
                };
                let of = |record: Record| line(&record, spool.name());
                Some(record.and_then(of).transpose()?.map(step))
            })),
            Source::Objects(spool) => Box::new(spool.records()?.filter_map(move |record| {
                let of = |record: Record| object(&record, spool.name(), said, maker);
                record.and_then(of).transpose()
            })),
        })
    }

    /// Returns it as it is or, if its steps are bound to others, all of them at once.
    fn or_whole(self, bound: bool, said: &Said, maker: &Maker<'_>) -> Result<Batch> {
        if !bound {
            return Ok(Batch::Stream(Box::new(self)));
        }
        let steps = self.steps(said, maker)?.collect::<Result<_>>()?;
        Ok(Batch::Whole(steps))
    }
}

/// Returns the one command that is on the command line: a line for a shell, or the words of an argv,
/// of which a single one is such a line as well, unless it is to be taken for an `argv`.
///
/// # Errors
///
/// `Usage` if there is none, or an empty one.
pub(in crate::cli) fn command(
    shell: Option<&OsString>,
    argv: bool,
    words: &[OsString],
) -> Result<Command> {
    match (shell, words) {
        (Some(line), _) if !line.is_empty() => Ok(Command::Shell(line.clone())),
        (None, [line]) if !argv && !line.is_empty() => Ok(Command::Shell(line.clone())),
        (None, words) if words.first().is_some_and(|program| !program.is_empty()) => {
            Ok(Command::Argv(words.to_vec()))
        }
        // Nothing, or a variable that was empty: a step that does nothing would hide the mistake.
        _ => Err(Error::new(ErrorKind::Usage, "there is no command")
            .hint("fairq enqueue 'a shell line', or fairq enqueue -- PROGRAM ARG…")),
    }
}

/// Takes a shell line from each line of a file; empty lines are none.
fn lines(path: &Path, args: &EnqueueArgs, maker: &Maker<'_>) -> Result<Batch> {
    let form = Form {
        end: if args.null { 0 } else { b'\n' },
        most: MOST_WORD,
    };
    let mut first = None;
    let mut count = 0;
    let spool = Spool::fill(path, form, |record, name| {
        if let Some(command) = line(record, name)? {
            count += 1;
            first.get_or_insert(command);
        }
        Ok(())
    })?;
    let command = first.ok_or_else(|| no_line(spool.name()))?;
    let first = maker.make(&args.said, command)?;
    let stream = Stream {
        groups: BTreeSet::from([(first.band, first.key.clone())]),
        first,
        count,
        source: Source::Lines(spool),
    };
    stream.or_whole(args.said.ties.bind(), &args.said, maker)
}

fn line(record: &Record, name: &str) -> Result<Option<Command>> {
    if record.bytes.is_empty() {
        return Ok(None);
    }
    let at = format!("line {} of {name}", record.line);
    if record.bytes.contains(&0) {
        return Err(
            Error::new(ErrorKind::Usage, format!("{at} has a NUL in it"))
                .hint("if the lines end with NUL, say -0; nothing was stored"),
        );
    }
    let command = Command::Shell(OsStr::from_bytes(&record.bytes).to_owned());
    size::check(&command, &at)?;
    Ok(Some(command))
}

/// Takes a step from each line of a file, which is a JSON object.
fn objects(path: &Path, said: &Said, maker: &Maker<'_>) -> Result<Batch> {
    let form = Form {
        end: b'\n',
        // An escaped byte takes six; beside the command there are variables.
        most: 8 * MOST_BYTES,
    };
    let mut first = None;
    let mut groups = BTreeSet::new();
    let (mut count, mut bound) = (0, false);
    let spool = Spool::fill(path, form, |record, name| {
        if let Some(step) = object(record, name, said, maker)? {
            count += 1;
            bound |= !step.after.is_empty() || step.unique.is_some();
            groups.insert((step.band, step.key.clone()));
            first.get_or_insert(step);
        }
        Ok(())
    })?;
    let first = first.ok_or_else(|| no_line(spool.name()))?;
    let stream = Stream {
        groups,
        first,
        count,
        source: Source::Objects(spool),
    };
    stream.or_whole(bound, said, maker)
}

pub(super) fn object(
    record: &Record,
    name: &str,
    usual: &Said,
    maker: &Maker<'_>,
) -> Result<Option<NewStep>> {
    if record.bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let at = || format!("line {} of {name}", record.line);
    let wrong = |why: String| {
        Error::new(ErrorKind::Usage, format!("{}: {why}", at())).hint("nothing was stored")
    };
    let fields = serde_json::from_slice(&record.bytes).map_err(|error| {
        // It counts lines of its own, of which there is one.
        let said = error.to_string();
        let said = said.split(" at line ").next().unwrap_or_default();
        wrong(format!("column {}: {said}", error.column()))
    })?;
    let (mut said, command) = object::read(fields).map_err(wrong)?;
    let command = command.ok_or_else(|| wrong("there is no command".to_owned()))?;
    said.fall_back(usual);
    maker
        .make(&said, command)
        .map(Some)
        .map_err(|error| error.context(at()))
}

fn no_line(name: &str) -> Error {
    Error::new(ErrorKind::Usage, format!("{name} has no line to run"))
}
