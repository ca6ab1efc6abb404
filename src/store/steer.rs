//! Steering: what people do to steps that are stored.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use crate::error::Result;
use crate::model::{
    Band, Command, Environment, FairnessKey, LimitName, Need, Policy, RunnerId, ShardId, StepId,
    StepState, Timestamp, Weight,
};

/// Changes steps that are stored.
pub trait Steer: Send + Sync {
    /// Does one thing to each of these steps, and returns what came of it, in the same order. Steps
    /// of one shard are changed in portions of bounded size, each a transaction: after a crash the
    /// same call does the rest.
    ///
    /// Dependents of what ends follow on its shard at once; those on others are told by
    /// [`Release::deliver`], which the caller calls for every shard that it changed.
    ///
    /// [`Release::deliver`]: super::Release::deliver
    ///
    /// # Errors
    ///
    /// A shard could not be written; portions before that are done.
    fn steer(&self, ids: &[StepId], action: &Action, now: Timestamp) -> Result<Vec<Steered>>;

    /// Stops the start of steps, also of those to come, until it is resumed. Running steps go on.
    /// Pausing what is paused changes nothing.
    ///
    /// # Errors
    ///
    /// A shard could not be written; the same call does the rest.
    fn pause(&self, what: &Pause, now: Timestamp) -> Result<()>;

    /// Takes a pause back; `false` if there was none. Other pauses that cover the same steps stay.
    ///
    /// # Errors
    ///
    /// A shard could not be written; the same call does the rest.
    fn resume(&self, what: &Pause) -> Result<bool>;

    /// Sets how many places a limit has, from 0; `None` forgets it, after which it has one. Nothing
    /// that runs is ended. Returns what it was set to before.
    ///
    /// # Errors
    ///
    /// The shard that keeps limits could not be written.
    fn set_limit(&self, name: &LimitName, places: Option<u32>) -> Result<Option<u32>>;

    /// Forgets some steps of a shard that are over, oldest numbers first, with all that is kept of
    /// them but the files of their outputs, whose paths it returns. A bounded number: to be called
    /// until [`Cleaned::done`]. A step that another one which is not over waits for or has waited
    /// for stays. A number is not used again, and a unique key for which only a forgotten step stood
    /// is free.
    ///
    /// # Errors
    ///
    /// The shard could not be written; nothing was forgotten.
    fn clean(&self, shard: ShardId, retention: &Retention) -> Result<Cleaned>;
}

/// Something to do to a step.
#[derive(Clone, Debug)]
pub enum Action {
    /// End it: what waits is over at once, with [`Ending::Cancelled`]; of what runs it is noted, for
    /// its runner to see, as often as it is asked. What is over is refused.
    ///
    /// [`Ending::Cancelled`]: crate::model::Ending::Cancelled
    Cancel,
    /// Let it wait until it is released: what is due, delayed, blocked or limited. Its time is kept,
    /// its places are not. It still follows its parents: one whose need can never be met is over.
    Hold,
    /// Let a held step go where it belongs: blocked, delayed, limited or due.
    Release,
    /// Let a failed or cancelled step be tried again at once, its tries counted from the start; what
    /// was recorded stays. What it waits for is judged anew by where its parents stand now; of one
    /// that is not kept any more it holds what was known. If a need can never be met, it is refused:
    /// the parent is to be tried again before, or in the same call, in whatever order. Dependents
    /// that followed from its end stay where they are. `Policy::expire` is forgotten where its time
    /// has come; unique keys are not looked at.
    Retry,
    /// Change what was asked for, as long as it waits, in whatever state. A due or limited step stays
    /// so with its age and its places, unless its time or its limits change: then it goes where it
    /// belongs. What is held stays held, what is blocked blocked.
    Edit(Box<Edit>),
}

impl From<Edit> for Action {
    fn from(edit: Edit) -> Self {
        Self::Edit(Box::new(edit))
    }
}

/// What to change of a step; `None` leaves a part as it is.
#[derive(Clone, Debug, Default)]
pub struct Edit {
    /// What to run.
    pub command: Option<Command>,
    /// Where.
    pub cwd: Option<PathBuf>,
    /// With which variables.
    pub env: Option<Arc<Environment>>,
    /// Its band.
    pub band: Option<Band>,
    /// Its key. The step stays on its shard.
    pub key: Option<FairnessKey>,
    /// Its weight.
    pub weight: Option<Weight>,
    /// Its name; `Some(None)` takes it away.
    pub name: Option<Option<String>>,
    /// Its labels.
    pub tags: Option<Vec<String>>,
    /// The flow that it belongs to; `Some(None)` takes it out.
    pub flow: Option<Option<String>>,
    /// When it may run; `Some(None)` at once.
    pub due: Option<Option<Timestamp>>,
    /// How it is treated.
    pub policy: Option<Policy>,
}

/// What came of doing something to one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steered {
    /// It stands there now. The same state as before if only what was asked for changed.
    Done {
        /// Where it stood.
        from: StepState,
        /// Where it stands.
        to: StepState,
    },
    /// It runs: its end was asked for, and this runner will see to it.
    Asked {
        /// The runner.
        runner: RunnerId,
    },
    /// That cannot be done to a step that stands there; nothing was changed.
    Refused {
        /// Where it stands.
        state: StepState,
    },
    /// There is no such step.
    Missing,
}

/// What does not start while the pause lasts: steps of this band and of this key. `None` stands for
/// all, so that a pause of neither stops everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Pause {
    /// The band.
    pub band: Option<Band>,
    /// The key.
    pub key: Option<FairnessKey>,
}

impl Pause {
    /// Returns whether a step of this band and key does not start.
    pub fn covers(&self, band: Band, key: &FairnessKey) -> bool {
        self.band.is_none_or(|own| own == band) && self.key.as_ref().is_none_or(|own| own == key)
    }
}

/// A pause that lasts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Paused {
    /// What is paused.
    #[serde(flatten)]
    pub what: Pause,
    /// Since when.
    pub since: Timestamp,
}

/// What a step waits for, or has waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Link {
    /// The step that it waits for.
    pub parent: StepId,
    /// What has to become of that.
    pub need: Need,
    /// Whether it has become of it; `false` too where it never will.
    pub met: bool,
    /// Where the parent stands now; `None` if it is not kept any more.
    pub state: Option<StepState>,
}

/// A named limit as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LimitView {
    /// Its name.
    pub name: LimitName,
    /// How many places it has.
    pub places: u32,
    /// Whether somebody has set that; a limit that nobody has set has one.
    pub is_set: bool,
    /// Who holds how many of them: steps that run, or are due and may start.
    pub holders: BTreeMap<StepId, u32>,
    /// How many steps wait for it.
    pub waiting: u64,
}

impl LimitView {
    /// How many places a limit has that nobody has set.
    pub const UNSET: u32 = 1;

    /// Returns how many places are taken. More than there are after the limit was lowered.
    pub fn taken(&self) -> u32 {
        self.holders.values().sum()
    }
}

/// Which steps to forget.
#[derive(Clone, Debug)]
pub struct Retention {
    /// Those that ended before this instant.
    pub ended_before: Timestamp,
    /// Those of these final states.
    pub states: Vec<StepState>,
    /// Only what matches this; `None` for all.
    pub only: Option<Vec<StepId>>,
    /// About how many of them in one go: so long the shard's writer is busy.
    pub most: usize,
    /// Whether to look, when nothing is left to be forgotten, for what belongs to no step any more,
    /// too. That may be a walk over all steps.
    pub tidy: bool,
}

impl Retention {
    /// How many in one go where somebody waits for it.
    pub const PORTION: usize = 1_000;
}

/// What one portion of cleaning came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// How many steps were forgotten.
    pub steps: u64,
    /// The files that held their outputs, below the store's directory; to be removed by the caller.
    pub files: Vec<PathBuf>,
    /// Whether nothing is left to be forgotten.
    pub done: bool,
}
