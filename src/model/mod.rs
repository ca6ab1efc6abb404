//! The vocabulary: ids, units and the words for a step on its way.
//!
//! No bare integer crosses a module: what a number means is its type. This module does no I/O,
//! reads no clock and knows no other module of the crate.

mod duration;
mod durations;
mod id;
mod key;
mod step;
mod time;
mod turn;

pub use duration::ParseSpanError;
pub use durations::Durations;
pub use id::{LocalId, ParseIdError, RunnerId, ShardId, StepId};
pub use key::{Band, FairnessKey, ParseKeyError, Weight};
pub use step::{
    Candidate, Captured, Claim, Command, Due, Ending, Environment, Finished, LostRun, NewStep,
    OnLost, Policy, Settled, Settlement, StepState, Stream, Verdict,
};
pub use time::{Span, Timestamp};
pub use turn::Turn;
