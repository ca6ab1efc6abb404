//! Random histories, told to a store and to a plain list; both must then say the same.

use std::collections::{BTreeMap, BTreeSet};

use fairq::ambient::Dice;
use fairq::model::{
    Band, Claim, Due, Ending, FairnessKey, LocalId, NewStep, OnLost, Policy, RunnerId, Settled,
    ShardId, StepId, StepState, Timestamp, Verdict, Weight,
};
use fairq::store::{Filter, Order};

use super::seeds::each_seed;
use super::{Open, World, at, band, key, over, runner, step};

const WORLDS: u64 = 12;
const MOVES: u64 = 120;
const ENDED: i64 = 10;

/// A step as the plain list knows it.
#[derive(Debug)]
struct Line {
    id: StepId,
    asked: NewStep,
    state: StepState,
    since: Timestamp,
    began: Timestamp,
    created: Timestamp,
    attempt: u32,
    fence: u32,
    runner: Option<RunnerId>,
    tries: Vec<u32>,
    /// How many of them were lost since the last one that was not.
    lost: u32,
}

impl Line {
    fn stands(&mut self, state: StepState, began: Timestamp) {
        self.state = state;
        self.began = began;
        self.runner = None;
    }

    fn comes_back(&mut self) {
        self.attempt -= 1;
        self.stands(StepState::Ready, self.since);
    }
}

struct Game {
    world: World,
    dice: Dice,
    now: i64,
    lines: Vec<Line>,
    claims: Vec<Claim>,
}

impl Game {
    fn pick(&mut self, count: usize) -> usize {
        usize::try_from(self.dice.below(count as u64)).unwrap()
    }

    fn number(&mut self, below: u32) -> u32 {
        u32::try_from(self.dice.below(u64::from(below))).unwrap()
    }

    fn shard(&mut self) -> ShardId {
        let shards: Vec<ShardId> = self.world.shards().collect();
        shards[self.pick(shards.len())]
    }

    fn enqueue(&mut self) {
        let steps: Vec<NewStep> = (0..=self.pick(3)).map(|_| self.random_step()).collect();
        let now = at(self.now);
        let ids = self.world.store.enqueue(&steps, now).unwrap();
        for (id, asked) in ids.into_iter().zip(steps) {
            let (state, began) = match asked.due {
                Due::At(due) if due > now => (StepState::Delayed, due),
                Due::Now | Due::At(_) => (StepState::Ready, now),
                Due::Held => (StepState::Held, now),
            };
            self.lines.push(Line {
                id,
                asked,
                state,
                since: began,
                began,
                created: now,
                attempt: 0,
                fence: 0,
                runner: None,
                tries: Vec::new(),
                lost: 0,
            });
        }
    }

    fn random_step(&mut self) -> NewStep {
        let due = match self.number(6) {
            0 => Due::Held,
            1 | 2 => Due::At(at(self.now + i64::from(self.number(100)) - 20)),
            _ => Due::Now,
        };
        let on_lost = [OnLost::Retry, OnLost::Fail, OnLost::Hold][self.pick(3)];
        NewStep {
            band: band(self.number(3)),
            weight: Weight::new(f64::from(1 + self.number(4))).unwrap(),
            due,
            policy: Policy {
                on_lost,
                ..Policy::default()
            },
            ..step(["a", "b", "c", "d", "e"][self.pick(5)])
        }
    }

    fn promote(&mut self) {
        let (shard, now) = (self.shard(), at(self.now));
        let next = self.world.store.promote(shard, now).unwrap();
        let mut expected: Option<Timestamp> = None;
        for line in &mut self.lines {
            if line.id.shard != shard || line.state != StepState::Delayed {
                continue;
            }
            if line.began <= now {
                line.stands(StepState::Ready, line.began);
            } else {
                expected = Some(expected.map_or(line.began, |least| least.min(line.began)));
            }
        }
        assert_eq!(next, expected);
    }

    fn claim(&mut self) {
        if self.lines.is_empty() {
            return;
        }
        let (index, by) = (self.pick(self.lines.len()), i64::from(self.number(3)));
        let line = &mut self.lines[index];
        let claim = self.world.claim(line.id, by, at(self.now));
        assert_eq!(claim.is_some(), line.state == StepState::Ready);
        let Some(claim) = claim else { return };
        line.stands(StepState::Running, at(self.now));
        line.runner = Some(runner(by));
        line.fence += 1;
        line.attempt += 1;
        assert_eq!((claim.fence, claim.attempt), (line.fence, line.attempt));
        assert_eq!(claim.since, line.since);
        self.claims.push(claim);
    }

    /// Settles any claim there ever was: many are late.
    fn settle(&mut self) {
        if self.claims.is_empty() {
            return;
        }
        let index = self.pick(self.claims.len());
        let claim = self.claims[index].clone();
        let (verdict, ending, state) = [
            (
                Verdict::Succeeded,
                Ending::Exited { code: 0 },
                StepState::Succeeded,
            ),
            (
                Verdict::Failed,
                Ending::Signalled { signal: 9 },
                StepState::Failed,
            ),
            (Verdict::GiveBack, Ending::Interrupted, StepState::Ready),
        ][self.pick(3)]
        .clone();
        let settled = self.world.settle(over(&claim, ending, verdict));
        let line = self.lines.iter_mut().find(|line| line.id == claim.id);
        let line = line.unwrap();
        let ours = line.fence == claim.fence && line.runner == Some(claim.runner);
        assert_eq!(settled != Settled::Fenced, ours);
        if !ours {
            return;
        }
        line.tries.push(claim.fence);
        line.lost = 0;
        if state == StepState::Ready {
            line.comes_back();
        } else {
            line.stands(state, at(claim.claimed.millis() + ENDED));
        }
    }

    fn reclaim(&mut self) {
        let (shard, dead, now) = (
            self.shard(),
            runner(i64::from(self.number(3))),
            at(self.now),
        );
        let lost = self.world.store.reclaim(shard, dead, now).unwrap();
        let mut lost: BTreeMap<StepId, StepState> =
            lost.into_iter().map(|lost| (lost.id, lost.state)).collect();
        for line in &mut self.lines {
            if line.id.shard != shard || line.runner != Some(dead) {
                continue;
            }
            line.tries.push(line.fence);
            line.lost += 1;
            match line.asked.policy.on_lost {
                OnLost::Retry if line.lost.is_multiple_of(Policy::MAX_LOST) => {
                    line.stands(StepState::Failed, now);
                }
                OnLost::Retry => line.comes_back(),
                OnLost::Fail => line.stands(StepState::Failed, now),
                OnLost::Hold => line.stands(StepState::Held, line.created),
            }
            assert_eq!(lost.remove(&line.id), Some(line.state));
        }
        assert_eq!(lost, BTreeMap::new());
    }

    fn compare(&self) {
        let by_id = Filter {
            order: Order::Id,
            ..Filter::default()
        };
        let told = self.world.store.list(&by_id).unwrap();
        let told = told.iter().map(|it| {
            let stand = (it.state, it.at, it.runner);
            (it.id, stand, it.attempt, it.fence)
        });
        let mut known: Vec<_> = self
            .lines
            .iter()
            .map(|it| {
                let stand = (it.state, it.began, it.runner);
                (it.id, stand, it.attempt, it.fence)
            })
            .collect();
        known.sort_by_key(|line| line.0);
        assert_eq!(told.collect::<Vec<_>>(), known);
        for shard in self.world.shards() {
            self.compare_supply(shard);
            self.compare_counts(shard);
        }
    }

    fn on(&self, shard: ShardId) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(move |line| line.id.shard == shard)
    }

    /// Counts again what the tally says, and asks for every key at every band.
    fn compare_supply(&self, shard: ShardId) {
        let mut due: BTreeMap<(Band, FairnessKey), Vec<&Line>> = BTreeMap::new();
        for line in self.on(shard).filter(|line| line.state == StepState::Ready) {
            let of = (line.asked.band, line.asked.key.clone());
            due.entry(of).or_default().push(line);
        }
        let best = due.keys().next().map(|(band, _)| *band);
        let tally = self.world.store.tally(shard).unwrap();
        assert_eq!(tally.band(), best);
        let told = tally.keys().iter();
        let told = told.map(|it| (it.key.clone(), it.count as usize, it.since, it.weight));
        // The lines stand in the order of arrival, so the first is the head.
        let known =
            due.iter()
                .filter(|((band, _), _)| Some(*band) == best)
                .map(|((_, key), lines)| {
                    let head = lines[0];
                    (key.clone(), lines.len(), head.began, head.asked.weight)
                });
        assert_eq!(told.collect::<Vec<_>>(), known.collect::<Vec<_>>());
        for number in 0..3 {
            for of in ["a", "b", "c", "d", "e"] {
                let lines = due.get(&(band(number), key(of))).into_iter().flatten();
                let known: Vec<LocalId> = lines.map(|line| line.id.local).collect();
                assert_eq!(self.world.due_at(shard, band(number), &key(of)), known);
            }
        }
    }

    fn compare_counts(&self, shard: ShardId) {
        let counts = self.world.store.counts(shard).unwrap();
        for state in StepState::ALL {
            let known = self.on(shard).filter(|line| line.state == state).count();
            let told = counts.states.get(&state).copied().unwrap_or(0);
            assert_eq!(told, known as u64, "{state}");
        }
        for number in 0..3 {
            let known = self
                .on(shard)
                .filter(|line| line.state == StepState::Ready && line.asked.band == band(number));
            let told = counts.ready.get(&band(number)).copied().unwrap_or(0);
            assert_eq!(told, known.count() as u64, "band {number}");
        }
        let delayed = self
            .on(shard)
            .filter(|line| line.state == StepState::Delayed);
        assert_eq!(counts.next_due, delayed.map(|line| line.began).min());
        let holders = self.world.store.holders(shard).unwrap();
        let known: BTreeSet<RunnerId> = self.on(shard).filter_map(|line| line.runner).collect();
        assert_eq!(holders.len(), known.len(), "a holder is told twice");
        assert_eq!(
            BTreeSet::from_iter(holders.iter().map(|held| held.runner)),
            known
        );
    }

    fn compare_tries(&self) {
        for line in &self.lines {
            let tries = self.world.store.attempts(line.id).unwrap();
            let fences: Vec<u32> = tries.iter().map(|it| it.fence).collect();
            assert_eq!(fences, line.tries, "{}", line.id);
        }
    }
}

pub(crate) fn any_history_leaves_what_a_plain_list_would(open: Open) {
    each_seed(WORLDS, |mut dice| {
        let shards = u8::try_from(1 + dice.below(3)).unwrap();
        let mut game = Game {
            world: World::new(open, shards),
            dice,
            now: 1_000,
            lines: Vec::new(),
            claims: Vec::new(),
        };
        for _ in 0..MOVES {
            match game.number(12) {
                0..=2 => game.enqueue(),
                3 => game.promote(),
                4..=6 => game.claim(),
                7..=9 => game.settle(),
                10 => game.reclaim(),
                _ => game.now += i64::from(game.number(60)),
            }
            game.compare();
        }
        game.compare_tries();
    });
}
