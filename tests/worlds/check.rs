//! The clean world: how a world is drained once nothing goes wrong any more, and what must be so then.

use std::collections::BTreeMap;

use fairq::model::{Ending, StepId, StepState};
use fairq::store::{Attempt, Filter, Order, StepView};

use super::book::{Asked, Run};
use super::sim::Sim;

/// After so long no shard rests and no outcome waits because of what went wrong before: the longest
/// rest of a shard whose claims failed, and the longest pause between two tries to write an outcome.
const AFTERMATH: u64 = 16_000_000;

impl Sim<'_> {
    /// Begins the time in which nothing goes wrong.
    pub(crate) fn settle_down(&mut self) {
        if self.fate.below(2) == 0 {
            for paused in self.raw().pauses().unwrap() {
                self.resume(&paused.what);
            }
        }
        self.watch.healed = Some(self.now() + AFTERMATH);
    }

    /// Lets all be done that can be done.
    ///
    /// So long may nothing be granted before it is over: what went wrong before has its aftermath, a
    /// step runs until its time-out and its grace are over, a lease ends, and a delay or a wait before
    /// the next try is made longer by a clock that was set back.
    pub(crate) fn drain(&mut self) {
        const LONGEST: u64 = AFTERMATH + 45_000_000;
        let (mut grants, mut granted, mut next) = (0, self.now(), self.now());
        loop {
            assert!(
                self.step(),
                "runners that live always have something to come"
            );
            let now = self.now();
            let so_far = self.fate.lock().book.grants;
            if so_far > grants {
                (grants, granted) = (so_far, now);
            }
            if now >= next {
                next = now + self.heartbeat() / 2;
                if self.is_drained() {
                    break;
                }
            }
            assert!(
                now - granted < LONGEST,
                "it is not over: {}",
                self.what_is_left()
            );
        }
        self.rests();
    }

    fn is_drained(&self) -> bool {
        let idle = self.live().all(|runner| {
            runner.is_idle()
                && runner.works.completer().open() == 0
                && runner.works.cache().is_empty()
        });
        let delayed = self.shards().any(|shard| {
            let counts = self.raw().counts(shard).unwrap();
            counts
                .states
                .get(&StepState::Delayed)
                .is_some_and(|count| *count > 0)
        });
        let first = self.live().find(|runner| runner.leaving.is_none());
        let drained = first.is_some_and(|runner| runner.works.is_drained().unwrap());
        // The end of what is never started in time is still to come, and frees others.
        idle && !delayed && drained && !self.steps().iter().any(expires)
    }

    /// Where nothing is to be done, runners only look now and then.
    ///
    /// Each heartbeat a refiller asks its shard's version once, and the courier each shard's; a steward
    /// renews and looks for the dead at most once on each shard. What rang last is still worked off:
    /// one full turn of each shard and one round of the courier.
    fn rests(&mut self) {
        const BEATS: u64 = 6;
        self.fate
            .note(format_args!("drained: {}", self.what_is_left()));
        let before = self.fate.lock().calls;
        let until = self.now() + BEATS * self.heartbeat();
        while self.now() < until {
            self.step();
        }
        let calls = self.fate.lock().calls - before;
        let shards = u64::from(self.spec.shards);
        let runners = self.live().count() as u64;
        let most = runners * ((BEATS + 1) * 4 * shards + 2 * (4 * shards + 2 * shards + 1));
        assert!(
            calls <= most,
            "{calls} calls of the store for nothing, where {most} are enough"
        );
    }

    fn steps(&self) -> Vec<StepView> {
        let filter = Filter {
            order: Order::Id,
            ..Filter::default()
        };
        self.raw().list(&filter).unwrap()
    }

    pub(crate) fn what_is_left(&self) -> String {
        let left = self
            .steps()
            .into_iter()
            .filter(|step| !step.state.is_final());
        let left: Vec<String> = left
            .map(|step| {
                let runner = step.runner.map(|runner| runner.to_string());
                let limit = step.limit.map(|limit| limit.to_string());
                format!(
                    "{} {} fence {} {runner:?} {limit:?}",
                    step.id, step.state, step.fence
                )
            })
            .collect();
        left.join("; ")
    }

    /// Fails unless the world is clean.
    pub(crate) fn is_clean(&self) {
        let steps = self.steps();
        let inner = self.fate.lock();
        let book = &inner.book;
        let by_id: BTreeMap<StepId, &StepView> = steps.iter().map(|step| (step.id, step)).collect();
        assert_eq!(by_id.len(), steps.len(), "a step is listed twice");
        for id in book.asked.keys() {
            assert!(by_id.contains_key(id), "{id} is not there any more");
        }
        assert_eq!(book.running().next(), None, "something is still granted");
        for step in &steps {
            let asked = book.asked.get(&step.id);
            let asked = asked.unwrap_or_else(|| panic!("{} was never put in", step.id));
            let attempts = self.raw().attempts(step.id).unwrap();
            let fences: Vec<u32> = attempts.iter().map(|one| one.fence).collect();
            let all: Vec<u32> = (1..=step.fence).collect();
            assert_eq!(fences, all, "{}: each try is recorded once", step.id);
            assert_eq!(step.fence, book.fence(step.id), "{}", step.id);
            for attempt in &attempts {
                let run = &book.runs[&(step.id, attempt.fence)];
                is_true(step.id, attempt, run);
            }
            self.stands_where_it_should(step, asked, &attempts, &by_id);
        }
        drop(inner);
        self.counts_add_up(&steps);
        for runner in self.live() {
            assert!(
                runner.works.cache().is_empty(),
                "{} keeps candidates",
                runner.id
            );
            for shard in self.shards() {
                let taken = runner.works.cache().taken_of(shard);
                assert_eq!(taken, 0, "{} holds hints back for ever", runner.id);
            }
        }
        let findings = self.home.findings(self.clock.as_ref());
        // That the clock was set back is true.
        let jumped = self.fate.lock().book.jumped;
        let findings: Vec<_> = findings
            .iter()
            .filter(|one| !jumped || one.check != "clock")
            .collect();
        assert!(findings.is_empty(), "the doctor finds {findings:#?}");
    }

    fn stands_where_it_should(
        &self,
        step: &StepView,
        asked: &Asked,
        attempts: &[Attempt],
        all: &BTreeMap<StepId, &StepView>,
    ) {
        let id = step.id;
        let last = attempts.last().map(|one| &one.ending);
        let good = Ending::Exited { code: 0 };
        let wins = attempts.iter().filter(|one| one.ending == good).count();
        assert!(wins <= 1 || asked.cancelled, "{id} was done {wins} times");
        match step.state {
            StepState::Succeeded => assert_eq!(last, Some(&good), "{id}"),
            StepState::Failed => {
                let expired = step.ending == Some(Ending::Expired);
                assert!(
                    expired == (step.fence == 0) && (expired || last == step.ending.as_ref()),
                    "{id}: {step:?} {attempts:?}"
                );
                assert_ne!(last, Some(&good), "{id}");
            }
            StepState::Cancelled => {
                let skipped = matches!(step.ending, Some(Ending::Skipped { .. }));
                assert!(skipped || asked.cancelled, "{id} was cancelled by nobody");
                assert!(
                    !skipped || !asked.after.is_empty(),
                    "{id} waited for nothing"
                );
            }
            StepState::Ready => {
                let pauses = self.raw().pauses().unwrap();
                let mut covers = pauses
                    .iter()
                    .map(|one| one.what.covers(step.band, &step.key));
                assert!(covers.any(|covers| covers), "{id} is due and did not run");
            }
            StepState::Blocked => {
                let links = self.raw().parents(id).unwrap();
                let mut open = links.iter().filter(|link| !link.met);
                let waits = open.any(|link| {
                    all.get(&link.parent)
                        .is_some_and(|one| !one.state.is_final())
                });
                assert!(waits, "{id} waits for nothing: {links:?}");
            }
            StepState::Limited => self.is_rightly_limited(step),
            StepState::Held => {
                let lost = last == Some(&Ending::Lost);
                assert!(asked.held || lost, "{id} was held by nobody");
            }
            StepState::Running | StepState::Delayed => panic!("{id} is {}", step.state),
        }
    }

    /// A step that waits for places could not have them.
    fn is_rightly_limited(&self, step: &StepView) {
        let paused = self.raw().pauses().unwrap();
        if paused
            .iter()
            .any(|one| one.what.covers(step.band, &step.key))
        {
            return;
        }
        let limits = self.raw().limits().unwrap();
        let short = step.policy.limits.iter().any(|(name, count)| {
            let limit = limits.iter().find(|limit| limit.name == *name);
            limit.map_or(*count > 1, |limit| limit.taken() + count > limit.places)
        });
        assert!(short, "{} could have its places: {limits:?}", step.id);
    }

    /// Each shard's counters say what its steps say.
    fn counts_add_up(&self, steps: &[StepView]) {
        let pauses = self.raw().pauses().unwrap();
        for shard in self.shards() {
            let counts = self.raw().counts(shard).unwrap();
            let mine = || steps.iter().filter(|step| step.id.shard == shard);
            for state in StepState::ALL {
                let there = mine().filter(|step| step.state == state).count();
                let told = counts.states.get(&state).copied().unwrap_or(0);
                assert_eq!(told, there as u64, "{state} on shard {shard}");
            }
            let due = mine().filter(|step| {
                let mut pauses = pauses.iter();
                let paused = pauses.any(|one| one.what.covers(step.band, &step.key));
                step.state == StepState::Ready && !paused
            });
            let band = self.raw().tally(shard).unwrap().band();
            assert_eq!(band, due.map(|step| step.band).min(), "shard {shard}");
        }
    }
}

fn expires(step: &StepView) -> bool {
    step.fence == 0 && !step.state.is_final() && step.policy.expire.is_some()
}

/// What is recorded of a try is what became of it. The work of a runner that did not die is never done
/// again because its outcome could not be written.
fn is_true(id: StepId, recorded: &Attempt, run: &Run) {
    let fence = recorded.fence;
    assert_eq!(recorded.runner, run.runner, "{id}: fence {fence}");
    assert!(
        run.taken != run.recorded,
        "{id}: fence {fence} ended in one way: {run:?}"
    );
    if run.taken {
        assert_eq!(recorded.ending, Ending::Lost, "{id}: fence {fence}");
    } else if run.ended.is_none() {
        // Nobody heard of the grant, and so nothing was done.
        let never_ran = (&Ending::Interrupted, None);
        assert_eq!(
            (&recorded.ending, recorded.started),
            never_ran,
            "{id}: fence {fence}"
        );
    } else {
        assert_eq!(
            run.ended.as_ref(),
            Some(&recorded.ending),
            "{id}: fence {fence}"
        );
    }
}
