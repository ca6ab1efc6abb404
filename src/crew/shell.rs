//! The real executor: each step is a process group of its own.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::Signal;

use super::capture::{Capture, live_path};
use super::child::{self, Child, StartError};
use super::executor::{Executor, Force, Outcome, Process, Ran, Seat};
use super::journal::Journal;
use super::launch::Launcher;
use super::leftovers::{LOOK, Leftover, Leftovers};
use super::limit::Limit;
use crate::ambient::Clock;
use crate::error::Result;
use crate::model::{Captured, Claim, Ending, Stream};

/// What was asked to end mostly does so at once: after so long it is looked at for the first time.
const FIRST_LOOK: Duration = Duration::from_millis(1);
/// How long the kernel may take to end what was killed.
const KILLED: Duration = Duration::from_secs(2);

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
    journal: Arc<Journal>,
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
        let journal = Arc::new(Journal::create(&runner.join("journal"))?);
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
            launcher: Launcher::of_this_thread(),
        })
    }
}

/// One worker's place: its two capture files, made at its first step.
struct ShellSeat {
    shared: Arc<Shared>,
    worker: u32,
    capture: Option<Capture>,
    launcher: Launcher,
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
        capture.ready()?;
        // Before and after: whoever finds us dead must know of a process that had just been started.
        journal.about_to_start(self.worker, claim.id, claim.fence)?;
        let started = clock.now();
        let child = match child::start(claim, capture, &self.launcher, started) {
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
        // Without it all of the output is kept until the end, which is no reason to end the step.
        let limit = claim
            .policy
            .max_output
            .and_then(|most| capture.limit(most).ok());
        Ok(Arc::new(Running {
            child,
            started,
            limit: Mutex::new(limit),
            demand: Mutex::default(),
            demanded: Condvar::new(),
        }))
    }

    fn finish(&mut self, claim: &Claim, running: &Running) -> Ran {
        let ended = running.child.wait();
        let left_some = ended.leftover.is_some();
        if let Some(leftover) = ended.leftover {
            let policy = &claim.policy;
            let asked = running.lock().asked;
            let again = policy.retries > 0 && ended.ending != (Ending::Exited { code: 0 });
            let clock = &*self.shared.clock;
            if asked {
                // It is over when nobody is left, and not before.
                running.see_off(leftover, None, clock);
            } else if policy.leave_group {
                // It may live on.
            } else if again {
                // Two tries never run at once.
                let over = clock.monotonic() + Duration::from(policy.grace);
                running.see_off(leftover, Some(over), clock);
            } else {
                // Should we die before the outcome is recorded, the step is run again: whoever does
                // that must know of what is left, and the worker's own record is for its next step.
                let note = leftover.told(claim.id);
                let note = note.and_then(|left| self.shared.journal.note(left).ok());
                self.shared.leftovers.end(leftover, policy.grace, note);
            }
        }
        let now = self.shared.clock.now();
        // Nobody cuts it off any more from here on: the files are about to be another step's.
        let limit = running.take_limit();
        let sealed = limit.map_or(Ok(()), Limit::seal);
        let collected = self
            .capture
            .as_mut()
            .map(|capture| sealed.and_then(|()| capture.collect(claim.id, claim.fence, left_some)));
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
    /// What bounds its output, as long as the files are its own.
    limit: Mutex<Option<Limit>>,
    demand: Mutex<Demand>,
    demanded: Condvar,
}

/// What was demanded of a running step.
#[derive(Clone, Copy, Debug, Default)]
struct Demand {
    /// It was asked to end, while its main process ran.
    asked: bool,
    /// Whatever is left of it is to be killed.
    kill: bool,
}

impl Running {
    /// Blocks until nobody is left in the group of a step whose main process has been reaped. They
    /// have been asked to end, and are killed when that is demanded, or the time is `over`.
    fn see_off(&self, mut leftover: Leftover, over: Option<Duration>, clock: &dyn Clock) {
        let mut pause = FIRST_LOOK;
        loop {
            if !leftover.look() {
                return;
            }
            let demand = self.lock();
            if demand.kill || over.is_some_and(|over| over <= clock.monotonic()) {
                break;
            }
            let waited = self
                .demanded
                .wait_timeout_while(demand, pause, |demand| !demand.kill);
            drop(waited);
            pause = (pause * 2).min(LOOK);
        }
        let until = clock.monotonic() + KILLED;
        leftover.kill();
        while leftover.look() && clock.monotonic() < until {
            // Nobody tells when a process that is not our child ends.
            std::thread::park_timeout(FIRST_LOOK);
        }
    }

    fn take_limit(&self) -> Option<Limit> {
        self.limit
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    fn lock(&self) -> MutexGuard<'_, Demand> {
        self.demand.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Process for Running {
    fn end(&self, force: Force) -> bool {
        // Under the lock until it is noted: whoever has waited for the main process looks then.
        let mut demand = self.lock();
        match force {
            Force::Ask => {
                let sent = self.child.ask_to_end();
                demand.asked |= sent;
                sent
            }
            Force::Kill => {
                let sent = self.child.signal_group(Signal::SIGKILL);
                demand.kill = true;
                // What is left of one that was asked to end belongs to it.
                let counts = sent || demand.asked;
                demand.asked |= sent;
                drop(demand);
                self.demanded.notify_all();
                counts
            }
        }
    }

    fn signal(&self, number: i32) -> bool {
        Signal::try_from(number).is_ok_and(|signal| self.child.signal_group(signal))
    }

    fn trim(&self) {
        let mut limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(limit) = &mut *limit {
            limit.cut();
        }
    }

    fn pid(&self) -> u32 {
        self.child.pid()
    }
}
