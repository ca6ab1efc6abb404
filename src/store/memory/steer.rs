//! What people do to steps in memory.

use std::path::PathBuf;

use super::contents::Contents;
use super::shard::{News, Shard};
use super::step::{Over, Stand, Step};
use crate::model::{Captured, Ending, LocalId, ShardId, StepId, StepState, Timestamp};
use crate::store::{Action, Cleaned, Edit, Retention, Steered};

impl Contents {
    pub(super) fn steer(
        &mut self,
        ids: &[StepId],
        action: &Action,
        now: Timestamp,
    ) -> Vec<Steered> {
        if !matches!(action, Action::Retry) {
            let steered = ids.iter().map(|id| self.steer_one(*id, action, now));
            return steered.collect();
        }
        // A step can be tried again as soon as what it waits for is: whoever names both means both,
        // in whatever order they stand there. So parents come first.
        let mut answers = vec![Steered::Missing; ids.len()];
        let mut left: Vec<usize> = (0..ids.len()).collect();
        while !left.is_empty() {
            let next = left
                .iter()
                .position(|at| !self.waits_for_any(ids[*at], &left, ids));
            let at = left.remove(next.unwrap_or_default());
            answers[at] = self.steer_one(ids[at], action, now);
        }
        answers
    }

    /// Returns whether a step waits, or has waited, for one of those that are left.
    fn waits_for_any(&self, id: StepId, left: &[usize], ids: &[StepId]) -> bool {
        let parents = self.step(id).map(|step| &step.edges);
        let mut parents = parents
            .into_iter()
            .flat_map(std::collections::BTreeMap::keys);
        parents.any(|(parent, _)| left.iter().any(|at| ids[*at] == *parent))
    }

    fn steer_one(&mut self, id: StepId, action: &Action, now: Timestamp) -> Steered {
        let Some(step) = self.step(id) else {
            return Steered::Missing;
        };
        let from = step.state();
        let (waits, run) = (step.waits(), step.run().copied());
        let held = from == StepState::Held;
        match action {
            Action::Cancel if let Some(run) = run => {
                self.wish(id);
                return Steered::Asked { runner: run.runner };
            }
            Action::Cancel if waits => self.cancel(id, now),
            Action::Hold if waits && !held => {
                self.move_to(id, |step| Stand::Held { due: step.due() });
            }
            Action::Release if held => self.move_to(id, |step| step.belongs(step.due(), now)),
            Action::Edit(edit) if waits => self.edit(id, edit, now),
            Action::Retry if !waits && run.is_none() && self.retry(id, now) => {}
            Action::Cancel | Action::Hold | Action::Release | Action::Retry | Action::Edit(_) => {
                return Steered::Refused { state: from };
            }
        }
        let to = self.state(id).unwrap_or(from);
        Steered::Done { from, to }
    }

    fn move_to(&mut self, id: StepId, stand: impl FnOnce(&Step) -> Stand) {
        self.shards[id.shard.index()].change(id.local, |step| step.stand = stand(step));
    }

    fn wish(&mut self, id: StepId) {
        self.shards[id.shard.index()].change(id.local, |step| {
            if let Stand::Running(run) = &mut step.stand {
                run.wish = true;
            }
        });
    }

    fn cancel(&mut self, id: StepId, now: Timestamp) {
        let over = Over::unstarted(StepState::Cancelled, Ending::Cancelled, now);
        self.shards[id.shard.index()].end(id.local, over, &mut News::default());
    }

    /// Lets a failed or cancelled step be tried again; `false` if it cannot be.
    fn retry(&mut self, id: StepId, now: Timestamp) -> bool {
        if self.state(id) == Some(StepState::Succeeded) || !self.rejoin(id) {
            return false;
        }
        self.shards[id.shard.index()].change(id.local, |step| {
            step.attempt = 0;
            // Whoever tries it again wants it to start, though its time has run out.
            let expire = &mut step.asked.policy.expire;
            *expire = expire.filter(|at| *at > now);
            step.stand = step.belongs(None, now);
        });
        true
    }

    fn edit(&mut self, id: StepId, edit: &Edit, now: Timestamp) {
        self.shards[id.shard.index()].change(id.local, |step| {
            let limits = step.asked.policy.limits.clone();
            change_asked(step, edit);
            let other_limits = step.asked.policy.limits != limits;
            let due = edit.due.unwrap_or_else(|| step.due());
            step.stand = match &step.stand {
                Stand::Held { .. } => Stand::Held { due },
                Stand::Blocked { .. } => Stand::Blocked { due },
                // What is due stays so with its age and its places, unless one of them changes.
                Stand::Ready { .. } | Stand::Limited { .. }
                    if !other_limits && due.is_none_or(|due| due <= now) =>
                {
                    return;
                }
                Stand::Ready { .. }
                | Stand::Limited { .. }
                | Stand::Delayed { .. }
                | Stand::Running(_)
                | Stand::Over(_) => step.belongs(due, now),
            };
        });
    }
}

fn change_asked(step: &mut Step, edit: &Edit) {
    fn set<T: Clone>(place: &mut T, new: Option<&T>) {
        if let Some(new) = new {
            *place = new.clone();
        }
    }
    let asked = &mut step.asked;
    set(&mut asked.command, edit.command.as_ref());
    set(&mut asked.cwd, edit.cwd.as_ref());
    set(&mut asked.env, edit.env.as_ref());
    set(&mut asked.band, edit.band.as_ref());
    set(&mut asked.key, edit.key.as_ref());
    set(&mut asked.weight, edit.weight.as_ref());
    set(&mut asked.name, edit.name.as_ref());
    set(&mut asked.tags, edit.tags.as_ref());
    set(&mut asked.flow, edit.flow.as_ref());
    set(&mut asked.policy, edit.policy.as_ref());
}

impl Contents {
    /// Forgets a portion of what is over on a shard.
    pub(super) fn clean(&mut self, shard: ShardId, retention: &Retention) -> Cleaned {
        let mut old = self.old(shard, retention);
        let done = old.len() <= retention.most;
        old.truncate(retention.most);
        let files = old.iter().flat_map(|id| self.forget(*id)).collect();
        Cleaned {
            steps: old.len() as u64,
            files,
            done,
        }
    }

    /// Returns what may be forgotten, oldest first.
    fn old(&self, shard: ShardId, retention: &Retention) -> Vec<StepId> {
        let only = |id: &StepId| retention.only.as_ref().is_none_or(|only| only.contains(id));
        let shard = &self.shards[shard.index()];
        let is_old = |step: &Step| {
            step.over().is_some_and(|over| {
                over.ended < retention.ended_before && retention.states.contains(&over.state)
            })
        };
        let needed = |step: &Step| {
            let mut children = step.children.iter().filter_map(|child| self.step(*child));
            children.any(|child| child.over().is_none())
        };
        let steps = shard.steps.iter();
        steps
            .filter(|(_, step)| is_old(step) && !needed(step))
            .map(|(local, _)| StepId::new(shard.id, *local))
            .filter(only)
            .collect()
    }

    /// Forgets a step and returns the files of its outputs.
    fn forget(&mut self, id: StepId) -> Vec<PathBuf> {
        let Some(step) = self.shards[id.shard.index()].forget(id.local) else {
            return Vec::new();
        };
        self.uniques.retain(|_, of| *of != id);
        for (parent, _) in step.edges.keys() {
            if let Some(parent) = self.step_mut(*parent) {
                parent.children.remove(&id);
            }
        }
        let outputs = step
            .tries
            .into_iter()
            .flat_map(|over| [over.stdout, over.stderr]);
        outputs
            .filter_map(|output| match output {
                Captured::File { path, .. } => Some(path),
                Captured::Empty | Captured::Inline(_) => None,
            })
            .collect()
    }
}

impl Shard {
    fn forget(&mut self, id: LocalId) -> Option<Step> {
        let step = self.steps.remove(&id)?;
        self.index.remove(id, &step);
        let own = StepId::new(self.id, id);
        self.outbox.retain(|letter| letter.parent != own);
        self.touch();
        Some(step)
    }
}
