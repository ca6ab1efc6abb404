//! Who hears what happens in a run.

use std::sync::Arc;

use super::eventlog::EventLog;
use super::runlog::RunLog;
use crate::decisions::DecisionLog;
use crate::event::{Decided, Event, Sink};
use crate::model::Timestamp;

/// Passes everything on: what is said now, and what is kept for later.
pub(super) struct Ears {
    pub(super) log: Arc<RunLog>,
    /// Absent where it cannot be kept.
    pub(super) events: Option<Arc<EventLog>>,
    pub(super) decisions: Arc<DecisionLog>,
}

impl Sink for Ears {
    fn emit(&self, at: Timestamp, event: &Event) {
        self.log.emit(at, event);
        if let Some(events) = &self.events {
            events.emit(at, event);
        }
    }

    fn decided(&self, at: Timestamp, decided: &Decided<'_>) {
        self.decisions.note(at, decided);
    }
}
