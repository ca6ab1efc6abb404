//! One store lives a random history; what it answers is text, so that two can be compared.

use std::collections::BTreeMap;
use std::path::Path;

use fairq::ambient::Dice;
use fairq::model::{
    Band, Candidate, Claim, Dependency, Due, Ending, FairnessKey, LimitName, Need, NewStep, OnLost,
    Parent, Policy, Released, RunnerId, Scope, ShardId, StepId, StepState, Timestamp, Turn, Unique,
    Verdict, Weight,
};
use fairq::store::placement::Placement;
use fairq::store::{Action, Edit, Filter, Order, Pause, Retention, StepView, Store};

use super::{Open, World, at, band, key, over, runner, step};

/// What a history is made of.
const KEYS: [&str; 4] = ["a", "b", "c", "d"];
const LIMITS: [&str; 2] = ["x", "y"];
const BANDS: u32 = 3;
const RUNNERS: i64 = 3;

pub(crate) struct History {
    pub(crate) world: World,
    pub(crate) now: i64,
    dice: Dice,
    claims: Vec<Claim>,
    /// How many limits a step has at most. Which of several steps with several limits each is served
    /// first is left to the backend, as far as the bands, the keys and the patient allow.
    limits: usize,
}

/// Returns the candidate that a look at a step would make.
fn candidate(view: &StepView) -> Candidate {
    Candidate {
        id: view.id,
        band: view.band,
        key: view.key.clone(),
        turn: Turn::ZERO,
    }
}

fn told(mut released: Vec<Released>) -> String {
    released.sort_by_key(|one| one.id);
    format!("{released:?}")
}

impl History {
    pub(crate) fn new(open: Open, dice: Dice, shards: u8) -> Self {
        Self::of(World::placed(open, shards, Placement::Key), dice)
    }

    /// Lets each step have one limit at most.
    pub(crate) const fn with_one_limit_each(mut self) -> Self {
        self.limits = 1;
        self
    }

    pub(crate) const fn of(world: World, dice: Dice) -> Self {
        Self {
            world,
            now: 1_000,
            dice,
            claims: Vec::new(),
            limits: usize::MAX,
        }
    }

    fn store(&self) -> &dyn Store {
        &*self.world.store
    }

    pub(crate) fn clock(&self) -> Timestamp {
        at(self.now)
    }

    /// Returns all steps that are kept, in the order of their ids.
    pub(crate) fn views(&self) -> Vec<StepView> {
        let filter = Filter {
            order: Order::Id,
            ..Filter::default()
        };
        self.store().list(&filter).unwrap()
    }

    fn number(&mut self, below: u32) -> u32 {
        u32::try_from(self.dice.below(u64::from(below))).unwrap()
    }

    fn one_in(&mut self, count: u32) -> bool {
        self.number(count) == 0
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        let index = usize::try_from(self.dice.below(of.len() as u64)).unwrap();
        of.get(index).cloned()
    }

    fn shard(&mut self) -> ShardId {
        let shards: Vec<ShardId> = self.world.shards().collect();
        self.pick(&shards).unwrap()
    }

    fn key(&mut self) -> FairnessKey {
        key(self.pick(&KEYS).unwrap())
    }

    fn band(&mut self) -> Band {
        band(self.number(BANDS))
    }

    fn limit(&mut self) -> LimitName {
        self.pick(&LIMITS).unwrap().parse().unwrap()
    }

    fn soon(&mut self) -> Timestamp {
        at(self.now + i64::from(self.number(200)) - 20)
    }

    fn policy(&mut self) -> Policy {
        let mut limits = BTreeMap::new();
        while self.one_in(3) && limits.len() < self.limits {
            limits.insert(self.limit(), 1 + self.number(2));
        }
        Policy {
            on_lost: self
                .pick(&[OnLost::Retry, OnLost::Fail, OnLost::Hold])
                .unwrap(),
            expire: self.one_in(8).then(|| self.soon()),
            limits,
            ..Policy::default()
        }
    }

    fn step(&mut self, stored: &[StepId], batch: usize) -> NewStep {
        let due = match self.number(8) {
            0 => Due::Held,
            1 | 2 => Due::At(self.soon()),
            _ => Due::Now,
        };
        let mut after = Vec::new();
        while self.one_in(2) && after.len() < 3 {
            let stored = self.pick(stored).filter(|_| !self.one_in(3));
            let in_batch = usize::try_from(self.dice.below(batch as u64)).unwrap();
            after.push(Dependency {
                parent: stored.map_or(Parent::InBatch(in_batch), Parent::Step),
                need: self
                    .pick(&[Need::Success, Need::Success, Need::End, Need::Failure])
                    .unwrap(),
            });
        }
        let unique = self.one_in(6).then(|| Unique {
            key: self.pick(&["u", "v", "w"]).unwrap().to_owned(),
            scope: self
                .pick(&[Scope::Queued, Scope::Active, Scope::Kept])
                .unwrap(),
        });
        NewStep {
            band: self.band(),
            weight: Weight::new(f64::from(1 + self.number(4))).unwrap(),
            due,
            after,
            unique,
            policy: self.policy(),
            ..step(self.pick(&KEYS).unwrap())
        }
    }

    fn put(&mut self) -> String {
        let stored: Vec<StepId> = self.views().iter().map(|view| view.id).collect();
        let count = 1 + usize::try_from(self.dice.below(4)).unwrap();
        let steps: Vec<NewStep> = (0..count).map(|_| self.step(&stored, count)).collect();
        // A circle is refused; how that is said is not for the machine.
        let put = self.store().put(&steps, self.clock());
        format!("put {:?}", put.map_err(|error| error.kind()))
    }

    /// Claims due steps mostly, and sometimes what is not to be had.
    fn claim(&mut self) -> String {
        let shard = self.shard();
        let mut views = self.views();
        let anything = self.one_in(4);
        views.retain(|view| view.id.shard == shard);
        views.retain(|view| anything || view.state == StepState::Ready);
        let mut candidates = Vec::new();
        for _ in 0..3 {
            candidates.extend(self.pick(&views).as_ref().map(candidate));
        }
        let by = super::lease(i64::from(self.number(3)));
        let claims = self.store().claim(shard, &candidates, by, self.clock());
        let claims = claims.unwrap();
        let pauses = self.store().pauses().unwrap();
        for claim in claims.iter().flatten() {
            let paused = |of: &fairq::store::Paused| of.what.covers(claim.band, &claim.key);
            assert!(!pauses.iter().any(paused), "{} was paused", claim.id);
            let was = views.iter().find(|view| view.id == claim.id).unwrap();
            assert_eq!(was.state, StepState::Ready);
            let late = was
                .policy
                .expire
                .is_some_and(|expire| expire <= self.clock());
            assert!(was.fence > 0 || !late, "{} was late", claim.id);
        }
        let won: Vec<_> = claims
            .iter()
            .map(|claim| claim.as_ref().map(|it| (it.id, it.fence, it.attempt)))
            .collect();
        self.claims.extend(claims.into_iter().flatten());
        format!("claim {won:?}")
    }

    /// Settles any claim there ever was: many are late.
    fn settle(&mut self) -> String {
        let claims = self.claims.clone();
        let Some(claim) = self.pick(&claims) else {
            return "nothing to settle".to_owned();
        };
        let (verdict, ending) = match self.number(6) {
            0..=2 => (Verdict::Succeeded, Ending::Exited { code: 0 }),
            3 => (Verdict::Failed, Ending::Signalled { signal: 9 }),
            4 => {
                let at = at(self.now + 1 + i64::from(self.number(200)));
                (Verdict::Retry { at }, Ending::Exited { code: 75 })
            }
            _ => (Verdict::GiveBack, Ending::Interrupted),
        };
        let mut settlement = over(&claim, ending, verdict);
        settlement.finished.ended = self.clock();
        let settled = self.world.settle(settlement);
        if let fairq::model::Settled::Recorded(news) = settled {
            let released = told(news.released);
            // Whether others are to be told may be said once too often.
            return format!("settle {} {} {released}", claim.id, news.state);
        }
        format!("settle {} fenced", claim.id)
    }

    fn steer(&mut self) -> String {
        let views = self.views();
        let mut ids = Vec::new();
        for _ in 0..=self.number(3) {
            let id = self.pick(&views).map(|view| view.id);
            ids.extend(id.filter(|id| !ids.contains(id)));
        }
        let action = match self.number(8) {
            0 => Action::Cancel,
            1 => Action::Hold,
            2 | 3 => Action::Release,
            4..=6 => Action::Retry,
            _ => Action::from(self.edit()),
        };
        let steered = self.store().steer(&ids, &action, self.clock()).unwrap();
        // Whether one that follows another one in the same call was still to be cancelled is
        // not promised.
        if matches!(action, Action::Cancel) {
            return format!("cancel {ids:?}");
        }
        format!("steer {action:?} {ids:?} {steered:?}")
    }

    fn edit(&mut self) -> Edit {
        Edit {
            band: self.one_in(2).then(|| self.band()),
            key: self.one_in(2).then(|| self.key()),
            weight: self.one_in(2).then_some(Weight::ONE),
            name: self.one_in(2).then(|| Some("edited".to_owned())),
            due: self.one_in(2).then(|| self.one_in(2).then(|| self.soon())),
            policy: self.one_in(2).then(|| self.policy()),
            ..Edit::default()
        }
    }

    fn pause(&mut self) -> String {
        let what = Pause {
            band: self.one_in(2).then(|| self.band()),
            key: self.one_in(2).then(|| self.key()),
        };
        if self.one_in(3) {
            self.store().pause(&what, self.clock()).unwrap();
            return format!("pause {what:?}");
        }
        let resumed = self.store().resume(&what).unwrap();
        format!("resume {what:?} {resumed}")
    }

    fn set_limit(&mut self) -> String {
        let (name, places) = (self.limit(), (!self.one_in(4)).then(|| self.number(5)));
        let before = self.store().set_limit(&name, places).unwrap();
        format!("limit {name} {places:?} {before:?}")
    }

    fn clean(&mut self) -> String {
        let shard = self.shard();
        let retention = Retention {
            ended_before: at(self.now - 200),
            states: vec![
                StepState::Succeeded,
                StepState::Failed,
                StepState::Cancelled,
            ],
            only: None,
            most: Retention::PORTION,
            tidy: true,
        };
        let cleaned = self.store().clean(shard, &retention).unwrap();
        format!("clean {cleaned:?}")
    }

    fn deliver(&mut self) -> String {
        let shard = self.shard();
        let released = self.store().deliver(shard, self.clock()).unwrap();
        format!("deliver {shard} {}", told(released))
    }

    pub(crate) fn grant(&self) -> String {
        let released = self.store().grant(self.clock()).unwrap();
        format!("grant {}", told(released))
    }

    fn reclaim(&mut self) -> String {
        let (shard, dead) = (self.shard(), runner(i64::from(self.number(3))));
        let mut lost = self.store().reclaim(shard, dead, self.clock()).unwrap();
        lost.sort_by_key(|lost| lost.id);
        format!("reclaim {shard} {dead} {lost:?}")
    }

    fn promote(&mut self) -> String {
        let shard = self.shard();
        let next = self.store().promote(shard, self.clock()).unwrap();
        format!("promote {shard} {next:?}")
    }

    fn mend(&self) -> String {
        format!("mend {}", told(self.store().mend(self.clock()).unwrap()))
    }

    /// Makes one move and says what it was and what came of it.
    pub(crate) fn act(&mut self) -> String {
        match self.number(40) {
            0..=6 => self.put(),
            7..=13 => self.claim(),
            14..=20 => self.settle(),
            21..=23 => self.deliver(),
            24..=27 => self.grant(),
            28..=29 => self.promote(),
            30..=33 => self.steer(),
            34 => self.pause(),
            35 => self.set_limit(),
            36 => self.reclaim(),
            37 if self.one_in(3) => self.clean(),
            37 if self.one_in(3) => self.mend(),
            _ => {
                self.now += i64::from(self.number(60));
                format!("it is {}", self.now)
            }
        }
    }

    /// Lets everything go that waits, and runs it, until nothing is left to be done.
    pub(crate) fn end(&mut self) {
        let store = &self.world.store;
        for paused in store.pauses().unwrap() {
            assert!(store.resume(&paused.what).unwrap());
        }
        for name in LIMITS {
            let places = Some(2);
            store.set_limit(&name.parse().unwrap(), places).unwrap();
        }
        let held = Filter {
            states: vec![StepState::Held],
            ..Filter::default()
        };
        for round in 1.. {
            self.now += 1_000;
            let now = at(self.now);
            for shard in self.world.shards() {
                for dead in 0..RUNNERS {
                    store.reclaim(shard, runner(dead), now).unwrap();
                }
                store.promote(shard, now).unwrap();
                store.deliver(shard, now).unwrap();
            }
            let ids = store.find(&held).unwrap();
            store.steer(&ids, &Action::Release, now).unwrap();
            store.grant(now).unwrap();
            let mut open = self.views();
            open.retain(|view| !view.state.is_final());
            if open.is_empty() {
                return;
            }
            open.retain(|view| view.state == StepState::Ready);
            for view in open {
                let claim = self.world.claim(view.id, 0, now).unwrap();
                self.world.settle(super::success(&claim));
            }
            assert!(round < 500, "something never ends: {:#?}", self.views());
        }
    }

    /// Says everything that can be asked, but for which of several limits a step was seen to wait,
    /// and because of which of several parents it was skipped.
    pub(crate) fn picture(&self) -> String {
        let store = &self.world.store;
        let mut lines = Vec::new();
        for mut view in self.views() {
            view.limit = None;
            // Of several parents any may be named.
            if let Some(Ending::Skipped { reason }) = &mut view.ending {
                reason.clear();
            }
            let id = view.id;
            lines.push(format!("{view:?}"));
            lines.push(format!("  {:?}", store.parents(id).unwrap()));
            lines.push(format!("  {:?}", store.dependents(id).unwrap()));
            lines.push(format!("  {:?}", store.attempts(id).unwrap()));
        }
        for mut limit in store.limits().unwrap() {
            limit.waiting = 0;
            if limit.is_set || !limit.holders.is_empty() {
                lines.push(format!("{limit:?}"));
            }
        }
        // Of one instant they have no order.
        let mut pauses = store.pauses().unwrap();
        pauses.sort_by_key(|paused| (paused.since, paused.what.clone()));
        lines.push(format!("{pauses:?}"));
        for shard in self.world.shards() {
            let mut counts = store.counts(shard).unwrap();
            counts.states.retain(|_, count| *count > 0);
            counts.ready.retain(|_, count| *count > 0);
            lines.push(format!("{counts:?}"));
            lines.push(format!("{:?}", store.tally(shard).unwrap()));
            for number in 0..BANDS {
                let tallies = store.tally_at(shard, band(number)).unwrap();
                lines.push(format!("{tallies:?}"));
                for of in KEYS {
                    let due = self.world.due_at(shard, band(number), &key(of));
                    lines.push(format!("{due:?}"));
                }
            }
            for number in 0..RUNNERS {
                let mut wishes = store.wishes(shard, runner(number)).unwrap();
                wishes.sort();
                lines.push(format!("{wishes:?}"));
            }
            let mut holders: Vec<RunnerId> = store
                .holders(shard)
                .unwrap()
                .into_iter()
                .map(|lease| lease.runner)
                .collect();
            holders.sort();
            lines.push(format!("{holders:?}"));
        }
        lines.join("\n")
    }
}

/// Opens the store that others are held against.
pub(crate) fn reference(_: &Path, shards: u8, placement: Placement) -> Box<dyn Store> {
    Box::new(fairq::store::memory::MemoryStore::new(shards, placement))
}
