//! A step and what it is called on its way through the house.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Band, FairnessKey, RunnerId, Span, StepId, Timestamp, Turn, Weight};

/// What is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A line for `sh -c`.
    Shell(OsString),
    /// A program and its arguments, byte for byte; at least the program.
    Argv(Vec<OsString>),
}

/// The variables that a step's process starts with: sorted by name, each name once.
///
/// Held as the kernel takes them, `NAME=VALUE` followed by NUL, because a store keeps many and
/// compares them whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment(Vec<u8>);

impl Environment {
    /// Collects variables; of two with one name the later wins. Names that no process could be
    /// given (empty, or with `=` or NUL in them) and values with NUL are left out.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let possible = |name: &OsStr, value: &OsStr| {
            let name = name.as_bytes();
            !name.is_empty()
                && !name.contains(&b'=')
                && !name.contains(&0)
                && !value.as_bytes().contains(&0)
        };
        let sorted: std::collections::BTreeMap<OsString, OsString> = pairs
            .into_iter()
            .filter(|(name, value)| possible(name, value))
            .collect();
        let mut bytes = Vec::new();
        for (name, value) in sorted {
            bytes.extend_from_slice(name.as_bytes());
            bytes.push(b'=');
            bytes.extend_from_slice(value.as_bytes());
            bytes.push(0);
        }
        Self(bytes)
    }

    /// Takes what [`Self::as_bytes`] gave.
    pub const fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Returns the variables as `NAME=VALUE` strings, each ended by NUL.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns names and values in the order of the names.
    pub fn pairs(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0.split(|byte| *byte == 0).filter_map(|entry| {
            let split = entry.iter().position(|byte| *byte == b'=')?;
            Some((
                OsStr::from_bytes(&entry[..split]),
                OsStr::from_bytes(&entry[split + 1..]),
            ))
        })
    }

    /// Returns one variable's value.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.pairs()
            .find(|(other, _)| *other == name)
            .map(|(_, value)| value)
    }
}

impl Command {
    /// Returns the command as bytes: each word ended by NUL.
    pub fn to_bytes(&self) -> Vec<u8> {
        let words: &[OsString] = match self {
            Self::Shell(line) => std::slice::from_ref(line),
            Self::Argv(words) => words,
        };
        let mut bytes = Vec::with_capacity(words.iter().map(|word| word.len() + 1).sum());
        for word in words {
            bytes.extend_from_slice(word.as_bytes());
            bytes.push(0);
        }
        bytes
    }

    /// Takes what [`Self::to_bytes`] gave. `None` if there is no word in it.
    pub fn from_bytes(shell: bool, bytes: &[u8]) -> Option<Self> {
        let mut words = bytes
            .strip_suffix(&[0])?
            .split(|byte| *byte == 0)
            .map(|word| OsString::from_vec(word.to_vec()));
        if shell {
            words.next().map(Self::Shell)
        } else {
            Some(Self::Argv(words.collect()))
        }
    }

    /// Returns the number of bytes that the words take.
    pub fn size(&self) -> usize {
        match self {
            Self::Shell(line) => line.len() + 1,
            Self::Argv(words) => words.iter().map(|word| word.len() + 1).sum(),
        }
    }
}

/// What becomes of a step whose runner dies while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnLost {
    /// It is run again; the lost attempt is given back.
    #[default]
    Retry,
    /// It ends as failed.
    Fail,
    /// It waits for a person.
    Hold,
}

/// How a step is to be treated while and after it runs. Kept with the step as JSON; a field that
/// holds its default is left out, and one that is missing has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// What becomes of it if its runner dies.
    pub on_lost: OnLost,
    /// How long what is asked to end may take before it is killed.
    #[serde(rename = "grace_ms")]
    pub grace: Span,
    /// Whether processes that the step leaves behind in its group may live on.
    pub leave_group: bool,
}

impl Policy {
    /// The grace of a step that names none.
    pub const DEFAULT_GRACE: Span = Span::from_millis(5_000);
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            on_lost: OnLost::Retry,
            grace: Self::DEFAULT_GRACE,
            leave_group: false,
        }
    }
}

/// When a new step may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// At once.
    Now,
    /// From this instant on.
    At(Timestamp),
    /// Not before somebody releases it.
    Held,
}

/// A step as someone asks for it; it has no id yet.
#[derive(Clone, Debug)]
pub struct NewStep {
    /// What to run.
    pub command: Command,
    /// Where to run it; absolute.
    pub cwd: PathBuf,
    /// The variables that it gets.
    pub env: Arc<Environment>,
    /// How urgent it is.
    pub band: Band,
    /// Whom it is run for.
    pub key: FairnessKey,
    /// The key's share, as far as this step decides it.
    pub weight: Weight,
    /// A name for people.
    pub name: Option<String>,
    /// Labels to select by.
    pub tags: Vec<String>,
    /// When it may run.
    pub due: Due,
    /// How it is treated.
    pub policy: Policy,
}

/// Where a step stands. In the store this is the table that holds its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepState {
    /// It runs now.
    Running,
    /// It may run now.
    Ready,
    /// Its time has not come.
    Delayed,
    /// It waits for somebody to release it.
    Held,
    /// It ended well.
    Succeeded,
    /// It ended badly and is not tried again: a dead letter.
    Failed,
    /// Somebody asked for its end.
    Cancelled,
}

impl StepState {
    /// All states, in the order in which people read them.
    pub const ALL: [Self; 7] = [
        Self::Running,
        Self::Ready,
        Self::Delayed,
        Self::Held,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Returns the word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Ready => "ready",
            Self::Delayed => "delayed",
            Self::Held => "held",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns whether nothing more will happen to the step by itself.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

impl fmt::Display for StepState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for StepState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|state| state.word() == text)
            .ok_or_else(|| {
                let words = Self::ALL.map(Self::word).join(", ");
                format!("{text:?} is not a state; states are {words}")
            })
    }
}

/// A step in the cache: a hint that it is probably due. It owns nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which step.
    pub id: StepId,
    /// The band at which it was planned or offered.
    pub band: Band,
    /// Its key.
    pub key: FairnessKey,
    /// Its slot's place in the band's virtual time; equal for all where turns are not used.
    pub turn: Turn,
}

/// The right of one runner to run one step, and all that is needed to do so.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Which step.
    pub id: StepId,
    /// Who holds it.
    pub runner: RunnerId,
    /// The claim's generation: only a claim raises it, every later write carries it.
    pub fence: u32,
    /// The number of this try, from 1, as far as it counts against the policy.
    pub attempt: u32,
    /// The step's band.
    pub band: Band,
    /// The step's key.
    pub key: FairnessKey,
    /// The step's name.
    pub name: Option<String>,
    /// What to run.
    pub command: Command,
    /// Where.
    pub cwd: PathBuf,
    /// With which variables.
    pub env: Arc<Environment>,
    /// How it is treated.
    pub policy: Policy,
    /// Since when it had been due.
    pub since: Timestamp,
    /// When it was claimed.
    pub claimed: Timestamp,
}

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
}

impl Ending {
    /// Returns the code that a shell would report: the exit code, 128 + the signal, 127 for a
    /// command that could not be started, 137 for one that was lost with its runner.
    pub const fn shell_code(&self) -> i32 {
        match self {
            Self::Exited { code } => *code,
            Self::Signalled { signal } => 128 + *signal,
            Self::Unstarted { .. } => 127,
            Self::Interrupted => 143,
            Self::Lost => 137,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It is recorded.
    Recorded,
    /// The step was no longer ours: nothing was written. Normal.
    Fenced,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn os(bytes: &[u8]) -> OsString {
        OsString::from_vec(bytes.to_vec())
    }

    #[test]
    fn a_command_survives_byte_for_byte() {
        for command in [
            Command::Shell(os(b"echo \xff | cat")),
            Command::Shell(os(b"")),
            Command::Argv(vec![
                os(b"printf"),
                os(b""),
                os(b"\xfe\xff"),
                os(b"a b\n'\"$X"),
            ]),
        ] {
            let shell = matches!(command, Command::Shell(_));
            let bytes = command.to_bytes();
            assert_eq!(command.size(), bytes.len());
            assert_eq!(Command::from_bytes(shell, &bytes), Some(command));
        }
        assert_eq!(Command::from_bytes(false, b""), None);
    }

    #[test]
    fn an_environment_is_sorted_and_keeps_the_later_value() {
        let env = Environment::from_pairs([
            (os(b"B"), os(b"1")),
            (os(b"A"), os(b"x=y\xa3")),
            (os(b""), os(b"dropped")),
            (os(b"B"), os(b"2")),
        ]);
        assert_eq!(env.as_bytes(), b"A=x=y\xa3\0B=2\0");
        assert_eq!(env.get("A"), Some(OsStr::from_bytes(b"x=y\xa3")));
        assert_eq!(env.get("C"), None);
    }
}
