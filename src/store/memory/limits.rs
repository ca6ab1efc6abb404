//! Named limits: who has places, and who gets the next.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::contents::Contents;
use super::shard::News;
use super::step::{Stand, Step};
use crate::model::{Band, FairnessKey, LimitName, Released, StepId, StepState, Timestamp};
use crate::store::LimitView;

/// How many places there are, who has them, and what each key has had of them.
#[derive(Debug, Default)]
pub(super) struct Limits {
    pub(super) set: BTreeMap<LimitName, u32>,
    held: BTreeMap<StepId, BTreeMap<LimitName, u32>>,
    /// Where each key's last step ended in a limit's own time.
    passes: BTreeMap<(LimitName, FairnessKey), f64>,
    /// The time of each limit: where what was served last began.
    clocks: BTreeMap<LimitName, f64>,
}

impl Limits {
    fn places(&self, name: &LimitName) -> u32 {
        self.set.get(name).copied().unwrap_or(LimitView::UNSET)
    }

    /// Returns how many places are free; less than none after the limit was lowered.
    fn free(&self, name: &LimitName) -> i64 {
        let taken = self.held.values().filter_map(|names| names.get(name));
        i64::from(self.places(name)) - taken.copied().map(i64::from).sum::<i64>()
    }

    /// Returns where a key's next step begins in a limit's own time: where its last one ended, but
    /// not before the present, so that nobody saves up turns by being away.
    fn start(&self, name: &LimitName, key: &FairnessKey) -> f64 {
        let pass = self.passes.get(&(name.clone(), key.clone()));
        let clock = self.clocks.get(name);
        pass.into_iter().chain(clock).copied().fold(0.0, f64::max)
    }
}

/// One round of granting.
#[derive(Debug)]
struct Round {
    now: Timestamp,
    /// The limits that somebody waits for in vain: who comes after gets nothing of them.
    closed: BTreeSet<LimitName>,
    news: News,
}

impl Contents {
    /// Returns every limit that is known, by name.
    pub(super) fn limits(&self) -> Vec<LimitView> {
        let mut names: BTreeMap<&LimitName, (BTreeMap<StepId, u32>, u64)> = BTreeMap::new();
        for name in self.limits.set.keys() {
            names.entry(name).or_default();
        }
        for (id, held) in &self.limits.held {
            for (name, count) in held.iter().filter(|_| self.may_hold(*id)) {
                names.entry(name).or_default().0.insert(*id, *count);
            }
        }
        let steps = self.shards.iter().flat_map(|shard| shard.steps.values());
        for name in steps.filter_map(Step::limit) {
            names.entry(name).or_default().1 += 1;
        }
        names
            .into_iter()
            .map(|(name, (holders, waiting))| LimitView {
                name: name.clone(),
                places: self.limits.places(name),
                is_set: self.limits.set.contains_key(name),
                holders,
                waiting,
            })
            .collect()
    }

    /// Returns whether a step may have places: it runs, or is due.
    fn may_hold(&self, id: StepId) -> bool {
        let state = self.state(id);
        matches!(state, Some(StepState::Ready | StepState::Running))
    }

    /// Takes back places and gives out free ones, band by band.
    pub(super) fn grant(&mut self, now: Timestamp) -> Vec<Released> {
        let mut held = std::mem::take(&mut self.limits.held);
        held.retain(|id, names| {
            let step = self.step(*id);
            self.may_hold(*id) && step.is_some_and(|step| step.asked.policy.limits == *names)
        });
        self.limits.held = held;
        let mut round = Round {
            now,
            closed: BTreeSet::new(),
            news: News::default(),
        };
        let mut next = self.next_band(None);
        while let Some(band) = next {
            let mut queues = self.queues(band, now);
            while let Some(id) = self.next_of(&mut queues) {
                self.try_grant(id, &mut round);
            }
            // A step that gave way waits at a worse band than this, and may find other places.
            next = self.next_band(Some(band));
        }
        round.news.released
    }

    /// Returns the steps that may be given places: those that could start then.
    fn candidates(&self, now: Timestamp) -> impl Iterator<Item = (StepId, &Step)> {
        self.shards.iter().flat_map(move |shard| {
            let places = shard.index.limited.iter();
            places
                .filter(|(band, key, _)| !shard.is_paused(*band, key))
                .filter_map(|(.., id)| Some((StepId::new(shard.id, *id), shard.steps.get(id)?)))
                .filter(move |(_, step)| !step.is_late(now))
        })
    }

    fn next_band(&self, after: Option<Band>) -> Option<Band> {
        let limited = self.shards.iter().flat_map(|shard| &shard.index.limited);
        let bands = limited.map(|(band, ..)| *band);
        bands.filter(|band| Some(*band) > after).min()
    }

    /// Returns the steps of a band that may be given places, each key's oldest first, by the limit
    /// that they were last seen to wait for.
    fn queues(&self, band: Band, now: Timestamp) -> Queues {
        let mut waiting: Vec<(StepId, &Step)> = self.candidates(now).collect();
        waiting.retain(|(_, step)| step.asked.band == band);
        // Numbers rise with time; where a key has steps on several shards, this is near enough.
        waiting.sort_by_key(|(id, _)| (id.local, id.shard));
        let mut queues = Queues::new();
        for (id, step) in waiting {
            if let Some(name) = step.limit() {
                let of = (name.clone(), step.asked.key.clone());
                queues.entry(of).or_default().push_back(id);
            }
        }
        queues
    }

    /// Takes the next head out: that of the key which has had least of what its head waits for, and
    /// of equals the one that has waited longest.
    fn next_of(&self, queues: &mut Queues) -> Option<StepId> {
        let heads = queues.iter().filter_map(|(of, queue)| {
            let id = *queue.front()?;
            let oldest = (self.step(id)?.limited_since()?, id.local, id.shard);
            Some((self.limits.start(&of.0, &of.1), oldest, of))
        });
        let (.., of) = heads.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))?;
        let of = of.clone();
        queues.get_mut(&of)?.pop_front()
    }

    /// Gives a step all its places, or none and closes what it waits for.
    fn try_grant(&mut self, id: StepId, round: &mut Round) {
        let Some(step) = self.step(id) else { return };
        let (band, needs) = (step.asked.band, step.asked.policy.limits.clone());
        let mut way: BTreeSet<StepId> = BTreeSet::new();
        let mut short: Vec<LimitName> = Vec::new();
        for (name, count) in &needs {
            // No patience would help it, so it stands in nobody's way.
            if *count > self.limits.places(name) {
                self.waits_for(id, name);
                return;
            }
            if round.closed.contains(name) || !self.make_way(name, *count, band, &mut way) {
                short.push(name.clone());
            }
        }
        if let Some(name) = short.first() {
            self.waits_for(id, name);
            round.closed.extend(short);
            return;
        }
        for victim in way {
            self.give_way(victim, round.now);
        }
        self.charge(id, &needs);
        self.limits.held.insert(id, needs);
        let stand = Stand::Ready { since: round.now };
        self.shards[id.shard.index()].stand(id.local, stand, &mut round.news);
    }

    /// Adds steps to those that are to give way until so many places of a limit are free; `false`
    /// if that cannot be.
    fn make_way(
        &self,
        name: &LimitName,
        count: u32,
        band: Band,
        way: &mut BTreeSet<StepId>,
    ) -> bool {
        let held = |id: &StepId| self.limits.held.get(id).and_then(|names| names.get(name));
        let given = way.iter().filter_map(held).copied().map(i64::from);
        let mut free = self.limits.free(name) + given.sum::<i64>();
        while free < i64::from(count) {
            let Some((victim, places)) = self.victim(name, band, way) else {
                return false;
            };
            way.insert(victim);
            free += i64::from(places);
        }
        true
    }

    /// Returns the due step that gives way next: a paused one first, then of the worst band the
    /// youngest.
    fn victim(
        &self,
        name: &LimitName,
        band: Band,
        way: &BTreeSet<StepId>,
    ) -> Option<(StepId, u32)> {
        let held = self.limits.held.iter();
        held.filter(|(id, _)| !way.contains(id))
            .filter_map(|(id, names)| Some((*id, *names.get(name)?, self.step(*id)?)))
            .filter_map(|(id, places, step)| {
                let shard = &self.shards[id.shard.index()];
                let paused = shard.is_paused(step.asked.band, &step.asked.key);
                let yields = paused || step.asked.band > band;
                let rank = (paused, step.asked.band, id.local, Reverse(id.shard));
                (yields && step.state() == StepState::Ready).then_some((rank, id, places))
            })
            .max()
            .map(|(_, id, places)| (id, places))
    }

    fn give_way(&mut self, id: StepId, now: Timestamp) {
        self.limits.held.remove(&id);
        self.shards[id.shard.index()].change(id.local, |step| {
            step.stand = step.due_or_limited(now);
        });
    }

    /// Notes that a step was seen to wait for this limit.
    fn waits_for(&mut self, id: StepId, limit: &LimitName) {
        if self.step(id).and_then(Step::limit) != Some(limit)
            && let Some(step) = self.step_mut(id)
            && let Stand::Limited { name, .. } = &mut step.stand
        {
            *name = limit.clone();
        }
    }

    /// Counts what a key has got, by its weight.
    fn charge(&mut self, id: StepId, needs: &BTreeMap<LimitName, u32>) {
        let Some(step) = self.step(id) else { return };
        let (key, weight) = (step.asked.key.clone(), step.asked.weight.get());
        for (name, count) in needs {
            let start = self.limits.start(name, &key);
            let end = start + f64::from(*count) / weight;
            self.limits.passes.insert((name.clone(), key.clone()), end);
            self.limits.clocks.insert(name.clone(), start);
        }
    }
}

/// Who waits for which limit, by key.
type Queues = BTreeMap<(LimitName, FairnessKey), VecDeque<StepId>>;
