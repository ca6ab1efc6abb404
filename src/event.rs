//! Everything that happens, as values; and for each its one line of text.
//!
//! Log lines, the live view, waiting in tests and crash points all drink from this stream. Only this
//! file holds log text. Commands and environments are never in it: they hold secrets.

use std::fmt;

use serde::Serialize;

use crate::model::{
    Band, Candidate, Ending, FairnessKey, RunnerId, ShardId, Span, StepId, StepState, Timestamp,
};

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Once a refill cycle.
    Trace,
    /// Once a step.
    Debug,
    /// A runner's life.
    Info,
    /// It healed, but look.
    Warn,
    /// Someone must act.
    Error,
}

impl Level {
    /// Returns the word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// Why a running step is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Its time is over.
    TimeOver,
    /// Somebody wishes it.
    Wished,
    /// The runner leaves.
    Leaving,
}

impl Why {
    /// Returns the words for it.
    pub const fn words(self) -> &'static str {
        match self {
            Self::TimeOver => "time over",
            Self::Wished => "wished",
            Self::Leaving => "leaving",
        }
    }
}

/// Something that happened in a runner.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A runner is up.
    RunnerStarted {
        /// Which.
        runner: RunnerId,
        /// How many steps it runs at once.
        workers: usize,
    },
    /// A runner takes no new work.
    Draining {
        /// How many steps still run.
        running: usize,
    },
    /// A runner has ended.
    RunnerStopped {
        /// Which.
        runner: RunnerId,
    },
    /// A shard's cycle has put a batch into the cache.
    Refilled {
        /// Which shard.
        shard: ShardId,
        /// The band of the batch.
        band: Band,
        /// Its size.
        selected: usize,
        /// How many candidates it replaced that nobody had taken.
        discarded: usize,
    },
    /// A shard could not be read or written, and takes no part until it can.
    ShardWithdrawn {
        /// Which shard.
        shard: ShardId,
        /// What went wrong.
        error: String,
    },
    /// A shard takes part again.
    ShardReturned {
        /// Which shard.
        shard: ShardId,
    },
    /// A step is ours.
    Claimed {
        /// Which step.
        id: StepId,
        /// Its band.
        band: Band,
        /// Its key.
        key: FairnessKey,
        /// The claim's generation.
        fence: u32,
        /// The number of the try.
        attempt: u32,
        /// How long the step had been due.
        waited: Span,
    },
    /// Somebody else was faster. Normal.
    ClaimLost {
        /// Which step.
        id: StepId,
    },
    /// A step could not be started for want of something that may come back; it is tried again.
    StartDelayed {
        /// Which step.
        id: StepId,
        /// What was wanting.
        reason: String,
    },
    /// A running step was asked to end.
    Asked {
        /// Which step.
        id: StepId,
        /// The claim's generation.
        fence: u32,
        /// Why.
        why: Why,
    },
    /// A running step was killed.
    Killed {
        /// Which step.
        id: StepId,
        /// The claim's generation.
        fence: u32,
    },
    /// A try is over; its outcome is not yet recorded.
    Ended {
        /// Which step.
        id: StepId,
        /// Whose step.
        key: FairnessKey,
        /// The claim's generation.
        fence: u32,
        /// How it ended.
        #[serde(flatten)]
        ending: Ending,
        /// How long it ran.
        ran: Span,
    },
    /// An outcome is recorded.
    Settled {
        /// Which step.
        id: StepId,
        /// Where the step stands now.
        state: StepState,
    },
    /// A late write changed nothing, because the step was no longer ours. Normal.
    Fenced {
        /// Which step.
        id: StepId,
    },
    /// Outcomes could not be recorded; they are kept and written again.
    SettleDelayed {
        /// Which shard.
        shard: ShardId,
        /// How many.
        outcomes: usize,
        /// What went wrong.
        error: String,
    },
    /// A dead runner's step was taken back.
    TakenBack {
        /// Which step.
        id: StepId,
        /// Who had held it.
        runner: RunnerId,
        /// Where the step stands now.
        state: StepState,
    },
    /// Handling one step failed in a way that it never should.
    WorkerPanicked {
        /// Which step.
        id: StepId,
    },
}

impl Event {
    /// Returns how much it matters.
    pub const fn level(&self) -> Level {
        match self {
            Self::Refilled { .. } => Level::Trace,
            Self::Claimed { .. }
            | Self::ClaimLost { .. }
            | Self::Asked { .. }
            | Self::Killed { .. }
            | Self::Ended { .. }
            | Self::Settled { .. }
            | Self::Fenced { .. } => Level::Debug,
            Self::RunnerStarted { .. }
            | Self::Draining { .. }
            | Self::RunnerStopped { .. }
            | Self::ShardReturned { .. } => Level::Info,
            Self::StartDelayed { .. } | Self::TakenBack { .. } => Level::Warn,
            Self::ShardWithdrawn { .. }
            | Self::SettleDelayed { .. }
            | Self::WorkerPanicked { .. } => Level::Error,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RunnerStarted { runner, workers } => {
                write!(f, "runner started runner={runner} workers={workers}")
            }
            Self::Draining { running } => write!(f, "draining running={running}"),
            Self::RunnerStopped { runner } => write!(f, "runner stopped runner={runner}"),
            Self::Refilled {
                shard,
                band,
                selected,
                discarded,
            } => write!(
                f,
                "refilled shard={shard} band={band} selected={selected} discarded={discarded}"
            ),
            Self::ShardWithdrawn { shard, error } => {
                write!(f, "shard withdrawn shard={shard} error={error:?}")
            }
            Self::ShardReturned { shard } => write!(f, "shard returned shard={shard}"),
            Self::Claimed {
                id,
                band,
                key,
                fence,
                attempt,
                waited,
            } => write!(
                f,
                "claimed id={id} band={band} key={:?} fence={fence} attempt={attempt} waited={waited}",
                key.as_str()
            ),
            Self::ClaimLost { id } => write!(f, "claim lost id={id}"),
            Self::StartDelayed { id, reason } => {
                write!(f, "start delayed id={id} reason={reason:?}")
            }
            Self::Asked { id, fence, why } => {
                write!(
                    f,
                    "asked to end id={id} fence={fence} why={:?}",
                    why.words()
                )
            }
            Self::Killed { id, fence } => write!(f, "killed id={id} fence={fence}"),
            Self::Ended {
                id,
                key,
                fence,
                ending,
                ran,
            } => write!(
                f,
                "ended id={id} key={:?} fence={fence} ending={:?} ran={ran}",
                key.as_str(),
                ending.to_string()
            ),
            Self::Settled { id, state } => write!(f, "settled id={id} state={state}"),
            Self::Fenced { id } => write!(f, "fenced id={id}"),
            Self::SettleDelayed {
                shard,
                outcomes,
                error,
            } => {
                write!(
                    f,
                    "settle delayed shard={shard} outcomes={outcomes} error={error:?}"
                )
            }
            Self::TakenBack { id, runner, state } => {
                write!(f, "taken back id={id} runner={runner} state={state}")
            }
            Self::WorkerPanicked { id } => write!(f, "worker panicked id={id}"),
        }
    }
}

/// What a refill is about to push, and from which plan: whose turn it was, and which steps it got.
#[derive(Clone, Copy, Debug)]
pub struct Decided<'d> {
    /// The shard that pushes.
    pub shard: ShardId,
    /// The band of all of it.
    pub band: Band,
    /// The seed of the plan, where slots were drawn by lot.
    pub seed: Option<u64>,
    /// How many slots there were for all shards together.
    pub capacity: usize,
    /// The steps in the order in which they will be taken.
    pub slots: &'d [Candidate],
}

/// Where events go. Called from every thread, on the hot path: it must not block.
pub trait Sink: Send + Sync {
    /// Takes note of an event that happened at `at`.
    fn emit(&self, at: Timestamp, event: &Event);

    /// Takes note of what a refill is about to push; no step of it was taken because of it before
    /// `at`. Most sinks have no use for it.
    fn decided(&self, _at: Timestamp, _decided: &Decided<'_>) {}
}

/// A sink that lets everything go by.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSink;

impl Sink for NoSink {
    fn emit(&self, _: Timestamp, _: &Event) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_text_cannot_break_a_line() {
        let event = Event::Claimed {
            id: "a1".parse().unwrap(),
            band: Band::DEFAULT,
            key: "evil\nerror key".parse().unwrap(),
            fence: 1,
            attempt: 1,
            waited: Span::from_millis(3),
        };
        assert!(!event.to_string().contains('\n'));
    }
}
