//! How a try ended, what that means, and what was recorded.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use super::{Band, FairnessKey, RunnerId, StepId, StepState, Timestamp, Weight};

/// How one try of a step ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "how", rename_all = "lowercase")]
pub enum Ending {
    /// The main process returned a code, 0 to 255.
    Exited {
        /// The code.
        code: i32,
    },
    /// A signal ended the main process.
    Signalled {
        /// The signal's number.
        signal: i32,
    },
    /// There never was a process.
    Unstarted {
        /// What went wrong, with the path that it went wrong with.
        reason: String,
    },
    /// We stopped it for reasons of our own (a shutdown); it is no fault of the step.
    Interrupted,
    /// Its runner died; what the command did by then is not known.
    Lost,
    /// Its time was over: it was asked to end, and did.
    #[serde(rename = "timed_out")]
    TimedOut {
        /// Whether it had to be killed, because it did not end when asked.
        killed: bool,
    },
    /// It never ran: somebody asked for its end before.
    Cancelled,
    /// It never ran: a step that it waited for ended in another way than it was to.
    Skipped {
        /// Which step, and how it ended.
        reason: String,
    },
    /// It never ran: it was not to be started any more.
    Expired,
}

impl Ending {
    /// Returns the end of a step that waited for `parent`, which stands there and can no longer be
    /// what was needed; `None` if it is not kept.
    pub fn skipped(parent: StepId, state: Option<StepState>) -> Self {
        let became = match state {
            Some(state @ (StepState::Succeeded | StepState::Failed)) => state.word(),
            Some(StepState::Cancelled) => "was cancelled",
            Some(state) => {
                return Self::Skipped {
                    reason: format!("{parent} is {state}"),
                };
            }
            None => "is not there",
        };
        Self::Skipped {
            reason: format!("{parent} {became}"),
        }
    }

    /// Returns the code that a shell would report: the exit code, 128 + the signal, 127 for a
    /// command that could not be started, 137 for one that was lost with its runner, 124 for one
    /// whose time was over, 125 for one that never ran.
    pub const fn shell_code(&self) -> i32 {
        match self {
            Self::Exited { code } => *code,
            Self::Signalled { signal } => 128 + *signal,
            Self::Unstarted { .. } => 127,
            Self::Interrupted => 143,
            Self::Lost => 137,
            Self::TimedOut { .. } => 124,
            Self::Cancelled | Self::Skipped { .. } | Self::Expired => 125,
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited { code } => write!(f, "exit {code}"),
            Self::Signalled { signal } => write!(f, "signal {signal}"),
            Self::Unstarted { reason } => write!(f, "could not start: {reason}"),
            Self::Interrupted => f.write_str("interrupted"),
            Self::Lost => f.write_str("lost with its runner"),
            Self::TimedOut { killed: false } => f.write_str("timed out"),
            Self::TimedOut { killed: true } => f.write_str("timed out and killed"),
            Self::Cancelled => f.write_str("cancelled before it started"),
            Self::Skipped { reason } => write!(f, "skipped: {reason}"),
            Self::Expired => f.write_str("expired before it started"),
        }
    }
}

/// One of a step's two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What a try wrote to one of its streams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Captured {
    /// Nothing.
    #[default]
    Empty,
    /// These bytes.
    Inline(Vec<u8>),
    /// So much that it has a file of its own.
    File {
        /// Its path below the store's directory.
        path: PathBuf,
        /// Its length in bytes when the step ended.
        size: u64,
    },
}

/// A try that is over, as the crew reports it.
#[derive(Debug)]
pub struct Finished {
    /// Which step.
    pub id: StepId,
    /// Who ran it.
    pub runner: RunnerId,
    /// The claim under which it ran.
    pub fence: u32,
    /// The number of the try.
    pub attempt: u32,
    /// How it ended.
    pub ending: Ending,
    /// When its process was started; `None` if there never was one.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub ended: Timestamp,
    /// Which worker ran it.
    pub worker: u32,
    /// What it wrote to its standard output.
    pub stdout: Captured,
    /// What it wrote to its standard error.
    pub stderr: Captured,
}

/// What the ending means for the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is done.
    Succeeded,
    /// It is a dead letter.
    Failed,
    /// It is tried again, not before this instant.
    Retry {
        /// The instant.
        at: Timestamp,
    },
    /// It goes back as it was, this try not counted.
    GiveBack,
}

/// A verdict to be written, fenced.
#[derive(Debug)]
pub struct Settlement {
    /// The try.
    pub finished: Finished,
    /// What it means.
    pub verdict: Verdict,
}

/// What a settlement came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Settled {
    /// It is recorded.
    Recorded(Recorded),
    /// The step was no longer ours: nothing was written. Normal.
    Fenced,
}

/// What followed from an outcome that is recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// Where the step stands now. Not always what the verdict says: a step whose end somebody had
    /// asked for is cancelled where it would have been tried again.
    pub state: StepState,
    /// The steps that became due because of it.
    pub released: Vec<Released>,
    /// Whether steps of other shards, or steps that wait for a place of a limit, have yet to be
    /// told.
    pub tell: bool,
}

/// A step that became due because of something else than its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Released {
    /// Which step.
    pub id: StepId,
    /// Its band.
    pub band: Band,
    /// Its key.
    pub key: FairnessKey,
    /// The key's share, as far as this step decides it.
    pub weight: Weight,
}

/// What was found of the output of a try whose runner has died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which step.
    pub id: StepId,
    /// The claim under which it ran.
    pub fence: u32,
    /// What it wrote to its standard output.
    pub stdout: Captured,
    /// What it wrote to its standard error.
    pub stderr: Captured,
}

/// A step that was taken back from a dead runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRun {
    /// Which step.
    pub id: StepId,
    /// Which runner died.
    pub runner: RunnerId,
    /// Where the step stands now.
    pub state: StepState,
}
