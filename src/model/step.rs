//! A step and what it is called on its way through the house.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    Band, Command, Environment, FairnessKey, Policy, RunnerId, StepId, Timestamp, Turn, Weight,
};

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
    /// The flow that it belongs to.
    pub flow: Option<String>,
    /// When it may run.
    pub due: Due,
    /// What must have happened before.
    pub after: Vec<Dependency>,
    /// What makes another one like it needless.
    pub unique: Option<Unique>,
    /// How it is treated.
    pub policy: Policy,
}

/// Which step another one waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Parent {
    /// One that is stored.
    Step(StepId),
    /// The one at this place of the same batch, from 0.
    InBatch(usize),
}

/// What has to become of a step before one that waits for it may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Need {
    /// It has succeeded.
    Success,
    /// It has ended, in whatever way.
    End,
    /// It has failed.
    Failure,
}

impl Need {
    /// Returns whether a parent that has ended like this meets the need; if not, it never will
    /// unless somebody retries it.
    pub const fn is_met_by(self, state: StepState) -> bool {
        match self {
            Self::Success => matches!(state, StepState::Succeeded),
            Self::End => state.is_final(),
            Self::Failure => matches!(state, StepState::Failed),
        }
    }

    /// Returns the word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::End => "end",
            Self::Failure => "failure",
        }
    }
}

/// One thing that must have happened before a step may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dependency {
    /// To which step.
    pub parent: Parent,
    /// What.
    pub need: Need,
}

/// While which step of the same unique key is there another one is not made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// One that has not started yet.
    Queued,
    /// One that has not ended yet.
    #[default]
    Active,
    /// One that is still kept, ended or not.
    Kept,
}

impl Scope {
    /// Returns whether a step that stands there makes another one needless.
    pub const fn covers(self, state: StepState) -> bool {
        match self {
            Self::Queued => !state.is_final() && !matches!(state, StepState::Running),
            Self::Active => !state.is_final(),
            Self::Kept => true,
        }
    }
}

/// What makes a step needless: another one of the same key, over all shards of a store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unique {
    /// The key.
    pub key: String,
    /// Which steps of the key count.
    pub scope: Scope,
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
    /// It waits for other steps.
    Blocked,
    /// It waits for a place of a named limit.
    Limited,
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
    /// Those in which a step is over.
    pub const OVER: [Self; 3] = [Self::Succeeded, Self::Failed, Self::Cancelled];

    /// All states, in the order in which people read them.
    pub const ALL: [Self; 9] = [
        Self::Running,
        Self::Ready,
        Self::Delayed,
        Self::Blocked,
        Self::Limited,
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
            Self::Blocked => "blocked",
            Self::Limited => "limited",
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
