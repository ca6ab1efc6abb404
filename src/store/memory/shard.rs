//! One shard in memory: its steps, and what a runner does with them.

use std::collections::{BTreeMap, BTreeSet};

use super::index::Index;
use super::step::{Heard, Over, Run, Stand, Step, Try};
use crate::model::{
    Band, Candidate, Claim, Ending, FairnessKey, Finished, Found, LocalId, LostRun, NewStep,
    OnLost, Recorded, Released, RunnerId, Settled, Settlement, ShardId, StepId, StepState,
    Timestamp, Verdict,
};
use crate::store::{Lease, Pause, Paused};

/// What followed from a change, for those who must know of it.
#[derive(Debug, Default)]
pub(super) struct News {
    /// What became due.
    pub(super) released: Vec<Released>,
    /// Whether other shards, or steps that wait for places, have yet to be told.
    pub(super) tell: bool,
}

/// What a step of another shard has yet to be told.
#[derive(Debug)]
pub(super) struct Letter {
    pub(super) child: StepId,
    pub(super) parent: StepId,
    pub(super) state: StepState,
}

/// One shard's steps.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) id: ShardId,
    pub(super) steps: BTreeMap<LocalId, Step>,
    pub(super) index: Index,
    pub(super) outbox: Vec<Letter>,
    /// The same on every shard.
    pub(super) pauses: Vec<Paused>,
    /// What was found of tries that dead runners still hold.
    found: BTreeMap<LocalId, Found>,
    next: i64,
    version: u64,
}

impl Shard {
    pub(super) fn new(id: ShardId) -> Self {
        Self {
            id,
            steps: BTreeMap::new(),
            index: Index::default(),
            outbox: Vec::new(),
            pauses: Vec::new(),
            found: BTreeMap::new(),
            next: 1,
            version: 0,
        }
    }

    /// Stores a new step, held until it is let in: what it waits for may not be stored yet.
    pub(super) fn insert(&mut self, asked: &NewStep, now: Timestamp) -> StepId {
        let id = LocalId::new(self.next);
        self.next += 1;
        let step = Step {
            asked: asked.clone(),
            created: now,
            stand: Stand::Held { due: None },
            attempt: 0,
            fence: 0,
            tries: Vec::new(),
            edges: BTreeMap::new(),
            children: BTreeSet::new(),
        };
        self.index.add(id, &step);
        self.steps.insert(id, step);
        self.touch();
        StepId::new(self.id, id)
    }

    /// Changes a step that exists, and all that is known of it elsewhere.
    pub(super) fn change(&mut self, id: LocalId, how: impl FnOnce(&mut Step)) {
        if let Some(step) = self.steps.get_mut(&id) {
            self.index.remove(id, step);
            how(step);
            self.index.add(id, step);
            self.touch();
        }
    }

    /// Moves a step that is not over to where it waits or is due.
    pub(super) fn stand(&mut self, id: LocalId, stand: Stand, news: &mut News) {
        self.change(id, |step| step.stand = stand);
        let Some(step) = self.steps.get(&id) else {
            return;
        };
        match step.stand {
            Stand::Ready { .. } => news.released.push(Released {
                id: StepId::new(self.id, id),
                band: step.asked.band,
                key: step.asked.key.clone(),
                weight: step.asked.weight,
            }),
            Stand::Limited { .. } => news.tell = true,
            Stand::Delayed { .. }
            | Stand::Blocked { .. }
            | Stand::Held { .. }
            | Stand::Running(_)
            | Stand::Over(_) => {}
        }
    }

    /// Ends a step. Its dependents on this shard follow at once, and theirs; others get a letter.
    pub(super) fn end(&mut self, id: LocalId, over: Over, news: &mut News) {
        let mut ends = vec![(id, over)];
        while let Some((id, over)) = ends.pop() {
            let Some(step) = self.steps.get(&id).filter(|step| step.over().is_none()) else {
                continue;
            };
            let had_places = matches!(step.stand, Stand::Ready { .. } | Stand::Running(_));
            news.tell |= had_places && step.has_limits();
            let (parent, state, now) = (StepId::new(self.id, id), over.state, over.ended);
            let children = step.children.clone();
            self.change(id, |step| step.stand = Stand::Over(over));
            for child in children {
                if child.shard == self.id {
                    ends.extend(self.hear(child.local, parent, Some(state), now, news));
                } else {
                    news.tell = true;
                    self.outbox.push(Letter {
                        child,
                        parent,
                        state,
                    });
                }
            }
        }
    }

    /// Tells a step how a parent stands. Returns its own end where that rules it out.
    fn hear(
        &mut self,
        id: LocalId,
        parent: StepId,
        state: Option<StepState>,
        now: Timestamp,
        news: &mut News,
    ) -> Option<(LocalId, Over)> {
        let step = self.steps.get_mut(&id)?;
        let heard = step.hear(parent, state);
        // It cannot have been freed before it was there.
        let now = now.max(step.created);
        self.touch();
        match heard {
            Heard::Nothing => None,
            Heard::Freed => {
                let step = self.steps.get(&id)?;
                let stand = step.belongs(step.due(), now);
                self.stand(id, stand, news);
                None
            }
            Heard::RuledOut => {
                let ending = Ending::skipped(parent, state);
                Some((id, Over::unstarted(StepState::Cancelled, ending, now)))
            }
        }
    }

    /// Tells a step how a parent on another shard stands; what follows on this shard happens too.
    pub(super) fn hear_of(
        &mut self,
        id: LocalId,
        parent: StepId,
        state: Option<StepState>,
        now: Timestamp,
        news: &mut News,
    ) {
        if let Some((id, over)) = self.hear(id, parent, state, now, news) {
            self.end(id, over, news);
        }
    }

    pub(super) const fn touch(&mut self) {
        self.version += 1;
    }

    pub(super) const fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn is_paused(&self, band: Band, key: &FairnessKey) -> bool {
        let mut pauses = self.pauses.iter();
        pauses.any(|paused| paused.what.covers(band, key))
    }

    pub(super) fn pause(&mut self, what: &Pause, since: Timestamp) {
        if self.pauses.iter().all(|paused| paused.what != *what) {
            self.pauses.push(Paused {
                what: what.clone(),
                since,
            });
            self.touch();
        }
    }

    pub(super) fn resume(&mut self, what: &Pause) -> bool {
        let before = self.pauses.len();
        self.pauses.retain(|paused| paused.what != *what);
        let was_paused = self.pauses.len() < before;
        if was_paused {
            self.touch();
        }
        was_paused
    }

    pub(super) fn promote(&mut self, now: Timestamp) -> Option<Timestamp> {
        let mut news = News::default();
        while let Some(&(_, id)) = self.index.expiring.first().filter(|(at, _)| *at <= now) {
            let over = Over::unstarted(StepState::Failed, Ending::Expired, now);
            self.end(id, over, &mut news);
        }
        while let Some(&(due, id)) = self.index.delayed.first().filter(|(at, _)| *at <= now) {
            self.change(id, |step| step.stand = step.due_or_limited(due));
        }
        let firsts = [self.index.expiring.first(), self.index.delayed.first()];
        firsts.into_iter().flatten().map(|(at, _)| *at).min()
    }

    pub(super) fn claim(
        &mut self,
        candidate: &Candidate,
        lease: Lease,
        now: Timestamp,
    ) -> Option<Claim> {
        let id = candidate.id.local;
        if candidate.id.shard != self.id || self.is_paused(candidate.band, &candidate.key) {
            return None;
        }
        let step = self.steps.get(&id).filter(|step| !step.is_late(now))?;
        let Stand::Ready { since } = step.stand else {
            return None;
        };
        let asked = &step.asked;
        if asked.band != candidate.band || asked.key != candidate.key {
            return None;
        }
        let claim = Claim {
            id: candidate.id,
            runner: lease.runner,
            fence: step.fence + 1,
            attempt: step.attempt + 1,
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
        self.change(id, |step| {
            step.fence = claim.fence;
            step.attempt = claim.attempt;
            step.stand = Stand::Running(Run {
                runner: lease.runner,
                since,
                claimed: now,
                until: lease.until,
                wish: false,
            });
        });
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
        for (_, _, run) in self.runs() {
            let until = latest.entry(run.runner).or_insert(run.until);
            *until = run.until.max(*until);
        }
        latest
            .into_iter()
            .map(|(runner, until)| Lease { runner, until })
            .collect()
    }

    fn runs(&self) -> impl Iterator<Item = (LocalId, &Step, Run)> {
        let steps = self.steps.iter();
        steps.filter_map(|(id, step)| step.run().map(|run| (*id, step, *run)))
    }

    pub(super) fn wishes(&self, runner: RunnerId) -> Vec<(LocalId, u32)> {
        self.runs()
            .filter(|(_, _, run)| run.runner == runner && run.wish)
            .map(|(id, step, _)| (id, step.fence))
            .collect()
    }

    pub(super) fn keep(&mut self, dead: RunnerId, found: Found) {
        let step = self.steps.get(&found.id.local);
        let held = step.is_some_and(|step| {
            step.fence == found.fence && step.run().is_some_and(|run| run.runner == dead)
        });
        if held {
            self.found.insert(found.id.local, found);
        }
    }

    pub(super) fn reclaim(&mut self, dead: RunnerId, now: Timestamp) -> Vec<LostRun> {
        let mut kept = std::mem::take(&mut self.found);
        let lost = |(id, step, run): (LocalId, &Step, Run)| {
            let found = kept.remove(&id).filter(|found| found.fence == step.fence);
            let (stdout, stderr) =
                found.map_or_else(Default::default, |found| (found.stdout, found.stderr));
            let finished = Finished {
                id: StepId::new(self.id, id),
                runner: run.runner,
                fence: step.fence,
                attempt: step.attempt,
                ending: Ending::Lost,
                started: None,
                ended: now,
                // A claim does not say which worker it is for; nobody is left who knows.
                worker: 0,
                stdout,
                stderr,
            };
            (
                finished,
                run,
                step.asked.policy.after_loss(step.lost_in_a_row()),
            )
        };
        let runs = self.runs().filter(|(_, _, run)| run.runner == dead);
        let lost: Vec<(Finished, Run, OnLost)> = runs.map(lost).collect();
        self.found = kept;
        lost.iter()
            .map(|(finished, run, on_lost)| LostRun {
                id: finished.id,
                runner: dead,
                state: self.lose(finished, *run, *on_lost),
            })
            .collect()
    }

    /// Takes one running step back as its policy says.
    fn lose(&mut self, lost: &Finished, run: Run, on_lost: OnLost) -> StepState {
        let stand = match on_lost {
            OnLost::Retry => Stand::Ready { since: run.since },
            OnLost::Fail => over(lost, StepState::Failed),
            OnLost::Hold => Stand::Held { due: None },
        };
        let counts = on_lost != OnLost::Retry;
        self.record(lost, run, stand, counts, &mut News::default())
    }

    pub(super) fn settle(&mut self, settlement: &Settlement) -> Settled {
        let Settlement { finished, verdict } = settlement;
        let step = self.steps.get(&finished.id.local);
        let run = step
            .filter(|step| finished.id.shard == self.id && step.fence == finished.fence)
            .and_then(Step::run)
            .filter(|run| run.runner == finished.runner);
        let (Some(step), Some(run)) = (step, run.copied()) else {
            return Settled::Fenced;
        };
        let stand = match *verdict {
            Verdict::Succeeded => over(finished, StepState::Succeeded),
            Verdict::Failed => over(finished, StepState::Failed),
            Verdict::Retry { at } if at <= finished.ended => step.due_or_limited(at),
            Verdict::Retry { at } => Stand::Delayed { due: at },
            Verdict::GiveBack => Stand::Ready { since: run.since },
        };
        let counts = *verdict != Verdict::GiveBack;
        let mut news = News::default();
        let state = self.record(finished, run, stand, counts, &mut news);
        Settled::Recorded(Recorded {
            state,
            released: news.released,
            tell: news.tell,
        })
    }

    /// Records the try of a running step and moves it there, or ends it if somebody has asked for
    /// that. A try that does not count is given back. Returns where it stands then.
    fn record(
        &mut self,
        finished: &Finished,
        run: Run,
        stand: Stand,
        counts: bool,
        news: &mut News,
    ) -> StepState {
        let id = finished.id.local;
        let stand = if run.wish {
            over(finished, StepState::Cancelled)
        } else {
            stand
        };
        let state = stand.state();
        self.change(id, |step| step.tries.push(Try::new(finished, run)));
        if let Stand::Over(over) = stand {
            self.end(id, over, news);
        } else {
            self.change(id, |step| {
                step.attempt -= u32::from(!counts);
                // What goes back as it was keeps its places.
                news.tell |= state != StepState::Ready && step.has_limits();
                step.stand = stand;
            });
        }
        state
    }
}

/// Returns the stand of a step that this try has ended.
fn over(finished: &Finished, state: StepState) -> Stand {
    Stand::Over(Over {
        state,
        ended: finished.ended,
        ending: finished.ending.clone(),
        started: finished.started,
    })
}
