//! Who runs what now, how to reach it, and when it is to be ended.
//!
//! A step may be asked to end for three reasons: its time is over, somebody wished it, or the runner
//! leaves. The first that comes counts. From then on its grace runs, and when that is over it is
//! killed. What is written down here is what was done: signals are sent under the lock, which costs a
//! system call and waits for nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;

use super::executor::{Force, Process};
use crate::event::Why;
use crate::model::{Band, Claim, FairnessKey, LocalId, Policy, ShardId, StepId, Timestamp};

/// How often what a step has written is cut off where only a part of it is kept.
const TRIM: Duration = Duration::from_millis(250);

/// One running step.
struct Entry {
    seen: RunningStep,
    rules: Rules,
    process: Option<Arc<dyn Process>>,
    end: Option<End>,
    /// When its time or its grace is over, if it has such an alarm.
    over: Option<Duration>,
    /// When what it has written is looked at, if it has such an alarm.
    trim: Option<Duration>,
}

/// What of a step's policy counts while it runs.
#[derive(Clone, Copy)]
struct Rules {
    timeout: Option<Duration>,
    grace: Duration,
    trims: bool,
}

impl Rules {
    fn of(policy: &Policy) -> Self {
        Self {
            timeout: policy.timeout.map(Duration::from),
            grace: policy.grace.into(),
            trims: policy.max_output.is_some(),
        }
    }
}

/// That a step was asked to end, or is not to be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// Why.
    pub(super) why: Why,
    /// Whether it had to be killed.
    pub(super) killed: bool,
}

/// One running step, as people see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunningStep {
    /// Which worker runs it.
    pub worker: u32,
    /// Which step.
    pub id: StepId,
    /// The claim under which it runs.
    pub fence: u32,
    /// Its band.
    pub band: Band,
    /// Its key.
    pub key: FairnessKey,
    /// When it was claimed.
    pub claimed: Timestamp,
    /// Its process, once there is one.
    pub pid: Option<u32>,
}

/// Something that was done to a running step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// It was asked to end.
    Asked(Why),
    /// It was killed.
    Killed,
}

/// A deed, and to which step it was done.
pub(super) type Done = (StepId, u32, Deed);

/// On the monotonic clock, earliest first: at most one of each kind for each worker.
type Alarms = BTreeSet<(Duration, u32, Alarm)>;

/// What a worker's step waits for on the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    /// Its time, or its grace.
    Over,
    /// The next look at what it has written.
    Trim,
}

/// The steps that a crew runs.
#[derive(Default)]
pub(super) struct Roster {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<u32, Entry>,
    alarms: Alarms,
    /// The steps that workers have taken hints of and not yet heard whether they are theirs.
    asking: Vec<StepId>,
    /// Once set, whatever starts is ended too: it may have been on its way when all were told.
    leaving: Option<Force>,
    /// The wishes that were last seen on each shard: that a step was claimed is known to the store
    /// before it is known here.
    wished: BTreeMap<ShardId, Vec<(LocalId, u32)>>,
}

impl Roster {
    /// Takes note that a worker is about to claim a step.
    pub(super) fn asks(&self, id: StepId) {
        self.lock().asking.push(id);
    }

    /// Takes note that a worker has heard whether a step is its, and has entered it if so.
    pub(super) fn heard(&self, id: StepId) {
        let asking = &mut self.lock().asking;
        if let Some(at) = asking.iter().position(|asked| *asked == id) {
            asking.swap_remove(at);
        }
    }

    /// Returns whether a step runs under this claim, or somebody is about to hear whether it shall.
    pub(super) fn knows(&self, id: StepId, fence: u32) -> bool {
        let state = self.lock();
        let mut entries = state.entries.values();
        state.asking.contains(&id)
            || entries.any(|entry| entry.seen.id == id && entry.seen.fence == fence)
    }

    /// Enters a claimed step before its process is started.
    pub(super) fn enter(&self, worker: u32, claim: &Claim) {
        let seen = RunningStep {
            worker,
            id: claim.id,
            fence: claim.fence,
            band: claim.band,
            key: claim.key.clone(),
            claimed: claim.claimed,
            pid: None,
        };
        let rules = Rules::of(&claim.policy);
        let mut state = self.lock();
        let end = state.end_of(claim.id, claim.fence);
        let entry = Entry {
            seen,
            rules,
            process: None,
            end,
            over: None,
            trim: None,
        };
        state.entries.insert(worker, entry);
    }

    /// Returns why a worker's step is to be ended, if it is.
    pub(super) fn end_of(&self, worker: u32) -> Option<End> {
        self.lock().entries.get(&worker)?.end
    }

    /// Adds the process of a worker's step, and asks it to end if that came meanwhile. Returns what
    /// was done, and whether the [next alarm](Self::next_alarm) is another one now.
    pub(super) fn started(
        &self,
        worker: u32,
        process: &Arc<dyn Process>,
        now: Duration,
    ) -> (Option<Done>, bool) {
        let mut state = self.lock();
        let State {
            entries,
            alarms,
            leaving,
            ..
        } = &mut *state;
        let Some(entry) = entries.get_mut(&worker) else {
            return (None, false);
        };
        entry.seen.pid = Some(process.pid());
        entry.process = Some(Arc::clone(process));
        let before = alarms.first().copied();
        if entry.rules.trims {
            entry.set(alarms, Alarm::Trim, Some(now + TRIM));
        }
        let mut done = None;
        if let Some(end) = entry.end.take() {
            done = entry.ask(end.why, *leaving, now, alarms);
        } else if let Some(timeout) = entry.rules.timeout {
            entry.set(alarms, Alarm::Over, Some(now.saturating_add(timeout)));
        }
        (done, before != alarms.first().copied())
    }

    /// Takes note that a worker's step is over, and ends no more; returns how it was ended, if it was.
    pub(super) fn over(&self, worker: u32) -> Option<End> {
        let mut state = self.lock();
        let State {
            entries, alarms, ..
        } = &mut *state;
        let entry = entries.get_mut(&worker)?;
        entry.set(alarms, Alarm::Over, None);
        entry.set(alarms, Alarm::Trim, None);
        entry.process = None;
        entry.end
    }

    /// Takes a worker's step off, which is [over](Self::over).
    pub(super) fn leave(&self, worker: u32) {
        self.lock().entries.remove(&worker);
    }

    /// Takes note of all claims of a shard whose end somebody wishes, and asks those to end that run.
    pub(super) fn wish(
        &self,
        shard: ShardId,
        wishes: Vec<(LocalId, u32)>,
        now: Duration,
    ) -> Vec<Done> {
        let mut state = self.lock();
        let State {
            entries,
            alarms,
            wished,
            ..
        } = &mut *state;
        let is_wished = |seen: &RunningStep| {
            seen.id.shard == shard && wishes.contains(&(seen.id.local, seen.fence))
        };
        let mut done = Vec::new();
        for entry in entries.values_mut().filter(|entry| is_wished(&entry.seen)) {
            done.extend(entry.ask(Why::Wished, None, now, alarms));
        }
        if wishes.is_empty() {
            wished.remove(&shard);
        } else {
            wished.insert(shard, wishes);
        }
        done
    }

    /// Asks all running steps to end, or kills them, and those that start from now on. Returns how
    /// many were signalled.
    pub(super) fn end_all(&self, force: Force, now: Duration) -> Vec<Done> {
        let mut state = self.lock();
        state.leaving = Some(force);
        let State {
            entries, alarms, ..
        } = &mut *state;
        entries
            .values_mut()
            .filter_map(|entry| entry.ask(Why::Leaving, Some(force), now, alarms))
            .collect()
    }

    /// Does what is due by `now`: asks steps to end whose time is over, kills those whose grace is,
    /// cuts off what others have written.
    pub(super) fn ring(&self, now: Duration) -> Vec<Done> {
        let mut state = self.lock();
        let State {
            entries, alarms, ..
        } = &mut *state;
        let mut done = Vec::new();
        while let Some((at, worker, alarm)) = alarms.first().copied().filter(|(at, ..)| *at <= now)
        {
            let Some(entry) = entries.get_mut(&worker) else {
                alarms.remove(&(at, worker, alarm));
                continue;
            };
            entry.set(alarms, alarm, None);
            match alarm {
                Alarm::Trim => {
                    entry.process.iter().for_each(|process| process.trim());
                    entry.set(alarms, Alarm::Trim, Some(now + TRIM));
                }
                Alarm::Over => done.extend(match entry.end {
                    Some(end) => entry.kill(end.why),
                    None => entry.ask(Why::TimeOver, None, now, alarms),
                }),
            }
        }
        done
    }

    /// Returns when [`Self::ring`] has something to do, on the monotonic clock.
    pub(super) fn next_alarm(&self) -> Option<Duration> {
        self.lock().alarms.first().map(|(at, ..)| *at)
    }

    /// Sends a signal to the groups of these claims. Returns the steps that got it.
    pub(super) fn signal(&self, claims: &[(StepId, u32)], number: i32) -> Vec<StepId> {
        let state = self.lock();
        state
            .entries
            .values()
            .filter(|entry| claims.contains(&(entry.seen.id, entry.seen.fence)))
            .filter(|entry| {
                let process = entry.process.as_ref();
                process.is_some_and(|process| process.signal(number))
            })
            .map(|entry| entry.seen.id)
            .collect()
    }

    /// Returns how many steps run.
    pub(super) fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Returns the running steps by worker.
    pub(super) fn view(&self) -> Vec<RunningStep> {
        self.lock()
            .entries
            .values()
            .map(|entry| entry.seen.clone())
            .collect()
    }

    /// Returns the shards of the running steps.
    pub(super) fn shards(&self) -> BTreeSet<ShardId> {
        self.lock()
            .entries
            .values()
            .map(|entry| entry.seen.id.shard)
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns why a step that has just been claimed is not to be started, if it is not.
    fn end_of(&self, id: StepId, fence: u32) -> Option<End> {
        let is_wished = || {
            let wished = self.wished.get(&id.shard);
            wished.is_some_and(|wishes| wishes.contains(&(id.local, fence)))
        };
        let why = if self.leaving.is_some() {
            Some(Why::Leaving)
        } else if !self.wished.is_empty() && is_wished() {
            Some(Why::Wished)
        } else {
            None
        };
        why.map(|why| End { why, killed: false })
    }
}

impl Entry {
    /// Moves one of its alarms, or takes it away.
    fn set(&mut self, alarms: &mut Alarms, alarm: Alarm, at: Option<Duration>) {
        let slot = match alarm {
            Alarm::Over => &mut self.over,
            Alarm::Trim => &mut self.trim,
        };
        if let Some(old) = slot.take() {
            alarms.remove(&(old, self.seen.worker, alarm));
        }
        if let Some(at) = at {
            alarms.insert((at, self.seen.worker, alarm));
            *slot = Some(at);
        }
    }

    /// Asks the step to end, unless it was asked before, or kills it in any case if that is the
    /// force. One that has no process yet will not be started, or asked as soon as it is.
    fn ask(
        &mut self,
        why: Why,
        force: Option<Force>,
        now: Duration,
        alarms: &mut Alarms,
    ) -> Option<Done> {
        let Some(process) = &self.process else {
            self.end.get_or_insert(End { why, killed: false });
            return None;
        };
        if force == Some(Force::Kill) {
            return self.kill(why);
        }
        // One that has ended by itself has ended in time.
        if self.end.is_some() || !process.end(Force::Ask) {
            return None;
        }
        self.end = Some(End { why, killed: false });
        self.set(
            alarms,
            Alarm::Over,
            Some(now.saturating_add(self.rules.grace)),
        );
        Some((self.seen.id, self.seen.fence, Deed::Asked(why)))
    }

    fn kill(&mut self, why: Why) -> Option<Done> {
        if !self.process.as_ref()?.end(Force::Kill) {
            return None;
        }
        self.end.get_or_insert(End { why, killed: true }).killed = true;
        Some((self.seen.id, self.seen.fence, Deed::Killed))
    }
}

#[cfg(test)]
#[path = "roster_tests.rs"]
mod tests;
