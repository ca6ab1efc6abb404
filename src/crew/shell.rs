//! The real executor: each step is a process group of its own.

use std::path::PathBuf;
use std::sync::Arc;

use nix::sys::signal::Signal;

use super::capture::{Capture, live_path};
use super::child::{self, Child, StartError};
use super::executor::{Executor, Force, Outcome, Process, Ran, Seat};
use super::journal::Journal;
use super::leftovers::Leftovers;
use crate::ambient::Clock;
use crate::error::Result;
use crate::model::{Captured, Claim, Ending, Stream};

/// Starts steps as processes for one runner.
#[derive(Debug)]
pub struct Shell {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The store's directory.
    store: PathBuf,
    /// The runner's folder.
    runner: PathBuf,
    inline_max: u64,
    journal: Journal,
    leftovers: Leftovers,
    clock: Arc<dyn Clock>,
}

impl Shell {
    /// Returns the executor of the runner that has this folder. Output of up to `inline_max` bytes a
    /// stream is kept with the step's record, more in a file below the store's directory.
    ///
    /// # Errors
    ///
    /// `Unavailable` if its journal cannot be made.
    pub fn new(
        store: PathBuf,
        runner: PathBuf,
        inline_max: u64,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let journal = Journal::create(&runner.join("journal"))?;
        let leftovers = Leftovers::new(Arc::clone(&clock));
        let shared = Shared {
            store,
            runner,
            inline_max,
            journal,
            leftovers,
            clock,
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Kills at once what steps left behind and was asked to end. To be called when no step runs.
    pub fn close(&self) {
        self.shared.leftovers.close();
    }
}

impl Executor for Shell {
    fn seat(&self, worker: u32) -> Box<dyn Seat> {
        Box::new(ShellSeat {
            shared: Arc::clone(&self.shared),
            worker,
            capture: None,
        })
    }
}

/// One worker's place: its two capture files, made at its first step.
struct ShellSeat {
    shared: Arc<Shared>,
    worker: u32,
    capture: Option<Capture>,
}

impl Seat for ShellSeat {
    fn run(&mut self, claim: &Claim, started: &mut dyn FnMut(Arc<dyn Process>)) -> Ran {
        match self.start(claim) {
            Ok(running) => {
                started(Arc::clone(&running) as Arc<dyn Process>);
                self.finish(claim, &running)
            }
            Err(StartError::NotNow { reason }) => Ran::NotNow(reason),
            Err(StartError::Never { reason }) => Ran::Ended(Outcome {
                ending: Ending::Unstarted { reason },
                started: None,
                ended: self.shared.clock.now(),
                stdout: Captured::Empty,
                stderr: Captured::Empty,
            }),
        }
    }
}

impl ShellSeat {
    fn start(&mut self, claim: &Claim) -> Result<Arc<Running>, StartError> {
        let Shared {
            store,
            runner,
            inline_max,
            journal,
            clock,
            ..
        } = &*self.shared;
        let capture = match &mut self.capture {
            Some(capture) => capture,
            None => {
                // A seat that was given up in the middle of a step may have left files of this name.
                for stream in [Stream::Stdout, Stream::Stderr] {
                    std::fs::remove_file(live_path(runner, self.worker, stream)).ok();
                }
                self.capture
                    .insert(Capture::create(store, runner, self.worker, *inline_max)?)
            }
        };
        // Before and after: whoever finds us dead must know of a process that had just been started.
        journal.about_to_start(self.worker, claim.id, claim.fence)?;
        let started = clock.now();
        let child = match child::start(claim, capture) {
            Ok(child) => child,
            Err(error) => {
                journal.clear(self.worker)?;
                return Err(error);
            }
        };
        // From here on there is a process, which goes on whether or not this can be written: the
        // note from before still leads to it.
        journal
            .running(self.worker, claim.id, claim.fence, child.birth())
            .ok();
        Ok(Arc::new(Running { child, started }))
    }

    fn finish(&mut self, claim: &Claim, running: &Running) -> Ran {
        let ended = running.child.wait();
        let now = self.shared.clock.now();
        let left_some = ended.leftover.is_some();
        if let Some(leftover) = ended.leftover
            && !claim.policy.leave_group
        {
            self.shared.leftovers.end(leftover, claim.policy.grace);
        }
        let collected = self
            .capture
            .as_mut()
            .map(|capture| capture.collect(claim.id, claim.fence, left_some));
        let (stdout, stderr) = match collected {
            None => (Captured::Empty, Captured::Empty),
            Some(Ok(both)) => both,
            Some(Err(error)) => {
                // The step has run; what it wrote is lost, and its record says why.
                let note = format!("fairq could not keep what this step wrote: {error}\n");
                (Captured::Empty, Captured::Inline(note.into_bytes()))
            }
        };
        self.shared.journal.clear(self.worker).ok();
        Ran::Ended(Outcome {
            ending: ended.ending,
            started: Some(running.started),
            ended: now,
            stdout,
            stderr,
        })
    }
}

/// A running step, as the roster reaches it.
#[derive(Debug)]
struct Running {
    child: Child,
    started: crate::model::Timestamp,
}

impl Process for Running {
    fn end(&self, force: Force) -> bool {
        match force {
            Force::Term => {
                let told = self.child.signal_group(Signal::SIGTERM);
                // One that is stopped takes nothing before it goes on.
                self.child.signal_group(Signal::SIGCONT);
                told
            }
            Force::Kill => self.child.signal_group(Signal::SIGKILL),
        }
    }

    fn pid(&self) -> u32 {
        self.child.pid()
    }
}
