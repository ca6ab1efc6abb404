//! One shard in memory: its steps, where each stands, and the moves between.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::model::{
    Band, Candidate, Captured, Claim, Due, Ending, FairnessKey, Finished, LocalId, LostRun,
    NewStep, OnLost, Recorded, RunnerId, Settled, Settlement, ShardId, StepId, StepState, Stream,
    Timestamp, Verdict,
};
use crate::stats::{Dispatch, Outcome, Window};
use crate::store::{Arrival, Attempt, Lease, ShardCounts, StepView, Want};
use crate::tally::{ShardTally, Tally};

/// Where a step stands, with what is known only there.
#[derive(Clone, Copy, Debug)]
enum Stand {
    Ready { since: Timestamp },
    Delayed { due: Timestamp },
    Held,
    Running(Run),
    Over { state: StepState, ended: Timestamp },
}

/// Who runs a step.
#[derive(Clone, Copy, Debug)]
struct Run {
    runner: RunnerId,
    since: Timestamp,
    claimed: Timestamp,
    until: Timestamp,
}

#[derive(Debug)]
struct Step {
    asked: NewStep,
    created: Timestamp,
    stand: Stand,
    attempt: u32,
    fence: u32,
    tries: Vec<Try>,
}

#[derive(Debug)]
struct Try {
    attempt: Attempt,
    stdout: Captured,
    stderr: Captured,
}

/// One shard's steps. `ready` and `delayed` repeat what `steps` says; [`Shard::put`] alone writes
/// any of the three.
#[derive(Debug)]
pub(super) struct Shard {
    id: ShardId,
    steps: BTreeMap<LocalId, Step>,
    ready: BTreeSet<(Band, FairnessKey, LocalId)>,
    delayed: BTreeSet<(Timestamp, LocalId)>,
    version: u64,
}

impl Shard {
    pub(super) const fn new(id: ShardId) -> Self {
        Self {
            id,
            steps: BTreeMap::new(),
            ready: BTreeSet::new(),
            delayed: BTreeSet::new(),
            version: 0,
        }
    }

    /// Stores a new step. What was due before it came is due since it came.
    pub(super) fn insert(&mut self, asked: &NewStep, now: Timestamp) -> StepId {
        let last = self.steps.last_key_value().map_or(0, |(id, _)| id.get());
        let id = LocalId::new(last + 1);
        let step = Step {
            asked: asked.clone(),
            created: now,
            stand: Stand::Held,
            attempt: 0,
            fence: 0,
            tries: Vec::new(),
        };
        self.steps.insert(id, step);
        let stand = match asked.due {
            Due::At(due) if due > now => Stand::Delayed { due },
            Due::Now | Due::At(_) => Stand::Ready { since: now },
            Due::Held => Stand::Held,
        };
        self.put(id, stand);
        StepId::new(self.id, id)
    }

    /// Moves a step that exists to another stand.
    fn put(&mut self, id: LocalId, stand: Stand) {
        let Some(step) = self.steps.get_mut(&id) else {
            return;
        };
        let due_key = (step.asked.band, step.asked.key.clone(), id);
        match step.stand {
            Stand::Ready { .. } => {
                self.ready.remove(&due_key);
            }
            Stand::Delayed { due } => {
                self.delayed.remove(&(due, id));
            }
            Stand::Held | Stand::Running(_) | Stand::Over { .. } => {}
        }
        match stand {
            Stand::Ready { .. } => {
                self.ready.insert(due_key);
            }
            Stand::Delayed { due } => {
                self.delayed.insert((due, id));
            }
            Stand::Held | Stand::Running(_) | Stand::Over { .. } => {}
        }
        step.stand = stand;
        self.version += 1;
    }

    pub(super) fn promote(&mut self, now: Timestamp) -> Option<Timestamp> {
        while let Some(&(due, id)) = self.delayed.first().filter(|(due, _)| *due <= now) {
            self.put(id, Stand::Ready { since: due });
        }
        self.next_due()
    }

    fn next_due(&self) -> Option<Timestamp> {
        self.delayed.first().map(|(due, _)| *due)
    }

    pub(super) const fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn tally(&self) -> ShardTally {
        let Some(&(best, ..)) = self.ready.first() else {
            return ShardTally::nothing();
        };
        ShardTally::new(best, self.tally_at(best))
    }

    pub(super) fn tally_at(&self, band: Band) -> Vec<Tally> {
        let mut keys: Vec<Tally> = Vec::new();
        for (_, key, id) in self.ready.iter().filter(|(at, ..)| *at == band) {
            match keys.last_mut().filter(|tally| tally.key == *key) {
                Some(tally) => tally.count = tally.count.saturating_add(1),
                None => keys.extend(self.head(key, *id)),
            }
        }
        keys
    }

    /// Returns a tally of one for a due step, the first of its key.
    fn head(&self, key: &FairnessKey, id: LocalId) -> Option<Tally> {
        let step = self.steps.get(&id)?;
        let Stand::Ready { since } = step.stand else {
            return None;
        };
        Some(Tally {
            key: key.clone(),
            count: 1,
            since,
            weight: step.asked.weight,
        })
    }

    pub(super) fn fetch(&self, band: Band, want: &Want) -> Vec<LocalId> {
        let first = (band, want.key.clone(), LocalId::new(0));
        self.ready
            .range(first..)
            .take_while(|(at, key, _)| *at == band && *key == want.key)
            .take(usize::try_from(want.count).unwrap_or(usize::MAX))
            .map(|(.., id)| *id)
            .collect()
    }

    pub(super) fn ahead(&self, band: Band, key: &FairnessKey, id: LocalId, most: u32) -> u32 {
        let first = (band, key.clone(), LocalId::new(i64::MIN));
        let before = self.ready.range(first..(band, key.clone(), id));
        let count = before.take(usize::try_from(most).unwrap_or(usize::MAX));
        u32::try_from(count.count()).unwrap_or(most)
    }

    pub(super) fn claim(
        &mut self,
        candidate: &Candidate,
        lease: Lease,
        now: Timestamp,
    ) -> Option<Claim> {
        let id = candidate.id.local;
        let step = self
            .steps
            .get_mut(&id)
            .filter(|_| candidate.id.shard == self.id)?;
        let Stand::Ready { since } = step.stand else {
            return None;
        };
        let asked = &step.asked;
        if asked.band != candidate.band || asked.key != candidate.key {
            return None;
        }
        step.fence += 1;
        step.attempt += 1;
        let claim = Claim {
            id: candidate.id,
            runner: lease.runner,
            fence: step.fence,
            attempt: step.attempt,
            band: asked.band,
            key: asked.key.clone(),
            name: asked.name.clone(),
            command: asked.command.clone(),
            cwd: asked.cwd.clone(),
            env: asked.env.clone(),
            policy: asked.policy.clone(),
            since,
            claimed: now,
        };
        let run = Run {
            runner: lease.runner,
            since,
            claimed: now,
            until: lease.until,
        };
        self.put(id, Stand::Running(run));
        Some(claim)
    }

    pub(super) fn renew(&mut self, lease: Lease) {
        for step in self.steps.values_mut() {
            if let Stand::Running(run) = &mut step.stand
                && run.runner == lease.runner
            {
                run.until = run.until.max(lease.until);
            }
        }
    }

    pub(super) fn holders(&self) -> Vec<Lease> {
        let mut latest: BTreeMap<RunnerId, Timestamp> = BTreeMap::new();
        for (_, run) in self.runs() {
            let until = latest.entry(run.runner).or_insert(run.until);
            *until = run.until.max(*until);
        }
        latest
            .into_iter()
            .map(|(runner, until)| Lease { runner, until })
            .collect()
    }

    fn runs(&self) -> impl Iterator<Item = (LocalId, Run)> {
        self.steps.iter().filter_map(|(id, step)| match step.stand {
            Stand::Running(run) => Some((*id, run)),
            Stand::Ready { .. } | Stand::Delayed { .. } | Stand::Held | Stand::Over { .. } => None,
        })
    }

    pub(super) fn reclaim(&mut self, dead: RunnerId, now: Timestamp) -> Vec<LostRun> {
        let lost: Vec<LocalId> = self
            .runs()
            .filter(|(_, run)| run.runner == dead)
            .map(|(id, _)| id)
            .collect();
        lost.into_iter()
            .filter_map(|id| self.lose(id, now))
            .collect()
    }

    /// Takes one running step back as its policy says.
    fn lose(&mut self, id: LocalId, now: Timestamp) -> Option<LostRun> {
        let step = self.steps.get_mut(&id)?;
        let Stand::Running(run) = step.stand else {
            return None;
        };
        let over = Finished {
            id: StepId::new(self.id, id),
            runner: run.runner,
            fence: step.fence,
            attempt: step.attempt,
            ending: Ending::Lost,
            started: None,
            ended: now,
            // A claim does not say which worker it is for; nobody is left who knows.
            worker: 0,
            stdout: Captured::Empty,
            stderr: Captured::Empty,
        };
        step.tries.push(Try::new(&over, run));
        let (stand, state) = match step.asked.policy.on_lost {
            OnLost::Retry => {
                step.attempt -= 1;
                (Stand::Ready { since: run.since }, StepState::Ready)
            }
            OnLost::Fail => {
                let state = StepState::Failed;
                (Stand::Over { state, ended: now }, state)
            }
            OnLost::Hold => (Stand::Held, StepState::Held),
        };
        self.put(id, stand);
        Some(LostRun {
            id: over.id,
            runner: over.runner,
            state,
        })
    }

    pub(super) fn settle(&mut self, settlement: &Settlement) -> Settled {
        let Settlement { finished, verdict } = settlement;
        let id = finished.id.local;
        let Some(step) = self
            .steps
            .get_mut(&id)
            .filter(|step| finished.id.shard == self.id && step.fence == finished.fence)
        else {
            return Settled::Fenced;
        };
        let run = match step.stand {
            Stand::Running(run) if run.runner == finished.runner => run,
            Stand::Running(_)
            | Stand::Ready { .. }
            | Stand::Delayed { .. }
            | Stand::Held
            | Stand::Over { .. } => return Settled::Fenced,
        };
        step.tries.push(Try::new(finished, run));
        let over = |state| Stand::Over {
            state,
            ended: finished.ended,
        };
        let stand = match verdict {
            Verdict::Succeeded => over(StepState::Succeeded),
            Verdict::Failed => over(StepState::Failed),
            Verdict::Retry { at } => Stand::Delayed { due: *at },
            Verdict::GiveBack => {
                step.attempt -= 1;
                Stand::Ready { since: run.since }
            }
        };
        self.put(id, stand);
        Settled::Recorded(Recorded {
            state: self.view(id).map_or(StepState::Failed, |step| step.state),
            released: Vec::new(),
            tell: false,
        })
    }

    pub(super) fn view(&self, id: LocalId) -> Option<StepView> {
        let step = self.steps.get(&id)?;
        let asked = &step.asked;
        let since = match step.stand {
            Stand::Ready { since } | Stand::Running(Run { since, .. }) => Some(since),
            Stand::Delayed { .. } | Stand::Held | Stand::Over { .. } => None,
        };
        let (state, at, runner, last) = match step.stand {
            Stand::Ready { since } => (StepState::Ready, since, None, None),
            Stand::Delayed { due } => (StepState::Delayed, due, None, None),
            Stand::Held => (StepState::Held, step.created, None, None),
            Stand::Running(run) => (StepState::Running, run.claimed, Some(run.runner), None),
            Stand::Over { state, ended } => (state, ended, None, step.tries.last()),
        };
        Some(StepView {
            id: StepId::new(self.id, id),
            state,
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
            created: step.created,
            at,
            since,
            attempt: step.attempt,
            fence: step.fence,
            runner,
            cancelling: false,
            limit: None,
            ending: last.map(|last| last.attempt.ending.clone()),
            started: last.and_then(|last| last.attempt.started),
        })
    }

    pub(super) fn views(&self) -> impl Iterator<Item = StepView> {
        self.steps.keys().filter_map(|id| self.view(*id))
    }

    pub(super) fn attempts(&self, id: LocalId) -> Vec<Attempt> {
        let tries = self.steps.get(&id).map_or(&[][..], |step| &step.tries);
        tries.iter().map(|over| over.attempt.clone()).collect()
    }

    pub(super) fn output(&self, id: LocalId, fence: u32, stream: Stream) -> Captured {
        self.steps
            .get(&id)
            .and_then(|step| step.tries.iter().find(|over| over.attempt.fence == fence))
            .map_or(Captured::Empty, |over| match stream {
                Stream::Stdout => over.stdout.clone(),
                Stream::Stderr => over.stderr.clone(),
            })
    }

    pub(super) fn counts(&self) -> ShardCounts {
        let mut counts = ShardCounts {
            next_due: self.next_due(),
            ..ShardCounts::default()
        };
        for step in self.views() {
            *counts.states.entry(step.state).or_default() += 1;
            let tried = step.state == StepState::Delayed && step.attempt > 0;
            counts.retrying += u64::from(tried);
        }
        for (band, ..) in &self.ready {
            *counts.ready.entry(*band).or_default() += 1;
        }
        counts
    }

    pub(super) fn dispatches(&self, window: Window) -> Vec<Dispatch> {
        let mut found = Vec::new();
        for (id, step) in &self.steps {
            let dispatch = |since, claimed| Dispatch {
                id: StepId::new(self.id, *id),
                band: step.asked.band,
                key: step.asked.key.clone(),
                weight: step.asked.weight,
                since,
                claimed,
                started: None,
                ended: None,
                outcome: Outcome::Running,
            };
            found.extend(step.tries.iter().map(|over| Dispatch {
                started: over.attempt.started,
                ended: Some(over.attempt.ended),
                outcome: Outcome::of(&over.attempt.ending),
                ..dispatch(over.attempt.since, over.attempt.claimed)
            }));
            if let Stand::Running(run) = step.stand {
                found.push(dispatch(run.since, run.claimed));
            }
        }
        match window {
            Window::Since(from) => found.retain(|one| one.claimed >= from),
            Window::Last(count) => {
                found.sort_by_key(|one| std::cmp::Reverse((one.claimed, one.id)));
                found.truncate(count);
            }
        }
        found
    }

    pub(super) fn arrivals(&self, after: LocalId, since: Timestamp, limit: usize) -> Vec<Arrival> {
        self.steps
            .range((Bound::Excluded(after), Bound::Unbounded))
            .filter(|(_, step)| step.created >= since)
            .take(limit)
            .map(|(id, step)| Arrival {
                id: StepId::new(self.id, *id),
                band: step.asked.band,
                key: step.asked.key.clone(),
                weight: step.asked.weight,
                name: step.asked.name.clone(),
                created: step.created,
            })
            .collect()
    }
}

impl Try {
    fn new(finished: &Finished, run: Run) -> Self {
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
