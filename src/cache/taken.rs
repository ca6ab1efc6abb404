//! The ids that were taken from the cache and whose fate no read of the store can know yet.
//!
//! A refiller reads what is committed. A step that a worker has taken but not yet claimed is still
//! due in that read, and so is one whose claim was committed after the read began. Put back into the
//! cache, each would cost a worker a claim that it must lose.

use crate::model::LocalId;

/// One shard's taken ids. A sorted list: it has about as many entries as there are workers, and
/// adding to it allocates next to never.
#[derive(Debug, Default)]
pub(super) struct TakenIds {
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    id: LocalId,
    /// How many workers took it and have not said how their claim ended: more than one only where
    /// the cache held the id twice. At 0 the entry waits for the next cycle to begin.
    undecided: u32,
}

impl TakenIds {
    /// Notes that a worker took this id.
    pub(super) fn take(&mut self, id: LocalId) {
        match self.find(id) {
            Ok(at) => self.entries[at].undecided += 1,
            Err(at) => self.entries.insert(at, Entry { id, undecided: 1 }),
        }
    }

    /// Notes that a claim of this id was decided. Ids that are not here are none of its business:
    /// they were offered anew in the meantime.
    pub(super) fn release(&mut self, id: LocalId) {
        if let Ok(at) = self.find(id) {
            let entry = &mut self.entries[at];
            entry.undecided = entry.undecided.saturating_sub(1);
        }
    }

    /// Strikes an id out: it is due again, and its origin knows.
    pub(super) fn forget(&mut self, id: LocalId) {
        if let Ok(at) = self.find(id) {
            self.entries.remove(at);
        }
    }

    /// Forgets the ids whose claims are decided: a read that starts now sees how.
    pub(super) fn begin_cycle(&mut self) {
        self.entries.retain(|entry| entry.undecided > 0);
    }

    /// Returns whether a read of the store may be behind on this id.
    pub(super) fn contains(&self, id: LocalId) -> bool {
        self.find(id).is_ok()
    }

    /// Returns the ids that are here, in their order.
    pub(super) fn ids(&self) -> impl Iterator<Item = LocalId> {
        self.entries.iter().map(|entry| entry.id)
    }

    /// Returns how many ids are here.
    pub(super) const fn len(&self) -> usize {
        self.entries.len()
    }

    fn find(&self, id: LocalId) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&id, |entry| entry.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn id(number: i64) -> LocalId {
        LocalId::new(number)
    }

    #[test]
    fn a_released_id_stays_until_the_next_cycle_begins() {
        let mut taken = TakenIds::default();
        taken.take(id(1));
        taken.begin_cycle();
        assert!(taken.contains(id(1)), "its claim is undecided");
        taken.release(id(1));
        assert!(taken.contains(id(1)), "the cycle's read may be older");
        taken.begin_cycle();
        assert!(!taken.contains(id(1)));
    }

    #[test]
    fn an_id_that_was_taken_twice_waits_for_both() {
        let mut taken = TakenIds::default();
        taken.take(id(1));
        taken.take(id(1));
        taken.release(id(1));
        taken.begin_cycle();
        assert!(taken.contains(id(1)));
        taken.release(id(1));
        taken.begin_cycle();
        assert_eq!(taken.len(), 0);
    }

    #[test]
    fn a_late_release_does_not_bring_back_an_id_that_was_offered_anew() {
        let mut taken = TakenIds::default();
        taken.take(id(1));
        taken.forget(id(1));
        taken.release(id(1));
        assert!(!taken.contains(id(1)));
    }

    #[test]
    fn ids_are_found_whatever_their_order() {
        let mut taken = TakenIds::default();
        for number in [5, 1, 4, 2, 3] {
            taken.take(id(number));
        }
        taken.forget(id(3));
        let found: Vec<_> = (0..7)
            .filter(|&number| taken.contains(id(number)))
            .collect();
        assert_eq!(found, [1, 2, 4, 5]);
    }
}
