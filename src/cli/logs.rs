//! `fairq logs`: what steps wrote.

use std::io::Read as _;

use clap::Args;

use super::follow::{self, View};
use super::select::Selector;
use super::wait::step_code;
use super::{Context, Done};
use crate::error::{Context as _, Error, ErrorKind, Result};
use crate::model::{StepId, Stream};
use crate::store::sqlite::SqliteStore;
use crate::store::{Output, Read as _, StepView};

/// Print what steps wrote, byte for byte
///
/// Of both streams, standard output first (while following: as it comes). Of the last try, unless
/// another is asked for.
#[derive(Debug, Args)]
#[command(before_long_help = "\
Examples:
  fairq logs a17
  fairq logs -f a17                           wait for it to start, follow it to its end
  fairq logs --stderr --tail 20 a17
  fairq logs a17 --attempt 1                  of its first try")]
pub(super) struct LogsArgs {
    #[command(flatten)]
    select: Selector,
    /// Go on until the step has ended
    #[arg(short, long)]
    follow: bool,
    /// Only standard output
    #[arg(long, conflicts_with = "stderr")]
    stdout: bool,
    /// Only standard error
    #[arg(long)]
    stderr: bool,
    /// Only the last N lines of each stream
    #[arg(long, value_name = "N")]
    tail: Option<usize>,
    /// Of this try, counted from 1 in the order of the tries
    #[arg(long, value_name = "N", conflicts_with = "follow")]
    attempt: Option<usize>,
    /// Exit with the step's own code
    #[arg(long)]
    exit_code: bool,
}

impl LogsArgs {
    /// Returns what is wanted.
    const fn view(&self) -> View {
        View {
            streams: match (self.stdout, self.stderr) {
                (true, _) => &[Stream::Stdout],
                (_, true) => &[Stream::Stderr],
                (false, false) => &[Stream::Stdout, Stream::Stderr],
            },
            tail: self.tail,
            history: false,
        }
    }
}

pub(super) fn run(args: &LogsArgs, context: &mut Context) -> Result<Done> {
    let store = context.store_with_steps()?;
    let steps = if args.follow {
        let ids = args.select.ids(context, &store)?;
        follow::follow(&args.view(), context, &store, &ids)?
    } else {
        let steps = args.select.resolve(context, &store)?;
        for step in &steps {
            if steps.len() > 1 {
                context.screen.flush()?;
                context.screen.talk(&format!("==> {} <==", step.id));
            }
            print(args, context, &store, step)?;
        }
        steps
    };
    match steps.as_slice() {
        [one] if args.exit_code => Ok(Done::of(step_code(one))),
        _ => Ok(Done::Well),
    }
}

/// Prints what one try of a step has written, as far as it is over.
fn print(
    args: &LogsArgs,
    context: &mut Context,
    store: &SqliteStore,
    step: &StepView,
) -> Result<()> {
    let attempts = store.attempts(step.id)?;
    let wanted = match args.attempt {
        Some(number) => Some(
            number
                .checked_sub(1)
                .and_then(|at| attempts.get(at))
                .ok_or_else(|| {
                    Error::new(
                        ErrorKind::NotFound,
                        format!(
                            "{} has no try {number}: there were {}",
                            step.id,
                            attempts.len()
                        ),
                    )
                })?,
        ),
        None if step.state == crate::model::StepState::Running => None,
        None => attempts.last(),
    };
    match wanted {
        Some(attempt) => {
            if args.attempt.is_none() {
                follow::tell_unstarted(context, step);
            }
            for stream in args.view().streams {
                let tail = args.tail;
                print_kept(context, store, step.id, attempt.fence, *stream, tail)?;
            }
            Ok(())
        }
        // It runs, or has never been run: what there is so far.
        None => follow::print_live(&args.view(), context, store, step),
    }
}

/// Prints a kept output, or its last lines.
pub(super) fn print_kept(
    context: &mut Context,
    store: &SqliteStore,
    id: StepId,
    fence: u32,
    stream: Stream,
    tail: Option<usize>,
) -> Result<()> {
    let Some(output) = store.output(id, fence, stream)? else {
        return Ok(());
    };
    match (output, tail) {
        (Output::Bytes(bytes), None) => context.screen.raw(&bytes),
        (Output::Bytes(bytes), Some(lines)) => context.screen.raw(last_lines(&bytes, lines)),
        (Output::File(file), None) => copy(context, file),
        (Output::File(mut file), Some(lines)) => {
            let from = follow::start_of_last_lines(&file, lines)
                .or_fail(ErrorKind::Unavailable, || {
                    format!("cannot read the output of {id}")
                })?;
            std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(from))
                .or_fail(ErrorKind::Unavailable, || {
                    format!("cannot read the output of {id}")
                })?;
            copy(context, file)
        }
    }
}

fn copy(context: &mut Context, mut file: std::fs::File) -> Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = file.read(&mut buffer).or_fail(ErrorKind::Unavailable, || {
            "cannot read an output's file".to_owned()
        })?;
        if count == 0 || context.screen.is_closed() {
            return Ok(());
        }
        context.screen.raw(&buffer[..count])?;
    }
}

/// Returns the last lines of some bytes; what follows the last newline counts as a line.
fn last_lines(bytes: &[u8], lines: usize) -> &[u8] {
    if lines == 0 {
        return &[];
    }
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let start = body
        .iter()
        .rev()
        .enumerate()
        .filter(|(_, byte)| **byte == b'\n')
        .nth(lines - 1);
    start.map_or(bytes, |(from_end, _)| &bytes[body.len() - from_end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_whole() {
        for (text, lines, last) in [
            ("a\nb\nc\n", 2, "b\nc\n"),
            ("a\nb\nc", 2, "b\nc"),
            ("a\nb\nc\n", 9, "a\nb\nc\n"),
            ("a\nb\n\n", 1, "\n"),
            ("a", 0, ""),
            ("", 3, ""),
            ("\n\n\n", 2, "\n\n"),
        ] {
            assert_eq!(
                last_lines(text.as_bytes(), lines),
                last.as_bytes(),
                "{text:?} {lines}"
            );
        }
    }
}
