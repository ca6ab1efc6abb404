//! What people see of a step and of a shard.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use crate::model::{
    Band, Command, Ending, Environment, FairnessKey, LimitName, Policy, RunnerId, ShardId, StepId,
    StepState, Timestamp, Weight,
};

/// Everything about a step but its tries and its output.
#[derive(Clone, Debug)]
pub struct StepView {
    /// Its id.
    pub id: StepId,
    /// Where it stands.
    pub state: StepState,
    /// What it runs.
    pub command: Command,
    /// Where it runs.
    pub cwd: PathBuf,
    /// The variables that it gets.
    pub env: Arc<Environment>,
    /// Its band.
    pub band: Band,
    /// Its key.
    pub key: FairnessKey,
    /// Its weight.
    pub weight: Weight,
    /// Its name.
    pub name: Option<String>,
    /// Its labels.
    pub tags: Vec<String>,
    /// The flow that it belongs to.
    pub flow: Option<String>,
    /// How it is treated.
    pub policy: Policy,
    /// When it was enqueued.
    pub created: Timestamp,
    /// Since when it has been due (`Ready`), when it will be (`Delayed`), since when it has waited
    /// (`Limited`), when it was claimed (`Running`), when it ended (final states); `created` for the
    /// rest.
    pub at: Timestamp,
    /// Since when it had been due when it was claimed (`Running`), or has been (`Ready`).
    pub since: Option<Timestamp>,
    /// The number of tries that count, the running one included.
    pub attempt: u32,
    /// How often it was claimed.
    pub fence: u32,
    /// Who runs it now.
    pub runner: Option<RunnerId>,
    /// Whether somebody has asked for the end of the running try, and of the step.
    pub cancelling: bool,
    /// The limit that it was last seen to wait for, for `Limited`.
    pub limit: Option<LimitName>,
    /// How its last try ended, for final states.
    pub ending: Option<Ending>,
    /// When the process of its last try was started, for final states.
    pub started: Option<Timestamp>,
}

/// One try that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attempt {
    /// The claim under which it ran; tells the step's tries apart.
    pub fence: u32,
    /// The number of the try as far as it counted.
    pub attempt: u32,
    /// Who ran it.
    pub runner: RunnerId,
    /// Which of the runner's workers.
    pub worker: u32,
    /// Since when the step had been due.
    pub since: Timestamp,
    /// When it was claimed.
    pub claimed: Timestamp,
    /// When its process was started.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub ended: Timestamp,
    /// How it ended.
    pub ending: Ending,
}

/// A step as it was put in.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// Its id.
    pub id: StepId,
    /// Its band.
    pub band: Band,
    /// Its key.
    pub key: FairnessKey,
    /// Its weight.
    pub weight: Weight,
    /// Its name.
    pub name: Option<String>,
    /// When that was.
    pub created: Timestamp,
}

/// How many, by band and key or by state.
pub type Counts<K> = BTreeMap<K, u64>;

/// How many steps of one shard stand where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardCounts {
    /// How many in each state; a state without steps may be missing.
    pub states: Counts<StepState>,
    /// How many due steps each band has, paused ones included.
    pub ready: Counts<Band>,
    /// How many of them belong to a key or a band that is paused.
    pub paused: u64,
    /// How many delayed steps have been tried before.
    pub retrying: u64,
    /// When the next delayed step falls due.
    pub next_due: Option<Timestamp>,
}

/// In which order steps are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Running first, then due in the order of bands and age, then the rest, newest first.
    #[default]
    Relevance,
    /// By id: shard, then number.
    Id,
    /// Newest first.
    Newest,
}

/// Which steps to list. All parts that are given must match.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only these ids, as ranges of numbers within one shard, both ends included.
    pub ids: Vec<(ShardId, i64, i64)>,
    /// Only these states.
    pub states: Vec<StepState>,
    /// Only these keys.
    pub keys: Vec<FairnessKey>,
    /// Only these bands.
    pub bands: Vec<Band>,
    /// Only steps that carry one of these labels.
    pub tags: Vec<String>,
    /// Only steps of one of these flows.
    pub flows: Vec<String>,
    /// The order.
    pub order: Order,
    /// At most so many; `None` for all.
    pub limit: Option<usize>,
}
