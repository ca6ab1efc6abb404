//! The book that is kept while a world goes on: who was granted what, who is gone, what people asked
//! for; and what must hold at each of these moments.

use std::collections::{BTreeMap, BTreeSet};

use fairq::model::{
    Band, Claim, Ending, FairnessKey, LimitName, LostRun, Need, Policy, RunnerId, Settled,
    Settlement, ShardId, StepId, StepState, Timestamp, Verdict,
};
use fairq::store::{Lease, LimitView, Link, Pause};

/// One claim that was granted, and what is known of it.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) runner: RunnerId,
    pub(crate) since: Timestamp,
    /// The end of its lease.
    until: Timestamp,
    /// How its work ended.
    pub(crate) ended: Option<Ending>,
    /// It was recorded by its runner.
    pub(crate) recorded: bool,
    /// It was taken back by another.
    pub(crate) taken: bool,
    pub(crate) attempt: u32,
    /// As it was when the claim was granted.
    pub(crate) policy: Policy,
}

/// What is known of a runner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) alive: bool,
    /// Others can ask whether it lives.
    pub(crate) has_lock: bool,
    /// What it has left was tidied up.
    pub(crate) buried: bool,
    /// It left in good order, with all recorded.
    pub(crate) left: bool,
}

/// What was asked for in one step.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) after: Vec<(StepId, Need)>,
    /// It was tried again by a person.
    pub(crate) retried: bool,
    /// Somebody asked for its end.
    pub(crate) cancelled: bool,
    pub(crate) held: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) asked: BTreeMap<StepId, Asked>,
    pub(crate) runs: BTreeMap<(StepId, u32), Run>,
    pub(crate) runners: BTreeMap<RunnerId, Known>,
    /// Which fence of a step runs, as far as the store says.
    live: BTreeMap<StepId, u32>,
    fences: BTreeMap<StepId, u32>,
    /// How many tries of a step count; `None` where a call that was to forget them failed.
    tries: BTreeMap<StepId, Option<u32>>,
    /// What works at a step, on the machine.
    working: BTreeMap<StepId, u32>,
    /// What is not to start, and why.
    forbidden: BTreeMap<StepId, &'static str>,
    pauses: BTreeSet<Pause>,
    /// The most places that each limit has ever had.
    most: BTreeMap<LimitName, u32>,
    places: BTreeMap<LimitName, Vec<(Timestamp, u32)>>,
    pub(crate) jumped: bool,
    pub(crate) grants: u64,
}

impl Book {
    pub(crate) fn stored(&mut self, id: StepId, asked: Asked) {
        self.asked.insert(id, asked);
    }

    /// Takes note of a claim that the store has granted, whether or not its runner hears of it.
    pub(crate) fn granted(&mut self, claim: &Claim, lease: Lease, parents: &[Link]) {
        let (id, now) = (claim.id, claim.claimed);
        self.grants += 1;
        let fence = self.fences.entry(id).or_default();
        *fence += 1;
        assert_eq!(
            claim.fence, *fence,
            "{id}: fences rise by one with each claim"
        );
        if let Some(tries) = self.tries.entry(id).or_insert(Some(0)) {
            *tries += 1;
            assert_eq!(claim.attempt, *tries, "{id}: the number of its try");
        }
        let before = self.live.insert(id, claim.fence);
        assert_eq!(before, None, "{id} was granted while it ran");
        assert_eq!(self.forbidden.get(&id), None, "{id} was granted");
        for pause in &self.pauses {
            let covered = pause.covers(claim.band, &claim.key);
            assert!(!covered, "{id} was granted while {pause:?} lasts");
        }
        if claim.fence == 1 {
            let late = claim.policy.expire.is_some_and(|expire| expire <= now);
            assert!(!late, "{id} was granted after it had expired");
        }
        for link in parents {
            assert!(link.met, "{id} was granted before {link:?} was met");
        }
        self.needs_are_met(id, parents);
        let known = self.runners.get(&lease.runner);
        assert!(
            known.is_some_and(|known| known.alive),
            "{id} was granted to nobody"
        );
        self.runs.insert(
            (id, claim.fence),
            Run {
                runner: lease.runner,
                since: claim.since,
                until: lease.until,
                ended: None,
                recorded: false,
                taken: false,
                attempt: claim.attempt,
                policy: claim.policy.clone(),
            },
        );
        self.limits_hold(id, claim.fence, now);
    }

    /// What a step waited for did happen, by the book and not by the store's own edges.
    fn needs_are_met(&self, id: StepId, parents: &[Link]) {
        let Some(asked) = self.asked.get(&id) else {
            return;
        };
        for (parent, need) in &asked.after {
            let link = parents
                .iter()
                .find(|link| link.parent == *parent && link.need == *need);
            assert!(
                link.is_some(),
                "{id} has forgotten that it waits for {parent}"
            );
            let state = link.and_then(|link| link.state);
            let was_retried = self.asked.get(parent).is_some_and(|parent| parent.retried);
            let met = was_retried || state.is_some_and(|state| need.is_met_by(state));
            assert!(
                met,
                "{id} was granted though {parent} is {state:?}, not {need:?}"
            );
        }
    }

    /// No more places are taken by what runs than a limit had at any time since they were given.
    fn limits_hold(&self, id: StepId, fence: u32, now: Timestamp) {
        let Some(run) = self.runs.get(&(id, fence)) else {
            return;
        };
        for name in run.policy.limits.keys() {
            let holders = self.live.iter().filter_map(|(id, fence)| {
                let run = self.runs.get(&(*id, *fence))?;
                Some((run.since, *run.policy.limits.get(name)?))
            });
            let holders: Vec<(Timestamp, u32)> = holders.collect();
            let taken: u32 = holders.iter().map(|(_, places)| places).sum();
            let since = holders.iter().map(|(since, _)| *since).min().unwrap_or(now);
            let most = self.most_since(name, since);
            assert!(
                taken <= most,
                "{id}: {taken} places of {name} are taken, of {most}"
            );
        }
    }

    fn most_since(&self, name: &LimitName, since: Timestamp) -> u32 {
        if self.jumped {
            return self
                .most
                .get(name)
                .copied()
                .unwrap_or(0)
                .max(LimitView::UNSET);
        }
        let history = self.places.get(name).map_or(&[][..], Vec::as_slice);
        let before = history.iter().rev().find(|(at, _)| *at < since);
        let later = history.iter().filter(|(at, _)| *at >= since);
        let first = before.map_or(LimitView::UNSET, |(_, places)| *places);
        later.map(|(_, places)| *places).fold(first, u32::max)
    }

    pub(crate) fn limit_set(&mut self, name: &LimitName, places: Option<u32>, now: Timestamp) {
        let places = places.unwrap_or(LimitView::UNSET);
        let most = self.most.entry(name.clone()).or_insert(places);
        *most = places.max(*most);
        self.places
            .entry(name.clone())
            .or_default()
            .push((now, places));
    }

    pub(crate) fn renewed(&mut self, shard: ShardId, lease: Lease) {
        for (id, fence) in &self.live {
            let run = self.runs.get_mut(&(*id, *fence));
            if let Some(run) = run.filter(|run| id.shard == shard && run.runner == lease.runner) {
                run.until = lease.until.max(run.until);
            }
        }
    }

    /// Takes note that a step was taken back. Returns whether its runner lives.
    pub(crate) fn taken_back(&mut self, lost: &LostRun, now: Timestamp) -> bool {
        let id = lost.id;
        let fence = self.live.remove(&id);
        let fence = fence.expect("what is taken back runs");
        let run = self.runs.get_mut(&(id, fence)).expect("it was granted");
        assert_eq!(
            run.runner, lost.runner,
            "{id} was taken from another than it says"
        );
        run.taken = true;
        let known = self.runners[&lost.runner];
        if known.alive {
            assert!(
                !known.has_lock,
                "{id} was taken from {}, which lives",
                lost.runner
            );
            assert!(
                run.until < now,
                "{id} was taken from {} before its lease ended",
                lost.runner
            );
        }
        self.came_back(id, lost.state, lost.state == StepState::Ready);
        known.alive
    }

    /// Takes note of what an outcome came to. Returns whether it was refused.
    pub(crate) fn settled(&mut self, settlement: &Settlement, settled: &Settled) -> bool {
        let finished = &settlement.finished;
        let (id, fence) = (finished.id, finished.fence);
        let is_live = self.live.get(&id) == Some(&fence);
        let run = self.runs.get_mut(&(id, fence)).expect("it was granted");
        match settled {
            Settled::Recorded(recorded) => {
                assert!(
                    is_live && !run.taken,
                    "{id}: an outcome of fence {fence} was recorded late"
                );
                assert!(!run.recorded, "{id}: fence {fence} was recorded twice");
                run.recorded = true;
                let run = run.clone();
                self.live.remove(&id);
                let cancelled = self.asked.get(&id).is_none_or(|asked| asked.cancelled);
                is_just(&run, settlement, recorded.state, cancelled);
                let is_back = settlement.verdict == Verdict::GiveBack;
                self.came_back(id, recorded.state, is_back);
                false
            }
            Settled::Fenced => {
                assert!(
                    run.taken || run.recorded,
                    "{id}: fence {fence} was refused, and it was right"
                );
                run.taken
            }
        }
    }

    /// Takes note of where a try that is over has left its step.
    fn came_back(&mut self, id: StepId, state: StepState, is_given_back: bool) {
        // A step that is over has its count from the start if it is ever tried again.
        if is_given_back && let Some(Some(tries)) = self.tries.get_mut(&id) {
            *tries -= 1;
        }
        self.stands(id, state);
    }

    /// A worker begins to work at a step.
    pub(crate) fn begins(&mut self, id: StepId, fence: u32) {
        // It has slept since it asked, and does not know yet.
        if self.runs.get(&(id, fence)).is_some_and(|run| run.taken) {
            return;
        }
        if let Some(other) = self.working.insert(id, fence) {
            let other = self.runs.get(&(id, other));
            let is_taken = other.is_some_and(|run| run.taken);
            assert!(is_taken, "{id} is worked at twice at once: {other:?}");
        }
    }

    pub(crate) fn ends(&mut self, id: StepId, fence: u32, ending: &Ending) {
        if self.working.get(&id) == Some(&fence) {
            self.working.remove(&id);
        }
        if let Some(run) = self.runs.get_mut(&(id, fence)) {
            assert_eq!(run.ended, None, "{id}: fence {fence} was worked at twice");
            run.ended = Some(ending.clone());
        }
    }

    /// A runner is gone, and with it all that it worked at.
    pub(crate) fn gone(&mut self, runner: RunnerId, left: bool) {
        if let Some(known) = self.runners.get_mut(&runner) {
            known.alive = false;
            known.left = left;
        }
        let runs = &self.runs;
        self.working.retain(|id, fence| {
            runs.get(&(*id, *fence))
                .is_none_or(|run| run.runner != runner)
        });
    }

    /// Takes note of where a person's word has put a step.
    pub(crate) fn stands(&mut self, id: StepId, state: StepState) {
        match state {
            StepState::Cancelled => self.forbidden.insert(id, "though it was cancelled"),
            StepState::Failed => self.forbidden.insert(id, "though it had failed"),
            StepState::Succeeded => self.forbidden.insert(id, "though it had succeeded"),
            StepState::Held => self.forbidden.insert(id, "though it was held"),
            StepState::Running
            | StepState::Ready
            | StepState::Delayed
            | StepState::Blocked
            | StepState::Limited => self.forbidden.remove(&id),
        };
    }

    /// Takes note that a step may start again, before it is made so.
    pub(crate) fn let_loose(&mut self, id: StepId) {
        self.forbidden.remove(&id);
    }

    /// Takes note that a step was tried again by a person, its tries counted from the start; or may
    /// have been.
    pub(crate) fn retried(&mut self, id: StepId, is_sure: bool) {
        self.tries.insert(id, is_sure.then_some(0));
        self.change(id, |asked| asked.retried = true);
    }

    pub(crate) fn change(&mut self, id: StepId, how: impl FnOnce(&mut Asked)) {
        if let Some(asked) = self.asked.get_mut(&id) {
            how(asked);
        }
    }

    pub(crate) fn paused(&mut self, pause: Pause) {
        self.pauses.insert(pause);
    }

    pub(crate) fn resumed(&mut self, pause: &Pause) {
        self.pauses.remove(pause);
    }

    pub(crate) fn is_paused(&self, band: Band, key: &FairnessKey) -> bool {
        self.pauses.iter().any(|pause| pause.covers(band, key))
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = (StepId, u32)> {
        self.live.iter().map(|(id, fence)| (*id, *fence))
    }

    pub(crate) fn fence(&self, id: StepId) -> u32 {
        self.fences.get(&id).copied().unwrap_or(0)
    }
}

/// The verdict on a try is the one that the step's policy asks for, and it is carried out.
fn is_just(run: &Run, settlement: &Settlement, state: StepState, cancelled: bool) {
    let Settlement { finished, verdict } = settlement;
    let id = finished.id;
    assert_eq!(finished.attempt, run.attempt, "{id}");
    let policy = &run.policy;
    let code = u8::try_from(finished.ending.shell_code()).expect("drawn codes are small");
    let is_wanted = if policy.retry_on.is_empty() {
        !matches!(finished.ending, Ending::Unstarted { .. })
    } else {
        policy.retry_on.contains(&code)
    };
    let again = is_wanted && !policy.no_retry_on.contains(&code) && run.attempt <= policy.retries;
    let ending = &finished.ending;
    let expected = if *ending == (Ending::Exited { code: 0 }) {
        StepState::Succeeded
    } else if *ending == Ending::Interrupted {
        StepState::Ready
    } else if again && *ending != Ending::Cancelled {
        StepState::Delayed
    } else {
        StepState::Failed
    };
    let told = match verdict {
        Verdict::Succeeded => StepState::Succeeded,
        Verdict::Failed => StepState::Failed,
        Verdict::Retry { .. } => StepState::Delayed,
        Verdict::GiveBack => StepState::Ready,
    };
    assert_eq!(told, expected, "{id}: the verdict on {}", finished.ending);
    let is_now = matches!(verdict, Verdict::Retry { at } if *at <= finished.ended)
        && matches!(state, StepState::Ready | StepState::Limited);
    let wished = cancelled && state == StepState::Cancelled;
    assert!(
        wished || is_now || state == told,
        "{id} is {state} after {verdict:?}"
    );
}
