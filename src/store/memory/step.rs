//! One step in memory: what was asked for, where it stands, and what it waits for.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{
    Captured, Due, Ending, Finished, LimitName, LocalId, Need, NewStep, RunnerId, ShardId, StepId,
    StepState, Timestamp,
};
use crate::store::{Attempt, StepView};

/// Where a step stands, with what is known only there.
#[derive(Clone, Debug)]
pub(super) enum Stand {
    Ready { since: Timestamp },
    Delayed { due: Timestamp },
    Blocked { due: Option<Timestamp> },
    Limited { since: Timestamp, name: LimitName },
    Held { due: Option<Timestamp> },
    Running(Run),
    Over(Over),
}

impl Stand {
    pub(super) const fn state(&self) -> StepState {
        match self {
            Self::Ready { .. } => StepState::Ready,
            Self::Delayed { .. } => StepState::Delayed,
            Self::Blocked { .. } => StepState::Blocked,
            Self::Limited { .. } => StepState::Limited,
            Self::Held { .. } => StepState::Held,
            Self::Running(_) => StepState::Running,
            Self::Over(over) => over.state,
        }
    }
}

/// Who runs a step, and whether somebody has asked for its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) runner: RunnerId,
    pub(super) since: Timestamp,
    pub(super) claimed: Timestamp,
    pub(super) until: Timestamp,
    pub(super) wish: bool,
}

/// How a step ended.
#[derive(Clone, Debug)]
pub(super) struct Over {
    pub(super) state: StepState,
    pub(super) ended: Timestamp,
    pub(super) ending: Ending,
    pub(super) started: Option<Timestamp>,
}

impl Over {
    /// Returns the end of a step that did not run this time.
    pub(super) const fn unstarted(state: StepState, ending: Ending, ended: Timestamp) -> Self {
        Self {
            state,
            ended,
            ending,
            started: None,
        }
    }
}

/// What has become of one thing that a step waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    Open,
    Met,
    Never,
}

impl Edge {
    /// Judges a need by where the parent stands now; `None` if it is not there.
    pub(super) const fn judge(need: Need, parent: Option<StepState>) -> Self {
        match parent {
            Some(state) if !state.is_final() => Self::Open,
            Some(state) if need.is_met_by(state) => Self::Met,
            Some(_) | None => Self::Never,
        }
    }
}

/// What a parent's end means for a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Nothing,
    Freed,
    RuledOut,
}

#[derive(Debug)]
pub(super) struct Step {
    pub(super) asked: NewStep,
    pub(super) created: Timestamp,
    pub(super) stand: Stand,
    pub(super) attempt: u32,
    pub(super) fence: u32,
    pub(super) tries: Vec<Try>,
    /// What it waits for or has waited for.
    pub(super) edges: BTreeMap<(StepId, Need), Edge>,
    /// Which kept steps, of any shard, have it among their edges.
    pub(super) children: BTreeSet<StepId>,
}

impl Step {
    pub(super) const fn state(&self) -> StepState {
        self.stand.state()
    }

    /// Returns whether the step neither runs nor is over.
    pub(super) const fn waits(&self) -> bool {
        !matches!(self.stand, Stand::Running(_) | Stand::Over(_))
    }

    pub(super) const fn run(&self) -> Option<&Run> {
        if let Stand::Running(run) = &self.stand {
            Some(run)
        } else {
            None
        }
    }

    pub(super) const fn over(&self) -> Option<&Over> {
        if let Stand::Over(over) = &self.stand {
            Some(over)
        } else {
            None
        }
    }

    /// Returns the limit that it was last seen to wait for.
    pub(super) const fn limit(&self) -> Option<&LimitName> {
        if let Stand::Limited { name, .. } = &self.stand {
            Some(name)
        } else {
            None
        }
    }

    /// Returns since when it has waited for places.
    pub(super) const fn limited_since(&self) -> Option<Timestamp> {
        if let Stand::Limited { since, .. } = self.stand {
            Some(since)
        } else {
            None
        }
    }

    /// Returns how many of its runs were lost since anything else became of one.
    pub(super) fn lost_in_a_row(&self) -> u32 {
        let tries = self.tries.iter().rev();
        let lost = tries.take_while(|one| one.attempt.ending == Ending::Lost);
        u32::try_from(lost.count()).unwrap_or(u32::MAX - 1)
    }

    pub(super) fn has_limits(&self) -> bool {
        !self.asked.policy.limits.is_empty()
    }

    /// Returns when the step fails because it has not started by then.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        let never_started = self.fence == 0 && self.waits();
        self.asked.policy.expire.filter(|_| never_started)
    }

    pub(super) fn is_late(&self, now: Timestamp) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now)
    }

    /// Returns the instant before which the step is not to run, as far as it is still known.
    pub(super) const fn due(&self) -> Option<Timestamp> {
        match &self.stand {
            Stand::Delayed { due } => Some(*due),
            Stand::Blocked { due } | Stand::Held { due } => *due,
            Stand::Ready { .. } | Stand::Limited { .. } | Stand::Running(_) | Stand::Over(_) => {
                None
            }
        }
    }

    /// Returns where the step belongs if nobody holds it: it waits for other steps first, then for
    /// its time, then for places, and is due in the end.
    pub(super) fn belongs(&self, due: Option<Timestamp>, now: Timestamp) -> Stand {
        if self.edges.values().any(|edge| *edge == Edge::Open) {
            return Stand::Blocked { due };
        }
        match due.filter(|due| *due > now) {
            Some(due) => Stand::Delayed { due },
            None => self.due_or_limited(now),
        }
    }

    /// Returns where the step stands once its time has come.
    pub(super) fn due_or_limited(&self, since: Timestamp) -> Stand {
        match self.asked.policy.limits.keys().next() {
            Some(name) => Stand::Limited {
                since,
                name: name.clone(),
            },
            None => Stand::Ready { since },
        }
    }

    /// Returns where a step that has just come belongs.
    pub(super) fn at_first(&self, now: Timestamp) -> Stand {
        match self.asked.due {
            Due::Held => Stand::Held { due: None },
            Due::Now => self.belongs(None, now),
            Due::At(due) => self.belongs(Some(due), now),
        }
    }

    /// Returns how the step ends because a need of it will never be met, if there is such a need.
    pub(super) fn ruled_out(
        &self,
        state_of: impl Fn(StepId) -> Option<StepState>,
    ) -> Option<Ending> {
        let mut never = self.edges.iter().filter(|(_, edge)| **edge == Edge::Never);
        never
            .next()
            .map(|((parent, _), _)| Ending::skipped(*parent, state_of(*parent)))
    }

    /// Takes note of how a parent stands; `None` if it is not there.
    pub(super) fn hear(&mut self, parent: StepId, state: Option<StepState>) -> Heard {
        let mut ruled_out = false;
        for ((of, need), edge) in &mut self.edges {
            if *of == parent && *edge == Edge::Open {
                *edge = Edge::judge(*need, state);
                ruled_out |= *edge == Edge::Never;
            }
        }
        let open = self.edges.values().any(|edge| *edge == Edge::Open);
        match self.stand {
            Stand::Blocked { .. } | Stand::Held { .. } if ruled_out => Heard::RuledOut,
            Stand::Blocked { .. } if !open => Heard::Freed,
            Stand::Ready { .. }
            | Stand::Delayed { .. }
            | Stand::Blocked { .. }
            | Stand::Limited { .. }
            | Stand::Held { .. }
            | Stand::Running(_)
            | Stand::Over(_) => Heard::Nothing,
        }
    }

    pub(super) fn view(&self, shard: ShardId, id: LocalId) -> StepView {
        let asked = &self.asked;
        let (since, at) = match &self.stand {
            Stand::Ready { since } => (Some(*since), *since),
            Stand::Running(run) => (Some(run.since), run.claimed),
            Stand::Limited { since, .. } => (None, *since),
            Stand::Delayed { due } => (None, *due),
            Stand::Blocked { .. } | Stand::Held { .. } => (None, self.created),
            Stand::Over(over) => (None, over.ended),
        };
        let (run, over) = (self.run(), self.over());
        StepView {
            id: StepId::new(shard, id),
            state: self.state(),
            command: asked.command.clone(),
            cwd: asked.cwd.clone(),
            env: asked.env.clone(),
            band: asked.band,
            key: asked.key.clone(),
            weight: asked.weight,
            name: asked.name.clone(),
            tags: asked.tags.clone(),
            flow: asked.flow.clone(),
            policy: asked.policy.clone(),
            created: self.created,
            at,
            since,
            attempt: self.attempt,
            fence: self.fence,
            runner: run.map(|run| run.runner),
            cancelling: run.is_some_and(|run| run.wish),
            limit: self.limit().cloned(),
            ending: over.map(|over| over.ending.clone()),
            started: over.and_then(|over| over.started),
        }
    }
}

/// A try that is over, and what it wrote.
#[derive(Debug)]
pub(super) struct Try {
    pub(super) attempt: Attempt,
    pub(super) stdout: Captured,
    pub(super) stderr: Captured,
}

impl Try {
    pub(super) fn new(finished: &Finished, run: Run) -> Self {
        Self {
            attempt: Attempt {
                fence: finished.fence,
                attempt: finished.attempt,
                runner: finished.runner,
                worker: finished.worker,
                since: run.since,
                claimed: run.claimed,
                started: finished.started,
                ended: finished.ended,
                ending: finished.ending.clone(),
            },
            stdout: finished.stdout.clone(),
            stderr: finished.stderr.clone(),
        }
    }
}
