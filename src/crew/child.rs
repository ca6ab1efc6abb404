//! One running step: a process group of its own.
//!
//! A child is started the way that copies nothing of our process (`posix_spawn`, by way of
//! [`Launcher`]): an absolute program, no code of ours between fork and exec. It gets the captured environment and the variables of [`STEP_VARIABLES`], an
//! empty standard input, the worker's two files, and nothing else.
//!
//! **A group is signalled only while its number is certainly ours.** The kernel gives a number
//! away again when nobody has it as process or group. So the leader's exit is first observed
//! without reaping it; reaping happens under the lock that signalling takes too, and afterwards
//! nobody signals through the [`Child`] any more. What is left of the group then is a
//! [`Leftover`], which proves the number in another way.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use rustix::process::{WaitOptions, waitpid};

use crate::error::Error;
use crate::model::{Claim, Command, Ending, Policy, Timestamp};

use super::capture::Capture;
use super::launch::{Blueprint, Launcher};
use super::leftovers::Leftover;
use super::nursery;
use super::process::{Birth, as_pid, ticks_now};
use super::program::{SHELL, Unresolved, resolve};
use super::refusal;

/// The variables that a step gets from us. A captured variable of such a name is that of a step
/// around the `enqueue`, and never reaches another step.
pub const STEP_VARIABLES: [&str; 8] = [
    "FAIRQ_ID",
    "FAIRQ_ATTEMPT",
    "FAIRQ_BAND",
    "FAIRQ_KEY",
    "FAIRQ_NAME",
    "FAIRQ_STORE",
    "FAIRQ_WORKER",
    "FAIRQ_DEADLINE",
];

/// Why there is no process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartError {
    /// There never will be one: the step fails, and this is why, with the path and the error
    /// number that it went wrong with.
    Never {
        /// For people.
        reason: String,
    },
    /// The machine or the runner lacks something for the moment: back off, start it again, and do
    /// not count the try.
    NotNow {
        /// For people.
        reason: String,
    },
}

impl From<Error> for StartError {
    /// What goes wrong with our own files is no fault of the step.
    fn from(error: Error) -> Self {
        Self::NotNow {
            reason: error.to_string(),
        }
    }
}

/// How a step's main process ended, and what it left.
#[derive(Debug)]
pub struct Ended {
    /// The ending. `Lost` if the kernel did not tell, which happens only to a process that was
    /// started with SIGCHLD ignored and did not change that.
    pub ending: Ending,
    /// What remains of its process group. Unless the step's policy lets it live on, it has been
    /// asked to end and belongs into [`super::leftovers::Leftovers::end`].
    pub leftover: Option<Leftover>,
}

/// A step's main process, which leads a process group of its own.
///
/// One thread waits; others may signal meanwhile.
#[derive(Debug)]
pub struct Child {
    birth: Birth,
    leave_group: bool,
    /// What asks its group to end.
    kill_signal: Signal,
    leader: Mutex<Leader>,
}

#[derive(Debug)]
enum Leader {
    /// It runs, or is a zombie: its number is ours.
    Ours,
    /// It has been reaped: its number may be anybody's.
    Reaped(Ending),
}

/// Starts a claimed step on the worker that owns these capture files.
///
/// A shell line runs as `/bin/sh -c LINE`, an argv byte for byte with its first word as argument
/// 0; which program that word means is found with the step's own PATH, from its own directory. A
/// program that the kernel knows no format for is run by `/bin/sh`, as `execvp` does. A step with a
/// time-out is told when that is over, counted from `now`; ending it then is the caller's part.
///
/// # Errors
///
/// See [`StartError`]. The capture files are as they were.
pub fn start(
    claim: &Claim,
    capture: &mut Capture,
    launcher: &Launcher,
    now: Timestamp,
) -> Result<Child, StartError> {
    let mut recipe =
        Recipe::of(claim).map_err(|unresolved| refusal::no_program(claim, &unresolved))?;
    let mut spawned = recipe.spawn(claim, capture, launcher, now)?;
    if matches!(&spawned, Err(error) if error.raw_os_error() == Some(Errno::ENOEXEC as i32)) {
        recipe = recipe.through_shell();
        spawned = recipe.spawn(claim, capture, launcher, now)?;
    }
    spawned.map_err(|error| refusal::explain(claim, &recipe.program, &error))
}

/// What to execute: program, argument 0, the other arguments.
struct Recipe<'claim> {
    program: PathBuf,
    arg0: &'claim OsStr,
    arguments: Vec<Cow<'claim, OsStr>>,
}

impl<'claim> Recipe<'claim> {
    fn of(claim: &'claim Claim) -> Result<Self, Unresolved> {
        match &claim.command {
            Command::Shell(line) => {
                let mut arguments = vec![Cow::Borrowed(OsStr::new("-c"))];
                // A line that begins like an option would be taken for one.
                if matches!(line.as_bytes().first(), Some(b'-' | b'+')) {
                    arguments.push(Cow::Borrowed(OsStr::new("--")));
                }
                arguments.push(Cow::Borrowed(line));
                Ok(Self {
                    program: SHELL.into(),
                    arg0: OsStr::new("sh"),
                    arguments,
                })
            }
            Command::Argv(words) => {
                let arg0 = words.first().map_or(OsStr::new(""), OsString::as_os_str);
                let arguments = words.iter().skip(1);
                Ok(Self {
                    program: resolve(arg0, &claim.cwd, || claim.env.get("PATH"))?,
                    arg0,
                    arguments: arguments.map(|word| Cow::Borrowed(&**word)).collect(),
                })
            }
        }
    }

    /// Lets the shell read the program's file.
    fn through_shell(mut self) -> Self {
        let script = std::mem::replace(&mut self.program, SHELL.into());
        self.arguments.insert(0, Cow::Owned(script.into()));
        self.arg0 = OsStr::new("sh");
        self
    }

    /// Makes the process. The outer error is ours, the inner one the system's.
    fn spawn(
        &self,
        claim: &Claim,
        capture: &mut Capture,
        launcher: &Launcher,
        now: Timestamp,
    ) -> Result<io::Result<Child>, StartError> {
        let (out, err) = capture.open()?;
        let asked = claim.policy.vars.iter();
        let vars: Vec<(&OsStr, Cow<'_, OsStr>)> = asked
            .map(|(name, value)| (name.as_ref(), Cow::Borrowed(value.as_ref())))
            .chain(
                step_variables(claim, capture, now)
                    .map(|(name, value)| (OsStr::new(name), Cow::Owned(value))),
            )
            .collect();
        let plan = Blueprint {
            program: &self.program,
            arg0: self.arg0,
            arguments: &self.arguments,
            cwd: &claim.cwd,
            env: &claim.env,
            vars: &vars,
            without: &STEP_VARIABLES,
        };
        let after = ticks_now();
        let spawned = nursery::bear(|| launcher.launch(&plan, out, err));
        let before = ticks_now();
        Ok(spawned.map(|pid| {
            capture.mark_used();
            Child {
                birth: Birth { pid, after, before },
                leave_group: claim.policy.leave_group,
                kill_signal: kill_signal(&claim.policy),
                leader: Mutex::new(Leader::Ours),
            }
        }))
    }
}

/// Returns the signal that asks a step to end; TERM for a number that has no name.
fn kill_signal(policy: &Policy) -> Signal {
    Signal::try_from(policy.kill_signal).unwrap_or(Signal::SIGTERM)
}

/// Returns what a step is told about itself.
fn step_variables(
    claim: &Claim,
    capture: &Capture,
    now: Timestamp,
) -> impl Iterator<Item = (&'static str, OsString)> {
    let deadline = claim.policy.timeout.map(|timeout| now + timeout);
    let told: [(&str, Option<OsString>); 8] = [
        ("FAIRQ_ID", Some(claim.id.to_string().into())),
        ("FAIRQ_ATTEMPT", Some(claim.attempt.to_string().into())),
        ("FAIRQ_BAND", Some(claim.band.to_string().into())),
        ("FAIRQ_KEY", Some(claim.key.as_str().into())),
        ("FAIRQ_NAME", claim.name.as_ref().map(Into::into)),
        ("FAIRQ_STORE", Some(capture.store().into())),
        ("FAIRQ_WORKER", Some(capture.worker().to_string().into())),
        ("FAIRQ_DEADLINE", deadline.map(|at| at.to_string().into())),
    ];
    told.into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
}

impl Child {
    /// Returns who it is, for whoever outlives us.
    pub const fn birth(&self) -> Birth {
        self.birth
    }

    /// Returns its number, which is also that of its group. After [`Self::wait`] it may be anybody's.
    pub const fn pid(&self) -> u32 {
        self.birth.pid
    }

    /// Sends a signal to everybody in its group. Returns whether it was sent: not after the main
    /// process has been reaped. A process that is stopped takes no signal but KILL before it goes
    /// on: CONT after TERM lets it.
    pub fn signal_group(&self, signal: Signal) -> bool {
        let leader = self.lock();
        let sent = match *leader {
            Leader::Ours => killpg(as_pid(self.birth.pid), signal).is_ok(),
            Leader::Reaped(_) => false,
        };
        drop(leader);
        sent
    }

    /// Asks everybody in its group to end, with the signal of the step's policy. Returns whether that
    /// was sent.
    pub fn ask_to_end(&self) -> bool {
        let leader = self.lock();
        let sent = match *leader {
            Leader::Ours => self.ask_group(),
            Leader::Reaped(_) => false,
        };
        drop(leader);
        sent
    }

    /// To be called only while the group's number is ours.
    fn ask_group(&self) -> bool {
        let group = as_pid(self.birth.pid);
        let sent = killpg(group, self.kill_signal).is_ok();
        // What is stopped takes nothing but KILL before it goes on.
        killpg(group, Signal::SIGCONT).ok();
        sent
    }

    /// Blocks until the main process has ended, asks what is left of its group to end unless the
    /// policy lets it live, and reaps the main process. Called again, it returns the same ending.
    pub fn wait(&self) -> Ended {
        if let Leader::Reaped(ending) = &*self.lock() {
            return Ended {
                ending: ending.clone(),
                leftover: None,
            };
        }
        // Without the lock, so that others can signal. Any other answer means that it has ended:
        // one of them is a signal that the library has no name for.
        let exited = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        while waitid(Id::Pid(as_pid(self.birth.pid)), exited) == Err(Errno::EINTR) {}
        let ending = self.reap();
        Ended {
            ending,
            leftover: Leftover::of_group(self.birth.pid),
        }
    }

    /// Reaps the main process, which is a zombie: its number is ours until then.
    fn reap(&self) -> Ending {
        let mut leader = self.lock();
        let ending = match &*leader {
            Leader::Ours => {
                if !self.leave_group {
                    // The zombie itself counts as reached, and an error changes nothing.
                    self.ask_group();
                }
                let ending = reap(self.birth.pid).map_or(Ending::Lost, as_ending);
                nursery::forget(self.birth.pid);
                ending
            }
            Leader::Reaped(ending) => ending.clone(),
        };
        *leader = Leader::Reaped(ending.clone());
        drop(leader);
        ending
    }

    fn lock(&self) -> MutexGuard<'_, Leader> {
        self.leader.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a zombie's number back, by its raw status: of a signal that the other library has no name for
/// it tells nothing.
fn reap(pid: u32) -> Option<ExitStatus> {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed())?;
    let reaped = rustix::io::retry_on_intr(|| waitpid(Some(pid), WaitOptions::empty())).ok()?;
    reaped.map(|(_, status)| ExitStatus::from_raw(status.as_raw()))
}

fn as_ending(status: ExitStatus) -> Ending {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Exited { code },
        (None, Some(signal)) => Ending::Signalled { signal },
        (None, None) => Ending::Lost,
    }
}
