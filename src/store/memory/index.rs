//! Which steps of a shard stand where, in the orders in which they are asked for.

use std::collections::BTreeSet;

use super::step::{Stand, Step};
use crate::model::{Band, FairnessKey, LocalId, Timestamp};

/// A step among others of its band and key, the oldest first.
pub(super) type Place = (Band, FairnessKey, LocalId);

/// What the steps themselves say, sorted. [`super::shard::Shard::change`] alone writes it.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) ready: BTreeSet<Place>,
    pub(super) limited: BTreeSet<Place>,
    pub(super) delayed: BTreeSet<(Timestamp, LocalId)>,
    pub(super) expiring: BTreeSet<(Timestamp, LocalId)>,
}

impl Index {
    pub(super) fn add(&mut self, id: LocalId, step: &Step) {
        let place = (step.asked.band, step.asked.key.clone(), id);
        match step.stand {
            Stand::Ready { .. } => _ = self.ready.insert(place),
            Stand::Limited { .. } => _ = self.limited.insert(place),
            Stand::Delayed { due } => _ = self.delayed.insert((due, id)),
            Stand::Blocked { .. } | Stand::Held { .. } | Stand::Running(_) | Stand::Over(_) => {}
        }
        if let Some(deadline) = step.deadline() {
            self.expiring.insert((deadline, id));
        }
    }

    pub(super) fn remove(&mut self, id: LocalId, step: &Step) {
        let place = (step.asked.band, step.asked.key.clone(), id);
        match step.stand {
            Stand::Ready { .. } => _ = self.ready.remove(&place),
            Stand::Limited { .. } => _ = self.limited.remove(&place),
            Stand::Delayed { due } => _ = self.delayed.remove(&(due, id)),
            Stand::Blocked { .. } | Stand::Held { .. } | Stand::Running(_) | Stand::Over(_) => {}
        }
        if let Some(deadline) = step.deadline() {
            self.expiring.remove(&(deadline, id));
        }
    }
}
