//! Which steps a filter means and in which order they are shown: the same for every backend.

use std::cmp::{Ordering, Reverse};

use crate::model::StepState;

use super::{Filter, Order, StepView};

impl Filter {
    /// Returns whether a step matches every part that is given.
    pub fn matches(&self, step: &StepView) -> bool {
        fn given<T>(wanted: &[T], fits: impl Fn(&T) -> bool) -> bool {
            wanted.is_empty() || wanted.iter().any(fits)
        }
        let local = step.id.local.get();
        given(&self.ids, |(shard, first, last)| {
            *shard == step.id.shard && (*first..=*last).contains(&local)
        }) && given(&self.states, |state| *state == step.state)
            && given(&self.keys, |key| *key == step.key)
            && given(&self.bands, |band| *band == step.band)
            && given(&self.tags, |tag| step.tags.contains(tag))
            && given(&self.flows, |flow| step.flow.as_ref() == Some(flow))
    }
}

impl Order {
    /// Compares two steps; the one to be shown first is less. Only a step equals itself.
    pub fn compare(self, a: &StepView, b: &StepView) -> Ordering {
        match self {
            Self::Relevance => rank(a.state)
                .cmp(&rank(b.state))
                .then_with(|| match a.state {
                    StepState::Running => a.at.cmp(&b.at),
                    StepState::Ready => (a.band, a.at).cmp(&(b.band, b.at)),
                    StepState::Delayed
                    | StepState::Blocked
                    | StepState::Limited
                    | StepState::Held
                    | StepState::Succeeded
                    | StepState::Failed
                    | StepState::Cancelled => newest(a).cmp(&newest(b)),
                })
                .then_with(|| a.id.cmp(&b.id)),
            Self::Id => a.id.cmp(&b.id),
            Self::Newest => newest(a).cmp(&newest(b)).then_with(|| a.id.cmp(&b.id)),
        }
    }
}

/// Returns the place of a state's group: what runs, what is due, the rest.
const fn rank(state: StepState) -> u8 {
    match state {
        StepState::Running => 0,
        StepState::Ready => 1,
        StepState::Delayed
        | StepState::Blocked
        | StepState::Limited
        | StepState::Held
        | StepState::Succeeded
        | StepState::Failed
        | StepState::Cancelled => 2,
    }
}

/// Returns what sorts newer steps first; of one instant the later number is the newer one.
fn newest(step: &StepView) -> impl Ord + use<> {
    (Reverse(step.created), Reverse(step.id.local))
}
