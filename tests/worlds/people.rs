//! What people do meanwhile: they put steps in and change their minds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairq::model::{
    Backoff, Command, Dependency, Due, Environment, Need, NewStep, OnLost, Parent, Policy, Scope,
    ShardId, Span, StepId, Timestamp, Unique,
};
use fairq::store::{Action, Edit, Intake as _, Pause, Put, Release as _, Steer as _, Steered};

use super::book::Asked;
use super::chance::Fault;
use super::sim::{Next, Sim};
use super::spec::index;

impl Sim<'_> {
    pub(crate) fn people(&mut self) {
        if self.fate.lock().calm {
            return;
        }
        self.within(2 * self.spec.coming / self.spec.steps, Next::People);
        let steers = self.fate.happens(self.spec.steering);
        let touched = if steers { self.steer() } else { self.put() };
        for shard in touched {
            self.ring(shard);
        }
    }

    /// Tells the runners that a shard was written to; not all hear it.
    fn ring(&mut self, shard: ShardId) {
        for of in 0..self.runners.len() {
            if self.runners[of].is_some() && !self.fate.strikes(Fault::LostBell) {
                self.within(2_000, Next::Ring(of, shard));
            }
        }
    }

    fn one_in(&self, count: u64) -> bool {
        self.fate.below(count) == 0
    }

    fn in_millis(&self, most: u64) -> Timestamp {
        self.fate.now() + Span::from_millis(self.fate.below(most))
    }

    fn put(&mut self) -> BTreeSet<ShardId> {
        if self.put_in >= self.spec.steps {
            return BTreeSet::new();
        }
        let count = 1 + self.fate.below(4);
        let steps: Vec<NewStep> = (0..count).map(|place| self.new_step(place)).collect();
        let now = self.fate.now();
        let visitor = self.visitor();
        if !visitor.breaks && !self.fate.lock().down.is_empty() {
            return BTreeSet::new();
        }
        let Ok(puts) = visitor.put(&steps, now) else {
            return BTreeSet::new();
        };
        self.fate.lock().writes += 1;
        self.put_in += count;
        let id_of = |parent: Parent| match parent {
            Parent::Step(id) => id,
            Parent::InBatch(place) => puts[place].id(),
        };
        for (put, step) in puts.iter().zip(&steps) {
            let Put::New(id) = put else { continue };
            let after = step.after.iter().map(|one| (id_of(one.parent), one.need));
            let asked = Asked {
                after: after.collect(),
                retried: false,
                cancelled: false,
                held: step.due == Due::Held,
            };
            self.fate.note(format_args!(
                "put {id} band {} key {} {:?} after {:?} {:?}",
                step.band, step.key, step.due, asked.after, step.policy.limits
            ));
            self.fate.lock().book.stored(*id, asked);
        }
        puts.iter().map(|put| put.id().shard).collect()
    }

    fn new_step(&self, place: u64) -> NewStep {
        let (key, weight) =
            self.spec.keys[index(self.fate.below(self.spec.keys.len() as u64))].clone();
        let due = match self.fate.below(12) {
            0 => Due::Held,
            1 | 2 => Due::At(self.in_millis(3_000)),
            _ => Due::Now,
        };
        NewStep {
            command: Command::Shell("true".into()),
            cwd: "/".into(),
            env: Arc::new(Environment::default()),
            band: self.spec.bands[index(self.fate.below(self.spec.bands.len() as u64))],
            key,
            weight,
            name: None,
            tags: Vec::new(),
            flow: None,
            due,
            after: self.parents(place),
            unique: self.one_in(10).then(|| Unique {
                key: format!("u{}", self.fate.below(2)),
                scope: [Scope::Queued, Scope::Active, Scope::Kept][index(self.fate.below(3))],
            }),
            policy: self.policy(),
        }
    }

    fn parents(&self, place: u64) -> Vec<Dependency> {
        let mut after = BTreeSet::new();
        let known: Vec<StepId> = self.fate.lock().book.asked.keys().copied().collect();
        while after.len() < 3 && self.one_in(3) {
            let need =
                [Need::Success, Need::Success, Need::End, Need::Failure][index(self.fate.below(4))];
            let parent = if place > 0 && self.one_in(2) {
                Parent::InBatch(index(self.fate.below(place)))
            } else if known.is_empty() {
                break;
            } else {
                Parent::Step(known[index(self.fate.below(known.len() as u64))])
            };
            after.insert(Dependency { parent, need });
        }
        after.into_iter().collect()
    }

    fn policy(&self) -> Policy {
        let mut limits = BTreeMap::new();
        for name in &self.spec.limits {
            if self.one_in(3) {
                limits.insert(
                    name.clone(),
                    1 + u32::try_from(self.fate.below(2)).expect("small"),
                );
            }
        }
        let codes = |many: bool| if many { vec![75, 137] } else { Vec::new() };
        Policy {
            on_lost: [OnLost::Retry, OnLost::Retry, OnLost::Fail, OnLost::Hold]
                [index(self.fate.below(4))],
            grace: Span::from_millis(self.fate.below(500)),
            retries: u32::try_from(self.fate.below(4)).expect("small"),
            backoff: Backoff {
                base: Span::from_millis(self.fate.below(1_000)),
                factor: 2.0,
                cap: Span::from_millis(3_000),
            },
            retry_on: codes(self.one_in(5)),
            no_retry_on: codes(self.one_in(8)),
            timeout: self
                .one_in(4)
                .then(|| Span::from_millis(1 + self.fate.below(1_500))),
            expire: self.one_in(8).then(|| self.in_millis(4_000)),
            limits,
            ..Policy::default()
        }
    }

    fn steer(&mut self) -> BTreeSet<ShardId> {
        let visitor = self.visitor();
        let now = self.fate.now();
        if !self.fate.lock().down.is_empty() && (!visitor.breaks || self.one_in(2)) {
            return BTreeSet::new();
        }
        let all: BTreeSet<ShardId> = self.shards().collect();
        match self.fate.below(9) {
            0 => {
                let what = self.pause();
                self.fate.note(format_args!("pause {what:?}"));
                let done = visitor.pause(&what, now);
                self.fate.lock().writes += 1;
                if done.is_ok() {
                    self.fate.lock().book.paused(what);
                }
                all
            }
            1 | 2 => {
                let pauses = self.raw().pauses().unwrap();
                for paused in pauses {
                    self.resume(&paused.what);
                }
                all
            }
            3 if !self.spec.limits.is_empty() => {
                let name = &self.spec.limits[index(self.fate.below(self.spec.limits.len() as u64))];
                let places = u32::try_from(self.fate.below(4)).expect("small");
                self.fate.note(format_args!("limit {name} {places}"));
                // Before it is set: a fault that comes later must not make it look too high.
                self.fate.lock().book.limit_set(name, Some(places), now);
                drop(visitor.set_limit(name, Some(places)));
                self.fate.lock().writes += 1;
                all
            }
            _ => self.steer_steps(),
        }
    }

    pub(crate) fn resume(&self, what: &Pause) {
        self.fate.note(format_args!("resume {what:?}"));
        // First: a half that is done lets steps start.
        self.fate.lock().book.resumed(what);
        drop(self.visitor().resume(what));
        self.fate.lock().writes += 1;
    }

    fn pause(&self) -> Pause {
        let band = self.spec.bands[index(self.fate.below(self.spec.bands.len() as u64))];
        let (key, _) = &self.spec.keys[index(self.fate.below(self.spec.keys.len() as u64))];
        Pause {
            band: self.one_in(2).then_some(band),
            key: self.one_in(2).then(|| key.clone()),
        }
    }

    fn steer_steps(&self) -> BTreeSet<ShardId> {
        let known: Vec<StepId> = self.fate.lock().book.asked.keys().copied().collect();
        if known.is_empty() {
            return BTreeSet::new();
        }
        let count = 1 + self.fate.below(3);
        let ids: BTreeSet<StepId> = (0..count)
            .map(|_| known[index(self.fate.below(known.len() as u64))])
            .collect();
        let ids: Vec<StepId> = ids.into_iter().collect();
        let action = match self.fate.below(6) {
            0 => Action::Cancel,
            1 => Action::Hold,
            2 => Action::Release,
            3 | 4 => Action::Retry,
            _ => self.edit().into(),
        };
        self.act(&ids, &action)
    }

    /// Does something to steps, as a person does by a command, and tells others what followed, unless
    /// the command dies before that.
    pub(crate) fn act(&self, ids: &[StepId], action: &Action) -> BTreeSet<ShardId> {
        let visitor = self.visitor();
        let now = self.fate.now();
        let word = match action {
            Action::Cancel => "cancel",
            Action::Hold => "hold",
            Action::Release => "release",
            Action::Retry => "retry",
            Action::Edit(_) => "edit",
        };
        if matches!(action, Action::Retry | Action::Release) {
            // Before it is done: what is done in part may start.
            for id in ids {
                self.fate.lock().book.let_loose(*id);
            }
        }
        let done = visitor.steer(ids, action, now);
        self.fate.lock().writes += 1;
        self.fate.note(format_args!("{word} {ids:?}: {done:?}"));
        for (id, steered) in ids.iter().zip(done.iter().flatten()) {
            let mut inner = self.fate.lock();
            let book = &mut inner.book;
            match (action, steered) {
                (Action::Cancel, Steered::Done { to, .. }) => {
                    book.stands(*id, *to);
                    book.change(*id, |asked| asked.cancelled = true);
                }
                (Action::Cancel, Steered::Asked { .. }) => {
                    book.change(*id, |asked| asked.cancelled = true);
                }
                (Action::Hold, Steered::Done { to, .. }) => {
                    book.stands(*id, *to);
                    book.change(*id, |asked| asked.held = true);
                }
                (Action::Retry, Steered::Done { .. }) => book.retried(*id, true),
                (Action::Retry | Action::Release, Steered::Refused { state }) => {
                    book.stands(*id, *state);
                }
                _ => {}
            }
        }
        if done.is_err() && matches!(action, Action::Retry) {
            for id in ids {
                self.fate.lock().book.retried(*id, false);
            }
        }
        // What failed on one shard may have been done on another before.
        if done.is_err() && matches!(action, Action::Cancel | Action::Hold) {
            let is_hold = matches!(action, Action::Hold);
            for id in ids {
                self.fate.lock().book.change(*id, |asked| {
                    asked.held |= is_hold;
                    asked.cancelled |= !is_hold;
                });
            }
        }
        let touched: BTreeSet<ShardId> = ids.iter().map(|id| id.shard).collect();
        if !self.one_in(4) {
            for shard in &touched {
                drop(visitor.deliver(*shard, now));
            }
        }
        touched
    }

    fn edit(&self) -> Edit {
        let band = self.spec.bands[index(self.fate.below(self.spec.bands.len() as u64))];
        let (key, weight) =
            self.spec.keys[index(self.fate.below(self.spec.keys.len() as u64))].clone();
        Edit {
            band: self.one_in(2).then_some(band),
            key: self.one_in(3).then_some(key),
            weight: self.one_in(3).then_some(weight),
            due: self
                .one_in(3)
                .then(|| self.one_in(2).then(|| self.in_millis(2_000))),
            policy: self.one_in(3).then(|| self.policy()),
            ..Edit::default()
        }
    }
}
