//! Who gets the free places of limits: best band first, within a band the key that has had the least
//! for its weight, within a key the oldest step. Pure.
//!
//! Keys take turns by start-time fair queueing (Goyal, Vin and Cheng 1996): a key's next step starts
//! at the later of where its last one ended and the limit's clock, which is the start of whatever
//! was served last.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::error::Result;
use crate::model::{Band, FairnessKey, LimitName, StepId, Timestamp, Weight};
use crate::store::LimitView;

/// How many places of which limits.
pub(super) type Needs = BTreeMap<LimitName, u32>;

/// A step that has its places.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) step: StepId,
    pub(super) band: Band,
    /// Whether it has been claimed: then nothing takes its places away.
    pub(super) is_started: bool,
    /// Whether it is paused, so that its places are of no use to it for now.
    pub(super) is_paused: bool,
    pub(super) places: Needs,
}

/// A step that waits for a limit.
#[derive(Clone, Debug)]
pub(super) struct Seeker {
    pub(super) step: StepId,
    pub(super) band: Band,
    pub(super) key: FairnessKey,
    pub(super) weight: Weight,
    pub(super) since: Timestamp,
}

/// How limits stand.
#[derive(Clone, Debug, Default)]
pub(super) struct Scene {
    /// How many places each has; one that is not here has [`LimitView::UNSET`].
    pub(super) places: BTreeMap<LimitName, u32>,
    pub(super) holders: Vec<Holder>,
    /// Those who wait at the best band of each limit, each key's oldest first.
    pub(super) seekers: BTreeMap<LimitName, Vec<Seeker>>,
    /// Where each key's last step ended in a limit's own time, and its clock.
    pub(super) passes: Passes,
}

/// Where keys stand in the time of limits; under the empty key, the limit's clock.
pub(super) type Passes = BTreeMap<(LimitName, String), f64>;

/// A step that gets its places.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Grant {
    pub(super) step: StepId,
    pub(super) places: Needs,
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Moves {
    /// These give way to steps of better bands; they wait for this limit again.
    pub(super) revoked: Vec<(StepId, LimitName)>,
    /// These are due.
    pub(super) granted: Vec<Grant>,
    /// These wait for another limit than the one under which they stood.
    pub(super) parked: Vec<(StepId, LimitName)>,
    /// These stand elsewhere in the time of limits than before.
    pub(super) passes: Passes,
}

impl Moves {
    pub(super) fn is_empty(&self) -> bool {
        self.revoked.is_empty() && self.granted.is_empty() && self.parked.is_empty()
    }
}

impl Scene {
    /// Returns how many places of a limit are free; less than none after it was lowered.
    fn room(&self, name: &LimitName) -> i64 {
        let all = self.places.get(name).copied().unwrap_or(LimitView::UNSET);
        let taken: i64 = self
            .holders
            .iter()
            .filter_map(|holder| holder.places.get(name).copied())
            .map(i64::from)
            .sum();
        i64::from(all) - taken
    }

    /// Returns whether a step that waits for this limit could get anything of it.
    pub(super) fn may_give(&self, name: &LimitName) -> bool {
        self.room(name) > 0
            || self
                .holders
                .iter()
                .any(|holder| !holder.is_started && holder.places.contains_key(name))
    }
}

/// What rounds of one call hand on: each step is looked at once in a call.
#[derive(Clone, Debug, Default)]
pub(super) struct Past {
    /// The limits that somebody waits for in vain: who comes after gets nothing of them, or one that
    /// needs many places would be passed by for ever.
    pub(super) closed: BTreeSet<LimitName>,
    /// The steps that were looked at and not served.
    pub(super) seen: BTreeSet<StepId>,
}

/// Decides. `needs` tells what a step needs, `None` if it is not to start; it is asked of few of
/// those who wait.
pub(super) fn decide(
    scene: Scene,
    past: &mut Past,
    needs: &mut dyn FnMut(StepId) -> Result<Option<Needs>>,
) -> Result<Moves> {
    let mut queues: Queues = BTreeMap::new();
    for (name, seekers) in &scene.seekers {
        let best = seekers.iter().map(|seeker| seeker.band).min();
        let mut sorted: Vec<&Seeker> = seekers
            .iter()
            .filter(|seeker| Some(seeker.band) == best)
            .collect();
        // Numbers rise with time; where a key has steps on several shards, this is near enough.
        sorted.sort_by_key(|seeker| (seeker.step.local, seeker.step.shard));
        for seeker in sorted {
            let queue = queues.entry((name.clone(), seeker.key.clone()));
            queue.or_default().push_back(seeker.clone());
        }
    }
    let mut deciding = Deciding {
        scene,
        moves: Moves::default(),
        past,
    };
    while let Some((name, seeker)) = deciding.next(&mut queues) {
        deciding.past.seen.insert(seeker.step);
        if let Some(wanted) = needs(seeker.step)? {
            deciding.serve(&name, &seeker, wanted);
        }
    }
    Ok(deciding.moves)
}

/// Who waits for which limit, by key.
type Queues = BTreeMap<(LimitName, FairnessKey), VecDeque<Seeker>>;

struct Deciding<'p> {
    scene: Scene,
    moves: Moves,
    past: &'p mut Past,
}

impl Deciding<'_> {
    /// Takes the next one out of its queue: of the best band, of the key that has had least of what
    /// it waits for, and of equals the one that has waited longest.
    fn next(&self, queues: &mut Queues) -> Option<(LimitName, Seeker)> {
        let heads = queues.iter().filter_map(|(of, queue)| {
            let head = queue.front()?;
            let oldest = (head.since, head.step.local, head.step.shard);
            Some((head.band, self.start(&of.0, &of.1), oldest, of))
        });
        let (.., of) = heads.min_by(|a, b| {
            let (band, start) = (a.0.cmp(&b.0), a.1.total_cmp(&b.1));
            band.then(start).then(a.2.cmp(&b.2))
        })?;
        let of = of.clone();
        let seeker = queues.get_mut(&of)?.pop_front()?;
        Some((of.0, seeker))
    }

    /// Gives a step all its places, or none and closes what it is short of.
    fn serve(&mut self, name: &LimitName, seeker: &Seeker, wanted: Needs) {
        let all = |limit: &LimitName| {
            let places = self.scene.places.get(limit);
            places.copied().unwrap_or(LimitView::UNSET)
        };
        // No patience would help it, so it stands in nobody's way.
        if let Some((never, _)) = wanted.iter().find(|(limit, n)| **n > all(limit)) {
            self.park(name, seeker, never.clone());
            return;
        }
        // Nobody gives way before it is sure that it helps.
        let mut way: BTreeSet<StepId> = BTreeSet::new();
        let mut short: Vec<LimitName> = Vec::new();
        for (limit, n) in &wanted {
            if self.past.closed.contains(limit) || !self.make_way(limit, *n, seeker.band, &mut way)
            {
                short.push(limit.clone());
            }
        }
        if let Some(first) = short.first().cloned() {
            self.past.closed.extend(short);
            self.park(name, seeker, first);
            return;
        }
        for step in way {
            let holders = &mut self.scene.holders;
            if let Some(at) = holders.iter().position(|holder| holder.step == step) {
                let holder = holders.swap_remove(at);
                let limit = holder.places.into_keys().next();
                self.moves.revoked.extend(limit.map(|limit| (step, limit)));
            }
        }
        self.grant(seeker, wanted);
    }

    fn park(&mut self, name: &LimitName, seeker: &Seeker, under: LimitName) {
        if under != *name {
            self.moves.parked.push((seeker.step, under));
        }
    }

    /// Adds steps to those that are to give way until so many places of a limit are free; `false` if
    /// that cannot be. A paused one gives way first, to whatever band; then of the worst band the
    /// youngest.
    fn make_way(&self, limit: &LimitName, n: u32, band: Band, way: &mut BTreeSet<StepId>) -> bool {
        let holders = &self.scene.holders;
        let given: i64 = holders
            .iter()
            .filter(|holder| way.contains(&holder.step))
            .filter_map(|holder| holder.places.get(limit).copied())
            .map(i64::from)
            .sum();
        let mut free = self.scene.room(limit) + given;
        while free < i64::from(n) {
            let next = holders
                .iter()
                .filter(|holder| !holder.is_started && !way.contains(&holder.step))
                .filter(|holder| holder.is_paused || holder.band > band)
                .filter_map(|holder| Some((holder, *holder.places.get(limit)?)))
                .max_by_key(|(holder, _)| {
                    let step = holder.step;
                    (
                        holder.is_paused,
                        holder.band,
                        step.local,
                        Reverse(step.shard),
                    )
                });
            let Some((holder, places)) = next else {
                return false;
            };
            way.insert(holder.step);
            free += i64::from(places);
        }
        true
    }

    fn start(&self, name: &LimitName, key: &FairnessKey) -> f64 {
        let at = |key: &str| {
            let pass = self.scene.passes.get(&(name.clone(), key.to_owned()));
            pass.copied().unwrap_or(0.0)
        };
        at(key.as_str()).max(at(CLOCK))
    }

    fn grant(&mut self, seeker: &Seeker, wanted: Needs) {
        for (limit, n) in &wanted {
            let start = self.start(limit, &seeker.key);
            let end = start + f64::from(*n) / seeker.weight.get();
            for (key, at) in [(seeker.key.as_str(), end), (CLOCK, start)] {
                let place = (limit.clone(), key.to_owned());
                self.scene.passes.insert(place.clone(), at);
                self.moves.passes.insert(place, at);
            }
        }
        self.scene.holders.push(Holder {
            step: seeker.step,
            band: seeker.band,
            // Nobody who waits at the same band or a worse one makes it give way in this round.
            is_started: false,
            is_paused: false,
            places: wanted.clone(),
        });
        self.moves.granted.push(Grant {
            step: seeker.step,
            places: wanted,
        });
    }
}

/// The key under which a limit's clock stands; no step has it.
pub(super) const CLOCK: &str = "";

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> LimitName {
        text.parse().unwrap()
    }

    fn seeker(number: &str, band: u32, key: &str) -> Seeker {
        let step: StepId = number.parse().unwrap();
        Seeker {
            step,
            band: Band::new(band).unwrap(),
            key: key.parse().unwrap(),
            weight: Weight::or_one(1.0),
            since: Timestamp::from_millis(step.local.get()),
        }
    }

    fn scene(places: u32, seekers: Vec<Seeker>) -> Scene {
        Scene {
            places: BTreeMap::from([(name("l"), places)]),
            seekers: BTreeMap::from([(name("l"), seekers)]),
            ..Scene::default()
        }
    }

    fn one(_: StepId) -> Result<Option<Needs>> {
        Ok(Some(Needs::from([(name("l"), 1)])))
    }

    fn granted(moves: &Moves) -> Vec<String> {
        moves
            .granted
            .iter()
            .map(|grant| grant.step.to_string())
            .collect()
    }

    #[test]
    fn the_best_band_gets_all_there_is() {
        let scene = scene(
            2,
            vec![
                seeker("a1", 9, "x"),
                seeker("b7", 3, "y"),
                seeker("a2", 3, "x"),
            ],
        );
        let moves = decide(scene, &mut Past::default(), &mut one).unwrap();
        assert_eq!(granted(&moves), ["a2", "b7"]);
        assert!(moves.revoked.is_empty());
    }

    #[test]
    fn keys_take_turns_by_weight_over_many_rounds() {
        let mut passes = Passes::new();
        let mut had: BTreeMap<String, u32> = BTreeMap::new();
        for _ in 0..400 {
            let mut heavy = seeker("a1", 1, "heavy");
            heavy.weight = Weight::or_one(3.0);
            let mut scene = scene(1, vec![heavy, seeker("b1", 1, "light")]);
            scene.passes = passes.clone();
            let moves = decide(scene, &mut Past::default(), &mut one).unwrap();
            passes.extend(moves.passes.clone());
            *had.entry(granted(&moves).concat()).or_default() += 1;
        }
        assert_eq!((had["a1"], had["b1"]), (300, 100));
    }

    #[test]
    fn a_due_step_gives_way_to_a_better_band_and_a_running_one_does_not() {
        let holder = |is_started| Holder {
            step: "a1".parse().unwrap(),
            band: Band::new(9).unwrap(),
            is_started,
            is_paused: false,
            places: Needs::from([(name("l"), 1)]),
        };
        for (is_started, revoked) in [(false, 1), (true, 0)] {
            let mut scene = scene(1, vec![seeker("a2", 3, "x")]);
            scene.holders.push(holder(is_started));
            let moves = decide(scene, &mut Past::default(), &mut one).unwrap();
            assert_eq!(moves.revoked.len(), revoked);
            assert_eq!(moves.granted.len(), revoked);
        }
        let mut equal = scene(1, vec![seeker("a2", 9, "x")]);
        equal.holders.push(holder(false));
        assert!(
            decide(equal, &mut Past::default(), &mut one)
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn all_limits_of_a_step_or_none() {
        let mut scene = scene(1, vec![seeker("a1", 1, "x"), seeker("a2", 1, "y")]);
        scene.places.insert(name("m"), 0);
        let mut needs = |step: StepId| {
            let mut needs = one(step)?.unwrap();
            if step.local.get() == 1 {
                needs.insert(name("m"), 0);
            }
            Ok(Some(needs))
        };
        assert_eq!(
            granted(&decide(scene.clone(), &mut Past::default(), &mut needs).unwrap()),
            ["a1"]
        );
        scene.places.insert(name("m"), 1);
        scene.holders.push(Holder {
            step: "c1".parse().unwrap(),
            band: Band::new(1).unwrap(),
            is_started: true,
            is_paused: false,
            places: Needs::from([(name("m"), 1)]),
        });
        let mut needs = |step: StepId| {
            let mut needs = one(step)?.unwrap();
            if step.local.get() == 1 {
                needs.insert(name("m"), 1);
            }
            Ok(Some(needs))
        };
        let moves = decide(scene, &mut Past::default(), &mut needs).unwrap();
        assert_eq!(moves.parked, [("a1".parse().unwrap(), name("m"))]);
        assert_eq!(granted(&moves), ["a2"]);
    }

    #[test]
    fn what_needs_more_than_there_is_stands_aside() {
        let scene = scene(1, vec![seeker("a1", 1, "x"), seeker("a2", 1, "x")]);
        let mut needs = |step: StepId| {
            let n = if step.local.get() == 1 { 2 } else { 1 };
            Ok(Some(Needs::from([(name("l"), n)])))
        };
        assert_eq!(
            granted(&decide(scene, &mut Past::default(), &mut needs).unwrap()),
            ["a2"]
        );
    }
}
