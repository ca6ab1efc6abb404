//! Following what steps write while they run.
//!
//! A running step writes into its worker's capture files, which lie in its runner's folder. They are
//! read from there until the step's record is written, and the rest comes from the record: the file
//! belongs to the next step by then.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::Duration;

use super::logs::LogsArgs;
use super::{Context, show};
use crate::crew::capture::live_path;
use crate::crew::journal::{SlotState, Testament};
use crate::engine::Notice;
use crate::error::{Context as _, ErrorKind, Result};
use crate::model::{StepState, Stream};
use crate::presence;
use crate::store::sqlite::{SqliteStore, runners_dir};
use crate::store::{Output, Read as _, StepView};

/// Between two looks at a file that may have grown.
const PAUSE: Duration = Duration::from_millis(50);

/// Where one step's following stands.
struct Thread {
    step: StepView,
    /// The claim whose output is being followed.
    fence: u32,
    /// The capture files, once they are found, and how far each was printed.
    files: Option<[Printed; 2]>,
    over: bool,
}

/// One stream of one try.
#[derive(Default)]
struct Printed {
    file: Option<File>,
    bytes: u64,
    /// With a prefix: what came after the last newline and is not printed yet.
    partial: Vec<u8>,
}

/// Follows steps to their ends; returns how they stand then.
pub(super) fn follow(
    args: &LogsArgs,
    context: &mut Context,
    store: &SqliteStore,
    steps: Vec<StepView>,
) -> Result<Vec<StepView>> {
    let prefix = steps.len() > 1;
    let mut threads: Vec<Thread> = steps
        .into_iter()
        .map(|step| Thread {
            fence: step.fence,
            step,
            files: None,
            over: false,
        })
        .collect();
    let nobody = Notice::default();
    while threads.iter().any(|thread| !thread.over) && !context.screen.is_closed() {
        for thread in threads.iter_mut().filter(|thread| !thread.over) {
            advance(args, context, store, thread, prefix)?;
        }
        context.screen.flush()?;
        if threads.iter().any(|thread| !thread.over) {
            nobody.wait(nobody.seen(), PAUSE);
        }
    }
    Ok(threads.into_iter().map(|thread| thread.step).collect())
}

/// Prints what has come since the last look.
fn advance(
    args: &LogsArgs,
    context: &mut Context,
    store: &SqliteStore,
    thread: &mut Thread,
    prefix: bool,
) -> Result<()> {
    // Read before the step is looked at: if it still runs then, these are its bytes.
    let read = thread.files.as_ref().map(|files| {
        args.streams()
            .iter()
            .map(|stream| read_more(&files[index(*stream)]))
            .collect::<io::Result<Vec<_>>>()
    });
    thread.step = show::find(store, thread.step.id)?;
    let runs = thread.step.state == StepState::Running;
    if runs && thread.step.fence == thread.fence {
        match read {
            Some(read) => {
                let read = read.or_fail(ErrorKind::Unavailable, || {
                    format!("cannot read what {} writes", thread.step.id)
                })?;
                for (stream, bytes) in args.streams().iter().zip(read) {
                    print_part(context, thread, *stream, &bytes, prefix)?;
                }
            }
            None => thread.files = open(store, thread),
        }
        return Ok(());
    }
    // The try that was followed is over, or another one runs: first the rest of the old one.
    if thread.files.is_some() || (thread.step.state.is_final() && thread.fence > 0) {
        finish_try(args, context, store, thread, prefix)?;
    }
    if thread.step.state.is_final() {
        if thread.step.fence != thread.fence {
            thread.fence = thread.step.fence;
            finish_try(args, context, store, thread, prefix)?;
        }
        thread.over = true;
    } else {
        thread.fence = thread.step.fence;
    }
    Ok(())
}

/// Prints the part of a try's record that was not printed while it ran.
fn finish_try(
    args: &LogsArgs,
    context: &mut Context,
    store: &SqliteStore,
    thread: &mut Thread,
    prefix: bool,
) -> Result<()> {
    let mut files = thread.files.take().unwrap_or_default();
    for stream in args.streams() {
        let printed = files[index(*stream)].bytes;
        let output = store.output(thread.step.id, thread.fence, *stream)?;
        let rest = rest(output, printed, args.tail).or_fail(ErrorKind::Unavailable, || {
            format!("cannot read the output of {}", thread.step.id)
        })?;
        let mut partial = std::mem::take(&mut files[index(*stream)].partial);
        partial.extend_from_slice(&rest);
        emit(context, thread, &partial, prefix, true)?;
    }
    Ok(())
}

/// Returns what of an output was not printed yet.
fn rest(output: Option<Output>, printed: u64, tail: Option<usize>) -> io::Result<Vec<u8>> {
    let from_tail = |file: &File| match tail {
        Some(lines) if printed == 0 => start_of_last_lines(file, lines),
        _ => Ok(printed),
    };
    match output {
        None => Ok(Vec::new()),
        Some(Output::Bytes(bytes)) => {
            let start = usize::try_from(printed)
                .unwrap_or(usize::MAX)
                .min(bytes.len());
            let rest = &bytes[start..];
            Ok(match tail {
                Some(lines) if printed == 0 => tail_of(rest, lines).to_vec(),
                _ => rest.to_vec(),
            })
        }
        Some(Output::File(file)) => {
            let from = from_tail(&file)?;
            read_from(&file, from, u64::MAX)
        }
    }
}

fn tail_of(bytes: &[u8], lines: usize) -> &[u8] {
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let newlines = body
        .iter()
        .enumerate()
        .rev()
        .filter(|(_, byte)| **byte == b'\n');
    match lines.checked_sub(1) {
        None => &[],
        Some(before) => newlines
            .map(|(at, _)| at + 1)
            .nth(before)
            .map_or(bytes, |at| &bytes[at..]),
    }
}

/// Prints what a running step has written so far.
pub(super) fn print_live(
    args: &LogsArgs,
    context: &mut Context,
    store: &SqliteStore,
    step: &StepView,
) -> Result<()> {
    if step.state != StepState::Running {
        context.screen.talk(&format!(
            "{} is {} and has written nothing yet",
            step.id, step.state
        ));
        return Ok(());
    }
    let thread = Thread {
        fence: step.fence,
        step: step.clone(),
        files: None,
        over: false,
    };
    let Some(files) = open(store, &thread) else {
        return Ok(());
    };
    for stream in args.streams() {
        let bytes = read_more(&files[index(*stream)]).or_fail(ErrorKind::Unavailable, || {
            format!("cannot read what {} writes", step.id)
        })?;
        let shown = args
            .tail
            .map_or(bytes.as_slice(), |lines| tail_of(&bytes, lines));
        context.screen.raw(shown)?;
    }
    Ok(())
}

/// Opens the capture files of a running step; `None` while they cannot be told.
fn open(store: &SqliteStore, thread: &Thread) -> Option<[Printed; 2]> {
    let runner = thread.step.runner?;
    let dir = presence::dir_of(&runners_dir(store.root()), runner);
    // The runner's journal says which worker has the step.
    let testament = Testament::read(&dir.join("journal")).ok()?;
    let worker = testament.slots.iter().position(|slot| {
        matches!(slot, SlotState::Running { id, fence, .. }
            if *id == thread.step.id && *fence == thread.fence)
    })?;
    let worker = u32::try_from(worker).ok()?;
    let file = |stream| {
        let path: PathBuf = live_path(&dir, worker, stream);
        Some(Printed {
            file: Some(File::open(path).ok()?),
            ..Printed::default()
        })
    };
    Some([file(Stream::Stdout)?, file(Stream::Stderr)?])
}

const fn index(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
    }
}

fn read_more(printed: &Printed) -> io::Result<Vec<u8>> {
    match &printed.file {
        None => Ok(Vec::new()),
        // So much at a time: a step that writes faster than we print must not fill our memory.
        Some(file) => read_from(file, printed.bytes, 1 << 20),
    }
}

fn read_from(file: &File, mut at: u64, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 64 * 1024];
    while (bytes.len() as u64) < most {
        let count = file.read_at(&mut buffer, at)?;
        if count == 0 {
            break;
        }
        bytes.extend_from_slice(&buffer[..count]);
        at += count as u64;
    }
    Ok(bytes)
}

fn print_part(
    context: &mut Context,
    thread: &mut Thread,
    stream: Stream,
    bytes: &[u8],
    prefix: bool,
) -> Result<()> {
    let Some(files) = &mut thread.files else {
        return Ok(());
    };
    let printed = &mut files[index(stream)];
    printed.bytes += bytes.len() as u64;
    if !prefix {
        return context.screen.raw(bytes);
    }
    // Whole lines only: two steps must not meet in one.
    printed.partial.extend_from_slice(bytes);
    let whole = printed
        .partial
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    let lines: Vec<u8> = printed.partial.drain(..whole).collect();
    emit(context, thread, &lines, prefix, false)
}

fn emit(
    context: &mut Context,
    thread: &Thread,
    bytes: &[u8],
    prefix: bool,
    last: bool,
) -> Result<()> {
    if !prefix {
        return context.screen.raw(bytes);
    }
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        context
            .screen
            .raw(format!("{}: ", thread.step.id).as_bytes())?;
        context.screen.raw(line)?;
    }
    if last && !bytes.is_empty() && !bytes.ends_with(b"\n") {
        context.screen.raw(b"\n")?;
    }
    Ok(())
}

/// Returns where the last lines of a file begin.
pub(super) fn start_of_last_lines(file: &File, lines: usize) -> io::Result<u64> {
    const STEP: u64 = 64 * 1024;
    let end = file.metadata()?.len();
    let Some(before) = lines.checked_sub(1) else {
        return Ok(end);
    };
    let mut found = 0;
    // The newline that ends the file ends its last line; it does not begin another.
    let mut upper = end;
    while upper > 0 {
        let lower = upper.saturating_sub(STEP);
        let part = read_from(file, lower, upper - lower)?;
        let part = &part[..usize::try_from(upper - lower)
            .unwrap_or(part.len())
            .min(part.len())];
        for (at, byte) in part.iter().enumerate().rev() {
            let place = lower + at as u64;
            if *byte == b'\n' && place + 1 < end {
                if found == before {
                    return Ok(place + 1);
                }
                found += 1;
            }
        }
        upper = lower;
    }
    Ok(0)
}
