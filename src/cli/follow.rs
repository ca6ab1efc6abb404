//! Following what steps write while they run.
//!
//! A running step writes into its worker's capture files, which lie in its runner's folder. They are
//! read from there until the step's record is written, and the rest comes from the record: the file
//! belongs to the next step by then.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use super::pace::Pace;
use super::render::text;
use super::{Context, show};
use crate::crew::capture::live_path;
use crate::crew::journal::{SlotState, Testament};
use crate::error::{Context as _, ErrorKind, Result};
use crate::model::{Ending, StepId, StepState, Stream};
use crate::presence;
use crate::store::sqlite::{SqliteStore, runners_dir};
use crate::store::{Output, Read as _, StepView, Supply as _};

/// What of a step's output is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub(super) streams: &'static [Stream],
    /// Only so many of the last lines of what was there when it was first looked at.
    pub(super) tail: Option<usize>,
    /// Also of tries that were over when it was first looked at.
    pub(super) history: bool,
}

impl Default for View {
    /// All of both streams, from the first try on.
    fn default() -> Self {
        Self {
            streams: &[Stream::Stdout, Stream::Stderr],
            tail: None,
            history: true,
        }
    }
}

/// Where one step's following stands.
struct Thread {
    step: StepView,
    /// What of claims up to this one is to be printed has been.
    printed: u32,
    /// Its shard's version when it was last read.
    version: Option<u64>,
    /// The capture files of a claim, once they are found, and how far each was printed.
    files: Option<(u32, [Printed; 2])>,
    /// Of what was there when the following began, only so many lines; `None` from then on.
    tail: Option<usize>,
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

impl Thread {
    /// Begins with the running or the last try, unless what tries before it wrote is wanted as well.
    fn new(step: StepView, view: &View) -> Self {
        let shows = step.state == StepState::Running || step.state.is_final();
        Self {
            printed: if view.history {
                0
            } else {
                step.fence.saturating_sub(u32::from(shows))
            },
            version: None,
            files: None,
            tail: view.tail.filter(|_| shows),
            over: false,
            step,
        }
    }

    /// Returns the claim that runs.
    fn running(&self) -> Option<u32> {
        (self.step.state == StepState::Running).then_some(self.step.fence)
    }

    /// Returns the last claim that is over; 0 if there is none.
    fn last_over(&self) -> u32 {
        let runs = self.running().is_some();
        self.step.fence.saturating_sub(u32::from(runs))
    }
}

/// Follows steps to their ends; returns how they stand then. The output of one is printed as it is,
/// of several in whole lines that begin with the step's id.
pub(super) fn follow(
    view: &View,
    context: &mut Context,
    store: &SqliteStore,
    ids: &[StepId],
) -> Result<Vec<StepView>> {
    let mut threads: Vec<Thread> = ids
        .iter()
        .map(|id| Ok(Thread::new(show::find(store, *id)?, view)))
        .collect::<Result<_>>()?;
    let mut pace = Pace::new(&context.clock);
    let mut follower = Follower {
        view,
        context,
        store,
        prefix: threads.len() > 1,
    };
    loop {
        let mut came = false;
        for thread in threads.iter_mut().filter(|thread| !thread.over) {
            came |= follower.advance(thread)?;
        }
        follower.context.screen.flush()?;
        if follower.context.screen.is_closed() || threads.iter().all(|thread| thread.over) {
            return Ok(threads.into_iter().map(|thread| thread.step).collect());
        }
        if came {
            pace.reset();
        }
        pace.sleep(None);
    }
}

/// Prints what steps write.
struct Follower<'f> {
    view: &'f View,
    context: &'f mut Context,
    store: &'f SqliteStore,
    prefix: bool,
}

impl Follower<'_> {
    /// Prints what has come since the last look; `true` if something has.
    fn advance(&mut self, thread: &mut Thread) -> Result<bool> {
        let id = thread.step.id;
        // Read before the step is looked at: if it still runs then, these are its bytes.
        let read = self.read(thread).or_fail(ErrorKind::Unavailable, || {
            format!("cannot read what {id} writes")
        })?;
        let version = self.store.version(id.shard)?;
        if thread.version != Some(version) {
            thread.version = Some(version);
            thread.step = show::find(self.store, id)?;
        }
        let mut came = false;
        match (thread.running(), &thread.files) {
            (Some(fence), Some((of, _))) if fence == *of => {
                for (stream, bytes) in self.view.streams.iter().zip(read) {
                    came |= !bytes.is_empty();
                    self.print_part(thread, *stream, &bytes)?;
                }
                return Ok(came);
            }
            _ => {}
        }
        // What was followed is over: the rest of it, and all of what came and went unseen.
        for fence in thread.printed + 1..=thread.last_over() {
            self.finish_try(thread, fence)?;
            thread.printed = fence;
            came = true;
        }
        if let Some(fence) = thread.running() {
            thread.files = open(self.store, &thread.step).map(|files| (fence, files));
            came |= thread.files.is_some();
            self.skip_to_tail(thread)
                .or_fail(ErrorKind::Unavailable, || {
                    format!("cannot read what {id} writes")
                })?;
        }
        thread.over = thread.step.state.is_final();
        if thread.over {
            tell_unstarted(self.context, &thread.step);
        }
        Ok(came)
    }

    fn read(&self, thread: &Thread) -> io::Result<Vec<Vec<u8>>> {
        let Some((_, files)) = &thread.files else {
            return Ok(Vec::new());
        };
        let streams = self.view.streams.iter();
        streams
            .map(|stream| read_more(&files[index(*stream)]))
            .collect()
    }

    /// Leaves out what a running step had written before its last lines.
    fn skip_to_tail(&self, thread: &mut Thread) -> io::Result<()> {
        if let (Some((_, files)), Some(lines)) = (&mut thread.files, thread.tail) {
            for printed in files {
                if let Some(file) = &printed.file {
                    printed.bytes = start_of_last_lines(file, lines)?;
                }
            }
            thread.tail = None;
        }
        Ok(())
    }

    /// Prints the part of a try's record that was not printed while it ran.
    fn finish_try(&mut self, thread: &mut Thread, fence: u32) -> Result<()> {
        let id = thread.step.id;
        let mut files = match thread.files.take() {
            Some((of, files)) if of == fence => files,
            _ => <[Printed; 2]>::default(),
        };
        let tail = thread.tail.take();
        for stream in self.view.streams {
            let printed = &mut files[index(*stream)];
            let output = self.store.output(id, fence, *stream)?;
            let rest = rest(output, printed.bytes, tail).or_fail(ErrorKind::Unavailable, || {
                format!("cannot read the output of {id}")
            })?;
            let mut partial = std::mem::take(&mut printed.partial);
            partial.extend_from_slice(&rest);
            self.emit(id, &partial, true)?;
        }
        Ok(())
    }

    fn print_part(&mut self, thread: &mut Thread, stream: Stream, bytes: &[u8]) -> Result<()> {
        let id = thread.step.id;
        let Some((_, files)) = &mut thread.files else {
            return Ok(());
        };
        let printed = &mut files[index(stream)];
        printed.bytes += bytes.len() as u64;
        if !self.prefix {
            return self.context.screen.raw(bytes);
        }
        // Whole lines only: two steps must not meet in one.
        printed.partial.extend_from_slice(bytes);
        let whole = printed
            .partial
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let lines: Vec<u8> = printed.partial.drain(..whole).collect();
        self.emit(id, &lines, false)
    }

    fn emit(&mut self, id: StepId, bytes: &[u8], last: bool) -> Result<()> {
        let screen = &mut self.context.screen;
        if !self.prefix {
            return screen.raw(bytes);
        }
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            screen.raw(format!("{id}: ").as_bytes())?;
            screen.raw(line)?;
        }
        if last && !bytes.is_empty() && !bytes.ends_with(b"\n") {
            screen.raw(b"\n")?;
        }
        Ok(())
    }
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
    view: &View,
    context: &mut Context,
    store: &SqliteStore,
    step: &StepView,
) -> Result<()> {
    if tell_unstarted(context, step) {
        return Ok(());
    }
    if step.state != StepState::Running {
        context.screen.talk(&format!(
            "{} is {} and has written nothing yet",
            step.id, step.state
        ));
        return Ok(());
    }
    let Some(files) = open(store, step) else {
        return Ok(());
    };
    for stream in view.streams {
        let bytes = read_more(&files[index(*stream)]).or_fail(ErrorKind::Unavailable, || {
            format!("cannot read what {} writes", step.id)
        })?;
        let shown = view
            .tail
            .map_or(bytes.as_slice(), |lines| tail_of(&bytes, lines));
        context.screen.raw(shown)?;
    }
    Ok(())
}

/// Says so if a step is over and its last try never started, and why; `false` if that is not so.
pub(super) fn tell_unstarted(context: &mut Context, step: &StepView) -> bool {
    let why = match &step.ending {
        Some(Ending::Unstarted { reason } | Ending::Skipped { reason }) => reason,
        Some(Ending::Cancelled) => "it was cancelled before",
        Some(Ending::Expired) => "it had expired before",
        Some(
            Ending::Exited { .. }
            | Ending::Signalled { .. }
            | Ending::Interrupted
            | Ending::Lost
            | Ending::TimedOut { .. },
        )
        | None => return false,
    };
    let line = format!("{} never started: {why}", step.id);
    context.screen.talk(&text::shown(line));
    true
}

/// Opens the capture files of a running step; `None` while they cannot be told.
fn open(store: &SqliteStore, step: &StepView) -> Option<[Printed; 2]> {
    let runner = step.runner?;
    let dir = presence::dir_of(&runners_dir(store.root()), runner);
    // The runner's journal says which worker has the step.
    let testament = Testament::read(&dir.join("journal")).ok()?;
    let worker = testament.slots.iter().position(|slot| {
        matches!(slot, SlotState::Running { id, fence, .. }
            if *id == step.id && *fence == step.fence)
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
