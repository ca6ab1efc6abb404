//! Who runs what now, and how to reach it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use super::executor::{Force, Process};
use crate::model::{Band, FairnessKey, StepId, Timestamp};

/// One running step.
struct Entry {
    seen: RunningStep,
    process: Option<Arc<dyn Process>>,
    interrupted: bool,
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

/// The steps that a crew runs.
#[derive(Default)]
pub(super) struct Roster {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<u32, Entry>,
    /// Once set, whatever starts is ended too: it may have been on its way when all were told.
    ending: Option<Force>,
}

impl Roster {
    /// Enters a step before its process is started.
    pub(super) fn enter(&self, seen: RunningStep) {
        let mut state = self.lock();
        let interrupted = state.ending.is_some();
        state.entries.insert(
            seen.worker,
            Entry {
                seen,
                process: None,
                interrupted,
            },
        );
    }

    /// Adds the process of a worker's step.
    pub(super) fn started(&self, worker: u32, process: &Arc<dyn Process>) {
        let mut state = self.lock();
        let ending = state.ending;
        if let Some(entry) = state.entries.get_mut(&worker) {
            entry.seen.pid = Some(process.pid());
            entry.process = Some(Arc::clone(process));
            entry.interrupted |= ending.is_some();
        }
        drop(state);
        if let Some(force) = ending {
            process.end(force);
        }
    }

    /// Takes a worker's step off; `true` if it was interrupted by us.
    pub(super) fn leave(&self, worker: u32) -> bool {
        self.lock()
            .entries
            .remove(&worker)
            .is_some_and(|entry| entry.interrupted)
    }

    /// Ends all running steps, and those that start from now on. Returns how many were signalled.
    pub(super) fn end_all(&self, force: Force) -> usize {
        let processes: Vec<Arc<dyn Process>> = {
            let mut state = self.lock();
            state.ending = Some(force);
            state
                .entries
                .values_mut()
                .filter_map(|entry| {
                    entry.interrupted = true;
                    entry.process.clone()
                })
                .collect()
        };
        processes
            .iter()
            .filter(|process| process.end(force))
            .count()
    }

    /// Returns whether all were told to end.
    pub(super) fn is_ending(&self) -> bool {
        self.lock().ending.is_some()
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
