//! Who gets the free places of limits: best band first, within a band the key that has had the least
//! for its weight, within a key the oldest step. Pure.
//!
//! Keys take turns by start-time fair queueing (Goyal, Vin and Cheng 1996): a key's next step starts
//! at the later of where its last one ended and the limit's clock, which is the start of whatever
//! was served last.

use std::collections::{BTreeMap, VecDeque};

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
    /// Returns how many places of a limit are free.
    pub(super) fn room(&self, name: &LimitName) -> u32 {
        let all = self.places.get(name).copied().unwrap_or(LimitView::UNSET);
        let taken: u32 = self
            .holders
            .iter()
            .filter_map(|holder| holder.places.get(name))
            .sum();
        all.saturating_sub(taken)
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

/// Decides. `needs` tells what a step needs; it is asked for few of those who wait.
pub(super) fn decide(
    scene: Scene,
    needs: &mut dyn FnMut(StepId) -> Result<Needs>,
) -> Result<Moves> {
    let mut seekers = scene.seekers.clone();
    let mut deciding = Deciding {
        scene,
        moves: Moves::default(),
    };
    while let Some((name, waiting)) = seekers.pop_first() {
        deciding.serve(&name, waiting, needs)?;
    }
    Ok(deciding.moves)
}

struct Deciding {
    scene: Scene,
    moves: Moves,
}

impl Deciding {
    /// Gives away what a limit has, to those who wait for it at its best band.
    fn serve(
        &mut self,
        name: &LimitName,
        waiting: Vec<Seeker>,
        needs: &mut dyn FnMut(StepId) -> Result<Needs>,
    ) -> Result<()> {
        let Some(best) = waiting.iter().map(|seeker| seeker.band).min() else {
            return Ok(());
        };
        let mut keys: BTreeMap<FairnessKey, VecDeque<Seeker>> = BTreeMap::new();
        let mut sorted: Vec<Seeker> = waiting
            .into_iter()
            .filter(|seeker| seeker.band == best)
            .collect();
        sorted.sort_by_key(|seeker| (seeker.since, seeker.step));
        for seeker in sorted {
            keys.entry(seeker.key.clone())
                .or_default()
                .push_back(seeker);
        }
        while let Some(key) = self.next_key(name, &keys) {
            let Some(queue) = keys.get_mut(&key) else {
                return Ok(());
            };
            let Some(seeker) = queue.front().cloned() else {
                keys.remove(&key);
                continue;
            };
            let wanted = needs(seeker.step)?;
            match self.fits(name, &seeker, &wanted) {
                Fit::Never => {}
                Fit::Waits => return Ok(()),
                Fit::WaitsFor(other) => self.moves.parked.push((seeker.step, other)),
                Fit::Now => self.grant(&seeker, wanted),
            }
            queue.pop_front();
        }
        Ok(())
    }

    /// Returns the key whose turn it is.
    fn next_key(
        &self,
        name: &LimitName,
        keys: &BTreeMap<FairnessKey, VecDeque<Seeker>>,
    ) -> Option<FairnessKey> {
        keys.keys()
            .min_by(|a, b| self.start(name, a).total_cmp(&self.start(name, b)))
            .cloned()
    }

    fn start(&self, name: &LimitName, key: &FairnessKey) -> f64 {
        let at = |key: &str| {
            let pass = self.scene.passes.get(&(name.clone(), key.to_owned()));
            pass.copied().unwrap_or(0.0)
        };
        at(key.as_str()).max(at(CLOCK))
    }

    /// Returns whether a step can have all that it needs, after making due steps of worse bands give
    /// way if that is what it takes.
    fn fits(&mut self, name: &LimitName, seeker: &Seeker, wanted: &Needs) -> Fit {
        let all = |limit: &LimitName| {
            let places = self.scene.places.get(limit);
            places.copied().unwrap_or(LimitView::UNSET)
        };
        if wanted.iter().any(|(limit, n)| *n > all(limit)) {
            return Fit::Never;
        }
        // Nobody gives way before it is sure that it helps.
        let lacking: Vec<&LimitName> = wanted
            .iter()
            .filter(|(limit, n)| {
                self.scene
                    .room(limit)
                    .saturating_add(self.revocable(limit, seeker.band))
                    < **n
            })
            .map(|(limit, _)| limit)
            .collect();
        if lacking.contains(&name) {
            return Fit::Waits;
        }
        if let Some(other) = lacking.first() {
            return Fit::WaitsFor((*other).clone());
        }
        for (limit, n) in wanted {
            while self.scene.room(limit) < *n {
                self.revoke_one(limit, seeker.band);
            }
        }
        Fit::Now
    }

    /// Returns how many places of a limit due steps of worse bands than this one hold.
    fn revocable(&self, limit: &LimitName, band: Band) -> u32 {
        self.scene
            .holders
            .iter()
            .filter(|holder| !holder.is_started && holder.band > band)
            .filter_map(|holder| holder.places.get(limit))
            .sum()
    }

    /// Lets the worst and newest of those give way.
    fn revoke_one(&mut self, limit: &LimitName, band: Band) {
        let worst = self
            .scene
            .holders
            .iter()
            .enumerate()
            .filter(|(_, holder)| {
                !holder.is_started && holder.band > band && holder.places.contains_key(limit)
            })
            .max_by_key(|(_, holder)| (holder.band, holder.step))
            .map(|(at, _)| at);
        if let Some(at) = worst {
            let holder = self.scene.holders.swap_remove(at);
            self.moves.revoked.push((holder.step, limit.clone()));
        }
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
            places: wanted.clone(),
        });
        self.moves.granted.push(Grant {
            step: seeker.step,
            places: wanted,
        });
    }
}

/// The key under which a limit's clock stands; no step has it.
const CLOCK: &str = "";

/// Whether a step can have its places.
enum Fit {
    /// It needs more than there are: it stands aside until that is changed.
    Never,
    /// Not before more places of its limit are free.
    Waits,
    /// Not before places of another limit are free.
    WaitsFor(LimitName),
    /// It can.
    Now,
}

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

    fn one(_: StepId) -> Result<Needs> {
        Ok(Needs::from([(name("l"), 1)]))
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
        let moves = decide(scene, &mut one).unwrap();
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
            let moves = decide(scene, &mut one).unwrap();
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
            places: Needs::from([(name("l"), 1)]),
        };
        for (is_started, revoked) in [(false, 1), (true, 0)] {
            let mut scene = scene(1, vec![seeker("a2", 3, "x")]);
            scene.holders.push(holder(is_started));
            let moves = decide(scene, &mut one).unwrap();
            assert_eq!(moves.revoked.len(), revoked);
            assert_eq!(moves.granted.len(), revoked);
        }
        let mut equal = scene(1, vec![seeker("a2", 9, "x")]);
        equal.holders.push(holder(false));
        assert!(decide(equal, &mut one).unwrap().is_empty());
    }

    #[test]
    fn all_limits_of_a_step_or_none() {
        let mut scene = scene(1, vec![seeker("a1", 1, "x"), seeker("a2", 1, "y")]);
        scene.places.insert(name("m"), 0);
        let mut needs = |step: StepId| {
            let mut needs = one(step)?;
            if step.local.get() == 1 {
                needs.insert(name("m"), 0);
            }
            Ok(needs)
        };
        assert_eq!(granted(&decide(scene.clone(), &mut needs).unwrap()), ["a1"]);
        scene.places.insert(name("m"), 1);
        scene.holders.push(Holder {
            step: "c1".parse().unwrap(),
            band: Band::new(1).unwrap(),
            is_started: true,
            places: Needs::from([(name("m"), 1)]),
        });
        let mut needs = |step: StepId| {
            let mut needs = one(step)?;
            if step.local.get() == 1 {
                needs.insert(name("m"), 1);
            }
            Ok(needs)
        };
        let moves = decide(scene, &mut needs).unwrap();
        assert_eq!(moves.parked, [("a1".parse().unwrap(), name("m"))]);
        assert_eq!(granted(&moves), ["a2"]);
    }

    #[test]
    fn what_needs_more_than_there_is_stands_aside() {
        let scene = scene(1, vec![seeker("a1", 1, "x"), seeker("a2", 1, "x")]);
        let mut needs = |step: StepId| {
            let n = if step.local.get() == 1 { 2 } else { 1 };
            Ok(Needs::from([(name("l"), n)]))
        };
        assert_eq!(granted(&decide(scene, &mut needs).unwrap()), ["a2"]);
    }
}
