//! What can be seen of one shard in memory.

use std::ops::Bound;

use super::shard::Shard;
use super::step::Stand;
use crate::model::{Band, Captured, FairnessKey, LocalId, StepId, StepState, Stream, Timestamp};
use crate::stats::{Dispatch, Outcome, Window};
use crate::store::{Arrival, Attempt, ShardCounts, StepView, Want};
use crate::tally::{ShardTally, Tally};

impl Shard {
    pub(super) fn tally(&self) -> ShardTally {
        let mut due = self.index.ready.iter();
        let Some((best, ..)) = due.find(|(band, key, _)| !self.is_paused(*band, key)) else {
            return ShardTally::nothing();
        };
        let mut keys = self.tally_at(*best);
        keys.retain(|tally| !self.is_paused(*best, &tally.key));
        ShardTally::new(*best, keys)
    }

    pub(super) fn tally_at(&self, band: Band) -> Vec<Tally> {
        let mut keys: Vec<Tally> = Vec::new();
        for (_, key, id) in self.index.ready.iter().filter(|(at, ..)| *at == band) {
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
        if self.is_paused(band, &want.key) {
            return Vec::new();
        }
        let first = (band, want.key.clone(), LocalId::new(0));
        self.index
            .ready
            .range(first..)
            .take_while(|(at, key, _)| *at == band && *key == want.key)
            .take(usize::try_from(want.count).unwrap_or(usize::MAX))
            .map(|(.., id)| *id)
            .collect()
    }

    pub(super) fn ahead(&self, band: Band, key: &FairnessKey, id: LocalId, most: u32) -> u32 {
        let first = (band, key.clone(), LocalId::new(i64::MIN));
        let before = self.index.ready.range(first..(band, key.clone(), id));
        let count = before.take(usize::try_from(most).unwrap_or(usize::MAX));
        u32::try_from(count.count()).unwrap_or(most)
    }

    pub(super) fn view(&self, id: LocalId) -> Option<StepView> {
        Some(self.steps.get(&id)?.view(self.id, id))
    }

    pub(super) fn views(&self) -> impl Iterator<Item = StepView> {
        let steps = self.steps.iter();
        steps.map(|(id, step)| step.view(self.id, *id))
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
            next_due: self.index.delayed.first().map(|(due, _)| *due),
            ..ShardCounts::default()
        };
        for step in self.steps.values() {
            *counts.states.entry(step.state()).or_default() += 1;
            let tried = step.state() == StepState::Delayed && step.attempt > 0;
            counts.retrying += u64::from(tried);
        }
        for (band, key, _) in &self.index.ready {
            *counts.ready.entry(*band).or_default() += 1;
            counts.paused += u64::from(self.is_paused(*band, key));
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
            if let Some(run) = step.run() {
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
