//! The vocabulary: ids, units and the words for a step on its way.
//!
//! No bare integer crosses a module: what a number means is its type. This module does no I/O,
//! reads no clock and knows no other module of the crate.

mod command;
mod duration;
mod durations;
mod ending;
mod id;
mod key;
mod policy;
mod step;
mod time;
mod turn;

pub use command::{Command, Environment};
pub use duration::ParseSpanError;
pub use durations::Durations;
pub use ending::{
    Captured, Ending, Finished, Found, LostRun, Recorded, Released, Settled, Settlement, Stream,
    Verdict,
};
pub use id::{LocalId, ParseIdError, ParseRunnerError, RunnerId, ShardId, StepId};
pub use key::{Band, FairnessKey, ParseKeyError, Weight};
pub use policy::{Backoff, LimitName, OnLost, Policy};
pub use step::{
    Candidate, Claim, Dependency, Due, Need, NewStep, Parent, Scope, StepState, Unique,
};
pub use time::{Span, Timestamp};
pub use turn::Turn;
