//! Random histories of whole lives of steps: what always holds, and what the reference would say.

use std::collections::{BTreeMap, BTreeSet};

use fairq::model::{Ending, LimitName, StepId, StepState};
use fairq::store::{Link, StepView};

use super::history::{History, reference};
use super::seeds::each_seed;
use super::{Open, key};

const WORLDS: u64 = 10;
const MOVES: usize = 150;

/// What is asked of a store again and again.
struct Watch {
    history: History,
    /// How many places of each limit were taken when it was last looked at.
    taken: BTreeMap<LimitName, u32>,
}

/// Returns whether a step waits for others, or will as soon as it is released.
const fn waits_for_others(view: &StepView) -> bool {
    matches!(view.state, StepState::Blocked | StepState::Held)
}

impl Watch {
    fn links(&self, id: StepId) -> Vec<Link> {
        self.history.world.store.parents(id).unwrap()
    }

    fn look(&mut self) {
        let views = self.history.views();
        self.every_step_stands_in_one_state(&views);
        self.nothing_runs_before_its_needs_are_met(&views);
        self.dependents_are_who_waits(&views);
        self.the_tally_is_what_is_due_and_not_paused(&views);
        self.no_limit_is_exceeded(&views);
    }

    fn every_step_stands_in_one_state(&self, views: &[StepView]) {
        let distinct: BTreeSet<StepId> = views.iter().map(|view| view.id).collect();
        assert_eq!(distinct.len(), views.len(), "a step is listed twice");
        let store = &self.history.world.store;
        let pauses = store.pauses().unwrap();
        for shard in self.history.world.shards() {
            let here = || views.iter().filter(|view| view.id.shard == shard);
            let counts = store.counts(shard).unwrap();
            for state in StepState::ALL {
                let known = here().filter(|view| view.state == state).count();
                let told = counts.states.get(&state).copied().unwrap_or(0);
                assert_eq!(told, known as u64, "{state}");
            }
            let ready = || here().filter(|view| view.state == StepState::Ready);
            let told = counts.ready.values().sum::<u64>();
            assert_eq!(told, ready().count() as u64);
            let paused = ready().filter(|view| {
                let mut pauses = pauses.iter();
                pauses.any(|pause| pause.what.covers(view.band, &view.key))
            });
            assert_eq!(counts.paused, paused.count() as u64);
        }
        for view in views {
            assert!(view.attempt <= view.fence, "{view:?}");
            let tries = self.history.world.store.attempts(view.id).unwrap();
            let runs = usize::from(view.state == StepState::Running);
            assert_eq!(tries.len() + runs, view.fence as usize, "{view:?}");
            assert_eq!(view.runner.is_some(), view.state == StepState::Running);
            assert_eq!(view.ending.is_some(), view.state.is_final());
            assert!(!view.cancelling || view.state == StepState::Running);
        }
    }

    fn nothing_runs_before_its_needs_are_met(&self, views: &[StepView]) {
        let states: BTreeMap<StepId, StepState> =
            views.iter().map(|view| (view.id, view.state)).collect();
        for view in views {
            let links = self.links(view.id);
            let all_met = links.iter().all(|link| link.met);
            for link in &links {
                assert_eq!(link.state, states.get(&link.parent).copied());
                let open = waits_for_others(view) && !link.met;
                let told = link.parent.shard == view.id.shard;
                let over = link.state.is_none_or(StepState::is_final);
                assert!(!(open && told && over), "{view:?} was not told of {link:?}");
            }
            match view.state {
                StepState::Blocked => assert!(!all_met, "{view:?} waits for nothing"),
                StepState::Ready
                | StepState::Limited
                | StepState::Delayed
                | StepState::Running
                | StepState::Succeeded => assert!(all_met, "{view:?} {links:?}"),
                StepState::Cancelled => {
                    let skipped = matches!(view.ending, Some(Ending::Skipped { .. }));
                    assert!(!(skipped && all_met), "{view:?} {links:?}");
                }
                StepState::Held | StepState::Failed => {}
            }
        }
    }

    fn dependents_are_who_waits(&self, views: &[StepView]) {
        let mut waiting: BTreeMap<StepId, BTreeSet<StepId>> = BTreeMap::new();
        for view in views.iter().filter(|view| waits_for_others(view)) {
            for link in self.links(view.id).iter().filter(|link| !link.met) {
                waiting.entry(link.parent).or_default().insert(view.id);
            }
        }
        for view in views {
            let told = self.history.world.store.dependents(view.id).unwrap();
            let known = waiting.remove(&view.id).unwrap_or_default();
            assert_eq!(told, Vec::from_iter(known), "dependents of {}", view.id);
        }
        assert_eq!(waiting, BTreeMap::new(), "a parent is gone");
    }

    fn the_tally_is_what_is_due_and_not_paused(&self, views: &[StepView]) {
        let store = &self.history.world.store;
        let pauses = store.pauses().unwrap();
        for shard in self.history.world.shards() {
            let mut due: BTreeMap<_, Vec<&StepView>> = BTreeMap::new();
            let here = views.iter().filter(|view| view.id.shard == shard);
            for view in here.filter(|view| view.state == StepState::Ready) {
                let mut pauses = pauses.iter();
                if !pauses.any(|pause| pause.what.covers(view.band, &view.key)) {
                    let of = (view.band, view.key.clone());
                    due.entry(of).or_default().push(view);
                }
            }
            let tally = store.tally(shard).unwrap();
            let best = due.keys().next().map(|(band, _)| *band);
            assert_eq!(tally.band(), best);
            let told = tally.keys().iter();
            let told = told.map(|it| (it.key.clone(), it.count as usize, it.since, it.weight));
            let known =
                due.iter()
                    .filter(|((band, _), _)| Some(*band) == best)
                    .map(|((_, key), views)| {
                        let head = views[0];
                        (key.clone(), views.len(), head.at, head.weight)
                    });
            assert_eq!(told.collect::<Vec<_>>(), known.collect::<Vec<_>>());
            for of in ["a", "b", "c", "d"] {
                let Some(band) = best else { continue };
                let found = self.history.world.due_at(shard, band, &key(of));
                let views = due.get(&(band, key(of))).into_iter().flatten();
                let known: Vec<_> = views.map(|view| view.id.local).collect();
                assert_eq!(found, known);
            }
        }
    }

    /// Counts from the steps themselves who must have places.
    fn no_limit_is_exceeded(&mut self, views: &[StepView]) {
        let mut taken: BTreeMap<LimitName, u32> = BTreeMap::new();
        let mut holders: BTreeMap<LimitName, BTreeMap<StepId, u32>> = BTreeMap::new();
        for view in views {
            if matches!(view.state, StepState::Ready | StepState::Running) {
                for (name, count) in &view.policy.limits {
                    *taken.entry(name.clone()).or_default() += count;
                    let of = holders.entry(name.clone()).or_default();
                    of.insert(view.id, *count);
                }
            }
            let needs_places = !view.policy.limits.is_empty();
            assert!(needs_places || view.state != StepState::Limited);
        }
        for limit in self.history.world.store.limits().unwrap() {
            let now = taken.get(&limit.name).copied().unwrap_or(0);
            let before = self.taken.get(&limit.name).copied().unwrap_or(0);
            // More than there are only as long as they were taken before the limit was lowered.
            assert!(now <= limit.places.max(before), "{limit:?} {now}");
            for (id, count) in holders.remove(&limit.name).unwrap_or_default() {
                assert_eq!(limit.holders.get(&id), Some(&count), "{limit:?}");
            }
        }
        assert!(holders.is_empty(), "nobody knows of {holders:?}");
        self.taken = taken;
    }
}

pub(crate) fn any_life_keeps_the_rules_and_ends(open: Open) {
    each_seed(WORLDS, |mut dice| {
        let shards = u8::try_from(1 + dice.below(3)).unwrap();
        let mut watch = Watch {
            history: History::new(open, dice, shards),
            taken: BTreeMap::new(),
        };
        for _ in 0..MOVES {
            watch.history.act();
            watch.look();
        }
        watch.history.end();
        watch.look();
    });
}

pub(crate) fn any_life_is_lived_as_the_reference_would(open: Open) {
    each_seed(WORLDS, |mut dice| {
        let shards = u8::try_from(1 + dice.below(3)).unwrap();
        let mut told = History::new(open, dice.clone(), shards).with_one_limit_each();
        let mut known = History::new(reference, dice, shards).with_one_limit_each();
        let mut acts = Vec::new();
        for _ in 0..MOVES {
            let act = known.act();
            acts.push(act.clone());
            assert_eq!(told.act(), act, "after {acts:#?}");
            let (told, known) = (told.picture(), known.picture());
            let differs = told.lines().zip(known.lines()).find(|(a, b)| a != b);
            assert_eq!(told, known, "{differs:#?} after {acts:#?}");
        }
    });
}
